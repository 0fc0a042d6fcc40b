import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.archive import ArchiveLimits
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.lock import FolderLock
from owlclaw_ray.memory.markdown import parse

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def memory(number, content=None, created_at=NOW, tags=()):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact {number}", tuple(tags), created_at, "run_1")


def open_file(folder, **limits):
    return MemoryFile(folder, FolderLock(folder), ArchiveLimits(**limits))


def contents(file):
    return [one.content for one in file.load().memories]


def archived(folder):
    path = folder / "MEMORY.archive.md"
    return [one.memory_id for one in parse(path.read_bytes(), NOW).memories] if path.exists() else []


def test_a_stored_memory_is_there_for_another_reader(tmp_path):
    folder = tmp_path / "agents" / "default" / "trader"
    assert contents(open_file(folder)) == []
    for number in range(3):
        open_file(folder).append(memory(number, "客户\r\n喜欢茶"[: number + 3]))
    assert open_file(folder).load().memories == tuple(
        memory(number, "客户\r\n喜欢茶"[: number + 3]) for number in range(3)
    )


def test_an_id_is_stored_once_and_so_is_equal_content_with_equal_tags(tmp_path):
    file = open_file(tmp_path)
    first = file.append(memory(1, "tea"))
    assert file.append(memory(1, "something else")) == first
    assert file.append(memory(2, "tea")) == first
    assert file.append(memory(3, "tea", tags=("drinks",))).memory_id == "mem_3"
    assert contents(open_file(tmp_path)) == ["tea", "tea"]


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
@settings(max_examples=100, deadline=None)
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
from owlclaw_ray.memory.archive import ArchiveLimits
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.lock import FolderLock
folder = Path(sys.argv[1])
file = MemoryFile(folder, FolderLock(folder), ArchiveLimits())
for number in range(40):
    file.append(Memory(f"mem_{sys.argv[2]}{number}", f"{sys.argv[2]} {number}", (), datetime(2026, 1, 1, tzinfo=UTC)))
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    assert len(contents(open_file(tmp_path))) == 80
