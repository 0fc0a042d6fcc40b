"""As of which moment old things are removed, whatever a clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.store.commands import CommandFailed, NoteSweep, Swept
from owlclaw_ray.store.old_runs import SweepClocks
from owlclaw_ray.store.retention import moment_of_sweep, note_sweep

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Telling:
    """A store that knows that much of the time."""

    def __init__(self, clocks, outcome=None):
        self._clocks, self._outcome, self.commands = clocks, outcome, []

    async def read(self, query):
        assert query.what is Kept.ARTIFACTS
        return self._clocks

    async def apply(self, commands):
        self.commands += commands
        return [self._outcome]


def moment(database=None, swept=None, newest=None):
    return moment_of_sweep(Telling(SweepClocks(database, swept, newest)), Kept.ARTIFACTS, NOW)


@pytest.mark.parametrize(
    ("known", "as_of"),
    [
        ({}, NOW),
        ({"swept": NOW - HOUR}, NOW),
        ({"swept": NOW - DAY}, NOW),
        ({"swept": NOW - 3 * DAY}, NOW - 2 * DAY),
        ({"swept": NOW + 9 * DAY}, NOW),
        ({"swept": NOW - 3 * DAY, "newest": NOW}, NOW - 2 * DAY),
        ({"swept": NOW, "newest": NOW - 9 * DAY}, NOW),
        ({"newest": NOW - 9 * DAY}, NOW - 8 * DAY),
        ({"newest": NOW - HOUR}, NOW),
        ({"database": NOW - 365 * DAY, "swept": NOW}, NOW - 365 * DAY),
        ({"database": NOW + 365 * DAY, "swept": NOW}, NOW),
        ({"database": NOW - DAY, "swept": NOW - 5 * DAY}, NOW - 4 * DAY),
    ],
)
async def test_it_is_now_or_what_the_database_says_or_a_day_after_the_last_time_whichever_is_first(
    known, as_of, caplog
):
    assert await moment(**known) == as_of
    assert ("a wrong clock" in caplog.text) == (as_of not in {NOW, known.get("database")})


async def test_a_sweep_that_could_not_be_noted_has_failed():
    store = Telling(None, Swept())
    await note_sweep(store, Kept.RUNS, NOW)
    assert store.commands == [NoteSweep(Kept.RUNS, NOW)]

    with pytest.raises(StoreUnavailableError, match=r"runs were removed: .*disk full"):
        await note_sweep(Telling(None, CommandFailed("disk full")), Kept.RUNS, NOW)
