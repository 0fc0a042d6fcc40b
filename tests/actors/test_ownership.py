"""Whether a call that comes late is still its host's to make: a real store, and a real worker's inside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from actors import tool_worker
from actors.ownership import ANSWER_SECONDS, OwnershipCheck
from actors.plan import WorkerPlan
from owlclaw_ray.domain.tool import Effect, ToolResult
from owlclaw_ray.domain.tool_call import CONFIRM_SECONDS, Ownership, ToolOutcome
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.machine import boot_id
from owlclaw_ray.store.commands import Appended, CancelRun, ClaimRun, CommandFailed
from owlclaw_ray.store.sql.factory import open_store
from tests.actors.test_tool_task import call
from tests.contracts.store_commands import AGENT, NOW, activation, ending, submission

BEGAN = datetime(2026, 11, 28, tzinfo=UTC).timestamp()


def owned(at=BEGAN, epoch=1, machine="here"):
    return replace(call(Effect.IDEMPOTENT), agent=AGENT, run_id=RunId("run_1"), owned=Ownership(epoch, at, machine))


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="keeper-1")
    await opened.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
    yield opened
    await opened.close()


async def refusal(store, invocation, seconds=CONFIRM_SECONDS):
    """Return what a worker is told so many seconds after BEGAN, and how often it asked."""
    loop, asked = asyncio.get_running_loop(), []

    def commit(commands):
        asked.append(commands)
        return asyncio.run_coroutine_threadsafe(store.apply(commands), loop).result()

    check = OwnershipCheck(commit, monotonic=lambda: BEGAN + seconds, machine="here")
    return await asyncio.to_thread(check.refusal, invocation), len(asked)


async def test_a_call_that_comes_in_time_asks_nobody_and_one_that_comes_late_asks_and_may_be_made(store):
    assert await refusal(store, owned(), CONFIRM_SECONDS - 0.01) == ("", 0)
    assert await refusal(store, owned()) == ("", 1)


async def test_a_call_of_another_machine_asks_whatever_the_clocks_say(store):
    assert await refusal(store, owned(machine="there"), 0.0) == ("", 1)


async def test_a_late_call_of_a_run_that_was_taken_over_is_refused(store):
    await store.apply([activation("act_2")])

    assert await refusal(store, owned()) == ("its run goes on elsewhere", 1)
    assert await refusal(store, owned(epoch=2)) == ("", 1)


async def test_a_late_call_of_a_run_that_was_asked_to_end_is_refused(store):
    await store.apply([CancelRun(AGENT.tenant, RunId("run_1"), NOW)])

    assert await refusal(store, owned()) == ("its run was asked to end", 1)


async def test_a_late_call_of_a_run_that_is_over_is_refused_though_its_agent_is_still_the_hosts(store):
    await store.apply([ending("run_1", 1, claim_next=False)])

    assert await refusal(store, owned()) == ("its run is over", 1)


async def test_a_call_of_nobodys_run_asks_nobody(store):
    assert await refusal(store, call(Effect.PURE)) == ("", 0)


def test_an_answer_that_says_neither_is_no_leave():
    check = OwnershipCheck(lambda _: [CommandFailed("disk full")], monotonic=lambda: BEGAN + 9, machine="here")

    with pytest.raises(StoreUnavailableError, match="disk full"):
        check.refusal(owned())


def test_a_store_that_does_not_answer_is_not_asked_for_each_call_of_a_task():
    asked, now = [], [BEGAN + 9]

    def commit(commands):
        asked.append(commands)
        if len(asked) == 1:
            raise RuntimeUnavailableError("no answer within 5 s")
        return [Appended()]

    check = OwnershipCheck(commit, monotonic=lambda: now[0], machine="here")
    for _ in range(3):
        with pytest.raises(RuntimeUnavailableError, match="no answer"):
            check.refusal(owned())
    assert len(asked) == 1
    now[0] += ANSWER_SECONDS
    assert (check.refusal(owned()), check.refusal(owned())) == ("", "")
    assert len(asked) == 3


class Worker:
    """A worker's process, in which calls are noted instead of made, and of which the store says what a test says."""

    def __init__(self, plan, silent):
        self.plan, self.made, self.reasons = plan, [], []
        self.inside = tool_worker._Worker(plan, SimpleNamespace(run_one=self._make), None, None, self, silent)

    def refusal(self, invocation):
        reason = self.reasons.pop(0)
        if isinstance(reason, Exception):
            raise reason
        return reason

    def _make(self, invocation):
        self.made.append(invocation.call_id)
        return ToolOutcome(ToolResult(invocation.call_id, "done"), 1)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    with (tmp_path / "silent").open("w") as silent:
        made = Worker(plan, silent)
        monkeypatch.setitem(tool_worker._WORKERS, plan, made.inside)
        yield made


def test_each_call_of_a_task_is_looked_at_before_it_begins_and_the_others_are_made(worker):
    worker.reasons = ["", "its run goes on elsewhere", "", RuntimeUnavailableError("it starts"), KeyError("odd"), ""]

    outcomes = tool_worker.execute(worker.plan, [call(Effect.IDEMPOTENT, number=number) for number in range(6)])

    assert worker.made == ["call_0", "call_2", "call_5"]
    assert [each.result.call_id for each in outcomes] == [f"call_{number}" for number in range(6)]
    refused, unknown = outcomes[1].result.error, outcomes[3].result.error
    assert (refused.type, refused.retryable) == ("not_executed", False)
    assert refused.message == "trial.act was not made: its run goes on elsewhere"
    assert (unknown.type, unknown.retryable) == ("execution_failed", True)
    assert unknown.message == "trial.act did not run: whose its run is could not be asked: it starts"
    assert "odd" in outcomes[4].result.error.message


def test_another_process_of_the_machine_has_the_same_boot_id():
    code = "from owlclaw_ray.kernel.machine import boot_id; print(boot_id())"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        == boot_id()
    )
