"""Who is told of an accepted trigger."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.trigger import Admission, BusyPolicy
from owlclaw_ray.errors import QuotaReachedError, UserError
from owlclaw_ray.ids import KeyId, RunId, TenantId
from owlclaw_ray.runs.submissions import Submission, Submissions
from owlclaw_ray.store.commands import CommandFailed, QuotaReached, RunAccepted
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from tests.contracts.store_commands import submission

AGENT = AgentRef.parse("trader")
COMMAND = Submission(submission("run_1", AGENT), scripted=True)
ACCEPTED = RunAccepted(RunId("run_1"), 1, AGENT)


class Dispatcher:
    def __init__(self):
        self.woken, self.cancelled = [], []

    async def wake(self, agents):
        self.woken += agents

    async def cancel(self, agent, run_id):
        self.cancelled.append(run_id)


@pytest.mark.parametrize(
    ("outcome", "woken"),
    [
        (ACCEPTED, True),
        (replace(ACCEPTED, duplicate=True), False),
        (replace(ACCEPTED, follows=True), False),
        (replace(ACCEPTED, interrupted=RunId("run_0")), True),
    ],
)
async def test_an_agent_is_woken_for_a_new_run_unless_somebody_comes_for_an_earlier_one(outcome, woken):
    dispatcher = Dispatcher()
    submissions = Submissions(dispatcher=dispatcher, definitions=None, callbacks=None, clock=None, ids=None)

    told = submissions.concluded(COMMAND, outcome)
    await asyncio.sleep(0)

    assert told == replace(outcome, scripted=True)
    assert dispatcher.woken == [AGENT] * woken
    assert dispatcher.cancelled == [each for each in (outcome.interrupted,) if each]


def test_what_the_store_will_never_take_is_told_as_an_error_that_a_repetition_does_not_help():
    submissions = Submissions(dispatcher=Dispatcher(), definitions=None, callbacks=None, clock=None, ids=None)

    told = submissions.concluded(COMMAND, CommandFailed("SubmitRun: Recursion limit reached"))

    assert isinstance(told, UserError)


ACME = AgentRef.parse("trader", TenantId("acme"))
REACHED = QuotaReached("starts_a_minute", 5, datetime(2026, 1, 1, 0, 1, tzinfo=UTC))


@pytest.fixture
def submissions():
    clock = ManualClock()
    made = Submissions(dispatcher=Dispatcher(), definitions=None, callbacks=None, clock=clock, ids=SequentialIds())
    made.clock = clock
    return made


def refused(submissions, agent=ACME, quota=None, busy=BusyPolicy.ENQUEUE):
    """Return the error with which a trigger is refused at once; None if the store is asked."""
    try:
        submissions.check_quotas(agent, Admission(quota=quota, busy=busy))
    except QuotaReachedError as error:
        return error
    return None


async def test_a_quota_that_was_reached_refuses_others_without_the_store_until_there_may_be_more(submissions):
    command = Submission(submission("run_1", ACME), scripted=False)
    assert refused(submissions) is None

    told = submissions.concluded(command, REACHED)
    await submissions.clock.advance(4)
    again = refused(submissions)
    await submissions.clock.advance(1)

    assert (told.retry_after, again.retry_after) == (60.0, 56.0)
    assert refused(submissions) is None
    await submissions.clock.advance(54)
    submissions.concluded(command, REACHED)
    assert refused(submissions) is not None
    await submissions.clock.advance(1)
    assert refused(submissions) is None


async def test_a_reached_quota_of_runs_that_are_not_over_is_asked_for_again_at_once(submissions):
    submissions.concluded(Submission(submission("run_1", ACME), scripted=False), QuotaReached("open_runs", 5))

    assert refused(submissions).retry_after == 1.0
    await submissions.clock.advance(0.1)
    assert refused(submissions) is None


async def test_a_reached_quota_stops_neither_other_tenants_nor_other_keys_nor_what_may_join_a_queued_run(
    submissions,
):
    key, other = KeyQuota(KeyId("key1"), 5), KeyQuota(KeyId("key2"), 5)
    of_key = Submission(replace(submission("run_1", AGENT), quota=key), scripted=False)
    submissions.concluded(of_key, replace(REACHED, of_key=True))
    submissions.concluded(Submission(submission("run_2", ACME), scripted=False), REACHED)

    assert [refused(submissions, AGENT, quota=each) is None for each in (key, other, None)] == [
        False,
        True,
        True,
    ]
    assert refused(submissions, AgentRef.parse("trader", TenantId("other"))) is None
    assert refused(submissions, ACME, busy=BusyPolicy.COALESCE) is None
    assert refused(submissions) is not None
