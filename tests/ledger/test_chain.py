from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.ledger import BreakKind, LedgerKind, LedgerRecord
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ledger.chain import ChainHead, chain, verify

json_objects = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
chains = st.integers(1, 12).map(lambda count: [{"n": number} for number in range(count)])


def record_of(number, data):
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return LedgerRecord(f"rec_{number}", DEFAULT_TENANT, "trader", "run_1", LedgerKind.DECISION, at, data)


def chained(datas):
    head, records = ChainHead(DEFAULT_TENANT, "keeper"), []
    for number, data in enumerate(datas, 1):
        head, record = chain(head, record_of(number, data))
        records.append(record)
    return head, records


def renumbered(records):
    return [replace(record, position=number) for number, record in enumerate(records, 1)]


def found(records, head):
    return [(each.kind, each.position, each.record_id) for each in verify(records, head)]


@pytest.mark.property
@given(st.lists(json_objects, max_size=6))
def test_an_untouched_chain_holds(datas):
    head, records = chained(datas)

    assert found(records, head) == []


@pytest.mark.property
@given(chains, st.data())
def test_a_changed_record_is_named(datas, data):
    head, records = chained(datas)
    at = data.draw(st.integers(0, len(records) - 1))
    victim = records[at]
    change = data.draw(
        st.sampled_from(
            [{"run_id": "run_2"}, {"agent_id": "x"}, {"data": {"changed": datas[at]}}, {"kind": LedgerKind.RUN}]
        )
    )

    records[at] = replace(victim, record=replace(victim.record, **change))

    assert found(records, head) == [(BreakKind.CHANGED, at + 1, victim.record.record_id)]


@pytest.mark.property
@given(chains, st.data())
def test_a_record_changed_with_its_hash_is_named(datas, data):
    head, records = chained(datas)
    at = data.draw(st.integers(0, len(records) - 1))
    victim = records[at]
    before = ChainHead(DEFAULT_TENANT, "keeper", at, victim.previous_hash)

    _, records[at] = chain(before, replace(victim.record, data={"changed": datas[at]}))

    assert found(records, head) == [(BreakKind.CHANGED, at + 1, victim.record.record_id)]


@pytest.mark.property
@given(chains, st.booleans(), st.data())
def test_removed_records_are_counted_even_if_the_others_are_renumbered(datas, renumber, data):
    head, records = chained(datas)
    first = data.draw(st.integers(0, len(records) - 1))
    last = data.draw(st.integers(first, len(records) - 1))

    left = [*records[:first], *records[last + 1 :]]
    breaks = verify(renumbered(left) if renumber else left, head)

    assert [(each.kind, each.position) for each in breaks] == [(BreakKind.REMOVED, first + 1)]
    count = f"record {first + 1} is" if first == last else f"records {first + 1} to {last + 1} are"
    assert breaks[0].problem == f"{count} missing"


@pytest.mark.property
@given(chains, st.booleans(), st.data())
def test_an_inserted_record_is_named_even_if_it_fits_what_is_before_it(datas, fitting, data):
    head, records = chained(datas)
    at = data.draw(st.integers(0, len(records) - 1))
    before = ChainHead(DEFAULT_TENANT, "keeper", at, records[at].previous_hash)
    _, forged = chain(before, record_of(99, {"forged": True}))
    if not fitting:
        forged = replace(forged, hash="forged")

    records.insert(at, forged)

    assert found(renumbered(records), head) == [(BreakKind.INSERTED, at + 1, "rec_99")]


@pytest.mark.property
@given(chains, st.data())
def test_a_moved_record_is_named(datas, data):
    head, records = chained(datas)
    source = data.draw(st.integers(0, len(records) - 1))
    target = data.draw(st.integers(0, len(records) - 1))
    assume(source != target)

    moved = records.pop(source)
    records.insert(target, moved)

    named = found(renumbered(records), head)
    left = [each.position for each in records if each.record.record_id not in {record_id for *_, record_id in named}]
    assert {kind for kind, *_ in named} == {BreakKind.MOVED}
    assert left == sorted(left)
    if source < target:
        assert named == [(BreakKind.MOVED, target + 1, moved.record.record_id)]


def test_of_two_neighbours_that_changed_places_one_is_named():
    head, records = chained([{"n": number} for number in range(5)])
    records[1], records[2] = records[2], records[1]

    assert found(renumbered(records), head) == [(BreakKind.MOVED, 3, "rec_2")]


def test_records_that_fit_together_are_told_from_those_they_were_put_before():
    head, records = chained([{"n": number} for number in range(6)])
    end, forged = ChainHead(DEFAULT_TENANT, "keeper", 2, records[1].hash), []
    for number in (97, 98, 99):
        end, record = chain(end, record_of(number, {}))
        forged.append(record)

    breaks = found(renumbered([*records[:2], *forged, *records[2:]]), head)

    assert breaks == [(BreakKind.INSERTED, place, f"rec_{number}") for place, number in ((3, 97), (4, 98), (5, 99))]


def test_records_after_the_recorded_end_are_found():
    _, records = chained([{}, {}, {}])
    head, _ = chained([{}])

    assert found(records, head) == [(BreakKind.INSERTED, 2, None)]


def test_several_damages_are_all_named():
    head, records = chained([{"n": number} for number in range(40)])
    records[4] = replace(records[4], hash="forged")
    records[20] = replace(records[20], previous_hash="forged")
    del records[30:33]
    del records[10]

    assert found(records, head) == [
        (BreakKind.CHANGED, 5, "rec_5"),
        (BreakKind.REMOVED, 11, None),
        (BreakKind.CHANGED, 21, "rec_21"),
        (BreakKind.REMOVED, 31, None),
    ]


@pytest.mark.property
@given(chains, st.data())
def test_nothing_but_the_chain_itself_holds(datas, data):
    head, records = chained(datas)
    shuffled = data.draw(st.lists(st.sampled_from(records), max_size=10))
    assume(shuffled != records)

    assert found(renumbered(shuffled), head)


def test_the_order_of_keys_does_not_matter():
    head, records = chained([{"b": 1, "a": 2}])

    reread = replace(records[0], record=replace(records[0].record, data={"a": 2, "b": 1}))

    assert verify([reread], head) == ()


def test_the_hash_stays_the_same_from_version_to_version():
    head, _ = chain(ChainHead(DEFAULT_TENANT, "keeper"), record_of(0, {"理由": "涨了", "n": 1.5}))

    assert head.hash == "bc9136d95fdffc8bfceb8251279b81be30ccbdd9fd166980323154c072a989d4"
