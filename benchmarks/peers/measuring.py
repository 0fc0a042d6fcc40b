"""Measuring one way of using a peer."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import benchmarks
from benchmarks import load
from benchmarks.child import Child, running
from benchmarks.load import post_for
from benchmarks.peers.contestants import Load, Way
from benchmarks.peers.environments import Environment
from benchmarks.peers.plan import AGENTS, Plan
from benchmarks.peers.sample import Done, Sample, take
from serve.loopback import free_ports

BODY = b'{"price": 7}'
_PORTS = 4
_PATIENCE_SECONDS = 120.0
"""For the runs that are under way when the time is up; a peer may need seconds for each."""


def measure(way: Way, environment: Environment, arguments: tuple[str, ...], plan: Plan) -> list[Sample]:
    """Start the peer, warm it up, measure it with each number of runs at the same time, and stop it."""
    submit = over_http if way.peer.load is Load.HTTP else in_process
    with _running(way, environment, arguments) as child:
        submit(child, max(way.peer.in_flight), plan.warm_seconds)
        return [
            take(child.tree, in_flight, partial(submit, child, in_flight, plan.seconds))
            for in_flight in way.peer.in_flight
        ]


def http_arguments(server: Path) -> tuple[str, ...]:
    """Return what a peer over HTTP needs to know: its server, and free ports."""
    return (str(server), *map(str, free_ports(_PORTS)))


def over_http(child: Child, in_flight: int, seconds: float) -> Done:
    """Call the agents in turn over so many connections, each call ending with its run. Raises RuntimeError if one is refused."""
    paths = (f"/agent/a{number % AGENTS}/run" for number in itertools.count())
    started = time.monotonic()
    result = load.run(post_for(child.url, paths, body=BODY, connections=in_flight, seconds=seconds))
    if result.refused or result.broken:
        raise RuntimeError(f"{result.refused} runs were refused, {result.broken} connections broke")
    return Done(result.accepted, time.monotonic() - started)


def in_process(child: Child, in_flight: int, seconds: float) -> Done:
    """Have the peer keep so many runs going; see `benchmarks.peers.in_process`. Raises RuntimeError if one fails."""
    parts = urlsplit(child.url)
    asked = json.dumps({"in_flight": in_flight, "seconds": seconds}).encode() + b"\n"
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), seconds + _PATIENCE_SECONDS) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(asked)
        said = json.loads(answers.readline())
    if "failed" in said:
        raise RuntimeError(said["failed"])
    return Done(**said)


@contextlib.contextmanager
def _running(way: Way, environment: Environment, arguments: tuple[str, ...]) -> Iterator[Child]:
    """Run the peer's module, with this package and nothing else of ours where its interpreter finds it."""
    with TemporaryDirectory(prefix="owl-peer-") as name:
        (Path(name) / "benchmarks").symlink_to(Path(benchmarks.__file__).parent)
        module = f"benchmarks.peers.{way.peer.name}"
        with running(
            module, *arguments, interpreter=environment.interpreter, environment={"PYTHONPATH": name}
        ) as child:
            yield child
