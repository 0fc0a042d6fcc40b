from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.runs.storable_json import storable

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.characters(categories=["Cs"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), anything, max_size=3))
def test_what_comes_out_can_always_be_stored(data):
    orjson.dumps(storable(data))


def test_what_can_be_stored_stays_the_same_object():
    data = {"a": [1, "ü", None]}

    assert storable(data) is data


def test_what_holds_itself_in_many_places_is_cut_where_it_begins_again():
    data = {}
    data["a"], data["b"], data["c"] = data, [data, data], 1

    assert storable(data) == {"a": "…", "b": ["…", "…"], "c": 1}


def test_facts_are_stored_with_their_fields():
    trader = AgentRef("default", "trader")

    assert storable({"agents": [trader]}) == {"agents": [{"tenant": "default", "agent_id": "trader"}]}


def test_half_characters_and_huge_numbers_become_text():
    assert storable({"a": "\ud83d", "b": 2**70}) == {"a": "\ufffd", "b": str(2**70)}
