"""Tools that come and go: what a host knows of them."""

import asyncio

from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.mcp.api import McpCatalog
from owlclaw_ray.tools.mcp.live_tools import SETTLE_SECONDS, START_SECONDS, McpCatalogWatcher


def tool(name, description=""):
    return ToolDefinition(name, description, {"type": "object"}, Permission.WRITE, Effect.ONCE)


class Node:
    """Implements McpNode: says what a test puts into its mouth."""

    def __init__(self):
        self.said = asyncio.Queue()
        self.known = []

    async def catalog(self, known, seconds):
        self.known.append(known)
        answer = await self.said.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def servers(self):
        return ()


class World:
    def __init__(self):
        self.node, self.clock, self.learned = Node(), ManualClock(), []
        self.live = McpCatalogWatcher(self.node, self.clock, self.learned.append)
        self.following = asyncio.create_task(self.live.follow())

    async def say(self, *answers):
        for answer in answers:
            self.node.said.put_nowait(answer)
        await self.clock.advance(2.0)

    async def end(self):
        self.following.cancel()
        await asyncio.wait([self.following])


async def test_a_host_learns_what_changes_and_keeps_what_a_server_offered_before():
    world = World()
    await world.say(
        McpCatalog("a-1", {"files": (tool("mcp.files.read"),)}),
        None,
        RuntimeUnavailableError("the pool is being restarted"),
        ValueError("what nobody foresaw"),
        McpCatalog("b-0", {}),
        McpCatalog("b-1", {"web": (tool("mcp.web.get"),)}),
        McpCatalog("b-2", {"web": (), "files": (tool("mcp.files.read"),)}),
    )
    await world.end()

    assert [[each.name for each in tools] for tools in world.learned] == [
        ["mcp.files.read"],
        ["mcp.files.read", "mcp.web.get"],
        ["mcp.files.read"],
    ]
    assert world.node.known == ["", "a-1", "a-1", "a-1", "a-1", "b-0", "b-1", "b-2"]


async def test_the_first_runs_wait_until_every_server_had_its_try():
    world = World()
    waiting = asyncio.create_task(world.live.settled())
    await world.say(McpCatalog("a-1", {}))
    assert not waiting.done()
    await world.say(McpCatalog("a-2", {}, settled=True))
    await world.end()

    assert waiting.done()


async def test_a_server_that_hangs_holds_the_first_runs_up_for_a_moment_and_no_later_ones():
    world = World()
    first = asyncio.create_task(world.live.settled())
    await world.clock.advance(SETTLE_SECONDS)
    assert first.done()
    later = asyncio.create_task(world.live.settled())
    await world.clock.settle()
    await world.end()

    assert later.done()


def test_offered_tools_stand_beside_the_fixed_ones_and_never_in_their_place():
    catalog = ToolCatalog([tool("shop.order"), tool("mcp.files.read", "fixed")])
    before = catalog.select(["shop.order", "mcp.files.read", "mcp.files.write"], DEFAULT_TENANT)

    known = catalog.offer([tool("mcp.files.read", "offered"), tool("mcp.files.write"), tool("mcp.files__read")])
    after = catalog.select(["shop.order", "mcp.files.read", "mcp.files.write"], DEFAULT_TENANT)
    catalog.offer([])

    assert [each.name for each in known] == ["shop.order", "mcp.files.read", "mcp.files.write"]
    assert before.names == ("mcp.files.read", "shop.order")
    assert after.names == ("mcp.files.read", "mcp.files.write", "shop.order")
    assert after.by_wire_name["mcp__files__read"].description == "fixed"
    assert catalog.names(DEFAULT_TENANT) == ("mcp.files.read", "shop.order")


async def test_a_run_that_goes_on_waits_for_the_server_whose_tools_it_was_begun_with():
    world = World()
    await world.say(McpCatalog("a-1", {}, settled=True))
    going_on = asyncio.create_task(world.live.settled(["remember", "mcp.slow.act"]))
    fresh = asyncio.create_task(world.live.settled())
    await world.clock.advance(9.0)
    assert (fresh.done(), going_on.done()) == (True, False)

    await world.say(McpCatalog("a-2", {"other": (tool("mcp.other.get"),)}))
    assert not going_on.done()
    await world.say(McpCatalog("a-3", {"slow": (tool("mcp.slow.act"),)}))
    assert going_on.done()

    in_vain = asyncio.create_task(world.live.settled(["mcp.gone.act"]))
    await world.clock.advance(START_SECONDS)
    assert in_vain.done()
    await world.end()
