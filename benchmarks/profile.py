"""Where the CPU of a run goes: by process, and inside the processes by package and function.

The load is that of `runs`. It is measured once undisturbed, process by process, and once more while py-spy samples the stacks of
one Python process of each kind that takes part. What a process does outside of Python (Ray's own threads) is in its CPU and in
no sample. The sampled stacks are kept beside the report in the collapsed form that speedscope.app and flamegraph.pl show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from benchmarks.child import running
from benchmarks.litellm_runs import stub_keys, warm_up
from benchmarks.measuring import WARM_SECONDS, Measured, joined, measure_definition, remarks
from benchmarks.processes import CpuReading
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.recorder import py_spy, recording
from benchmarks.runs import DEDICATED, MANY
from benchmarks.stacks import Stacks, collapsed, our_shares, said, self_shares
from benchmarks.system import RunningSystem, running_system

TITLE = "Where the CPU of a run goes, by process, package and function."

_WORTH_A_LOOK = 0.03
"""Of the CPU of a run: processes that take less are not sampled."""
_STARTING_SECONDS = 2.0
"""That py-spy takes to read the symbols of what it samples."""
_PACKAGES, _FUNCTIONS, _KEPT = 5, 3, 25
_SCRIPTED = "scripted:tool_once"


@dataclass(frozen=True, slots=True)
class Case:
    """One load."""

    name: str
    definition: str
    agents: int


SHARED = Case(f"{MANY} shared agents", "bench", MANY)
OWN = Case(f"{DEDICATED} dedicated agents", "own", DEDICATED)
LITELLM = Case(f"{MANY} shared agents through litellm", "llm", MANY)


@dataclass(frozen=True, slots=True)
class Profile:
    """One load: what a run took in each process, and what the processes that took the most were doing."""

    case: str
    measured: Measured
    stacks: Mapping[str, Stacks]
    """By the process's name, of the one that took the most."""


def answer(size: Size, say: Say) -> Answer:
    """Profile shared agents; in full size dedicated ones and litellm too."""
    py_spy()
    seconds = 3 if size is Size.SMOKE else 10
    profiles = _scripted(size, seconds, say)
    if size is Size.FULL:
        profiles.append(_through_litellm(seconds, say))
    return Answer(
        "profile",
        tuple(figure for each in profiles for figure in figures(each)),
        (),
        {each.case: details(each) for each in profiles},
        {
            f"{_file_name(each.case, name)}.txt": collapsed(stacks).encode()
            for each in profiles
            for name, stacks in each.stacks.items()
        },
    )


def _scripted(size: Size, seconds: int, say: Say) -> list[Profile]:
    definitions = {
        "bench": {"model": _SCRIPTED, "isolation": "shared"},
        "own": {"model": _SCRIPTED, "isolation": "dedicated"},
    }
    with running_system(definitions) as system:
        system.settle()
        measure_definition(system, "bench", MANY, WARM_SECONDS)
        profiles = [profiled(system, SHARED, seconds, say)]
        if size is Size.FULL:
            measure_definition(system, "own", DEDICATED, WARM_SECONDS)
            system.settle()
            profiles.append(profiled(system, OWN, seconds, say))
        system.kill()
    return profiles


def _through_litellm(seconds: int, say: Say) -> Profile:
    with running("benchmarks.openai_stub") as stub:
        llm = {"llm": {"model": "openai/gpt-4o-mini", "isolation": "shared"}}
        with running_system(llm, environment=stub_keys(stub.url)) as system:
            warm_up(system, MANY)
            profile = profiled(system, LITELLM, seconds, say)
            system.kill()
    return profile


def profiled(system: RunningSystem, case: Case, seconds: int, say: Say) -> Profile:
    """Measure the load, then sample under the same load. Raises RecorderError."""
    before = system.tree.cpu_of_each()
    measured = measure_definition(system, case.definition, case.agents, seconds)
    spent = spent_by_process(before, system.tree.cpu_of_each())
    say(f"{case.name}: {measured.cpu_ms_per_run:.2f} CPU-ms a run; sampling")
    chosen = list(filter(_runs_python, representatives(spent)))
    with recording([each.pid for each in chosen], seconds) as recorded:
        measure_definition(system, case.definition, case.agents, seconds + _STARTING_SECONDS)
        found = recorded.stacks()
    return Profile(case.name, measured, {spent[each][0]: found[each.pid] for each in chosen})


def spent_by_process(
    before: Mapping[psutil.Process, CpuReading], after: Mapping[psutil.Process, CpuReading]
) -> dict[psutil.Process, tuple[str, float]]:
    """Return the name of each process and the CPU seconds that it took itself."""
    return {
        process: (reading.name, reading.own - (before[process].own if process in before else 0.0))
        for process, reading in after.items()
    }


def representatives(spent: Mapping[psutil.Process, tuple[str, float]]) -> list[psutil.Process]:
    """Return of each name that took enough the process that took the most; the name that took the most first."""
    total: dict[str, float] = {}
    for name, seconds in spent.values():
        total[name] = total.get(name, 0.0) + seconds
    least = _WORTH_A_LOOK * sum(total.values())
    return [
        max((each for each, (its, _) in spent.items() if its == name), key=lambda each: spent[each][1])
        for name in sorted(total, key=total.__getitem__, reverse=True)
        if total[name] >= least
    ]


def _runs_python(process: psutil.Process) -> bool:
    try:
        return "python" in process.exe().rpartition("/")[2]
    except psutil.Error:
        return False


def figures(profile: Profile) -> tuple[Figure, ...]:
    """Return what a run takes in each process that matters, beside what it takes in all."""
    total = profile.measured.cpu_ms_per_run
    found = []
    for name, seconds in profile.measured.cpu_seconds.items():
        value = 1_000 * seconds / max(profile.measured.runs, 1)
        if value < _WORTH_A_LOOK * total:
            continue
        stacks = profile.stacks.get(name)
        found.append(
            Figure(
                f"cpu_ms_per_run, {name}, {profile.case}",
                value,
                "ms",
                baseline=total,
                baseline_is="all processes",
                note=joined(_note(stacks) if stacks else "not sampled", remarks([profile.measured])),
            )
        )
    return tuple(found)


def _file_name(case: str, process: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", f"{case} {process}")


def _note(stacks: Stacks) -> str:
    return f"in {said(self_shares(stacks), _PACKAGES)}; of ours {said(our_shares(stacks), _FUNCTIONS)}"


def details(profile: Profile) -> dict[str, object]:
    """Return the shares by process: `self`, of packages, and `ours`, of our functions with all that they call."""
    return {
        name: {
            "samples": stacks.total(),
            "self": dict(list(self_shares(stacks).items())[:_KEPT]),
            "ours": dict(list(our_shares(stacks).items())[:_KEPT]),
        }
        for name, stacks in profile.stacks.items()
    }
