"""The Keeper without Ray: it is a plain class."""

from __future__ import annotations

import asyncio
import resource

import msgspec
import pytest
from msgspec.structs import replace

from actors.keeper import KeeperActor
from owlclaw_ray.domain.ledger import NotedHead
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS
from owlclaw_ray.store.command_link import encode
from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.queries import LedgerBreaks, LedgerChains, LedgerFilter, MissingLedgerGuards
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.actors.plans import plan_in
from tests.contracts.store_ledger_contract import AGENT, record


@pytest.fixture
async def keeper(tmp_path, monkeypatch):
    monkeypatch.setattr("actors.keeper.configure", lambda _: None)
    monkeypatch.setattr("actors.keeper.writer_name", lambda: "keeper")
    monkeypatch.setattr("actors.keeper.restarted", lambda: False)
    monkeypatch.setattr("actors.keeper.entrusted", lambda _: "")  # what Ray keeps for it
    monkeypatch.setattr(KeeperActor, "_watch_root", lambda _: asyncio.sleep(0))  # which would start Ray
    keeper = KeeperActor(plan_in(tmp_path, redact=("ACME-[0-9]+",)))
    yield keeper
    await keeper.stop()


async def test_it_is_ready_only_while_its_store_takes_commits(keeper, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.store.sql.sql_store._WRITABLE_SECONDS", 0)
    assert await keeper.ready()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(StoreUnavailableError, match="cannot be written"):
            await keeper.ready()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert await keeper.ready()


async def told(keeper):
    return await keeper.read(LedgerFilter(AGENT.tenant))


async def test_secrets_of_its_environment_and_what_the_settings_say_stay_out_of_the_ledger(keeper, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hush-hush-机密")
    said = {"content": "the key is hush-hush-机密 of ACME-17", "password": 1}

    await keeper.apply([encode(AppendLedger((replace(record(1), data=said),)))])

    [written] = await told(keeper)
    assert written.record.data == {
        "content": "the key is [redacted:SHOP_API_KEY] of [redacted:custom]",
        "password": "[redacted:password]",
    }


async def test_a_stop_waits_for_what_it_was_told(keeper):
    await keeper.ready()
    records = [record(number) for number in range(200)]
    applying = [asyncio.create_task(keeper.apply([encode(AppendLedger((each,)))])) for each in records]
    await asyncio.sleep(0)

    await keeper.stop()

    assert all(task.done() and task.exception() is None for task in applying)
    store = await open_store(keeper._plan.store_url, writer="reader")
    assert [each.record for each in await store.read(LedgerFilter(AGENT.tenant))] == records
    await store.close()


async def test_it_answers_whether_the_ledger_holds(keeper):
    await keeper.apply([encode(AppendLedger((record(1), record(2))))])

    [chain] = await keeper.read(LedgerChains(AGENT.tenant))
    assert (chain.writer, chain.position) == ("keeper", 2)
    assert await keeper.read(LedgerBreaks(AGENT.tenant)) == []
    assert await keeper.read(MissingLedgerGuards()) == []


def heads_in(folder):
    [file] = (folder / "ledger-heads").iterdir()
    return file, [msgspec.json.decode(line, type=NotedHead) for line in file.read_bytes().splitlines()]


async def test_it_notes_how_far_its_ledger_has_come_beside_the_store(keeper, monkeypatch, tmp_path):
    monkeypatch.setattr("actors.keeper._NOTE_EVERY", 0.01)
    await keeper.apply([encode(AppendLedger((record(1), record(2))))])

    async with asyncio.timeout(30):
        while not list((tmp_path / "ledger-heads").glob("*.jsonl")):
            await asyncio.sleep(0.01)

    [chain] = await keeper.read(LedgerChains(AGENT.tenant))
    file, [head] = heads_in(tmp_path)
    assert (head.tenant, head.writer, head.position, head.hash) == (AGENT.tenant, "keeper", 2, chain.hash)
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_stop_notes_what_was_committed_last_and_the_next_life_goes_on(keeper, tmp_path):
    await keeper.apply([encode(AppendLedger((record(1),)))])
    await keeper.stop()
    file, _ = heads_in(tmp_path)
    with file.open("ab") as torn:
        torn.write(b'{"at": "20')

    keeper._store = keeper._commits = None
    await keeper.apply([encode(AppendLedger((record(2),)))])
    await keeper.stop()

    lines = file.read_bytes().splitlines()
    assert [msgspec.json.decode(each, type=NotedHead).position for each in (lines[0], lines[2])] == [1, 2]
    assert lines[1] == b'{"at": "20'


async def test_heads_are_read_again_only_after_a_commit(keeper):
    await keeper.apply([encode(AppendLedger((record(1),)))])
    questions = []
    read = keeper._store.read

    async def noted_read(query):
        questions.append(query)
        return await read(query)

    keeper._store.read = noted_read
    await keeper._note_heads()
    await keeper._note_heads()
    assert len(questions) == 1

    await keeper.apply([encode(AppendLedger((record(2),)))])
    await keeper._note_heads()
    assert len(questions) == 2


async def test_heads_that_could_not_be_noted_are_noted_later_without_another_commit(keeper, tmp_path):
    in_the_way = tmp_path / "ledger-heads"
    in_the_way.write_text("in the way")
    await keeper.apply([encode(AppendLedger((record(1),)))])
    await keeper._note_heads()

    in_the_way.unlink()
    await keeper._note_heads()

    _, [head] = heads_in(tmp_path)
    assert head.position == 1


async def test_heads_that_cannot_be_noted_hold_nothing_up(keeper, tmp_path, caplog):
    (tmp_path / "ledger-heads").write_text("in the way")
    await keeper.apply([encode(AppendLedger((record(1),)))])

    await keeper.stop()

    assert "the ledger's heads were not noted" in caplog.text


async def test_in_a_second_life_it_makes_no_new_store_in_the_place_of_one_that_is_gone(keeper, monkeypatch, tmp_path):
    monkeypatch.setattr("actors.keeper.restarted", lambda: True)

    with pytest.raises(StoreUnavailableError, match="deleted or moved away since"):
        await keeper.ready()

    assert list(tmp_path.rglob("*.db")) == []


class Gone:
    """A root that answers nothing."""

    def __init__(self, *_):
        self.call = self

    end_hosts = None


async def test_a_node_that_the_store_does_not_answer_keeps_nobody_waiting(keeper, monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr("actors.keeper.SystemClock", lambda: clock)
    monkeypatch.setattr("actors.keeper.cluster_name", lambda _: "east")
    monkeypatch.setattr("actors.keeper.here", lambda: "node_1")
    monkeypatch.setattr("actors.keeper.NamedActor", Gone)
    assert await keeper.unrenewed() is None
    await keeper.ready()
    assert await keeper.unrenewed() < GIVE_UP_SECONDS
    cut = asyncio.Event()
    for name in ("apply", "read", "check_writable"):
        monkeypatch.setattr(keeper._store, name, lambda *_: cut.wait())
    questions = [
        asyncio.create_task(each)
        for each in (
            keeper.apply([encode(AppendLedger((record(1),)))]),
            keeper.read(LedgerFilter(AGENT.tenant)),
            keeper.ready(),
        )
    ]

    await clock.advance(GIVE_UP_SECONDS + 2)
    answers = await asyncio.gather(*questions, return_exceptions=True)

    assert [str(each) for each in answers] == ["the store has not answered this node for 4 s"] * 3
    assert await keeper.unrenewed() >= GIVE_UP_SECONDS
    monkeypatch.undo()
    cut.set()
