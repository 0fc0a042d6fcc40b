"""What every home of memories guarantees, tried over each of them: files, and the store on SQLite and on PostgreSQL."""

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import MemoryLimits, MemoryTextVersion
from owlclaw_ray.errors import (
    MemoryChangedError,
    MemoryTextChangedError,
    MemoryTooLargeError,
    NotFoundError,
    StoreUnavailableError,
    UserError,
)
from owlclaw_ray.ids import TenantId
from owlclaw_ray.memory import file as module
from owlclaw_ray.memory.folders import MemoryFolders
from tests.memory.homes import NOW, TRADER, Homes, contents, memory
from tests.memory.lance.conftest import LetterEmbedder, recalled

ROOT = Path(__file__).parents[2]


def test_a_stored_memory_is_there_for_another_reader(homes):
    assert contents(homes.open()) == []
    for number in range(3):
        homes.open().append(memory(number, "客户\r\n喜欢茶"[: number + 4]))
    assert homes.open().load().memories == tuple(memory(number, "客户\r\n喜欢茶"[: number + 4]) for number in range(3))


def test_an_id_is_stored_once(homes):
    file = homes.open()
    first = file.append(memory(1, "tea"))
    assert file.append(memory(1, "something else")) == first
    assert homes.open().append(memory(1, "something else")) == first
    assert contents(homes.open()) == ["tea"]


def test_duplicates_are_merged_each_once(homes):
    file = homes.open()
    file.append(memory(1, "The customer likes green tea.", tags=("a", "b")))
    file.append(memory(2, "harbour closes at six"))
    later = NOW + timedelta(days=3)
    for _ in range(2):
        merged = homes.open().append(memory(3, "The customer likes  green tea", later, ("b", "c")))
    assert (merged.memory_id, merged.content) == ("mem_1", "The customer likes green tea.")
    assert (merged.tags, merged.created_at, merged.count) == (("a", "b", "c"), later, 2)
    assert (merged.merged, merged.also) == (("mem_3",), ("The customer likes  green tea",))
    again = file.append(memory(4, "The customer likes green tea.", NOW))
    assert (again.count, again.created_at, again.also) == (3, later, merged.also)
    assert homes.open().load().memories == (again, memory(2, "harbour closes at six"))


def test_a_merge_leaves_the_next_memory_nothing_to_learn_and_what_others_change_is_learnt(homes, monkeypatch):
    file = homes.open()
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
    homes.open().edit("mem_7", "the fact of the number 77", None)
    assert file.append(memory("c", "the fact of the number 77.")).memory_id == "mem_7"
    assert file.append(memory("d", "the fact of the number 7")).memory_id == "mem_d"
    assert file.append(memory("a", "whatever")).memory_id == "mem_7"


def test_a_memory_remembers_the_last_of_its_duplicates_only(homes):
    file = homes.open()
    for number in range(40):
        stored = file.append(memory(number, "the customer likes tea"))
    assert stored.count == 40
    assert stored.merged == tuple(f"mem_{number}" for number in range(20, 40))
    assert file.append(memory(39, "the customer likes tea")).count == 40


def test_the_oldest_memories_are_archived_when_there_are_too_many(homes):
    file = homes.open(memories=3)
    for number, age in enumerate([1, 9, 2, 0, 0]):
        file.append(memory(number, created_at=NOW - timedelta(days=age)))
    assert contents(file) == contents(homes.open()) == ["fact 0", "fact 3", "fact 4"]
    assert [one.memory_id for one in homes.open().archived()] == ["mem_1", "mem_2"]


def test_a_file_that_is_too_large_first_loses_all_that_is_older_than_three_months(homes):
    file = homes.open(size=2_000)
    for number, age in enumerate([10, 100, 95, 5]):
        file.append(memory(number, f"{number}" * 300, NOW - timedelta(days=age)))
    file.append(memory(4, "4" * 900))
    assert [one.memory_id for one in file.load().memories] == ["mem_0", "mem_3", "mem_4"]
    assert [one.memory_id for one in homes.open().archived()] == ["mem_1", "mem_2"]


