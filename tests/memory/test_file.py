import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import MemoryChangedError, NotFoundError, UserError
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.memory import file as module
from owlclaw_ray.memory.entries import EntryFile
from owlclaw_ray.memory.markdown import parse
from tests.memory.opened import open_file
from tests.properties import examples

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def memory(number, content=None, created_at=NOW, tags=()):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact {number}", tuple(tags), created_at, "run_1")


def contents(file):
    return [one.content for one in file.load().memories]


def archived(folder):
    path = folder / "MEMORY.archive.md"
    return [one.memory_id for one in parse(path.read_bytes(), NOW).memories] if path.exists() else []


def test_a_stored_memory_is_there_for_another_reader(tmp_path):
    folder = tmp_path / "agents" / "default" / "trader"
    assert contents(open_file(folder)) == []
    for number in range(3):
        open_file(folder).append(memory(number, "客户\r\n喜欢茶"[: number + 4]))
    assert open_file(folder).load().memories == tuple(
        memory(number, "客户\r\n喜欢茶"[: number + 4]) for number in range(3)
    )


def test_an_id_is_stored_once(tmp_path):
    file = open_file(tmp_path)
    first = file.append(memory(1, "tea"))
    assert file.append(memory(1, "something else")) == first
    assert open_file(tmp_path).append(memory(1, "something else")) == first
    assert contents(open_file(tmp_path)) == ["tea"]


def test_duplicates_are_merged_each_once(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1, "The customer likes green tea.", tags=("a", "b")))
    file.append(memory(2, "harbour closes at six"))
    later = NOW + timedelta(days=3)
    for _ in range(2):
        merged = open_file(tmp_path).append(memory(3, "The customer likes  green tea", later, ("b", "c")))
    assert (merged.memory_id, merged.content) == ("mem_1", "The customer likes green tea.")
    assert (merged.tags, merged.created_at, merged.count) == (("a", "b", "c"), later, 2)
    assert (merged.merged, merged.also) == (("mem_3",), ("The customer likes  green tea",))
    again = file.append(memory(4, "The customer likes green tea.", NOW))
    assert (again.count, again.created_at, again.also) == (3, later, merged.also)
    assert open_file(tmp_path).load().memories == (again, memory(2, "harbour closes at six"))


def test_a_merge_leaves_the_next_memory_nothing_to_learn_and_what_others_change_is_learnt(tmp_path, monkeypatch):
    file = open_file(tmp_path)
    for number in range(20):
        file.append(memory(number, f"the fact of the number {number}"))
    learnt = []
    real = module.likeness
    monkeypatch.setattr(module, "likeness", lambda content: learnt.append(content) or real(content))
    known = file._known.by_likeness

    file.append(memory("a", "the fact of the number 7."))
    file.append(memory("b", "the tide is high at noon"))
    assert (learnt, file._known.by_likeness is known) == (
        ["the fact of the number 7.", "the tide is high at noon"],
        True,
    )

    assert file.append(memory("a", "the fact of the number 7.")).memory_id == "mem_7"
    open_file(tmp_path).edit("mem_7", "the fact of the number 77", None)
    assert file.append(memory("c", "the fact of the number 77.")).memory_id == "mem_7"
    assert file.append(memory("d", "the fact of the number 7")).memory_id == "mem_d"
    assert file.append(memory("a", "whatever")).memory_id == "mem_7"


def test_a_memory_remembers_the_last_of_its_duplicates_only(tmp_path):
    file = open_file(tmp_path)
    for number in range(40):
        stored = file.append(memory(number, "the customer likes tea"))
    assert stored.count == 40
    assert stored.merged == tuple(f"mem_{number}" for number in range(20, 40))
    assert file.append(memory(39, "the customer likes tea")).count == 40


def test_hand_edits_are_seen_and_survive_the_next_memory(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1))
    file.append(memory(2))
    text = file.path.read_text().replace("fact 1", "fact one")
    file.path.write_text(text + "\n## By hand\nlikes tea")
    assert contents(file) == ["fact one", "fact 2", "By hand\nlikes tea"]
    file.append(memory(3))
    assert contents(file) == contents(open_file(tmp_path)) == ["fact one", "fact 2", "By hand\nlikes tea", "fact 3"]


