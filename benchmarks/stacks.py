"""Sampled call stacks: whose code a process was in, and which of our functions had it there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Stacks: TypeAlias = Counter[tuple[str, ...]]
"""How often each stack was seen; frames from the outermost to the innermost, as `function (path:line)`."""

NATIVE = "native code"
"""The frame of a thread that holds the interpreter's lock and executes no Python, such as one of Ray's own."""
_FRAME = re.compile(r"^(?P<function>.*) \((?P<path>.*?)(?::\d+)?\)$")
_INSTALLED = r"/.*(?:/(?:site|dist)-packages/|/lib/python3\.\d+/)"
_OURS = ("owlclaw_ray", "actors", "serve")


def read_stacks(text: str, project: str = "") -> Stacks:
    """Return the stacks of a file in the collapsed form, `frame;frame;frame count` a line.

    Absolute paths become those that modules are imported by: below the folder `project`, or where packages are installed.
    Raises ValueError for a line that is not a stack.
    """
    where = re.compile(rf"(?<= \()(?:{_INSTALLED}|{re.escape(project)}/)")
    found: Stacks = Counter()
    for line in text.splitlines():
        frames, space, count = line.rpartition(" ")
        if not space or not count.isdigit():
            raise ValueError(f"not a stack and its count: {line!r}")
        found[tuple(where.sub("", frame) or NATIVE for frame in frames.split(";"))] += int(count)
    return found


def collapsed(stacks: Stacks) -> str:
    """Return the stacks in the collapsed form, which flame graph tools read."""
    return "".join(f"{';'.join(frames)} {count}\n" for frames, count in sorted(stacks.items()))


def package_of(frame: str) -> str:
    """Return the package that the code of a frame belongs to: `ray`, `asyncio`; the module for what is in none."""
    found = _FRAME.match(frame)
    if found is None:
        return frame
    path: str = found["path"]
    inside = path.rpartition("/")[2] if path.startswith("/") else path.partition("/")[0]
    return inside.removesuffix(".py")


def self_shares(stacks: Stacks) -> dict[str, float]:
    """Return the share of the samples whose innermost frame is in each package, the most first."""
    return _shares(((package_of(frames[-1]), count) for frames, count in stacks.items()), stacks.total())


def our_shares(stacks: Stacks) -> dict[str, float]:
    """Return the share of the samples that are in each of our functions, or in what it called, the most first.

    One sample is in several functions, so shares do not add up.
    """
    ours = (
        (frame, count)
        for frames, count in stacks.items()
        for frame in {each for each in frames if package_of(each) in _OURS}
    )
    return _shares(ours, stacks.total())


def said(shares: Mapping[str, float], most: int) -> str:
    """Return the first of the shares in words."""
    return ", ".join(f"{name} {share:.0%}" for name, share in list(shares.items())[:most])


def _shares(counts: Iterable[tuple[str, int]], whole: int) -> dict[str, float]:
    found: Counter[str] = Counter()
    for name, count in counts:
        found[name] += count
    return {name: round(count / whole, 3) for name, count in found.most_common()}
