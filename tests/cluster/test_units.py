"""The units of deploy/systemd, started by systemd on two machines as docs/cluster.md says, with PostgreSQL on the first."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from owlclaw_ray.testing.postgres import find_binaries
from tests.cluster.hosts import HEAD, WORKER, Runtime, SystemdHost, two_systemd_hosts, until

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.long]

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy/systemd"
DOCUMENT = ROOT / "docs/cluster.md"
SECONDS = 300.0
TOKEN = "t" * 64
USER = "owlclaw"
PROGRAM = "/opt/owlclaw/owlclaw"
BOTH = {HEAD, WORKER}


@dataclass
class Fleet:
    """The head, with the runtime, and a machine that joins it."""

    head: SystemdHost
    worker: SystemdHost

    def owlclaw(self, *arguments: str) -> str:
        """Run a command on the head by the script of step 5, which has to succeed; return what it printed."""
        return done(self.head, PROGRAM, *arguments)

    def ready(self, times: int) -> bool:
        """Return whether the runtime has said so often that it is ready."""
        return done(self.head, "journalctl", "--unit=owlclaw", "--output=cat").count("ready in") == times

    def machines(self) -> set[str]:
        """Return the addresses of the machines that the runtime has, as far as it answers."""
        return set(Runtime(self.head).running())

    def node_id(self, address: str) -> str:
        """Return what the runtime calls the node that has its parts at that address; empty if it knows of none."""
        return Runtime(self.head).node_ids().get(address, "")

    def completes_a_run(self) -> bool:
        """Return whether a run that is asked for at the command line is completed."""
        [run_id] = re.findall("run_[0-9a-z]+", self.owlclaw("trigger", "assistant"))[:1]
        return until(lambda: Runtime(self.head).status(run_id) == "completed", lambda: journal(self.head))


def done(host: SystemdHost, *command: str) -> str:
    ended = host.run(*command, timeout=SECONDS)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def shell(host: SystemdHost, script: str) -> None:
    done(host, "bash", "-ec", f"cd {ROOT}; {script}")


def snippets() -> list[str]:
    """Return the commands that the section "With systemd" has people run."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text[text.index("## With systemd") : text.index("## By hand")]
    return re.findall(r"```text\n(.*?)```", section, re.DOTALL)


def state(host: SystemdHost, unit: str, name: str = "ActiveState") -> str:
    return done(host, "systemctl", "show", unit, f"--property={name}", "--value").strip()


def journal(host: SystemdHost) -> str:
    return host.run("journalctl", "--output=cat", "--lines=200").stdout


def processes(host: SystemdHost) -> list[str]:
    return host.run("ps", "-u", USER, "-o", "args=").stdout.splitlines()


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    if find_binaries() is None:
        pytest.skip("needs PostgreSQL's server binaries")
    with two_systemd_hosts() as (head, worker):
        url = head.start_database()
        install, init, _copy, token, _head_units, _node_unit, script = snippets()
        for host in (head, worker):
            until(
                lambda host=host: host.run("systemctl", "is-system-running").stdout.strip() in {"running", "degraded"}
            )
            done(host, "systemctl", "start", "systemd-journald", "dbus")
            user, *_, folder = install.splitlines()
            shell(host, f"{user}; mkdir /opt/owlclaw; ln -s {sys.prefix} /opt/owlclaw/venv; {folder}")
            shell(host, init.replace("sudo -u", "runuser -u").replace(f"{USER} /opt", f"{USER} -- /opt"))
            shell(host, token.replace("openssl rand -hex 32", f"echo {TOKEN}"))
            own = {"10.0.0.1:6379": f"{HEAD}:6379", "=10.0.0.1": f"={host.address}"}
            text = (UNITS / "owlclaw.env").read_text(encoding="utf-8")
            for written, put in own.items():
                text = text.replace(written, put)
            text = re.sub(r"(?m)^OWLCLAW_STORE_URL=.*", f"OWLCLAW_STORE_URL={url}", text)
            variables = host.folder / "owlclaw.env"
            variables.write_text(text + "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0\n")
            shell(host, f"cat {variables} > /etc/owlclaw/owlclaw.env")
        shell(head, script[: script.index("owlclaw trigger")].replace("/usr/local/bin/owlclaw", PROGRAM))
        yield Fleet(head, worker)


@pytest.fixture(scope="module")
def running(fleet: Fleet) -> Fleet:
    """Both machines with the units of step 4, once the runtime has both."""
    *_, head_units, node_unit, _script = snippets()
    shell(fleet.worker, node_unit)
    shell(fleet.head, head_units)
    until(lambda: fleet.ready(1), lambda: journal(fleet.head), SECONDS)
    until(lambda: fleet.machines() == BOTH, lambda: journal(fleet.head) + journal(fleet.worker), SECONDS)
    return fleet


@pytest.mark.timeout(1_800)
def test_the_units_make_a_cluster_of_two_machines_and_start_again_what_was_killed(running):
    assert running.completes_a_run()

    killed = running.node_id(WORKER)
    done(running.worker, "systemctl", "kill", "--signal=KILL", "owlclaw-node")
    until(lambda: state(running.worker, "owlclaw-node", "NRestarts") == "1")
    until(lambda: running.node_id(WORKER) not in {"", killed}, lambda: journal(running.worker), SECONDS)

    done(running.head, "systemctl", "kill", "--signal=KILL", "--kill-who=main", "owlclaw")
    until(lambda: running.ready(2), lambda: journal(running.head), SECONDS)

    done(running.head, "systemctl", "kill", "--signal=KILL", "owlclaw-head")
    until(lambda: running.ready(3), lambda: journal(running.head), SECONDS)
    until(lambda: running.machines() == BOTH, lambda: journal(running.head) + journal(running.worker), SECONDS)
    assert running.completes_a_run()


@pytest.mark.timeout(900)
def test_stopped_units_end_in_order_and_leave_no_process(running):
    assert processes(running.worker)

    done(running.worker, "systemctl", "stop", "owlclaw-node")

    assert (state(running.worker, "owlclaw-node"), state(running.worker, "owlclaw-node", "Result")) == (
        "inactive",
        "success",
    )
    assert processes(running.worker) == []
    until(lambda: running.machines() == {HEAD}, lambda: journal(running.head), SECONDS)
    assert running.completes_a_run()

    assert processes(running.head)
    done(running.head, "systemctl", "stop", "owlclaw", "owlclaw-head")

    for unit in ("owlclaw", "owlclaw-head"):
        assert (state(running.head, unit), state(running.head, unit, "Result")) == ("inactive", "success")
    assert processes(running.head) == []
