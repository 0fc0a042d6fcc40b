from collections import Counter

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.governance import Governance, ToolLimit
from owlclaw_ray.ids import TenantId
from owlclaw_ray.policy.evaluators import version_for
from tests.policy.world import Rules, tool

TOOLS = tool("shop.pay.v1"), tool("shop.pay.v2"), tool("shop.payday")


async def test_an_agent_sees_the_version_that_its_definition_names_and_no_other():
    governed = Rules(Governance(tool_limits=(ToolLimit("shop.pay", versions=(("v2", 1),)),)), *TOOLS)

    assert (await governed.visible()).visible == ("shop.pay.v2", "shop.payday")
    assert await governed.reasons() == {"shop.pay.v1": ("version", "the agent's version of shop.pay is v2")}


async def test_a_version_that_there_is_not_leaves_the_agent_with_none():
    governed = Rules(Governance(tool_limits=(ToolLimit("shop.pay", versions=(("v3", 1),)),)), *TOOLS)

    assert (await governed.visible()).visible == ("shop.payday",)


def test_agents_split_as_the_shares_say_and_each_keeps_its_version():
    limit = ToolLimit("shop.pay", versions=(("v1", 80), ("v2", 20)))
    agents = [AgentRef.parse(f"watch:{number}", TenantId("t")) for number in range(1_000)]

    seen = [version_for(agent, limit) for agent in agents]

    assert seen == [version_for(agent, limit) for agent in agents]
    assert 750 < Counter(seen)["v1"] < 850