def test_a_file_that_is_still_too_large_loses_its_oldest_too(homes):
    file = homes.open(size=2_000)
    for number in range(5):
        file.append(memory(number, f"{number}" * 500, NOW + timedelta(days=number)))
    assert [one.memory_id for one in file.load().memories] == ["mem_2", "mem_3", "mem_4"]
    assert [one.memory_id for one in homes.open().archived()] == ["mem_0", "mem_1"]
    assert len(file.text()) <= 2_000


def test_an_edit_keeps_id_and_time_and_the_rest_of_the_file(homes):
    file = homes.open()
    for number in range(3):
        file.append(memory(number))
    homes.save((file.text().decode() + "\nby hand\n").encode())
    edited = homes.open().edit("mem_1", "## fact\n---", ["x", "x"])
    assert edited == replace(memory(1), content="## fact\n---", tags=("x",))
    assert contents(file) == ["fact 0", "## fact\n---", "fact 2", "by hand"]
    assert file.edit("mem_1", None, ()).content == "## fact\n---"
    with pytest.raises(NotFoundError, match="no memory 'mem_9'"):
        file.edit("mem_9", "x", None)
    with pytest.raises(UserError, match="needs a text"):
        file.edit("mem_1", " ", None)


def test_an_edit_made_from_what_is_not_there_any_more_changes_nothing(homes):
    file = homes.open()
    file.append(memory(1, "the limit is 500", tags=("a", "b")))
    before = file.text()

    with pytest.raises(MemoryChangedError) as refused:
        file.edit("mem_1", "the limit is 700", ("c",), old_content="the limit is 600", old_tags=("a",))

    assert refused.value.fields == ("content", "tags")
    assert file.text() == before
    assert file.edit("mem_1", None, ("c",), old_tags=("b", "a")).tags == ("c",)
    assert file.edit("mem_1", "the limit is 700", None, old_content="the limit is 500").content == "the limit is 700"
    # the same again, as a client does whose answer got lost
    assert file.edit("mem_1", "the limit is 700", None, old_content="the limit is 500").content == "the limit is 700"


def test_what_is_deleted_is_gone_from_the_archive_too(homes):
    file = homes.open()
    for number in range(3):
        file.append(memory(number))
    text = file.text().decode()
    copy = text[text.index("## mem_1") : text.index("## mem_2")]
    homes.save((text + copy).encode())
    file.archive(["mem_0"])
    assert [file.delete(f"mem_{number}").content for number in (0, 1)] == ["fact 0", "fact 1"]
    assert contents(file) == contents(homes.open()) == ["fact 2"]
    assert [one.memory_id for one in homes.open().archived()] == []
    with pytest.raises(NotFoundError):
        file.delete("mem_0")


def test_what_is_archived_is_not_remembered_again_by_its_id(homes):
    file = homes.open()
    file.append(memory(1, "likes tea"))
    assert file.archive(["mem_1", "mem_9"]) == (memory(1, "likes tea"),)
    assert homes.open().append(memory(1, "likes tea")) == memory(1, "likes tea")
    assert contents(file) == []
    assert file.archived() == (memory(1, "likes tea"),)


def test_what_was_merged_into_an_archived_memory_is_not_remembered_again(homes):
    file = homes.open()
    file.append(memory(1, "the customer likes tea"))
    merged = file.append(memory(2, "the customer likes tea."))
    file.archive(["mem_1"])
    assert homes.open().append(memory(2, "the customer likes tea.")) == merged
    assert contents(file) == []
    assert file.append(memory(3, "the customer likes tea.")).count == 1


def test_memories_past_their_retention_are_removed_for_good(homes):
    file = homes.open()
    for number, age in enumerate([400, 380, 300]):
        file.append(memory(number, created_at=NOW - timedelta(days=age)))
    file.archive(["mem_0"])
    keeping = homes.open(retention=timedelta(days=365))
    keeping.append(memory(3))
    assert contents(keeping) == ["fact 2", "fact 3"]
    assert [one.memory_id for one in homes.open().archived()] == []


