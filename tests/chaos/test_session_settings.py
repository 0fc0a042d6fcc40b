"""What a session writes for the system that it starts."""

from __future__ import annotations

import json

from benchmarks.chaos import session
from benchmarks.chaos.session import Plan, carried_out
from benchmarks.chaos.workload import Shape, orders


async def nobody_suffers(*_):
    """Start nothing."""


def test_runs_with_long_calls_have_the_time_that_twenty_takeovers_repeat(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_suffer", nobody_suffers)
    shape = Shape(longest=32.0)

    with carried_out(Plan(seed=7, runs=200, kills=20, shape=shape), tmp_path, print):
        written = json.loads((tmp_path / "owlclaw.yaml").read_text())

    turns = max(len(order.payload["turns"]) for order in orders(7, 200, shape))
    assert written["limits"]["run_timeout"] > (turns + 20) * shape.longest
