"""The cheapest shape of a durable run on Ray, without a line of OwlClaw: the baseline of *runs*.

A trigger over HTTP is committed and answered; a host actor takes it (one run of an agent at a time), asks the model, commits the
reply, has a Ray task run the tool, asks the model again and commits the outcome. Whatever is ready leaves together, between all of
its processes, tool calls included. It validates nothing, keeps no ledger, cannot resume, and its agents have neither an
identity nor a memory: what OwlClaw costs beyond it is the price of these.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bare_ray import serve

HOSTS = 2
JOURNAL = "journal.db"


class Unfinished:
    """How many accepted triggers have no outcome yet, read from the journal without asking the skeleton."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(f"file:{folder / JOURNAL}?mode=ro", uri=True)
        self._last, self._count = 0, 0

    def __call__(self) -> int:
        """Return the number as of now."""
        for rowid, kind in self._database.execute(
            "SELECT rowid, kind FROM journal WHERE rowid > ? AND kind != 'reply'", (self._last,)
        ):
            self._last = rowid
            self._count += 1 if kind == "trigger" else -1
        return self._count


def application(folder: Path) -> Any:
    """Start the actors and return the Serve application in front of them."""
    from benchmarks.skeleton_actors import start

    return start(str(folder / JOURNAL), HOSTS, os.cpu_count() or 1)


if __name__ == "__main__":
    serve(partial(application, Path(sys.argv[1])))
