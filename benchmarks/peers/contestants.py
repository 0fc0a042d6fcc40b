"""Which peers there are, and in which ways each is measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Load(Enum):
    """How runs are submitted."""

    HTTP = "http"
    """Over HTTP, as ours: the load generator is another process, whose CPU is not counted."""
    IN_PROCESS = "in process"
    """By the peer's own process: no submission to pay for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another runtime for the same job."""

    name: str
    """Its module in this package, too."""
    distributions: tuple[str, ...]
    """What its interpreter must have installed, with lower bounds."""
    load: Load
    in_flight: tuple[int, ...]
    """Numbers of runs at the same time; the one with the most runs a second counts."""
    at_least: float | None
    """So many times its rate are the goal; none for a peer that keeps nothing."""
    own_environment: bool = False
    """Whether its dependencies contradict ours, so that it needs a virtual environment of its own."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of using a peer."""

    peer: Peer
    name: str
    about: str
    arguments: tuple[str, ...] = ()


RESTATE = Peer("restate", ("restate-sdk>=1.2", "hypercorn>=0.18", "granian>=2.5"), Load.HTTP, (64, 256), 1.0)
DBOS = Peer("dbos", ("dbos>=3.4",), Load.IN_PROCESS, (64,), 10.0)
LANGGRAPH = Peer("langgraph", ("langgraph>=1.2", "langgraph-checkpoint-sqlite>=3.1"), Load.IN_PROCESS, (64,), 10.0)
AUTOGEN = Peer("autogen", ("autogen-core>=0.7.5",), Load.IN_PROCESS, (64,), None, own_environment=True)

WAYS = (
    Way(
        RESTATE,
        "Restate",
        "virtual objects over HTTP, every step durable, 24 partitions (its default), Hypercorn with a worker a core",
        ("24", "hypercorn"),
    ),
    Way(
        RESTATE,
        "Restate, tuned by us",
        "the same with 1 partition and Granian, which its documentation does not mention",
        ("1", "granian"),
    ),
    Way(DBOS, "DBOS, SQLite", "asynchronous workflows in process, every step durable, SQLite as DBOS sets it up"),
    Way(DBOS, "DBOS, SQLite tuned by us", "the same with SQLite's write-ahead log through an engine of ours", ("wal",)),
    Way(
        LANGGRAPH,
        "LangGraph, SQLite",
        "a graph model → tool → model in process, each checkpoint written before the next step",
        ("sync",),
    ),
    Way(
        LANGGRAPH,
        "LangGraph, SQLite, async durability",
        "the same, each checkpoint written while the next step runs (its default)",
        ("async",),
    ),
    Way(AUTOGEN, "autogen-core", "a SingleThreadedAgentRuntime in process; nothing is durable"),
)
