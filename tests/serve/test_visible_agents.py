from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.visible_agents import visible_agents
from tests.serve.double import MemoryRuntime

AGENTS = ("assistant:a", "assistant:ab", "assistant:b", "patient", "patient:a", "patient:aa", "patient:b")


class Counted(MemoryRuntime):
    """Knows how many agents it was asked for, and has returned."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.returned: list[int] = []

    async def agents(self, *args, **more):
        found = await super().agents(*args, **more)
        self.returned.append(len(found))
        return found


@pytest.fixture
async def runtime():
    runtime = Counted()
    await trigger(runtime, AGENTS)
    return runtime


async def trigger(runtime: MemoryRuntime, agents: Iterable[str]) -> None:
    for each in agents:
        await runtime.submit(AgentRef.parse(each), Trigger(TriggerKind.API, None))


def narrowed(*patterns: str):
    return replace(LOCAL, patterns=tuple(f"agent:{each}" for each in patterns))


async def pages(runtime, principal, limit, **more) -> list[list[str]]:
    found, after = [], ""
    while True:
        page = await visible_agents(runtime, principal, limit, after, **more)
        found.append([each.agent.agent_id for each in page.agents])
        if page.next_after is None:
            return found
        assert page.next_after == found[-1][-1], "it names the last agent of the page, and no other"
        after = page.next_after


PATTERNS = [
    (),
    ("*",),
    ("patient:*",),
    ("patient*", "patient:*", "patient"),
    ("patient", "assistant:a*"),
    ("patient:a", "patient:a*", "assistant:b"),
    ("nobody", "patient:nobody", "patient:b"),
    ("patient:b", "patient", "assistant:ab", "assistant:ab*"),
]


@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("more", [{}, {"prefix": "patient:a"}, {"prefix": "a"}, {"busy": True}, {"prefix": "x"}])
async def test_pages_have_each_agent_that_the_principal_sees_once_and_in_order(runtime, patterns, limit, more):
    principal = narrowed(*patterns)
    everything = await runtime.agents(LOCAL.tenant, **more)
    expected = [each.agent.agent_id for each in everything if principal.sees(each.agent)]

    found = await pages(runtime, principal, limit, **more)

    assert [each for page in found for each in page] == expected
    assert all(len(page) == limit for page in found[:-1]), "every page but the last one is full"


async def test_a_page_reads_no_agents_of_others_but_one_for_each_pattern(runtime):
    await trigger(runtime, (f"assistant:{number}" for number in range(300)))

    page = await visible_agents(runtime, narrowed("patient:b", "nobody", "patient:a*"), 100)

    assert [each.agent.agent_id for each in page.agents] == ["patient:a", "patient:aa", "patient:b"]
    assert runtime.returned == [0, 2, 1]
