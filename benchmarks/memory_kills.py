"""`python -m benchmarks.memory_kills`: one agent's memory, killed with SIGKILL again and again, and checked after every kill.

A process remembers, merges, archives, indexes, compacts and re-indexes, in an order that the seed gives, and says each thing
only when it is done. It is killed at a random moment; another process then looks at the files: whatever was said must be
there, once, and the index must hold exactly what MEMORY.md says. The next process begins, as an agent does, with what the last
one was doing. LanceDB is imported once, before any process is forked.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import select
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryLimits
from owlclaw_ray.ids import MemoryId, derived_id
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import EmbeddingWait, Vectors
from owlclaw_ray.memory.lance import LanceMemory, table

AGENT = AgentRef.parse("bench:killed")
LIMITS = MemoryLimits(memories=60)
"""So few that many kills fall into archiving."""
LONGEST_LIFE = 0.4
"""Seconds from the first answer to the kill, at most."""
_TIMEOUT_SECONDS = 120.0
_DIMENSION = 32


class Doing(IntEnum):
    """What the process is doing when it is killed."""

    STARTING = 0
    REMEMBERING = 1
    MERGING = 2
    ARCHIVING = 3
    INDEXING = 4
    COMPACTING = 5
    REINDEXING = 6
    RECALLING = 7


_SHARES = {
    Doing.REMEMBERING: 40,
    Doing.MERGING: 8,
    Doing.ARCHIVING: 8,
    Doing.INDEXING: 12,
    Doing.COMPACTING: 20,
    Doing.REINDEXING: 10,
    Doing.RECALLING: 4,
}


class ByteEmbedder:
    """Embeds a text as the counts of its characters."""

    id = "bytes"
    dimension = _DIMENSION
    batch_size = 64

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text."""
        return [self._embed(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], patience: EmbeddingWait = EmbeddingWait.LONG) -> Vectors:
        """Return one vector a text."""
        del patience
        return self.embed_queries(texts)

    def _embed(self, text: str) -> list[float]:
        vector = [0.01] * _DIMENSION
        for character in text:
            vector[zlib.crc32(character.encode()) % _DIMENSION] += 1.0
        return vector


@dataclass(slots=True)
class Told:
    """What the processes said they had done."""

    remembered: set[int] = field(default_factory=set)
    """Numbers of calls of `remember` that were answered."""
    tried: int = 0
    """The first number that was not answered yet."""


@dataclass(frozen=True, slots=True)
class Report:
    """How it went."""

    kills: int
    struck: dict[str, int]
    """Kills by what the process was doing."""
    remembered: int
    active: int
    archived: int
    broken: tuple[str, ...]
    """What was lost, doubled, or not as MEMORY.md says."""


def memory_of(number: int) -> Memory:
    """Return what the call of that number remembers: every seventh what the one before it did, in another form."""
    said = number - 1 if number % 7 == 6 else number
    blank = " " if said != number else ""
    content = f"事实 {said}: the customer number {said} likes tea{blank}\n\n## not a heading\n---\n```"
    return Memory(call_id(number), content, (f"t{number % 3}",), SystemClock().now(), f"run_{number // 5}")


def call_id(number: int) -> MemoryId:
    """Return the id of the memory that the call of that number makes, again and again the same."""
    return MemoryId(derived_id("mem", "kills", str(number)))


def opened(folder: Path) -> LanceMemory:
    """Return the memory, which compacts its index as often as it can."""
    table.IDLE_FRAGMENTS, table.IDLE_UNINDEXED = 2, 4
    return LanceMemory(folder, FixedEmbedder(ByteEmbedder()), SystemClock(), LIMITS)


