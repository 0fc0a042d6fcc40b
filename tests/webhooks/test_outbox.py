from __future__ import annotations

import asyncio
import base64
import dataclasses
import socket
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.client import verify_callback
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.tracing import run_span
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import StoreUnavailableError, WebhookRefusedError
from owlclaw_ray.ids import DEFAULT_TENANT, RandomIds, RunId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.store.commands import CancelRun, CommandFailed, SubmitRun
from owlclaw_ray.webhooks.callback_secrets import tenant_secrets
from owlclaw_ray.webhooks.expiry import WebhookExpiry
from owlclaw_ray.webhooks.outbox import CallbackCounts, CallbackDelivery
from tests.definitions.writing import write_definition
from tests.webhooks.conftest import KEY, OPTIONS, START, mapped
from tests.webhooks.receiver import Answer, Close, Endless, Hang, receiving


def read(received, now=START, tenant=DEFAULT_TENANT):
    return verify_callback(received.headers, received.body, tenant_secrets([KEY], tenant), now, tenant=tenant)


async def test_the_end_of_a_run_is_told_signed_to_the_address_of_its_trigger(installation, receiver):
    run = await installation.trigger(payload={"secret": "of the caller"}, focus="价格", callback_url=receiver.url)

    assert await installation.tell() == 1

    (received,) = receiver.received
    said = read(received)
    assert (said["type"], said["timestamp"]) == ("run.finished", run["finished_at"])
    data = said["data"]
    assert (data["run_id"], data["tenant"], data["agent"]) == (run["run_id"], "default", "assistant")
    assert data["status"] == "completed"
    assert (data["final_text"], data["trigger"]["focus"]) == (run["result"]["final_text"], "价格")
    assert "payload" not in data["trigger"]
    assert (received.path, received.headers["content-type"]) == ("/ended", "application/json")
    assert received.headers["traceparent"] == str(run_span(run["run_id"]))
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    (callback,) = await installation.callbacks()
    assert (callback["status"], callback["attempts"], callback["problem"]) == ("delivered", 1, "")
    assert await installation.tell(3600) == 0


async def test_callbacks_are_sent_when_sending_starts_again_after_a_rest(installation, receiver):
    await installation.trigger(callback_url=receiver.url)
    await installation.tell()
    await installation.runtime.callbacks.stop()
    await installation.trigger(callback_url=receiver.url)

    installation.runtime.callbacks.start()
    await installation.tell()

    assert len(receiver.received) == 2
    assert {each["status"] for each in await installation.callbacks()} == {"delivered"}


async def test_a_callback_waits_for_the_end_of_its_run(installation, receiver):
    await installation.runtime.directory.stop(0)
    await installation.http.post("/v1/agents/assistant/triggers", json={"callback_url": receiver.url})

    assert await installation.tell(60) == 0
    (callback,) = await installation.callbacks(status="waiting")
    again = await installation.http.post(f"/v1/callbacks/{callback['callback_id']}/redelivery")
    assert (again.status_code, again.json()["why"]) == (409, "its run is not over")

    await installation.http.post(f"/v1/runs/{callback['run_id']}/cancel")
    assert await installation.tell() == 1
    assert read(receiver.received[0], installation.clock.now())["data"]["status"] == "cancelled"


async def test_a_definition_may_want_to_be_told_of_all_its_runs(install, receiver, tmp_path):
    agent = f"model: scripted:echo\ncallback_url: {receiver.url}\n"
    write_definition(tmp_path / "agents" / "assistant", agent=agent)
    async with install() as installation:
        await installation.trigger()
        await installation.trigger(callback_url=receiver.url)
        await installation.tell()

    assert len(receiver.received) == 2


async def test_a_webhook_source_may_want_to_be_told(install, receiver):
    shop = mapped()
    admission = replace(shop.mapping.admission, callback_url=receiver.url)
    async with install(mapped(admission=admission)) as installation:
        run_id = (await installation.send()).json()["run_id"]
        while (await installation.http.get(f"/v1/runs/{run_id}")).json()["finished_at"] is None:
            await asyncio.sleep(0)
        await installation.tell()

    assert read(receiver.received[0])["data"]["run_id"] == run_id


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        (Answer(500), "the receiver answered 500"),
        (Answer(404), "the receiver answered 404"),
        (Answer(302, {"location": "/elsewhere"}), "the receiver answered 302"),
        (Close(), "RemoteProtocolError"),
        (Hang(), "no answer within 1 s"),
    ],
)
async def test_what_fails_is_tried_again_later_and_says_why(impatient, receiver, behaviour, problem):
    receiver.behaviours.append(behaviour)
    await impatient.trigger(callback_url=receiver.url)

    await impatient.tell()

    (callback,) = await impatient.callbacks()
    assert (callback["status"], callback["attempts"]) == ("pending", 1)
    assert problem in callback["problem"]
    assert (await impatient.tell(4.9), await impatient.tell(0.1)) == (0, 1)
    assert (await impatient.callbacks())[0]["status"] == "delivered"
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert {each.path for each in receiver.received} == {"/ended"}
    assert read(second, impatient.clock.now())


