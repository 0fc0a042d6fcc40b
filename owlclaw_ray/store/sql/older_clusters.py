"""Clusters of older versions that use a database while a newer version is about to migrate it: see ADR 51."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any

from msgspec import Struct, field
from sqlalchemy import Connection, inspect, select, update

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.store.commands import NodeState
from owlclaw_ray.store.sql.codec import load
from owlclaw_ray.store.sql.migrations import HEAD, OLDEST_RELEASE
from owlclaw_ray.store.sql.schema import cluster_lease, cluster_nodes

_LEASE = ""
"""The lease among the beats of nodes, whose ids are never empty."""

Beats = Mapping[str, tuple[int, int]]
"""The generation and the beats of rows of nodes, by their ids, and of the lease. A row that is renewed has others each second."""


class OlderClusterError(Exception):
    """Clusters that the migration would exclude may be running. The message says which, `fix` what to do.

    Whether they run is seen from their rows: those whose `beats` stand still for as long as a lease lasts do not.
    """

    def __init__(self, message: str, fix: str, beats: Beats) -> None:
        super().__init__(message)
        self.fix, self.beats = fix, beats


class _UsingCluster(Struct):
    """What a cluster says of itself in the rows of its nodes."""

    schema: str
    said: str = "a version that does not name its schema"
    since: str = ""
    machines: set[str] = field(default_factory=set)
    beats: dict[str, tuple[int, int]] = field(default_factory=dict)
    runs_agents: bool = False

    def describe(self, name: str) -> str:
        """Return one phrase for people."""
        parts = [self.said, *([f"on {', '.join(sorted(self.machines))}"] if self.machines else [])]
        parts += [f"since {self.since}"] if self.since else []
        parts += ["it runs the agents"] if self.runs_agents else []
        return f"cluster {name} ({'; '.join(parts)})"


def about_this_version(now: datetime) -> dict[str, JsonValue]:
    """Return what the row of a node says of it when it joins: its version, its schema, and since when."""
    return {"version": version("owlclaw-ray"), "schema": HEAD, "since": now.isoformat(timespec="seconds")}


def require_no_older_cluster(connection: Connection, oldest: str, assumed: str, still: Beats) -> None:
    """Raise OlderClusterError if a cluster of a schema before `oldest` uses the database; its rows are locked until the commit.

    `assumed`: the schema of those that do not name theirs. `still`: what was watched standing still. Whoever is as it was then is gone:
    its nodes are marked as lost, its lease is free, and should it come back, it cannot join again.
    """
    older = _older_clusters(connection, oldest, assumed)
    running = {
        name: each for name, each in older.items() if any(still.get(row) != at for row, at in each.beats.items())
    }
    if running:
        raise OlderClusterError(
            f"{', '.join(each.describe(name) for name, each in running.items())} may be using the database, and its migration to schema "
            f"{HEAD} would exclude what has not schema {oldest} or newer",
            f"stop it (owlclaw down there) and start again; or have it upgraded to owlclaw-ray {OLDEST_RELEASE} first, beside which this "
            "version may start",
            {row: at for each in older.values() for row, at in each.beats.items()},
        )
    for name, each in older.items():
        if lost := [row for row in each.beats if row != _LEASE]:
            marked = update(cluster_nodes).where(cluster_nodes.c.node_id.in_(lost))
            connection.execute(marked.values(state=NodeState.LOST.value))
        if each.runs_agents:
            connection.execute(update(cluster_lease).where(cluster_lease.c.cluster == name).values(cluster=""))


def have_moved(connection: Connection, beats: Beats) -> bool:
    """Return whether any of these rows was renewed since."""
    now = {row.node_id: (row.generation, row.beats) for row in _node_rows(connection, locked=False)}
    for row in _lease_rows(connection, locked=False):
        now[_LEASE] = (row.generation, row.beats)
    return any(now.get(row, at) != at for row, at in beats.items())


def _older_clusters(connection: Connection, oldest: str, assumed: str) -> dict[str, _UsingCluster]:
    """Return those that the rows name, whether they run or not. The rows are locked in the order in which commands lock them."""
    found: dict[str, _UsingCluster] = {}
    for row in _lease_rows(connection, locked=True):
        found[row.cluster] = _UsingCluster(assumed, runs_agents=True, beats={_LEASE: (row.generation, row.beats)})
    for row in _node_rows(connection, locked=True):
        using = found.setdefault(row.cluster, _UsingCluster(assumed))
        using.beats[row.node_id] = (row.generation, row.beats)
        using.machines |= {row.machine} - {""}
        said = load(row.details)
        if "schema" in said:
            using.schema, using.since = said["schema"], said["since"]
            using.said = f"owlclaw-ray {said['version']}, schema {said['schema']}"
    return {name: each for name, each in found.items() if each.schema < oldest}


def _lease_rows(connection: Connection, *, locked: bool) -> Sequence[Any]:
    """Return the lease if somebody holds it; there is none in a database from before it."""
    if not inspect(connection).has_table(cluster_lease.name):
        return ()
    columns = cluster_lease.c
    held = select(columns.cluster, columns.generation, columns.beats).where(columns.cluster != "")
    return connection.execute(held.with_for_update() if locked else held).all()


def _node_rows(connection: Connection, *, locked: bool) -> Sequence[Any]:
    if not inspect(connection).has_table(cluster_nodes.name):
        return ()
    columns = cluster_nodes.c
    named = (columns.node_id, columns.cluster, columns.machine, columns.generation, columns.beats, columns.details)
    nodes = select(*named).where(columns.state != NodeState.LOST.value).order_by(columns.node_id)
    return connection.execute(nodes.with_for_update() if locked else nodes).all()
