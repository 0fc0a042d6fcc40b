"""OwlClaw's packages have short names, which modules of an application may have, too: ours are imported, the others are reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from owlclaw_ray.errors import Problem

OWN_PACKAGES = ("owlclaw_ray", "actors", "serve", "console")
"""The names that mean OwlClaw's own packages in each of its processes, whatever else has these names."""
_HOME = Path(__file__).resolve().parents[1]


def namesakes(folder: Path) -> Iterator[Problem]:
    """Yield the modules of a folder that cannot be imported, because OwlClaw's own packages have their names."""
    for name in OWN_PACKAGES:
        for path in (folder / f"{name}.py", folder / name):
            own = path.exists() and path.resolve().is_relative_to(_HOME / name)
            if not own and (path.is_file() or next(path.glob("*.py"), None) is not None):
                what = f"the application cannot import it: {name} is a package of OwlClaw"
                yield Problem(str(path), what, f"rename it, such as to {path.with_stem(f'my_{name}').name}")


def keep_own_packages() -> None:
    """Import our packages before a folder that comes first on the import path has its say; their modules are found through them then."""
    for name in OWN_PACKAGES:
        spec = None if name in sys.modules else PathFinder.find_spec(name, [str(_HOME)])
        if spec is not None and spec.loader is not None:
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])


def import_path(written: str) -> str:
    """Return a PYTHONPATH for processes that import our packages first thing: as it is, unless it has namesakes; then ours come first."""
    folders = written.split(os.pathsep) if written else []
    hidden = any(True for folder in folders for _ in namesakes(Path(folder)))
    return os.pathsep.join([str(_HOME), *folders]) if hidden else written
