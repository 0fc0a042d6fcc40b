from __future__ import annotations

import pytest

from benchmarks.chaos.report import summary
from benchmarks.chaos.session import Plan
from benchmarks.chaos.strikes import Role
from benchmarks.chaos.trial import Keep, trial

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

ROLES = (Role.AGENT, Role.TOOL_WORKER, Role.KEEPER, Role.DIRECTORY, Role.GATEWAY)


def test_no_promise_is_broken_while_five_processes_are_killed(capsys):
    plan = Plan(seed=7, runs=150, kills=5, pace=2.0, quiet_seconds=90, roles=ROLES)

    report = trial(plan, Keep.BROKEN, print)

    assert report.kept, summary(report)
    assert report.content["accepted"] == 150
    assert sum(each.get("killed", 0) for each in report.content["strikes"].values()) == 5
