"""Lists of runs: what a filter finds is what looking at every run finds, and how much it reads does not grow with the runs."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import delete, event, insert, select

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.focus import FocusQuery
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId
from owlclaw_ray.store.commands import CancelRun, IdleHeartbeat
from owlclaw_ray.store.queries import RunById
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.sql import focus_index, run_search
from owlclaw_ray.store.sql.codec import agent_key, dump_trigger, to_micros
from owlclaw_ray.store.sql.dialects import POSTGRESQL
from owlclaw_ray.store.sql.focus_index import term_rows
from owlclaw_ray.store.sql.schema import focus_terms, runs
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, one, submission

ACME = TenantId("acme")
AGENTS = ("trader:AAPL", "trader:MSFT", "trader", "clerk", "clerk:7")
WORDS = ("order", "refund", "17", "Zürich", "处理订单", "退款", "单", "注文")
TEXTS = (None, None, "order", "REFUND", "order 17", "订单", "单", "zürich, refund", "nonesuch", "订退", "!")
STATUSES = [*RunStatus]
COUNT = 300


def made():
    """Return rows of runs of two tenants, in the order in which they were accepted, by clocks that differ by up to a minute."""
    chance, rows = random.Random(20), []
    for seq in range(1, COUNT + 1):
        tenant = chance.choice((DEFAULT_TENANT, DEFAULT_TENANT, ACME))
        focus = " ".join(chance.choices(WORDS, k=chance.randrange(4)))
        kind = chance.choices([*TriggerKind], [8, 3, 1, 1, 1, 3, 1])[0]
        at = NOW + timedelta(seconds=20 * seq + chance.randrange(-55, 55))
        status = chance.choices(STATUSES, [1, 1, 1, 9, 3, 1, 1, 1, 1])[0]
        agent = AgentRef.parse(chance.choice(AGENTS), tenant)
        rows.append((seq, agent, Trigger(kind, None, focus), at, status))
    return rows


ROWS = made()


def fill(connection):
    for seq, agent, trigger, at, status in ROWS:
        row = {"seq": seq, "run_id": f"run_{seq}", "tenant": agent.tenant, "agent": agent_key(agent)}
        row |= {"trigger": dump_trigger(trigger)[0], "created_at": to_micros(at), "status": status.value}
        row["finished_at"] = to_micros(at) if status.final else None
        connection.execute(insert(runs).values(**row, cancel_requested=False, claimed_epoch=1))
        for tenant, term, of in term_rows(agent.tenant, seq, trigger.kind, trigger.focus):
            connection.execute(insert(focus_terms).values(tenant=tenant, term=term, seq=of))


def naively(search):
    """Return the numbers of the runs that match, newest first, by looking at each."""

    def matches(seq, agent, trigger, at, status):
        return (
            agent.tenant == search.tenant
            and (search.agent is None or agent.agent_id == search.agent.agent_id)
            and (search.definition is None or agent.definition == search.definition)
            and (search.status is None or status is search.status)
            and not (search.open and status.final)
            and (search.kind is None or trigger.kind is search.kind)
            and (search.since is None or at >= search.since)
            and (search.until is None or at < search.until)
            and (search.after_seq is None or seq > search.after_seq)
            and (search.before_seq is None or seq < search.before_seq)
            and (search.text is None or FocusQuery.of(search.text).matches(trigger.focus))
            and (
                search.text is None or search.kind is TriggerKind.HEARTBEAT or trigger.kind is not TriggerKind.HEARTBEAT
            )
        )

    return [row[0] for row in reversed(ROWS) if matches(*row)]


async def all_pages(store, search):
    """Return the numbers of all runs that the pages have, and how many pages there are."""
    found, pages = [], 0
    while True:
        page = await store.read(search)
        pages += 1
        assert pages <= COUNT
        found += [run.seq for run in page.runs]
        assert all(run.agent.tenant == search.tenant for run in page.runs)
        if page.following is None:
            return found, pages
        assert len(page.runs) == search.limit or page.searched_to is not None
        last = await store.read(RunById(search.tenant, page.following))
        assert search.before_seq is None or last.seq < search.before_seq
        search = replace(search, before_seq=last.seq)


MOMENTS = st.none() | st.integers(-300, 20 * COUNT + 300).map(lambda seconds: NOW + timedelta(seconds=seconds))
NUMBERS = st.none() | st.integers(1, COUNT + 1)
SEARCHES = st.builds(
    RunSearch,
    st.sampled_from([DEFAULT_TENANT, ACME]),
    st.none() | st.sampled_from([*AGENTS, "nobody"]).map(AgentRef.parse),
    st.sampled_from([None, None, "trader", "clerk", "nobody"]),
    st.none() | st.sampled_from(STATUSES),
    st.booleans(),
    st.none() | st.sampled_from([*TriggerKind]),
    MOMENTS,
    MOMENTS,
    st.sampled_from(TEXTS),
    NUMBERS,
    NUMBERS,
    st.sampled_from([1, 3, 50]),
)


@pytest.fixture
def small_bounds(monkeypatch):
    """Have few runs be as many as a million are."""
    for name, value in {"_NEWEST": 4, "_WORDS": 12, "_CANDIDATES": 5, "_FEW": 3, "_AT_ONCE": 3}.items():
        monkeypatch.setattr(run_search, name, value)
    monkeypatch.setattr(focus_index, "_BUCKET_BITS", 3)


@pytest.fixture
async def filled(small_bounds, store):
    await store._database.write(fill)
    return store


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(search=SEARCHES)
async def test_pages_of_every_filter_have_what_looking_at_every_run_finds_each_once(filled, search):
    found, _ = await all_pages(filled, search)

    assert found == naively(search)


@pytest.mark.parametrize("seconds", [20 * COUNT - 100, 20 * COUNT + 300, 86_400])
async def test_a_filter_whose_end_is_near_the_newest_run_or_still_to_come_has_each_run_on_one_page(filled, seconds):
    search = RunSearch(DEFAULT_TENANT, until=NOW + timedelta(seconds=seconds), limit=3)

    found, _ = await all_pages(filled, search)

    assert found == naively(search)


async def test_text_that_many_have_beside_a_filter_that_others_have_is_searched_for_over_several_pages(filled):
    rare = RunSearch(DEFAULT_TENANT, kind=TriggerKind.API, text="order refund 17", limit=50)

    first = await filled.read(rare)
    found, pages = await all_pages(filled, rare)

    assert first.searched_to is not None
    assert first.following is not None
    assert pages > 1
    assert found == naively(rare)


async def test_a_run_is_found_by_its_focus_as_soon_as_it_is_accepted_and_stays_until_it_is_over(store):
    focus = "Refund order 17, 订单十七"
    submitted = submission("run_1")
    submitted = replace(submitted, trigger=replace(submitted.trigger, focus=focus))
    await store.apply([submitted, submission("run_2", OTHER), activation("act_1")])

    async def found(words, **filters):
        return [run.run_id for run in (await store.read(RunSearch(AGENT.tenant, text=words, **filters))).runs]

    assert await found("ORDER 17") == ["run_1"]
    assert await found("十七") == ["run_1"]
    assert await found("行情") == ["run_2"]
    assert await found("refund", agent=OTHER) == []
    assert await found("refund", status=RunStatus.COMPLETED) == []
    await claimed(store)
    await one(store, ending("run_1", claim_next=False))
    assert await found("refund", status=RunStatus.COMPLETED) == ["run_1"]
    assert await found("refund", open=True) == []


async def test_two_triggers_that_merge_are_one_run_in_the_index(store):
    merging = [replace(submission(f"run_{at}", payload=at), busy=BusyPolicy.COALESCE) for at in range(3)]
    await store.apply(merging)

    page = await store.read(RunSearch(AGENT.tenant, text="看看行情"))

    assert [run.run_id for run in page.runs] == ["run_0"]


async def test_an_idle_heartbeat_that_gives_way_to_the_next_leaves_nothing_in_the_index(store):
    await store.apply([activation("act_1")])
    for at in range(3):
        beat = submission(f"run_{at}")
        await store.apply([replace(beat, trigger=Trigger(TriggerKind.HEARTBEAT, None, "look around"))])
        await claimed(store)
        end = replace(
            ending(f"run_{at}", claim_next=False), idle=IdleHeartbeat((at and RunId(f"run_{at - 1}")) or None, 60)
        )
        await one(store, end)

    by_kind = await store.read(RunSearch(AGENT.tenant, kind=TriggerKind.HEARTBEAT, text="around"))

    assert [run.run_id for run in by_kind.runs] == ["run_2"]
    assert await store._database.read(lambda connection: connection.execute(select(focus_terms)).all()) == []


async def test_each_filter_is_read_from_the_index_that_is_made_for_it(filled):
    """By the plans of all statements of a search, on SQLite: no table is scanned, and no index read that has others' runs, too."""
    if filled._database.dialect is POSTGRESQL:
        pytest.skip("the plans of PostgreSQL depend on what it knows of the tables")
    every, agent, failed = RunSearch(DEFAULT_TENANT), AgentRef.parse("trader:AAPL"), RunStatus.FAILED
    beneath = replace(every, before_seq=COUNT)
    searches = [
        ("runs_by_tenant", beneath),
        ("runs_by_agent", replace(beneath, agent=agent)),
        ("runs_by_definition", replace(beneath, definition="trader")),
        ("runs_by_status", replace(beneath, status=failed)),
        ("runs_by_status", replace(beneath, open=True, kind=TriggerKind.API)),
        ("runs_by_status", replace(beneath, definition="trader", open=True)),
        ("runs_active", replace(beneath, agent=agent, open=True)),
        ("runs_active", replace(beneath, agent=agent, status=RunStatus.QUEUED, kind=TriggerKind.API)),
        ("runs_over", replace(beneath, kind=TriggerKind.EVENT, status=failed)),
        ("runs_over_by_agent", replace(beneath, agent=agent, status=failed)),
        ("runs_over_by_definition", replace(beneath, definition="trader", kind=TriggerKind.EVENT, status=failed)),
        ("runs_by_tenant", replace(beneath, since=NOW, until=NOW + timedelta(days=1))),
        ("runs_by_tenant", replace(beneath, text="nonesuch")),
    ]

    def plans_of(connection, search):
        plans = []

        def explain(_connection, cursor, statement, parameters, _context, _many):
            plans.extend(row[3] for row in cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

        event.listen(connection, "before_cursor_execute", explain)
        run_search.search_runs(connection, search)
        return plans

    for index, search in searches:
        plans = await filled._database.read(plans_of, search)
        assert {found[1] for plan in plans if (found := re.search(r"INDEX (\w+)", plan))} == {index}, (search, plans)
        assert not [plan for plan in plans if re.match(r"SCAN (runs|focus_terms)\b", plan)], plans
        if search.text is not None:
            assert any(re.match(r"SEARCH \w+ USING PRIMARY KEY \(tenant=\? AND term=\?", plan) for plan in plans), plans


@pytest.mark.parametrize("status", [each for each in RunStatus if each.final])
async def test_a_run_is_found_by_how_it_ended_and_what_began_it(store, status):
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)

    await store.apply([replace(ending("run_1"), result=RunResult(status))])

    page = await store.read(RunSearch(AGENT.tenant, kind=TriggerKind.API, status=status, limit=5))
    assert [each.run_id for each in page.runs] == ["run_1"]


