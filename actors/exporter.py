"""The exporter of traces: it reads the store itself, notes at the Keeper how far it has come, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from actors.keeper_client import KeeperClient
from actors.logs import configure
from actors.plan import RuntimePlan
from actors.redactors import node_redactor
from actors.remote import KEEPER, NamedActor
from actors.remote_actor import RemoteActor
from actors.secrets import store_url, take_over
from owlclaw_ray.domain.score import Score
from owlclaw_ray.errors import ConfigurationError, RetryableError, RuntimeUnavailableError
from owlclaw_ray.kernel.cpu_throttle import CpuThrottle
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.store.run_ends import RunFacts
from owlclaw_ray.telemetry.trace_export import ExportCounts, TraceExport
from owlclaw_ray.telemetry.tracing.api import ReceiverError, ScoreReceiver, TraceReceiver

if TYPE_CHECKING:
    from owlclaw_ray.store.sql.sql_store import SqlStore
    from owlclaw_ray.telemetry.tracing.content import ContentAttributes

_MAX_PAUSE = 30.0
_LOOK_SECONDS = 0.5
_LAST = 19
"""The niceness of the exporter; Ray's other workers have 15."""
_THREADS = Path("/proc/self/task")
_LAST_SECONDS = 3.0
"""How long a stop delivers what ended just before; the rest goes at the next start."""

logger = logging.getLogger(__name__)


class InformedReceiver(TraceReceiver):
    """Learns before each delivery what is to be taken out of it; while nothing is delivered nobody is asked."""

    def __init__(self, receiver: TraceReceiver, learn: Callable[[], Awaitable[object]]) -> None:
        self._receiver, self._learn = receiver, learn

    @override
    async def send(self, runs: Sequence[RunFacts]) -> None:
        try:
            await self._learn()
        except RetryableError as error:
            raise ReceiverError(f"the secrets to take out are not known: {error}") from error
        await self._receiver.send(runs)

    @override
    async def close(self) -> None:
        await self._receiver.close()


