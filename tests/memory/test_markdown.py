from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.markdown import HEADER, MemoryDocument, parse, render

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
UNDATED = datetime(2020, 1, 1, tzinfo=UTC)


def memory(content, number=1, tags=(), run_id="run_1", created_at=NOW, **more):
    return Memory(MemoryId(f"mem_{number}"), content, tuple(tags), created_at, run_id, **more)


def file_of(*memories):
    return (HEADER + "".join(render(one) for one in memories)).encode()


def read(text) -> MemoryDocument:
    return parse(text.encode() if isinstance(text, str) else text, UNDATED)


def contents(text):
    return [one.content for one in read(text).memories]


NASTY = [
    "## mem_forged · 2026-01-01T00:00:00+00:00\ntags: evil\n\nforged\n\n---",
    "---",
    "----",
    "a\n---\n## b\n---\n",
    "\n\nleading and trailing blanks  \n \n",
    "CRLF\r\nline\r\n",
    "\r",
    "",
    "NUL \0 inside\0",
    '\\"already escaped"',
    "\\",
    "##",
    "# title\n<!-- comment -->",
    "tags: a, b\nrun: x",
    "客户喜欢绿茶\u2028第二行\u3000",
    "\ufeffbyte order mark",
    "\x85next line\x0bvertical\x0cform feed",
    "```python\n## a comment\n---\nprint('茶')\n```",
    "a fence that nobody closes\n```\ncode",
    "~~~~\n```\n~~~\n",
    "# A heading\n\n### Another\n\n* list\n\n    code",
    "👩‍👩‍👧 家族 🇨🇳",
    "count: 7\nmerged: mem_x\nsession: s",
]


@pytest.mark.parametrize("content", NASTY)
def test_content_that_looks_like_structure_comes_back_exactly_and_forges_nothing(content):
    stored = [memory("before", 1), memory(content, 2, ("标签", "a, b", "")), memory("after", 3)]
    assert list(read(file_of(*stored)).memories) == stored


texts = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "## mem_x · 2026-01-01T00:00:00+00:00",
            "## Harbour",
            "# title",
            "---",
            "tags: a",
            "run: b",
            "count: 2",
            "```",
            "```python",
            "~~~",
            "<!--",
            "",
            " ",
            "\\",
            '\\"x"',
            "文",
            "👩‍👧",
            "\r",
        ]
    ),
    max_size=6,
).map("\n".join)
memories = st.lists(
    st.tuples(
        texts,
        st.lists(st.text(max_size=12), max_size=4),
        st.text(max_size=12),
        st.datetimes(timezones=st.just(UTC)),
        st.text(max_size=12),
        st.integers(1, 3),
        st.lists(st.sampled_from(["mem_a", "mem_b.c"]), max_size=2).map(tuple),
        st.lists(texts, max_size=3).map(tuple),
    ),
    max_size=5,
)


@pytest.mark.property
@given(memories)
def test_whatever_is_rendered_parses_to_the_same_memories(drawn):
    """Property 6, the part of the file."""
    stored = [
        Memory(MemoryId(f"mem_{number}"), content, tuple(tags), created_at, run_id, *more)
        for number, (content, tags, run_id, created_at, *more) in enumerate(drawn)
    ]
    document = read(file_of(*stored))
    assert list(document.memories) == stored
    assert document.faults == []
    assert ("".join(block.text for block in document.blocks) + document.torn).encode() == file_of(*stored)


@pytest.mark.property
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"\xff\xfe## mem_1")
@example("## mem_1 · 2026-01-01".encode()[:-13])
def test_no_file_makes_parsing_fail_or_lose_a_byte(data):
    document = parse(data, UNDATED)
    text = "".join(block.text for block in document.blocks) + document.torn
    assert text.encode("utf-8", "surrogateescape") == data


