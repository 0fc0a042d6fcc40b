from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.webhook import Mapping, SignatureForm, WebhookSource
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.webhooks.outbox import CallbackOptions
from serve.api import build_api
from tests.definitions.writing import write_definition
from tests.webhooks.receiver import receiving

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECRET = "s3cret"
KEY = base64.b64encode(bytes(range(32))).decode()
OPTIONS = CallbackOptions((KEY,), RetryPolicy(attempts=3, base=10.0, cap=60.0))
IMPATIENT = dataclasses.replace(OPTIONS, seconds=1.0)
SHOP = WebhookSource(
    "shop",
    (SECRET,),
    Mapping(
        "assistant:{body.customer}",
        {"order": "{body.order}", "event": "{header.X-Event}", "fixed": [1, None]},
        "order {body.order.id} of {body.customer}",
        dedupe="{header.X-Delivery}",
    ),
    SignatureForm("X-Signature", prefix="sha256="),
)
TIMED = WebhookSource(
    "timed",
    (SECRET,),
    Mapping("assistant"),
    SignatureForm("X-Signature", digest_key="v1", timestamp_key="t", signed="{timestamp}.{body}"),
)
ORDER = {"customer": "ada", "order": {"id": 17, "价格": 1.5}}


def signature(body, secret=SECRET):
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Installation:
    """A runtime with its HTTP API, over real files."""

    def __init__(self, runtime, http, clock):
        self.runtime, self.http, self.clock = runtime, http, clock

    async def send(self, body=ORDER, *, delivery="d1", source="shop", **headers):
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        given = {"X-Signature": signature(content), "X-Delivery": delivery, "X-Event": "paid"}
        return await self.http.post(f"/v1/webhooks/{source}", content=content, headers={**given, **headers})

    async def send_timed(self, body, at, secret=SECRET):
        digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
        return await self.http.post("/v1/webhooks/timed", content=body, headers={"X-Signature": f"t={at},v1={digest}"})

    async def deliveries(self, **query):
        return (await self.http.get("/v1/deliveries", params=query)).json()["deliveries"]

    async def callbacks(self, **query):
        return (await self.http.get("/v1/callbacks", params=query)).json()["callbacks"]

    async def runs(self):
        return (await self.http.get("/v1/runs?include=payload")).json()["runs"]

    async def trigger(self, **body):
        """Trigger the assistant and wait until the run is over."""
        answer = await self.http.post("/v1/agents/assistant/triggers?wait=30", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def tell(self, seconds=0.0):
        """Let time pass, and what is due be sent."""
        await self.clock.advance(seconds)
        told = await self.runtime.callbacks.tick()
        await self.runtime.callbacks.settled()
        return told


@pytest.fixture
def install(tmp_path):
    """Starts a runtime of the test's folder; a second one goes on where the first stopped."""
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")

    @asynccontextmanager
    async def start(*sources, networks=("127.0.0.0/8",), clock=None, options=OPTIONS):
        clock = clock or ManualClock(START)
        runtime_options = {
            "agents_dir": tmp_path / "agents",
            "data_dir": tmp_path / "data",
            "defaults": Defaults(callbacks=CallbackRules(networks)),
            "webhook_sources": sources or (SHOP, TIMED),
            "callbacks": options,
            "clock": clock,
        }
        async with in_process_runtime(**runtime_options) as runtime:
            api = build_api(runtime, clock=clock, body_limit_bytes=100_000)
            transport = httpx.ASGITransport(api)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8700") as http:
                yield Installation(runtime, http, clock)

    return start


@pytest.fixture
async def installation(install):
    async with install() as installed:
        yield installed


@pytest.fixture
async def impatient(install):
    """An installation that does not wait long for receivers that hang."""
    async with install(options=IMPATIENT) as installed:
        yield installed


@pytest.fixture
async def receiver():
    async with receiving() as listening:
        yield listening


def mapped(**fields):
    """The shop with another mapping."""
    return dataclasses.replace(SHOP, mapping=replace(SHOP.mapping, **fields))
