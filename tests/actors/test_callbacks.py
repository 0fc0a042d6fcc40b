"""The Scheduler's actor sends callbacks, without Ray: it is a plain class."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from actors.runtime import callback_secrets
from actors.scheduler import SchedulerActor
from owlclaw_ray.client import verify_callback
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.callback import Callback, CallbackRules, CallbackStatus, callback_id_of
from owlclaw_ray.domain.run import Run, RunResult, RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.store.commands import CallbackStored
from owlclaw_ray.store.queries import DueCallbacks, RunById
from owlclaw_ray.webhooks.callback_secrets import tenant_secrets
from owlclaw_ray.webhooks.outbox import CallbackOptions
from tests.actors.test_scheduler import AGENT, NothingDue, scheduler
from tests.webhooks.receiver import receiving

__all__ = ["scheduler"]

AT, KEY = datetime(2026, 11, 22, 12, tzinfo=UTC), base64.b64encode(bytes(32)).decode()
RUN = Run(
    RunId("run_1"),
    1,
    AGENT,
    Trigger(TriggerKind.API),
    RunStatus.COMPLETED,
    AT,
    AT,
    AT,
    result=RunResult(RunStatus.COMPLETED, final_text="好"),
)


class OneDue(NothingDue):
    """A store in which one callback is due."""

    callback: Callback
    delivered: asyncio.Event

    async def read(self, query):
        match query:
            case DueCallbacks():
                return [self.callback] if self.callback.attempts == 0 else []
            case RunById():
                return RUN
        return await super().read(query)

    async def apply(self, commands):
        (command,) = commands
        OneDue.callback = command.callback
        if command.callback.status is CallbackStatus.DELIVERED:
            self.delivered.set()
        return [CallbackStored()]


@pytest.fixture
def plan(scheduler, monkeypatch):
    """The plan of a runtime with callbacks, whose secret is in the environment."""
    made = {}
    monkeypatch.setattr("tests.actors.test_scheduler.SchedulerActor", lambda plan: made.setdefault("plan", plan))
    scheduler(0.0)
    options = CallbackOptions(("${KEY_OF_THE_TEST}",), RetryPolicy(3, 10.0, 60.0))
    return replace(made["plan"], callbacks=options, defaults=Defaults(callbacks=CallbackRules(("127.0.0.0/8",))))


async def test_it_tells_of_runs_ends_signed_with_the_secret_of_its_environment(plan, monkeypatch):
    monkeypatch.setenv("KEY_OF_THE_TEST", KEY)
    monkeypatch.setattr("actors.scheduler.KeeperClient", OneDue)
    async with receiving() as receiver:
        OneDue.delivered = asyncio.Event()
        callback_id = callback_id_of("run_1", receiver.url)
        OneDue.callback = Callback(callback_id, AGENT, RunId("run_1"), receiver.url, AT, CallbackStatus.PENDING, 0, AT)
        actor = SchedulerActor(plan)
        await OneDue.delivered.wait()
        await actor.stop()

    (received,) = receiver.received
    now = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
    assert (
        verify_callback(received.headers, received.body, tenant_secrets([KEY], DEFAULT_TENANT), now)["data"][
            "final_text"
        ]
        == "好"
    )


def test_a_node_that_lacks_the_variable_shows_no_secrets_and_says_why(plan, monkeypatch, caplog):
    monkeypatch.delenv("KEY_OF_THE_TEST", raising=False)
    assert callback_secrets(plan) is None
    assert "shows no secrets of callbacks: webhooks.callbacks: the variable KEY_OF_THE_TEST is not set" in caplog.text

    monkeypatch.setenv("KEY_OF_THE_TEST", KEY)
    assert (callback_secrets(plan), callback_secrets(replace(plan, callbacks=None))) == ((KEY,), ())