async def test_a_run_that_was_cancelled_before_it_began_is_found_by_that_and_what_began_it(store):
    await store.apply([submission("run_1"), activation("act_1")])

    await store.apply([CancelRun(AGENT.tenant, RunId("run_1"), NOW)])

    page = await store.read(RunSearch(AGENT.tenant, kind=TriggerKind.API, status=RunStatus.CANCELLED, limit=5))
    assert [each.run_id for each in page.runs] == ["run_1"]


async def test_a_filter_that_was_asked_before_is_not_compiled_again(filled):
    search, hits = RunSearch(DEFAULT_TENANT, kind=TriggerKind.API, status=RunStatus.FAILED, limit=5), []

    def note(_connection, _cursor, _statement, _parameters, context, _many):
        hits.append(context.cache_hit.name)

    def twice(connection):
        run_search.search_runs(connection, search)
        event.listen(connection, "before_cursor_execute", note)
        run_search.search_runs(connection, search)

    await filled._database.read(twice)

    assert set(hits) == {"CACHE_HIT"}


async def test_runs_that_an_older_version_accepted_are_named_by_the_migration_as_new_ones_are(store, monkeypatch):
    migration = import_module("owlclaw_ray.store.sql.migrations.versions.0027_run_filters")
    monkeypatch.setattr(migration, "_RUNS_AT_ONCE", 2)
    named = select(focus_terms.c.tenant, focus_terms.c.term, focus_terms.c.seq)

    def go_through(connection):
        fill(connection)
        known = {*connection.execute(named)}
        connection.execute(delete(focus_terms))
        migration._fill(connection)
        return known, {*connection.execute(named)}

    known, filled_in = await store._database.write(go_through)

    assert len(known) > COUNT / 2
    assert filled_in == known


