"""Where scripts are, loading them again when they change, and those in Python: a file with a function `reply`."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from msgspec import Struct, ValidationError, convert, to_builtins

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.scripted.script import Script, ScriptedReply, ScriptedRequest, ScriptError
from owlclaw_ray.models.scripted.yaml_script import load_yaml

PREFIX = "scripted:"
_PACKAGED = Path(__file__).parent / "scripts"
_SUFFIXES = (".yaml", ".yml", ".py")
_FIX = "define `def reply(request: ScriptedRequest) -> ScriptedReply` in it; see docs/scripted-model.md"

ReplyFunction: TypeAlias = Callable[[ScriptedRequest], ScriptedReply | Awaitable[ScriptedReply]]


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
                text = path.read_text(encoding="utf-8")
                script = load_python(path, text) if path.suffix == ".py" else load_yaml(path, text)
                loaded = self._loaded[path] = _Loaded(stamp, script)
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


def load_python(path: Path, text: str) -> PythonScript:
    """Run the file and return its `reply`, or raise ConfigurationError. Nothing is written beside the file."""
    name = f"owlclaw_script_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 (the file is the application's own code)
    except Exception as error:
        raise ConfigurationError([Problem(_where(path, error), f"cannot be loaded: {_named(error)}", _FIX)]) from error
    reply = module.__dict__.get("reply")
    if not callable(reply):
        raise ConfigurationError([Problem(str(path), "has no function reply", _FIX)])
    return PythonScript(path, reply)


class PythonScript:
    """Answers with what the file's `reply` returns; an async one is awaited, any other runs in the gateway's loop."""

    def __init__(self, path: Path, reply: ReplyFunction) -> None:
        self._path = path
        self._reply = reply

    async def reply(self, request: ScriptedRequest) -> ScriptedReply:
        """Return the function's reply. What it raises, or returns of another type, is a ScriptError."""
        try:
            given = self._reply(request)
            reply = await given if inspect.isawaitable(given) else given
        except Exception as error:
            raise ScriptError(f"{_where(self._path, error)}: reply() raised {_named(error)}") from error
        if not isinstance(reply, ScriptedReply):
            raise ScriptError(f"{self._path}: reply() returned {type(reply).__name__}, not ScriptedReply")
        try:
            return convert(to_builtins(reply), ScriptedReply)
        except (TypeError, ValidationError) as error:
            raise ScriptError(f"{self._path}: reply() returned a ScriptedReply that is none: {error}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _where(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{path}: line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}: line {lines[-1]}" if lines else str(path)
