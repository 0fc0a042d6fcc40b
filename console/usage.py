"""What runs and tools came to, today and in the last days."""

from __future__ import annotations

from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from console.charts import last, runs_chart
from console.pages import Pages, page
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.usage import Grain, RunCounts, UsageBy
from owlclaw_ray.errors import Problem
from owlclaw_ray.store.usage import RunUsage, ToolUsage
from serve.errors import InvalidRequestError
from serve.parameters import principal_of, tenant_of

_SPANS = (1, 7, 30)
_AGENTS, _TOOLS = 50, 200


class UsagePages(Pages):
    """`/console/usage`."""

    place: ClassVar[str] = "usage"

    @page("GET /console/usage", "runs:read", "days")
    async def console_usage(self, request: Request) -> Response:
        """Show which agents cost most, and which tools are slow or fail."""
        tenant, days = tenant_of(request), _days_of(request)
        if principal_of(request).patterns:
            return await self.shown(request, "usage.html", narrowed=True, days=days, spans=_SPANS)
        since, until = last(self._now(), Grain.DAY, days)
        total = await self._runtime.run_usage(RunUsage(tenant, since, until))
        agents = await self._runtime.run_usage(RunUsage(tenant, since, until, by=UsageBy.AGENT, limit=_AGENTS + 1))
        tools = await self._runtime.tool_usage(ToolUsage(tenant, since, until, limit=_TOOLS + 1))
        grain = Grain.DAY if days > _SPANS[1] else Grain.HOUR
        buckets = await self._runtime.run_usage(RunUsage(tenant, since, until, grain))
        return await self.shown(
            request,
            "usage.html",
            narrowed=False,
            days=days,
            spans=_SPANS,
            nano=NANO,
            total=total[0].counts if total else RunCounts(),
            chart=runs_chart(f"Runs by {grain.value} in which they ended", buckets, since, until, grain),
            agents=agents[:_AGENTS],
            more_agents=len(agents) > _AGENTS,
            more_tools=len(tools) > _TOOLS,
            tools=sorted(tools[:_TOOLS], key=lambda each: -each.counts.mean_ms),
        )


def _days_of(request: Request) -> int:
    text = request.query_params.get("days", "") or str(_SPANS[0])
    if text not in map(str, _SPANS):
        right = ", ".join(map(str, _SPANS))
        raise InvalidRequestError([Problem("query days", f"is {text!r}", f"one of {right}")])
    return int(text)
