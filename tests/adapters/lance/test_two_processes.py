"""Two processes with one agent's index, each of which has it open."""

import subprocess
import sys

from owlclaw_ray.adapters.embedders import OneEmbedder
from owlclaw_ray.adapters.lance_memory import LanceMemory
from tests.adapters.lance.conftest import TRADER, LetterEmbedder, memory

REINDEXING = """
import sys
from pathlib import Path
from tests.adapters.lance.conftest import TRADER, LetterEmbedder
from owlclaw_ray.adapters.embedders import OneEmbedder
from owlclaw_ray.adapters.lance_memory import LanceMemory
from owlclaw_ray.adapters.system_clock import SystemClock
embedder = LetterEmbedder()
embedder.broken = True
store = LanceMemory(Path(sys.argv[1]), OneEmbedder(embedder), SystemClock())
assert store.reindex(TRADER) == 3
store.settle()
"""


def test_a_table_that_another_process_made_anew_is_told_from_the_one_before(tmp_path, clock):
    store = LanceMemory(tmp_path, OneEmbedder(LetterEmbedder()), clock)
    for number in range(3):
        store.remember(TRADER, memory(number, f"fact number{number}"))
    store.settle()
    before = store._index(TRADER)._table.version
    assert store.recall(TRADER, "number1", 5).memories[0].parts.cosine is not None

    subprocess.run([sys.executable, "-c", REINDEXING, str(tmp_path)], check=True, timeout=60)

    after = store._index(TRADER)._table.version
    assert (after[-1], after != before) == (before[-1], True), "they differ in nothing but their making"
    found = store.recall(TRADER, "number2", 5)
    assert [each.parts.cosine is not None for each in found.memories] == [True] * 3
