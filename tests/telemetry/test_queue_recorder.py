"""How long queues are is noted in a real store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from owlclaw_ray.domain.queue_length import LengthRange, Queue
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.store.commands import CommandFailed
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.usage import QueueMinutes
from owlclaw_ray.telemetry.queue_recorder import QueueRecorder
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_commands import submission

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)


async def no_calls():
    return {}


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path}/store.db", writer="keeper-1")
    yield opened
    await opened.close()


async def noted(store):
    return {each.queue: each.lengths for each in await store.read(QueueMinutes(AT))}


async def test_each_queue_is_noted_with_its_length(store):
    await store.apply([submission("run_1"), submission("run_2")])

    async def calls():
        return {Queue.WAITING_MODEL_CALLS: 5, Queue.WAITING_TOOL_CALLS: 6}

    await QueueRecorder(store, calls, ManualClock(AT)).tick()

    assert await noted(store) == {
        Queue.QUEUED_RUNS: LengthRange(2, 2),
        Queue.WAITING_RUNS: LengthRange(0, 0),
        Queue.WAITING_MODEL_CALLS: LengthRange(5, 5),
        Queue.WAITING_TOOL_CALLS: LengthRange(6, 6),
        Queue.PENDING_CALLBACKS: LengthRange(0, 0),
    }


async def test_what_nobody_says_is_not_noted_as_nothing(store):
    await QueueRecorder(store, no_calls, ManualClock(AT)).tick()

    assert Queue.WAITING_MODEL_CALLS not in await noted(store)


async def test_lengths_that_could_not_be_noted_are_an_error(store, monkeypatch):
    async def fail(_commands):
        return [CommandFailed("disk full")]

    monkeypatch.setattr(store, "apply", fail)

    with pytest.raises(StoreUnavailableError, match="disk full"):
        await QueueRecorder(store, no_calls, ManualClock(AT)).tick()


async def test_a_queue_that_only_a_newer_server_knows_is_left_out(store, tmp_path):
    await QueueRecorder(store, no_calls, ManualClock(AT)).tick()
    known = await noted(store)
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("UPDATE queue_minutes SET queue = 'dreams' WHERE queue = 'queued_runs'")

    assert known.keys() - (await noted(store)).keys() == {Queue.QUEUED_RUNS}
