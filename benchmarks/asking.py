"""Asking one question: an answer, or why there is none. Nothing that goes wrong in one keeps the next from being asked."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.question import Answer, Say
from benchmarks.suites import Asking, module_of
from owlclaw_ray.errors import install_command

_OURS = ("benchmarks", "serve", "actors", "owlclaw_ray")


@dataclass(frozen=True, slots=True)
class Answered:
    """It has been measured."""

    asking: Asking
    title: str
    seconds: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An optional extra is not installed."""

    asking: Asking
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It went wrong."""

    asking: Asking
    seconds: float
    error: str
    trace: str


Outcome: TypeAlias = Answered | Unavailable | Failed


def ask(asking: Asking, extras: Mapping[str, str], say: Say) -> Outcome:
    """Import the question's module and have it answer."""
    started = time.monotonic()
    try:
        module = importlib.import_module(module_of(asking.question))
        answer: Answer = module.answer(asking.size, say)
        return Answered(asking, module.TITLE, round(time.monotonic() - started, 1), answer)
    except ModuleNotFoundError as error:
        extra = extras[asking.question]
        if extra and (error.name or "").split(".")[0] not in _OURS:
            return Unavailable(asking, f"{error.name} is not installed; install it with: {install_command(extra)}")
        return _failed(asking, started, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported and the others are asked
        return _failed(asking, started, error)


def _failed(asking: Asking, started: float, error: Exception) -> Failed:
    summary = f"{type(error).__name__}: {error}"
    return Failed(asking, round(time.monotonic() - started, 1), summary, traceback.format_exc())


def exit_code(outcomes: list[Outcome]) -> int:
    """Return 1 if a question failed or none was answered, else 0."""
    failed = any(isinstance(outcome, Failed) for outcome in outcomes)
    answered = any(isinstance(outcome, Answered) for outcome in outcomes)
    return 1 if failed or not answered else 0