def test_a_deleted_file_is_an_empty_memory(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1))
    file.path.unlink()
    assert contents(file) == []
    file.append(memory(2))
    assert contents(file) == ["fact 2"]


def test_a_write_that_was_cut_at_any_byte_is_repaired_by_the_next_one(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1))
    before = file.path.stat().st_size
    file.append(memory(2, "第二\n---"))
    whole = file.path.read_bytes()
    for cut in range(before, len(whole)):
        file.path.write_bytes(whole[:cut])
        again = open_file(tmp_path)
        again.append(memory(3))
        again.append(memory(2, "第二\n---"))
        assert again.problems() or cut <= before + 1 or cut >= len(whole) - 1
        expected = {"mem_1": "fact 1", "mem_2": "第二\n---", "mem_3": "fact 3"}
        assert {one.memory_id: one.content for one in open_file(tmp_path).load().memories} == expected, whole[:cut][
            -30:
        ]


def test_an_unfinished_entry_is_set_aside_not_destroyed(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1, "half of this is lost"))
    file.path.write_bytes(file.path.read_bytes()[:-12])
    open_file(tmp_path).append(memory(2))
    assert "half of this" in (tmp_path / "MEMORY.torn.md").read_text()


def test_the_oldest_memories_are_archived_when_there_are_too_many(tmp_path):
    file = open_file(tmp_path, memories=3)
    for number, age in enumerate([1, 9, 2, 0, 0]):
        file.append(memory(number, created_at=NOW - timedelta(days=age)))
    assert contents(file) == contents(open_file(tmp_path)) == ["fact 0", "fact 3", "fact 4"]
    assert archived(tmp_path) == ["mem_1", "mem_2"]


def test_a_file_that_is_too_large_first_loses_all_that_is_older_than_three_months(tmp_path):
    file = open_file(tmp_path, size=2_000)
    for number, age in enumerate([10, 100, 95, 5]):
        file.append(memory(number, f"{number}" * 300, NOW - timedelta(days=age)))
    file.append(memory(4, "4" * 900))
    assert [one.memory_id for one in file.load().memories] == ["mem_0", "mem_3", "mem_4"]
    assert archived(tmp_path) == ["mem_1", "mem_2"]


def test_a_file_that_is_still_too_large_loses_its_oldest_too(tmp_path):
    file = open_file(tmp_path, size=2_000)
    for number in range(5):
        file.append(memory(number, f"{number}" * 500, NOW + timedelta(days=number)))
    assert [one.memory_id for one in file.load().memories] == ["mem_2", "mem_3", "mem_4"]
    assert archived(tmp_path) == ["mem_0", "mem_1"]
    assert file.path.stat().st_size <= 2_000


@pytest.mark.property
@examples
@given(st.lists(st.tuples(st.text(min_size=1, max_size=300), st.integers(0, 200)), max_size=12), st.data())
def test_property_08_the_file_stays_within_its_limits_and_nothing_is_destroyed(tmp_path_factory, drawn, data):
    folder = tmp_path_factory.mktemp("memory")
    limits = {"size": data.draw(st.integers(1_500, 4_000)), "memories": data.draw(st.integers(1, 12))}
    file = open_file(folder, **limits)
    stored = set()
    for number, (content, age) in enumerate(drawn):
        stored.add(file.append(memory(number, content, NOW - timedelta(days=age))).memory_id)
        assert file.path.stat().st_size <= limits["size"]
    active = [one.memory_id for one in open_file(folder, **limits).load().memories]
    assert len(active) <= limits["memories"]
    assert set(active) | set(archived(folder)) == stored


def test_what_people_wrote_between_the_entries_survives_archiving(tmp_path):
    file = open_file(tmp_path, memories=2)
    file.append(memory(1, created_at=NOW - timedelta(days=3)))
    file.path.write_text(file.path.read_text() + "\n<!-- reviewed by Wei -->\n\n---\n")
    for number in (2, 3):
        file.append(memory(number))
    assert "reviewed by Wei" in file.path.read_text()
    assert contents(file) == ["fact 2", "fact 3"]


