from __future__ import annotations

import asyncio

import pytest

from actors.keeper_client import KeeperClient
from actors.keeper_run_updates import Keepers
from owlclaw_ray.ids import DEFAULT_TENANT, RandomIds, RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.followers import FollowerRegistry
from tests.actors.conftest import calls

pytestmark = pytest.mark.ray
SECONDS = 120


class Tail:
    """Reads a run to its end."""

    def __init__(self, follows, run_id, after=0):
        self.kinds, self.seqs = [], []
        self._heard = asyncio.Event()
        self.task = asyncio.create_task(self._read(follows, run_id, after))

    async def _read(self, follows, run_id, after):
        async with follows.follow(DEFAULT_TENANT, RunId(run_id), after) as follower:
            over = False
            while not over:
                watched = await follower.next()
                self.kinds += [entry.kind.value for entry in watched.entries]
                self.seqs += [entry.seq for entry in watched.entries]
                self._heard.set()
                over = watched.over

    async def until(self, kind):
        async with asyncio.timeout(SECONDS):
            while kind not in self.kinds:
                self._heard.clear()
                await self._heard.wait()


async def test_followers_are_woken_by_commits_alone_and_go_on_at_the_next_keeper(trial):
    """The slow poll is switched off: nothing but news of commits, and the loss of who tells them, lets anybody read."""
    agent = trial.define(
        "followed",
        calls(("trial.wait", {"gate": "followed-1"})),
        calls(("trial.wait", {"gate": "followed-2"})),
        {"text": "done"},
    )
    follows = FollowerRegistry(
        KeeperClient(trial.plan.namespace),
        Keepers(trial.plan.namespace),
        ids=RandomIds(),
        clock=SystemClock(),
        poll_seconds=1e9,
    )
    run_id = (await asyncio.to_thread(trial.client.submit, agent))["run_id"]
    first, second = Tail(follows, run_id), Tail(follows, run_id)
    await first.until("tool_started" if "tool_started" in first.kinds else "model_replied")

    trial.open_gate("followed-1")
    await first.until("tool_finished")
    seen = first.kinds.count("model_replied")
    trial.kill("KeeperActor")
    trial.open_gate("followed-2")

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(first.task, second.task)
    follows.close()
    assert seen < first.kinds.count("model_replied")
    assert first.kinds[-1] == second.kinds[-1] == "run_finished"
    assert first.seqs == second.seqs == list(range(1, len(first.seqs) + 1))
