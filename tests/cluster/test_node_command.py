"""Two machines that are two network namespaces, joined by a cable of which each has an end, and `owlclaw node` on both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config

from benchmarks.chaos.machines import FORWARD
from owlclaw_ray.testing.postgres import PostgresServer, find_binaries
from serve.processes import lives
from tests.cluster.hosts import join

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
HEAD, WORKER, PORT = "10.99.0.1", "10.99.0.2", 6379
STARTED = "Ray runtime started"
SECONDS = 120.0
ASK = "import json, ray; ray.init(address='{address}', log_to_driver=False); print(json.dumps(ray.nodes()))"


class Machine:
    """A network namespace, with a folder for what runs in it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.folder.mkdir()
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo there && exec sleep infinity"], stdout=-1
        )
        assert self._holder.stdout is not None
        self.made = self._holder.stdout.readline() == b"there\n"
        self.pid = self._holder.pid
        self.started: list[subprocess.Popen[str]] = []

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *command]

    def environ(self, **variables: str) -> dict[str, str]:
        """Return what a user has, with a token and patience: this machine may be busy."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "OWLCLAW_"))}  # noqa: TID251
        return plain | {
            "OWLCLAW_RAY__TEMP_DIR": str(self.folder),
            "OWLCLAW_RAY__NUM_CPUS": "1",
            "RAY_AUTH_TOKEN": "t" * 40,
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_health_check_failure_threshold": "60",
            **variables,
        }

    def node(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return self.start("-m", "owlclaw_ray", "node", *arguments, "--node-ip", self.address, **variables)

    def start(self, *arguments: str, folder: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """Start a Python program on this machine."""
        process = subprocess.Popen(
            self.inside(sys.executable, *arguments),
            cwd=folder or self.folder,
            env=self.environ(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def launch(self, home: Path, commands: list[str]) -> str:
        """Return what start commands say, run as Ray's launcher does, with processes, a /srv and a state of the launcher of its own."""
        own = "mount -t tmpfs tmpfs /srv && mkdir -p /srv/owlclaw /tmp/ray && mount -t tmpfs tmpfs /tmp/ray"
        script = " && ".join(
            [own, *(f"{{ {command}; }}" for command in commands), "echo launched && exec sleep infinity"]
        )
        process = subprocess.Popen(
            self.inside(
                *["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"], script
            ),
            cwd=self.folder,
            env=self.environ(HOME=str(home), RAY_HEAD_IP=HEAD),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return said_until(process, "launched")

    def remove(self) -> None:
        for process in self.started:
            for each in [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []:
                with suppress(psutil.NoSuchProcess):  # the first of a machine takes the others with it
                    each.kill()
            process.kill()
            process.communicate()
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()


def said_until(process: subprocess.Popen[str], sign: str) -> str:
    """Return what a process has said when the sign comes, or when it ends."""
    said = ""
    for line in process.stdout:
        said += line
        if sign in line:
            break
    return said


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    if sys.platform != "linux" or os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("needs Linux, root, and the programs ip, unshare and nsenter")
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp", ignore_cleanup_errors=True))
        )
        made = (Machine(scratch / "a", HEAD), Machine(scratch / "b", WORKER))
        for each in made:
            stack.callback(each.remove)
        if not all(each.made for each in made):
            pytest.skip("this system makes no network namespaces")
        join({each.pid: each.address for each in made})
        yield made


@pytest.mark.timeout(400)
def test_two_machines_become_a_cluster_with_the_slots_of_each_and_end_with_all_that_they_started(machines):
    head, worker = machines
    begun = head.node("--head", OWLCLAW_TOOLS__SLOTS="3")
    assert STARTED in said_until(begun, STARTED)

    refused = worker.node("--address", f"{HEAD}:{PORT}", RAY_AUTH_TOKEN="u" * 40)
    joined = worker.node("--address", f"{HEAD}:{PORT}", OWLCLAW_TOOLS__SLOTS="7")
    said = said_until(joined, STARTED)
    why, _ = refused.communicate(timeout=SECONDS)

    assert STARTED in said, said
    assert refused.returncode == 1
    assert "does not let this machine in" in why
    assert slots(head) == {HEAD: 3, WORKER: 7}
    for machine, process in ((worker, joined), (head, begun)):
        own = psutil.Process(process.pid).children(recursive=True)
        assert own
        process.terminate()
        process.communicate(timeout=SECONDS)
        assert process.returncode == 1, "Ray ends so when it is told to"
        end = time.monotonic() + SECONDS
        while any(map(lives, own)) and time.monotonic() < end:
            time.sleep(0.1)
        assert not any(map(lives, own)), machine.address


def slots(machine: Machine) -> dict[str, float]:
    """Return the tool slots of each machine, as a process on this one sees them."""
    program = ASK.format(address=f"{HEAD}:{PORT}")
    asked = subprocess.run(
        machine.inside(sys.executable, "-c", program),
        cwd=machine.folder,
        env=machine.environ(RAY_AUTH_MODE="token"),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert asked.returncode == 0, asked.stderr
    return {each["NodeManagerAddress"]: each["Resources"]["tool_slots"] for each in json.loads(asked.stdout)}


@pytest.mark.timeout(400)
def test_the_start_commands_of_cluster_yaml_make_a_cluster_and_can_be_given_again(machines):
    head, worker = machines
    home = head.folder.parent / "home"
    home.mkdir()
    (home / "venv").symlink_to(sys.prefix)
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    config["provider"] = {"type": "local", "head_ip": HEAD, "worker_ips": []}  # no machine to log in to
    (home / "ray_bootstrap_config.yaml").write_text(json.dumps(prepare_config(config)))

    begun = head.launch(home, config["head_start_ray_commands"] * 2)
    joined = worker.launch(home, config["worker_start_ray_commands"])

    assert begun.count(STARTED) == 2, begun
    assert STARTED in joined, joined
    assert slots(head).keys() == {HEAD, WORKER}


@pytest.mark.postgres
@pytest.mark.timeout(400)
def test_a_runtime_on_the_head_uses_both_machines_its_runs_complete_and_a_machine_that_is_told_to_stop_is_drained(
    machines, tmp_path
):
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL's server binaries")
    head, worker = machines
    app = head.folder.parent / "app"
    app.mkdir()
    with PostgresServer(tmp_path / "pg", binaries) as server:
        file = str(head.folder.parent / "store")
        with forwarder([sys.executable, "-c", FORWARD, file, str(server.port)]):
            for machine in machines:
                assert "listening" in said_until(machine.start("-c", FORWARD, str(server.port), file), "listening")
            begun = head.node("--head", "--folder", str(app))
            assert STARTED in said_until(begun, STARTED)
            joined = worker.node("--address", f"{HEAD}:{PORT}", "--folder", str(app))
            assert STARTED in said_until(joined, STARTED)
            owlclaw(head, app, "init")
            variables = {"OWLCLAW_RAY__ADDRESS": f"{HEAD}:{PORT}", "OWLCLAW_STORE_URL": server.url()}
            runtime = head.start("-m", "owlclaw_ray", "up", folder=app, **variables)

            said = said_until(runtime, "ready in")
            ended = owlclaw(head, app, "trigger", "assistant", "--wait")
            keepers = [titles(process).count("ray::KeeperActor") for process in (begun, joined)]
            joined.terminate()
            left, _ = joined.communicate(timeout=SECONDS)
            runtime.terminate()
            runtime.communicate(timeout=SECONDS)

    assert "ready in" in said, said
    assert "drained" in left, left
    assert "completed" in ended
    assert keepers == [1, 1]
    assert runtime.returncode == 0


@contextmanager
def forwarder(command: list[str]) -> Iterator[None]:
    """Run a forwarder outside of the machines."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "listening" in said_until(process, "listening")
            yield
        finally:
            process.kill()


def owlclaw(machine: Machine, folder: Path, *arguments: str) -> str:
    """Return what a command says that ends on this machine."""
    process = machine.start("-m", "owlclaw_ray", *arguments, folder=folder)
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    return said


def titles(process: subprocess.Popen[str]) -> list[str]:
    """Return what the processes call themselves that a process started, directly or not."""
    found = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            found += [title.partition(".")[0].partition(":init")[0] for title in each.cmdline()[:1]]
    return found
