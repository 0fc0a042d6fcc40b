"""Scripts in Python: a file with a function `reply`."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.scripted.script import ScriptedReply, ScriptedRequest, ScriptError

ReplyFunction: TypeAlias = Callable[[ScriptedRequest], ScriptedReply | Awaitable[ScriptedReply]]

_FIX = "define `def reply(request: ScriptedRequest) -> ScriptedReply` in it; see docs/scripted-model.md"


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
        return reply


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _where(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{path}: line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}: line {lines[-1]}" if lines else str(path)
