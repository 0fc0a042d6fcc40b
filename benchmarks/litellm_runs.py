"""Runs through litellm, and what its own calls leave room for."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

from benchmarks.child import running
from benchmarks.litellm_calls import measure_litellm
from benchmarks.measuring import WARM_SECONDS, joined, measure_definition, remarks, said
from benchmarks.question import Figure, Say
from benchmarks.system import RunningSystem, running_system

_HELPER = "ModelWorkerActor"
_WORKING = 0.25
"""Of a core."""
_MOST_WARM_UPS = 10


def through_litellm(
    scripted_cpu_ms: float, agents: int, seconds: float, say: Say
) -> tuple[list[Figure], dict[str, object]]:
    """Return the figures and the details of runs of so many shared agents; a scripted run takes `scripted_cpu_ms`."""
    say("OwlClaw through litellm")
    cores = os.cpu_count() or 1
    with running("benchmarks.openai_stub") as stub:
        keys = stub_keys(stub.url)
        with running_system(
            {"llm": {"model": "openai/gpt-4o-mini", "isolation": "shared"}}, environment=keys
        ) as system:
            warm_up(system, agents)
            stub_cpu = stub.tree.cpu_seconds()
            measured = measure_definition(system, "llm", agents, seconds)
            stub_ms = 1_000 * (stub.tree.cpu_seconds() - stub_cpu) / measured.runs
        say(f"OwlClaw through litellm, {agents} shared agents: {said(measured)}")
        bare = measure_litellm(stub.folder, {**keys, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, seconds)
    say(f"litellm alone: {bare.pairs_per_second:.0f} pairs of calls/s, {bare.cpu_ms_per_pair:.1f} CPU-ms a pair")
    room = 1_000 * cores / (bare.cpu_ms_per_pair + scripted_cpu_ms)
    rate = Figure(
        f"runs_per_second through litellm, {agents} shared agents",
        measured.runs_per_second,
        "runs/s",
        baseline=room,
        baseline_is=(
            f"{cores} cores / ({bare.cpu_ms_per_pair:.1f} CPU-ms of litellm's two calls in bare processes +"
            f" {scripted_cpu_ms:.1f} CPU-ms of our scripted run)"
        ),
        goal="at least 0.8 of the baseline",
        met=measured.runs_per_second >= 0.8 * room,
        note=joined(
            f"the stub took {stub_ms:.2f} CPU-ms a run, which the baseline does not count",
            remarks(
                [replace(measured, others_cores=measured.others_cores - stub_ms * measured.runs_per_second / 1_000)]
            ),
        ),
    )
    cpu = Figure(
        f"cpu_ms_per_run through litellm, {agents} shared agents",
        measured.cpu_ms_per_run,
        "ms",
        baseline=bare.cpu_ms_per_pair + scripted_cpu_ms,
        baseline_is="litellm's two calls in bare processes + our scripted run",
    )
    return [rate, cpu], {"owlclaw": asdict(measured), "litellm_alone": asdict(bare), "stub_cpu_ms_per_run": stub_ms}


def stub_keys(url: str) -> dict[str, str]:
    """Return the variables that have litellm ask the stub at that URL instead of OpenAI."""
    return {"OPENAI_API_KEY": "sk-bench", "OPENAI_BASE_URL": url, "OPENAI_API_BASE": url}


def warm_up(system: RunningSystem, agents: int) -> None:
    """Load it until a helper of the ModelGateway, which starts helpers under load, makes calls too."""
    for _ in range(_MOST_WARM_UPS):
        used = measure_definition(system, "llm", agents, WARM_SECONDS)
        if used.cpu_seconds.get(_HELPER, 0.0) > _WORKING * used.wall_seconds:
            break
    measure_definition(system, "llm", agents, WARM_SECONDS)
