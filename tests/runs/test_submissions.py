"""Who is told of an accepted trigger."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import UserError
from owlclaw_ray.ids import RunId
from owlclaw_ray.runs.submissions import Submission, Submissions
from owlclaw_ray.store.commands import CommandFailed, RunAccepted
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
