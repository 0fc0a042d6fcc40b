from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.file import MERGED_TEXTS
from owlclaw_ray.memory.markdown import parse
from tests.memory.opened import open_file

PAIRS = yaml.safe_load(Path(__file__).with_name("duplicates.yaml").read_text(encoding="utf-8"))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path):
    return open_file(tmp_path)


def remember(file, *contents):
    """Remember the contents one after the other, and return what stands in MEMORY.md then."""
    for content in contents:
        told = sum(each.count for each in file.load().memories)
        file.append(Memory(MemoryId(f"mem_{told}"), content, (), NOW))
    document = parse(file.path.read_bytes(), NOW)
    assert document.faults == []
    return document.memories


@pytest.mark.parametrize("kind", PAIRS)
def test_there_are_a_hundred_pairs_of_each_kind(kind):
    assert len({tuple(pair) for pairs in PAIRS[kind].values() for pair in pairs}) >= 100


@pytest.mark.parametrize("difference", PAIRS["apart"])
def test_what_differs_stays_apart(tmp_path, difference):
    for number, pair in enumerate(PAIRS["apart"][difference]):
        file = open_file(tmp_path / str(number))
        assert [each.content for each in remember(file, *pair)] == pair


@pytest.mark.parametrize("difference", PAIRS["one"])
def test_what_differs_in_form_only_is_one_memory_and_both_forms_stay_readable(tmp_path, difference):
    for number, (first, second) in enumerate(PAIRS["one"][difference]):
        file = open_file(tmp_path / str(number))
        stored = remember(file, first, second)
        also = (second,) if second != first else ()
        assert [(each.content, each.also, each.count) for each in stored] == [(first, also, 2)]


def test_a_form_for_which_a_memory_has_no_room_begins_another_memory(file):
    texts = [f"the harbour{' ' * blanks}closes" for blanks in range(1, MERGED_TEXTS + 4)]
    first, second = remember(file, *texts, texts[1], texts[-1])
    assert (first.content, first.also, first.count) == (texts[0], tuple(texts[1 : MERGED_TEXTS + 1]), MERGED_TEXTS + 1)
    assert (second.content, set(second.also), second.count) == (
        texts[MERGED_TEXTS + 1],
        {texts[1], *texts[MERGED_TEXTS + 2 :]},
        4,
    )


def test_an_edited_text_takes_the_forms_of_the_old_one_with_it(file):
    (stored,) = remember(file, "the limit is 500", "the limit is 500.")
    assert file.edit(stored.memory_id, None, ["limits"]).also == ("the limit is 500.",)
    assert file.edit(stored.memory_id, "the limit is 700", None).also == ()


def test_the_forms_of_an_archived_memory_are_archived_with_it(file):
    (stored,) = remember(file, "the limit is 500", "the limit is 500.")
    file.archive([stored.memory_id])
    assert file.archived() == (stored,)
    assert stored.also == ("the limit is 500.",)
