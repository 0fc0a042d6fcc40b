"""The logs of the worker that Hatchet rings: those of the runtime, in whatever process of it."""

import json
import subprocess
import sys

import pytest

SAYING = """
import logging, sys
from actors.hatchet_worker import configure_logs
from actors.logs import LogPlan
configure_logs(LogPlan(*sys.argv[1:]))
sdk = logging.getLogger("hatchet")
for number in range(3):
    sdk.info("run: start step: %d", number)
    sdk.warning(f"failed to send heartbeat ({number})")
    try:
        raise OSError("away")
    except OSError:
        sdk.exception(f"failed heartbeat ({number})")
"""


def said(level, form):
    made = subprocess.run([sys.executable, "-c", SAYING, level, form], capture_output=True, text=True, check=True)
    assert made.stdout == ""
    return made.stderr.splitlines()


@pytest.mark.parametrize(("level", "events"), [("error", 1), ("warning", 2), ("info", 2)])
def test_the_sdk_says_each_thing_once_without_traces_at_the_runtimes_level_in_its_form(level, events):
    lines = [json.loads(line) for line in said(level, "json")]

    assert [line["event"] for line in lines] == ["failed to send heartbeat (0)", "failed heartbeat (0)"][-events:]
    assert {line["logger"] for line in lines} == {"hatchet"}


def test_for_those_who_want_to_know_it_says_all():
    text = "\n".join(said("debug", "text"))

    assert text.count("run: start step") == text.count("Traceback") == 3
