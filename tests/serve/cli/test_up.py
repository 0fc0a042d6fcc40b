from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from serve.cli.connection import environment
from serve.launch import _as_json
from serve.loopback import free_ports
from tests.serve.cli.conftest import Run

_SIGNALLED_BEFORE_RAY_IS_IMPORTED = """
import os, signal, sys
from serve import launch
from serve.cli.entry import main

launch._SHORT_TEMP, number = sys.argv.pop(), int(sys.argv.pop())
launch._make_environment = lambda *_, **__: os.kill(os.getpid(), number)
main()
"""


@pytest.fixture
def folder(cli: Run, tmp_path: Path) -> Path:
    """An application with a port of its own."""
    assert cli("init", "demo").exit_code == 0
    [port] = free_ports(1)
    settings = tmp_path / "demo" / "owlclaw.yaml"
    settings.write_text(settings.read_text().replace("8700", str(port)))
    return tmp_path / "demo"


def signalled(folder: Path, number: int, short_temp: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`owlclaw up`, which gets the signal before Ray is imported."""
    short_temp.mkdir()
    return subprocess.run(
        [sys.executable, "-c", _SIGNALLED_BEFORE_RAY_IS_IMPORTED, "up", str(number), str(short_temp)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment(), **variables},
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_while_libraries_are_loaded_ends_the_start_and_leaves_no_folder_behind(
    folder: Path, tmp_path: Path, number: int
):
    short_temp = tmp_path / "short"
    ended = signalled(folder, number, short_temp)

    assert ended.returncode in {1, 130}, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout.splitlines()[-1] == "stopping: the start is given up …"
    assert not list(short_temp.iterdir())


def test_as_json_whatever_a_start_shows_is_one_object_a_line(folder: Path, tmp_path: Path):
    interrupted = signalled(folder, 2, tmp_path / "short", OWLCLAW_LOG__FORMAT="json")
    (folder / ".owlclaw" / "owlclaw.db").write_text("no database " * 1_000)
    refused = signalled(folder, 2, tmp_path / "another", OWLCLAW_LOG__FORMAT="json")

    assert (interrupted.returncode, refused.returncode) == (130, 1)
    assert (interrupted.stderr, refused.stderr) == ("", "")
    told = [json.loads(line) for line in interrupted.stdout.splitlines()]
    assert told[-1].items() >= {"event": "stopping: the start is given up …", "level": "info"}.items()
    assert {"timestamp", "logger"} <= told[-1].keys()
    last = json.loads(refused.stdout.splitlines()[-1])
    assert last["level"] == "error"
    assert "the file is damaged" in last["event"]


@pytest.mark.parametrize(
    ("line", "level", "event"),
    [
        ("warning: a: b", "warning", "a: b"),
        ("note: x", "info", "x"),
        ("ended: Ray's raylet is gone", "error", "ended: Ray's raylet is gone"),
        ("failed; see ray.log", "error", "failed; see ray.log"),
        ("starting Ray …", "info", "starting Ray …"),
    ],
)
def test_lines_for_people_are_logged_at_the_level_that_they_say(line: str, level: str, event: str):
    told = json.loads(_as_json(line))

    assert (told["level"], told["event"]) == (level, event)


_FRONT_OF_A_PROCESS_WITH_FEW_FILES = """
import os, resource, sys
from pathlib import Path
from types import SimpleNamespace

resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
from owlclaw_ray.settings import load_settings
from serve.launch import _front

_front(load_settings(Path(), {}), SimpleNamespace(scratch=Path(), announce=print))
"""


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ("http: {streams: 5000}", True),
        ("http: {streams: 100}", False),
        ("{}", False),
    ],
)
def test_that_fewer_streams_are_possible_is_a_warning_only_to_who_asked_for_so_many(
    tmp_path: Path, settings: str, *, warned: bool
):
    (tmp_path / "owlclaw.yaml").write_text(settings)
    command = [sys.executable, "-c", _FRONT_OF_A_PROCESS_WITH_FEW_FILES]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment(), check=True).stdout

    assert ("warning: " in told) is warned
    if warned:
        assert "1,286 event streams may be open at once, because this process may open only 4,096 files" in told
        assert "http.streams asks for 5,000: lower http.streams, or raise the hard limit" in told