def test_each_tenants_memories_are_kept_as_long_as_it_says_and_none_go_while_that_is_not_known(homes):
    said = {"default": timedelta(days=365), "acme": timedelta(days=30), "acme-2": None}
    agents = {tenant: AgentRef.parse("trader", TenantId(tenant)) for tenant in said}
    for agent in agents.values():
        with MemoryFolders(homes.data_dir(), homes.clock, home=homes.home()).file(agent) as file:
            for number, age in enumerate([400, 90]):
                file.append(memory(number, created_at=NOW - timedelta(days=age)))
    asked = []

    def retention(tenant):
        asked.append(tenant)
        if asked.count(tenant) == 1:
            raise StoreUnavailableError("away")
        return said[tenant]

    folders = MemoryFolders(homes.data_dir(), homes.clock, home=homes.home(), retention=retention)

    def remembered(number):
        found = {}
        for tenant, agent in agents.items():
            with folders.file(agent) as file:
                file.append(memory(number))
                found[tenant] = [each.memory_id for each in file.load().memories]
        return found

    assert remembered(2) == {tenant: ["mem_0", "mem_1", "mem_2"] for tenant in said}
    assert remembered(3) == {
        "default": ["mem_1", "mem_2", "mem_3"],
        "acme": ["mem_2", "mem_3"],
        "acme-2": ["mem_0", "mem_1", "mem_2", "mem_3"],
    }
    remembered(4)
    assert sorted(asked) == sorted([*said] * 2)


def without(text, *numbers):
    for number in numbers:
        begin = text.index(f"\n## mem_{number} ".encode())
        text = text[:begin] + text[text.index(b"\n---\n", begin) + len(b"\n---\n") :]
    return text


def remember(homes, *numbers, node="a"):
    file = homes.open(node)
    for number in numbers:
        file.append(memory(number))


