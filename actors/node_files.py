"""What files the nodes of a cluster see: whether they share the data folder, and have the same application."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NewType

import ray
from msgspec import Struct
from ray.exceptions import RayError

from actors.nodes import Node, on_node
from actors.plan import RuntimePlan
from owlclaw_ray.errors import Problem, RuntimeUnavailableError
from owlclaw_ray.kernel.durable_files import make_folder, replace

Token = NewType("Token", str)
"""What a node writes into its marker: another one for each check."""

_FOLDER = "nodes"
_MARK = "mark"
_NO_FILE = ""
_SECONDS = 60.0
"""How long the nodes have for one question. One whose first worker starts needs some seconds."""


class NodeFiles(Struct, frozen=True):
    """Which files a node must have."""

    data_dir: str
    app_path: str
    """`module:app`, or empty."""
    app_folder: str
    agents_dir: str
    shared: tuple[str, ...]
    """What is kept in files of the data folder that all nodes use: nothing, if they need not share it."""


def files_of(plan: RuntimePlan) -> NodeFiles:
    """Return which files the nodes of a runtime must have."""
    worker = plan.worker
    return NodeFiles(worker.data_dir, worker.app_path, worker.app_folder, worker.agents_dir, plan.shared_files)


class SeenFiles(Struct, frozen=True):
    """What a node found."""

    application: str
    """The hash of the application's file; empty if it has none."""
    has_definitions: bool
    problem: str = ""
    """Why it could not write its marker."""


class Markers:
    """The markers of one check in a data folder: others may be under way."""

    def __init__(self, data_dir: Path, check: str) -> None:
        self._folder = data_dir / _FOLDER / check

    def write(self, node_id: str, token: Token) -> None:
        """Leave a node's marker; raises OSError."""
        make_folder(self._folder)
        replace(self._folder / node_id, token.encode())

    def read(self, node_ids: Sequence[str]) -> Mapping[str, Token]:
        """Return what is in the markers of these nodes, as far as they can be seen."""
        found = {}
        for node_id in node_ids:
            with suppress(OSError):
                found[node_id] = Token((self._folder / node_id).read_text())
        return found

    def remove(self, node_ids: Sequence[str]) -> None:
        """Remove the markers of these nodes, as far as they can be seen."""
        for node_id in node_ids:
            with suppress(OSError):
                (self._folder / node_id).unlink()
        with suppress(OSError):
            self._folder.rmdir()


def mark_folder(data_dir: Path) -> None:
    """Leave another mark than before in the data folder: nodes that see the same one have the same folder. Raises OSError."""
    make_folder(data_dir / _FOLDER)
    replace(data_dir / _FOLDER / _MARK, secrets.token_hex(16).encode())


def seen_mark(data_dir: Path) -> str:
    """Return the mark that is in the data folder; raises OSError."""
    return (data_dir / _FOLDER / _MARK).read_text()


def application_file(files: NodeFiles) -> Path | None:
    """Return where the module of the application is, or would be; None where it is not in its folder but installed, or there is none."""
    if not files.app_path:
        return None
    module = Path(files.app_folder, *files.app_path.partition(":")[0].split("."))
    return next((path for path in (module / "__init__.py", module.with_suffix(".py")) if path.is_file()), None)


def look(files: NodeFiles, check: str, node_id: str, token: Token) -> SeenFiles:
    """Leave this node's marker, if it needs one, and return what it has."""
    problem = ""
    if files.shared:
        try:
            Markers(Path(files.data_dir), check).write(node_id, token)
        except OSError as error:
            problem = f"{type(error).__name__}: {error}"
    path = application_file(files)
    application = _NO_FILE if path is None else sha256(path.read_bytes()).hexdigest()
    return SeenFiles(application, Path(files.agents_dir).is_dir(), problem)


def problems_of(
    files: NodeFiles,
    nodes: Sequence[Node],
    views: Mapping[str, SeenFiles],
    tokens: Mapping[str, Token],
    seen: Mapping[str, Mapping[str, Token]],
) -> list[Problem]:
    """Return why these nodes cannot work together. The first is the one that the others are compared with; `seen`: what each read."""
    first, problems = nodes[0], list[Problem]()
    own = application_file(files)
    for node in nodes:
        view = views[node.node_id]
        if view.application != views[first.node_id].application:
            what = (
                f"{own or files.app_path} is not on node {node.host}"
                if not view.application
                else (f"{own or files.app_path} has another content on node {node.host} than on {first.host}")
            )
            problems.append(Problem("app", what, f"put the same application into {files.app_folder} on every node"))
        if not view.has_definitions and views[first.node_id].has_definitions:
            what = f"{files.agents_dir} is no folder on node {node.host}"
            problems.append(Problem("agents_dir", what, "put the same definitions at the same path on every node"))
        if view.problem:
            what = f"{files.data_dir} cannot be written on node {node.host}: {view.problem}"
            problems.append(Problem("data_dir", what, "let the runtime's user write it on every node"))
    if files.shared and not any(view.problem for view in views.values()):
        blind = [
            node for node in nodes if any(seen[node.node_id].get(other) != token for other, token in tokens.items())
        ]
        if blind:
            hosts = ", ".join(node.host for node in blind)
            what = f"{files.data_dir} is not the same folder on all nodes ({hosts}), and {' and '.join(files.shared)} are files in it"
            fix = "put it on a file system that all nodes share, or have them in PostgreSQL (docs/cluster.md)"
            problems.append(Problem("data_dir", what, fix))
    return problems


def check_files(files: NodeFiles, nodes: Sequence[Node]) -> list[Problem]:
    """Return why these nodes cannot work together, asking each of them. It blocks; raises RuntimeUnavailableError if one does not answer.

    One node alone is not asked.
    """
    if len(nodes) < 2:
        return []
    ids, check = [node.node_id for node in nodes], secrets.token_hex(8)
    tokens = {node_id: Token(secrets.token_hex(16)) for node_id in ids}
    views = _ask(look, {node_id: (files, check, node_id, tokens[node_id]) for node_id in ids})
    seen: Mapping[str, Mapping[str, Token]] = {}
    if files.shared:
        seen = _ask(_read, dict.fromkeys(ids, (files.data_dir, check, ids)))
        _ask(_remove, dict.fromkeys(ids, (files.data_dir, check, ids)))
    return problems_of(files, nodes, views, tokens, seen)


def _read(data_dir: str, check: str, node_ids: Sequence[str]) -> Mapping[str, Token]:
    return Markers(Path(data_dir), check).read(node_ids)


def _remove(data_dir: str, check: str, node_ids: Sequence[str]) -> None:
    Markers(Path(data_dir), check).remove(node_ids)


def _ask(question: Any, arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return the function's answers, by the ids of the nodes that they come from."""
    asked = {node_id: on_node(node_id, question, *each) for node_id, each in arguments.items()}
    try:
        return {node_id: ray.get(answer, timeout=_SECONDS) for node_id, answer in asked.items()}
    except RayError as error:
        raise RuntimeUnavailableError(f"a node did not say which files it has: {type(error).__name__}") from error
