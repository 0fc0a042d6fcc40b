"""Programs that tools start end with the call, whatever they do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.tools.bounded_text import BoundedText
from owlclaw_ray.tools.process import Program, ProgramLimits, run_program

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
LIMITS = ProgramLimits(seconds=20.0, stdout_bytes=1_000, stderr_bytes=1_000)
AT_ONCE = ProgramLimits(seconds=0.3, stdout_bytes=1_000, stderr_bytes=1_000)


def shell(text, limits=LIMITS, stdin=b"", folder=Path("/")):
    return run_program(Program(["/bin/sh", "-c", text], folder, ENVIRONMENT, stdin), limits)


def gone(pid):
    """Wait until no process of that id runs."""
    while True:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        os.sched_yield()


def test_input_output_and_exit_code_are_passed():
    end = shell("cat; echo problem >&2; exit 3", stdin=b"given")
    assert (end.exit_code, end.stdout.text(), end.stderr.text()) == (3, "given", "problem\n")


def test_the_signal_that_ended_a_program_is_its_exit_code():
    assert shell("kill -9 $$").exit_code == -signal.SIGKILL


def test_a_program_that_reads_nothing_does_not_block_what_is_written_to_it():
    assert shell("exit 0", stdin=b"x" * 1_000_000).exit_code == 0


def test_much_input_and_output_at_once_do_not_block_each_other():
    data = os.urandom(2_000_000)
    end = shell("cat", ProgramLimits(20.0, 3_000_000, 10), stdin=data)
    assert end.stdout.whole() == data


def test_a_program_is_killed_at_its_deadline_and_what_it_wrote_is_kept():
    """tool-registry: a command has a time limit, and its partial output is returned."""
    end = shell("echo started; echo more >&2; sleep 1000", AT_ONCE)
    assert (end.exit_code, end.stdout.text(), end.stderr.text()) == (None, "started\n", "more\n")


def test_a_program_that_ignores_signals_and_closes_its_output_is_killed_too():
    end = shell("trap '' TERM INT HUP; exec >&- 2>&-; while :; do sleep 1000; done", AT_ONCE)
    assert end.exit_code is None


def test_its_children_are_killed_with_it():
    """tool-registry: no process goes on in the background."""
    end = shell("sleep 1000 & echo $!; sleep 1000", AT_ONCE)
    assert gone(int(end.stdout.text()))


def test_what_a_program_leaves_running_is_killed_when_it_ends():
    end = shell("sleep 1000 & echo $!")
    assert end.exit_code == 0
    assert gone(int(end.stdout.text()))


def test_memory_does_not_grow_with_the_output():
    """tool-registry: output that is too large is cut while it is read."""
    end = shell("head -c 50000000 /dev/zero | tr '\\0' x; echo END", ProgramLimits(60.0, 1_000, 10))
    assert end.stdout.total == 50_000_004
    assert len(end.stdout.text()) < 1_100
    assert end.stdout.text().endswith("xEND\n")


def test_an_endless_output_is_cut_at_the_deadline():
    end = shell("yes", AT_ONCE)
    assert end.exit_code is None
    assert len(end.stdout.text()) < 1_100


def test_only_the_given_environment_is_passed(monkeypatch):
    """tool-registry: the environment is a minimal allowlist; secrets are not passed by default."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    lines = shell("env").stdout.text()
    assert "OPENAI_API_KEY" not in lines
    assert "PATH=/usr/bin:/bin" in lines


@pytest.mark.parametrize("argv", [["/nowhere/program"], ["no-such-program"]])
def test_a_program_that_is_not_there_cannot_be_started(argv):
    with pytest.raises(FileNotFoundError):
        run_program(Program(argv, Path("/"), ENVIRONMENT), LIMITS)


def test_an_exception_in_the_caller_kills_the_program(tmp_path):
    """tool-registry: aborting a tool ends it."""

    def interrupt(signal_number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            shell("echo $$ > pid; sleep 1000", folder=tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(int((tmp_path / "pid").read_text()))


KILLED = """
import sys
from pathlib import Path
from owlclaw_ray.tools.process import Program, ProgramLimits, run_program
text = "sleep 1000 & echo $! $$ > pids.new; mv pids.new pids; sleep 1000"
run_program(Program(["/bin/sh", "-c", text], Path(sys.argv[1]), {"PATH": "/usr/bin:/bin"}), ProgramLimits(60.0, 10, 10))
"""


@pytest.mark.parametrize("attempt", range(10))
def test_a_worker_that_is_killed_at_once_takes_its_programs_with_it(tmp_path, attempt):
    worker = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    pids = tmp_path / "pids"
    while not pids.exists():
        os.sched_yield()
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_no_process_is_left_over():
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    shell("true")
    shell("sleep 1000", AT_ONCE)
    assert children.read_text().split() == before


@pytest.mark.property
@given(st.lists(st.binary(max_size=30)), st.integers(1, 40))
def test_bounded_text_keeps_beginning_and_end_within_its_limit(parts, limit):
    text = BoundedText(limit)
    for part in parts:
        text.add(part)
    everything = b"".join(parts)
    assert text.total == len(everything)
    assert text.left_out == max(0, len(everything) - limit)
    if text.left_out:
        assert text.whole() is None
        head, _, tail = text.text().partition(f"\n…[{text.left_out} bytes left out]…\n")
        assert everything.decode("utf-8", "ignore").startswith(head[:1])
        assert len(head.encode()) + len(tail.encode()) <= limit
    else:
        assert text.whole() == everything
