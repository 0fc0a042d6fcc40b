"""The machine that a definition is read on, as far as skills ask for things of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from msgspec import Struct, field

from owlclaw_ray.definitions.skills.frontmatter import Extension

_SYSTEMS = {"win32": "windows", "cygwin": "windows"}


class Machine(Struct, frozen=True):
    """What is there: variables, programs, Python modules, the operating system."""

    environ: Mapping[str, str] = field(default_factory=dict)
    system: str = sys.platform

    def missing(self, asked: Extension) -> Iterator[tuple[str, str]]:
        """Yield what a skill asks for and is not there: the key of the extension, and what is missing."""
        wanted = asked.prerequisites
        yield from (
            ("prerequisites.env", f"the variable {name} is not set")
            for name in wanted.env
            if not self.environ.get(name)
        )
        names = () if isinstance(asked.env, dict) else asked.env
        yield from (("env", f"the variable {name} is not set") for name in names if not self.environ.get(name))
        path = self.environ.get("PATH")
        yield from (
            ("prerequisites.bins", f"there is no program {name} on the PATH")
            for name in wanted.bins
            if shutil.which(name, path=path) is None
        )
        yield from (
            ("prerequisites.python_packages", f"the Python package {name} is not installed")
            for name in wanted.python_packages
            if not _is_installed(name)
        )
        here = _SYSTEMS.get(self.system, self.system)
        if wanted.os and here not in wanted.os:
            yield "prerequisites.os", f"it is for {', '.join(wanted.os)}, and this is {here}"


def _is_installed(package: str) -> bool:
    """Look for the top-level module only: looking further would import it."""
    try:
        return find_spec(package.partition(".")[0].replace("-", "_")) is not None
    except (ImportError, ValueError):
        return False
