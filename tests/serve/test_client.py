from __future__ import annotations

import inspect
import pickle
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime

import httpx
import orjson
import pytest
from fastapi import FastAPI

from owlclaw_ray.client import Client, ClientError, ServerUnreachableError, SyncClient
from owlclaw_ray.client.asynchronous import server_sent_events
from owlclaw_ray.domain.artifact import TEXT
from owlclaw_ray.errors import (
    AgentBusyError,
    DefinitionError,
    IdempotencyConflictError,
    MemoryChangedError,
    NotFoundError,
    QueueFullError,
    QuotaReachedError,
    RuntimeUnavailableError,
    StoreUnavailableError,
    UnknownAgentError,
)
from owlclaw_ray.runtime.api import Runtime
from tests.serve.double import ARTIFACT, BROKEN, FINAL_TEXT, MemoryRuntime

App = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Pauses:
    """Counts how long the client would have slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Flaky(httpx.AsyncBaseTransport):
    """Passes requests on, except that the first ones meet these faults, in order."""

    def __init__(self, inner: httpx.AsyncBaseTransport, faults: list[Exception | httpx.Response]) -> None:
        self._inner = inner
        self._faults = faults
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if not self._faults:
            return await self._inner.handle_async_request(request)
        fault = self._faults.pop(0)
        if isinstance(fault, Exception):
            raise fault
        return fault


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def client(api: FastAPI, pauses: Pauses) -> AsyncIterator[Client]:
    async with Client("http://localhost:8700", transport=httpx.ASGITransport(api), sleep=pauses) as client:
        yield client


@pytest.fixture
def sync_client(server: str) -> Iterator[SyncClient]:
    with SyncClient(server) as client:
        yield client


def flaky(api: FastAPI, pauses: Pauses, *faults: Exception | httpx.Response) -> tuple[Client, Flaky]:
    transport = Flaky(httpx.ASGITransport(api), list(faults))
    return Client("http://localhost:8700", transport=transport, sleep=pauses, attempts=3), transport


async def test_a_trigger_is_submitted_and_its_run_read(client: Client):
    accepted = await client.submit("assistant:股票", {"中文": 1}, focus="看一下")
    run = await client.run(accepted["run_id"], events=True)

    assert (run["agent"], run["trigger"]["payload"], run["trigger"]["focus"]) == (
        "assistant:股票",
        {"中文": 1},
        "看一下",
    )
    assert run["events"][-1]["kind"] == "run_finished"


async def test_waiting_gives_the_whole_run(client: Client):
    run = await client.submit("assistant", wait=10)

    assert "result" in run
    assert run["status"] == "completed"


async def test_the_same_key_gives_the_same_run(client: Client):
    first = await client.submit("assistant", 1, idempotency_key="k")
    second = await client.submit("assistant", 1, idempotency_key="k")

    assert second["run_id"] == first["run_id"]
    with pytest.raises(IdempotencyConflictError, match="'k'"):
        await client.submit("assistant", 2, idempotency_key="k")


async def test_all_agents_are_listed_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch):
    page_of = client.agents_page
    monkeypatch.setattr(client, "agents_page", lambda after, limit: page_of(after=after, limit=min(limit, 2)))

    assert [agent["agent"] for agent in await client.agents()] == ["assistant", "broken", "patient"]


async def test_what_an_agent_has_is_listed(client: Client):
    run = await client.submit("assistant", wait=5)

    assert [agent["agent"] for agent in await client.agents()] == ["assistant", "broken", "patient"]
    assert (await client.agent("assistant"))["scripted"] is True
    assert [skill["name"] for skill in await client.skills("assistant")] == ["巡检", "scan"]
    assert (await client.reload("assistant"))["agent"] == "assistant"
    assert [memory["content"] for memory in await client.memories("assistant")] == ["机器很闲"]
    assert [server["state"] for server in await client.mcp_servers()] == ["up", "down"]
    assert [node["state"] for node in (await client.nodes())["nodes"]] == ["active", "lost"]
    assert [node["state"] for node in (await client.drain("alpha"))["nodes"]] == ["draining"]
    assert [node["state"] for node in (await client.undrain("all"))["nodes"]] == ["active"]
    assert await client.ledger("assistant") == await client.ledger(run=run["run_id"], kind="decision")
    assert (await client.ledger_page(tool="recall", since=datetime(2026, 1, 1, tzinfo=UTC), limit=1))["records"] == []
    assert (await client.verify_ledger())["holds"] is True
    assert [each["run_id"] for each in (await client.runs("assistant", "completed", limit=5))["runs"]] == [
        run["run_id"]
    ]
    assert (await client.runs(payloads=True))["runs"] == [run]
    assert (await client.health())["ready"] is True


async def test_memories_are_kept_in_order_by_the_client(client: Client):
    stored = await client.remember("patient", "老板周五不在", ["owner"], idempotency_key="k")
    again = await client.remember("patient", "老板周五不在", ["owner"], idempotency_key="k")
    memory_id = stored["memory_id"]
    found = await client.search_memories("patient", "周五", tags=["owner"])
    edited = await client.edit_memory("patient", memory_id, tags=[])
    with pytest.raises(MemoryChangedError, match=memory_id):
        await client.edit_memory("patient", memory_id, "不", old_content="老板在")
    page = await client.memories_page("patient", limit=1)
    assert (page["memories"], page["next_after"]) == ([edited], None)
    moved = await client.archive_memories("patient", [memory_id])

    assert again == stored == await client.memory("patient", memory_id) | {"tags": ["owner"]}
    assert [each["memory_id"] for each in found["memories"]] == [memory_id]
    assert (edited["content"], edited["tags"]) == ("老板周五不在", [])
    assert moved == await client.memories("patient", archived=True)
    assert (await client.search_memories("patient", "周五", archived=True))["memories"][0]["memory_id"] == memory_id
    assert (await client.memory_stats("patient"))["archived"] == 1
    assert await client.reindex_memories("patient") == 0
    assert (await client.delete_memory("patient", memory_id))["memory_id"] == memory_id
    with pytest.raises(NotFoundError):
        await client.memory("patient", memory_id)


async def test_refusals_are_the_errors_that_the_server_raised(client: Client):
    with pytest.raises(UnknownAgentError) as unknown:
        await client.submit("nobody")
    with pytest.raises(DefinitionError) as definition:
        await client.submit("broken")
    with pytest.raises(NotFoundError, match="run_x"):
        await client.run("run_x")
    with pytest.raises(ClientError) as refused:
        await client.submit("assistant", focus="x" * 501)

    assert unknown.value.known == ("assistant", "broken", "patient")
    assert definition.value.problems == (BROKEN,)
    assert (refused.value.status, refused.value.problem["problems"][0]["where"]) == (422, "body.focus")
    assert pickle.loads(pickle.dumps(refused.value)).problem == refused.value.problem


async def test_a_trigger_whose_answer_was_lost_is_sent_again_under_the_same_key(api: FastAPI, pauses: Pauses):
    client, transport = flaky(api, pauses, httpx.ReadError("reset"), httpx.Response(502, text="bad gateway"))
    async with client:
        await client.submit("assistant")
        assert len((await client.runs())["runs"]) == 1

    assert len({request.headers["idempotency-key"] for request in transport.requests[:3]}) == 1
    assert len(pauses.seconds) == 2


async def test_a_wish_to_retry_later_is_respected(api: FastAPI, pauses: Pauses):
    client, _ = flaky(api, pauses, httpx.Response(503, headers={"Retry-After": "7"}))
    async with client:
        await client.agents()

    assert pauses.seconds == [7.0]


async def test_a_server_that_stays_unavailable_is_given_up_with_its_own_words(
    client: Client, runtime: Runtime, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
):
    async def unavailable(*_args: object, **_kwargs: object) -> None:
        raise StoreUnavailableError("the store is read-only")

    monkeypatch.setattr(runtime, "submit", unavailable)
    with pytest.raises(StoreUnavailableError, match="the store is read-only"):
        await client.submit("assistant")
    assert pauses.seconds == [1.0] * 6


async def test_a_trigger_is_sent_again_while_the_load_balancer_has_no_server(api: FastAPI, pauses: Pauses):
    faults = [
        httpx.ConnectError("refused"),
        httpx.Response(500, html="<html><h1>500 Internal Server Error</h1></html>"),
        httpx.Response(503, text="no server"),
    ]
    client, transport = flaky(api, pauses, *faults)
    client._attempts = 4
    async with client:
        await client.submit("assistant")
        assert len((await client.runs())["runs"]) == 1

    assert len({request.headers["idempotency-key"] for request in transport.requests[:4]}) == 1
    assert [low <= pause <= 2 * low for low, pause in zip((0.1, 0.2, 0.4), pauses.seconds, strict=True)] == [True] * 3


async def test_what_a_load_balancer_keeps_saying_is_unavailable(api: FastAPI, pauses: Pauses):
    client, transport = flaky(api, pauses, *(httpx.Response(500, text="oops") for _ in range(3)))
    async with client:
        with pytest.raises(RuntimeUnavailableError, match="the server answered 500 Internal Server Error"):
            await client.submit("assistant")

    assert len(transport.requests) == 3


async def test_a_failure_that_the_server_explains_is_not_tried_again(
    client: Client, runtime: Runtime, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
):
    async def fails(*_args: object, **_kwargs: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(runtime, "submit", fails)
    with pytest.raises(ClientError, match="unexpected error in the server") as failed:
        await client.submit("assistant")

    assert (failed.value.status, pauses.seconds) == (500, [])


async def test_what_a_server_says_in_no_known_form_is_still_an_error(api: FastAPI, pauses: Pauses):
    odd = [
        httpx.Response(404, json={"type": "urn:owlclaw:problem:not-found", "detail": "gone"}),
        httpx.Response(418, json=["teapot"]),
    ]
    client, _ = flaky(api, pauses, *odd)
    async with client:
        for status, text in ((404, "gone"), (418, "the server answered 418")):
            with pytest.raises(ClientError, match=text) as refused:
                await client.agents()
            assert refused.value.status == status


async def test_a_busy_agent_is_an_error_that_names_its_run(client: Client, pauses: Pauses):
    run_id = (await client.submit("patient"))["run_id"]
    with pytest.raises(AgentBusyError) as busy:
        await client.submit("patient", busy="reject")

    assert (busy.value.agent, busy.value.run_id, pauses.seconds) == ("patient", run_id, [])
    assert pickle.loads(pickle.dumps(busy.value)).run_id == run_id


async def test_a_full_queue_is_waited_for_as_the_server_asks_and_then_given_up(
    client: Client, runtime: MemoryRuntime, pauses: Pauses
):
    runtime.full_at = 3
    with pytest.raises(QueueFullError, match="agent 'assistant' has 3 queued runs") as full:
        await client.submit("assistant")

    assert pauses.seconds == [5.0] * 6
    assert pickle.loads(pickle.dumps(full.value)).limit == 3


async def test_a_reached_quota_is_waited_for_as_the_server_asks_and_then_told(
    client: Client, runtime: MemoryRuntime, pauses: Pauses
):
    runtime.refusal = QuotaReachedError("open_runs", 5, 1.0, of_key=True)
    with pytest.raises(QuotaReachedError, match="the key has 5 runs that are not over") as reached:
        await client.submit("assistant")

    assert pauses.seconds == [1.0] * 6
    told = pickle.loads(pickle.dumps(reached.value))
    assert (told.quota, told.limit, told.retry_after, told.of_key) == ("open_runs", 5, 1, True)


async def test_a_trigger_says_how_it_comes_to_its_agent_only_where_that_is_unusual(api: FastAPI, pauses: Pauses):
    client, transport = flaky(api, pauses)
    async with client:
        await client.submit("assistant", 1)
        accepted = await client.submit("assistant", 1, busy="interrupt", priority=5, deadline=60)
        run = await client.run(accepted["run_id"])

    assert [orjson.loads(request.content) for request in transport.requests[:2]] == [
        {"payload": 1, "focus": ""},
        {"payload": 1, "focus": "", "busy": "interrupt", "priority": 5, "deadline_seconds": 60},
    ]
    assert run["priority"] == 5


async def test_nothing_listening_is_said_with_the_address(api: FastAPI, pauses: Pauses):
    faults = [httpx.ConnectError("refused") for _ in range(4)]
    client, _ = flaky(api, pauses, *faults)
    async with client:
        with pytest.raises(
            ServerUnreachableError, match="no server answers at http://localhost:8700: refused"
        ) as caught:
            await client.agents()
        with pytest.raises(ServerUnreachableError):
            await client.health()

    assert isinstance(caught.value, RuntimeUnavailableError)
    assert pickle.loads(pickle.dumps(caught.value)).url == "http://localhost:8700"


async def test_events_come_once_each_and_end_with_the_run(client: Client):
    accepted = await client.submit("assistant")
    events = [event async for event in client.events(accepted["run_id"])]

    assert [event["seq"] for event in events] == list(range(1, 9))
    assert events[-1]["data"]["final_text"] == FINAL_TEXT
    assert [event["seq"] async for event in client.events(accepted["run_id"], after=7)] == [8]


async def test_a_broken_event_stream_goes_on_after_the_last_event(api: FastAPI, pauses: Pauses):
    first = b'id: 1\nevent: run_queued\ndata: {"seq": 1}\n\nid: 2\nevent: run_started\nda'
    client, transport = flaky(api, pauses)
    async with client:
        accepted = await client.submit("assistant")
        transport._faults += [httpx.Response(200, content=first), httpx.ReadError("reset")]
        seqs = [event["seq"] async for event in client.events(accepted["run_id"])]

    assert seqs == list(range(1, 9))
    assert [request.headers["last-event-id"] for request in transport.requests[1:]] == ["0", "1", "1"]


async def test_an_event_stream_that_never_gets_anywhere_is_given_up(api: FastAPI, pauses: Pauses):
    client, _ = flaky(api, pauses, *(httpx.Response(200, content=b": interrupted\n\n") for _ in range(3)))
    async with client:
        with pytest.raises(ServerUnreachableError, match="cut off"):
            _ = [event async for event in client.events("run_x")]


async def test_events_of_an_unknown_run_are_an_error(client: Client):
    with pytest.raises(NotFoundError):
        _ = [event async for event in client.events("run_x")]


async def test_a_run_is_cancelled_while_its_events_are_read(server: str):
    async with Client(server) as client:
        accepted = await client.submit("patient")
        kinds = []
        async for event in client.events(accepted["run_id"]):
            kinds.append(event["kind"])
            if event["kind"] == "run_started":
                await client.cancel(accepted["run_id"])

    assert kinds == ["run_queued", "run_started", "cancel_requested", "run_finished"]


def test_the_synchronous_client_does_the_same(sync_client: SyncClient):
    run_id = sync_client.submit("assistant", {"a": 1}, wait=5)["run_id"]

    assert [event["seq"] for event in sync_client.events(run_id, after=5)] == [6, 7, 8]
    assert sync_client.run(run_id)["status"] == "completed"
    with pytest.raises(UnknownAgentError):
        sync_client.agent("nobody")


def test_leaving_the_events_of_the_synchronous_client_early_is_clean(sync_client: SyncClient):
    run_id = sync_client.submit("patient")["run_id"]
    events = sync_client.events(run_id)
    assert next(events)["kind"] == "run_queued"
    events.close()

    assert sync_client.cancel(run_id)["cancel_requested"] is True


async def test_the_synchronous_client_works_inside_a_running_event_loop(server: str):
    with SyncClient(server) as client:
        assert client.health()["ready"] is True


def test_the_synchronous_client_has_every_method_of_the_other():
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}

    assert public <= set(vars(SyncClient))


async def test_server_sent_events_are_split_at_line_feeds_only():
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b": hi\n\neve", b"nt: a\r\ndata: 1\xe2\x80", b"\xa82\ndata:3\n", b"\n", b"data: cut"):
            yield chunk

    assert [event async for event in server_sent_events(chunks())] == [("a", "1\u20282\n3".encode())]


async def test_artifacts_are_listed_and_read_as_they_were(client: Client):
    [listed] = await client.artifacts("assistant", limit=5)
    read = await client.artifact("assistant", listed["artifact_id"])

    assert (read.artifact_id, read.media_type, read.content) == (ARTIFACT.artifact_id, TEXT, "很长的结果".encode())
    assert await client.artifacts("assistant:other") == []
    with pytest.raises(NotFoundError):
        await client.artifact("assistant:other", listed["artifact_id"])


def test_artifacts_are_read_without_an_event_loop_too(sync_client: SyncClient):
    [listed] = sync_client.artifacts("assistant")

    assert sync_client.artifact("assistant", listed["artifact_id"]).content == ARTIFACT.content


def test_only_a_client_of_https_reads_the_authorities_that_it_believes(monkeypatch: pytest.MonkeyPatch):
    read: list[ssl.SSLContext] = []
    monkeypatch.setattr(httpx.AsyncClient, "__init__", lambda _self, **options: read.append(options["verify"]))

    for url in ("http://127.0.0.1:8700", "http://owlclaw.example", "https://owlclaw.example"):
        Client(url)

    plain, elsewhere, secure = read
    assert plain.get_ca_certs() == elsewhere.get_ca_certs() == []
    assert plain.verify_mode is ssl.CERT_REQUIRED
    assert secure.get_ca_certs()
    assert secure.verify_mode is ssl.CERT_REQUIRED
