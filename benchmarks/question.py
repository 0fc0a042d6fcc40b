"""What a benchmark asks and answers. Each question is one module with a `TITLE` and a function

    def answer(size: Size, say: Say) -> Answer

which starts what it measures, measures its baseline in the same run, and stops everything again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias


class Size(Enum):
    """How much is asked of the machine."""

    SMOKE = "smoke"
    """Seconds a question: whether everything works, and roughly how well."""
    FULL = "full"
    """Minutes a question: the figures that the documentation quotes."""


Say: TypeAlias = Callable[[str], None]
"""Tells the person who waits what is being done, a line at a time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, beside its baseline of the same run if there is one to compare it with."""

    name: str
    """Lower case, such as `runs_per_second, 1000 shared agents`."""
    value: float
    unit: str
    baseline: float | None = None
    baseline_is: str = ""
    """What was measured as the baseline, in words."""
    goal: str = ""
    """In words, such as `at least 0.5 of the baseline`; empty for a figure without one."""
    met: bool | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Value over baseline; None without a baseline."""
        return self.value / self.baseline if self.baseline else None


@dataclass(frozen=True, slots=True)
class Series:
    """A line or a set of bars for a plot."""

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: str = "bars"
    """`bars` or `lines`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that one question found out."""

    question: str
    figures: tuple[Figure, ...]
    plots: tuple[Plot, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """Whatever else helps to judge the figures; JSON values."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What is kept beside the report, by name; the question's name is put before it."""
