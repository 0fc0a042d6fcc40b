"""What the exporter of traces takes for a run: its CPU time alone, on runs that are over, with nothing else in the process.

The time of the clock has no part in it, so a machine that does other things changes little. The runs are real ones (model,
`log_decision`, model) of the engine in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import Command, ExportNoted, NoteExported, Outcome
from owlclaw_ray.store.sql.factory import open_existing
from owlclaw_ray.telemetry.trace_export import TraceExport
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.destinations import receiver_of
from owlclaw_ray.testing.in_process import in_process_runtime

_AGENTS = 50
_AGENT_FILES = {
    "SOUL.md": "You are calm and precise.\n",
    "IDENTITY.md": "# Bench\n\n## My Capabilities\n- answer triggers\n",
    "agent.yaml": "model: scripted:tool_once\n",
}
_STORE = "owlclaw.db"


class _Forgetful(CommandStore):
    """Notes nothing, so that every export begins with the first run."""

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        return [ExportNoted() for _ in commands]


def export_cpu_ms(url: str, runs: int, times: int) -> float:
    """Return the CPU-milliseconds that a run takes to export to that receiver: the least of so many times, as the rest is noise."""
    with TemporaryDirectory(prefix="owl-bench-") as folder:
        asyncio.run(_make_runs(Path(folder), runs))
        return min(asyncio.run(_export(Path(folder), url, runs)) for _ in range(times))


async def _make_runs(folder: Path, runs: int) -> None:
    definition = folder / "agents" / "bench"
    definition.mkdir(parents=True)
    for name, text in _AGENT_FILES.items():
        (definition / name).write_text(text)
    agents = [AgentRef.parse(f"bench:{number}") for number in range(_AGENTS)]
    trigger = Trigger(TriggerKind.API, {"price": 7}, "prices")
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=folder) as runtime:
        for first in range(0, runs, _AGENTS):
            accepted = [await runtime.submit(agent, trigger) for agent in agents[: runs - first]]
            for each in accepted:
                await runtime.outcome(each)
        await runtime.store.apply([NoteExported({})])


async def _export(folder: Path, url: str, runs: int) -> float:
    options = TracingOptions(Destination.OTLP, url)
    store = await open_existing(f"sqlite:///{folder / _STORE}")
    receiver = receiver_of(options, ContentAttributes(TenantRedactors(Redactor)), {})
    export = TraceExport(store, _Forgetful(), receiver, buffer_runs=options.buffer_runs, jitter=lambda: 0.0)
    await export.begin()
    before = time.process_time()
    while await export.step() == 0:
        continue
    used = time.process_time() - before
    await receiver.close()
    await store.close()
    if export.counts.exported != runs:
        raise RuntimeError(f"{export.counts.exported} of {runs} traces were exported")
    return 1_000 * used / runs
