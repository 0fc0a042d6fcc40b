"""Tools as agents know them, the MCP servers that some of them come from, and how calls of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from console.pages import Pages, page
from console.text import pretty
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.telemetry.metrics.commit_metrics import OK
from owlclaw_ray.tools.mcp.api import McpServerView

_CALLS, _SECONDS = "owlclaw_tool_calls_total", "owlclaw_tool_call_seconds"


class ToolCallCount(Struct):
    """How calls of a tool ended since the processes that count them began."""

    calls: int = 0
    failed: int = 0
    errors: dict[str, int] = {}
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Milliseconds of a call."""
        return 1_000 * self.seconds / self.calls if self.calls else 0.0


class ShownTool(Struct, frozen=True):
    """A tool as a row."""

    definition: ToolDefinition
    schema: str
    use: ToolCallCount


class ToolPages(Pages):
    """`/console/tools`, for operators: what the settings turn on is for all tenants."""

    place: ClassVar[str] = "tools"

    @page("GET /console/tools", "system:read", "q")
    async def console_tools(self, request: Request) -> Response:
        """Show tools and MCP servers."""
        wanted = request.query_params.get("q", "").strip()
        servers: Sequence[McpServerView] = ()
        unreachable = ""
        try:
            servers = await self._runtime.mcp_servers()
        except RuntimeUnavailableError as error:
            unreachable = str(error)
        uses = tool_uses(await self._runtime.metrics())
        tools = sorted(self._surroundings.facts.tools, key=lambda each: each.name)
        return await self.shown(
            request,
            "tools.html",
            tools=[
                ShownTool(each, pretty(each.input_schema), uses.get(each.name, ToolCallCount()))
                for each in tools
                if wanted.lower() in f"{each.name} {each.description}".lower()
            ],
            servers=[(each, [(name, uses.get(name, ToolCallCount())) for name in each.tools]) for each in servers],
            unreachable=unreachable,
            wanted=wanted,
        )


def tool_uses(families: Iterable[MetricFamily]) -> dict[str, ToolCallCount]:
    """Return how calls of each tool ended, by its name, as the metrics of the runtime have it."""
    uses: dict[str, ToolCallCount] = {}
    for sample in (each for family in families for each in family.samples):
        labels = dict(sample.labels)
        use = uses.setdefault(labels.get("tool", ""), ToolCallCount())
        if sample.name == _CALLS:
            use.calls += int(sample.value)
            if labels["error"] != OK:
                use.failed += int(sample.value)
                use.errors[labels["error"]] = use.errors.get(labels["error"], 0) + int(sample.value)
        elif sample.name == f"{_SECONDS}_sum":
            use.seconds += sample.value
    return uses
