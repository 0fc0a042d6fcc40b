from __future__ import annotations

import json
import shutil
import sys

import pytest

from benchmarks.chaos import __main__ as command
from benchmarks.chaos import trial as trials
from benchmarks.chaos.session import FACTS, Plan
from benchmarks.chaos.strikes import Role
from benchmarks.chaos.trial import Keep, trial


def parsed(*arguments):
    return command.command_line(arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "0"], "argument --runs: 0 is not 1 or more"),
        (["--runs", "many"], "argument --runs: invalid int value: 'many'"),
        (["--kills", "-1"], "argument --kills: -1 is not 0 or more"),
        (["--pace", "nan"], "argument --pace: nan is not 0 or more"),
        (["--quiet", "-0.5"], "argument --quiet: -0.5 is not 0 or more"),
        (["--runs", "5", "--ahead", "5"], "argument --ahead: 5 is not less than the 5 runs"),
        (["--longest", "inf"], "argument --longest: inf is not 0 or more"),
        (["--roles", "agent,nobody"], "argument --roles: 'nobody' cannot be hit; agent, tool_worker, keeper, "),
        (["--roles", ""], "argument --roles: '' cannot be hit; agent, "),
        (["--output", "nowhere/chaos.json"], "argument --output: no file can be written at nowhere/chaos.json"),
        (["--output", "."], "argument --output: no file can be written at ."),
        (
            ["--check", "nowhere"],
            "argument --check: no session that came to its end is in nowhere: it has no session.json",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_started(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)

    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_role_that_is_named_twice_is_hit_no_less():
    assert parsed("--roles", "agent,keeper,agent").roles == [Role.AGENT, Role.KEEPER]


@pytest.mark.parametrize("postgres", [False, True])
def test_a_kept_session_can_be_checked_again_unless_its_store_is_gone(tmp_path, capsys, postgres):
    (tmp_path / FACTS).write_text(json.dumps({"plan": {"postgres": postgres}}))

    if not postgres:
        assert parsed("--check", str(tmp_path)).check == tmp_path
        return
    with pytest.raises(SystemExit):
        parsed("--check", str(tmp_path))
    assert "kept its store in a PostgreSQL server, which is gone" in capsys.readouterr().err


def interrupted(folders):
    def carried_out(_plan, folder, _say):
        folders.append(folder)
        raise KeyboardInterrupt

    return carried_out


@pytest.mark.parametrize("keep", Keep)
def test_an_interrupted_session_leaves_its_folder_only_if_that_is_wanted(monkeypatch, keep):
    folders = []
    monkeypatch.setattr(trials, "carried_out", interrupted(folders))

    with pytest.raises(KeyboardInterrupt):
        trial(Plan(seed=7, runs=1, kills=0), keep, print)

    [folder] = folders
    assert folder.exists() == (keep is Keep.ALWAYS)
    shutil.rmtree(folder, ignore_errors=True)


def test_an_interrupted_session_ends_without_a_trace(monkeypatch, capsys):
    monkeypatch.setattr(trials, "carried_out", interrupted([]))
    monkeypatch.setattr(sys, "argv", ["chaos"])
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)

    with pytest.raises(SystemExit) as ended:
        command.main()

    assert ended.value.code == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--roles", "handover"], "handover cannot be hit"),
        (["--clusters", "2", "--roles", "agent,tree"], "tree cannot be hit"),
        (["--nodes", "3", "--roles", "raylet"], "raylet cannot be hit"),
        (["--nodes", "3", "--clusters", "2"], "one cluster only"),
    ],
)
def test_what_a_session_cannot_do_is_said_before_it_begins(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err