async def test_an_answer_that_never_ends_is_a_success_by_its_status(installation, receiver):
    receiver.behaviours.append(Endless())
    await installation.trigger(callback_url=receiver.url)

    await installation.tell()

    assert (await installation.callbacks())[0]["status"] == "delivered"


async def test_the_pauses_grow_and_after_the_last_try_a_callback_is_dead_until_somebody_wants_it(
    installation, receiver
):
    receiver.behaviours.extend(Answer(503) for _ in range(4))
    await installation.trigger(callback_url=receiver.url)

    assert [await installation.tell(seconds) for seconds in (0, 5, 9.9, 0.1, 3600)] == [1, 1, 0, 1, 0]
    (dead,) = await installation.callbacks(status="dead")
    assert (dead["attempts"], dead["next_try_at"], dead["problem"]) == (3, None, "the receiver answered 503")

    again = await installation.http.post(f"/v1/callbacks/{dead['callback_id']}/redelivery")
    told = (await installation.http.get("/v1/ledger?kind=access")).json()["records"]
    assert [(each["data"], each["run_id"]) for each in told] == [
        (
            {"what": "callback_redelivered", "callback_id": dead["callback_id"], "by": "system:local"},
            dead["run_id"],
        )
    ]
    assert (again.status_code, again.json()["status"], again.json()["attempts"]) == (200, "pending", 0)
    assert [await installation.tell(seconds) for seconds in (0, 5)] == [1, 1]
    assert (await installation.callbacks())[0]["status"] == "delivered"
    assert installation.runtime.callbacks.counts == CallbackCounts(delivered=1, failed=3, dead=1)


async def test_a_receiver_that_is_gone_is_not_asked_again(installation, receiver):
    receiver.behaviours.append(Answer(410))
    await installation.trigger(callback_url=receiver.url)

    await installation.tell()

    assert (await installation.callbacks())[0]["status"] == "dead"


async def test_a_receiver_may_ask_for_time(installation, receiver):
    receiver.behaviours.append(Answer(429, {"retry-after": "50"}))
    await installation.trigger(callback_url=receiver.url)
    await installation.tell()

    assert (await installation.tell(49), await installation.tell(1)) == (0, 1)


async def test_a_receiver_that_does_not_listen_is_tried_again(installation):
    async with receiving() as gone:
        url = gone.url
    await installation.trigger(callback_url=url)

    await installation.tell()

    (callback,) = await installation.callbacks()
    assert (callback["status"], callback["problem"].partition(":")[0]) == ("pending", "ConnectError")


async def test_an_attempt_that_was_interrupted_is_made_again_after_a_restart(install, receiver):
    """The process dies between the commit of the run's end and the answer of the receiver."""
    receiver.behaviours.append(Hang())
    async with install(options=dataclasses.replace(OPTIONS, seconds=30.0)) as before:
        await before.trigger(callback_url=receiver.url)
        await before.runtime.callbacks.tick()
        while not receiver.received:
            await asyncio.sleep(0)
        clock = before.clock

    async with install(clock=clock) as after:
        (callback,) = await after.callbacks()
        assert (callback["status"], callback["attempts"]) == ("pending", 1)
        assert (await after.tell(59), await after.tell(1)) == (0, 1)
        assert (await after.callbacks())[0]["status"] == "delivered"

    assert len({each.headers["webhook-id"] for each in receiver.received}) == 1


async def test_the_end_of_a_run_before_a_restart_is_told_after_it(install, receiver):
    async with install() as before:
        await before.trigger(callback_url=receiver.url)

    async with install() as after:
        assert await after.tell() == 1
    assert len(receiver.received) == 1


async def test_two_who_send_make_each_attempt_once(installation, receiver):
    await installation.trigger(callback_url=receiver.url)
    first = installation.runtime.callbacks
    parts = {"store": first._store, "sender": first._sender, "clock": first._clock, "jitter": first._jitter}
    parts["rules"] = first._rules
    second = CallbackDelivery(OPTIONS, **parts, ids=RandomIds())

    taken = await asyncio.gather(*(each.tick() for each in (first, second) * 5))
    await first.settled()
    await second.settled()

    assert sum(taken) == 1
    assert len(receiver.received) == 1


async def test_a_receiver_that_hangs_holds_up_nobody_else(impatient, receiver):
    async with receiving() as slow:
        slow.behaviours.extend(Hang() for _ in range(9))
        for number in range(6):
            await impatient.trigger(callback_url=f"{slow.url}/{number}")
        await impatient.trigger(callback_url=receiver.url)

        assert await impatient.runtime.callbacks.tick() == 5
        while not receiver.received:
            await asyncio.sleep(0)
        await impatient.runtime.callbacks.settled()
        assert len(slow.received) == 4


