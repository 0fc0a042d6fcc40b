"""What the runs of a host are given, put together in one place for agent actors and for a runtime in one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.agent_tools import AGENT_TOOLS
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.domain.tool_call import ToolRunner
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.api import Models, TokenCounter
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.policy.permission import Approve
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.runs.compaction import ContextWindows
from owlclaw_ray.runs.family import Family
from owlclaw_ray.runs.run_loop import RunServices, at_once
from owlclaw_ray.runs.running_calls import unknown
from owlclaw_ray.tools.mcp.api import McpNode
from owlclaw_ray.tools.mcp.live_tools import McpCatalogWatcher
from owlclaw_ray.tools.names import BUILT_IN_NAMES


def host_services(
    tools: Sequence[ToolDefinition],
    *,
    models: Models,
    quotas: Callable[[TenantId], Awaitable[Quotas]],
    runner: ToolRunner,
    tokens: TokenCounter,
    limits: Sequence[ProviderLimits],
    context_windows: Sequence[tuple[str, int]],
    prices: Sequence[tuple[str, Price]],
    has_memories: Callable[[AgentRef], Awaitable[bool]],
    clock: Clock,
    family: Family | None = None,
    mcp: McpNode | None = None,
    approve: Approve | None = None,
) -> tuple[RunServices, McpCatalogWatcher | None]:
    """Return the services of a host's runs, and what follows the servers of `mcp`, for the caller to start with `follow`.

    `limits`, `context_windows` and `prices` are the settings of the same names below `models`.
    """
    catalog = ToolCatalog(tools, limits)
    governor = DefinitionGovernor(
        tools, clock, BUILT_IN_NAMES | AGENT_TOOLS, Prices(tokens.price, clock, prices), quotas
    )
    watcher = None
    if mcp is not None:
        watcher = McpCatalogWatcher(mcp, clock, lambda offered: governor.know(catalog.offer(offered)))

    services = RunServices(
        models=models,
        tools=runner,
        catalog=catalog,
        governor=governor,
        clock=clock,
        has_memories=has_memories,
        approve=approve,
        settled=at_once if watcher is None else watcher.settled,
        progress_of=unknown if mcp is None else mcp.progress,
        tokens=tokens,
        windows=ContextWindows(tokens, context_windows),
        family=family,
    )
    return services, watcher
