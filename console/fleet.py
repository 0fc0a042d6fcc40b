"""The fleet: nodes and what they hold, model providers, and what waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, TypeAlias

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from console.badge import ApprovalBadge
from console.charts import Sparkline, last, sparkline
from console.jinja import Templates
from console.pages import FRAGMENT, Pages, page, see, unless_away
from console.queue_lengths import MINUTES, QueueLengths, minutes_until, queue_lengths
from console.visits import read_form
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalStatus
from owlclaw_ray.domain.node import ClusterView, NodeCondition, NodeView, nodes_called
from owlclaw_ray.domain.queue_length import LengthRange, QueueMinute
from owlclaw_ray.domain.quota import RUNNING_RUNS, RUNNING_RUNS_OF_KEY
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.usage import Grain
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId
from owlclaw_ray.runtime.api import AgentView, Health
from owlclaw_ray.store.queries import AgentQueue, AgentRecord, ApprovalFilter, LongestQueues, RunFilter
from owlclaw_ray.store.usage import QueueMinutes, RunUsage
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from serve.numbers import MetricsDelta, Numbers
from serve.parameters import principal_of, tenant_of
from serve.surfaces import Surroundings
from serve.visible_agents import VisibleAgents, visible_agents

_WAITING = 50
"""Runs that wait in the middle, at most."""
_QUEUES = 50
"""Agents with queued runs, at most."""
_MODELS = 12
_BROKEN = 200
"""Agents with open breakers on one page."""
_FRESH_SECONDS = 5.0
"""With the age of what is drawn of it less than the time after which an open page asks again."""
_State: TypeAlias = tuple[ClusterView, Sequence[MetricFamily], Health, Sequence[QueueMinute]]
_OK = "ok"


class ProviderLoad(Struct, frozen=True):
    """What the model gateways of a node bear of a provider."""

    provider: str
    node: str
    slots: float
    """Calls that the provider is taken to bear at once."""
    running: float
    waiting: float


class GatewayLoad(Struct, frozen=True):
    """What the model gateway of a node does."""

    answers: bool
    running: float
    """Calls of all providers."""
    waiting: float


class OpenBreaker(Struct, frozen=True):
    """A circuit breaker that keeps an agent from a tool."""

    agent: AgentRef
    tool: str
    failures: int
    """In a row."""
    until: datetime
    """When one call may try it again."""
    half_open: bool
    """That time has come."""


class ModelUse(Struct, frozen=True):
    """What was asked of a model since the processes began."""

    model: str
    calls: float
    failed: float
    failed_attempts: float
    seconds: float | None
    """Of a call that was answered, the mean."""
    tokens: float
    cost: float


class Wait(Struct, frozen=True):
    """A run that waits, or the queue of an agent, and for what."""

    run: Run
    queued: int
    """Runs in the queue that it stands for; 0: it is not queued."""
    why: str
    target: str = ""
    """The page of what it waits for, below /console; empty if there is none."""


class FleetPages(Pages):
    """`/console/fleet`."""

    place: ClassVar[str] = "fleet"

    def __init__(self, surroundings: Surroundings, templates: Templates, badge: ApprovalBadge) -> None:
        super().__init__(surroundings, templates, badge)
        self._asking, self._known_at = asyncio.Lock(), 0.0
        self._known: _State | None = None

    @page("GET /console/fleet", "system:read", "breakers_after", FRAGMENT, live={"live": 4.0})
    async def console_fleet(self, request: Request) -> Response:
        """Show the nodes, as they say, and the numbers of all parts."""
        principal = principal_of(request)
        view, families, health, noted = await self._state(anew=FRAGMENT not in request.query_params)
        now = Numbers(families)
        waits = await unless_away(self._waits(request, view, health)) if principal.may("runs:read") else None
        broken = await unless_away(self._broken(request)) if principal.may("agents:read") else None
        ended = await unless_away(self._ended(request)) if principal.may("runs:read") else None
        queues = [_sparkline(each, self._now()) for each in queue_lengths(now, noted, self._now())]
        return await self.shown(
            request,
            "fleet.html",
            "live",
            nodes=view.nodes,
            lease=view.lease,
            health=health,
            broken={part: state for part, state in health.parts.items() if state != _OK},
            silent=sorted(part for (part,), up in now.by("owlclaw_up", ("part",)).items() if not up),
            numbers=now,
            runs={key[0]: value for key, value in now.by("owlclaw_runs", ("status",)).items()},
            actors={key[0]: value for key, value in now.by("owlclaw_actors", ("state",)).items()},
            means=MetricsDelta(now),
            queues=queues,
            ended=ended,
            minutes=MINUTES,
            providers=providers_of(now),
            gateways=gateways_of(now),
            breakers=None if broken is None else self._breakers(broken.agents),
            breakers_after=request.query_params.get("breakers_after", ""),
            more_breakers=broken and broken.next_after,
            models=models_of(now),
            waits=waits,
        )

    async def _state(self, *, anew: bool) -> _State:
        """Return what all parts say. Pages that are open ask for it again and again, and it costs every node something: they share
        what is younger than _FRESH_SECONDS. What is to be asked `anew` is what a round says that begins after this was called: all who
        call while one goes on share the next.
        """
        asked = self._surroundings.clock.monotonic()
        async with self._asking:
            now = self._surroundings.clock.monotonic()
            if self._known is None or self._known_at < (asked if anew else now - _FRESH_SECONDS):
                view, families, health, noted = await asyncio.gather(
                    self._runtime.nodes(),
                    self._runtime.metrics(),
                    self._runtime.health(),
                    unless_away(self._runtime.queue_minutes(QueueMinutes(minutes_until(self._now())[0]))),
                )
                self._known, self._known_at = (view, families, health, noted or ()), now
            return self._known

    async def _broken(self, request: Request) -> VisibleAgents:
        """Return agents with open breakers: those by name that the principal may see."""
        after = request.query_params.get("breakers_after", "").replace("\0", "")
        return await visible_agents(self._runtime, principal_of(request), _BROKEN, after, with_open_breaker=True)

    async def _ended(self, request: Request) -> Sparkline:
        """Return how many runs of the tenant ended in each minute, which the store counts whether or not somebody looks."""
        at = self._now()
        since, until = last(at, Grain.MINUTE, MINUTES)
        buckets = await self._runtime.run_usage(RunUsage(tenant_of(request), since, until, Grain.MINUTE))
        found = {each.begins_at: each.counts.runs for each in buckets}
        numbers = [found.get(minute, 0) for minute in minutes_until(at)]
        ranges = [LengthRange(number, number) for number in numbers]
        return sparkline("Runs that ended, of this tenant", numbers[-1], minutes_until(at), ranges)

    async def _waits(self, request: Request, view: ClusterView, health: Health) -> Sequence[Wait]:
        """Return what waits of the tenant's runs: the newest of those that wait in the middle, then the longest queues of agents."""
        tenant = tenant_of(request)
        waiting, queues = await asyncio.gather(
            self._runtime.runs(RunFilter(tenant, None, RunStatus.WAITING, None, _WAITING, payloads=False)),
            self._runtime.longest_queues(LongestQueues(tenant, _QUEUES)),
        )
        approvals: dict[RunId, str] = {}
        if waiting and principal_of(request).may("approvals:read"):
            pending = ApprovalFilter(tenant, None, None, ApprovalStatus.PENDING, 2 * _WAITING)
            for each in await self._runtime.approvals(pending):
                approvals[each.request.run_id] = each.request.approval_id
        found = [_waiting(run, approvals.get(run.run_id, "")) for run in waiting]
        owners = await self._runtime.agents_called(tenant, [each.oldest.agent.agent_id for each in queues])
        return [
            *found,
            *(self._queue(queue, owner.record, view, health) for queue, owner in zip(queues, owners, strict=True)),
        ]

    @staticmethod
    def _queue(queue: AgentQueue, record: AgentRecord | None, view: ClusterView, health: Health) -> Wait:
        run, number = queue.oldest, queue.length
        if run.waits_for:
            return Wait(run, number, _quota(run.waits_for))
        if record and record.running_run:
            return Wait(run, number, "the agent is at work", f"runs/{record.running_run}")
        if health.holder:
            return Wait(run, number, f"cluster {health.holder} runs the agents, and this one stands by")
        if view.nodes and not any(node.state is NodeCondition.ACTIVE for node in view.nodes):
            return Wait(run, number, "no node is active")
        return Wait(run, number, "it is about to begin")

    def _breakers(self, agents: Sequence[AgentView]) -> Sequence[OpenBreaker]:
        """Return the breakers of these agents that are not closed, those that open last in front."""
        now = self._now().timestamp()
        found = [
            OpenBreaker(
                view.agent,
                each.tool,
                each.failures,
                datetime.fromtimestamp(each.open_until, UTC),
                each.half_open_at(now),
            )
            for view in agents
            if view.record is not None
            for each in view.record.state.breakers
            if each.open_until
        ]
        return sorted(found, key=lambda each: each.until, reverse=True)

    @page("GET /console/fleet/nodes/{node}/drain", "system:admin")
    async def console_ask_drain(self, request: Request) -> Response:
        """Show what draining the node means; nothing is done."""
        view = await self._runtime.nodes()
        node = _node(view, request.path_params["node"])
        others = [each for each in view.nodes if each.state is NodeCondition.ACTIVE and each != node]
        return await self.shown(request, "drain.html", node=node, others=len(others))

    @page("POST /console/fleet/nodes/{node}/drain", "system:admin")
    async def console_drain(self, request: Request) -> Response:
        """Have the node run no agents any more."""
        await read_form(request)
        node = _node(await self._runtime.nodes(), request.path_params["node"])
        await self._runtime.drain(node.node_id, str(principal_of(request)))
        return see("/fleet")

    @page("POST /console/fleet/nodes/{node}/undrain", "system:admin")
    async def console_undrain(self, request: Request) -> Response:
        """Let the node run agents again."""
        await read_form(request)
        node = _node(await self._runtime.nodes(), request.path_params["node"])
        await self._runtime.undrain(node.node_id, str(principal_of(request)))
        return see("/fleet")


