"""`python -m benchmarks.peers [peer ...]`: only some of the peers, one JSON line a figure; `python -m benchmarks peers` reports on all."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial

from benchmarks.interruption import interrupt_on_signals
from benchmarks.peers.comparison import compare
from benchmarks.peers.contestants import WAYS
from benchmarks.question import Size


def main(arguments: list[str]) -> int:
    """Print the figures, and return the exit code: 1 if none of the peers is installed."""
    names = sorted({way.peer.name for way in WAYS})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--size", choices=[size.value for size in Size], default=Size.FULL.value)
    options = parser.parse_args(arguments)
    if unknown := set(options.peers) - set(names):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    ways = [way for way in WAYS if not options.peers or way.peer.name in options.peers]
    interrupt_on_signals()
    try:
        answer = compare(Size(options.size), partial(print, file=sys.stderr, flush=True), ways)
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for figure in answer.figures:
        print(json.dumps({**asdict(figure), "ratio": figure.ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
