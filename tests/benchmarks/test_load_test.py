import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import load_test
from benchmarks.load_test import figures, plots, progress, statistics_of, told
from benchmarks.processes import clean_environment
from owlclaw_ray.client import SyncClient
from tests.serve.conftest import api, runtime, server

__all__ = ["api", "runtime", "server"]

LOCUSTFILE = Path(load_test.__file__).parent / "locustfile.py"
STATISTICS = """\
Type,Name,Request Count,Failure Count,Median Response Time,Requests/s,Failures/s,50%,95%,99%
POST,POST …/triggers,600,0,5,20.5,0,5,12,30
POST,POST …/triggers?wait,200,1,20,6.8,0,20,1001,1500
,Aggregated,800,1,7,27.3,0,7,40,1000
""".splitlines()
HISTORY = """\
Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,95%,Total Request Count,Total Failure Count
1700000000,0,,Aggregated,0.000000,0.000000,N/A,N/A,0,0
1700000001,10,,Aggregated,0.000000,0.000000,6,9,12,0
1700000001,10,POST,POST …/triggers,0.000000,0.000000,6,9,10,0
1700000003,50,,Aggregated,31.200000,0.000000,7,11,90,1
""".splitlines()


def by_name(rows):
    return {each.name: each for each in figures(rows)}


def test_failures_and_the_latency_of_triggers_are_judged():
    found = by_name(statistics_of(STATISTICS))

    assert (found["requests_per_second"].value, found["failed_requests"].value) == (27.3, 0.125)
    assert {name: each.met for name, each in found.items() if each.goal} == {
        "failed_requests": False,
        "p95_ms, POST …/triggers": True,
        "p95_ms, POST …/triggers?wait": False,
    }


def test_a_load_without_requests_meets_nothing():
    total = "Name,Request Count,Failure Count,Requests/s,50%,95%,99%\nAggregated,0,0,0.0,N/A,N/A,N/A".splitlines()

    assert [each.met for each in figures(statistics_of(total)) if each.goal] == [False]


def test_progress_is_told_from_the_last_line_about_all_requests():
    assert list(told(HISTORY)) == ["50 users, 90 requests, 31/s, 1 failed"]
    assert list(told(HISTORY[:1])) == []


def test_progress_ends_with_the_process(tmp_path):
    history = tmp_path / "history.csv"
    history.write_text("\n".join(HISTORY))

    class Process:
        waits = iter([subprocess.TimeoutExpired("locust", 5), subprocess.TimeoutExpired("locust", 5), None])

        def wait(self, _seconds):
            if error := next(self.waits):
                raise error

    assert list(progress(Process(), history)) == ["50 users, 90 requests, 31/s, 1 failed"] * 2


def test_the_plots_show_the_time_from_the_first_request_on():
    rate, latency = plots(list(csv.DictReader(HISTORY)))

    assert (rate.series[0].x, rate.series[0].y) == ((0.0, 2.0), (0.0, 31.2))
    assert [(each.name, each.y) for each in latency.series] == [("p50", (6.0, 7.0)), ("p95", (9.0, 11.0))]
    assert plots([]) == ()


def locust(host, seconds, *options):
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(LOCUSTFILE),
        "--headless",
        "-u",
        "4",
        "-r",
        "4",
        "-t",
        f"{seconds}s",
    ]
    return subprocess.run(
        [*command, "--host", host, *options], capture_output=True, text=True, check=False, env=clean_environment()
    )


@pytest.mark.long
def test_users_of_a_server_do_all_that_there_is_to_do_and_nothing_fails(server, tmp_path):
    ended = locust(server, 4, "--csv", str(tmp_path / "load"), "--keys", "3")

    assert ended.returncode == 0, ended.stderr
    rows = statistics_of((tmp_path / "load_stats.csv").read_text(encoding="utf-8").splitlines())
    assert rows["POST …/triggers"]["requests"] > 0
    assert rows["Aggregated"]["failures"] == 0
    with SyncClient(server) as client:
        triggered = {agent["agent"] for agent in client.agents() if ":" in agent["agent"]}
    assert triggered
    assert triggered <= {"assistant:0", "assistant:1", "assistant:2"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--agent", "nobody"], "there is no usable agent 'nobody'; there are .*assistant"),
        (["--host", "http://127.0.0.1:9"], "no server at http://127.0.0.1:9: .*refused"),
    ],
)
def test_a_load_that_cannot_begin_says_why_and_ends_with_code_2(server, options, why):
    ended = locust(server, 600, *options)

    assert ended.returncode == 2
    assert re.search(why, ended.stderr)
