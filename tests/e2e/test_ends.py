"""How `owlclaw up` ends when something else does: Ray's own processes, a part amid the stop, the one who waits for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from serve.cli.connection import environment
from serve.processes import command_line, lives

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

GENEROUS = 240
SLOW = {
    "turns": [
        {"tool_calls": [{"name": "trial.act", "arguments": {"what": "first"}}]},
        {"tool_calls": [{"name": "trial.act", "arguments": {"what": "second"}}], "latency": 3},
        {"text": "done"},
    ]
}


def named(installation, *names):
    """Return the runtime's processes with such a word in their command line, in the order of the names."""
    family = installation.family()
    return [each for name in names for each in family if any(word.endswith(name) for word in command_line(each)[:3])]


def alive(family):
    return [command_line(each) for each in psutil.wait_procs(family, timeout=10)[1] if lives(each)]


def ends_by_itself(installation):
    """Return its exit code and the last line that it said."""
    said, _ = installation.process.communicate(timeout=GENEROUS)
    installation.said += said.splitlines(keepends=True)
    return installation.process.returncode, installation.said[-1]


@pytest.mark.parametrize(
    "victims",
    [
        ("raylet/raylet", "gcs/gcs_server"),
        pytest.param(("ray::DashboardAgent", "ray::RuntimeEnvAgent"), marks=pytest.mark.long),
    ],
)
def test_without_ray_it_ends_with_a_code_that_asks_for_another_start_and_down_kills_what_does_not_end(
    installation, victims
):
    installation.define("slow", SLOW)
    submitted = []
    for victim in victims:
        installation.up()
        family, scratch = installation.family(), installation.scratch()
        with installation.client() as client:
            submitted.append(client.submit("slow")["run_id"])

            [killed] = named(installation, victim)
            killed.kill()
            code, said = ends_by_itself(installation)

        assert code == 75, installation.said
        assert "ended: Ray's" in said
        assert "What was accepted is in the store and resumes at the next start" in said
        assert alive(family) == []
        assert not scratch.exists()
        assert not (installation.folder / ".owlclaw" / "owlclaw.pid").exists()
        assert (installation.folder / ".owlclaw" / "logs" / "raylet.out").exists()

    installation.up()
    with installation.client() as client:
        for run_id in submitted:
            for _ in client.events(run_id):
                pass
            assert client.run(run_id)["status"] == "completed"
    assert_that_down_kills(installation)


def test_a_part_that_hangs_holds_the_stop_up_only_until_its_deadline_and_a_second_ctrl_c_not_at_all(installation):
    installation.define("slow", SLOW)
    for second in (False, True):
        installation.up()
        family, scratch = installation.family(), installation.scratch()
        for each in named(installation, "ray::DirectoryActor", "ray::KeeperActor", "raylet/raylet"):
            each.send_signal(signal.SIGSTOP)
        installation.process.send_signal(signal.SIGINT)
        if second:
            while "stopping" not in installation.process.stdout.readline():
                pass
            while installation.process.poll() is None:
                installation.process.send_signal(signal.SIGINT)
                time.sleep(0.1)
        code, said = ends_by_itself(installation)

        assert code == (130 if second else 0), installation.said
        assert ("stopped at once" if second else "stopped; runs, memories") in said
        assert alive(family) == []
        assert not scratch.exists()


def assert_that_down_kills(installation):
    """`owlclaw down` kills what does not end in time."""
    family = installation.family()
    installation.process.send_signal(signal.SIGSTOP)

    down = subprocess.run(
        [sys.executable, "-m", "serve.cli", "down", "--timeout", "1"],
        cwd=installation.folder,
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        check=True,
        env=environment(),
    )

    installation.process.communicate(timeout=GENEROUS)
    assert "was killed" in down.stderr
    assert alive(family) == []