async def test_a_word_that_nobody_has_is_looked_for_in_as_many_pages_as_there_are_numbers_for(
    small_bounds, store, monkeypatch
):
    monkeypatch.setattr(run_search, "_MOST_ROUNDS", 2)
    monkeypatch.setattr(run_search, "_MOST_BUCKETS", 2)
    await store._database.write(fill)
    where = RunSearch(DEFAULT_TENANT, text="nonesuch", limit=50)

    page = await store.read(where)
    found, pages = await all_pages(store, where)

    assert page.searched_to is not None
    assert found == []
    assert pages > 2


async def test_a_word_that_few_have_is_found_in_one_page_beside_a_word_that_all_have(small_bounds, store, monkeypatch):
    """However much the index says of the one that all have: it is read where the other is, and nowhere else."""
    monkeypatch.setattr(run_search, "_WORDS", 40)

    def fill_alike(connection):
        for seq in range(1, COUNT + 1):
            trigger = Trigger(TriggerKind.API, None, f"shipment {17 if seq in {30, 150} else 18}")
            row = {"seq": seq, "run_id": f"run_{seq}", "tenant": DEFAULT_TENANT, "agent": agent_key(AGENT)}
            row |= {"trigger": dump_trigger(trigger)[0], "created_at": to_micros(NOW), "status": "completed"}
            row["finished_at"] = to_micros(NOW)
            connection.execute(insert(runs).values(**row, cancel_requested=False, claimed_epoch=1))
            for tenant, term, of in term_rows(DEFAULT_TENANT, seq, trigger.kind, trigger.focus):
                connection.execute(insert(focus_terms).values(tenant=tenant, term=term, seq=of))

    await store._database.write(fill_alike)

    page = await store.read(RunSearch(DEFAULT_TENANT, text="shipment 17"))

    assert [run.seq for run in page.runs] == [150, 30]
    assert page.searched_to is None


async def test_text_without_a_letter_or_digit_is_found_nowhere_without_looking(filled):
    assert await filled.read(RunSearch(DEFAULT_TENANT, text="!🦉")) == RunPage(())
