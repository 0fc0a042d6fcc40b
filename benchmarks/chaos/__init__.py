"""Chaos: whether the promises hold while processes are killed; `python -m benchmarks.chaos` runs one session."""

from __future__ import annotations

from benchmarks.chaos.question import TITLE, answer

__all__ = ["TITLE", "answer"]
