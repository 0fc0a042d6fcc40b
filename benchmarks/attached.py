"""A look from inside: a program that attaches to a running system's Ray cluster, for what HTTP cannot measure.

It runs in a process of its own, because Ray can be used once in a process and reads its flags when it is imported. What it
makes belongs to the system's root actor, as agents do, so that its tool tasks go where theirs go.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from typing import Any

import orjson

from benchmarks.processes import ProcessTree, clean_environment, stop
from benchmarks.question import Say
from benchmarks.system import STOP_SECONDS, RunningSystem
from serve.processes import command_line

_GCS = re.compile(r"--gcs-address=(\S+)")
_ACCESS = ("RAY_AUTH_", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
"""How a cluster authenticates, and whether it keeps to loopback."""
_SAID, _FOUND = "said ", "found "


class AttachedError(Exception):
    """The program ended without a finding; its errors are in the message."""


def ask_inside(system: RunningSystem, module: str, say: Say, *arguments: object) -> Any:
    """Run `python -m <module> <address> <arguments>` beside the system, and return what it found.

    The program calls `found` once, at its end.
    """
    address, access = cluster_of(system.tree)
    command = [sys.executable, "-m", module, address, *map(str, arguments)]
    environment = clean_environment() | access
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                text = line.decode()
                if text.startswith(_FOUND):
                    return orjson.loads(text.removeprefix(_FOUND))
                if text.startswith(_SAID):
                    say(text.removeprefix(_SAID).rstrip())
        finally:
            stop(process, STOP_SECONDS)
            process.stdout.close()
        errors.seek(0)
        raise AttachedError(f"{module} ended with {process.returncode}:\n{errors.read().decode()}")


def cluster_of(tree: ProcessTree) -> tuple[str, dict[str, str]]:
    """Return where the cluster of these processes is, and the variables that who attaches needs."""
    for process in tree.processes():
        address = _GCS.search(" ".join(command_line(process)))
        if address:
            access = {name: value for name, value in process.environ().items() if name.startswith(_ACCESS)}
            return address[1], access
    raise AttachedError("none of the system's processes names its cluster")


def tell(line: str) -> None:
    """Say something, from inside the program."""
    print(f"{_SAID}{line}", flush=True)


def found(value: object) -> None:
    """Report the finding, from inside the program: JSON values."""
    print(f"{_FOUND}{orjson.dumps(value).decode()}", flush=True)


def attach(address: str) -> None:
    """Join the cluster as one more driver, from inside the program."""
    import ray

    from actors.cluster import NAMESPACE

    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)


def child_of_root(kind: type[Any], *arguments: object) -> Any:
    """Return a new actor that the system's root owns, from inside the program; it may not answer yet."""
    import ray

    from actors.cluster import NAMESPACE
    from actors.remote import ROOT, find

    root: Any = find(ROOT, NAMESPACE)
    return ray.get(root.__ray_call__.remote(_make, kind, arguments))


def _make(_root: object, kind: type[Any], arguments: tuple[object, ...]) -> Any:
    from actors.remote import make

    return make(kind, *arguments)
