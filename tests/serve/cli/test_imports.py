"""What a command does not import: most of the time that a short command takes is imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from owlclaw_ray.client import SyncClient
from serve.cli.entry import MODULES

HEAVY = {
    "alembic",
    "fastapi",
    "hatchet_sdk",
    "jsonschema",
    "lancedb",
    "litellm",
    "mcp",
    "numpy",
    "openai",
    "opentelemetry",
    "pandas",
    "pyarrow",
    "ray",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}
SERVERS_OWN = {"actors", "owlclaw_ray.runs", "owlclaw_ray.policy", "owlclaw_ray.settings", "serve.launch"}
"""Parts of OwlClaw that a program which talks to a server has no use for."""
SLOW = {"httpx._main", "pygments", "rich.progress", "rich.syntax", "rich.markdown"}
"""What libraries import for purposes that no command has."""
PROGRAM = """
import json, sys
from serve.cli import main
try:
    main()
except SystemExit as end:
    print(json.dumps({"code": end.code or 0, "modules": sorted(name for name, module in sys.modules.items() if module)}), file=sys.stderr)
"""
ON_LISTS = [
    "runs",
    "agents",
    "memory list assistant",
    "schedules list",
    "approvals list",
    "webhooks deliveries",
    "mcp list",
    "top --times 1",
]
ON_RUNS = ["trigger assistant", "trigger assistant --wait", "trigger assistant --follow"]


def imported(folder: Path, *arguments: str, **variables: str) -> set[str]:
    """Return the modules that a process has when the command, which has to succeed, is done."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("OWLCLAW_")}  # noqa: TID251 - another process's
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environ | {"PYTHONPATH": str(Path(__file__).parents[3])} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stderr.splitlines()[-1])
    assert report["code"] == 0, done.stdout + done.stderr
    return set(report["modules"])


def commands_in(modules: set[str]) -> set[str]:
    """The modules with commands that were imported."""
    return {name for name in MODULES if f"serve.cli.{name}" in modules}


def heavy(modules: set[str]) -> set[str]:
    return (modules & SERVERS_OWN) | {name for name in modules if name.partition(".")[0] in HEAVY}


@pytest.fixture
def application(tmp_path: Path, server: str) -> Path:
    """The folder of an application whose server runs, and whose secrets this machine's users have not."""
    port = server.rpartition(":")[2]
    text = f"http:\n  port: {port}\nwebhooks:\n  sources:\n    shop:\n      secret: ${{SHOP_SECRET}}\n"
    (tmp_path / "owlclaw.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("command", ["--help", "--version", "runs --help", "ledger --help", "up --help"])
def test_help_loads_neither_the_server_nor_the_client(tmp_path: Path, command: str):
    modules = imported(tmp_path, *command.split())

    assert heavy(modules) == set()
    assert not modules & {"httpx", "yaml", "owlclaw_ray.client"}


@pytest.mark.parametrize("command", [*ON_LISTS, *ON_RUNS])
def test_a_command_that_talks_to_a_server_loads_nothing_of_one(application: Path, command: str):
    modules = imported(application, *command.split())

    assert heavy(modules) | modules & SLOW == set()
    assert "httpx" in modules, "the command talked to nobody"


@pytest.mark.parametrize(("command", "module"), [("runs", "runs"), ("mcp list", "mcp"), ("top --times 1", "top")])
def test_a_command_imports_no_other_ones(application: Path, command: str, module: str):
    assert commands_in(imported(application, *command.split())) == {module}


def test_json_and_the_version_need_no_tables(application: Path):
    assert "rich" not in imported(application, "runs", "--json")
    assert not imported(application, "--version") & {"rich", "pydantic", "httpx"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_the_commands_that_it_is_imported_for(module: str):
    part = typer.Typer()
    import_module(f"serve.cli.{module}").register(part)

    assert tuple(typer.main.get_group(part).commands) == MODULES[module]


def test_a_ledger_that_a_server_reads_loads_nothing_of_it(tmp_path: Path, server: str):
    assert heavy(imported(tmp_path, "ledger", "query", OWLCLAW_URL=server)) == set()


def test_a_tail_loads_nothing_of_a_server(application: Path, server: str):
    with SyncClient(server) as client:
        run_id = client.submit("assistant")["run_id"]

    assert heavy(imported(application, "tail", run_id)) == set()