def test_a_memory_that_cannot_be_written_is_refused_and_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = open_file(tmp_path)
    file.append(memory(1))
    before = file.path.read_bytes()
    real = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.append(memory(2))
    monkeypatch.setattr(os, "fsync", real)
    assert file.path.read_bytes() == before
    assert file.append(memory(2)).memory_id == "mem_2"


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from owlclaw_ray.domain.memory import Memory
from tests.memory.opened import open_file
file = open_file(Path(sys.argv[1]))
for number in range(40):
    file.append(Memory(f"mem_{sys.argv[2]}{number}", f"{sys.argv[2]} {number}", (), datetime(2026, 1, 1, tzinfo=UTC)))
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    assert len(contents(open_file(tmp_path))) == 80


def test_an_edit_keeps_id_and_time_and_the_rest_of_the_file(tmp_path):
    file = open_file(tmp_path)
    for number in range(3):
        file.append(memory(number))
    file.path.write_text(file.path.read_text() + "\nby hand\n")
    edited = open_file(tmp_path).edit("mem_1", "## fact\n---", ["x", "x"])
    assert edited == replace(memory(1), content="## fact\n---", tags=("x",))
    assert contents(file) == ["fact 0", "## fact\n---", "fact 2", "by hand"]
    assert file.edit("mem_1", None, ()).content == "## fact\n---"
    with pytest.raises(NotFoundError, match="no memory 'mem_9'"):
        file.edit("mem_9", "x", None)
    with pytest.raises(UserError, match="needs a text"):
        file.edit("mem_1", " ", None)


def test_an_edit_made_from_what_is_not_there_any_more_changes_nothing(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1, "the limit is 500", tags=("a", "b")))
    before = file.path.read_bytes()

    with pytest.raises(MemoryChangedError) as refused:
        file.edit("mem_1", "the limit is 700", ("c",), old_content="the limit is 600", old_tags=("a",))

    assert refused.value.fields == ("content", "tags")
    assert file.path.read_bytes() == before
    assert file.edit("mem_1", None, ("c",), old_tags=("b", "a")).tags == ("c",)
    assert file.edit("mem_1", "the limit is 700", None, old_content="the limit is 500").content == "the limit is 700"
    # the same again, as a client does whose answer got lost
    assert file.edit("mem_1", "the limit is 700", None, old_content="the limit is 500").content == "the limit is 700"


def test_what_is_deleted_is_gone_from_the_archive_too(tmp_path):
    file = open_file(tmp_path)
    for number in range(3):
        file.append(memory(number))
    text = file.path.read_text()
    copy = text[text.index("## mem_1") : text.index("## mem_2")]
    file.path.write_text(text + copy)
    file.archive(["mem_0"])
    assert [file.delete(f"mem_{number}").content for number in (0, 1)] == ["fact 0", "fact 1"]
    assert contents(file) == contents(open_file(tmp_path)) == ["fact 2"]
    assert archived(tmp_path) == []
    with pytest.raises(NotFoundError):
        file.delete("mem_0")


def test_what_is_archived_is_not_remembered_again_by_its_id(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1, "likes tea"))
    assert file.archive(["mem_1", "mem_9"]) == (memory(1, "likes tea"),)
    assert open_file(tmp_path).append(memory(1, "likes tea")) == memory(1, "likes tea")
    assert contents(file) == []
    assert file.archived() == (memory(1, "likes tea"),)


def test_what_was_merged_into_an_archived_memory_is_not_remembered_again(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1, "the customer likes tea"))
    merged = file.append(memory(2, "the customer likes tea."))
    file.archive(["mem_1"])
    assert open_file(tmp_path).append(memory(2, "the customer likes tea.")) == merged
    assert contents(file) == []
    assert file.append(memory(3, "the customer likes tea.")).count == 1


