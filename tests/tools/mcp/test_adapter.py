"""Calls of MCP tools in a tool worker."""

import pytest

from owlclaw_ray.domain.tool import Effect
from owlclaw_ray.domain.tool_call import Stage
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.mcp.adapter import McpTools
from owlclaw_ray.tools.mcp.api import McpCatalog, McpProblem, McpTrouble
from owlclaw_ray.tools.mcp.options import Annotations, Command, McpServerOptions
from owlclaw_ray.tools.mcp.server_tools import offering_of
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.builtin.conftest import invocation

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FILES = McpServerOptions("files", Command(("files",)), Annotations.TRUST)


def offered(*names):
    listed = [{"name": name, "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}} for name in names]
    return offering_of(FILES, listed).definitions


class Servers:
    """Implements McpServers with what a test says."""

    def __init__(self):
        self.offered = McpCatalog("1", {"files": offered("read")}, settled=True)
        self.answer = {"content": [{"type": "text", "text": "hello"}]}
        self.calls = []

    def catalog(self, known):
        if self.offered is None:
            raise RuntimeUnavailableError("there is no pool")
        return None if known == self.offered.version else self.offered

    def call(self, call):
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class World:
    def __init__(self, folder):
        self.clock, self.servers, self.artifacts = ManualClock(), Servers(), ArtifactFolder(folder)
        tools = McpTools(self.servers, self.artifacts, self.clock.monotonic)
        self.executor = LocalExecutor(ToolSources((), live=tools), self.clock, self.artifacts)

    def call(self, tool="mcp.files.read", arguments='{"path": "a"}', **more):
        return self.executor.run_one(invocation(tool, arguments=arguments, **more)).result


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_call_goes_to_the_server_by_the_name_that_it_gave(world):
    result = world.call(timeout=10.0)

    assert (result.content, result.error, result.metadata) == ("hello", None, {"server": "files"})
    (call,) = world.servers.calls
    assert (call.server, call.tool, call.arguments, call.seconds) == ("files", "read", {"path": "a"}, 9.0)


def test_arguments_are_checked_before_the_server_is_asked(world):
    """tool-registry: the core validates arguments before the handler runs."""
    error = world.call(arguments='{"path": 3}').error

    assert error.type == "invalid_arguments"
    assert "path: given 3; allowed: string" in error.message
    assert world.servers.calls == []


def test_tools_that_a_server_adds_and_takes_away_are_known_a_second_later(world):
    assert world.call("mcp.files.write").error.type == "tool_not_available"

    world.servers.offered = McpCatalog("2", {"files": offered("write")}, settled=True)
    assert world.call("mcp.files.write").error.type == "tool_not_available"
    world.clock._elapsed += 1.0

    assert world.call("mcp.files.write").content == "hello"
    assert world.call("mcp.files.read").error.type == "tool_not_available"


def test_a_tool_of_a_server_that_was_never_reached_says_that_it_is_not_there(world):
    world.servers.offered = McpCatalog("0")

    error = world.call().error

    assert (error.type, error.retryable) == ("server_unavailable", True)
    assert error.message == "the MCP server files is not there: it is down, or was just started. Try again later."


def test_a_call_that_nobody_has_looked_at_is_not_made_although_the_tool_is_there_by_now(world):
    world.servers.offered, offered = None, world.servers.offered
    definition = world.executor._sources.definition

    def late(tool, tenant):
        found = definition(tool, tenant)
        world.servers.offered = offered
        return found

    world.executor._sources.definition = late
    outcome = world.executor.run_one(invocation("mcp.files.read", arguments='{"path": "a"}', stage=Stage.CHECK))

    assert outcome.result.error.type == "server_unavailable"
    assert world.servers.calls == []


def test_a_call_is_looked_at_by_its_arguments_before_anybody_is_asked(world):
    checked = world.executor.run_one(invocation("mcp.files.read", arguments='{"path": "a"}', stage=Stage.CHECK))
    wrong = world.executor.run_one(invocation("mcp.files.read", arguments="{}", stage=Stage.CHECK))

    assert checked.checked.target == '{"path":"a"}'
    assert wrong.result.error.type == "invalid_arguments"
    assert world.servers.calls == []


def test_images_are_kept_with_the_agent_s_artifacts(world):
    world.servers.answer = {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]}
    called = invocation("mcp.files.read", arguments='{"path": "a"}')

    (image,) = world.executor.run_one(called).result.content

    kept = world.artifacts.get(called.agent, ArtifactId(image["artifact_ref"]["artifact_id"]))
    assert (kept.media_type, kept.content) == ("image/png", b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(
    ("trouble", "effect", "type_", "retryable"),
    [
        (McpTrouble.NOT_SENT, Effect.ONCE, "server_unavailable", True),
        (McpTrouble.LOST, Effect.IDEMPOTENT, "server_unavailable", True),
        (McpTrouble.LOST, Effect.ONCE, "uncertain", False),
        (McpTrouble.LATE, Effect.PURE, "timeout", True),
        (McpTrouble.LATE, Effect.ONCE, "timeout", False),
        (McpTrouble.UNKNOWN_TOOL, Effect.PURE, "tool_not_available", False),
        (McpTrouble.BAD_ARGUMENTS, Effect.PURE, "invalid_arguments", False),
        (McpTrouble.REFUSED, Effect.PURE, "execution_failed", False),
    ],
)
def test_what_goes_wrong_is_told_by_what_may_have_happened(world, trouble, effect, type_, retryable):
    world.servers.answer = McpProblem(trouble, "it went away.", {"why": "so"})

    error = world.call(effect=effect).error

    assert (error.type, error.retryable, error.details) == (type_, retryable, {"why": "so"})
    assert ("may or may not have acted" in error.message) is (
        effect is Effect.ONCE and trouble is not McpTrouble.NOT_SENT
    )


def test_without_the_pool_known_tools_answer_that_the_server_cannot_be_reached(world):
    assert world.call().content == "hello"
    world.clock._elapsed += 5.0
    world.servers.offered, world.servers.answer = None, RuntimeUnavailableError("it is being restarted")

    error = world.call(effect=Effect.IDEMPOTENT).error

    assert (error.type, error.retryable) == ("server_unavailable", True)
    assert "it is being restarted" in error.message