def ended(number, url, at=START):
    """Two commands: a run that is over, whose end this address is to be told of."""
    run_id = RunId(f"run_{number}_{url}")
    run = SubmitRun(run_id, AgentRef.parse("assistant"), Trigger(TriggerKind.API), START, callback_urls=(url,))
    return run, CancelRun(DEFAULT_TENANT, run_id, at)


async def test_hosts_that_hang_give_way_to_one_that_has_less_under_way(impatient, receiver):
    """Eight dead hosts have all 32 places, and as many callbacks again that wait for longer than that of the ninth."""
    await impatient.runtime.directory.stop(0)
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(receiving()) for _ in range(8)]
        for each in slow:
            each.behaviours.extend(Hang() for _ in range(9))
            urls = [f"{each.url}/{number}" for number in range(8)]
            commands = [command for number, url in enumerate(urls) for command in ended(number, url)]
            await impatient.runtime.store.apply(commands)
        assert await impatient.tell() == 32

        await impatient.clock.advance(1)
        await impatient.runtime.store.apply(ended(1, receiver.url, impatient.clock.now()))
        await impatient.runtime.callbacks.tick()
        await impatient.runtime.callbacks.settled()
        callbacks = await impatient.callbacks()

    tried = {each["url"]: each["attempts"] for each in callbacks}
    assert (sum(tried.values()), tried[receiver.url]) == (64, 1)


async def test_a_host_is_told_as_fast_as_it_answers(installation, receiver):
    await installation.runtime.directory.stop(0)
    for number in range(12):
        await installation.runtime.store.apply(ended(number, f"{receiver.url}/{number}"))

    sending = installation.runtime.callbacks
    sending.start()
    for _ in range(18):
        while sending._sending or not installation.clock.sleepers:
            await asyncio.sleep(0)
        await installation.clock.advance(0.05)

    assert len(receiver.received) == 12


async def test_a_definition_is_told_of_a_run_of_a_schedule_that_ends_before_an_agent_looks(install, receiver, tmp_path):
    agent = f"model: scripted:echo\ncallback_url: {receiver.url}\n"
    write_definition(tmp_path / "agents" / "assistant", agent=agent)
    async with install() as installation:
        await installation.runtime.directory.stop(0)
        asked = {"focus": "look around", "interval_seconds": 60}
        made = await installation.http.post("/v1/agents/assistant/schedules", json=asked)
        await installation.clock.advance(60)
        await installation.runtime.schedule_firer.fire_all_due()
        await installation.http.post(f"/v1/schedules/{made.json()['schedule_id']}/cancel")
        await installation.tell()

    assert read(receiver.received[0], installation.clock.now())["data"]["status"] == "cancelled"


async def test_who_joins_a_queued_run_is_told_too(installation, receiver):
    runtime = installation.runtime
    await runtime.directory.stop(0)
    for number in range(2):
        body = {"busy": "coalesce", "callback_url": f"{receiver.url}/{number}"}
        run_id = (await installation.http.post("/v1/agents/assistant/triggers", json=body)).json()["run_id"]
    await installation.http.post(f"/v1/runs/{run_id}/cancel")
    await installation.tell()

    assert sorted(each.path for each in receiver.received) == ["/ended/0", "/ended/1"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://ada:pw@example.org/", "must have no user and no password"),
        ("https://example.org:99999/", "is no URL"),
        ("http://localhost/", "not a public address"),
        ("http://127.0.0.1:8700/v1/runs", "not a public address"),
        ("http://[::1]/", "not a public address"),
        ("http://10.0.0.1/", "not a public address"),
        ("http://169.254.169.254/latest/meta-data", "not a public address"),
        ("http://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://[64:ff9b::a00:1]/", "not a public address"),
        ("http://[2002:a00:1::]/", "not a public address"),
        ("http://[fe80::1]/", "not a public address"),
        ("http://0.0.0.0/", "not a public address"),
    ],
)
async def test_an_address_that_nobody_may_be_told_at_is_refused_at_once(install, url, why):
    async with install(networks=()) as installation:
        answer = await installation.http.post("/v1/agents/assistant/triggers", json={"callback_url": url})

        assert (answer.status_code, answer.json()["type"]) == (422, "urn:owlclaw:problem:callback-refused")
        assert why in answer.json()["detail"]
        assert await installation.runs() == []


@pytest.mark.parametrize(
    "url", ["ftp://example.org/", "https://", "https://例子.org/", "https://example.org/" + "x" * 2000]
)
async def test_what_is_no_address_is_refused_as_the_field_that_it_is(install, url):
    async with install(networks=()) as installation:
        answer = await installation.http.post("/v1/agents/assistant/triggers", json={"callback_url": url})

        assert (answer.status_code, answer.json()["type"]) == (422, "urn:owlclaw:problem:invalid-request")
        assert "body.callback_url" in answer.text
        assert await installation.runs() == []