def live(folder: Path, seed: str, number: int, say: Callable[[str], None], doing: Callable[[Doing], None]) -> None:
    """Work until killed; the first call repeats the one that was not answered."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    store = opened(folder)
    while True:
        act = chance.choices(list(_SHARES), list(_SHARES.values()))[0]
        if act in {Doing.REMEMBERING, Doing.MERGING}:
            doing(Doing.MERGING if number % 7 == 6 else Doing.REMEMBERING)
            store.remember(AGENT, memory_of(number))
            say(str(number))
            number += 1
            continue
        doing(act)
        _act(store, act, chance)


def _act(store: LanceMemory, act: Doing, chance: random.Random) -> None:
    match act:
        case Doing.ARCHIVING:
            active = [memory.memory_id for memory in store.files.memories(AGENT)]
            store.files.archive(AGENT, chance.sample(active, min(3, len(active))))
        case Doing.INDEXING:
            store.catch_up(AGENT, lambda: True)
        case Doing.COMPACTING:
            store.tidy(AGENT)
        case Doing.REINDEXING:
            store.reindex(AGENT)
        case _:
            store.recall(AGENT, "customer tea", 5)


def problems(folder: Path, told: Told) -> tuple[list[str], int, int]:
    """Return everything that is not as it was promised, and how many memories are active and archived."""
    store = opened(folder)
    recall = store.recall(AGENT, "customer", 5)
    store.catch_up(AGENT, lambda: True)
    active, archived = store.files.memories(AGENT), store.files.archived(AGENT)
    found = [f"degraded: {recall.reason}"] if recall.degraded else []
    found += [f"a broken entry: {each}" for each in store.files.stats(AGENT).problems]
    everything = [*active, *archived]
    ids = Counter(each for memory in everything for each in (memory.memory_id, *memory.merged))
    found += [f"{memory_id} is there {count} times" for memory_id, count in ids.items() if count > 1]
    holders = {each: memory for memory in everything for each in (memory.memory_id, *memory.merged)}
    found += [f"call {number} is lost" for number in sorted(told.remembered) if call_id(number) not in holders]
    for memory in everything:
        if memory.count != 1 + len(memory.merged):
            found.append(f"{memory.memory_id} counts {memory.count} with {len(memory.merged)} merged")
    for number in sorted(told.remembered):
        holder = holders.get(call_id(number))
        if holder is not None and memory_of(number).content not in {holder.content, *holder.also}:
            found.append(f"call {number} has another content: {holder.content!r}")
    indexed, wanted = store.indexed(AGENT), {memory.memory_id for memory in active}
    if indexed != wanted:
        found.append(f"the index lacks {sorted(wanted - indexed)} and has {sorted(indexed - wanted)} too many")
    return found, len(active), len(archived)


def run(folder: Path, kills: int, seed: int, say: Callable[[str], None]) -> Report:
    """Kill so many times, and check after each; the report says what was broken."""
    import lancedb  # noqa: F401 - the forked processes have it then

    chance = random.Random(seed)  # noqa: S311 - a test's choice
    told, struck, broken, active, archived = Told(), Counter[str](), [], 0, 0
    for life in range(kills):
        struck[_one_life(folder, f"{seed}/{life}", told, chance.uniform(0, LONGEST_LIFE)).name.lower()] += 1
        found, active, archived = _checked(folder, told)
        broken += [f"after kill {life + 1}: {each}" for each in found]
        if life % 20 == 19 or found:
            say(f"{life + 1} kills, {len(told.remembered)} remembered, {active} active, {archived} archived; {found}")
    return Report(kills, dict(struck), len(told.remembered), active, archived, tuple(broken))


def _one_life(folder: Path, seed: str, told: Told, seconds: float) -> Doing:
    """Let a process work for so long after its first answer, kill it, and return what it was doing."""
    shared = mmap.mmap(-1, 1)
    reading, writing = os.pipe()

    def doing(what: Doing) -> None:
        shared[0] = what

    child = _forked(lambda: live(folder, seed, told.tried, lambda line: _say(writing, line), doing), closing=reading)
    os.close(writing)
    heard = b""
    try:
        if not select.select([reading], [], [], _TIMEOUT_SECONDS)[0]:
            raise TimeoutError(f"the process said nothing for {_TIMEOUT_SECONDS:.0f} s")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([reading], [], [], left)[0]:
                heard += (piece := os.read(reading, 65_536))
                if not piece:
                    raise RuntimeError("the process ended by itself")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    while piece := os.read(reading, 65_536):
        heard += piece
    os.close(reading)
    numbers = [int(line) for line in heard.split()]
    told.remembered.update(numbers)
    told.tried = max([told.tried - 1, *numbers]) + 1
    return Doing(shared[0])


def _checked(folder: Path, told: Told) -> tuple[list[str], int, int]:
    """Look at the files in a process of its own, so that this one never uses LanceDB and can be forked."""
    reading, writing = os.pipe()
    child = _forked(lambda: _say(writing, json.dumps(problems(folder, told))), closing=reading)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if status or not text:
        return [f"the check failed with status {status}"], 0, 0
    found, active, archived = json.loads(text)
    return found, active, archived


def _forked(work: Callable[[], None], closing: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.close(closing)
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


def _say(descriptor: int, line: str) -> None:
    data = memoryview(f"{line}\n".encode())
    while data:
        data = data[os.write(descriptor, data) :]


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    return parser


def main(arguments: list[str]) -> int:
    """Run, print the report, and return 1 if anything was broken."""
    options = arguments_parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="owl-kills-") as folder:
        report = run(Path(folder), options.kills, options.seed, lambda line: print(line, flush=True))
    print(f"{report.kills} kills, by what they struck: {report.struck}")
    print(f"{report.remembered} remembered; {report.active} active and {report.archived} archived at the end")
    print("\n".join(report.broken) or "nothing lost, nothing doubled, the index equal to MEMORY.md after every kill")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