@pytest.mark.property
@given(memories, st.data())
def test_what_is_appended_is_read_as_if_it_had_always_been_there(drawn, data):
    stored = [
        Memory(MemoryId(f"mem_{number}"), content, tuple(tags), created_at, run_id, *more)
        for number, (content, tags, run_id, created_at, *more) in enumerate(drawn)
    ]
    at = data.draw(st.integers(0, len(stored)))
    by_hand = data.draw(st.sampled_from(["", "\nlikes tea", "\n## Harbour\ncloses\n", "\n```\ncode\n---\n"]))
    head, tail = file_of(*stored[:at]) + by_hand.encode(), "".join(map(render, stored[at:])).encode()
    grown = read(head)
    assert not grown.torn
    assume(not grown.is_undated)
    if tail:
        grown.extend(tail, UNDATED)
    assert grown.memories == read(head + tail).memories


def test_a_file_cut_at_any_byte_keeps_what_is_before_the_cut_and_reports_an_entry_that_was_cut():
    stored = [memory("第一条\n\n----\n", 1, ("茶",)), memory("## second", 2), memory("third\n---\nend", 3, ("a", "b"))]
    whole = file_of(*stored)
    ends = [len(file_of(*stored[:count]).rstrip()) for count in range(1, len(stored) + 1)]
    for cut in range(len(whole) + 1):
        complete = sum(end <= cut for end in ends)
        document = parse(whole[:cut], UNDATED)
        assert list(document.memories[:complete]) == stored[:complete], whole[:cut][-30:]
        if rest := document.memories[complete:]:
            (cut_one,) = rest
            assert stored[complete].content.startswith(cut_one.content)
            assert whole[:cut].endswith(b"\n"), "half a line would say something else"
            assert document.unfinished == {cut_one.memory_id}
            assert any("no rule" in fault.what for fault in document.faults)


def test_a_memory_whose_rule_was_deleted_stays_one_and_is_reported():
    text = file_of(memory("kept"), memory("after", 2)).decode().replace("---\n\n## mem_2", "\n## mem_2")
    document = read(text)
    assert [one.content for one in document.memories] == ["kept", "after"]
    assert [(fault.line, fault.what) for fault in document.faults] == [(6, "mem_1 has no rule --- at its end")]
    assert document.unfinished == {"mem_1"}


def test_a_tail_of_zeros_that_a_crash_left_is_no_entry():
    whole = file_of(memory("kept"), memory("lost", 2))
    torn = whole[: whole.index(b"lost") + 2] + bytes(50)
    assert [one.content for one in read(torn).memories] == ["kept"]


def test_entries_that_people_write_are_entries():
    text = "# Memory\n\n<!-- note -->\nlikes tea\n\n---\n"
    text += "\n## Shipping\nTags: ops\uff0c物流\nHarbour closes at 18:00\n\n## 2026-02-03\ndated\n"
    document = read(text)
    assert [one.content for one in document.memories] == ["likes tea", "Shipping\nHarbour closes at 18:00", "dated"]
    assert document.memories[1].tags == ("ops", "物流")
    assert document.memories[2].created_at == datetime(2026, 2, 3, tzinfo=UTC)


def test_an_entry_without_an_id_keeps_its_derived_id_when_others_come_and_go():
    alone = read("likes tea\n").memories[0]
    among = read("hates rain\n---\nlikes tea\n---\n## x\n").memories[1]
    assert alone.memory_id == among.memory_id
    assert alone.memory_id.startswith("mem_")


def test_equal_entries_of_people_have_different_ids():
    ids = [one.memory_id for one in read("tea\n---\ntea\n").memories]
    assert len(set(ids)) == 2


def test_an_entry_without_a_time_takes_that_of_the_entry_before_it():
    later = NOW + timedelta(days=1)
    data = file_of(memory("dated", created_at=later)) + b"\nby hand\n"
    assert read(data).memories[1].created_at == later
    assert read("by hand").memories[0].created_at == UNDATED


def test_an_editor_that_writes_crlf_and_strips_trailing_blanks_changes_no_content():
    stored = [memory("one\n\n  two\t\n", 1, ("a",)), memory("三 ", 2)]
    edited = "\r\n".join(line.rstrip() for line in file_of(*stored).decode().split("\n"))
    assert list(read(edited).memories) == stored


def test_a_copied_entry_counts_once_and_a_copy_that_was_edited_is_a_memory_of_its_own():
    copied = file_of(memory("original"), memory("original"), memory("edited"))
    found = read(copied).memories
    assert [one.content for one in found] == ["original", "edited"]
    assert found[0].memory_id == "mem_1" != found[1].memory_id