async def test_a_name_that_leads_to_a_private_address_is_not_connected_to(install, receiver, monkeypatch):
    async with install(networks=()) as installation:
        looked_up = []

        def look_up(host, port, **_):
            looked_up.append(host)
            return [(2, 1, 6, "", ("93.184.215.14", port)), (2, 1, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        url = f"http://rebinding.example.org:{receiver.port}/"
        await installation.trigger(callback_url=url)
        await installation.tell()

        (callback,) = await installation.callbacks()
        assert callback["problem"].startswith("rebinding.example.org leads to 127.0.0.1, which is not a public address")
        assert looked_up == ["rebinding.example.org"]
    assert receiver.received == []


async def test_a_name_is_looked_up_once_and_kept_as_the_host(install, receiver, monkeypatch):
    async with install() as installation:
        real, looked_up = socket.getaddrinfo, []

        def look_up(host, port, **options):
            looked_up.append(host)
            return real("127.0.0.1", port, **options)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        await installation.trigger(callback_url=f"http://told.example.org:{receiver.port}/ended?key=1")
        await installation.tell()

    assert [host for host in looked_up if not str(host).startswith("127.")] == ["told.example.org"]
    assert receiver.received[0].headers["host"] == f"told.example.org:{receiver.port}"
    assert receiver.received[0].path == "/ended?key=1"


async def test_a_callback_to_an_address_of_ipv6_is_sent_there(installation):
    sender = installation.runtime.callbacks._sender

    answer = await sender.send(DEFAULT_TENANT, "http://[::1]:1/", {}, b"{}", CallbackRules(("::1/128",)))

    assert "ConnectError" in answer.why


def test_a_callback_is_read_by_whoever_has_the_secret(request):
    from owlclaw_ray.domain.signing import signed_callback

    at, body = int(START.timestamp()), b'{"type":"run.finished","data":{"tenant":"default"}}'
    signature = signed_callback("cb_1", at, body, base64.b64decode(KEY))
    headers = {"Webhook-Id": "cb_1", "Webhook-Timestamp": str(at), "Webhook-Signature": f"v1,other {signature}"}
    late = START + timedelta(seconds=301)

    assert verify_callback(headers, body, [f"whsec_{KEY}"], START)["type"] == "run.finished"
    for changed, content, now in (
        (headers, body + b" ", START),
        (headers, body, late),
        ({**headers, "Webhook-Id": "cb_2"}, body, START),
        ({**headers, "Webhook-Timestamp": "soon"}, body, START),
        ({}, body, START),
    ):
        with pytest.raises(WebhookRefusedError):
            verify_callback(changed, content, [KEY], now)


async def test_what_is_over_is_forgotten_after_its_time(installation, receiver, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.webhooks.expiry._BATCH", 2)
    for number in range(3):
        await installation.send(delivery=f"d{number}")
        await installation.trigger(callback_url=f"{receiver.url}/{number}")
    await installation.tell()
    await installation.clock.advance(60)
    await installation.send(delivery="d9")
    await installation.trigger(callback_url=receiver.url)
    expiry = WebhookExpiry(installation.runtime.store, timedelta(minutes=1), installation.clock)

    at_the_end_of_it = await expiry.tick()
    await installation.clock.advance(0.001)

    assert (at_the_end_of_it, await expiry.tick(), await expiry.tick()) == (0, 6, 0)
    assert len(await installation.deliveries()) == 1
    assert [each["status"] for each in await installation.callbacks()] == ["pending"]


async def test_what_the_store_does_not_forget_is_left_to_the_next_time(installation, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.webhooks.expiry._BATCH", 1)
    await installation.send(delivery="d1")
    while [run["status"] for run in await installation.runs()] != ["completed"]:
        await asyncio.sleep(0)  # its run ends in its own time
    await installation.clock.advance(60)
    store, tries = installation.runtime.store, []

    class Refusing:
        read = store.read

        async def apply(self, commands):
            tries.append(commands)
            assert len(tries) < 9
            return [CommandFailed("the disk is full")]

    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        await WebhookExpiry(Refusing(), timedelta(seconds=1), installation.clock).tick()

    assert len(tries) == 1
    assert await WebhookExpiry(store, timedelta(seconds=1), installation.clock).tick() == 1


def test_retries_are_spread_by_jitter():
    policy = RetryPolicy(attempts=10, base=10.0, cap=3_600.0)

    assert [policy.delay(attempt, 0.0) for attempt in (1, 2, 3, 12)] == [5, 10, 20, 3_600]
    assert policy.delay(1, 0.5) == 7.5
