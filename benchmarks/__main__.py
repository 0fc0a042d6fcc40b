"""`python -m benchmarks [suite or question ...]`."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from benchmarks.asking import Answered, Failed, Outcome, Unavailable, ask, exit_code
from benchmarks.interruption import interrupt_on_signals
from benchmarks.machine import describe, load_average
from benchmarks.plots import draw
from benchmarks.question import Size
from benchmarks.report import Report, as_markdown, write
from benchmarks.suites import EXTRAS, SUITES, Asking, chosen
from owlclaw_ray.errors import install_command
from owlclaw_ray.kernel.system_clock import SystemClock

RESULTS = Path("benchmarks", "results")


def main(arguments: list[str]) -> int:
    """Ask, report after every answer, and return the exit code: 1 if a question failed or none was answered."""
    options = _parser().parse_args(arguments)
    try:
        asking = chosen(options.names or ["smoke"], Size(options.size) if options.size else None)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    interrupt_on_signals()
    started = SystemClock().now()
    folder = options.out or RESULTS / f"{started:%Y%m%dT%H%M%SZ}"
    try:
        _make(folder)
    except OSError as error:
        print(f"no results can be written to {folder}: {error.strerror}; name a folder with --out", file=sys.stderr)
        return 2
    command = " ".join(["python -m benchmarks", *arguments])
    outcomes: list[Outcome] = []
    try:
        _ask_all(asking, command, started, folder, outcomes)
    except KeyboardInterrupt:
        print(f"what was answered is in {folder}" if outcomes else "nothing was answered", file=sys.stderr)
        return 130
    return exit_code(outcomes)


def _make(folder: Path) -> None:
    """Make the folder, and see that files can be written there: before minutes of measuring, not after."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass


def _ask_all(asking: list[Asking], command: str, started: datetime, folder: Path, outcomes: list[Outcome]) -> None:
    """Ask, add each outcome to `outcomes`, and write down what is known so far."""
    machine, before = describe(), load_average()
    plots: list[str] = []
    note = ""
    for each in asking:
        _say(each.question, f"asked in size {each.size.value}")
        outcome = ask(each, EXTRAS, partial(_say, each.question))
        outcomes.append(outcome)
        _tell(outcome)
        if isinstance(outcome, Answered) and outcome.answer.plots:
            try:
                plots += draw(list(outcome.answer.plots), folder, each.question)
            except ImportError:
                note = f"Without plots: install matplotlib with: {install_command('bench')}"
        remaining = tuple(other.question for other in asking[len(outcomes) :])
        report = Report(
            command, started, machine, before, load_average(), tuple(outcomes), tuple(plots), note, remaining
        )
        write(report, folder)
    print(f"\n{as_markdown(report)}\n{folder / 'results.md'}, {folder / 'results.json'}")


def _tell(outcome: Outcome) -> None:
    question = outcome.asking.question
    match outcome:
        case Answered():
            missed = sum(figure.met is False for figure in outcome.answer.figures)
            _say(question, f"answered in {outcome.seconds:g} s" + (f", {missed} goals missed" if missed else ""))
        case Unavailable():
            _say(question, f"not asked: {outcome.reason}")
        case Failed():
            _say(question, f"failed after {outcome.seconds:g} s\n{outcome.trace}")


def _say(question: str, line: str) -> None:
    print(f"{SystemClock().now():%H:%M:%S} {question}: {line}", flush=True)


def _parser() -> argparse.ArgumentParser:
    suites = "\n".join(f"  {name:10} {suite.about}: {', '.join(suite.questions)}" for name, suite in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure OwlClaw, each figure beside a baseline of the same run.",
        epilog=f"suites:\n{suites}\n\nquestions: {', '.join(EXTRAS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="suite or question", help="default: smoke")
    parser.add_argument("--size", choices=[size.value for size in Size], help="instead of the suite's own")
    parser.add_argument("--out", type=Path, help=f"folder for the results; default: {RESULTS}/<UTC time>")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
