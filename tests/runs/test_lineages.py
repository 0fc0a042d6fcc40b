"""Agents that others started stay within what these grant them, whatever wakes them, and events are dealt with once."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import httpx
import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent_tools import ORCHESTRATING, OUTLASTING
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.domain.webhook import DeliverTo, Mapping, SignatureForm, WebhookSource
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.names import INTERNAL_NAMES
from serve.api import build_api
from tests.webhooks.conftest import SECRET, signature
from tests.worlds import Model, asks, says

BEAT = 300
BOSS, HEAD = "clerk:boss", "clerk"
GRANTS = {"a": ["shop.look"], "b": ["shop.look", "shop.ship"]}
CHILDREN = [f"clerk:clerk.{name}" for name in GRANTS]
_form = SignatureForm("X-Signature", prefix="sha256=")
SOURCES = (
    WebhookSource("shop", (SECRET,), Mapping("{body.agent}", None, "an order"), _form),
    WebhookSource("later", (SECRET,), Mapping("{body.agent}", None, "an order", deliver=DeliverTo.HEARTBEAT), _form),
)


def starts(payload):
    """Return the call that a run with this payload makes first."""
    match payload:
        case {"fork": name}:
            return "agent__fork_agent", {"assignment": name, "allowed_tools": ["shop.look"]}
        case {"sub": name}:
            return "agent__create_sub_agent", {"agent_definition_id": "clerk", "assignment": name, "allowed_tools": []}
        case {"worker": name}:
            dispatched = {"agent_definition_id": "clerk", "worker": name, "assignment": "look"}
            return "agent__dispatch_worker", {**dispatched, "allowed_tools": GRANTS[name]}
        case _:
            return None


def decide(request):
    call = starts(request.trigger.payload)
    if call is None or len(request.messages) > 1:
        return says("done")
    return asks((call[0], orjson.dumps(call[1]).decode()))


class Office:
    """An installation whose agents have heartbeats, with its HTTP API; `restart` opens it again."""

    def __init__(self, folder):
        self.folder, self.clock, self.model = folder, ManualClock(datetime(2026, 11, 23, 9, tzinfo=UTC)), Model(decide)
        self.app = OwlClaw("shop")
        self.orders = []
        for name in ("look", "ship"):
            self.app.handler(name, tags=["readonly"] if name == "look" else [])(lambda: "done")
        self.app.event_source("orders")(lambda: list(self.orders))
        clerk = folder / "agents" / "clerk"
        clerk.mkdir(parents=True)
        (clerk / "SOUL.md").write_text("You are calm.")
        (clerk / "IDENTITY.md").write_text("## My Capabilities\n- look\n")
        heartbeat = {"sources": ["inbox", "events"], "every_seconds": BEAT}
        (clerk / "agent.yaml").write_text(yaml.safe_dump({"model": "test", "heartbeat": heartbeat}))
        self.stack = AsyncExitStack()
        self.started_at: dict[str, int] = {}
        """The children, each with how many requests models had got before it was started first."""

    async def open(self):
        self.runtime = await self.stack.enter_async_context(
            in_process_runtime(
                agents_dir=self.folder / "agents",
                data_dir=self.folder / "data",
                app=self.app,
                models=[self.model],
                clock=self.clock,
                host_tools=HostTools(agents=AgentOptions()),
                webhook_sources=SOURCES,
            )
        )
        api = build_api(self.runtime, clock=self.clock, body_limit_bytes=100_000)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost:8700")
        self.http = await self.stack.enter_async_context(http)

    async def close(self):
        await self.stack.aclose()

    async def restart(self):
        await self.close()
        await self.open()

    async def crash(self):
        await self.runtime.crash_hosts()

    async def start(self, boss, kind, name):
        before = len(self.model.requests)
        await self.trigger(boss, {kind: name})
        for run in await self.runs():
            if run.trigger.kind is TriggerKind.AGENT:
                self.started_at.setdefault(run.agent.agent_id, before)

    async def trigger(self, agent, payload=None):
        answer = await self.http.post(f"/v1/agents/{agent}/triggers", json={"payload": payload})
        assert answer.status_code == 202, answer.text
        await self.rest()

    async def webhook(self, agent, source):
        body = orjson.dumps({"agent": agent, "at": len(self.model.requests), "time": self.clock.now().isoformat()})
        headers = {"X-Signature": signature(body)}
        answer = await self.http.post(f"/v1/webhooks/{source}", content=body, headers=headers)
        refused = source == "later" and agent in self.started_at
        assert answer.status_code == (422 if refused else 202), answer.text
        await self.rest()

    async def schedule(self, agent):
        body = {"delay_seconds": 10, "focus": "look"}
        answer = await self.http.post(f"/v1/agents/{agent}/schedules", json=body)
        assert answer.status_code == 201, answer.text
        await self.pass_time(10)

    async def beat(self):
        self.orders.append(len(self.orders))
        await self.runtime.heartbeats.tick()
        await self.pass_time(2 * BEAT)

    async def pass_time(self, seconds):
        self.clock._start += timedelta(seconds=seconds)
        await self.runtime.schedule_firer.fire_all_due()
        await self.rest()

    async def runs(self):
        return await self.runtime.runs(RunFilter(DEFAULT_TENANT, limit=10_000))

    async def rest(self):
        while not all(run.status.final for run in await self.runs()):
            await asyncio.sleep(0)

    def offered(self):
        """Return what models were offered in runs of started agents, each with what had been granted to them."""
        for at, request in enumerate(self.model.requests):
            first = self.started_at.get(request.agent_id)
            if first is not None and at >= first:
                tools = {each["function"]["name"].replace("__", ".") for each in orjson.loads(request.tools)}
                yield request, tools, granted(request.agent_id)


def granted(agent):
    name = agent.rpartition(".")[2]
    return ["shop.look"] if name.startswith("fork_") else GRANTS.get(name, [])


bosses = st.sampled_from([HEAD, BOSS])
targets = st.sampled_from([HEAD, BOSS, *CHILDREN, "clerk:clerk.c", "any child"])
steps = st.one_of(
    st.tuples(st.just("start"), bosses, st.just("worker"), st.sampled_from(sorted(GRANTS))),
    st.tuples(st.just("start"), bosses, st.sampled_from(["fork", "sub"]), st.just("x")),
    st.tuples(st.just("trigger"), targets),
    st.tuples(st.just("webhook"), targets, st.sampled_from(["shop", "later"])),
    st.tuples(st.just("schedule"), targets),
    st.tuples(st.sampled_from(["beat", "restart", "crash"])),
)


async def _lived(history):
    with tempfile.TemporaryDirectory(prefix="owlclaw-") as folder:
        office = Office(Path(folder))
        await office.open()
        try:
            for step, *arguments in history:
                children = sorted(office.started_at)
                named = [children[-1] if each == "any child" and children else each for each in arguments]
                if "any child" not in named:
                    await getattr(office, step)(*named)
            runs = await office.runs()
        finally:
            await office.close()
    return office, runs


@pytest.mark.property
@given(history=st.lists(steps, min_size=2, max_size=8))
@example([("trigger", "clerk:clerk.b"), ("beat",), ("start", HEAD, "worker", "b")])
def test_no_run_of_a_started_agent_ever_sees_more_than_it_was_granted(history):
    """Whatever wakes it: heartbeats, schedules, webhooks, HTTP, restarts; and no heartbeat of it deals with what others deal with."""
    office, runs = asyncio.run(_lived([("start", HEAD, "worker", "a"), *history, ("beat",)]))

    for request, tools, allowed in office.offered():
        assert tools.isdisjoint(ORCHESTRATING | OUTLASTING), request.trigger
        shop = {tool for tool in tools if tool.startswith("shop.")}
        assert all(any(fnmatchcase(tool, pattern) for pattern in allowed) for tool in shop), request.trigger
        assert tools >= INTERNAL_NAMES
    woken = [run for run in runs if run.trigger.kind is TriggerKind.HEARTBEAT and run.status is not RunStatus.SKIPPED]
    assert woken
    started = [run for run in runs if run.trigger.kind is TriggerKind.AGENT]
    for run in woken:  # what nobody has started yet has heartbeats
        assert all(each.seq > run.seq for each in started if each.agent == run.agent), run


async def test_a_fork_never_multiplies_what_is_done_about_an_event(tmp_path):
    office = Office(tmp_path)
    await office.open()
    for number in range(3):
        await office.start(HEAD, "fork", f"assignment {number}")
    await office.beat()
    woken = [run for run in await office.runs() if run.trigger.kind is TriggerKind.HEARTBEAT]
    await office.close()

    assert [(run.agent.agent_id, run.status) for run in woken] == [(HEAD, RunStatus.COMPLETED)]


async def test_heartbeats_of_an_agent_end_with_the_one_after_another_agent_started_it(tmp_path):
    office = Office(tmp_path)
    await office.open()
    child = "clerk:clerk.a"
    await office.trigger(child)
    await office.beat()
    await office.start(HEAD, "worker", "a")
    await office.beat()
    await office.beat()
    beats = [run for run in await office.runs() if run.trigger.kind is TriggerKind.HEARTBEAT]
    await office.close()

    [skipped, woken] = [run for run in beats if run.agent.agent_id == child]
    assert (woken.status, skipped.status) == (RunStatus.COMPLETED, RunStatus.SKIPPED)
    assert skipped.result.error.message == f"{child} was started by clerk, and has no heartbeats"
