"""A cluster of three machines, one of which is lost: its agents run elsewhere within ten seconds, however it was lost.

The machines are network namespaces. What is asserted is the session's own report: from the blow to the journal's next entry of a run that
it interrupted, and how long a run that was queued meanwhile stood still.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import orjson
import pytest

from benchmarks.chaos.machines import why_not
from benchmarks.chaos.strikes import MACHINE_SHARES, MACHINES, schedule
from owlclaw_ray.testing.postgres import find_binaries

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(1_700)]

RUN_ELSEWHERE_SECONDS = 10.0
MOST_LOAD = 2.0
"""For each core: a machine on which more than that wants to run measures itself."""
LOST = tuple(role for role in MACHINE_SHARES if role in MACHINES)
RUNS, PACE, SEED = 600, 90, 2230
LONGEST_HOLD = 30.0


def report_of(folder, *arguments):
    """Return the report of a session, with its exit code and what it said."""
    if find_binaries() is None:
        pytest.skip("needs PostgreSQL's server binaries")
    if reason := why_not():
        pytest.skip(reason)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if load > MOST_LOAD:
        pytest.skip(f"{load:.1f} processes want to run on each core: times would be those of others")
    output = folder / "report.json"
    command = [sys.executable, "-m", "benchmarks.chaos", "--nodes", "3", "--slowness", "3", *arguments]
    ended = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, check=False)
    assert output.exists(), ended.stdout + ended.stderr
    return orjson.loads(output.read_bytes()), ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    roles = ",".join(role.value for role in LOST)
    arguments = ["--runs", str(RUNS), "--kills", str(len(LOST)), "--pace", str(PACE), "--seed", str(SEED)]
    return report_of(tmp_path_factory.mktemp("lost"), *arguments, "--roles", roles)


def test_each_strike_of_the_session_hits_a_cluster_that_is_whole_and_settled():
    strikes = schedule(SEED, RUNS, len(LOST), LOST)
    at = [strike.after_runs / RUNS * len(LOST) * PACE for strike in strikes]

    assert min(later - sooner for sooner, later in pairwise([0.0, *at])) > 2 * LONGEST_HOLD


def test_no_promise_is_broken_when_machines_are_lost_in_any_way(lost):
    report, code, said = lost

    assert code == 0, said
    assert {role: strike.get("stopped") for role, strike in report["strikes"].items()} == {
        role.value: 1 for role in LOST
    }


@pytest.mark.parametrize("role", LOST, ids=lambda role: role.value)
def test_all_agents_of_a_lost_machine_run_elsewhere_within_ten_seconds(lost, role):
    report, _, said = lost
    resumed = report["resume_seconds"].get(role.value, {"count": 0})
    waited = report["standstill_seconds"].get(role.value, {"count": 0})

    assert resumed["count"] + waited["count"], said
    assert max(resumed.get("max", 0.0), waited.get("max", 0.0)) <= RUN_ELSEWHERE_SECONDS, said