def test_a_crash_between_the_two_files_of_archiving_leaves_no_double(tmp_path):
    file = open_file(tmp_path)
    for number in range(4):
        file.append(memory(number))
    before = file.path.read_bytes()
    file.archive(["mem_1", "mem_2"])
    file.path.write_bytes(before)
    again = open_file(tmp_path)
    assert again.archived() == ()
    again.edit("mem_2", "fact two", None)
    assert [one.content for one in again.archive(["mem_1", "mem_2"])] == ["fact 1", "fact two"]
    assert [one.content for one in again.archived()] == ["fact 1", "fact two"]
    assert archived(tmp_path) == ["mem_1", "mem_2"]


def test_the_unfinished_end_of_an_archive_is_set_aside(tmp_path):
    file = open_file(tmp_path)
    for number in range(3):
        file.append(memory(number, f"fact number {number}"))
    file.archive(["mem_0"])
    file.archive(["mem_1"])
    path = tmp_path / "MEMORY.archive.md"
    path.write_bytes(path.read_bytes()[:-9])
    again = open_file(tmp_path)
    assert [problem.where for problem in again.problems()] == ["MEMORY.archive.md:12"]
    again.archive(["mem_2"])
    assert archived(tmp_path) == ["mem_0", "mem_1", "mem_2"]
    assert [problem.where for problem in again.problems()] == ["MEMORY.archive.md:19", "MEMORY.torn.md"]


def test_memories_past_their_retention_are_removed_for_good(tmp_path):
    file = open_file(tmp_path)
    for number, age in enumerate([400, 380, 300]):
        file.append(memory(number, created_at=NOW - timedelta(days=age)))
    file.archive(["mem_0"])
    keeping = open_file(tmp_path, retention=timedelta(days=365))
    keeping.append(memory(3))
    assert contents(keeping) == ["fact 2", "fact 3"]
    assert archived(tmp_path) == []


def test_problems_name_the_file_and_the_line(tmp_path):
    file = open_file(tmp_path)
    file.append(memory(1))
    file.path.write_text(file.path.read_text() + "\n## mem_2 · tomorrow\n\nlikes tea\n")
    file.append(memory(3))
    assert [str(problem) for problem in file.problems()] == [
        "MEMORY.md:13: mem_2 has no time that is ISO 8601 (it takes that of the entry before)"
    ]
    assert contents(file) == ["fact 1", "likes tea", "fact 3"]


def test_a_file_that_grew_is_read_from_where_it_was_known(tmp_path, monkeypatch):
    reader, writer = open_file(tmp_path), open_file(tmp_path)
    writer.append(memory(0))
    reader.load()
    generation = reader.load().generation
    for number in range(1, 4):
        writer.append(memory(number))
        assert contents(reader) == [f"fact {each}" for each in range(number + 1)]
    assert reader.load().generation == generation
    text = reader.path.read_text()
    reader.path.write_text(text.replace("fact 0", "FACT 0") + "\n## mem_4 · 2026-01-01\n\nfact 4\n\n---\n")
    assert contents(reader) == ["FACT 0", "fact 1", "fact 2", "fact 3", "fact 4"]
    assert reader.load().generation != generation


def test_a_person_who_saves_during_a_rewrite_is_not_overwritten(tmp_path, monkeypatch):
    file = open_file(tmp_path)
    file.append(memory(1))
    edits = iter(["by hand\n"])
    original = EntryFile.rewrite

    def rewrite(self, blocks):
        for edit in edits:
            self.path.write_text(self.path.read_text() + edit)
        original(self, blocks)

    monkeypatch.setattr(EntryFile, "rewrite", rewrite)
    file.edit("mem_1", "fact one", None)
    assert contents(file) == contents(open_file(tmp_path)) == ["fact one", "by hand"]


def test_a_full_disk_during_archiving_costs_no_memory(tmp_path, monkeypatch):
    file = open_file(tmp_path, memories=2)
    real = durable_files.create

    def full(path, data):
        if path.name == "MEMORY.archive.md":
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(durable_files, "create", full)
    for number in range(4):
        assert file.append(memory(number)).memory_id == f"mem_{number}"
    assert contents(open_file(tmp_path)) == [f"fact {number}" for number in range(4)]
    monkeypatch.setattr(durable_files, "create", real)
    file.append(memory(4))
    assert [*archived(tmp_path), *(one.memory_id for one in file.load().memories)] == [
        f"mem_{number}" for number in range(5)
    ]
