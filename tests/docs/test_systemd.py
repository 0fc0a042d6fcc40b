"""The units of deploy/systemd are ones that systemd takes, and start what the command line has. tests/cluster/test_units.py starts them."""

import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from string import Template

import pytest
from ray._private.ray_constants import RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S

from owlclaw_ray.settings import ShutdownSettings, load_settings
from serve.cli.node import DRAIN_MARGIN
from serve.launch import INTERRUPTED
from tests.docs.shell import check_owlclaw
from tests.docs.snippets import ROOT

FOLDER = ROOT / "deploy/systemd"
HEAD, NODE, RUNTIME = "owlclaw-head.service", "owlclaw-node.service", "owlclaw.service"
UNITS = (HEAD, NODE, RUNTIME)
PROGRAM = "/opt/owlclaw/venv/bin/owlclaw"


def unit(name):
    parsed = ConfigParser(interpolation=None, strict=True, delimiters="=")
    parsed.optionxform = str
    parsed.read(FOLDER / name, encoding="utf-8")
    return parsed


def variables():
    lines = (FOLDER / "owlclaw.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def arguments(name):
    program, *words = Template(unit(name)["Service"]["ExecStart"]).substitute(variables()).split()
    assert program == PROGRAM
    return words


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_takes_the_units(tmp_path):
    for name in UNITS:
        text = (FOLDER / name).read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
        (tmp_path / name).write_text(re.sub(r"^(User|Group)=owlclaw$", r"\1=root", text, flags=re.MULTILINE))
    environ = os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}  # noqa: TID251 - another process's

    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)]
    checked = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "owlclaw" in line]) == (0, [])


@pytest.mark.parametrize("name", UNITS)
def test_the_command_line_takes_what_a_unit_starts(name):
    check_owlclaw(arguments(name))


def test_a_head_begins_the_cluster_that_the_others_join_and_the_runtime_uses():
    assert arguments(HEAD)[:2] == ["node", "--head"]
    assert "--head" not in arguments(NODE)
    assert arguments(NODE)[2] == variables()["OWLCLAW_RAY__ADDRESS"]
    assert arguments(RUNTIME) == ["up"]
    assert all("--background" not in arguments(name) for name in UNITS), "systemd has to see the process end"


def test_the_file_of_variables_holds_settings_that_there_are_and_no_secret(tmp_path):
    settings = load_settings(tmp_path, variables())

    assert settings.ray.address == "10.0.0.1:6379"
    assert settings.store_url.startswith("postgresql")
    assert {variables()[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")} == {
        "token",
        "/etc/owlclaw/ray-token",
    }
    assert "REPLACE" in variables()["OWLCLAW_STORE_URL"]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_started_again_for_ever_and_stopped_in_order(name):
    service = unit(name)["Service"]

    assert service["KillMode"] == "mixed", "the processes below are ended by the one that started them"
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["EnvironmentFile"] == "/etc/owlclaw/owlclaw.env"
    assert service["User"] == "owlclaw"
    assert "PrivateTmp" not in service, "the runtime and Ray's node share a folder below /tmp"


@pytest.mark.parametrize("name", [HEAD, NODE])
def test_ray_has_the_time_that_it_takes_to_end_and_its_exit_code_is_no_failure(name):
    service = unit(name)["Service"]

    assert service["Restart"] == "always"
    assert service["SuccessExitStatus"] == "1"
    assert int(service["TimeoutStopSec"]) > RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S


def test_a_machine_is_drained_before_it_stops_and_has_the_time_for_it():
    service = unit(NODE)["Service"]
    drain = ShutdownSettings().grace_seconds + DRAIN_MARGIN

    assert "ExecStop" not in service, "`owlclaw node` drains the machine itself"
    assert drain + RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S < int(service["TimeoutStopSec"])


def test_the_runtime_ends_before_its_head_does_and_has_time_to_hand_runs_over():
    runtime = unit(RUNTIME)

    assert (runtime["Unit"]["Requires"], runtime["Unit"]["After"]) == (HEAD, HEAD)
    assert runtime["Service"]["Restart"] == "on-failure"
    assert runtime["Service"]["RestartPreventExitStatus"] == str(INTERRUPTED)
    assert int(runtime["Service"]["TimeoutStopSec"]) > ShutdownSettings().grace_seconds + 25 + 20 + 20
    assert unit(NODE)["Unit"]["Conflicts"] == HEAD
