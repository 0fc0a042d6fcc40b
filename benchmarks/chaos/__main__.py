"""`python -m benchmarks.chaos`: one session, its report, and exit code 1 if a promise was broken.

A seed gives the same triggers (agents, payloads, keys, how the client behaves) and the same strikes (which role, after how
many accepted triggers and how long after, which of several processes by their numbers). It does not give the same interleaving: where
exactly a process is when it dies is up to the machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import orjson

from benchmarks.chaos.report import Report, summary
from benchmarks.chaos.session import Plan
from benchmarks.chaos.strikes import SHARES, Role
from benchmarks.chaos.trial import Keep, check_again, trial


def main() -> None:
    """Run or check a session, print its summary, write its JSON."""
    options = arguments_parser().parse_args()
    report = check_again(options.check) if options.check else _trial(options)
    if options.output:
        options.output.write_bytes(orjson.dumps(report.content, option=orjson.OPT_INDENT_2))
    print(summary(report))
    if "folder" in report.content:
        print(f"store, logs and records: {report.content['folder']}")
    sys.exit(0 if report.kept else 1)


def _trial(options: argparse.Namespace) -> Report:
    plan = Plan(
        seed=options.seed,
        runs=options.runs,
        kills=options.kills,
        pace=options.pace,
        quiet_seconds=options.quiet,
        roles=tuple(options.roles),
        postgres=options.postgres,
    )
    return trial(plan, Keep.ALWAYS if options.keep else Keep.BROKEN, lambda line: print(line, flush=True))


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pace", type=float, default=4.0, help="seconds between two strikes, about")
    parser.add_argument("--quiet", type=float, default=300.0, help="seconds to wait for the last runs")
    parser.add_argument("--roles", type=_roles, default=list(SHARES), help="what to hit, such as agent,keeper")
    parser.add_argument("--postgres", action="store_true", help="keep the store in a PostgreSQL server of its own")
    parser.add_argument("--output", type=Path, help="where to write the report as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the session's folder even if nothing is broken")
    parser.add_argument("--check", type=Path, help="check the kept folder of an earlier session instead")
    return parser


def _roles(text: str) -> list[Role]:
    return [Role(name) for name in text.split(",")]


if __name__ == "__main__":
    main()
