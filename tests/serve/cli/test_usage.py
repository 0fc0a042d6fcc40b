from __future__ import annotations

import pytest

from owlclaw_ray.domain.agent import AgentRef
from tests.usage import ended, result


@pytest.fixture
async def filled(runtime):
    store, now = runtime.schedules, runtime._clock.now()
    await ended(store, AgentRef.parse("assistant:a"), now, result(0.75), [("look", 12_000, "timeout")])
    await ended(store, AgentRef.parse("patient"), now, result(2.0), [("send", 3, "")])


async def test_the_command_shows_agents_and_tools(owlclaw, filled):
    shown = owlclaw("usage").output
    assert shown.index("patient") < shown.index("assistant:a")
    assert "$2.0000" in shown
    assert "TIME" not in shown
    tools = owlclaw("usage", "--by", "tool").output
    assert tools.index("look") < tools.index("send")
    assert "12.0 s" in tools
    assert "--limit 1 left them out" in owlclaw("usage", "--limit", "1").output
    by_day = owlclaw("usage", "assistant:a", "--by", "none", "--grain", "day", "--days", "2").output
    assert ("TIME" in by_day, "$0.7500" in by_day) == (True, True)
    assert '"cost": 2.0' in owlclaw("usage", "--json").output
    wrong = owlclaw("usage", "--by", "week")
    assert (wrong.exit_code, "is none of" in wrong.output) == (2, True)


async def test_the_command_says_that_nothing_has_ended(owlclaw):
    assert "no run has ended since" in owlclaw("usage").output
    assert "no tool was called since" in owlclaw("usage", "--by", "tool").output
