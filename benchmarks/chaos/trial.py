"""From a plan to a report."""

from __future__ import annotations

import asyncio
import shutil
from enum import Enum
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.chaos.evidence import read_evidence
from benchmarks.chaos.report import Report, judge
from benchmarks.chaos.session import Plan, carried_out
from benchmarks.question import Say

_SHORT_TEMP = Path("/tmp")  # noqa: S108 - paths of sockets below it may have about 100 characters


class Keep(Enum):
    """What becomes of a session's folder: store, logs, and everything that was written down."""

    BROKEN = "broken"
    """It stays if a promise was broken."""
    ALWAYS = "always"


def trial(plan: Plan, keep: Keep, say: Say) -> Report:
    """Carry a session out and check it."""
    folder = Path(mkdtemp(prefix="chaos-", dir=_SHORT_TEMP if _SHORT_TEMP.is_dir() else None))
    say(f"session in {folder}")
    try:
        with carried_out(plan, folder, say) as store_url:
            report = judge(folder, asyncio.run(read_evidence(folder, store_url)))
    except KeyboardInterrupt:
        if keep is Keep.BROKEN:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if report.kept and keep is Keep.BROKEN:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report.content["folder"] = str(folder)
    return report


def check_again(folder: Path) -> Report:
    """Check a session of the embedded store that was carried out before."""
    report = judge(folder, asyncio.run(read_evidence(folder)))
    report.content["folder"] = str(folder)
    return report
