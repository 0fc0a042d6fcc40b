"""Machines that are namespaces: of the network, of processes, and of files. One is run by an SSH server, or by systemd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml

HEAD, WORKER, PORT = "10.98.0.1", "10.98.0.2", 6379
SECONDS = 180.0
_DATABASE = f"""
import asyncio, signal, sys
from pathlib import Path
import asyncpg
from owlclaw_ray.testing.postgres import ORDINARY_USER, PostgresServer, find_binaries

async def make(url):
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE owlclaw OWNER {{ORDINARY_USER}}")
    await connection.close()

with PostgresServer(Path(sys.argv[1]) / "pg", find_binaries(), "{HEAD}") as server:
    asyncio.run(make(server.url()))
    print(server.url("owlclaw", ORDINARY_USER), flush=True)
    signal.pause()
"""
_ASK = """
import json, sys
import httpx
method, path, body = sys.argv[1:]
answer = httpx.request(method, "http://127.0.0.1:8700" + path, json=json.loads(body), timeout=60, trust_env=False)
print(json.dumps([answer.status_code, answer.json()]))
"""
_T = TypeVar("_T")


class Host:
    """A machine with what it needs of the files in a folder, which others do not see change."""

    def __init__(self, folder: Path, address: str, script: str, first: str, *, namespaces: Sequence[str] = ()) -> None:
        """`script` makes the machine ready, and ends in the process that is its first, with the name `first`."""
        self.folder, self.address, self._first = folder, address, first
        self._logs = ExitStack()
        self._started: list[subprocess.Popen[bytes]] = []
        kinds = ["--net", "--mount", "--pid", *namespaces, "--fork", "--kill-child", "--mount-proc"]
        log = self._logs.enter_context((folder / f"{first}.log").open("w"))
        command = ["unshare", *kinds, "bash", "-ec", script]
        self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def booted(self) -> int:
        """Return the process that is the first of this machine, once it is what the machine is run by."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            for each in psutil.Process(self._process.pid).children():
                if each.name().startswith(self._first):
                    return each.pid
            time.sleep(0.05)
        raise AssertionError(self.log(self._first))

    def log(self, name: str) -> str:
        """Return what was said: by the first process, or by what `start` started under that name."""
        return (self.folder / f"{name}.log").read_text()

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.booted()}", "--net", "--mount", "--pid", *command]

    def run(self, *command: str, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody who sits at this machine."""
        return subprocess.run(
            self.inside(*command), capture_output=True, text=True, check=False, timeout=timeout, **self.seat()
        )

    def start(self, name: str, *command: str, **variables: str) -> None:
        """Start a command likewise, which ends with this machine at the latest; `log` returns what it says."""
        log = self._logs.enter_context((self.folder / f"{name}.log").open("w"))
        seat = self.seat()
        seat["env"] |= variables
        self._started.append(subprocess.Popen(self.inside(*command), stdout=log, stderr=subprocess.STDOUT, **seat))

    def start_database(self) -> str:
        """Start a PostgreSQL server that both machines reach, and return its URL."""
        self.start("database", sys.executable, "-c", _DATABASE, str(self.folder))
        return until(lambda: self.log("database").strip())

    def seat(self) -> dict[str, Any]:
        """Return what a command is started with: nothing of Ray or OwlClaw is in its environment."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "OWLCLAW_"))}  # noqa: TID251
        return {"env": plain, "cwd": "/", "stdin": subprocess.DEVNULL}

    def remove(self) -> None:
        self._process.kill()  # the kernel ends what is in its namespaces
        for each in (self._process, *self._started):
            each.wait()
        self._logs.close()


class SshHost(Host):
    """A machine with an SSH server; /srv, /run, /tmp/ray and the user's home are its own."""

    USER = "owlclaw"
    PROGRAMS = ("ssh", "ssh-keygen", "rsync", "sshd")
    _BOOT = """
        mount -t tmpfs tmpfs /run && mkdir -p /run/sshd
        mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray
        mount -t tmpfs tmpfs /srv && cp -r {folder}/app /srv/owlclaw
        mount --bind {folder}/passwd /etc/passwd
        exec {sshd} -D -e -f {folder}/sshd_config
    """
    _CONFIG = """
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

    def __init__(self, folder: Path, address: str, key: Path, app: Mapping[str, str]) -> None:
        """`app`: the files in its /srv/owlclaw, by their paths in there."""
        self.home = folder / "home"
        (self.home / ".ray").mkdir(parents=True)
        token = self.home / ".ray" / "auth_token"
        token.write_text("t" * 40)
        token.chmod(0o600)
        (self.home / "venv").symlink_to(sys.prefix)
        (self.home / ".bashrc").write_text("export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0\n")
        for name, text in app.items():
            file = folder / "app" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        passwd = Path("/etc/passwd").read_text()
        first = f"{self.USER}:*:0:0::{self.home}:/bin/bash\n"  # the first name of 0 counts
        (folder / "passwd").write_text(first + passwd)
        shutil.copy(key.with_suffix(".pub"), folder / "authorized_keys")
        _make_key(folder / "host_key")
        (folder / "sshd_config").write_text(self._CONFIG.format(folder=folder))
        super().__init__(folder, address, self._BOOT.format(folder=folder, sshd=_found("sshd")), "sshd")

    def seat(self) -> dict[str, Any]:
        seat = super().seat()
        seat["env"] |= {"HOME": str(self.home), "USER": self.USER, "LOGNAME": self.USER, "RAY_AUTH_MODE": "token"}
        return seat | {"cwd": self.home}

    def rays(self) -> list[str]:
        """Return the raylets that run here."""
        found = self.run("ps", "-eo", "args").stdout.splitlines()
        return [line for line in found if "/raylet/raylet" in line.partition(" ")[0]]


class SystemdHost(Host):
    """A machine that systemd runs, with no unit of the real one's; its own are /etc, /home, /opt, /root, /run, /srv, /tmp and /var/log."""

    PROGRAMS = ("systemctl", "useradd", "dbus-daemon")
    SYSTEMD = Path("/lib/systemd/systemd")
    _OWN_UNITS = ("sysinit", "basic", "sockets", "timers", "local-fs", "multi-user")
    _BOOT = """
        mount --make-rprivate /
        mkdir -p {folder}/keep/0 {folder}/keep/1 {folder}/keep/2
        n=0; for each in {needed}; do mount --bind $each {folder}/keep/$n; n=$((n + 1)); done
        mount -t tmpfs -o mode=755 tmpfs /root
        mount -t tmpfs -o mode=1777 tmpfs /tmp
        n=0; for each in {needed}; do
            mkdir -p $each; mount --bind {folder}/keep/$n $each; n=$((n + 1))
        done
        for each in /run /srv /opt /home /var/log; do mount -t tmpfs -o mode=755 tmpfs $each; done
        mkdir -p /run/over/etc /run/over/work
        mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/over/etc,workdir=/run/over/work /etc
        for each in {own_units}; do
            for wants in /lib/systemd/system/$each.target.wants /etc/systemd/system/$each.target.wants; do
                test ! -d $wants || mount -t tmpfs tmpfs $wants
            done
        done
        : > /etc/fstab
        umount -R /sys/fs/cgroup
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin {systemd} --system --unit=basic.target \
            --log-target=console --show-status=0
    """

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir(parents=True)
        self._group = _control_groups() / f"owlclaw-{os.getpid()}-{folder.name}"
        self._group.mkdir()
        needed = " ".join(str(each) for each in (sys.base_prefix, sys.prefix, Path(__file__).parents[2]))
        script = self._BOOT.format(
            folder=folder, needed=needed, own_units=" ".join(self._OWN_UNITS), systemd=self.SYSTEMD
        )
        join = f"echo $$ > {self._group}/cgroup.procs; exec unshare --cgroup bash -ec '{script}'"
        super().__init__(folder, address, join, "systemd", namespaces=["--uts", "--ipc"])

    def remove(self) -> None:
        super().remove()
        for group, _, _ in os.walk(self._group, topdown=False):
            until(partial(_is_removed, group))


class Runtime:
    """What `owlclaw up` on a machine answers to somebody at that machine."""

    def __init__(self, head: Host) -> None:
        self._head = head

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer; None if there is none, or a refusal."""
        asked = self._head.run(sys.executable, "-c", _ASK, method, path, json.dumps(body))
        if asked.returncode:
            return None
        status, answer = json.loads(asked.stdout)
        return answer if status < 400 else None

    def trigger(self, agent: str) -> str:
        """Return the id of a run, once it is accepted."""
        run_id: str = until(lambda: self.ask("POST", f"/v1/agents/{agent}/triggers", {"payload": {}}))["run_id"]
        return run_id

    def status(self, run_id: str) -> str | None:
        run = self.ask("GET", f"/v1/runs/{run_id}")
        return None if run is None else run["status"]

    def running(self) -> dict[str, int]:
        """Return how many agents run on each machine that is there and has said so, by its address."""
        return {each["address"]: each["report"]["load"]["running"] for each in self._nodes()}

    def node_ids(self) -> dict[str, str]:
        """Return what each machine that is there and has said so is called, by its address; a machine that joins again has another id."""
        return {each["address"]: each["node_id"] for each in self._nodes()}

    def _nodes(self) -> list[dict[str, Any]]:
        answer = self.ask("GET", "/v1/nodes") or {"nodes": []}
        return [each for each in answer["nodes"] if each["report"]]


def join(addresses: Mapping[int, str]) -> None:
    """Put a cable between the networks of these two processes, of which each has an end with its address."""
    ends = {pid: f"owl{pid}" for pid in addresses}
    first, second = addresses
    cable = ["ip", "link", "add", ends[first], "netns", str(first), "type", "veth"]
    joined = subprocess.run(
        [*cable, "peer", "name", ends[second], "netns", str(second)], check=False, capture_output=True, text=True
    )
    if joined.returncode:
        pytest.skip(f"this system joins no network namespaces: {joined.stderr.strip()}")
    for pid, address in addresses.items():
        for command in (
            f"ip link set {ends[pid]} name eth0",
            f"ip addr add {address}/24 dev eth0",
            "ip link set eth0 up",
            "ip link set lo up",
            "ip route add default dev eth0",
        ):
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *command.split()], check=True)


@contextmanager
def two_ssh_hosts(of_head: Mapping[str, str], of_worker: Mapping[str, str]) -> Iterator[tuple[SshHost, SshHost]]:
    """Yield two machines with these files in /srv/owlclaw; the first one may log in to both."""
    with _scratch(SshHost.PROGRAMS) as (scratch, stack):
        key = scratch / "key"
        _make_key(key)
        made = []
        for name, address, app in (("a", HEAD, of_head), ("b", WORKER, of_worker)):
            made.append(SshHost(scratch / name, address, key, app))
            stack.callback(made[-1].remove)
        (made[0].home / ".ssh").mkdir(mode=0o700)
        shutil.copy(key, made[0].home / ".ssh" / "id_ed25519")
        join({each.booted(): each.address for each in made})
        yield made[0], made[1]


@contextmanager
def two_systemd_hosts() -> Iterator[tuple[SystemdHost, SystemdHost]]:
    """Yield two machines on which systemd runs, and nothing else."""
    with _scratch(SystemdHost.PROGRAMS) as (scratch, stack):
        if not SystemdHost.SYSTEMD.exists():
            pytest.skip("needs systemd")
        made = []
        for name, address in (("a", HEAD), ("b", WORKER)):
            made.append(SystemdHost(scratch / name, address))
            stack.callback(made[-1].remove)
        join({each.booted(): each.address for each in made})
        yield made[0], made[1]


def until(look: Callable[[], _T], told: Callable[[], str] = str, seconds: float = SECONDS) -> _T:
    """Return what there is to see once it is true; who waits in vain is `told` why."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, told()
        time.sleep(0.5)
    return seen


def launch_file(head: SshHost, shipped: Path, **changes: Any) -> Path:
    """Write the launcher's file as it is shipped, with the addresses of the two machines and these changes; return where it is."""
    config = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    config["provider"] |= {"head_ip": HEAD, "worker_ips": [WORKER]}
    file = head.home / "cluster.yaml"
    file.write_text(yaml.safe_dump(config | changes))
    return file


@contextmanager
def _scratch(programs: Sequence[str]) -> Iterator[tuple[Path, ExitStack]]:
    """Yield a folder that lasts as long as the machines, which may be removed on the stack."""
    wanted = ("ip", "unshare", "nsenter", *programs)
    if sys.platform != "linux" or os.geteuid() or not all(map(_found, wanted)):
        pytest.skip(
            f"needs Linux, root, and {', '.join(wanted)} (Debian: iproute2, openssh-server, rsync, systemd, dbus)"
        )
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="owl-", dir="/var/tmp", ignore_cleanup_errors=True)
        scratch = Path(stack.enter_context(folder))
        scratch.chmod(0o711)  # others than root have files here
        yield scratch, stack


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.defpath}:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin")


def _is_removed(group: str) -> bool:
    """Remove a control group, unless processes that were killed are still in it."""
    with suppress(OSError):
        Path(group).rmdir()
    return not Path(group).exists()


def _make_key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)


def _control_groups() -> Path:
    """Return where the second version of control groups is."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2" and "rw" in options.split(","):
            return Path(place)
    pytest.skip("needs control groups of the second version that can be written")
