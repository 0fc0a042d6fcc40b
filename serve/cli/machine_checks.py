"""Checks of the machine: Python, Ray, memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from serve.cli.findings import CheckFinding, fail, ok, warn

MINIMUM_RAY = (2, 60)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Ray's object store lives there, nothing is written by us
_GIB = 1024**3
_ENOUGH_SHARED = 1 * _GIB
_ENOUGH_MEMORY = 3 * _GIB


def check_machine() -> Iterator[CheckFinding]:
    """Yield what is found."""
    yield ok("python", ".".join(map(str, sys.version_info[:3])))
    yield _ray()
    yield from _compiled()
    yield from _shared_memory()
    yield _memory()


def _ray() -> CheckFinding:
    fix = "install it with: pip install 'ray[serve]>=2.60'"
    try:
        present = version("ray")
        import_module("ray.serve")
    except PackageNotFoundError:
        return fail("ray", "is not installed", fix)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from importing is the finding
        return fail("ray", f"cannot be imported: {type(error).__name__}: {error}", fix)
    if tuple(int(part) for part in present.split(".")[:2]) < MINIMUM_RAY:
        return fail("ray", f"{present} is too old", fix)
    return ok("ray", present)


def uncompiled_packages() -> Path | None:
    """Return the folder of packages that each process compiles anew, Ray's among them; None if what was compiled is kept.

    Import Ray before: what that compiles is there then, if it is kept.
    """
    ray = find_spec("ray")
    if ray is None or ray.origin is None or ray.cached is None or Path(ray.cached).exists():
        return None
    return Path(ray.origin).parents[1]


def _compiled() -> Iterator[CheckFinding]:
    folder = uncompiled_packages()
    if folder is None:
        return
    why = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{folder / 'ray'} cannot be written"
    yield warn(
        "compiled modules",
        f"Ray's are not kept, since {why}: each actor takes twice the processor time to start",
        f"compile them once, with: {sys.executable} -m compileall -q {folder}",
    )


def _shared_memory() -> Iterator[CheckFinding]:
    if not SHARED_MEMORY.is_dir():
        return
    status = os.statvfs(SHARED_MEMORY)
    free = status.f_bavail * status.f_frsize
    message = f"{free / _GIB:.1f} GiB free in {SHARED_MEMORY}"
    if free < _ENOUGH_SHARED:
        fix = "give it 1 GiB or more; with Docker: --shm-size=2g (Ray falls back to the disk, slowly)"
        yield warn("shared memory", message, fix)
    else:
        yield ok("shared memory", message)


def _memory() -> CheckFinding:
    import psutil

    available = psutil.virtual_memory().available
    message = f"{available / _GIB:.1f} GiB available"
    if available < _ENOUGH_MEMORY:
        return warn("memory", message, "Ray and its workers take about 3 GiB; stop other programs or lower actors.warm")
    return ok("memory", message)
