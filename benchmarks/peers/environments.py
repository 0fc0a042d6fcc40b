"""Where a peer is installed, and what to type where it is not.

A peer runs in the interpreter that the benchmark runs in if all it needs is there; else in the virtual environment of its name
below the cache folder. Restate's server comes from its npm package, into the same folder, where npm is at hand.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.contestants import Peer
from benchmarks.question import Say
from owlclaw_ray import errors

CACHE = Path("benchmarks", "results", "peers")
"""Below the current folder."""
SERVER_PACKAGE = "@restatedev/restate-server@^1.7"
_NPM_SECONDS = 600
_VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """What runs a peer."""

    interpreter: str
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Missing:
    """What has to be installed first."""

    command: str


def find(peer: Peer, cache: Path) -> Environment | Missing:
    """Return the interpreter that has all of the peer's distributions, or what installs them."""
    names = [distribution_name(each) for each in peer.distributions]
    own = cache.absolute() / peer.name / "bin" / "python"
    for interpreter in (sys.executable, str(own)):
        versions = installed(interpreter, names)
        if versions is not None:
            return Environment(interpreter, versions)
    return Missing(install_command(peer, cache))


def installed(interpreter: str, distributions: Sequence[str]) -> dict[str, str] | None:
    """Return their versions; None if one of them, or the interpreter, is missing."""
    try:
        found = subprocess.run(
            [interpreter, "-c", _VERSIONS, *distributions], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    if found.returncode != 0:
        return None
    versions: dict[str, str] = json.loads(found.stdout)
    return versions


def install_command(peer: Peer, cache: Path) -> str:
    """Return what a person types to install the peer."""
    if not peer.own_environment:
        return errors.install_command("peers")
    folder = cache / peer.name
    distributions = " ".join(shlex.quote(each) for each in peer.distributions)
    return f"python -m venv {folder} && {folder}/bin/pip install {distributions}"


def distribution_name(requirement: str) -> str:
    """Return the name without the bound."""
    return re.split(r"[<>=~!]", requirement, maxsplit=1)[0]


def restate_server(cache: Path, say: Say) -> Path | Missing:
    """Return Restate's server, after installing it with npm if need be; what to type if there is no npm."""
    folder = cache.absolute() / "node"
    found = _server_in(folder)
    if found is not None:
        return found
    command = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", SERVER_PACKAGE]
    if shutil.which("npm") is None:
        return Missing(f"install Node.js with npm, then: {shlex.join(command)}")
    say(f"installing Restate's server into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True, capture_output=True, timeout=_NPM_SECONDS)
    found = _server_in(folder)
    if found is None:
        raise RuntimeError(f"{SERVER_PACKAGE} has no server for this platform")
    return found


def _server_in(folder: Path) -> Path | None:
    return next(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"), None)
