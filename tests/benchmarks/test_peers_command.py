import signal
import subprocess
import sys

import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers import comparison
from benchmarks.peers.environments import Missing
from serve.cli.connection import environment

MEASURES_UNTIL_A_SIGNAL = """
import signal, sys
from benchmarks.peers import __main__ as command

def compare(*_):
    try:
        print("measuring", flush=True)
        signal.pause()
    finally:
        print("cleaned up", flush=True)

command.compare = compare
sys.exit(command.main(["restate"]))
"""


@pytest.fixture
def signals():
    """Puts back what the command does with signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_peer_that_is_not_installed_is_told_with_what_installs_it_and_no_traceback(signals, monkeypatch, capsys):
    monkeypatch.setattr(comparison.environments, "find", lambda *_: Missing("pip install it"))

    assert command.main(["autogen"]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "autogen is not measured; install it with: pip install it\nno peer is installed\n"


def test_an_unknown_peer_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["nobody"])

    assert ended.value.code == 2
    assert "no such peer: nobody" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_the_peers_stopped_before_it_ends(number):
    with subprocess.Popen(
        [sys.executable, "-c", MEASURES_UNTIL_A_SIGNAL], env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(number)
        assert process.stdout.read() == "cleaned up\n"
        assert process.wait(10) == 130
