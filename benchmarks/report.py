"""What was found out, as JSON and as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import orjson

from benchmarks.asking import Answered, Failed, Outcome, Unavailable
from benchmarks.machine import Machine
from benchmarks.question import Figure

_TITLES = ("question", "figure", "value", "baseline", "ratio", "goal", "met")


@dataclass(frozen=True, slots=True)
class Report:
    """One invocation."""

    command: str
    started_at: datetime
    machine: Machine
    load_before: Sequence[float]
    load_after: Sequence[float]
    outcomes: Sequence[Outcome]
    plots: Sequence[str] = ()
    """File names beside the report."""
    note: str = ""
    """Why there are no plots."""
    open: Sequence[str] = ()
    """Questions that had no outcome yet: an interruption, or the end of the machine, leaves them so."""


def write(report: Report, folder: Path) -> None:
    """Write results.json and results.md, and what questions keep beside them."""
    (folder / "results.json").write_bytes(
        orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    )
    (folder / "results.md").write_text(as_markdown(report), encoding="utf-8")
    for each in report.outcomes:
        if isinstance(each, Answered):
            for name, content in _files(each).items():
                (folder / name).write_bytes(content)


def as_json(report: Report) -> dict[str, object]:
    """Return everything."""
    return {
        "command": report.command,
        "started_at": report.started_at.isoformat(),
        "machine": asdict(report.machine),
        "load_average": {"before": list(report.load_before), "after": list(report.load_after)},
        "answers": [_answered(each) for each in report.outcomes if isinstance(each, Answered)],
        "unavailable": [
            {"question": each.asking.question, "reason": each.reason}
            for each in report.outcomes
            if isinstance(each, Unavailable)
        ],
        "failed": [
            {"question": each.asking.question, "seconds": each.seconds, "error": each.error, "trace": each.trace}
            for each in report.outcomes
            if isinstance(each, Failed)
        ],
        "open": list(report.open),
        "plots": list(report.plots),
    }


def as_markdown(report: Report) -> str:
    """Return what people read."""
    lines = [
        f"# {report.command}",
        "",
        _circumstances(report),
        "",
        *_table(report.outcomes),
        "",
        *_remarks(report.outcomes),
        *(f"![{name}]({name})\n" for name in report.plots),
        *([report.note] if report.note else []),
        *([f"Not asked yet, or not answered: {', '.join(report.open)}."] if report.open else []),
    ]
    return "\n".join(lines).rstrip() + "\n"


def number(value: float) -> str:
    """Return a number with three digits that matter, or all before the point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def _circumstances(report: Report) -> str:
    machine = report.machine
    return (
        f"{report.started_at:%Y-%m-%d %H:%M} UTC, commit {machine.commit or 'unknown'}. {machine.cores} cores"
        f" ({machine.processor}), {machine.memory_gb:g} GB, Python {machine.python}"
        f"{', which compiled in each process' if machine.compiles else ''}, Ray"
        f" {machine.packages.get('ray', 'unknown')}. Load average {_loads(report.load_before)} before,"
        f" {_loads(report.load_after)} after."
    )


def _table(outcomes: Iterable[Outcome]) -> list[str]:
    rows = [_TITLES, tuple("---" for _ in _TITLES)]
    for outcome in outcomes:
        if isinstance(outcome, Answered):
            rows += [_row(outcome.asking.question, figure) for figure in outcome.answer.figures]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]


def _row(question: str, figure: Figure) -> tuple[str, ...]:
    baseline = "" if figure.baseline is None else f"{number(figure.baseline)} {figure.unit}".rstrip()
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    met = {True: "yes", False: "**no**", None: ""}[figure.met]
    return question, figure.name, f"{number(figure.value)} {figure.unit}".rstrip(), baseline, ratio, figure.goal, met


def _remarks(outcomes: Iterable[Outcome]) -> list[str]:
    lines: list[str] = []
    for outcome in outcomes:
        match outcome:
            case Answered():
                lines += [f"**{outcome.asking.question}** ({outcome.seconds:g} s): {outcome.title}", ""]
                lines += [*_figure_remarks(outcome.answer.figures), ""]
            case Unavailable():
                lines += [f"**{outcome.asking.question}** was not asked: {outcome.reason}", ""]
            case Failed():
                lines += [f"**{outcome.asking.question}** failed: {' '.join(outcome.error.split())}", ""]
    return lines


def _figure_remarks(figures: Iterable[Figure]) -> list[str]:
    remarks = []
    for figure in figures:
        parts = [f"baseline: {figure.baseline_is}" if figure.baseline_is else "", figure.note]
        if any(parts):
            remarks.append(f"- {figure.name}: {'; '.join(part for part in parts if part)}")
    return remarks


def _loads(loads: Sequence[float]) -> str:
    return " / ".join(f"{load:g}" for load in loads)


def _answered(outcome: Answered) -> dict[str, object]:
    answer = {**asdict(outcome.answer), "files": list(_files(outcome))}
    figures = [
        {**asdict(figure), "ratio": None if figure.ratio is None else round(figure.ratio, 4)}
        for figure in outcome.answer.figures
    ]
    return {
        **answer,
        "figures": figures,
        "title": outcome.title,
        "seconds": outcome.seconds,
        "size": outcome.asking.size,
    }


def _files(outcome: Answered) -> dict[str, bytes]:
    return {f"{outcome.asking.question}-{name}": content for name, content in outcome.answer.files.items()}
