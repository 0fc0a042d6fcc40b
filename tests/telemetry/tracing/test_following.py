"""How the export follows a store: what a restart, a receiver that is away, and one that refuses cost."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import CancelRun, ForgetRuns, OldRun
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.telemetry.trace_export import BATCH, POLL_SECONDS
from owlclaw_ray.testing.store_file import create_store
from tests.contracts.store_commands import AGENT, NOW, submission


@pytest.fixture
async def store(tmp_path):
    await asyncio.to_thread(create_store, tmp_path / "owlclaw.db")
    opened = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="keeper")
    yield opened
    await opened.close()


@pytest.fixture
def end(store):
    """Has so many more runs end, and returns their ids."""
    ended = []

    async def more(count=1):
        ids = [f"run_{number:05}" for number in range(len(ended), len(ended) + count)]
        ended.extend(ids)
        await store.apply([submission(each) for each in ids])
        await store.apply([CancelRun(AGENT.tenant, RunId(each), NOW) for each in ids])
        return ids

    return more


def runs_in(batches):
    return [span.attributes["owlclaw.run.id"] for batch in batches for span in batch.spans]


async def test_what_ended_before_the_first_time_is_not_exported_and_what_ends_from_then_on_is(
    store, end, exporting, receiver
):
    await end(2)
    async with exporting(store) as export:
        later = await end(3)

        assert await export.step() == POLL_SECONDS

    assert runs_in(receiver.batches) == later
    assert export.counts.exported == 3


async def test_a_restart_exports_what_ended_meanwhile_and_nothing_twice(store, end, exporting, receiver):
    async with exporting(store) as export:
        before = await end()
        await export.step()
    meanwhile = await end(2)
    async with exporting(store) as export:
        await export.step()
        await export.step()

    assert runs_in(receiver.batches) == [*before, *meanwhile]


async def test_an_export_that_began_with_an_empty_store_begins_only_once(store, end, exporting, receiver):
    async with exporting(store):
        pass
    ended = await end(2)
    async with exporting(store) as export:
        await export.step()

    assert runs_in(receiver.batches) == ended


async def test_of_what_was_delivered_when_it_could_not_be_noted_the_place_is_noted_later_and_nothing_comes_twice(
    store, end, exporting, receiver
):
    class Away:
        def __init__(self):
            self.commits = []

        async def apply(self, commands):
            self.commits.append(commands)
            if len(self.commits) == 2:
                raise StoreUnavailableError("away")
            return await store.apply(commands)

    async with exporting(store, notes=Away()) as export:
        ended = await end(2)
        with pytest.raises(StoreUnavailableError):
            await export.step()
        await export.step()
    async with exporting(store) as export:
        await export.step()

    assert runs_in(receiver.batches) == ended


async def test_a_batch_whose_answer_was_lost_comes_again_as_the_same_spans(store, end, exporting, receiver):
    answers = [503, 200]
    receiver.answer = lambda _: answers.pop(0)
    async with exporting(store) as export:
        await end(2)

        assert await export.step() != 0
        await export.step()

    first, second = receiver.batches
    assert first.spans == second.spans
    assert (export.counts.failures, export.counts.exported, export.counts.dropped) == (1, 2, 0)


async def test_many_go_in_batches_one_after_the_other(store, end, exporting, receiver):
    async with exporting(store) as export:
        ended = await end(BATCH + 1)

        assert await export.step() == 0
        assert await export.step() == POLL_SECONDS

    assert runs_in(receiver.batches) == ended
    assert [len(each.spans) for each in receiver.batches] == [BATCH, 1]


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_they_wait_longer_and_longer_for_a_receiver_in_trouble_and_lose_nothing(
    store, end, exporting, receiver, status
):
    receiver.answer = lambda _: status
    async with exporting(store) as export:
        ended = await end(2)
        pauses = [await export.step() for _ in range(3)]
        assert pauses == sorted(set(pauses))
        assert export.counts.waiting == 2
        receiver.batches.clear()
        receiver.answer = lambda _: 200

        assert await export.step() == POLL_SECONDS

    assert runs_in(receiver.batches) == ended
    assert (export.counts.failures, export.counts.dropped, export.counts.waiting) == (3, 0, 0)


async def test_one_that_is_not_there_costs_as_much(store, end, exporting, free_port):
    async with exporting(store, url=f"http://127.0.0.1:{free_port}/v1/traces") as export:
        await end()

        assert await export.step() > 0

    assert (export.counts.failures, export.counts.waiting) == (1, 1)


async def test_one_that_hangs_is_given_up_at_the_time_limit(store, end, exporting, receiver):
    hanging = asyncio.Event()
    loop = asyncio.get_running_loop()
    receiver.answer = lambda _: asyncio.run_coroutine_threadsafe(hanging.wait(), loop).result() or 200
    async with exporting(store, timeout=0.05) as export:
        await end()

        assert await export.step() > 0
        hanging.set()

    assert export.counts.failures == 1


async def test_beyond_the_buffer_the_oldest_are_given_up_and_counted(store, end, exporting, receiver, caplog):
    receiver.answer = lambda _: 503
    async with exporting(store, buffer_runs=3) as export:
        ended = await end(5)
        await export.step()
        assert (export.counts.dropped, export.counts.waiting) == (2, 3)
        receiver.batches.clear()
        receiver.answer = lambda _: 200
        await export.step()

    assert runs_in(receiver.batches) == ended[2:]
    assert "2 traces are given up: more than 3 wait for their receiver" in caplog.text


async def test_the_export_says_how_full_its_buffer_is(store, end, exporting):
    async with exporting(store, buffer_runs=2 * BATCH) as export:
        await export.step()
        assert export.fullness == 0.0
        await end(BATCH)
        await export.step()
        await end(BATCH)
        await export.step()
        assert export.fullness == pytest.approx(0.5, abs=0.1)
        await export.step()

        assert export.fullness == 0.0


async def test_what_ends_faster_than_it_is_exported_is_given_up_beyond_the_buffer_too(store, end, exporting, receiver):
    async with exporting(store, buffer_runs=3) as export:
        ended = await end(5)

        await export.step()

    assert runs_in(receiver.batches) == ended[2:]
    assert (export.counts.exported, export.counts.dropped, export.counts.waiting) == (3, 2, 0)


async def test_the_place_is_written_down_once_for_a_batch_and_not_while_nothing_ends(store, end, exporting):
    class Counting:
        commits = 0

        async def apply(self, commands):
            self.commits += 1
            return await store.apply(commands)

    counting = Counting()
    async with exporting(store, notes=counting) as export:
        assert counting.commits == 1
        await end(BATCH + 1)
        for _ in range(4):
            await export.step()

    assert counting.commits == 3


async def test_of_a_batch_that_is_refused_only_what_is_refused_by_itself_is_given_up(
    store, end, exporting, receiver, caplog
):
    def refuse_one(batch):
        return 400 if "run_00003" in runs_in([batch]) else 200

    receiver.answer = refuse_one
    async with exporting(store) as export:
        ended = await end(5)
        await export.step()

    taken = [each for each in receiver.batches if refuse_one(each) == 200]
    assert runs_in(taken) == [each for each in ended if each != "run_00003"]
    assert (export.counts.exported, export.counts.dropped, export.counts.failures) == (4, 1, 0)
    assert "the trace of run run_00003 is given up" in caplog.text


@pytest.mark.parametrize("gone", [1, 3])
async def test_runs_that_were_removed_before_their_traces_were_exported_count_as_given_up(
    store, end, exporting, receiver, gone
):
    async with exporting(store) as export:
        ended = await end(3)
        runs = tuple(OldRun(RunId(each), 0) for each in ended[:gone])
        await store.apply([ForgetRuns(AGENT.tenant, runs, NOW + timedelta(days=1), NOW)])
        await export.step()

    assert runs_in(receiver.batches) == ended[gone:]
    assert len(receiver.batches) == (0 if gone == 3 else 1)
    assert (export.counts.exported, export.counts.dropped) == (3 - gone, gone)


async def test_a_run_of_which_no_spans_can_be_made_is_given_up_and_not_the_others(
    store, end, exporting, receiver, *, caplog, tmp_path
):
    async with exporting(store) as export:
        ended = await end(3)
        broken = submission("run_broken", payload=None)
        await store.apply([broken, CancelRun(AGENT.tenant, broken.run_id, NOW)])
        with sqlite3.connect(tmp_path / "owlclaw.db") as database:
            told = '{"call_id": "c", "tool": 7}'
            database.execute(
                "INSERT INTO journal (run_id, seq, kind, at, data) VALUES ('run_broken', 9, 'tool_finished', 0, ?)",
                [told],
            )
        await export.step()

    assert runs_in(receiver.batches) == ended
    assert (export.counts.exported, export.counts.dropped) == (3, 1)
    assert "the trace of run run_broken is given up: no spans can be made of it: KeyError" in caplog.text


async def test_headers_may_name_variables(store, end, exporting, receiver):
    headers = (("authorization", "Bearer ${TOKEN}"),)
    environ = {"TOKEN": "t-1", "OTEL_EXPORTER_OTLP_HEADERS": "x-scope=shop%20a,authorization=other"}
    async with exporting(store, headers=headers, environ=environ) as export:
        await end()
        await export.step()

    [batch] = receiver.batches
    assert (batch.headers["authorization"], batch.headers["x-scope"]) == ("Bearer t-1", "shop a")
