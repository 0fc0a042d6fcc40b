"""The benchmark of runs by commits on a server of its own, in short."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.postgresql_runs import Round, measure, report

pytestmark = pytest.mark.postgres


@pytest.mark.skipif(shutil.which("pgbench") is None, reason="needs pgbench")
async def test_runs_and_commits_take_turns_and_both_cost_the_server_something():
    found = await measure(rounds=1, seconds=1.0, agents=4)

    for [each] in found.values():
        assert each.done > 0
        assert each.commits > 0
        assert each.cpu > 0


def test_the_report_has_medians_of_the_ratios_of_rounds_that_were_measured_together():
    commits = [Round(1_000, 1.0, 1_000, 0.1), Round(2_000, 1.0, 2_000, 0.2), Round(4_000, 1.0, 4_000, 0.4)]
    runs = [Round(100, 1.0, 200, 0.1), Round(100, 1.0, 200, 0.2), Round(400, 1.0, 800, 1.2)]

    said = report({"runs": runs, "pgbench": commits})

    assert "pgbench: 2000 a second, 0.100 CPU-ms of PostgreSQL each" in said
    assert "2.00 commits each" in said
    assert "CPU of a run by that of a commit of pgbench: 20.00 (10.00 to 30.00)" in said
    assert "runs/s by commits/s, of one Keeper's process: 0.10 (0.05 to 0.10)" in said
