"""Where scripts are, and loading them again when they change."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.scripted.python_script import load_python
from owlclaw_ray.models.scripted.script import Script
from owlclaw_ray.models.scripted.yaml_script import load_yaml

PREFIX = "scripted:"
_PACKAGED = Path(__file__).parent / "scripts"
_SUFFIXES = (".yaml", ".yml", ".py")


class _Loaded(Struct, frozen=True):
    stamp: tuple[int, int]
    script: Script


class ScriptLibrary:
    """Loaded scripts by file. A file is read again when its modification time or its size is another."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, str], Path] = {}
        self._loaded: dict[Path, _Loaded] = {}

    def script(self, model: str, base_dir: str) -> Script:
        """Return the script of a `scripted:…` name; a relative path starts at `base_dir`. Raises ConfigurationError."""
        path = self._paths.get((model, base_dir))
        if path is None:
            path = self._paths[model, base_dir] = _locate(model, base_dir)
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            loaded = self._loaded.get(path)
            if loaded is None or loaded.stamp != stamp:
                loaded = self._loaded[path] = _Loaded(stamp, _load(path))
        except FileNotFoundError:
            fix = f"a path in {PREFIX}<path> starts at the agent definition's folder"
            raise ConfigurationError([Problem(model, f"there is no file {path}", fix)]) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError([Problem(str(path), f"cannot be read: {error}")]) from error
        return loaded.script


def packaged_scripts() -> tuple[str, ...]:
    """Return the names that work without a file."""
    return tuple(sorted(path.stem for path in _PACKAGED.glob("*.yaml")))


def _locate(model: str, base_dir: str) -> Path:
    reference = model.removeprefix(PREFIX)
    if reference.endswith(_SUFFIXES):
        return Path(base_dir) / reference
    if reference in packaged_scripts():
        return _PACKAGED / f"{reference}.yaml"
    fix = f"packaged scripts: {', '.join(packaged_scripts())}; a file's path ends in {', '.join(_SUFFIXES)}"
    raise ConfigurationError([Problem(model, f"there is no packaged script {reference!r}", fix)])


def _load(path: Path) -> Script:
    text = path.read_text(encoding="utf-8")
    return load_python(path, text) if path.suffix == ".py" else load_yaml(path, text)
