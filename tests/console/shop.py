"""A shop whose agents have something to tell, behind a console; also as a process: `python -m tests.console.shop FOLDER PORT`."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from serve.surfaces import surfaces

READY = "listening"
WAREHOUSE_SECONDS = 0.4
ANSWER = "Order {{ payload.order }} is packed. It leaves the warehouse tomorrow morning."
REFUSAL = "model gpt-buyer: the account has no credit left"


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": f"shop.{tool}", "arguments": arguments}


def _used(cost: float) -> dict[str, Any]:
    return {"prompt_tokens": 1840, "completion_tokens": 92, "cached_tokens": 1024, "cost": cost}


AGENTS: dict[str, dict[str, Any]] = {
    "clerk": {
        "rules": [
            {
                "when": {"focus": "order"},
                "turns": [
                    {
                        "text": "Let me see what was ordered.",
                        "tool_calls": [_call("look_up_order", order="{{ payload.order }}")],
                        "usage": _used(0.004),
                    },
                    {"tool_calls": [_call("ask_warehouse", order="{{ payload.order }}")], "usage": _used(0.004)},
                    {"text": ANSWER, "usage": _used(0.006)},
                ],
            },
            {"then": {"text": "Nothing is open."}},
        ]
    },
    "cashier": {
        "rules": [
            {
                "turns": [
                    {"tool_calls": [_call("refund", order="{{ payload.order }}", amount=40.0)], "usage": _used(0.02)},
                    {"text": "The customer has been told.", "usage": _used(0.02)},
                ]
            }
        ]
    },
    "buyer": {"rules": [{"turns": [{"error": {"type": "refused", "message": REFUSAL}}]}]},
    "analyst": {"rules": [{"turns": [{"text": "Sales are up by 4 %.", "usage": _used(0.85)}]}]},
}
app = OwlClaw("shop")


@app.handler("look_up_order")
def look_up_order(order: int) -> dict[str, Any]:
    """Look up an order."""
    return {"order": order, "customer": "Meyer", "items": ["kettle", "two cups"], "paid": 64.5}


@app.handler("ask_warehouse")
def ask_warehouse(order: int) -> dict[str, Any]:
    """Ask the warehouse where an order is. It takes its time."""
    threading.Event().wait(WAREHOUSE_SECONDS)
    return {"order": order, "state": "packed", "leaves": "tomorrow"}


@app.handler("refund", tags=["dangerous"])
def refund(order: int, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} of order {order}"


@app.handler("close_books", tags=["role:manager"])
def close_books() -> str:
    """Close the books of the month."""
    return "closed"


def _define(folder: Path) -> Path:
    for name, script in AGENTS.items():
        agent = folder / name
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "SOUL.md").write_text("You look after a small shop. You are calm and brief.")
        (agent / "IDENTITY.md").write_text(f"# {name.title()}\n\n## My Capabilities\n- orders\n")
        (agent / "agent.yaml").write_text('{"model": "scripted:script.yaml", "limits": {"queued_runs": 50}}')
        (agent / "script.yaml").write_text(json.dumps(script))
    return folder


@asynccontextmanager
async def opened_shop(folder: Path) -> AsyncIterator[FastAPI]:
    """The console over the engine, on the data that the folder has from before."""
    async with in_process_runtime(agents_dir=_define(folder / "agents"), data_dir=folder / "data", app=app) as runtime:
        yield build_api(
            runtime, clock=SystemClock(), body_limit_bytes=100_000, keep_alive_seconds=0.2, surfaces=surfaces()
        )


async def _serve(folder: Path, port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        async with opened_shop(folder) as api:
            config = uvicorn.Config(api, log_level="error", lifespan="off", ws="none")
            print(READY, flush=True)  # noqa: T201 - who started the process waits for it
            await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
