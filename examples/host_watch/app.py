"""An application that watches the machine it runs on: four states to look at, one handler that acts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import BaseModel, Field

from owlclaw_ray import OwlClaw, ToolContext

REPORTS = Path(__file__).parent / "reports"
GIB = 1024**3

app = OwlClaw("host_watch")


@app.state("load")
def load() -> dict[str, Any]:
    """Return the load averages, and the last minute's share of each core."""
    minute, five, fifteen = psutil.getloadavg()
    cores = psutil.cpu_count() or 1
    return {
        "load_1m": round(minute, 2),
        "load_5m": round(five, 2),
        "load_15m": round(fifteen, 2),
        "cores": cores,
        "per_core": round(minute / cores, 2),
    }


@app.state("memory")
def memory() -> dict[str, Any]:
    """Return the main memory and the swap."""
    main, swap = psutil.virtual_memory(), psutil.swap_memory()
    return {
        "total_gib": round(main.total / GIB, 1),
        "available_gib": round(main.available / GIB, 1),
        "used_percent": main.percent,
        "swap_used_percent": swap.percent,
    }


@app.state("disk", ttl=10)
def disk() -> dict[str, Any]:
    """Return the file system of this folder."""
    usage = psutil.disk_usage(str(Path(__file__).parent))
    return {
        "total_gib": round(usage.total / GIB, 1),
        "free_gib": round(usage.free / GIB, 1),
        "used_percent": usage.percent,
    }


@app.state("top_processes", ttl=5)
def top_processes() -> list[dict[str, Any]]:
    """Return the five processes that hold the most memory."""
    found = [
        {"pid": each.pid, "name": each.info["name"], "rss_mib": round(each.info["memory_info"].rss / 1024**2)}
        for each in psutil.process_iter(["name", "memory_info"])
        if each.info["memory_info"] is not None
    ]
    return sorted(found, key=lambda each: -each["rss_mib"])[:5]


class Figure(BaseModel):
    """One measured number."""

    name: Annotated[str, Field(max_length=80, description="What was measured, such as 'load, 1 minute'")]
    value: float
    unit: Annotated[str, Field(max_length=20, description="Such as % or GiB; empty for a plain number")] = ""


@app.handler("write_report", effect="idempotent", tags=["filesystem"])
def write_report(
    title: Annotated[str, Field(min_length=1, max_length=120)],
    verdict: Annotated[str, Field(min_length=1, max_length=1000)],
    figures: Annotated[list[Figure], Field(min_length=1, max_length=50)],
    context: ToolContext,
) -> dict[str, str]:
    """Write a Markdown report about this machine into the reports folder and return its path.

    Args:
        title: One line that says what the report is about.
        verdict: What the figures mean, in one or two sentences.
        figures: The measured numbers, as query_state returned them.
        context: Whose call it is; the runtime gives it.
    """
    rows = [f"| {each.name} | {each.value:g} {each.unit} |" for each in figures]
    lines = [
        f"# {title}",
        f"{context.agent_id}, {time.strftime('%Y-%m-%d %H:%M:%S')}, run {context.run_id}",
        verdict,
        "\n".join(["| figure | value |", "|---|---|", *rows]),
    ]
    REPORTS.mkdir(exist_ok=True)
    path = REPORTS / f"{context.agent_id.replace(':', '-')}-{context.idempotency_key[-12:]}.md"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return {"path": str(path)}
