"""`python -m benchmarks.chaos`: one session, its report, and exit code 1 if a promise was broken.

A seed gives the same triggers (agents, payloads, keys, how the client behaves) and the same strikes (which role, after how
many accepted triggers and how long after, which of several processes by their numbers). It does not give the same interleaving: where
exactly a process is when it dies is up to the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from benchmarks.chaos.machines import enter_hub, why_not
from benchmarks.chaos.report import Report, summary
from benchmarks.chaos.session import FACTS, Plan
from benchmarks.chaos.strikes import LEASE_SHARES, MACHINE_SHARES, NAMED_SHARES, NODE, SHARES, Role
from benchmarks.chaos.trial import Keep, check_again, trial
from benchmarks.chaos.workload import USUAL, Shape

_MEMORY = frozenset({"remember", "recall"})
"""Each cluster has a data folder of its own."""


def main() -> None:
    """Run or check a session, print its summary, write its JSON."""
    options = command_line(sys.argv[1:])
    if options.nodes > 1 and not options.in_hub and not options.check:
        enter_hub("benchmarks.chaos", [*sys.argv[1:], "--in-hub"])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = check_again(options.check) if options.check else _trial(options)
    except KeyboardInterrupt:
        print("interrupted; everything that was started is stopped", file=sys.stderr)
        sys.exit(130)
    print(summary(report))
    if "folder" in report.content:
        print(f"store, logs and records: {report.content['folder']}")
    if options.output:
        options.output.write_bytes(orjson.dumps(report.content, option=orjson.OPT_INDENT_2))
    sys.exit(0 if report.kept else 1)


def _trial(options: argparse.Namespace) -> Report:
    several = max(options.clusters, options.nodes) > 1
    plan = Plan(
        seed=options.seed,
        runs=options.runs,
        kills=options.kills,
        pace=options.pace,
        quiet_seconds=options.quiet,
        roles=tuple(options.roles or _default_roles(options)),
        postgres=options.postgres or several,
        clusters=options.clusters,
        nodes=options.nodes,
        shape=Shape(
            agents=options.agents,
            slowness=options.slowness,
            longest=options.longest,
            solo_share=options.solo,
            left_out=_MEMORY if several else frozenset(),
        ),
        ahead=options.ahead,
    )
    return trial(plan, Keep.ALWAYS if options.keep else Keep.BROKEN, lambda line: print(line, flush=True))


def command_line(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; ends with a sentence and exit code 2 if the session to check again cannot be."""
    parser = arguments_parser()
    options = parser.parse_args(arguments)
    if options.ahead >= options.runs:
        parser.error(f"argument --ahead: {options.ahead} is not less than the {options.runs} runs")
    if problem := _problem_with_roles(options.roles or [], options):
        parser.error(f"argument --roles: {problem}")
    if problem := _problem_with_machines(options):
        parser.error(f"argument --nodes: {problem}")
    if options.check and (problem := _problem_with_session(options.check)):
        parser.error(f"argument --check: {problem}")
    return options


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=_at_least(int, 1), default=5_000)
    parser.add_argument("--kills", type=_at_least(int, 0), default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--pace", type=_at_least(float, 0), default=4.0, help="seconds between two strikes, about")
    parser.add_argument("--quiet", type=_at_least(float, 0), default=300.0, help="seconds to wait for the last runs")
    parser.add_argument("--roles", type=_roles, help="what to hit, such as agent,keeper")
    parser.add_argument("--postgres", action="store_true", help="keep the store in a PostgreSQL server of its own")
    parser.add_argument(
        "--clusters", type=_at_least(int, 1), default=1, help="clusters on one PostgreSQL; one runs agents"
    )
    parser.add_argument("--nodes", type=_at_least(int, 1), default=1, help="machines, as namespaces; needs root")
    parser.add_argument("--in-hub", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--agents", type=_at_least(int, 1), default=USUAL.agents, help="shared agents")
    parser.add_argument("--slowness", type=_at_least(float, 0), default=1.0, help="times what the model takes")
    parser.add_argument(
        "--longest", type=_at_least(float, 0), default=0.0, help="seconds: model calls take any time up to it"
    )
    parser.add_argument(
        "--solo", type=_at_least(float, 0), default=USUAL.solo_share, help="share of the dedicated agents"
    )
    parser.add_argument("--ahead", type=_at_least(int, 0), default=0, help="triggers that are submitted at once")
    parser.add_argument("--output", type=_new_file, help="where to write the report as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the session's folder even if nothing is broken")
    parser.add_argument("--check", type=Path, help="check the kept folder of an earlier session instead")
    return parser


def _at_least(kind: type[int | float], least: int) -> Callable[[str], float]:
    def number(text: str) -> float:
        found = kind(text)
        if not least <= found < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not {least} or more")
        return found

    number.__name__ = kind.__name__
    return number


def _roles(text: str) -> list[Role]:
    known = {role.value: role for role in Role}
    names = dict.fromkeys(text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(map(repr, unknown))} cannot be hit; {', '.join(known)} can")
    return [known[name] for name in names]


def _new_file(text: str) -> Path:
    """Return the path; a session takes too long for its report to find no place."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"no file can be written at {path}")
    return path


def _default_roles(options: argparse.Namespace) -> Sequence[Role]:
    if options.nodes > 1:
        return tuple(MACHINE_SHARES)
    return tuple(LEASE_SHARES if options.clusters > 1 else SHARES)


def _problem_with_roles(roles: Sequence[Role], options: argparse.Namespace) -> str:
    """Return why these cannot be hit; empty if they can."""
    allowed = set(SHARES)
    if options.nodes > 1:
        allowed = {*MACHINE_SHARES, *NAMED_SHARES}
    elif options.clusters > 1:
        allowed = {*SHARES, *LEASE_SHARES} - NODE - {Role.TREE, Role.RESTART, Role.STREAMS}
    names = ", ".join(role.value for role in roles if role not in allowed)
    return f"{names} cannot be hit in such a session" if names else ""


def _problem_with_machines(options: argparse.Namespace) -> str:
    if options.nodes == 1 or options.check:
        return ""
    return "goes with one cluster only" if options.clusters > 1 else why_not()


def _problem_with_session(folder: Path) -> str:
    """Return why no kept session can be checked in that folder; empty if one can."""
    if not (folder / FACTS).is_file():
        return f"no session that came to its end is in {folder}: it has no {FACTS}"
    if orjson.loads((folder / FACTS).read_bytes())["plan"]["postgres"]:
        return f"the session in {folder} kept its store in a PostgreSQL server, which is gone"
    return ""


if __name__ == "__main__":
    main()
