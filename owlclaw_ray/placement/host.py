"""What an agent actor is made of: the activations that it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from heapq import nsmallest
from operator import itemgetter

from msgspec import Struct

from owlclaw_ray.definitions.api import Definitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import ActivationId, IdSource, RunId
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.runs.activation import FINAL_FLUSH_SECONDS, Activation
from owlclaw_ray.runs.run_loop import RunServices
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, CommandFailed, StaleTerm
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.large_payloads import LargePayloads

logger = logging.getLogger(__name__)


class HostDrainedError(RuntimeUnavailableError):
    """The host was drained and takes no agents any more, though its process lives."""


class HostStatus(Struct, frozen=True):
    """What a host tells the Directory with each heartbeat."""

    agents: int
    """How many are here."""
    idle: tuple[tuple[AgentRef, float], ...] = ()
    """Those without work for longest, the longest first, each with the seconds since its last."""
    memory: float = 0.0
    """The used share of the machine's memory, from 0 to 1."""
    running: int = 0
    """How many of the agents are at work."""
    busy: bool = False
    """Whether processes of its machine wait for each other's turns at the processor, so that answers are late."""


class AgentHost:
    """Holds activations, one an agent: a single agent if the Directory so decides, or a thousand.

    Agents share nothing but the services; an error in one ends that one's activation only.
    """

    def __init__(
        self, *, store: DurableStore, runs: QueryStore, definitions: Definitions, services: RunServices, ids: IdSource
    ) -> None:
        self._store, self._definitions, self._services, self._ids = store, definitions, services, ids
        self._payloads = LargePayloads(runs, services.clock)
        self._activations: dict[AgentRef, Activation] = {}
        self._adopting: set[AgentRef] = set()
        self._called: set[AgentRef] = set()
        """Those woken while they are being adopted: their trigger may have come after the claim."""
        self._cancelled: dict[AgentRef, set[RunId]] = {}
        """Runs cancelled while their agents are being adopted."""
        self._draining = False

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """Activate these agents, whoever owned them before, each with its next run. Those already here are only woken.

        `term`: of the Directory that wants it; the store refuses those of one that was superseded, see ActivateAgent. One that another
        call is activating already is left to that call, which wakes it. Raises HostDrainedError.
        """
        if self._draining:
            raise HostDrainedError("it was drained")
        new = [agent for agent in agents if not self._live(agent) and agent not in self._adopting]
        fresh = set(new)
        self.wake([agent for agent in agents if agent not in fresh])
        self._adopting.update(new)
        try:
            await self._activate(new, term)
        finally:
            self._adopting.difference_update(new)
            for agent in new:
                self._cancelled.pop(agent, None)
            called = self._called.intersection(new)
            self._called -= called
        self.wake(tuple(called))

    async def _activate(self, agents: Sequence[AgentRef], term: int) -> None:
        now = self._services.clock.now()
        commands = [
            ActivateAgent(agent, ActivationId(self._ids.make("act")), now, claim=True, term=term) for agent in agents
        ]
        outcomes = await self._store.outcomes(commands) if commands else ()
        for agent, outcome in zip(agents, outcomes, strict=True):
            if isinstance(outcome, CommandFailed):
                logger.error("%s cannot be activated: %s", agent, outcome.message)
            elif isinstance(outcome, StaleTerm):
                newer = outcome.lease.term
                logger.warning(
                    "%s is not activated: its Directory (term %d) was superseded (term %d)", agent, term, newer
                )
        adopted = [
            Activation(
                agent,
                outcome.epoch,
                outcome.state,
                store=self._store,
                definitions=self._definitions,
                services=self._services,
                payloads=self._payloads,
                claimed=outcome.claimed,
            )
            for agent, outcome in zip(agents, outcomes, strict=True)
            if isinstance(outcome, AgentActivated)
        ]
        if self._draining:
            await asyncio.gather(*(each.release() for each in adopted))
        else:
            self._activations.update((each.agent, each) for each in adopted)
            for each in adopted:
                each.begin()
                for run_id in self._cancelled.get(each.agent, ()):
                    each.cancel(run_id)

    def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """Have these agents look for runs; return those that are not here."""
        unknown_agents = []
        for agent in agents:
            if agent in self._adopting:
                self._called.add(agent)
                continue
            activation = self._activations.get(agent)
            if activation is None or activation.lost:
                unknown_agents.append(agent)
            else:
                activation.wake()
        return tuple(unknown_agents)

    def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """End that run if it is the agent's present one here, or may become it; return whether it is or may be."""
        if agent in self._adopting:
            self._cancelled.setdefault(agent, set()).add(run_id)
            return True
        activation = self._activations.get(agent)
        return activation is not None and activation.cancel(run_id)

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """Give up those of these agents that have no work; return the ones that are no longer here."""
        resting = {}
        for agent in agents:
            activation = self._activations.get(agent)
            if activation is not None and not activation.busy:
                resting[agent] = self._activations.pop(agent)
        await asyncio.gather(*(activation.release() for activation in resting.values()))
        return tuple(agent for agent in agents if agent not in self._activations and agent not in self._adopting)

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """Give up these agents, each after its present run; return the ones that are no longer here.

        With `grace`, each at the next step of its run, for which a call under way has so many seconds: see Activation.drain.
        """
        gone = await asyncio.gather(*(self._hand_over(agent, grace) for agent in agents))
        return tuple(agent for agent, is_gone in zip(agents, gone, strict=True) if is_gone)

    async def _hand_over(self, agent: AgentRef, grace: float | None) -> bool:
        activation = self._activations.get(agent)
        if activation is not None:
            await (activation.step_down() if grace is None else self._give_up(activation, grace))
            if self._activations.get(agent) is activation:
                del self._activations[agent]
        return agent not in self._activations and agent not in self._adopting

    def status(self, most: int) -> HostStatus:
        """Return how many agents are here, as `hosted` does, and those idle for longest, up to so many.

        Activations that lost their agent are dropped on the way.
        """
        for agent in [agent for agent, each in self._activations.items() if each.lost and not each.busy]:
            del self._activations[agent]
        resting = ((agent, each.idle_since) for agent, each in self._activations.items() if not each.busy)
        now = self._services.clock.monotonic()
        idle = tuple((agent, now - since) for agent, since in nsmallest(most, resting, key=itemgetter(1)))
        running = sum(each.busy for each in self._activations.values())
        return HostStatus(len(self._present()), idle, running=running)

    def hosted(self) -> tuple[AgentRef, ...]:
        """Return all agents that are here, or are being adopted: a Directory that asks now must not place them elsewhere."""
        return tuple(self._present())

    async def drain(self, grace: float) -> None:
        """Take no more runs, let calls that are under way end within `grace` seconds, hand over the runs, save all state.

        The host is of no use afterwards. A store that does not answer holds this up for FINAL_FLUSH_SECONDS seconds at most: what is not
        saved then is taken over as after a crash.
        """
        self._draining = True
        await asyncio.gather(*(self._give_up(each, grace) for each in self._activations.values()))
        self._activations.clear()

    def abandon(self) -> None:
        """Drop everything where it stands, as the end of the process would: nothing more is written."""
        self._draining = True
        for activation in self._activations.values():
            activation.abandon()
        self._activations.clear()

    async def _give_up(self, activation: Activation, grace: float) -> None:
        if await activation.drain(grace):
            with suppress(TimeoutError):
                async with deadline(self._services.clock, FINAL_FLUSH_SECONDS):
                    await activation.release()

    def _present(self) -> set[AgentRef]:
        return self._adopting.union(self._activations)

    def _live(self, agent: AgentRef) -> bool:
        activation = self._activations.get(agent)
        return activation is not None and not activation.lost
