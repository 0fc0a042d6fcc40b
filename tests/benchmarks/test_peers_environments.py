import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers.contestants import AUTOGEN, DBOS, WAYS
from benchmarks.peers.environments import Environment, Missing, find, install_command, restate_server

ROOT = Path(__file__).parents[2]


def test_the_extra_installs_what_every_peer_needs_that_goes_with_our_own_dependencies():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["peers"]

    assert sorted(extra) == sorted(
        {each for way in WAYS if not way.peer.own_environment for each in way.peer.distributions}
    )


def test_every_way_has_a_name_of_its_own_and_a_module():
    assert len({way.name for way in WAYS}) == len(WAYS)
    for way in WAYS:
        assert (ROOT / "benchmarks" / "peers" / f"{way.peer.name}.py").is_file()


def test_a_peer_runs_in_this_interpreter_if_it_is_installed_here(tmp_path):
    found = find(replace(DBOS, distributions=("pytest>=8", "psutil>=6.0")), tmp_path)

    assert isinstance(found, Environment)
    assert found.interpreter == sys.executable
    assert found.versions["pytest"] == pytest.__version__


def test_a_peer_that_is_not_installed_here_runs_in_the_environment_of_its_name(tmp_path):
    interpreter = tmp_path / "autogen" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text('#!/bin/sh\necho \'{"autogen-core": "0.7.5"}\'\n')
    interpreter.chmod(0o755)

    assert find(replace(AUTOGEN, distributions=("autogen-core-of-nobody",)), tmp_path) == Environment(
        str(interpreter), {"autogen-core": "0.7.5"}
    )


def test_a_peer_that_is_nowhere_comes_with_the_command_that_installs_it(tmp_path):
    peer = replace(DBOS, distributions=("no-such-distribution>=1",))

    assert find(peer, tmp_path) == Missing("pip install -e '.[peers]'")


def test_a_peer_that_contradicts_our_dependencies_is_installed_into_an_environment_of_its_own():
    command = install_command(AUTOGEN, Path("cache"))

    assert command == "python -m venv cache/autogen && cache/autogen/bin/pip install 'autogen-core>=0.7.5'"


def test_restates_server_is_taken_from_the_cache_folder(tmp_path):
    server = tmp_path / "node/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
    server.parent.mkdir(parents=True)
    server.touch()

    assert restate_server(tmp_path, print) == server


def test_without_npm_the_command_for_restates_server_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(environments.shutil, "which", lambda _: None)

    found = restate_server(tmp_path, print)

    assert isinstance(found, Missing)
    assert f"npm install --prefix {tmp_path}/node" in found.command
    assert "@restatedev/restate-server" in found.command
