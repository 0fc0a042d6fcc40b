"""What an older copy of MEMORY.md that somebody saves cannot take away, and how people delete all the same."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryTextVersion
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory import acknowledged_record as module
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.opened import open_file

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def memory(number, content=None):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact {number}", (), NOW, "run_1")


def remember(folder, *numbers):
    file = open_file(folder)
    for number in numbers:
        file.append(memory(number))
    return file


def contents(folder):
    return [one.content for one in open_file(folder).load().memories]


def without(text, *numbers):
    for number in numbers:
        begin = text.index(f"\n## mem_{number} ")
        text = text[:begin] + text[text.index("\n---\n", begin) + len("\n---\n") :]
    return text


def saved_in_place(path, text):
    path.write_text(text)


def saved_by_renaming(path, text):
    draft = path.with_name("draft")
    draft.write_text(text)
    draft.replace(path)


@pytest.mark.parametrize("saved", [saved_in_place, saved_by_renaming])
def test_an_older_copy_loses_nothing_of_what_was_remembered_since_and_stats_say_so(tmp_path, saved):
    folders = MemoryFolders(tmp_path, ManualClock(NOW))
    agent = AgentRef.parse("trader")
    folder = folders.folder(agent)
    remember(folder, 1, 2)
    copy = (folder / "MEMORY.md").read_text()
    remember(folder, 3, 4)

    saved(folder / "MEMORY.md", copy.replace("fact 1", "fact one") + "\nby hand\n")
    os.utime(folder / "MEMORY.md", (NOW.timestamp(), NOW.timestamp()))

    stats = MemoryFolders(tmp_path, ManualClock(NOW)).stats(agent)
    assert contents(folder) == ["fact one", "fact 2", "by hand", "fact 3", "fact 4"]
    [problem] = stats.problems
    assert problem.where == "MEMORY.md:36"
    assert problem.what == (
        "a copy saved at 2026-03-01T12:00:00+00:00 lacked 2 memories stored after it was opened; put back: mem_3, mem_4"
    )
    assert "owlclaw memory delete" in problem.fix


def test_an_editor_that_stays_open_may_save_its_older_copy_again_and_again(tmp_path):
    remember(tmp_path, 1)
    path = tmp_path / "MEMORY.md"
    copy = path.read_text()
    for number in (2, 3, 4):
        remember(tmp_path, number)
        path.write_text(copy)
        assert contents(tmp_path) == [f"fact {each}" for each in range(1, number + 1)]
    assert path.read_text().count("Put back") == 1


def test_what_is_deleted_from_the_middle_or_with_newer_entries_left_stays_deleted(tmp_path):
    remember(tmp_path, 1, 2, 3, 4)
    path = tmp_path / "MEMORY.md"
    path.write_text(without(path.read_text(), 2, 3))
    assert contents(tmp_path) == ["fact 1", "fact 4"]
    remember(tmp_path, 5)
    path.write_text(without(path.read_text(), 5))
    assert contents(tmp_path) == ["fact 1", "fact 4", "fact 5"]
    assert len(open_file(tmp_path).problems()) == 1


def test_the_newest_entry_comes_back_once_and_goes_when_its_note_is_left_or_by_command(tmp_path):
    remember(tmp_path, 1, 2, 3)
    path = tmp_path / "MEMORY.md"
    path.write_text(without(path.read_text(), 2, 3))
    assert contents(tmp_path) == ["fact 1", "fact 2", "fact 3"]

    path.write_text(without(path.read_text(), 3))
    assert contents(tmp_path) == ["fact 1", "fact 2"]
    open_file(tmp_path).delete("mem_2")
    assert contents(tmp_path) == ["fact 1"]
    for left in tmp_path.iterdir():
        assert "fact 2" not in left.read_text()

    begin = path.read_text().index("\n<!-- Put back")
    path.write_text(path.read_text()[:begin])
    assert contents(tmp_path) == ["fact 1"]
    assert open_file(tmp_path).problems() == ()


def test_what_was_acknowledged_a_day_before_the_save_is_deleted_by_it(tmp_path):
    remember(tmp_path, 1, 2)
    path = tmp_path / "MEMORY.md"
    acknowledged = path.stat().st_mtime_ns
    for later, left in ((module.RESTORE_WINDOW, 2), (module.RESTORE_WINDOW + timedelta(seconds=2), 1)):
        path.write_text(without(path.read_text(), 2))
        at = acknowledged + int(later.total_seconds()) * 10**9
        os.utime(path, ns=(at, at))
        assert len(contents(tmp_path)) == left
        begin = path.read_text().find("\n<!-- Put back")
        if begin >= 0:
            path.write_text(path.read_text()[:begin])
            os.utime(path, ns=(acknowledged, acknowledged))


def test_an_older_copy_takes_no_edit_and_no_merge_back(tmp_path):
    file = remember(tmp_path, 1, 2, 3)
    copy = file.path.read_text()
    file.edit("mem_1", "fact one", ["x"])
    file.append(memory(4, "fact 3"))
    file.append(memory(5, "fact 3"))
    file.path.write_text(copy + "\nby hand\n")
    assert contents(tmp_path) == ["fact one", "fact 2", "fact 3", "by hand"]
    assert [one.count for one in open_file(tmp_path).load().memories] == [1, 1, 3, 1]


def test_an_older_copy_with_memories_that_were_put_back_since_takes_no_edit_back(tmp_path):
    file = remember(tmp_path, 1)
    oldest = file.path.read_text()
    older = remember(tmp_path, 2, 3).path.read_text()
    file.edit("mem_1", "fact one", None)
    file.path.write_text(oldest)
    assert contents(tmp_path) == ["fact one", "fact 2", "fact 3"]
    file.path.write_text(older)
    assert contents(tmp_path) == ["fact one", "fact 2", "fact 3"]


def test_a_person_may_change_what_was_just_changed(tmp_path):
    file = remember(tmp_path, 1, 2)
    file.edit("mem_1", "fact one", None)
    file.path.write_text(file.path.read_text().replace("fact one", "fact uno"))
    assert contents(tmp_path) == ["fact uno", "fact 2"]
    assert open_file(tmp_path).problems() == ()


def test_a_call_that_is_repeated_makes_its_memory_known_as_acknowledged(tmp_path):
    copy = remember(tmp_path, 1).path.read_text()
    remember(tmp_path, 2)
    (tmp_path / ".MEMORY.md.acknowledged").unlink()  # as if the process had died before it was written
    assert remember(tmp_path, 2).load().memories[1].content == "fact 2"
    (tmp_path / "MEMORY.md").write_text(copy)
    assert contents(tmp_path) == ["fact 1", "fact 2"]


def test_a_record_that_a_crash_cut_is_read_as_far_as_it_goes(tmp_path):
    remember(tmp_path, 1, 2)
    copy = (tmp_path / "MEMORY.md").read_text()
    record = tmp_path / ".MEMORY.md.acknowledged"
    record.write_bytes(record.read_bytes() + b'["mem_9","\xe6')
    remember(tmp_path, 3)
    (tmp_path / "MEMORY.md").write_text(copy)
    assert contents(tmp_path) == ["fact 1", "fact 2", "fact 3"]


def test_the_record_holds_a_day_and_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 2_000)
    file = open_file(tmp_path)
    for number in range(60):
        file.append(memory(number, f"the fact of number {number}"))
        at = file.path.stat().st_mtime_ns + int(module.RESTORE_WINDOW.total_seconds() / 10) * 10**9
        os.utime(file.path, ns=(at, at))
        file.load()
    assert (tmp_path / ".MEMORY.md.acknowledged").stat().st_size < 8_000


def test_what_is_deleted_in_the_whole_file_by_the_command_is_deleted(tmp_path):
    remember(tmp_path, 1, 2)
    before = (tmp_path / "MEMORY.md").read_bytes()
    open_file(tmp_path).put(without(before.decode(), 2).encode(), MemoryTextVersion.of(before))
    assert contents(tmp_path) == ["fact 1"]

    copy = (tmp_path / "MEMORY.md").read_bytes()
    remember(tmp_path, 3)
    (tmp_path / "MEMORY.md").write_bytes(copy)
    open_file(tmp_path).put(copy + b"\nby hand\n", MemoryTextVersion.of(copy))
    assert contents(tmp_path) == ["fact 1", "by hand", "fact 3"]


def test_a_file_that_is_empty_or_away_while_an_editor_writes_it_loses_nothing(tmp_path):
    remember(tmp_path, 1, 2)
    path = tmp_path / "MEMORY.md"
    text = path.read_text()
    for instant in (lambda: path.write_text(""), path.unlink):
        instant()
        assert contents(tmp_path) == []
        remember(tmp_path, 3)
        path.write_text(text)
        assert contents(tmp_path) == ["fact 1", "fact 2", "fact 3"]


def test_a_save_into_the_file_as_it_was_is_named_kept_and_never_overwritten(tmp_path):
    file = remember(tmp_path, 1, 2, 3)
    for number, names in ((1, {"MEMORY.saved.md"}), (2, {"MEMORY.saved.md", "MEMORY.saved2.md"})):
        descriptor = os.open(file.path, os.O_WRONLY | os.O_APPEND)
        file.edit("mem_1", f"fact one, version {number}", None)
        os.write(descriptor, f"saved late {number}\n".encode())
        os.close(descriptor)
        assert "MEMORY.previous.md" in {problem.where for problem in open_file(tmp_path).problems()}
        file.edit("mem_2", f"fact two, version {number}", None)
        assert {problem.where for problem in open_file(tmp_path).problems()} == names
    assert "saved late 1" in (tmp_path / "MEMORY.saved.md").read_text()
    assert "saved late 2" in (tmp_path / "MEMORY.saved2.md").read_text()


def test_a_person_who_changes_the_entry_that_is_merged_into_at_that_moment_keeps_the_text(tmp_path, monkeypatch):
    file = remember(tmp_path, 1, 2)
    real = os.fsync

    def saving(descriptor):
        monkeypatch.setattr(os, "fsync", real)
        file.path.write_text(file.path.read_text().replace("fact 1", "fact 1 and more"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", saving)
    file.append(memory(3, "fact 1"))
    assert contents(tmp_path) == ["fact 1 and more", "fact 2", "fact 1"]


def test_a_save_of_the_same_size_in_the_middle_of_an_append_is_noticed(tmp_path, monkeypatch):
    file = remember(tmp_path, 1, 2)
    text = file.path.read_text()
    real = os.write

    def saving(descriptor, data):
        monkeypatch.setattr(os, "write", real)
        file.path.write_text(text.replace("fact 2", "fact B"))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", saving)
    file.append(memory(3))
    assert [one.content for one in file.load().memories] == ["fact 1", "fact B", "fact 3"]
