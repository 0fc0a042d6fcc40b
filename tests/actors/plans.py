"""Plans of a runtime of which a test needs little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from actors.plan import RuntimePlan, ToolSlots, WorkerPlan
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.kernel.retry import RetryPolicy


def plan_in(folder: Path | str = "", **changes: Any) -> RuntimePlan:
    """Return the plan of a runtime that keeps its data in the folder, changed like this."""
    plan = RuntimePlan(
        worker=WorkerPlan("", "", str(folder), "none", "test", agents_dir=str(folder)),
        store_url=f"sqlite:///{folder}/owlclaw.db" if folder else "",
        defaults=Defaults(),
        placement=Placement(),
        slots=ToolSlots(1),
        max_concurrent_models=1,
        model_retry=RetryPolicy(),
        catch_up_seconds=1,
        drain_seconds=1,
    )
    return replace(plan, **changes)
