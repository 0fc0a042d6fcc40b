"""Ray's cluster launcher with cluster.yaml, over SSH, on two machines that are namespaces: of the network, of processes, and of files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
HEAD, WORKER, PORT = "10.98.0.1", "10.98.0.2", 6379
SLOTS = {HEAD: 3, WORKER: 7}
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
PROGRAMS = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "rsync")
SECONDS = 180.0
USER = "owlclaw"
ASK = f"import json, ray; ray.init(address='{HEAD}:{PORT}', log_to_driver=False); print(json.dumps(ray.nodes()))"
BOOT = """
set -e
mount -t tmpfs tmpfs /run && mkdir -p /run/sshd
mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs tmpfs /srv && mkdir /srv/owlclaw && cp {folder}/owlclaw.yaml /srv/owlclaw/
mount --bind {folder}/passwd /etc/passwd
exec {sshd} -D -e -f {folder}/sshd_config
"""
SSHD_CONFIG = """
Port 22
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
"""


class Host:
    """A machine with an SSH server, processes of its own, and of files /srv, /run, /tmp/ray and the user's home."""

    def __init__(self, folder: Path, address: str, key: Path) -> None:
        self.address, self.home = address, folder / "home"
        (self.home / ".ray").mkdir(parents=True)
        token = self.home / ".ray" / "auth_token"
        token.write_text("t" * 40)
        token.chmod(0o600)
        (self.home / "venv").symlink_to(sys.prefix)
        (self.home / ".bashrc").write_text("export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0\n")
        own = {"tools": {"slots": SLOTS[address]}, "ray": {"num_cpus": 1}}
        (folder / "owlclaw.yaml").write_text(yaml.safe_dump(own))
        passwd = Path("/etc/passwd").read_text()
        (folder / "passwd").write_text(f"{USER}:*:0:0::{self.home}:/bin/bash\n{passwd}")  # the first name of 0 counts
        shutil.copy(key.with_suffix(".pub"), folder / "authorized_keys")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")], check=True)
        (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder))
        self._log = (folder / "sshd.log").open("w+")
        script = BOOT.format(folder=folder, sshd=SSHD)
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._process = subprocess.Popen(["unshare", *namespaces, "bash", "-c", script], stderr=self._log)

    def booted(self) -> int:
        """Return the process that is the first of this machine, once it is the SSH server."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            for each in psutil.Process(self._process.pid).children():
                if each.name().startswith("sshd"):
                    return each.pid
            time.sleep(0.05)
        raise AssertionError(self.log())

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.booted()}", "--net", "--mount", "--pid", *command]

    def plug_in(self, cable: str) -> None:
        for command in (
            f"ip link set {cable} name eth0",
            f"ip addr add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            "ip link set lo up",
            "ip route add default dev eth0",
        ):
            subprocess.run(self.inside(*command.split()), check=True)

    def run(self, *command: str, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody who sits at this machine."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "OWLCLAW_"))}  # noqa: TID251
        return subprocess.run(
            self.inside(*command),
            env=plain | {"HOME": str(self.home), "USER": USER, "LOGNAME": USER, "RAY_AUTH_MODE": "token"},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def rays(self) -> list[str]:
        """Return the raylets that run here."""
        found = self.run("ps", "-eo", "args").stdout.splitlines()
        return [line for line in found if "/raylet/raylet" in line.partition(" ")[0]]

    def remove(self) -> None:
        self._process.kill()  # the kernel ends what is in its namespaces
        self._process.wait()
        self._log.close()


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if sys.platform != "linux" or os.geteuid() or not all(map(shutil.which, PROGRAMS)) or SSHD is None:
        pytest.skip(f"needs Linux, root, and {', '.join(PROGRAMS)} and sshd (Debian: iproute2, openssh-server, rsync)")
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="owl-", dir="/var/tmp", ignore_cleanup_errors=True))
        )
        key = scratch / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        made = []
        for name, address in (("a", HEAD), ("b", WORKER)):
            made.append(Host(scratch / name, address, key))
            stack.callback(made[-1].remove)
        (made[0].home / ".ssh").mkdir(mode=0o700)
        shutil.copy(key, made[0].home / ".ssh" / "id_ed25519")
        pids = [each.booted() for each in made]
        ends = [f"owl{pid}" for pid in pids]
        cable = ["ip", "link", "add", ends[0], "netns", str(pids[0]), "type", "veth"]
        joined = subprocess.run(
            [*cable, "peer", "name", ends[1], "netns", str(pids[1])], check=False, capture_output=True, text=True
        )
        if joined.returncode:
            pytest.skip(f"this system joins no network namespaces: {joined.stderr.strip()}")
        for each, end in zip(made, ends, strict=True):
            each.plug_in(end)
        yield made[0], made[1]


@pytest.mark.timeout(600)
def test_ray_up_makes_a_cluster_with_the_slots_of_each_machine_and_ray_down_ends_it(hosts):
    head, worker = hosts
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    config["provider"] |= {"head_ip": HEAD, "worker_ips": [WORKER]}
    file = head.home / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    ray = str(head.home / "venv/bin/ray")

    begun = head.run(ray, "up", "--yes", "--no-config-cache", str(file))
    assert begun.returncode == 0, begun.stdout + begun.stderr
    end, found = time.monotonic() + SECONDS, {}
    while found.keys() != SLOTS.keys() and time.monotonic() < end:
        asked = head.run(sys.executable, "-c", ASK)
        assert asked.returncode == 0, asked.stderr
        alive = [each for each in json.loads(asked.stdout) if each["Alive"]]
        found = {each["NodeManagerAddress"]: each["Resources"]["tool_slots"] for each in alive}
    assert found == SLOTS, begun.stdout + worker.log()
    assert [len(each.rays()) for each in hosts] == [1, 1]

    ended = head.run(ray, "down", "--yes", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    end = time.monotonic() + SECONDS
    while any(each.rays() for each in hosts) and time.monotonic() < end:
        time.sleep(0.5)
    assert [each.rays() for each in hosts] == [[], []]
