"""What every Store promises about webhooks that come in and callbacks that go out, as tests."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import Callback, CallbackStatus, callback_id_of
from owlclaw_ray.domain.run import RunError, RunResult, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import CallbackId, DeliveryId, RunId, ScheduleId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AgentBusy,
    CallbackChanged,
    CallbackStored,
    CancelRun,
    ChangeCallback,
    CreateSchedule,
    DeliveryStored,
    ForgetWebhooks,
    PauseSchedule,
    QueueFull,
    ReceiveDelivery,
    ResumeSchedule,
    RunAccepted,
    SubmitRun,
)
from owlclaw_ray.store.queries import (
    AgentsOfDefinition,
    CallbackById,
    CallbackFilter,
    DeliveryById,
    DeliveryFilter,
    DueCallbacks,
    OldCallbacks,
    OldDeliveries,
    PausedHeartbeats,
    PendingCallbackCount,
    Place,
    RunById,
    RunFilter,
    WaitingDeliveries,
)
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, one, submission
from tests.contracts.store_family_contract import FAMILY

URL = "https://example.org/ended"
LATER = NOW + timedelta(minutes=1)


def delivery(name: str = "1", receipt: str = "a", status: DeliveryStatus = DeliveryStatus.TRIGGERED) -> Delivery:
    """Return a delivery as it is before it is stored."""
    body, headers = '{"价格": "nul \\u0000"}\x00', {"x-event": "order"}
    agent = AGENT if status is DeliveryStatus.TRIGGERED else None
    reason = "" if agent else "原因\x00"
    delivery_id = DeliveryId(f"whd_{name}")
    return Delivery(
        delivery_id,
        AGENT.tenant,
        "shop",
        f"rcp_{receipt}",
        NOW,
        status,
        reason,
        agent,
        None,
        headers,
        body,
        whole=True,
    )


def receiving(name: str = "1", receipt: str = "a", run: SubmitRun | None = None) -> ReceiveDelivery:
    """Return the command that stores a delivery with its run."""
    return ReceiveDelivery(delivery(name, receipt), run or submission(f"run_{name}_{receipt}"))


def telling(run_id: str = "run_1", url: str = URL) -> SubmitRun:
    """Return the submission of a run whose end somebody is told of."""
    return replace(submission(run_id), callback_urls=(url,))


def waiting(name: str, agent: AgentRef = AGENT) -> Delivery:
    """Return a delivery that waits for a heartbeat of the agent."""
    event = {"focus": "看", "payload": {"nul": "\0", "价格": 1.5}}
    return replace(delivery(name), status=DeliveryStatus.WAITING, agent=agent, event=event)


async def callbacks_of(store: Store, run_id: str = "run_1") -> list[Callback]:
    """Return what is to be told of a run, by address."""
    found = await store.read(CallbackFilter(AGENT.tenant, run_id=RunId(run_id)))
    return sorted(found, key=lambda each: each.url)


class DeliveryContract:
    """Webhooks that came in."""

    async def test_a_delivery_is_stored_with_its_run(self, store: Store) -> None:
        outcome = await one(store, receiving())

        assert isinstance(outcome, DeliveryStored)
        expected = replace(delivery(), run_id=RunId("run_1_a"))
        assert (outcome.delivery, outcome.duplicate) == (expected, False)
        assert isinstance(outcome.submitted, RunAccepted)
        assert await store.read(DeliveryById(AGENT.tenant, DeliveryId("whd_1"))) == expected
        assert await store.read(DeliveryById(TenantId("other"), DeliveryId("whd_1"))) is None
        run = await store.read(RunById(AGENT.tenant, RunId("run_1_a")))
        assert run is not None
        assert run.status is RunStatus.QUEUED

    async def test_a_delivery_that_comes_again_queues_nothing(self, store: Store) -> None:
        await one(store, receiving())

        outcome = await one(store, receiving(receipt="b"))

        assert isinstance(outcome, DeliveryStored)
        assert (outcome.duplicate, outcome.submitted) == (True, None)
        assert (outcome.delivery.run_id, outcome.delivery.receipt) == ("run_1_a", "rcp_a")
        assert len(await store.read(RunFilter(AGENT.tenant))) == 1

    async def test_of_the_same_delivery_twice_in_one_transaction_one_counts(self, store: Store) -> None:
        first, second = await store.apply([receiving(), receiving(receipt="b")])

        assert isinstance(first, DeliveryStored)
        assert isinstance(second, DeliveryStored)
        assert (first.duplicate, second.duplicate) == (False, True)
        assert len(await store.read(RunFilter(AGENT.tenant))) == 1

    async def test_the_command_applied_again_has_the_same_outcome(self, store: Store) -> None:
        first = await one(store, receiving())
        again = await one(store, receiving())

        assert isinstance(first, DeliveryStored)
        assert isinstance(again, DeliveryStored)
        assert again == replace(first, delivery=replace(first.delivery, body=again.delivery.body))
        assert len(await store.read(RunFilter(AGENT.tenant))) == 1

    async def test_a_delivery_that_could_not_be_mapped_may_trigger_when_it_comes_again(self, store: Store) -> None:
        await one(store, ReceiveDelivery(delivery(status=DeliveryStatus.UNMAPPED)))
        unmapped = await store.read(DeliveryById(AGENT.tenant, DeliveryId("whd_1")))

        outcome = await one(store, receiving(receipt="b"))

        assert unmapped == delivery(status=DeliveryStatus.UNMAPPED)
        assert isinstance(outcome, DeliveryStored)
        assert (outcome.duplicate, outcome.delivery.status) == (False, DeliveryStatus.TRIGGERED)
        found = await store.read(DeliveryById(AGENT.tenant, DeliveryId("whd_1")))
        assert found is not None
        assert (found.receipt, found.run_id, found.reason) == ("rcp_b", "run_1_b", "")

    async def test_a_delivery_whose_run_is_refused_is_stored_as_refused(self, store: Store) -> None:
        await one(store, submission("run_0"))
        busy = receiving("1", run=replace(submission("run_1"), busy=BusyPolicy.REJECT))
        full = receiving("2", run=replace(submission("run_2"), queue_limit=1))

        outcomes = await store.apply([busy, full])

        refused = [each.submitted for each in outcomes if isinstance(each, DeliveryStored)]
        assert refused == [AgentBusy(RunId("run_0")), QueueFull(1)]
        stored = await store.read(DeliveryFilter(AGENT.tenant, status=DeliveryStatus.REFUSED))
        assert sorted(each.reason for each in stored) == [
            "queue full: the agent has 1 queued run (limits.queued_runs)",
            "the agent is busy with run run_0",
        ]
        assert {each.run_id for each in stored} == {None}

    async def test_deliveries_are_listed_newest_first_without_their_bodies(self, store: Store) -> None:
        await store.apply([receiving("1"), ReceiveDelivery(replace(delivery("2"), received_at=LATER, source="other"))])

        async def found(**where: str) -> list[str]:
            listed = await store.read(DeliveryFilter(AGENT.tenant, **where))  # type: ignore[arg-type]
            assert {each.body for each in listed} <= {""}
            return [each.delivery_id for each in listed]

        assert await found() == ["whd_2", "whd_1"]
        assert await found(source="shop") == ["whd_1"]
        assert len(await store.read(DeliveryFilter(AGENT.tenant, limit=1))) == 1
        assert await store.read(DeliveryFilter(TenantId("other"))) == []

    async def test_deliveries_go_on_behind_a_place(self, store: Store) -> None:
        await store.apply([receiving(name) for name in "123"])
        await store.apply([ReceiveDelivery(replace(delivery("0"), received_at=LATER))])

        async def behind(name: str) -> list[str]:
            last = await store.read(DeliveryById(AGENT.tenant, DeliveryId(f"whd_{name}")))
            assert last is not None
            before = Place(last.received_at, last.delivery_id)
            return [each.delivery_id for each in await store.read(DeliveryFilter(AGENT.tenant, before=before))]

        assert await behind("0") == ["whd_3", "whd_2", "whd_1"]
        assert await behind("2") == ["whd_1"], "of those that came at once the order is that of their ids"
        assert await behind("1") == []


class WaitingContract:
    """Webhooks that wait for a heartbeat of their agent."""

    async def test_a_delivery_waits_for_a_heartbeat_of_its_agent_the_oldest_first(self, store: Store) -> None:
        younger = replace(waiting("2"), received_at=LATER)
        outcomes = await store.apply([ReceiveDelivery(each) for each in (younger, waiting("1"), waiting("3", OTHER))])

        assert [each.submitted for each in outcomes if isinstance(each, DeliveryStored)] == [None] * 3
        found = await store.read(WaitingDeliveries(AGENT))
        assert found == [replace(each, body="") for each in (waiting("1"), younger)]
        assert await store.read(WaitingDeliveries(AGENT, 1)) == found[:1]
        assert await store.read(AgentsOfDefinition(AGENT.definition)) == [AGENT, OTHER]

    async def test_no_delivery_waits_for_a_heartbeat_of_an_agent_that_another_one_started(self, store: Store) -> None:
        started = Trigger(TriggerKind.AGENT, lineage=FAMILY)
        await one(store, replace(submission("run_1", OTHER), trigger=started))
        outcome = await one(store, ReceiveDelivery(waiting("1", OTHER)))

        assert isinstance(outcome, DeliveryStored)
        assert outcome.delivery.status is DeliveryStatus.UNMAPPED
        assert "was started by trader" in outcome.delivery.reason
        assert await store.read(WaitingDeliveries(OTHER)) == []

    async def test_a_delivery_that_waits_and_comes_again_waits_once(self, store: Store) -> None:
        await one(store, ReceiveDelivery(waiting("1")))
        again = await one(store, ReceiveDelivery(replace(waiting("1"), receipt="rcp_b")))

        assert isinstance(again, DeliveryStored)
        assert again.duplicate
        assert len(await store.read(WaitingDeliveries(AGENT))) == 1

    async def test_the_end_of_a_heartbeat_handles_what_it_saw_of_its_agent_once(self, store: Store) -> None:
        mine, theirs, late = waiting("1"), waiting("2", OTHER), waiting("3")
        await store.apply([ReceiveDelivery(each) for each in (mine, theirs, late)])
        await store.apply([submission("run_1"), submission("run_2"), activation("act")])
        seen = (mine.delivery_id, theirs.delivery_id)
        await claimed(store)
        await one(store, replace(ending("run_1"), deliveries=seen))
        await one(store, replace(ending("run_2"), deliveries=seen))

        stands = [await store.read(DeliveryById(AGENT.tenant, each.delivery_id)) for each in (mine, theirs, late)]
        assert [each and (each.status, each.run_id) for each in stands] == [
            (DeliveryStatus.HANDLED, "run_1"),
            (DeliveryStatus.WAITING, None),
            (DeliveryStatus.WAITING, None),
        ]
        assert stands[0] == replace(mine, status=DeliveryStatus.HANDLED, run_id=RunId("run_1"))

    async def test_what_heartbeats_fail_of_is_refused_in_the_end_with_the_reason(self, store: Store) -> None:
        mine, theirs, late = waiting("1"), waiting("2", OTHER), waiting("3")
        await store.apply([ReceiveDelivery(each) for each in (mine, theirs, late)])
        await store.apply([*(submission(f"run_{number}") for number in range(4)), activation("act")])
        await claimed(store)
        failed = RunResult(RunStatus.FAILED, error=RunError("model_failed", "不行\x00"))
        counted = []
        for number in range(4):
            seen = (mine.delivery_id, theirs.delivery_id, *([late.delivery_id] if number == 1 else []))
            end = replace(ending(f"run_{number}"), result=failed, deliveries=seen)
            await store.apply([end])
            await store.apply([end])
            counted.append([each.failures for each in await store.read(WaitingDeliveries(AGENT))])

        refused = await store.read(DeliveryById(AGENT.tenant, mine.delivery_id))
        assert counted == [[1, 0], [2, 1], [1], [1]]
        assert refused is not None
        assert (refused.status, refused.run_id, refused.failures) == (DeliveryStatus.REFUSED, "run_2", 3)
        assert refused.reason == "3 heartbeats that saw it failed, the last one as failed: 不行\x00"
        assert [each.failures for each in await store.read(WaitingDeliveries(OTHER))] == [0]

    async def test_heartbeats_that_rest_are_found_while_deliveries_wait_for_them(self, store: Store) -> None:
        beats = [_beat("sch_1", AGENT), _beat("sch_2", OTHER)]
        await store.apply([CreateSchedule(each, 9) for each in beats])
        await store.apply([PauseSchedule(each.agent, each.schedule_id, NOW) for each in beats])
        assert await store.read(PausedHeartbeats()) == []

        await one(store, ReceiveDelivery(waiting("1")))

        assert [each.schedule_id for each in await store.read(PausedHeartbeats())] == ["sch_1"]
        await one(store, ResumeSchedule(AGENT, ScheduleId("sch_1"), NOW))
        assert await store.read(PausedHeartbeats()) == []


class ForgettingContract:
    """Webhooks and callbacks that are over."""

    async def test_what_is_old_and_over_is_forgotten_and_nothing_else(self, store: Store) -> None:
        await store.apply([receiving("1"), ReceiveDelivery(waiting("2"))])
        await one(store, ReceiveDelivery(replace(delivery("3"), received_at=LATER)))
        await store.apply([telling("run_1"), telling("run_2"), CancelRun(AGENT.tenant, RunId("run_1"), NOW)])
        (pending,) = await store.read(DueCallbacks(NOW, 9))
        assert list(await store.read(OldCallbacks(AGENT.tenant, LATER))) == []
        await one(store, ChangeCallback(_delivered(pending)))

        deliveries = await store.read(OldDeliveries(AGENT.tenant, LATER))
        callbacks = await store.read(OldCallbacks(AGENT.tenant, LATER + timedelta(microseconds=1)))
        assert (list(deliveries), list(callbacks)) == ([DeliveryId("whd_1")], [pending.callback_id])
        everything = tuple(DeliveryId(f"whd_{number}") for number in (1, 2))
        told = (pending.callback_id, callback_id_of("run_2", URL))
        await one(store, ForgetWebhooks(everything, told))

        left = await store.read(DeliveryFilter(AGENT.tenant))
        assert [each.delivery_id for each in left] == ["whd_3", "whd_2"]
        assert [each.run_id for each in await store.read(CallbackFilter(AGENT.tenant))] == ["run_2"]

    async def test_what_took_long_is_kept_from_its_end_on(self, store: Store) -> None:
        await store.apply([telling(), CancelRun(AGENT.tenant, RunId("run_1"), NOW)])
        (pending,) = await store.read(DueCallbacks(NOW, 9))
        dead = replace(_tried(pending, "no"), status=CallbackStatus.DEAD, tried_at=LATER, next_try_at=None)
        await store.apply([ReceiveDelivery(waiting("1")), submission("run_2"), activation("act")])
        await claimed(store)
        await store.apply([ChangeCallback(dead)])
        await one(store, replace(ending("run_2"), deliveries=(DeliveryId("whd_1"),), at=LATER))

        after = LATER + timedelta(microseconds=1)
        assert [list(await store.read(OldCallbacks(AGENT.tenant, at))) for at in (LATER, after)] == [
            [],
            [pending.callback_id],
        ]
        assert [list(await store.read(OldDeliveries(AGENT.tenant, at))) for at in (LATER, after)] == [
            [],
            [DeliveryId("whd_1")],
        ]


def _beat(schedule_id: str, agent: AgentRef) -> Schedule:
    return Schedule(ScheduleId(schedule_id), agent, ScheduleKind.HEARTBEAT, "look", NOW, NOW, interval_seconds=300)


class CallbackContract:
    """What is to be told of runs' ends."""

    async def test_a_callback_waits_for_the_end_of_its_run(self, store: Store) -> None:
        await one(store, telling())

        waiting = Callback(callback_id_of("run_1", URL), AGENT, RunId("run_1"), URL, NOW)
        assert await callbacks_of(store) == [waiting]
        assert await store.read(CallbackById(AGENT.tenant, waiting.callback_id)) == waiting
        assert await store.read(CallbackById(TenantId("other"), waiting.callback_id)) is None
        assert await store.read(DueCallbacks(NOW + timedelta(days=9), 9)) == []

    async def test_the_end_of_a_run_makes_its_callbacks_due_in_the_same_commit(self, store: Store) -> None:
        await store.apply([telling(), submission("run_2"), activation("act")])
        await claimed(store)

        await one(store, replace(ending("run_1"), callback_url="https://example.org/all"))

        found = await callbacks_of(store)
        assert [each.url for each in found] == ["https://example.org/all", URL]
        assert {(each.status, each.next_try_at) for each in found} == {(CallbackStatus.PENDING, NOW)}
        assert {each.url for each in await store.read(DueCallbacks(NOW, 9))} == {each.url for each in found}
        assert await store.read(DueCallbacks(NOW - timedelta(seconds=1), 9)) == []
        assert await store.read(PendingCallbackCount()) == 2

    async def test_ending_a_run_again_tells_nobody_twice(self, store: Store) -> None:
        await store.apply([telling(), activation("act")])
        await claimed(store)
        end = replace(ending("run_1"), callback_url=URL)
        await one(store, end)
        (due,) = await callbacks_of(store)
        await one(store, ChangeCallback(_delivered(due)))

        await one(store, end)

        assert await callbacks_of(store) == [_delivered(due)]
        assert await store.read(PendingCallbackCount()) == 0

    async def test_a_run_that_is_cancelled_before_it_began_is_told_of_too(self, store: Store) -> None:
        await one(store, telling())

        await one(store, CancelRun(AGENT.tenant, RunId("run_1"), LATER))

        found = await callbacks_of(store)
        assert [(each.url, each.status, each.next_try_at) for each in found] == [(URL, CallbackStatus.PENDING, LATER)]

    async def test_who_joins_a_queued_run_is_told_of_its_end(self, store: Store) -> None:
        first, second = (
            replace(telling(run_id, f"https://example.org/{run_id}"), busy=BusyPolicy.COALESCE)
            for run_id in ("run_1", "run_2")
        )
        await store.apply([first])
        await store.apply([second, second])

        assert [each.url for each in await callbacks_of(store)] == [
            "https://example.org/run_1",
            "https://example.org/run_2",
        ]
        assert await callbacks_of(store, "run_2") == []

    async def test_a_refused_trigger_leaves_no_callback(self, store: Store) -> None:
        await one(store, submission("run_0"))
        await one(store, replace(telling(), busy=BusyPolicy.REJECT))

        assert await store.read(CallbackFilter(AGENT.tenant)) == []

    async def test_a_callback_is_changed_only_from_the_version_before(self, store: Store) -> None:
        await store.apply([telling(), CancelRun(AGENT.tenant, RunId("run_1"), NOW)])
        (due,) = await store.read(DueCallbacks(NOW, 9))
        mine, other = _tried(due, "mine\x00"), _tried(due, "other")

        assert await store.apply([ChangeCallback(mine), ChangeCallback(other)]) == [
            CallbackStored(),
            CallbackChanged(mine),
        ]
        assert await one(store, ChangeCallback(mine)) == CallbackStored()
        assert await callbacks_of(store) == [mine]
        unknown = replace(mine, callback_id=CallbackId("cb_none"))
        assert await one(store, ChangeCallback(unknown)) == CallbackChanged(None)

    async def test_what_waits_for_one_host_hides_nothing_that_waits_for_others(self, store: Store) -> None:
        await store.apply([telling(f"run_{number}", f"{URL}/{number}") for number in range(6)])
        others = ("https://Zebra.example/", "https://example.org:444/")
        await store.apply([telling("run_z", others[0]), telling("run_port", others[1])])
        for number in range(6):
            at = NOW + timedelta(seconds=number)
            await one(store, CancelRun(AGENT.tenant, RunId(f"run_{number}"), at))
        await store.apply([CancelRun(AGENT.tenant, RunId(name), LATER) for name in ("run_z", "run_port")])

        found = [each.url for each in await store.read(DueCallbacks(LATER, per_host=2, limit=4))]

        assert (found[0], found[3]) == (f"{URL}/0", f"{URL}/1")
        assert sorted(found[1:3]) == sorted(others)
        assert len(await store.read(DueCallbacks(LATER, per_host=9, limit=3))) == 3

    async def test_the_first_of_each_host_comes_before_the_second_of_any(self, store: Store) -> None:
        dead = [f"https://dead-{number % 3}.example/{number}" for number in range(9)]
        await store.apply([telling(f"run_{number}", url) for number, url in enumerate(dead)])
        await store.apply([telling("run_live", URL)])
        await store.apply([CancelRun(AGENT.tenant, RunId(f"run_{number}"), NOW) for number in range(9)])
        await one(store, CancelRun(AGENT.tenant, RunId("run_live"), LATER))

        found = await store.read(DueCallbacks(LATER, per_host=3, limit=5))

        assert URL in [each.url for each in found[:4]]
        assert len({each.host for each in found[:4]}) == 4
        assert len(found) == 5

    async def test_what_one_tenant_has_waiting_hides_nothing_of_another(self, store: Store) -> None:
        flood = [f"https://dead-{number}.example/" for number in range(6)]
        flood += [f"{URL}/{number}" for number in range(6)]
        await store.apply([telling(f"run_{number}", url) for number, url in enumerate(flood)])
        acme, beta = (AgentRef(TenantId(name), AGENT.agent_id) for name in ("acme", "beta"))
        later = {"run_a1": acme, "run_a2": acme, "run_b": beta}
        for name, agent in later.items():
            await one(store, replace(submission(name, agent), callback_urls=(URL,)))
        await store.apply([CancelRun(AGENT.tenant, RunId(f"run_{number}"), NOW) for number in range(12)])
        for seconds, (name, agent) in enumerate(later.items(), 1):
            await one(store, CancelRun(agent.tenant, RunId(name), NOW + timedelta(seconds=seconds)))

        found = [each.agent.tenant for each in await store.read(DueCallbacks(LATER, per_host=2, limit=6))]
        few = await store.read(DueCallbacks(LATER, per_host=2, limit=3))

        default = AGENT.tenant
        assert found == [default, "acme", "beta", default, "acme", default]
        assert [each.run_id for each in few[1:]] == ["run_a1", "run_b"]

    async def test_callbacks_are_found_by_agent_run_and_status(self, store: Store) -> None:
        other = replace(submission("run_2", OTHER), callback_urls=(URL,))
        await store.apply([telling(), other, CancelRun(OTHER.tenant, RunId("run_2"), NOW)])

        async def found(where: CallbackFilter) -> list[str]:
            return [each.run_id for each in await store.read(where)]

        assert sorted(await found(CallbackFilter(AGENT.tenant))) == ["run_1", "run_2"]
        assert await found(CallbackFilter(AGENT.tenant, agent=OTHER)) == ["run_2"]
        assert await found(CallbackFilter(AGENT.tenant, status=CallbackStatus.PENDING)) == ["run_2"]
        assert await found(CallbackFilter(AGENT.tenant, status=CallbackStatus.WAITING)) == ["run_1"]
        assert len(await found(CallbackFilter(AGENT.tenant, limit=1))) == 1
        assert await found(CallbackFilter(TenantId("other"))) == []

    async def test_callbacks_go_on_behind_a_place(self, store: Store) -> None:
        await store.apply([telling(), telling("run_2"), replace(telling("run_3"), at=LATER)])

        first, *others = await store.read(CallbackFilter(AGENT.tenant))
        assert first.run_id == "run_3"
        assert {each.created_at for each in others} == {NOW}
        for at, each in enumerate([first, *others], start=1):
            before = Place(each.created_at, each.callback_id)
            assert await store.read(CallbackFilter(AGENT.tenant, before=before)) == [first, *others][at:]


def _tried(callback: Callback, problem: str, at: datetime = LATER) -> Callback:
    return replace(callback, attempts=1, problem=problem, tried_at=NOW, next_try_at=at, version=callback.version + 1)


def _delivered(callback: Callback) -> Callback:
    return replace(
        callback,
        status=CallbackStatus.DELIVERED,
        attempts=1,
        next_try_at=None,
        delivered_at=LATER,
        version=callback.version + 1,
    )
