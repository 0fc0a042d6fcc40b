"""docs/tutorial.md, done as it is written: every file, every command, in their order, with what they show."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve.loopback import free_ports
from tests.docs.shell import commands
from tests.docs.snippets import ROOT, snippets
from tests.e2e.conftest import READY

PAGE = [each for each in snippets() if each.document == ROOT / "docs/tutorial.md"]
PATIENCE = 60.0


class Reader:
    """Does what the page says, in a folder of its own, with the runtime in a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.programs = Path(sys.executable).parent
        [port] = free_ports(1)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}  # noqa: TID251
        self.environment = kept | {
            "OWLCLAW_HTTP__PORT": str(port),
            "PATH": f"{self.programs}:{kept['PATH']}",
            "COLUMNS": "200",
        }
        self.runtime, self.last, self.approval = None, [], None

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def do_all(self, text):
        """Do the commands of a snippet and return what they printed."""
        return "".join(map(self.do, commands(text)))

    def do(self, words):
        match words:
            case [".", _] | ["pip", "install", *_]:
                return ""  # these are the environment that the test has
            case ["cd", folder]:
                self.folder /= folder
                return ""
            case ["owlclaw", "up"]:
                self.stop()
                self.start()
                return ""
            case _:
                if "APPROVAL_ID" in words:
                    self.approval = self.approval or self.waiting_approval()
                self.last = [self.approval if each == "APPROVAL_ID" else each for each in words]
                return self.output_of(self.last)

    def output_of(self, words):
        program = [sys.executable, "-m", "serve.cli"] if words[0] == "owlclaw" else [sys.executable, "-m", words[0]]
        ended = subprocess.run(
            [*program, *words[1:]], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def waiting_approval(self):
        for _ in patiently():
            if approvals := json.loads(self.output_of(["owlclaw", "approvals", "list", "--json"])):
                return approvals[0]["approval_id"]
        raise AssertionError("nothing asks")

    def start(self):
        command = [sys.executable, "-m", "serve.cli", "up"]
        self.runtime = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        said = []
        for line in self.runtime.stdout:
            said.append(line)
            if READY in line:
                return
        raise AssertionError("owlclaw up ended:\n" + "".join(said))

    def stop(self):
        """Stop the runtime, and return what it said after it was ready."""
        if self.runtime is None:
            return ""
        self.runtime.terminate()
        said, _ = self.runtime.communicate(timeout=90)
        self.runtime = None
        return said


def patiently():
    """Yield now and then, for as long as something may take on a busy machine."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield
        time.sleep(0.2)


@pytest.fixture
def reader(tmp_path):
    reader = Reader(tmp_path)
    yield reader
    reader.stop()


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_the_tutorial_does_what_it_says(reader):
    said = ""
    for snippet in PAGE:
        if snippet.file:
            reader.write(snippet.file, snippet.text)
        elif snippet.language == "sh":
            said = reader.do_all(snippet.text)
        else:
            for _ in patiently():
                if plain(snippet.text) in plain(said):
                    break
                said = reader.output_of(reader.last)  # of a run that may not be over yet
            assert plain(snippet.text) in plain(said), f"{snippet}: {said}"
    assert "tool workers are ready" in reader.stop()
    assert (reader.folder / "done.jsonl").read_text().count("refunded") == 1


def plain(text):
    """Return a text without how a table draws and breaks it."""
    return re.sub(r"[\s│…]+", " ", text).strip()
