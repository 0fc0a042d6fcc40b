"""Whoever saves MEMORY.md, or the archive, at whatever instant of an operation: nothing acknowledged and nothing written is lost."""

import errno
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.memory.markdown import render
from tests.memory.editors import KINDS, Calls, Disk, Editor
from tests.memory.opened import open_file

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=400)
LINE = "\n\n## 2026-03-01T12:00:00Z\nthe pump is in the cellar\n\n---\n"


def memory(number, content=None, created_at=NOW):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact of the number {number}", (), created_at, "run_1")


class Operation:
    """One that changes the files: how, and what has to be readable before and after it."""

    def __init__(self, do, gone=(), active=(), retention=None):
        self.do, self.gone, self.active, self.retention = do, frozenset(gone), active, retention


FACTS = {f"fact of the number {number}" for number in range(1, 6)}
OPERATIONS = {
    "append": Operation(lambda file: file.append(memory(9)), active=["fact of the number 9"]),
    "merge": Operation(lambda file: file.append(memory(9, "fact of the number 3"))),
    "edit": Operation(
        lambda file: file.edit("mem_4", "fact four", None), gone=["fact of the number 4"], active=["fact four"]
    ),
    "archive": Operation(lambda file: file.archive(["mem_3", "mem_5"])),
    "delete": Operation(lambda file: file.delete("mem_4"), gone=["fact of the number 4"]),
    "delete of what is archived": Operation(lambda file: file.delete("mem_1"), gone=["fact of the number 1"]),
    "retention": Operation(
        lambda file: file.append(memory(9)),
        gone=["fact of the number 1", "fact of the number 2"],
        active=["fact of the number 9"],
        retention=timedelta(days=365),
    ),
}


