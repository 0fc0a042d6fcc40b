import itertools
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import processes
from benchmarks.processes import ProcessTree, clean_environment, cpu_spent, difference, stop
from serve.processes import lives

FAMILY = """
import os, signal, subprocess, sys, time
while time.process_time() < 0.15:
    pass
subprocess.run([sys.executable, "-IS", "-c", "import time\\nwhile time.process_time() < 0.15: pass"])
{refusal}
child = subprocess.Popen(
    [sys.executable, "-IS", "-c", "import signal; print('ready', flush=True); signal.pause()", "-f", {configuration!r}]
)
signal.pause()
"""


@pytest.fixture
def family():
    """Starts a process that has used 0.15 s, waited for one that used 0.15 s, and has another one."""
    started = []

    def start(refusal="", configuration="none"):
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", FAMILY.format(refusal=refusal, configuration=configuration)],
            stdout=subprocess.PIPE,
            env=clean_environment(),
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        ProcessTree(psutil.Process(process.pid)).kill() if process.poll() is None else None
        process.communicate()


def test_cpu_is_that_of_all_processes_of_those_that_ended_too(family):
    tree = ProcessTree(psutil.Process(family().pid))

    assert len(tree.processes()) == 2
    assert tree.cpu_seconds() > 0.25
    assert sum(tree.cpu_by_name().values()) == pytest.approx(tree.cpu_seconds(), abs=0.1)


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-IS", "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), flush=True)
for line in sys.stdin:
    child.stdin.write(line.encode())
    child.stdin.flush()
    print(child.stdout.readline().decode().strip() or child.wait(), flush=True)
"""
CHILD = """
import sys, time
def use(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    print("used", flush=True)
use(0.4)
for line in sys.stdin:
    if line == "end\\n":
        break
    use(0.1)
"""


@pytest.fixture
def parent():
    """A process with a child that has used 0.4 s of CPU; a function that tells the child to go on, and returns what it says."""
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"used\n"

    def tell(word):
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        return process.stdout.readline()

    yield ProcessTree(psutil.Process(process.pid)), tell
    process.kill()
    process.communicate()


def test_what_a_process_used_before_is_not_spent_again_when_it_ends_and_its_parent_has_it_on_its_account(
    parent, monkeypatch
):
    monkeypatch.setattr(processes, "_name", lambda process: str(process.pid))
    tree, tell = parent
    before = tree.cpu_of_each()
    assert sum(each.total for each in before.values()) > 0.3

    assert tell(b"end") == b"0\n"

    assert len(tree.processes()) == 1
    assert tree.cpu_seconds() > 0.3
    assert sum(cpu_spent(before, tree.cpu_of_each()).values()) < 0.2


def test_a_process_that_has_another_name_meanwhile_spent_only_what_it_used_since(parent, monkeypatch):
    tree, tell = parent
    before = tree.cpu_of_each()
    assert tell(b"go on") == b"used\n"
    monkeypatch.setattr(processes, "_name", lambda process: "parent" if process == tree.root else "renamed")

    spent = cpu_spent(before, tree.cpu_of_each())

    assert 0.05 < spent["renamed"] < 0.3


def test_memory_is_that_of_all_processes_and_its_peak_is_kept(family):
    tree = ProcessTree(psutil.Process(family().pid))

    with tree.peak_memory(interval=0.01) as peak:
        together = tree.pss_bytes()
    assert sum(tree.pss_by_name().values()) > 0
    assert peak.bytes >= together * 0.9


def test_stopping_ends_what_the_process_left_behind(family):
    process = family()
    members = ProcessTree(psutil.Process(process.pid)).processes()

    stop(process, grace=10)

    assert process.returncode is not None
    assert not [member for member in members if lives(member)]


def test_who_does_not_end_within_the_grace_is_killed(family):
    process = family(refusal="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    members = ProcessTree(psutil.Process(process.pid)).processes()

    stop(process, grace=0.1)

    assert process.returncode == -9
    assert not [member for member in members if lives(member)]


def test_killing_leaves_neither_processes_nor_the_scratch_folder(family, tmp_path):
    scratch = tmp_path / "owl-scratch"
    scratch.mkdir()
    process = family(configuration=str(scratch / "haproxy.cfg"))
    tree = ProcessTree(psutil.Process(process.pid))
    members = tree.processes()

    tree.kill()

    assert not [member for member in members if lives(member)]
    assert not scratch.exists()
    assert tree.cpu_seconds() == 0


def test_settled_is_who_uses_hardly_any_cpu_or_does_not_stop_for_long(family, monkeypatch):
    tree = ProcessTree(psutil.Process(family().pid))
    pauses = []
    monkeypatch.setattr(processes.time, "sleep", pauses.append)
    used = iter([0.0, 2.0, 2.1, 3.0, 3.1, 3.2])
    monkeypatch.setattr(ProcessTree, "cpu_seconds", lambda _: next(used))

    tree.settle()
    assert len(pauses) == 5

    busy = itertools.count()
    monkeypatch.setattr(ProcessTree, "cpu_seconds", lambda _: next(busy))
    monkeypatch.setattr(processes.time, "monotonic", lambda: float(next(busy)))
    tree.settle()


def test_stopping_what_has_ended_is_no_error():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    stop(process, grace=1)
    assert process.returncode == 0


def test_what_would_change_the_system_stays_out_of_its_environment(monkeypatch):
    monkeypatch.setenv("OWLCLAW_MODEL", "openai/gpt")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("PATH_TO_KEEP", "kept")

    environment = clean_environment()
    assert not [name for name in environment if name.startswith(("OWLCLAW_", "RAY_"))]
    assert environment["PATH_TO_KEEP"] == "kept"


def test_differences_have_the_most_first_and_only_what_grew():
    assert difference({"a": 1.0, "b": 2.0, "gone": 3.0}, {"a": 1.5, "b": 2.0, "new": 4.0}) == {"new": 4.0, "a": 0.5}


def test_a_process_is_named_after_its_program_and_an_actor_after_its_class(tmp_path):
    program = tmp_path / "gcs_server"
    program.symlink_to(Path("/bin/sleep"))
    script = tmp_path / "log_monitor.py"
    script.write_text("import signal; signal.pause()")
    for words, executable, name in [
        ([str(program), "60"], str(program), "gcs_server"),
        (["ray::AgentActor.wake()", "60"], "/bin/sleep", "AgentActor"),
        (["ray::ServeReplica:owlclaw:ingress", "60"], "/bin/sleep", "ServeReplica"),
        ([sys.executable, "-u", str(script)], sys.executable, "log_monitor.py"),
        ([sys.executable, "-m", "log_monitor"], sys.executable, "log_monitor"),
    ]:
        process = subprocess.Popen(words, executable=executable, cwd=tmp_path)
        try:
            seen = psutil.Process(process.pid)
            while not seen.cmdline():  # Popen returns a moment before the kernel shows the new program's words
                time.sleep(0.001)
            assert set(ProcessTree(seen).cpu_by_name()) == {name}
        finally:
            process.kill()
            process.wait()
