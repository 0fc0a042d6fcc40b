"""Both ends of the way that commands take to the store's process, around a real store."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import StoreOverloadedError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.batcher import MESSAGE, Bound
from owlclaw_ray.store.command_link import CommandLink, answered, apply_now, decode
from owlclaw_ray.store.commands import CancelOutcome, CancelRun, CommandFailed, RunAccepted
from owlclaw_ray.store.group_commit import GroupCommit
from tests.contracts.store_commands import AGENT, NOW, submission

INNOCENT = 20


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


class Wire:
    """What both ends have between them: the messages pass one at a time, when the gate is open."""

    def __init__(self, store, **options):
        self.commits = GroupCommit(store, linger=0, **options)
        self.messages = []
        self.gate = asyncio.Event()

    async def __call__(self, parcels):
        self.messages.append([decode(parcel) for parcel in parcels])
        await self.gate.wait()
        return await answered(self.commits, parcels)


class Accepting:
    """A store that remembers its transactions, and whose outcome can be told."""

    def __init__(self, outcomes=None):
        self.transactions = []
        self.outcomes = outcomes or {}

    async def apply(self, commands):
        self.transactions.append([command.run_id for command in commands])
        return [self.outcomes.get(each.run_id, RunAccepted(each.run_id, 1, AGENT)) for each in commands]


def large(run_id, size=1024 * 1024):
    return with_payload(run_id, "x" * size)


def with_payload(run_id, payload):
    command = submission(run_id)
    return replace(command, trigger=replace(command.trigger, content=payload))


async def asked(link, *commands):
    tasks = [asyncio.ensure_future(link.apply([command])) for command in commands]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


async def test_a_command_that_cannot_be_encoded_fails_alone_among_those_that_leave_with_it():
    store = Accepting()
    wire = Wire(store)
    link = CommandLink(wire)
    commands = [submission(f"run_{at}") for at in range(INNOCENT)]
    commands.insert(INNOCENT // 2, with_payload("deep", nested(100_000)))

    tasks = await asked(link, submission("first"), *commands)
    wire.gate.set()
    outcomes = [outcome for [outcome] in await asyncio.gather(*tasks)]

    assert [each.run_id for each in outcomes if isinstance(each, RunAccepted)] == [
        "first",
        *(f"run_{at}" for at in range(INNOCENT)),
    ]
    [failed] = [each for each in outcomes if isinstance(each, CommandFailed)]
    assert "RecursionError" in failed.message
    assert store.transactions == [["first", *(f"run_{at}" for at in range(INNOCENT))]]


async def test_of_several_commands_of_one_caller_the_one_that_cannot_be_encoded_fails_alone():
    wire = Wire(Accepting())
    wire.gate.set()

    outcomes = await CommandLink(wire).apply([submission("a"), with_payload("b", lambda: None), submission("c")])

    assert [type(each) for each in outcomes] == [RunAccepted, CommandFailed, RunAccepted]


async def test_an_outcome_that_cannot_be_encoded_fails_its_own_caller_only():
    wire = Wire(Accepting({"odd": CommandFailed("half a character: \ud800")}))
    link = CommandLink(wire)
    tasks = await asked(link, submission("a"), submission("odd"), submission("b"))
    wire.gate.set()

    [a], [odd], [b] = await asyncio.gather(*tasks)

    assert [a.run_id, b.run_id] == ["a", "b"]
    assert "did not leave the store" in odd.message


async def test_a_command_that_cannot_be_decoded_fails_alone():
    store = Accepting()
    link = CommandLink(lambda parcels: answered(GroupCommit(store), [b"spoilt", *parcels[1:]]))

    first, second = await link.apply([submission("a"), submission("b")])

    assert isinstance(first, CommandFailed)
    assert second.run_id == "b"
    assert store.transactions == [["b"]]


async def test_messages_and_transactions_are_closed_by_their_bytes():
    store = Accepting()
    wire = Wire(store, max_bytes=2 * 1024 * 1024 + 10_000)
    link = CommandLink(wire)
    tasks = await asked(link, *(large(f"run_{at}") for at in range(8)))
    wire.gate.set()

    await asyncio.gather(*tasks)

    assert [len(message) for message in wire.messages] == [3, 3, 2]
    assert MESSAGE.size > 3 * 1024 * 1024


async def test_what_waits_to_be_sent_is_bounded_new_work_is_refused_and_work_under_way_waits_for_room():
    store = Accepting({"run_0": CancelOutcome(None)})
    wire = Wire(store)
    link = CommandLink(wire, waiting=Bound(100, 3_000_000))
    tasks = await asked(link, *(large(f"run_{at}") for at in range(2)))
    refused, urgent, small = await asked(
        link, large("run_2"), CancelRun(AGENT.tenant, "run_0", NOW), submission("small")
    )

    assert isinstance(refused.exception(), StoreOverloadedError)
    assert not urgent.done()
    assert not small.done()
    wire.gate.set()
    assert [await each for each in (urgent, small)] == [[CancelOutcome(None)], [RunAccepted("small", 1, AGENT)]]
    await asyncio.gather(*tasks)
    assert (await link.apply([large("run_3")]))[0].run_id == "run_3"


def of(tenant, run_id):
    return submission(run_id, AgentRef(TenantId(tenant), AGENT.agent_id))


async def test_a_tenant_s_flood_leaves_a_quarter_of_the_room_to_the_new_work_of_others():
    wire = Wire(Accepting())
    link = CommandLink(wire, waiting=Bound(8, 1_000_000))
    flood = await asked(link, *(of("greedy", f"greedy_{at}") for at in range(8)))
    modest = await asked(link, *(of("modest", f"modest_{at}") for at in range(3)))
    wire.gate.set()

    taken = [await asyncio.gather(*tasks, return_exceptions=True) for tasks in (flood, modest)]
    refused = [[isinstance(each, StoreOverloadedError) for each in outcomes] for outcomes in taken]

    assert refused == [[False] * 6 + [True] * 2, [False] * 2 + [True]]
    assert not isinstance((await link.apply([of("greedy", "later")]))[0], CommandFailed)


async def test_by_bytes_too_and_not_while_there_is_the_default_tenant_alone():
    wire = Wire(Accepting())
    link = CommandLink(wire, waiting=Bound(100, 4 * 1024 * 1024 + 10_000))
    alone = await asked(link, *(large(f"run_{at}") for at in range(4)))
    wire.gate.set()
    await asyncio.gather(*alone)
    wire.gate.clear()
    await asked(link, of("modest", "modest"))

    beside_another = await asked(link, *(large(f"again_{at}") for at in range(4)))
    wire.gate.set()
    taken = await asyncio.gather(*beside_another, return_exceptions=True)

    assert [isinstance(each, StoreOverloadedError) for each in taken] == [False] * 3 + [True]


async def test_a_tenant_s_new_work_and_work_under_way_leave_in_the_next_message_whatever_waits_of_another():
    wire = Wire(Accepting({"modest": CancelOutcome(None)}))
    link = CommandLink(wire)
    tasks = await asked(link, of("greedy", "first"))
    tasks += await asked(link, *(of("greedy", f"greedy_{at}") for at in range(2 * MESSAGE.items)))
    tasks += await asked(link, CancelRun(AGENT.tenant, "modest", NOW), of("modest", "modest"))
    wire.gate.set()
    await asyncio.gather(*tasks)

    assert [each.run_id for each in wire.messages[1]][:4] == ["greedy_0", "modest", "modest", "greedy_1"]
    assert [each.run_id for each in wire.messages[-1]][-1] == f"greedy_{2 * MESSAGE.items - 1}"


async def test_where_one_tenant_s_new_work_waits_to_be_committed_that_of_another_is_not_refused():
    store = Gated()
    commits = GroupCommit(store, linger=0, waiting=Bound(8, 1_000_000))
    link = CommandLink(lambda parcels: answered(commits, parcels))
    waiting = asyncio.ensure_future(commits.apply([of("greedy", f"greedy_{at}") for at in range(6)]))
    tasks = await asked(link, of("greedy", "too much"), of("modest", "modest"))
    store.gate.set()
    await waiting

    with pytest.raises(StoreOverloadedError):
        await tasks[0]
    assert (await tasks[1])[0].run_id == "modest"


async def test_by_number_too():
    wire = Wire(Accepting())
    link = CommandLink(wire, waiting=Bound(3, 1_000_000))
    tasks = await asked(link, *(submission(f"run_{at}") for at in range(4)))

    assert isinstance(tasks[-1].exception(), StoreOverloadedError)
    waiting = asyncio.ensure_future(link.apply([CancelRun(AGENT.tenant, "run_9", NOW)]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [len(message) for message in wire.messages] == [3]
    wire.gate.set()
    await asyncio.gather(*tasks[:-1], waiting)


class Gated(Accepting):
    def __init__(self):
        super().__init__({"run_1": CancelOutcome(None)})
        self.gate = asyncio.Event()

    async def apply(self, commands):
        await self.gate.wait()
        return await super().apply(commands)


async def test_where_too_much_waits_to_be_committed_new_work_of_a_message_is_refused_and_the_rest_committed():
    store = Gated()
    commits = GroupCommit(store, linger=0, waiting=Bound(100, 1_500_000))
    link = CommandLink(lambda parcels: answered(commits, parcels))
    waiting = asyncio.ensure_future(commits.apply([large("run_1")], [1_500_000]))
    other = CommandLink(lambda parcels: answered(commits, parcels))
    tasks = await asked(link, submission("new"), CancelRun(AGENT.tenant, "run_1", NOW))
    alone = asyncio.ensure_future(other.apply([submission("new too")]))
    store.gate.set()
    await waiting

    with pytest.raises(StoreOverloadedError):
        await tasks[0]
    assert await tasks[1] == [CancelOutcome(None)]
    with pytest.raises(StoreOverloadedError):
        await alone
    assert store.transactions == [["run_1"], ["run_1"]]


async def test_code_that_is_not_asynchronous_has_its_commands_committed_too_and_a_bad_one_fails_alone():
    store = Accepting()
    bad = replace(submission("run_2"), trigger=object())
    loop = asyncio.get_running_loop()

    def send(parcels):
        return asyncio.run_coroutine_threadsafe(answered(GroupCommit(store), parcels), loop).result()

    first, failed, last = await asyncio.to_thread(apply_now, [submission("run_1"), bad, submission("run_3")], send)

    assert [first.run_id, last.run_id] == ["run_1", "run_3"]
    assert isinstance(failed, CommandFailed)
    assert store.transactions == [["run_1", "run_3"]]