def test_writers_of_several_nodes_at_once_lose_nothing(homes):
    def write(node, name):
        file = homes.open(node)
        for number in range(15):
            file.append(memory(f"{name}{number}", f"{name} {number}"))

    opened = [(node, homes.open(node)) for node in "ab"]
    threads = [threading.Thread(target=write, args=(node, f"{node}{each}")) for node, _ in opened for each in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    wanted = {f"mem_{node}{each}{number}" for node in "ab" for each in "xy" for number in range(15)}
    for _, file in opened:
        assert {one.memory_id for one in file.load().memories} == wanted
        assert len(file.load().memories) == len(wanted)


def test_what_one_node_changes_the_other_sees_at_its_next_look(homes):
    ours, theirs = homes.open("a"), homes.open("b")
    remember(homes, 1, 2, 3)
    assert contents(theirs) == ["fact 1", "fact 2", "fact 3"]

    ours.append(memory(4))
    ours.archive(["mem_1"])
    ours.edit("mem_2", "fact two", None)

    assert contents(theirs) == ["fact two", "fact 3", "fact 4"]
    assert [one.memory_id for one in theirs.archived()] == ["mem_1"]
    assert theirs.append(memory(1)).content == "fact 1"
    assert theirs.delete("mem_1").memory_id == "mem_1"
    assert ours.archived() == ()


def test_what_was_only_added_to_is_not_another_generation(homes):
    reader = homes.open("b")
    remember(homes, 1)
    generation = reader.load().generation
    remember(homes, 2, 3)
    assert contents(reader) == ["fact 1", "fact 2", "fact 3"]
    assert reader.load().generation == generation
    homes.open().edit("mem_1", "fact one", None)
    assert contents(reader) == ["fact one", "fact 2", "fact 3"]
    assert reader.load().generation != generation


def test_two_nodes_with_indexes_of_their_own_recall_what_the_other_remembered(homes):
    ours, theirs = (homes.lance(node, LetterEmbedder()) for node in "ab")
    ours.remember(TRADER, memory("tea", "the customer likes green tea"))
    assert recalled(theirs, "tea") == ["the customer likes green tea"]

    theirs.remember(TRADER, memory("harbour", "the harbour closes at six"))
    assert recalled(ours, "harbour", 1) == ["the harbour closes at six"]
    theirs.files.edit(TRADER, "mem_tea", "the customer likes coffee")
    assert recalled(ours, "customer", 1) == ["the customer likes coffee"]

    theirs.files.delete(TRADER, "mem_harbour")
    ours.refresh(TRADER)
    for each in (ours, theirs):
        each.settle()
    assert ours.indexed(TRADER) == {"mem_tea"}
    assert recalled(ours, "harbour") == recalled(theirs, "harbour") == ["the customer likes coffee"]
    if homes.url:
        assert homes.data_dir("a") != homes.data_dir("b")
        assert not list(homes.folder.rglob("MEMORY*.md"))


def test_what_is_killed_at_whatever_moment_leaves_all_that_it_said_and_nothing_twice(homes):
    for name in "xyz":
        command = [sys.executable, "-m", "tests.memory.homes", str(homes.folder), homes.url, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            lines = [process.stdout.readline() for _ in range(25)]
            process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        said = {f"mem_{name}{int(line)}" for line in lines if line.endswith(b"\n")}
        file = homes.open("a", memories=10)
        there = [one.memory_id for one in (*file.load().memories, *file.archived())]

        assert len(there) == len(set(there))
        assert len(said) >= 25
        assert {one for one in there if one.startswith(f"mem_{name}")} >= said
        assert len(file.load().memories) <= 11
        assert file.problems() == ()


def test_stats_say_how_much_there_is(homes):
    remember(homes, 1, 2, 3)
    folders = homes.folders("b")
    folders.archive(TRADER, ["mem_1"])

    stats = folders.stats(TRADER)

    assert (stats.active, stats.archived, stats.problems) == (2, 1, ())
    assert stats.file_bytes == len(folders.text(TRADER)) > 100
    assert stats.archive_bytes > 100


def test_an_older_copy_that_somebody_saves_takes_nothing_away_that_was_remembered_since(homes):
    remember(homes, 1, 2)
    copy = homes.open().text()
    remember(homes, 3)
    homes.open().edit("mem_2", "fact two", None)

    homes.save(copy.replace(b"fact 1", b"fact one") + b"\n## by hand\n\nlikes tea\n")

    assert contents(homes.open()) == ["fact one", "fact two", "by hand\nlikes tea", "fact 3"]
    (problem,) = homes.folders().stats(TRADER).problems
    assert "put back: mem_3, mem_2" in problem.what


def test_what_a_person_deleted_from_a_fresh_copy_is_deleted(homes):
    remember(homes, 1, 2, 3)
    folders = homes.folders()

    text = folders.text(TRADER)
    folders.put_text(TRADER, without(text, 3), MemoryTextVersion.of(text))

    assert contents(homes.open("b")) == ["fact 1", "fact 2"]
    remember(homes, 4)
    homes.save(without(homes.open().text(), 1))
    assert contents(homes.open("b")) == ["fact 2", "fact 4"]


def test_an_edited_text_is_put_in_its_place_and_what_was_remembered_meanwhile_stays_at_its_end(homes):
    remember(homes, 1, 2)
    folders = homes.folders()
    text = folders.text(TRADER)
    base = MemoryTextVersion.of(text)
    remember(homes, 3, node="b")

    assert folders.put_text(TRADER, text.replace(b"fact 1", b"fact one").rstrip(b"\n"), base) == ()

    assert contents(homes.open("b")) == ["fact one", "fact 2", "fact 3"]


def test_an_edited_text_of_what_was_changed_otherwise_changes_nothing(homes):
    remember(homes, 1, 2)
    folders = homes.folders()
    text = folders.text(TRADER)
    homes.open("b").edit("mem_2", "fact two", None)
    now = folders.text(TRADER)

    with pytest.raises(MemoryTextChangedError, match="changed meanwhile"):
        folders.put_text(TRADER, text.replace(b"fact 1", b"fact one"), MemoryTextVersion.of(text))

    assert homes.open("b").text() == folders.text(TRADER) == now


def test_a_text_that_is_put_where_there_is_nothing_is_the_memory(homes):
    folders = homes.folders()
    assert folders.text(TRADER) == b""
    text = "## 2026-03-01T12:00:00Z\n\n客户喜欢茶\n".encode()

    folders.put_text(TRADER, text, MemoryTextVersion.of(b""))

    assert contents(homes.open("b")) == ["客户喜欢茶"]
    remember(homes, 1)
    assert contents(homes.open("b")) == ["客户喜欢茶", "fact 1"]


def test_a_text_over_the_limit_is_refused_and_changes_nothing(homes):
    remember(homes, 1)
    folders = MemoryFolders(homes.data_dir(), homes.clock, MemoryLimits(size=500), home=homes.home())
    now = folders.text(TRADER)

    with pytest.raises(MemoryTooLargeError, match=r"would have 501 bytes, more than 500 \(memory.max_bytes\)"):
        folders.put_text(TRADER, b"x" * 501)

    assert folders.text(TRADER) == now


def test_what_was_deleted_for_good_does_not_come_back_by_an_import(homes):
    remember(homes, 1, 2)
    homes.open().delete("mem_2")

    homes.save(homes.open().text())

    assert contents(homes.open("b")) == ["fact 1"]


@pytest.fixture
def moved(homes, tmp_path):
    """Files, and another home: moves everything from one to the other, as export and import do."""
    files = Homes(tmp_path / "files")

    def move(source, target):
        target.folders().put_text(TRADER, source.folders().text(TRADER) or b"\n")
        if archive := source.folders().archive_text(TRADER):
            target.folders().put_archive_text(TRADER, archive)

    yield files, homes, move
    files.close()


def test_what_goes_from_files_to_another_home_and_back_is_the_same_byte_by_byte(moved, tmp_path):
    files, other, move = moved
    for number in range(6):
        files.open().append(memory(number, "客户 likes tea" if number else None))
    path = files.data_dir() / "agents" / TRADER.folder / "MEMORY.md"
    by_hand = "<!-- of last year -->\n\n## mem_hand · 2025-01-01T00:00:00+00:00\n\nby hand, 手写\n\n---\n"
    path.write_bytes(path.read_bytes() + by_hand.encode())
    files.open().archive([f"mem_{number}" for number in range(3)])
    back = Homes(tmp_path / "back")

    move(files, other)
    move(other, back)

    for each in (other, back):
        assert each.folders().text(TRADER) == files.folders().text(TRADER)
        assert each.folders().archive_text(TRADER) == files.folders().archive_text(TRADER)
        assert each.folders().archived(TRADER) == files.folders().archived(TRADER) != ()
        assert each.folders().memories(TRADER) == files.folders().memories(TRADER)
    back.close()


def test_an_archive_is_added_to_what_is_there_once_and_takes_nothing_from_it(moved):
    files, other, _ = moved
    for number in (1, 2, 3):
        files.open().append(memory(number))
    files.open().archive(["mem_1", "mem_2", "mem_3"])
    archive = files.folders().archive_text(TRADER).replace(b"fact 2", b"fact two") + b"<!-- old -->\n"
    for number in (2, 3, 4):
        other.open().append(memory(number))
    other.open().archive(["mem_2", "mem_4"])

    assert other.folders().put_archive_text(TRADER, archive) == ("mem_1",)

    assert [each.content for each in other.folders().archived(TRADER)] == ["fact 2", "fact 4", "fact 1"]
    assert contents(other.open()) == ["fact 3"]
    text = other.folders().archive_text(TRADER)
    assert b"<!-- old -->" in text
    assert other.folders().put_archive_text(TRADER, archive) == ()
    assert other.folders().archive_text(TRADER) == text


def test_an_import_of_an_archive_leaves_what_protects_memories_from_older_copies(homes):
    homes.open().append(memory(1))
    copy = homes.open().text()
    homes.open().append(memory(2))

    homes.folders().put_archive_text(TRADER, b"# old\n")
    homes.folders().put_text(TRADER, copy)

    assert contents(homes.open()) == ["fact 1", "fact 2"]