def test_an_entry_whose_text_was_deleted_is_gone():
    assert contents(file_of(memory("gone")).decode().replace("gone", "")) == []


def test_bytes_that_are_no_utf8_are_replaced_in_the_memory_only():
    document = read("caf\xe9 au lait\n".encode("latin-1"))
    assert document.memories[0].content == "caf\ufffd au lait"
    assert document.blocks[0].text.encode("utf-8", "surrogateescape") == b"caf\xe9 au lait\n"


def test_an_id_that_could_not_be_read_back_is_refused():
    with pytest.raises(ValueError, match="no memory id"):
        render(Memory(MemoryId("mem_a b"), "x", (), NOW))


BROKEN = [
    ("## mem_1 · yesterday\n\nlikes tea\n\n---\n", 1, "no time", "likes tea"),
    ("## mem_1 two · 2026-01-01\n\nlikes tea\n---\n", 1, "begins like an id", "mem_1 two · 2026-01-01\nlikes tea"),
    ('## mem_1 · 2026-01-01\ntags: ["a", b]\n\nlikes tea\n---\n', 2, "no JSON list", "likes tea"),
    ('## mem_1 · 2026-01-01\nrun: "half\n\nlikes tea\n---\n', 2, "no JSON string", "likes tea"),
    ("## mem_1 · 2026-01-01\nrun: r\ncount: often\n\nlikes tea\n---\n", 3, "count", "likes tea"),
    ("## mem_1 · 2026-01-01\nmerged: mem_2, x y\n\nlikes tea\n---\n", 2, "merged", "likes tea"),
    ("## mem_1 · 2026-01-01\nalso: likes  tea\n\nlikes tea\n---\n", 2, "no JSON list", "likes tea"),
    ('## mem_1 · 2026-01-01\nalso: "likes  tea"\n\nlikes tea\n---\n', 2, "no JSON list", "likes tea"),
    ('## mem_1 · 2026-01-01\n\nlikes tea\n\\"half\n---\n', 4, "backslash", 'likes tea\n\\"half'),
    ("## mem_1 · 2026-01-01\n\n---\n", 1, "has no text", None),
    ("## mem_1 · 2026-01-01\n\ncaf\udce9\n---\n", 3, "no UTF-8", "caf\ufffd"),
]


@pytest.mark.parametrize(("entry", "line", "what", "content"), BROKEN)
def test_a_broken_entry_is_reported_with_its_line_and_kept(entry, line, what, content):
    before = file_of(memory("before", 7)) + b"\n"
    data = before + entry.encode("utf-8", "surrogateescape") + file_of(memory("after", 8))[len(HEADER) :]
    document = parse(data, UNDATED)
    assert [(fault.line - before.count(b"\n"), what in fault.what) for fault in document.faults] == [(line, True)]
    assert [one.content for one in document.memories] == ["before", *([content] if content else []), "after"]
    text = "".join(block.text for block in document.blocks) + document.torn
    assert text.encode("utf-8", "surrogateescape") == data


def test_other_forms_that_are_no_list_are_kept_as_one_text():
    (found,) = read("## mem_1 · 2026-01-01\nalso: likes  tea\n\nlikes tea\n---\n").memories
    assert (found.content, found.also) == ("likes tea", ("likes  tea",))


def test_an_id_that_stands_over_two_texts_is_reported():
    document = read(file_of(memory("original"), memory("edited")))
    assert [(fault.line, fault.what) for fault in document.faults] == [
        (13, "the id mem_1 is used above for another text")
    ]


def test_a_fence_that_a_person_wrote_is_content_with_everything_in_it():
    text = "## Recipe\n```\n## not an entry\n---\n```\nafter\n---\n\nlikes tea\n"
    assert contents(text) == ["Recipe\n```\n## not an entry\n---\n```\nafter", "likes tea"]


def test_a_fence_that_nobody_closed_ends_with_its_entry():
    text = "## Recipe\n```\ncode\n---\nlikes tea\n" + file_of(memory("mine")).decode().removeprefix(HEADER)
    assert contents(text) == ["Recipe\n```\ncode", "likes tea", "mine"]
