"""What must be the same on all nodes of a cluster, over folders that stand for machines."""

from __future__ import annotations

import pytest

from actors.node_files import Markers, NodeFiles, Token, application_file, look, problems_of
from actors.nodes import Node

NODES = (Node("1", "alpha", frozenset()), Node("2", "beta", frozenset()))
TOKENS = {"1": Token("one"), "2": Token("two")}


@pytest.fixture
def machines(tmp_path):
    """Two machines that have the same application and definitions, each with a data folder of its own."""
    made = {}
    for node in NODES:
        folder = tmp_path / node.host
        (folder / "agents").mkdir(parents=True)
        (folder / "trial.py").write_text("app = 1")
        made[node.node_id] = folder
    return made


def problems(machines, shared=("memories",), data=None):
    """Return what is wrong with machines, as `check_files` asks them; `data`: the folder that they share, or each its own."""

    def files(node_id):
        folder = machines[node_id]
        return NodeFiles(str(data or folder / "data"), "trial:app", str(folder), str(folder / "agents"), shared)

    views = {node.node_id: look(files(node.node_id), "check", node.node_id, TOKENS[node.node_id]) for node in NODES}
    seen = {each: Markers(data or machines[each] / "data", "check").read(list(TOKENS)) for each in TOKENS}
    return problems_of(files("1"), NODES, views, TOKENS, seen)


def test_nodes_that_share_the_data_folder_may_keep_everything_in_files(machines, tmp_path):
    assert problems(machines, data=tmp_path / "data") == []


def test_nodes_with_folders_of_their_own_are_refused_if_something_is_kept_in_files(machines):
    [problem] = problems(machines, ("memories", "artifacts"))

    assert problem.where == "data_dir"
    assert "not the same folder on all nodes (alpha, beta), and memories and artifacts are files in it" in problem.what
    assert "in PostgreSQL" in problem.fix


def test_nodes_with_folders_of_their_own_are_welcome_if_nothing_is_kept_in_files_and_none_is_written(machines):
    assert problems(machines, ()) == []
    assert not (machines["1"] / "data").exists()


def test_a_marker_that_another_start_left_proves_nothing(machines):
    for node_id, other in (("1", "2"), ("2", "1")):
        Markers(machines[node_id] / "data", "check").write(other, Token("old"))

    assert [each.where for each in problems(machines)] == ["data_dir"]


def test_a_node_that_cannot_write_the_data_folder_is_named_with_the_reason(machines):
    (machines["2"] / "data").write_text("in the way")

    [problem] = problems(machines)

    assert "cannot be written on node beta: " in problem.what


def test_an_application_that_is_missing_or_another_one_is_named_with_the_node(machines):
    (machines["2"] / "trial.py").write_text("app = 2")
    [other] = problems(machines, ())
    (machines["2"] / "trial.py").unlink()
    [missing] = problems(machines, ())

    assert other.what.endswith("trial.py has another content on node beta than on alpha")
    assert missing.what.endswith("trial.py is not on node beta")


def test_definitions_that_one_node_lacks_are_named_with_the_node(machines):
    (machines["2"] / "agents").rmdir()

    [problem] = problems(machines, ())

    assert (problem.where, problem.what.endswith("agents is no folder on node beta")) == ("agents_dir", True)


def test_the_file_of_an_application_is_its_module_or_its_package(tmp_path):
    def found(app):
        path = application_file(NodeFiles("", app, str(tmp_path), "", ()))
        return path and str(path.relative_to(tmp_path))

    (tmp_path / "shop" / "web").mkdir(parents=True)
    for name in ("one.py", "shop/__init__.py", "shop/web/__init__.py"):
        (tmp_path / name).touch()

    assert [found(app) for app in ("one:app", "shop:app", "shop.web:app", "installed.app:app", "")] == [
        "one.py",
        "shop/__init__.py",
        "shop/web/__init__.py",
        None,
        None,
    ]


def test_the_markers_of_a_check_are_removed_and_those_of_others_stay(tmp_path):
    first, second = (Markers(tmp_path, check) for check in ("a", "b"))
    for each in (first, second):
        each.write("1", TOKENS["1"])

    first.remove(["1", "2"])

    assert first.read(["1"]) == {}
    assert second.read(["1"]) == {"1": TOKENS["1"]}
    assert [each.name for each in (tmp_path / "nodes").iterdir()] == ["b"]