def _sparkline(queue: QueueLengths, at: datetime) -> Sparkline:
    return sparkline(queue.title, queue.now, minutes_until(at), queue.minutes)


def providers_of(now: Numbers) -> Sequence[ProviderLoad]:
    """Return the providers of all nodes, by name."""
    slots = now.by("owlclaw_provider_slots", ("provider", "node"))
    calls = now.by("owlclaw_provider_calls", ("provider", "node", "state"))
    return [
        ProviderLoad(
            name, node, limit, calls.get((name, node, "running"), 0.0), calls.get((name, node, "waiting"), 0.0)
        )
        for (name, node), limit in sorted(slots.items())
    ]


def gateways_of(now: Numbers) -> Mapping[str, GatewayLoad]:
    """Return the model gateways by their nodes' names, whether or not they answer."""
    calls = now.by("owlclaw_provider_calls", ("node", "state"))
    return {
        node: GatewayLoad(bool(up), calls.get((node, "running"), 0.0), calls.get((node, "waiting"), 0.0))
        for (part,), up in now.by("owlclaw_up", ("part",)).items()
        for kind, _, node in [part.partition("@")]
        if kind == "gateway"
    }


def models_of(now: Numbers) -> Sequence[ModelUse]:
    """Return the models that were asked most, the busiest first."""
    calls, tokens = (
        now.by("owlclaw_model_calls_total", ("model", "error")),
        now.by("owlclaw_tokens_total", ("model", "kind")),
    )
    attempts, cost = (
        now.by("owlclaw_model_attempts_failed_total", ("model",)),
        now.by("owlclaw_cost_dollars_total", ("model",)),
    )
    means = MetricsDelta(now).mean("owlclaw_model_call_seconds", "model")
    found = []
    for model in {model for model, _ in calls} | {model for (model,) in attempts}:
        made = {error: number for (each, error), number in calls.items() if each == model}
        used = sum(number for (each, kind), number in tokens.items() if each == model and kind != "cached")
        failed, tried = sum(made.values()) - made.get(_OK, 0.0), attempts.get((model,), 0.0)
        found.append(
            ModelUse(model, sum(made.values()), failed, tried, means.get((model,)), used, cost.get((model,), 0.0))
        )
    return sorted(found, key=lambda each: (-each.calls, each.model))[:_MODELS]


def _waiting(run: Run, approval: str) -> Wait:
    if approval:
        return Wait(run, 0, "somebody's decision about a call", f"approvals/{approval}")
    if run.awaits:
        more = f" and {len(run.awaits) - 1} more" if len(run.awaits) > 1 else ""
        return Wait(run, 0, f"the end of a run that it started{more}", f"runs/{run.awaits[0]}")
    if run.waits_for:
        return Wait(run, 0, _quota(run.waits_for))
    return Wait(run, 0, "a decision, or the end of another run")


def _quota(waits_for: str) -> str:
    whose = "key" if waits_for == RUNNING_RUNS_OF_KEY else "tenant"
    return f"the {whose}'s quota {RUNNING_RUNS} is reached"


def _node(view: ClusterView, node_id: str) -> NodeView:
    """Return the node of that id; raises NotFoundError."""
    found = [each for each in nodes_called(view, "all") if each.node_id == node_id]
    if not found:
        raise NotFoundError("node", node_id)
    return found[0]
