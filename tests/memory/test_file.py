import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel import durable_files
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


class Killed(BaseException):
    """The process ends here."""


def killed_before_the_files_are_swapped(file, monkeypatch):
    def die(_one, _other):
        raise Killed

    left = [block for block in file.load().blocks if "fact 1" not in block.text]
    monkeypatch.setattr(durable_files, "swap", die)
    with pytest.raises(Killed):
        file.rewrite(left)
    monkeypatch.undo()


@pytest.mark.parametrize("replaced_before", [True, False])
def test_a_crash_in_the_middle_of_a_replacement_is_not_taken_for_what_somebody_saved(
    tmp_path, monkeypatch, replaced_before
):
    path = tmp_path / "MEMORY.md"
    file = EntryFile(path, "# Memory\n")
    file.load()
    file.append([memory(number) for number in range(4)])
    if replaced_before:
        file.rewrite([block for block in file.load().blocks if "fact 0" not in block.text])

    killed_before_the_files_are_swapped(file, monkeypatch)
    again = EntryFile(path, "# Memory\n")
    again.settle()
    assert again.kept.exists()
    assert again.leftovers() == []
    again.append([memory(5)])
    assert again.leftovers() == []
    again.rewrite([block for block in again.load().blocks if "fact 2" not in block.text])

    assert [path.name for path in tmp_path.glob("MEMORY.saved*")] == []
    assert again.leftovers() == []
    assert [each.content for each in again.load().memories][-2:] == ["fact 3", "fact 5"]


def test_what_a_crash_left_of_a_replacement_goes_with_what_is_removed(tmp_path, monkeypatch):
    file = EntryFile(tmp_path / "MEMORY.md", "# Memory\n")
    file.load()
    file.append([memory(number) for number in range(4)])
    killed_before_the_files_are_swapped(file, monkeypatch)
    again = EntryFile(tmp_path / "MEMORY.md", "# Memory\n")
    again.settle()

    again.forget_removed()

    assert not again.kept.exists()


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
