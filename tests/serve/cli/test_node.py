"""`owlclaw node`: what it starts Ray with, and what it refuses before it starts anything."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from actors.environment import node_environment
from serve.cli.node import version_problems
from tests.serve.cli.conftest import Run

TOKEN = "a-token-of-a-test-" + "x" * 20


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the session's own Ray has in the environment is not what a user has."""
    for name in [each for each in os.environ if each.startswith(("RAY_", "OWLCLAW_"))]:  # noqa: TID251
        monkeypatch.delenv(name)
    for name in ("PYTHONPATH", "LITELLM_LOCAL_MODEL_COST_MAP", "MALLOC_ARENA_MAX"):
        monkeypatch.delenv(name, raising=False)

    def become(*command: object) -> None:
        raise AssertionError(f"the process of the tests would have become {command}")

    monkeypatch.setattr(os, "execve", become)


def printed(cli: Run, *arguments: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the command of a script that was printed."""
    result = cli("node", *arguments)
    assert result.exit_code == 0, result.output
    *exports, command = map(shlex.split, result.stdout.splitlines())
    assert {words[0] for words in exports} == {"export"}
    assert command[0] == "exec"
    return dict(words[1].split("=", 1) for words in exports), command[1:]


def run_node(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which would become Ray if nothing were wrong."""
    command = [sys.executable, "-m", "owlclaw_ray", "node", *arguments]
    environ = os.environ | variables  # noqa: TID251 - another process's
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_a_head_is_started_with_the_slots_of_the_settings_and_blocks(cli: Run, tmp_path: Path):
    slots = (
        "tools: {slots: 9, quick_slots: 3, memory_slots: 5, state_slots: 6}\nray: {num_cpus: 7, temp_dir: /tmp/short}\n"
    )
    (tmp_path / "owlclaw.yaml").write_text(slots)

    _, command = printed(cli, "--head", "--node-ip", "10.0.0.1", "--print")

    program, start, *options = command
    assert (Path(program).name, start) == ("ray", "start")
    given = dict(option.lstrip("-").partition("=")[::2] for option in options)
    assert json.loads(given.pop("resources")) == {
        "tool_slots": 9,
        "quick_slots": 3,
        "memory_slots": 5,
        "state_slots": 6,
    }
    assert given.items() >= {"head": "", "block": "", "port": "6379", "num-cpus": "7", "temp-dir": "/tmp/short"}.items()
    assert given["node-ip-address"] == "10.0.0.1"
    assert given["labels"] == f"owlclaw-version={version('owlclaw-ray')}"


def test_a_worker_is_given_no_option_that_only_a_head_takes(cli: Run):
    _, command = printed(cli, "--address", "10.0.0.1:6380", "--print")

    assert "--address=10.0.0.1:6380" in command
    assert not [
        each for each in command if each.startswith(("--head", "--port", "--include-dashboard", "--no-monitor"))
    ]


def test_ray_gets_the_variables_of_a_cluster_and_those_that_somebody_has_set_stay(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "owlclaw.yaml").write_text("tools: {warm: 5}\nlog: {format: json}\n")
    monkeypatch.setenv("RAY_health_check_timeout_ms", "9000")

    variables, _ = printed(cli, "--head", "--print")

    assert variables == node_environment(5, json_logs=True) | {"RAY_health_check_timeout_ms": "9000"}
    assert variables["RAY_AUTH_MODE"] == "token"


def test_the_launcher_of_ray_gets_its_monitor_and_a_command_that_returns(cli: Run):
    _, command = printed(cli, "--head", "--background", "--print", "--", "--autoscaling-config=~/boot.yaml")

    assert command[-1] == "--autoscaling-config=~/boot.yaml"
    assert not {"--block", "--no-monitor"} & set(command)


def test_a_head_has_the_rest_api_of_serve_only_if_it_is_asked_for(cli: Run):
    def included(*arguments: str) -> list[str]:
        _, command = printed(cli, *arguments, "--print")
        return [each for each in command if each.startswith("--include-dashboard")]

    assert included("--head") == ["--include-dashboard=false"]
    assert included("--head", "--dashboard") == ["--include-dashboard=true"]
    assert cli("node", "--address", "10.0.0.1:6379", "--dashboard", "--print").exit_code == 2


def test_a_token_is_not_printed(cli: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)

    assert TOKEN not in cli("node", "--head", "--print").output


@pytest.mark.parametrize("written", [None, " \n"])
def test_without_a_token_nothing_is_started_and_it_is_said_how_to_make_one(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None
):
    if written is not None:
        (tmp_path / "token").write_text(written)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))

    result = cli("node", "--head")

    assert result.exit_code == 1
    assert str(tmp_path / "token") in result.output
    assert "ray get-auth-token --generate" in result.output


def test_a_head_that_nobody_answers_for_is_named_with_what_helps(tmp_path: Path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port, and nobody answers
        address = f"127.0.0.1:{held.getsockname()[1]}"
        ended = run_node(tmp_path, "--address", address, RAY_AUTH_TOKEN=TOKEN)

    assert ended.returncode == 1
    assert f"nothing answers at {address}" in ended.stderr
    assert "owlclaw node --head" in ended.stderr


def test_a_port_that_is_taken_is_named_before_ray_is_started(tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        ended = run_node(tmp_path, "--head", "--node-ip", "127.0.0.1", "--port", port, RAY_AUTH_TOKEN=TOKEN)

    assert ended.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened on" in ended.stderr


@pytest.mark.parametrize("arguments", [[], ["--head", "--address", "10.0.0.1:6379"], ["--address", "10.0.0.1"]])
def test_it_is_said_whether_a_cluster_is_begun_or_joined_and_where(cli: Run, arguments: list[str]):
    assert cli("node", *arguments, "--print").exit_code == 2


def test_versions_that_differ_from_those_of_the_head_are_named_and_unknown_ones_are_not():
    theirs = {"Python": "3.4.1", "Ray": version("ray"), "OwlClaw": None}

    [problem] = version_problems(theirs)

    assert problem.where == "Python"
    assert "3.4.1 on the head" in problem.what


def test_what_the_runtime_will_lack_on_this_machine_is_said(cli: Run, tmp_path: Path):
    (tmp_path / "owlclaw.yaml").write_text("webhooks: {sources: {shop: {agent: clerk, secret: '${SHOP_SECRET}'}}}\n")

    result = cli("node", "--head", "--print")

    assert result.exit_code == 0
    assert "SHOP_SECRET" in result.stderr
