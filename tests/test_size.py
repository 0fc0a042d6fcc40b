"""The figures of `make size`: what one run touches is found by doing one."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PASSED = (
    "serve/triggers.py",
    "owlclaw_ray/store/group_commit.py",
    "owlclaw_ray/runs/run_loop.py",
    "owlclaw_ray/tools/executor.py",
)
NOT_PASSED = ("serve/schedules.py", "owlclaw_ray/webhooks/outbox.py", "owlclaw_ray/tools/mcp/pool.py")


def test_the_files_and_classes_that_one_run_touches_are_counted_and_those_of_other_subjects_are_not():
    command = [sys.executable, "scripts/size.py", "--json"]
    figures = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    run = figures["one run"]
    assert {*PASSED} <= {*run["files"]}
    assert not {*NOT_PASSED} & {*run["files"]}
    assert "owlclaw_ray/domain/run.py:Run" in run["classes"]
    assert not [each for each in run["files"] if each.startswith("owlclaw_ray/testing/")]
    assert len(run["files"]) < figures["product"]["files"]
    assert figures["product"]["lines"] == sum(
        figures[name]["lines"] for name in ("owlclaw_ray", "actors", "serve", "console")
    )
