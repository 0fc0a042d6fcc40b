import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.engine.short_term import ShortTermMemory, shorten
from owlclaw_ray.engine.tokens import estimate_tokens

TEXTS = st.one_of(st.text(max_size=4_000), st.text(alphabet="市场波动较大观察入场机会", max_size=4_000))


def test_it_shows_the_trigger_and_the_last_five_records():
    memory = ShortTermMemory(lambda tokens: "Trigger: api")
    for number in range(8):
        memory.add(f"record {number}")

    assert memory.render(2_000) == "Trigger: api\n" + "\n".join(f"- record {number}" for number in range(3, 8))


def test_it_keeps_at_most_its_limit_of_records():
    memory = ShortTermMemory(lambda tokens: "Trigger: api", record_limit=20)
    for number in range(50):
        memory.add(str(number))

    assert len(memory) == 20


def test_the_newest_record_stays_whole_and_the_oldest_is_shortened_first():
    memory = ShortTermMemory(lambda tokens: "Trigger: api")
    memory.add("old " * 500)
    memory.add("newest record")

    shown = memory.render(300)

    assert "newest record" in shown
    assert "characters cut" in shown
    assert estimate_tokens(shown) <= 300


def test_clearing_forgets_every_record():
    memory = ShortTermMemory(lambda tokens: "Trigger: api")
    memory.add("something")
    memory.clear()

    assert memory.render(2_000) == "Trigger: api"


@pytest.mark.property
@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=7), st.integers(50, 2_000))
def test_property_04_and_05_rendering_never_exceeds_the_token_limit(trigger, records, limit):
    memory = ShortTermMemory(lambda tokens: shorten(trigger, tokens))
    for record in records:
        memory.add(record)

    assert estimate_tokens(memory.render(limit)) <= limit


def test_a_trigger_that_cannot_be_cut_is_shown_whole():
    memory = ShortTermMemory(lambda tokens: "assignment " * 900)
    memory.add("older " * 90)
    memory.add("newest record")

    shown = memory.render(100)

    assert shown.startswith("assignment " * 900)
    assert shown.endswith("- newest record")
    assert "characters cut" in shown


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(0, 500))
def test_a_shortened_text_fits(text, tokens):
    assert estimate_tokens(shorten(text, tokens)) <= tokens
