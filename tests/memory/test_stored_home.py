"""What only memories in the store have to do with: a store that does not answer, lost answers, documents that are too large."""

import asyncio

import pytest

from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import RandomIds
from owlclaw_ray.memory import stored_home as module
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.store.commands import CommandFailed
from tests.memory.homes import TRADER, Homes, contents, memory


@pytest.fixture
def homes(tmp_path, sqlite_url):
    made = Homes(tmp_path, sqlite_url)
    yield made
    made.close()


class Faulty:
    """The store, until `fault` is set: that is called with what was asked and what would do it."""

    def __init__(self, store):
        self._store, self.fault, self.reads, self.commits = store, None, [], []

    def commit(self, commands):
        self.commits.append(commands)
        return self._store.commit(commands) if self.fault is None else self.fault(self._store.commit, commands)

    def read(self, query):
        self.reads.append(query)
        return self._store.read(query) if self.fault is None else self.fault(self._store.read, query)


@pytest.fixture
def faulty(homes, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    homes.home()
    faulty = homes.stores[""] = Faulty(homes.stores[""])
    faulty.close = faulty._store.close
    return faulty


def gone(_real, _asked):
    raise StoreUnavailableError("the Keeper is being restarted")


def test_while_the_store_does_not_answer_nothing_is_read_and_nothing_written(homes, faulty):
    homes.open().append(memory(1))
    file = homes.open("b")
    faulty.fault = gone

    with pytest.raises(OSError, match="the store does not answer: the Keeper is being restarted"):
        file.load()
    with pytest.raises(OSError, match="the store does not answer"):
        file.append(memory(2))

    faulty.fault = None
    assert contents(file) == ["fact 1"]


def test_a_keeper_that_is_restarted_is_asked_again(homes, faulty, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 30.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    asked = []

    def twice(real, what):
        asked.append(what)
        return gone(real, what) if len(asked) % 3 else real(what)

    faulty.fault = twice
    homes.open().append(memory(1))
    assert (contents(homes.open("b")), len(asked)) == (["fact 1"], 9)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_whose_answer_is_lost_may_have_happened_and_leaves_the_one_or_the_other(homes, faulty, is_committed):
    file = homes.open()
    file.append(memory(1))

    def lost(real, asked):
        if not isinstance(asked, list):
            return real(asked)
        if is_committed:
            real(asked)
        raise RuntimeUnavailableError("the Keeper is gone")

    faulty.fault = lost
    with pytest.raises(RuntimeUnavailableError, match="not known whether the memory of trader was changed"):
        file.append(memory(2))
    faulty.fault = None

    assert contents(file) == contents(homes.open("b")) == ["fact 1", *["fact 2"] * is_committed]
    assert file.append(memory(2)).count == 1
    assert contents(homes.open("b")) == ["fact 1", "fact 2"]


def test_a_commit_that_is_sent_again_because_its_answer_was_lost_is_made_once(homes, faulty, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 30.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    homes.open().append(memory(1))
    sent = []

    def lost_once(real, asked):
        answer = real(asked)
        if isinstance(asked, list):
            sent.append(asked)
            if len(sent) == 1:
                raise RuntimeUnavailableError("the Keeper is gone")
        return answer

    faulty.fault = lost_once
    assert homes.open("b").delete("mem_1").content == "fact 1"
    assert sent[0] == sent[1]
    with pytest.raises(NotFoundError):
        homes.open().delete("mem_1")


def test_what_the_store_refuses_is_an_error_of_the_home_and_changes_nothing(homes, faulty):
    file = homes.open()
    file.append(memory(1))
    faulty.fault = lambda real, asked: [CommandFailed("no")] if isinstance(asked, list) else real(asked)

    with pytest.raises(OSError, match="the store did not take it"):
        file.edit("mem_1", "fact one", None)

    faulty.fault = None
    assert contents(file) == contents(homes.open("b")) == ["fact 1"]


def test_all_documents_of_an_operation_are_changed_by_one_command(homes, faulty):
    file = homes.open(memories=2)
    for number in range(4):
        file.append(memory(number))

    assert len(faulty.commits) == 4
    assert [each.document for each in faulty.commits[-1][0].changes] == [
        "MEMORY.md",
        ".MEMORY.md.acknowledged",
        "MEMORY.archive.md",
    ]


def test_a_look_at_what_did_not_change_reads_no_text_and_a_memory_costs_one_question_and_one_commit(homes, faulty):
    file, reader = homes.open(), homes.open("b")
    file.append(memory(1, "fact " * 1000))
    contents(reader)
    faulty.reads.clear()
    faulty.commits.clear()

    file.append(memory(2))
    contents(reader)
    contents(reader)

    assert (len(faulty.reads), len(faulty.commits)) == (3, 1)
    texts = [homes.stores[""]._store.read(each).texts["MEMORY.md"] for each in faulty.reads]
    assert [len(each.text) < 200 and not each.whole for each in texts] == [True] * 3


def test_an_archive_that_is_full_is_told_and_costs_no_memory_and_a_full_memory_refuses_more(homes, monkeypatch, caplog):
    file = homes.open(memories=2)
    for number in range(8):
        file.append(memory(number, f"{number}" * 300))
    monkeypatch.setattr(module, "MAX_DOCUMENT", file.sizes()[1] + 100)

    assert file.append(memory(8, "tea")).memory_id == "mem_8"

    assert "could not be brought within its limits: [Errno 27] it would have" in caplog.text
    assert [one.memory_id for one in homes.open("b").load().memories] == ["mem_6", "mem_7", "mem_8"]
    assert len(homes.open("b").archived()) == 6
    before = file.text()
    with pytest.raises(OSError, match=r"the store takes [\d,]+: delete what is not needed"):
        file.append(memory(9, "z" * 3_000))
    assert file.text() == homes.open("b").text() == before


def test_the_record_of_what_was_acknowledged_does_not_grow_without_end(homes, monkeypatch):
    monkeypatch.setattr(module, "_LARGE_RECORD", 2_000)
    file = homes.open()
    for number in range(40):
        file.append(memory(number))
        asyncio.run(homes.clock.advance(3 * 3600))
    assert file._documents.transaction.size_of(module._RECORD) < 4_000
    homes.save(b"")
    assert 0 < len(contents(homes.open("b"))) < 15


def test_what_was_deleted_for_good_is_nowhere_in_the_store(homes):
    file = homes.open()
    file.append(memory(1, "the secret of the tide"))
    file.append(memory(2))
    file.archive(["mem_2"])
    file.append(memory(3))
    file.delete("mem_1")
    for document in ("MEMORY.md", "MEMORY.archive.md", module._RECORD):
        text = file._documents.transaction.text_of(document)
        assert text
        assert b"secret" not in text


def test_another_call_of_the_node_that_holds_the_lock_is_waited_for_and_no_longer(homes):
    homes.open().append(memory(1))
    home = module.StoredHome(homes.stores[""], homes.data_dir(), homes.clock, RandomIds(), 0.05)
    folders = MemoryFolders(homes.data_dir(), homes.clock, patience=0.05, home=home)
    with module.FileLock(homes.data_dir() / "agents" / TRADER.folder / ".lock"):
        with pytest.raises(OSError, match="locked it"):
            folders.delete(TRADER, "mem_1")
        assert [each.memory_id for each in folders.memories(TRADER)] == ["mem_1"]


def test_what_another_node_remembers_between_two_looks_of_an_operation_is_not_lost(homes, faulty):
    file, other = homes.open(), homes.open("b")
    for number in range(3):
        file.append(memory(number))
    file.archive(["mem_0"])
    theirs = [memory(9)]

    def meanwhile(real, asked):
        if not isinstance(asked, list) and "MEMORY.archive.md" in asked.after and theirs:
            faulty.fault = None
            other.append(theirs.pop())
        return real(asked)

    faulty.fault = meanwhile
    file.archive(["mem_1"])

    assert theirs == []
    assert contents(homes.open("b")) == ["fact 2", "fact 9"]
    assert [one.memory_id for one in homes.open("b").archived()] == ["mem_0", "mem_1"]


def test_the_archive_is_not_held_after_an_operation(homes):
    file = homes.open()
    for number in range(3):
        file.append(memory(number))
    file.archive(["mem_0", "mem_1"])
    file.delete("mem_0")

    assert file._documents.archive.document.blocks == []
    assert [one.memory_id for one in file.archived()] == ["mem_1"]
