"""The exporter's actor without Ray: it is a plain class."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from msgspec import structs

from actors.exporter import ExporterActor
from owlclaw_ray.domain.score import Judgement, Score
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import CancelRun
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.otlp_receiver import OtlpServer
from tests.actors.plans import plan_in
from tests.actors.steered import SteeredActors
from tests.contracts.store_commands import AGENT, NOW, submission


class Keeper(SteeredActors):
    """One that has made its store, and knows the secrets of a tenant."""

    def __init__(self):
        super().__init__()
        self.secrets = {"CRM": "correct-horse"}

    def answer(self, part, method, *arguments):
        if method != "secret_values":
            return True
        if self.secrets is None:
            raise RuntimeUnavailableError("the keeper is being restarted")
        return {AGENT.tenant: self.secrets}


@pytest.fixture
def keeper():
    return Keeper()


@pytest.fixture
def exporter(tmp_path, monkeypatch, store, store_url, keeper):
    monkeypatch.setattr("actors.exporter.configure", lambda _: None)
    monkeypatch.setattr("actors.exporter.NamedActor", keeper.named_actor)
    monkeypatch.setattr("actors.exporter._lower_priority", lambda: None)

    monkeypatch.setattr("actors.exporter.KeeperClient", lambda _: store)

    def make(options, environ, data_dir=tmp_path):
        monkeypatch.setattr("actors.exporter.os.environ", environ)
        plan = plan_in(data_dir, tracing=options)
        return ExporterActor(structs.replace(plan, store_url=store_url))

    return make


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/owlclaw.db"


@pytest.fixture
async def store(store_url):
    opened = await open_store(store_url, writer="keeper")
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        (TracingOptions(Destination.OTLP, "http://127.0.0.1:9", (("authorization", "Bearer ${GONE}"),)), ["GONE"]),
        (TracingOptions(Destination.LANGFUSE, "http://127.0.0.1:9"), ["LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"]),
    ],
)
async def test_a_node_that_lacks_a_key_exports_nothing_says_what_it_lacks_and_stops_nobody(
    exporter, store, options, lacking, caplog
):
    actor = exporter(options, {})

    problem = await actor.ready()

    assert problem.startswith(f"node {socket.gethostname()} exports no traces: tracing.")
    assert all(f"needs the variable {name}, which is not set" in problem for name in lacking)
    assert await actor.ready() == problem
    assert [each.getMessage() for each in caplog.records if each.name == "actors.exporter"] == [problem]
    with pytest.raises(RuntimeUnavailableError, match=lacking[0]):
        await actor.counts()
    await actor.stop()


async def test_a_node_that_has_the_keys_exports_what_ends(exporter, store):
    with OtlpServer() as receiver:
        options = TracingOptions(Destination.OTLP, f"{receiver.url}/v1/traces", (("authorization", "Bearer ${KEY}"),))
        actor = exporter(options, {"KEY": "k-1"})
        assert await actor.ready() == ""
        said = submission("run_1", payload="log in with correct-horse")
        await store.apply([said, CancelRun(AGENT.tenant, RunId("run_1"), NOW)])

        await actor.stop()

        await asyncio.to_thread(receiver.wait_for, lambda spans: len(spans) == 1)
    assert receiver.batches[0].headers["authorization"] == "Bearer k-1"
    assert "log in with [redacted:CRM]" in repr(receiver.spans)


async def test_a_secret_that_is_set_later_does_not_leave_and_nothing_does_while_nobody_knows_the_secrets(
    exporter, store, keeper
):
    async def end(number):
        said = submission(f"run_{number}", payload="log in with battery-staple")
        await store.apply([said, CancelRun(AGENT.tenant, RunId(f"run_{number}"), NOW)])

    with OtlpServer() as receiver:
        options = TracingOptions(Destination.OTLP, f"{receiver.url}/v1/traces")
        actor = exporter(options, {})
        await actor.ready()
        keeper.secrets = None
        await end(1)
        assert await actor._export.step() > 0
        assert receiver.batches == []
        assert actor._export.counts.failures

        keeper.secrets = {"CRM": "correct-horse", "ERP": "battery-staple"}
        await actor.stop()

    assert "log in with [redacted:ERP]" in repr(receiver.spans)


async def test_what_ends_while_the_exporter_moves_to_another_node_is_exported_there_once(exporter, store, tmp_path):
    async def end(number):
        await store.apply([submission(f"run_{number}"), CancelRun(AGENT.tenant, RunId(f"run_{number}"), NOW)])

    with OtlpServer() as receiver:
        options = TracingOptions(Destination.OTLP, f"{receiver.url}/v1/traces")
        for node in ("first", "second"):
            actor = exporter(options, {}, tmp_path / node)
            await actor.ready()
            await end(f"on_{node}")
            await actor.stop()
            await end(f"after_{node}")
        exported = [span.attributes["owlclaw.run.id"] for batch in receiver.batches for span in batch.spans]

    assert exported == ["run_on_first", "run_after_first", "run_on_second"]


async def test_a_node_that_has_the_keys_of_langfuse_keeps_scores_there(exporter, store):
    posted = []

    async def take(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        posted.append(head.split(b" ")[1].decode())
        length = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
        )
        posted.append(json.loads(await reader.readexactly(length))["comment"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = TracingOptions(Destination.LANGFUSE, f"http://127.0.0.1:{port}/api/public/otel/v1/traces")
    actor = exporter(options, {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk"})

    await actor.keep_score(
        Score(
            "score_1",
            "4bf92f3577b34da6a3ce929d0e0e4736",
            "",
            NOW,
            Judgement("good", value=True, comment="it told correct-horse"),
        )
    )

    assert posted == ["/api/public/scores", "it told [redacted:CRM]"]
    await actor.stop()
    server.close()
