"""The same durable run on other runtimes: on the same machine, in the same invocation, with the same scripted model.

Every peer runs in a process of its own with whatever it starts, on loopback, in a temporary folder, and is used as its documentation
recommends for many runs at once; what else makes it faster is measured beside. See docs/benchmarks.md.

A peer's interpreter may have nothing but the peer. So this module, job.py, in_process.py and the peers' own modules (restate.py, dbos.py,
langgraph.py, autogen.py) import at the top only the standard library and, those of the peers, their peer.
"""

from __future__ import annotations

from benchmarks.question import Answer, Say, Size

TITLE = "The same job on other runtimes: model → tool → model, scripted model, 1,000 agents."


def answer(size: Size, say: Say) -> Answer:
    """Measure OwlClaw and every peer that is installed. Raises ModuleNotFoundError if none is."""
    from benchmarks.peers.comparison import compare

    return compare(size, say)
