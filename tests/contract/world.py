"""The API over the engine in one process, with its real store, behind a real HTTP server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.score import Score
from owlclaw_ray.domain.webhook import Mapping, SignatureForm, WebhookSource
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.settings import read_settings
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.webhooks.outbox import CallbackOptions
from serve.api import build_api
from serve.server_facts import ServerFacts
from serve.surfaces import surfaces

SECRET = "It's a Secret to Everybody"
GITHUB = WebhookSource(
    "github",
    (SECRET,),
    Mapping("assistant"),
    SignatureForm("X-Hub-Signature-256", prefix="sha256="),
)
PAYBACK = {"tool_calls": [{"name": "shop__refund", "arguments": {"order": "17"}}]}
STOCK = {"tool_calls": [{"name": "shop__stock", "arguments": {}}]}
SCRIPTS = {
    "assistant": {"then": {"text": "done"}},
    "cashier": {"turns": [PAYBACK]},
    "clerk": {"turns": [STOCK, {"text": "done"}]},
}
"""What the agents do: one is done at once, one waits for a person, one gets a result that becomes an artifact."""
BODY_LIMIT = 100_000

app = OwlClaw("shop")


@app.handler("refund", tags=["dangerous"])
def refund(order: str) -> str:
    """Pay money back."""
    return f"refunded {order}"


@app.tool("stock")
def stock() -> str:
    """Tell what there is, which is much."""
    return "tea " * 10_000


def _define(folder: Path) -> Path:
    for name, rule in SCRIPTS.items():
        agent = folder / name
        agent.mkdir(parents=True)
        (agent / "SOUL.md").write_text("You are calm.")
        (agent / "IDENTITY.md").write_text("# Name\n\n## My Capabilities\n- look\n")
        (agent / "agent.yaml").write_text('{"model": "scripted:script.yaml", "limits": {"queued_runs": 20}}')
        (agent / "script.yaml").write_text(json.dumps({"rules": [rule]}))
    return folder


class Scores:
    """Keeps what it is given."""

    async def keep(self, score: Score) -> None:
        assert score.trace_id


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[FastAPI]:
    async with in_process_runtime(
        agents_dir=_define(folder / "agents"),
        data_dir=folder / "data",
        app=app,
        webhook_sources=[GITHUB],
        defaults=Defaults(callbacks=CallbackRules()),
        callbacks=CallbackOptions((base64.b64encode(bytes(32)).decode(),), RetryPolicy()),
        scores=Scores(),
    ) as runtime:
        yield build_api(
            runtime,
            clock=SystemClock(),
            body_limit_bytes=BODY_LIMIT,
            keep_alive_seconds=0.1,
            surfaces=surfaces(),
            facts=ServerFacts(read_settings(folder, {}).in_force({}), declared_tools(app.sources())),
        )
