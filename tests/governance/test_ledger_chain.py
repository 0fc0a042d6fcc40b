from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.governance.ledger_chain import ChainHead, chain, verify
from owlclaw_ray.ids import DEFAULT_TENANT

json_objects = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def chained(datas):
    head, records = ChainHead(DEFAULT_TENANT, "keeper"), []
    for number, data in enumerate(datas):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        made = LedgerRecord(f"rec_{number}", DEFAULT_TENANT, "trader", "run_1", LedgerKind.DECISION, at, data)
        head, record = chain(head, made)
        records.append(record)
    return head, records


@pytest.mark.property
@given(st.lists(json_objects, max_size=6))
def test_an_untouched_chain_holds(datas):
    head, records = chained(datas)

    assert verify(records, head) == ()


@pytest.mark.property
@given(st.lists(json_objects, min_size=1, max_size=6), st.data())
def test_any_changed_removed_or_moved_record_is_found(datas, data):
    head, records = chained(datas)
    at = data.draw(st.integers(0, len(records) - 1))
    victim = records[at]
    removed = [*records[:at], *records[at + 1 :]]
    changed = replace(victim, record=replace(victim.record, data={"changed": datas[at]}))
    moved = [*removed, victim] if at < len(records) - 1 else None

    assert verify(removed, head)
    assert verify([*records[:at], changed, *records[at + 1 :]], head)
    assert moved is None or verify(moved, head)


def test_the_order_of_keys_does_not_matter():
    head, records = chained([{"b": 1, "a": 2}])

    reread = replace(records[0], record=replace(records[0].record, data={"a": 2, "b": 1}))

    assert verify([reread], head) == ()


def test_the_hash_stays_the_same_from_version_to_version():
    head, _ = chained([{"理由": "涨了", "n": 1.5}])

    assert head.hash == "bc9136d95fdffc8bfceb8251279b81be30ccbdd9fd166980323154c072a989d4"
