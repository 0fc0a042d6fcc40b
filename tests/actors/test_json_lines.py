from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from actors.json_lines import JsonLines, converted
from serve import ray_output

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def entries(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_becomes_an_object_and_an_object_stays_as_it_is():
    own = '{"event": "x"}'

    assert converted(own, "ray", NOON) == own
    assert json.loads(converted("\x1b[33m(raylet)\x1b[0m A worker died 价格 \ud800", "ray", NOON)) == {
        "event": "(raylet) A worker died 价格 \\ud800",
        "level": "info",
        "logger": "ray",
        "timestamp": "2026-11-23T12:00:00Z",
    }
    assert json.loads(converted("17", "ray", None)) == {"event": "17", "level": "info", "logger": "ray"}
    assert converted(" \x1b[0m ", "ray", NOON) == converted(":actor_name:KeeperActor", "ray", NOON) == ""


def test_a_stream_writes_lines_however_they_come(tmp_path: Path):
    with (tmp_path / "log").open("w+", encoding="utf-8") as target:
        stream = JsonLines(target, "ray", lambda: NOON)
        for text in ("one ", "line\nand", " another\n\n", '{"event": "own"}\n', "the last"):
            assert stream.write(text) == len(text)
        assert (stream.encoding, stream.isatty()) == ("utf-8", False)
        stream.close()

    assert [each["event"] for each in entries(tmp_path / "log")] == ["one line", "and another", "own", "the last"]


def test_what_ray_prints_goes_to_its_log_line_by_line(tmp_path: Path):
    for as_json in (False, True):
        with ray_output.aside(tmp_path / "ray.log", as_json=as_json):
            sys.stdout.write("\x1b[36m(raylet)\x1b[0m A worker died\n")
            sys.stderr.write("half \ud800\n")
        text = (tmp_path / "ray.log").read_text(encoding="utf-8")
        assert text.startswith("{") is as_json

    assert [each["event"] for each in entries(tmp_path / "ray.log")] == ["(raylet) A worker died", "half \\ud800"]


def test_logs_that_are_kept_are_json_too_if_that_is_asked_for(tmp_path: Path):
    session = tmp_path / "session" / "logs"
    (session / "serve").mkdir(parents=True)
    (session / "worker-1.err").write_bytes(b':job_id:01000000\n{"event": "own"}\nbroken \xff\n')
    (session / "serve" / "controller.log").write_text("INFO a controller says\n")
    (session / "old.json").write_text("{\n}")
    link = tmp_path / "logs"
    link.symlink_to(session)

    ray_output.keep_logs(link, as_json=True)

    assert not link.is_symlink()
    assert [each["event"] for each in entries(link / "worker-1.err")] == ["own", "broken \\xff"]
    assert entries(link / "serve" / "controller.log") == [
        {"event": "INFO a controller says", "level": "info", "logger": "controller"}
    ]
    assert (link / "old.json").read_text() == "{\n}"
    assert (session / "worker-1.err").read_bytes().startswith(b":job_id:")
