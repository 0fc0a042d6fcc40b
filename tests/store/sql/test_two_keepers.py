"""Two stores on one PostgreSQL database, as two nodes have them."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain

import asyncpg
import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import (
    AgentActivated,
    AlreadyFired,
    AppendLedger,
    ApprovalClosed,
    ApprovalSettled,
    AttemptBegun,
    BeginAttempt,
    CallbackStored,
    CancelRun,
    ChangeCallback,
    ClaimRun,
    CreateSchedule,
    NothingQueued,
    RevokeAttempt,
    RunAccepted,
    RunClaimed,
    RunFinished,
    RunWaiting,
    ScheduleFired,
    StaleEpoch,
)
from owlclaw_ray.store.queries import (
    AgentByRef,
    CallbackFilter,
    DueCallbacks,
    JournalOfRun,
    LedgerBreaks,
    RunById,
    RunFilter,
)
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_approval_contract import ALLOW, DENY, deciding, request, waiting
from tests.contracts.store_commands import AGENT, NOW, activation, ending, one, submission
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_schedule_contract import DUE, firing, schedule
from tests.contracts.store_webhook_contract import receiving, telling

pytestmark = pytest.mark.postgres
AGENTS = [AgentRef.parse(f"trader:{number}") for number in range(20)]


@pytest.fixture
async def keepers(postgres_url):
    first, second = await asyncio.gather(*(open_store(postgres_url, writer=f"keeper-{each}") for each in (1, 2)))
    yield first, second
    await first.close()
    await second.close()


async def test_racing_activations_get_different_epochs(keepers):
    async def activate(at):
        commands = [activation(f"act_{at}", agent) for agent in (AGENTS if at % 2 else reversed(AGENTS))]
        return await keepers[at % 2].apply(commands)

    outcomes = await asyncio.gather(*(activate(at) for at in range(8)))

    assert all(isinstance(each, AgentActivated) for each in chain(*outcomes))
    for agent in AGENTS:
        record_ = await keepers[0].read(AgentByRef(agent))
        assert record_.epoch == 8
    assert Counter(each.epoch for each in chain(*outcomes)) == dict.fromkeys(range(1, 9), len(AGENTS))


async def test_only_the_last_activation_claims_and_each_run_once(keepers):
    await keepers[0].apply([submission(f"run_{at}") for at in range(3)])
    await keepers[0].apply([activation("act_1")])
    await keepers[1].apply([activation("act_2")])

    claims = await asyncio.gather(*(one(keepers[at % 2], ClaimRun(AGENT, 1 + at % 2, NOW)) for at in range(6)))

    assert claims[::2] == [StaleEpoch(AGENT, 2)] * 3
    assert all(isinstance(each, RunClaimed) for each in claims[1::2])
    assert {each.run.run_id for each in claims[1::2]} == {"run_0"}


async def test_racing_finishes_end_a_run_once(keepers):
    await keepers[0].apply([submission("run_1"), submission("run_2"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

    first, second = await asyncio.gather(*(one(keeper, ending("run_1")) for keeper in keepers))

    assert isinstance(first, RunFinished)
    assert first == second
    assert first.next.run.run_id == "run_2"
    assert len(await keepers[0].read(JournalOfRun(AGENT.tenant, "run_1"))) == 3


async def test_a_finish_races_with_a_takeover(keepers):
    for agent in AGENTS:
        await keepers[0].apply([submission(f"run_{agent}", agent), activation("act_1", agent), ClaimRun(agent, 1, NOW)])

    finished, taken = await asyncio.gather(
        keepers[0].apply([ending(f"run_{agent}", agent=agent) for agent in AGENTS]),
        keepers[1].apply([activation("act_2", agent) for agent in reversed(AGENTS)]),
    )
    claims = await keepers[1].apply([ClaimRun(agent, 2, NOW) for agent in AGENTS])

    assert all(isinstance(each, AgentActivated) for each in taken)
    for outcome, claim in zip(finished, claims, strict=True):
        if isinstance(outcome, RunFinished):
            assert claim == NothingQueued()
        else:
            assert isinstance(outcome, StaleEpoch)
            assert claim.run.status is RunStatus.RUNNING


async def test_racing_submissions_under_one_key_make_one_run(keepers):
    def batch(keeper, at):
        return [submission(f"run_{keeper}_{at}_{key}", key=f"key_{key}") for key in range(10)]

    outcomes = await asyncio.gather(*(keepers[at % 2].apply(batch(at % 2, at)) for at in range(6)))

    accepted = list(chain(*outcomes))
    assert all(isinstance(each, RunAccepted) for each in accepted)
    assert Counter(each.duplicate for each in accepted) == {True: 50, False: 10}
    assert len({each.run_id for each in accepted}) == len(await keepers[0].read(RunFilter(AGENT.tenant))) == 10


@pytest.mark.parametrize("busy", [BusyPolicy.REJECT, BusyPolicy.COALESCE, BusyPolicy.INTERRUPT])
async def test_racing_triggers_are_decided_one_after_another(keepers, busy):
    await keepers[0].apply([activation("act_1"), submission("run_begun"), ClaimRun(AGENT, 1, NOW)])
    if busy is BusyPolicy.REJECT:
        await one(keepers[0], ending("run_begun"))
    commands = [replace(submission(f"run_{at}"), busy=busy, queue_limit=5) for at in range(8)]

    outcomes = await asyncio.gather(*(one(keepers[at % 2], command) for at, command in enumerate(commands)))

    accepted = [each for each in outcomes if isinstance(each, RunAccepted)]
    queued = (await keepers[0].read(AgentByRef(AGENT))).queued_runs
    match busy:
        case BusyPolicy.REJECT:
            assert (len(accepted), queued) == (1, 1)
            assert {each.run_id for each in outcomes} == {accepted[0].run_id}
        case BusyPolicy.COALESCE:
            assert (len(accepted), queued) == (8, 1)
            assert (await keepers[0].read(RunById(AGENT.tenant, accepted[0].run_id))).trigger.merged == 8
        case BusyPolicy.INTERRUPT:
            assert (len(accepted), queued) == (5, 5)
            assert Counter(each.interrupted for each in accepted) == {"run_begun": 1, None: 4}


async def test_racing_firings_fire_once(keepers):
    await keepers[0].apply([CreateSchedule(schedule("sch_1"), 9)])

    outcomes = await asyncio.gather(*(one(keepers[at % 2], firing("sch_1", DUE, None)) for at in range(6)))

    assert Counter(type(each) for each in outcomes) == {ScheduleFired: 1, AlreadyFired: 5}
    assert len(await keepers[1].read(RunFilter(AGENT.tenant))) == 1


async def test_each_keeper_writes_its_own_chain_and_all_are_verified_together(keepers):
    await asyncio.gather(
        *(keepers[at % 2].apply([AppendLedger((record(2 * at), record(2 * at + 1)))]) for at in range(10))
    )

    assert await keepers[0].read(LedgerBreaks(AGENT.tenant)) == []


async def test_keepers_that_share_a_name_by_mistake_still_write_one_chain(postgres_url):
    twins = [await open_store(postgres_url, writer="keeper") for _ in range(2)]

    await asyncio.gather(*(twins[at % 2].apply([AppendLedger((record(at),))]) for at in range(10)))

    assert await twins[0].read(LedgerBreaks(AGENT.tenant)) == []
    for twin in twins:
        await twin.close()


async def waits_for(keepers, *names):
    await keepers[0].apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
    assert await one(keepers[0], waiting(*(request(name) for name in names))) == RunWaiting()


async def test_racing_decisions_of_one_run_let_it_go_on_once(keepers):
    names = [f"call_{at}" for at in range(8)]
    await waits_for(keepers, *names)

    outcomes = await asyncio.gather(*(one(keepers[at % 2], deciding(name)) for at, name in enumerate(names)))

    assert all(isinstance(each, ApprovalSettled) for each in outcomes)
    assert [each.resumes for each in outcomes].count(True) == 1
    claims = await asyncio.gather(*(one(keeper, ClaimRun(AGENT, 1, NOW)) for keeper in keepers))
    assert claims[0] == claims[1]
    kinds = [entry.kind for entry in claims[0].journal]
    assert (kinds.count(EntryKind.APPROVAL_DECIDED), kinds.count(EntryKind.RUN_CONTINUED)) == (8, 1)


async def test_racing_decisions_about_one_call_agree_on_the_first(keepers):
    await waits_for(keepers, "a")

    outcomes = await asyncio.gather(
        *(one(keepers[at % 2], deciding("a", ALLOW if at % 3 else DENY)) for at in range(8))
    )

    approvals = {each.approval.status for each in outcomes}
    assert len(approvals) == 1
    assert {type(each) for each in outcomes} == {ApprovalSettled, ApprovalClosed}


async def test_a_decision_races_with_a_cancellation_and_the_run_goes_on_either_way(keepers):
    await waits_for(keepers, "a")

    await asyncio.gather(one(keepers[0], deciding("a")), one(keepers[1], CancelRun(AGENT.tenant, RunId("run_1"), NOW)))

    claimed = await one(keepers[0], ClaimRun(AGENT, 1, NOW))
    assert isinstance(claimed, RunClaimed)
    assert claimed.run.cancel_requested
    assert not await keepers[0].read(LedgerBreaks(AGENT.tenant))


async def test_racing_receptions_of_one_delivery_trigger_once(keepers):
    commands = [receiving(receipt=str(at), run=submission(f"run_{at}", AGENTS[at])) for at in range(8)]

    outcomes = await asyncio.gather(*(one(keepers[at % 2], each) for at, each in enumerate(commands)))

    assert Counter(each.duplicate for each in outcomes) == {False: 1, True: 7}
    assert len(await keepers[0].read(RunFilter(AGENT.tenant))) == 1


async def test_racing_changes_of_one_callback_are_made_one_after_another(keepers):
    await keepers[0].apply([telling(), CancelRun(AGENT.tenant, RunId("run_1"), NOW)])
    (due,) = await keepers[0].read(DueCallbacks(NOW, 9))
    changes = [replace(due, attempts=1, version=due.version + 1, changed_by=f"snd_{at}") for at in range(8)]

    outcomes = await asyncio.gather(*(one(keepers[at % 2], ChangeCallback(each)) for at, each in enumerate(changes)))

    assert sum(isinstance(each, CallbackStored) for each in outcomes) == 1
    (stored,) = await keepers[1].read(CallbackFilter(AGENT.tenant))
    assert outcomes[changes.index(stored)] == CallbackStored()


async def test_of_a_worker_that_begins_an_attempt_and_a_host_that_gives_it_up_one_is_first(keepers):
    worker, host = keepers
    attempts = [f"try_{at}" for at in range(60)]

    answers = await asyncio.gather(
        *(worker.apply([BeginAttempt(each)]) for each in attempts),
        *(host.apply([RevokeAttempt(each)]) for each in reversed(attempts)),
    )

    begun = {each: isinstance(answers[at][0], AttemptBegun) for at, each in enumerate(attempts)}
    lost = {each: isinstance(answers[60 + at][0], AttemptBegun) for at, each in enumerate(reversed(attempts))}
    assert begun == lost
    assert set(begun.values()) == {True, False}


async def test_attempts_older_than_thirty_days_are_removed_with_the_next_that_begin(keepers, postgres_url):
    await keepers[0].apply([BeginAttempt("try_old"), BeginAttempt("try_new")])
    connection = await asyncpg.connect(postgres_url)
    aged = "UPDATE attempts SET named_at = named_at - 31::bigint * 86400000000 WHERE attempt = 'try_old'"
    await connection.execute(aged)

    await keepers[1].apply([BeginAttempt("try_next")])

    left = {row["attempt"] for row in await connection.fetch("SELECT attempt FROM attempts")}
    await connection.close()
    assert left == {"try_new", "try_next"}