class ExporterActor(RemoteActor):
    """A thin shell around TraceExport. Starts itself, the first time and after every restart."""

    def __init__(self, plan: RuntimePlan) -> None:
        take_over()
        configure(plan.worker.log)
        self._plan, self._pause = plan, 0.0
        self._share = CpuThrottle(os.cpu_count() or 1)
        self._keeper, self._notes = NamedActor(KEEPER, plan.namespace), KeeperClient(plan.namespace)
        self._beginning, self._problem = asyncio.Lock(), ""
        self._export: TraceExport | None = None
        self._store: SqlStore | None = None
        self._redactors: TenantRedactors | None = None
        self._receiver: TraceReceiver | None = None
        self._scores: ScoreReceiver | None = None
        self._working = Periodic("exporting traces", self._work, SystemClock(), _MAX_PAUSE, due_in=self._due)
        self._working.start()

    async def ready(self) -> str:
        """Return once what ends from then on will be exported, or what keeps this node from it. The receiver may be away."""
        try:
            await self._begun()
        except ConfigurationError:
            return self._problem
        return ""

    async def counts(self) -> ExportCounts:
        """Return what became of traces since this process began; raises RuntimeUnavailableError if none are exported."""
        if self._problem:
            raise RuntimeUnavailableError(self._problem)
        return ExportCounts() if self._export is None else self._export.counts

    async def keep_score(self, score: Score) -> None:
        """See ScoreReceiver.keep."""
        redactors = await self._informed()
        if self._scores is None:
            self._scores = await asyncio.to_thread(_scores, self._plan, redactors)
        await self._scores.keep(score)

    async def stop(self) -> None:
        """Deliver what ended just before, if the receiver takes it at once."""
        await self._working.stop()
        if self._export is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    while await self._export.step() == 0:
                        continue
        if self._receiver is not None:
            await self._receiver.close()
        if self._store is not None:
            await self._store.close()

    async def _work(self) -> None:
        try:
            export = await self._begun()
        except ConfigurationError:
            self._pause = _MAX_PAUSE
            return
        worked, waited = time.process_time(), _waited()
        pause = await export.step()
        worked, waited = time.process_time() - worked, _waited() - waited
        self._pause = max(pause, self._share.rest_after(worked, waited, export.fullness))

    async def _informed(self) -> TenantRedactors:
        """Return what takes secrets out of what leaves, once it knows all that tenants have now. Raises RuntimeUnavailableError."""
        if self._redactors is None:
            url = await asyncio.to_thread(store_url, self._plan.store_url)
        if self._redactors is None:  # somebody else may have made them meanwhile: there is one for all
            self._redactors = TenantRedactors(partial(node_redactor, self._plan, url))
        for tenant, values in (await self._keeper.call.secret_values()).items():
            for name, value in values.items():
                self._redactors.add(tenant, name, value)
        return self._redactors

    async def _due(self) -> float:
        return self._pause

    async def _begun(self) -> TraceExport:
        async with self._beginning:
            if self._export is None:
                try:
                    self._export = await self._begin()
                except ConfigurationError as error:
                    self._say(f"node {socket.gethostname()} exports no traces: {error}")
                    raise
            self._problem = ""
            return self._export

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("%s", problem)
        self._problem = problem

    async def _begin(self) -> TraceExport:
        from owlclaw_ray.store.sql.factory import open_existing

        plan = self._plan
        assert plan.tracing is not None
        await self._store_made()
        if self._receiver is None:
            there = await asyncio.to_thread(_receiver, plan, await self._informed())
            self._receiver = InformedReceiver(there, self._informed)
        if self._store is None:
            self._store = await open_existing(await asyncio.to_thread(store_url, plan.store_url))
        buffer_runs = plan.tracing.buffer_runs
        export = TraceExport(self._store, self._notes, self._receiver, buffer_runs=buffer_runs, jitter=random.random)
        await export.begin()
        _lower_priority()
        return export

    async def _store_made(self) -> None:
        """Return once the Keeper has made the store, or brought it up to date; raises what is wrong with it."""
        while True:
            try:
                await self._keeper.call.ready()
            except RetryableError:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return


def _waited() -> float:
    """Return for how many seconds threads of this process were ready and had no core; where nothing tells that, all that passed."""
    told = [_delay(each) for each in _THREADS.glob("*/schedstat")]
    return sum(told) / 1e9 if told else time.monotonic()


def _delay(schedstat: Path) -> int:
    try:
        return int(schedstat.read_text().split()[1])
    except OSError:  # the thread has ended
        return 0


def _lower_priority() -> None:
    """Have all threads of this process go last: runs go first, and traces can wait."""
    ids = [int(each.name) for each in _THREADS.iterdir()] if _THREADS.is_dir() else [0]
    for each in ids:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, each, _LAST)


def _receiver(plan: RuntimePlan, redactors: TenantRedactors) -> TraceReceiver:
    from owlclaw_ray.telemetry.tracing.destinations import receiver_of

    assert plan.tracing is not None
    return receiver_of(plan.tracing, _content(plan, redactors), dict(os.environ))  # noqa: TID251 - headers and keys are in it, and nowhere else


def _scores(plan: RuntimePlan, redactors: TenantRedactors) -> ScoreReceiver:
    from owlclaw_ray.telemetry.tracing.destinations import scores_of

    assert plan.tracing is not None
    return scores_of(plan.tracing, _content(plan, redactors), dict(os.environ))  # noqa: TID251 - as above


def _content(plan: RuntimePlan, redactors: TenantRedactors) -> ContentAttributes:
    from owlclaw_ray.app_loader import application
    from owlclaw_ray.telemetry.tracing.content import ContentAttributes

    assert plan.tracing is not None
    app = application(plan.worker.app_path, Path(plan.worker.app_folder))
    return ContentAttributes(redactors, app.trace_mask, shown=plan.tracing.content)
