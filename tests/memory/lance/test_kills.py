import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.memory_kills import AGENT, Told, call_id, memory_of, opened, problems
from owlclaw_ray.memory.markdown import parse, render

ROOT = Path(__file__).parents[3]


def test_whatever_is_killed_nothing_is_lost_nothing_is_doubled_and_the_index_is_equal_to_the_file():
    seed = str(random.Random().randrange(10_000))
    command = [sys.executable, "-m", "benchmarks.memory_kills", "--kills", "4", "--seed", seed]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=90)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "nothing lost, nothing doubled" in ended.stdout


def test_what_is_lost_doubled_or_changed_is_noticed(tmp_path):
    store = opened(tmp_path)
    for number in range(8):
        store.remember(AGENT, memory_of(number))
    told = Told(set(range(8)), 8)
    assert problems(tmp_path, told)[0] == []
    file = store.files.folder(AGENT) / "MEMORY.md"
    kept = file.read_text()

    (lost,) = problems(tmp_path, Told({*range(8), 12}, 13))[0]
    assert lost == "call 12 is lost"
    store.files.archive(AGENT, [call_id(0)])
    archive = file.with_name("MEMORY.archive.md")
    (moved,) = parse(archive.read_bytes(), datetime.min.replace(tzinfo=UTC)).memories
    archive.write_text(archive.read_text() + render(moved).replace("customer number 0", "customer number 99"))
    assert any("is used above" in found for found in problems(tmp_path, told)[0])
    archive.unlink()
    file.write_text(kept.replace("customer number 1 likes", "customer number 1 hates"))
    assert any("call 1 has another content" in found for found in problems(tmp_path, told)[0])