class World:
    """A folder with memories, one of them archived, and somebody who has a file open since before the last two came."""

    def __init__(self, folder, operation, kind="fresh renamed", name="MEMORY.md"):
        folder.mkdir()
        self.folder, self.operation = folder, operation
        file = open_file(folder)
        by_name = {
            "MEMORY.archive.md": [memory(1, created_at=OLD)],
            "MEMORY.md": [memory(2, created_at=OLD), memory(3)],
        }
        for each, memories in by_name.items():
            (folder / each).write_text("".join(map(render, memories)))
        path = folder / name
        path.write_text(path.read_text() + "\n## 2026-03-01T11:00:00Z\nthe tide is high at noon\n\n---\n")
        file.load()
        self.editor = Editor(path, LINE, kind)
        for number in (4, 5):
            file.append(memory(number))
        if path != file.path:
            file.append(memory(6, "it was archived last"))
            file.archive(["mem_6"])
        self.file = open_file(folder, retention=operation.retention)
        self.file.load()

    def check(self, folder=None, operation=None):
        """Look at the files as another process does."""
        folder, operation = folder or self.folder, operation or self.operation
        file = open_file(folder)
        active = [one.content for one in file.load().memories]
        archived = [one.content for one in file.archived()]
        assert FACTS - operation.gone <= {*active, *archived}
        assert set(operation.active) <= set(active)
        assert len(set(active)) == len(active)
        files = {folder / "MEMORY.md", folder / "MEMORY.archive.md"}
        if self.editor.kind == "opened before":
            files |= {folder / problem.where.partition(":")[0] for problem in file.problems()}
        text = "\n".join(path.read_text() for path in files if path.exists())
        for written in ("the tide is high at noon", LINE.strip("\n")):
            assert written in text


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """What is written need not reach the disk of this machine: thousands of operations follow one another."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def calls_of(world, monkeypatch, *, swaps=True):
    with Calls().watched(monkeypatch, swaps=swaps) as calls:
        world.operation.do(world.file)
    return calls.made


EACH_WAY = ("fresh renamed", "older in place", "opened before")
CASES = [
    *((name, kind, "MEMORY.md", True) for name in ("append", "merge") for kind in KINDS),
    *((name, kind, "MEMORY.md", True) for name in ("edit", "archive", "delete", "retention") for kind in EACH_WAY),
    *(
        (name, kind, "MEMORY.archive.md", True)
        for name in ("archive", "delete of what is archived")
        for kind in EACH_WAY[:2]
    ),
    *(("merge", kind, "MEMORY.md", False) for kind in EACH_WAY),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_save_at_any_system_call_loses_nothing(tmp_path, monkeypatch, case):
    name, kind, file, swaps = case
    operation = OPERATIONS[name]
    made = calls_of(World(tmp_path / "dry", operation, kind, file), monkeypatch, swaps=swaps)
    removed = [number for number, call in enumerate(made) if call[0] == "unlink" and "previous" in str(call[1])]
    last = removed[0] if removed and kind == "opened before" else len(made) + 1
    for instant in [number for number in range(last) if number == len(made) or made[number][0] != "close"]:
        world = World(tmp_path / f"at{instant}", operation, kind, file)

        def save(number, name, world=world, instant=instant):
            if number == instant:
                world.editor.save()

        with Calls(before=save).watched(monkeypatch, swaps=swaps):
            operation.do(world.file)
        if not world.editor.has_saved:
            world.editor.save()
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"{name}, {kind}, before call {instant}: {made[instant : instant + 1]}") from error


@pytest.mark.parametrize("swaps", [True, False], ids=["swapped", "moved"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_power_failure_or_a_crash_after_any_system_call_loses_nothing(tmp_path, monkeypatch, name, swaps):
    operation = OPERATIONS[name]
    world = World(tmp_path / "world", operation)
    world.editor.save()
    world.file.load()
    disk = Disk(world.folder)
    unchanged = Operation(None, {*operation.gone})
    seen = []

    def look(number, name, arguments, result):
        disk.after(number, name, arguments, result)
        now = (dict(disk.contents), list(disk.listings))
        if now != seen[-1:]:
            seen[:] = [now]
            for state in disk.left(tmp_path / f"after{number}"):
                world.check(state, unchanged)
        if name in {"write", "rename", "link", "unlink", "swap"}:
            crashed = tmp_path / f"crashed{number}"
            shutil.copytree(world.folder, crashed)
            world.check(crashed, unchanged)

    with Calls(after=look).watched(monkeypatch, swaps=swaps):
        operation.do(world.file)

    for state in disk.left(tmp_path / "acknowledged"):
        world.check(state)
        open_file(state).append(memory(10, "the next one"))
        world.check(state)


def test_the_first_memory_of_an_agent_is_on_the_disk_when_it_is_acknowledged(tmp_path, monkeypatch):
    folder = tmp_path / "agents" / "default" / "trader"
    folder.mkdir(parents=True)
    disk = Disk(folder)

    with Calls(after=disk.after).watched(monkeypatch):
        open_file(folder).append(memory(1))

    for state in disk.left(tmp_path / "states"):
        assert [one.content for one in open_file(state).load().memories] == ["fact of the number 1"]


def test_a_file_is_written_out_before_it_gets_its_name_and_the_name_before_the_answer(tmp_path, monkeypatch):
    world = World(tmp_path / "world", OPERATIONS["edit"])
    written = []

    def look(number, name, arguments, result):
        if name == "fsync":
            written.append(str(Path(f"/proc/self/fd/{arguments[0]}").readlink()).removeprefix(str(world.folder)))
        elif name == "swap":
            written.append("swap")

    with Calls(after=look).watched(monkeypatch):
        world.operation.do(world.file)
    assert written == ["/MEMORY.md.new", "swap", ""]

    written.clear()
    with Calls(after=look).watched(monkeypatch):
        world.file.append(memory(9))
    assert written == ["/MEMORY.md"]


@pytest.mark.parametrize("swaps", [True, False], ids=["swapped", "moved"])
def test_a_reader_sees_at_every_system_call_what_the_file_was_or_is(tmp_path, monkeypatch, swaps):
    world = World(tmp_path / "world", OPERATIONS["edit"])
    reader, seen = open_file(world.folder), []

    def look(number, name):
        seen.append(frozenset(one.content for one in reader.load().memories))

    with Calls(before=look).watched(monkeypatch, swaps=swaps):
        world.operation.do(world.file)

    before = {*FACTS - {"fact of the number 1"}, "the tide is high at noon"}
    assert set(seen) == {frozenset(before), frozenset(before - {"fact of the number 4"} | {"fact four"})}


def test_a_save_that_is_noticed_in_time_never_leaves_its_place(tmp_path, monkeypatch):
    world = World(tmp_path / "world", OPERATIONS["edit"])
    made = calls_of(World(tmp_path / "dry", OPERATIONS["edit"]), monkeypatch)
    synced = next(number for number, call in enumerate(made) if call[0] == "fsync")

    with Calls(before=lambda number, name: number == synced and world.editor.save()).watched(monkeypatch) as calls:
        world.operation.do(world.file)

    assert [name for name, _ in calls.made].count("swap") == 1
    world.check()


@pytest.mark.parametrize("kind", ["fresh renamed", "older renamed", "older in place"])
def test_what_is_remembered_while_somebody_saves_is_in_the_file_when_it_is_acknowledged(tmp_path, monkeypatch, kind):
    made = calls_of(World(tmp_path / "dry", OPERATIONS["append"]), monkeypatch)
    synced = next(number for number, call in enumerate(made) if call[0] == "fsync")
    for instant in (synced, synced + 1):
        world = World(tmp_path / f"at{instant}", OPERATIONS["append"], kind)

        def save(number, name, world=world, instant=instant):
            if number == instant:
                world.editor.save()

        with Calls(before=save).watched(monkeypatch):
            world.operation.do(world.file)
        text = (world.folder / "MEMORY.md").read_text()
        assert "fact of the number 9" in text
        assert LINE.strip() in text


def test_files_are_written_where_there_are_neither_swaps_nor_hard_links(tmp_path, monkeypatch):
    def unsupported(file, path):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    monkeypatch.setattr(durable_files, "swap", lambda one, other: False)
    file = open_file(tmp_path)
    for number in (1, 2, 3):
        file.append(memory(number))
    file.edit("mem_2", "fact two", None)
    file.archive(["mem_1"])

    again = open_file(tmp_path)
    assert [one.content for one in again.load().memories] == ["fact two", "fact of the number 3"]
    assert [one.content for one in again.archived()] == ["fact of the number 1"]
    assert again.problems() == ()
    assert not list(tmp_path.glob("*.ne*"))
