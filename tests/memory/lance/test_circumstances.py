"""What the machine does to the files: full disks, folders that cannot be written, and bytes that change."""

import os
import random
import resource
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.lance.conftest import NOW, TRADER, LetterEmbedder, memory, recalled

NOBODY = 65_534


@pytest.fixture
def open_folder():
    """A folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="owl-memory-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def files(store):
    """The folder of an agent with two memories, indexed."""
    store.remember(TRADER, memory("a", "the harbour closes at six"))
    store.remember(TRADER, memory("b", "客户喜欢绿茶"))
    store.settle()
    return store.files.folder(TRADER)


@contextmanager
def read_only(folder):
    """Nobody may write in the folder: not its owner, and root becomes somebody else."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path in modes:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


@contextmanager
def full_disk(size):
    """No file may be longer than `size` bytes, as on a disk without room for more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("embedder", [None, LetterEmbedder()], ids=["words", "vectors"])
def test_in_a_read_only_folder_memories_are_found_and_new_ones_refused(open_folder, embedder):
    writer = LanceMemory(open_folder, FixedEmbedder(embedder), ManualClock(NOW))
    writer.remember(TRADER, memory("a", "the harbour closes at six"))
    writer.settle()
    folder = writer.files.folder(TRADER)
    with read_only(open_folder):
        store = LanceMemory(open_folder, FixedEmbedder(embedder), ManualClock(NOW))
        assert recalled(store, "harbour") == ["the harbour closes at six"]
        with pytest.raises(PermissionError):
            store.remember(TRADER, memory("b", "likes tea"))
    file = folder / "MEMORY.md"
    file.write_text(file.read_text() + "\nthe gate opens at seven\n")
    with read_only(open_folder):
        found = store.recall(TRADER, "gate", 5)
        assert [one.memory.content for one in found.memories] == ["the gate opens at seven"]
        assert found.degraded
        assert "ermission denied" in found.reason
    assert recalled(store, "gate", 1) == ["the gate opens at seven"]
    assert recalled(store, "harbour", 1) == ["the harbour closes at six"]


def test_on_a_full_disk_a_memory_is_refused_and_the_rest_stays(store, files):
    before = (files / "MEMORY.md").read_bytes()
    with full_disk(len(before) + 40):
        with pytest.raises(OSError, match="File too large"):
            store.remember(TRADER, memory("c", "this does not fit"))
        assert recalled(store, "harbour", 1) == ["the harbour closes at six"]
    assert (files / "MEMORY.md").read_bytes() == before
    assert store.remember(TRADER, memory("c", "this does not fit")).memory_id == "mem_c"
    assert recalled(store, "this does not fit", 1) == ["this does not fit"]


def test_an_index_that_finds_no_room_is_kept_and_the_memory_found_by_its_words(store, files):
    data = {path: path.stat().st_ino for path in (files / "index").rglob("data/*.lance")}
    with full_disk((files / "MEMORY.md").stat().st_size + 100):
        store.remember(TRADER, memory("c", "the gate opens"))
        store.settle()
        found = store.recall(TRADER, "gate", 5)
        assert found.memories[0].memory.content == "the gate opens"
        assert found.degraded
    assert recalled(store, "gate", 1) == ["the gate opens"]
    assert store.indexed(TRADER) == {"mem_a", "mem_b", "mem_c"}
    assert all(path.stat().st_ino == inode for path, inode in data.items())


def test_flipped_bytes_in_the_index_cost_no_answer(store, files, tmp_path, clock):
    chance = random.Random(5)
    paths = sorted(path for path in (files / "index").rglob("*") if path.is_file() and path.stat().st_size)
    for number in range(24):
        path = chance.choice(paths)
        if not path.exists():
            continue
        data = bytearray(path.read_bytes())
        for _ in range(8):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        again = LanceMemory(tmp_path, store._embedders, clock)
        found = again.recall(TRADER, "when does the harbour close", 5)
        assert "the harbour closes at six" in [one.memory.content for one in found.memories], (number, path)
        assert again.indexed(TRADER) == {"mem_a", "mem_b"}
        paths = sorted(each for each in (files / "index").rglob("*") if each.is_file() and each.stat().st_size)


def test_one_flipped_bit_in_a_vector_makes_the_index_anew(tmp_path, clock):
    embedder = LetterEmbedder()
    store = LanceMemory(tmp_path, FixedEmbedder(embedder), clock)
    store.remember(TRADER, memory("a", "the harbour closes at six"))
    store.settle()
    (path,) = (store.files.folder(TRADER) / "index").rglob("data/*.lance")
    data = bytearray(path.read_bytes())
    vector = np.asarray(embedder.embed_queries(["the harbour closes at six"])[0], np.float16).tobytes()
    data[data.index(vector) + 1] ^= 0x20
    path.write_bytes(data)
    again = LanceMemory(tmp_path, FixedEmbedder(embedder), clock)
    assert recalled(again, "harbour") == ["the harbour closes at six"]
    again.settle()
    assert not path.exists()
    made = (store.files.folder(TRADER) / "index").rglob("data/*.lance")
    assert any(vector in each.read_bytes() for each in made)


def test_flipped_bytes_in_the_file_are_reported_where_they_break_an_entry(store, files):
    file = files / "MEMORY.md"
    data = bytearray(file.read_bytes())
    data[data.index("客".encode())] ^= 0x80
    file.write_bytes(data)
    assert [problem.where for problem in store.files.stats(TRADER).problems] == ["MEMORY.md:14"]
    assert recalled(store, "harbour", 1) == ["the harbour closes at six"]
    store.remember(TRADER, memory("c", "the gate opens"))
    assert bytes(data) in file.read_bytes()
