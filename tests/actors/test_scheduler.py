"""The Scheduler's actor without Ray: it is a plain class."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import timedelta

import pytest

from actors.scheduler import SchedulerActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import TEXT, Artifact
from owlclaw_ray.domain.queue_length import Queue
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.schedules.heartbeat_schedules import HeartbeatScheduler
from owlclaw_ray.store.commands import NoteQueueLengths, QueueLengthsNoted, Swept
from owlclaw_ray.store.old_runs import ClocksOfSweep, SweepClocks
from owlclaw_ray.store.queries import ActiveRunCounts, NextDueTime, PendingCallbackCount
from owlclaw_ray.tools.artifact_home import ArtifactExpiry
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.webhooks.expiry import WebhookExpiry
from owlclaw_ray.webhooks.outbox import CallbackOptions
from tests.actors.plans import plan_in
from tests.actors.steered import SteeredActors

AGENT = AgentRef.parse("watch")
OLD, NEW = (Artifact(ArtifactId(f"art_{number:026x}"), TEXT, b"long") for number in (1, 2))


class NothingDue:
    """A store in which nothing is due."""

    applied = ()

    def __init__(self, namespace):
        del namespace

    async def read(self, query):
        if isinstance(query, ClocksOfSweep):
            return SweepClocks(None, None, None)
        if isinstance(query, ActiveRunCounts):
            return {RunStatus.QUEUED: 4, RunStatus.WAITING: 0}
        if isinstance(query, PendingCallbackCount):
            return 0
        return None if isinstance(query, NextDueTime) else ()

    async def apply(self, commands):
        NothingDue.applied += commands
        return [QueueLengthsNoted() if isinstance(each, NoteQueueLengths) else Swept() for each in commands]


class NoGateways:
    """No node has a model gateway."""

    def __init__(self, namespace):
        del namespace

    async def lengths(self):
        return {}


class NoKeepers:
    """No node has a Keeper that tells of schedules: there is no Ray here."""

    def __init__(self, namespace):
        del namespace

    async def __call__(self):
        return {}


@pytest.fixture
def folder(tmp_path):
    """The artifacts of an agent, one of which is of 1970."""
    folder = ArtifactFolder(tmp_path)
    folder.put(AGENT, OLD)
    [path] = tmp_path.rglob("art_*")
    os.utime(path, (0, 0))
    folder.put(AGENT, NEW)
    return folder


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr("actors.scheduler.configure", lambda _: None)
    monkeypatch.setattr("actors.scheduler.KeeperClient", NothingDue)
    monkeypatch.setattr("actors.scheduler.Keepers", NoKeepers)
    monkeypatch.setattr("actors.scheduler.WaitingCalls", NoGateways)
    monkeypatch.setattr(NothingDue, "applied", [])

    def make(days, callbacks=None, **more):
        return SchedulerActor(plan_in(tmp_path, artifact_days=days, callbacks=callbacks, **more))

    return make


async def test_it_removes_artifacts_that_are_over_their_days(folder, scheduler):
    actor = scheduler(30.0)
    while len(folder.listing(AGENT, 9)) == 2:
        await asyncio.sleep(0.001)
    await actor.stop()

    assert [each.artifact_id for each in folder.listing(AGENT, 9)] == [NEW.artifact_id]


async def test_webhooks_artifacts_and_runs_are_looked_at_without_days_too_for_tenants_that_have_their_own(
    scheduler, monkeypatch
):
    looked = {WebhookExpiry: [], ArtifactExpiry: [], RunExpiry: []}
    for kind, found in looked.items():

        async def tick(self, found=found):
            found.append(self._keep)
            return 0

        monkeypatch.setattr(kind, "tick", tick)
    for days in (0.0, 7.0):
        actor = scheduler(days, webhook_days=days, run_days=days)
        while not all(looked.values()):
            await asyncio.sleep(0.001)
        await actor.stop()

        assert [*looked.values()] == 3 * [[timedelta(days=days) if days else None]]
        for found in looked.values():
            found.clear()


async def test_it_notes_how_long_queues_are_whether_or_not_somebody_looks(scheduler, monkeypatch):
    monkeypatch.setattr("actors.scheduler.NOTE_SECONDS", 0.001)
    actor = scheduler(0.0)
    while len(noted := [each for each in NothingDue.applied if isinstance(each, NoteQueueLengths)]) < 2:
        await asyncio.sleep(0.001)
    await actor.stop()

    assert [each.lengths[Queue.QUEUED_RUNS] for each in noted[:2]] == [4, 4]


@pytest.mark.parametrize("environ", [{}, {"OUT": "short"}])
async def test_a_node_that_lacks_the_key_of_callbacks_fires_schedules_all_the_same_and_says_what_it_lacks(
    scheduler, monkeypatch, caplog, environ
):
    monkeypatch.setattr("actors.scheduler.os.environ", environ)

    actor = scheduler(0.0, CallbackOptions(("${OUT}",), RetryPolicy()))

    assert await actor.ready()
    await actor.stop()
    assert f"node {socket.gethostname()} sends no callbacks" in caplog.text
    assert "OUT" in caplog.text


async def test_the_scheduler_beside_a_superseded_directory_rests_and_does_so_when_that_is_gone(scheduler, monkeypatch):
    directory, made = SteeredActors(), []
    says = {"active": True}
    directory.answer = lambda _part, method: says[method]
    monkeypatch.setattr("actors.scheduler.NamedActor", directory.named_actor)
    monkeypatch.setattr("actors.scheduler.cluster_name", lambda _: "east")
    monkeypatch.setattr("actors.scheduler.RENEW_SECONDS", 0.001)

    async def tick(self):
        made.append("heartbeats")

    monkeypatch.setattr("actors.scheduler._MINUTE", 0.001)
    monkeypatch.setattr(HeartbeatScheduler, "tick", tick)
    actor = scheduler(0.0, store_url="postgresql://x")
    while not made:
        await asyncio.sleep(0.001)

    says["active"] = False
    await looks(directory, 3)
    made.clear()
    await looks(directory, 3)
    directory.dead.add(("directory", ""))
    await looks(directory, 3)

    assert made == []
    await actor.stop()


async def looks(directory, number):
    """Return when the Directory was asked so often again."""
    before = len(directory.asked)
    while len(directory.asked) < before + number:
        await asyncio.sleep(0.001)
