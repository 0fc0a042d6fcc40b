"""Command lines of the documents, checked without running them; requests of curl are sent to a server of the test."""

import argparse
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import typer
import yaml

from benchmarks import memory_kills
from benchmarks.chaos.__main__ import arguments_parser
from owlclaw_ray.settings import load_runtime_settings
from owlclaw_ray.testing.store_file import create_store
from serve.cli.entry import build_cli
from tests.docs.snippets import ROOT
from tests.serve.double import ARTIFACT

DOCUMENTED_URL = "http://127.0.0.1:8700"
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_EXTRAS = re.compile(r"\.\[([\w-]+)\]")


def commands(text):
    """Return the words of each command of a shell snippet; lines that end in a backslash go on. Where output goes is left out."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.strip() and not line.startswith("#")]
    return [line[: line.index(">")] if ">" in line else line for line in words]


def without_assignments(words):
    """Return the variables that stand before a command, and the command."""
    count = next((number for number, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def check_owlclaw(arguments):
    """Raise an error if the real command line would not take the arguments."""
    command, name, rest = typer.main.get_command(build_cli()), "owlclaw", arguments
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, rest).close()


def check_chaos(arguments):
    """Exit if a chaos session would not take the arguments."""
    arguments_parser().parse_args(arguments)


def check_memory_kills(arguments):
    memory_kills.arguments_parser().parse_args(arguments)


def check_settings(variables, folder):
    """Raise ConfigurationError if the variables are no good settings."""
    load_runtime_settings(folder, variables)


def check_sqlite(statement, folder):
    """Raise an error if a store that is in use cannot be copied so. A command of the program begins with a dot."""
    if statement.startswith("."):
        return
    with in_use(folder / "owlclaw.db") as store:
        store.execute(statement.replace("'", f"'{folder}/", 1))
    with closing(sqlite3.connect(folder / "backup.db")) as copy:
        assert copy.execute("SELECT count(*) FROM runs").fetchone() == (0,)
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextmanager
def in_use(path):
    """Yield a connection to a store while another transaction writes it."""
    create_store(path)
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as other:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO probes (writer, written) VALUES ('other', 1)")
        yield other
        writer.rollback()


def check_make(targets):
    """Assert that the Makefile has the targets."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets), targets


def check_compose(arguments):
    """Assert that docker-compose.yml has the services that are started, or in which something is executed."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    match arguments:
        case ["up", "-d", "--wait", *names] | ["up", "-d", *names]:
            assert set(names) <= services.keys()
        case ["exec", name, program, *_]:
            assert name in services
            assert program.startswith("/")
        case _:
            raise AssertionError(arguments)


def check_pip(arguments):
    """Assert that it installs this project with extras that it has, or what tests of applications need."""
    if "-e" not in arguments:
        assert arguments == ["pytest", "pytest-asyncio"]
        return
    extra = _EXTRAS.search(arguments[-1])
    assert extra
    assert f"\n{extra[1]} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def check_locust(arguments, server, folder):
    """Assert that locust, with these options but for less time, loads the test's server without failures."""
    short = ["1s" if before == "-t" else argument for before, argument in pairwise(["", *arguments])]
    command = [sys.executable, "-m", "locust", *(argument.replace(DOCUMENTED_URL, server) for argument in short)]
    file = command.index("-f") + 1
    command[file] = str(ROOT / command[file])
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def send(arguments, server, run_id, schedule_id):
    """Do what curl would do, at the test's server; RUN_ID and SCHEDULE_ID stand for ones that are there. Return the response."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("url")
    given = parser.parse_args(arguments)
    assert given.url.startswith(DOCUMENTED_URL)
    return httpx.request(
        given.method or ("POST" if given.data else "GET"),
        given.url.replace(DOCUMENTED_URL, server)
        .replace("RUN_ID", run_id)
        .replace("SCHEDULE_ID", schedule_id)
        .replace("ARTIFACT_ID", ARTIFACT.artifact_id)
        .replace("DELIVERY_ID", "whd_2")
        .replace("CALLBACK_ID", "cb_2"),
        headers=dict(header.split(": ", 1) for header in given.headers),
        content=given.data,
        timeout=10,
    )


def known_elsewhere(words):
    """Return whether it is a command of the shell that needs no check."""
    return words[0] in {"cd", "export", "pytest"} or words == [".", str(Path(".venv", "bin", "activate"))]
