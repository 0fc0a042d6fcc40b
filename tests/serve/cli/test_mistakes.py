"""What beginners do wrong, and what they are told: place, cause and remedy. A table to read."""

from __future__ import annotations

import re
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from serve.preflight import exclusive_data_dir
from tests.serve.cli.conftest import Run

ROOT = Path(__file__).parents[3]
APP, SETTINGS, AGENT = "app.py", "owlclaw.yaml", "agents/clerk/agent.yaml"
SOUL, IDENTITY, SCRIPT = "agents/clerk/SOUL.md", "agents/clerk/IDENTITY.md", "agents/clerk/script.yaml"
SKILL = "agents/clerk/capabilities/sell/SKILL.md"
GOOD_APP = '''from owlclaw_ray import OwlClaw

app = OwlClaw("desk")


@app.tool
def price(article: str) -> int:
    """Say what an article costs."""
    return 1
'''
GOOD = {
    APP: GOOD_APP,
    SETTINGS: "app: app:app\nhttp: {port: PORT}\n",
    SOUL: "A clerk.\n",
    IDENTITY: "## My Capabilities\n- Sell\n",
    AGENT: "model: scripted:echo\n",
}
Meanwhile = Callable[[Path, int], AbstractContextManager[None]]


def settings(more: str) -> dict[str, str]:
    return {SETTINGS: f"{GOOD[SETTINGS]}{more}\n"}


def agent(more: str) -> dict[str, str]:
    return {AGENT: f"{GOOD[AGENT]}{more}\n"}


def app(written: str, instead: str) -> dict[str, str]:
    assert written in GOOD_APP
    return {APP: GOOD_APP.replace(written, instead)}


def scripted(script: str) -> dict[str, str]:
    return {AGENT: "model: scripted:script.yaml\n", SCRIPT: script}


def nothing(_folder: Path, _port: int) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def a_program_on_the_port(_folder: Path, port: int) -> Iterator[None]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


@contextmanager
def another_runtime(folder: Path, _port: int) -> Iterator[None]:
    (folder / ".owlclaw").mkdir()
    with exclusive_data_dir(folder / ".owlclaw"):
        yield


class Mistake(NamedTuple):
    """One row."""

    made: str
    files: Mapping[str, str | None]
    """What is written, or left out, in a project that is right."""
    said: str
    typed: tuple[str, ...] = ("doctor",)
    variables: Mapping[str, str] = {}
    meanwhile: Meanwhile = nothing


IN_SETTINGS = [
    Mistake(
        "a missing colon",
        {SETTINGS: "app app:app\n"},
        """
        FAIL settings: owlclaw.yaml:1: a colon is missing after 'app'
             → write app: app:app
        """,
    ),
    Mistake(
        "a missing colon before other lines",
        {SETTINGS: "app app:app\nhttp:\n  port: 8700\n"},
        """
        FAIL settings: owlclaw.yaml:1: a colon is missing after 'app'
             → write app: app:app
        """,
    ),
    Mistake(
        "a missing colon after a section",
        {SETTINGS: "app: app:app\nhttp\n  port: 8700\n"},
        """
        FAIL settings: owlclaw.yaml:2: a colon is missing after 'http'
             → write http: …
        """,
    ),
    Mistake(
        "no space after a colon",
        {AGENT: "model:scripted:echo\n"},
        """
        FAIL agent clerk: clerk/agent.yaml:1: a space is missing after the colon of 'model'
             → write model: scripted:echo
        """,
    ),
    Mistake(
        "a tab",
        {SETTINGS: "app: app:app\nhttp:\n\tport: 8700\n"},
        """
        FAIL settings: owlclaw.yaml:3: is not valid YAML: the line begins with a tab
             → use spaces
        """,
    ),
    Mistake(
        "a file in the place of an import path",
        {SETTINGS: "app: app.py\n"},
        """
        FAIL settings: owlclaw.yaml:1: app: is 'app.py', which is no import path
             → write it as module:name, such as app:app
        """,
    ),
    Mistake(
        "another module",
        {SETTINGS: "app: shop:app\n"},
        """
        FAIL application: app 'shop:app': there is no module 'shop' in FOLDER
             → write it as module:name, such as app:app for `app = OwlClaw(…)` in app.py
        """,
    ),
    Mistake(
        "another attribute",
        {SETTINGS: "app: app:application\n"},
        """
        FAIL application: app 'app:application': module app has no 'application'
             → use app:app
        """,
    ),
    Mistake(
        "a port in words",
        {SETTINGS: "app: app:app\nhttp: {port: eighty}\n"},
        """
        FAIL settings: owlclaw.yaml:2: http.port: is 'eighty'
             → it must be a whole number
        """,
    ),
    Mistake(
        "an address that others can reach",
        {SETTINGS: "app: app:app\nhttp: {host: 0.0.0.0}\n"},
        """
        FAIL settings: owlclaw.yaml:2: http: listens at '0.0.0.0', which others can reach, by plain HTTP, which others can read
             → set http.tls_certificate and http.tls_key; or http.proxies to the networks of the proxies in front that speak HTTPS; or
             http.insecure to true on a network that you trust with the keys; or http.host to 127.0.0.1
        """,
    ),
    Mistake(
        "a secret that is not in the environment",
        settings("webhooks: {sources: {shop: {secret: '${SHOP_SECRET}', agent: clerk}}}"),
        """
        FAIL settings: owlclaw.yaml:3: webhooks.sources.shop.secret: needs the variable SHOP_SECRET, which is not set
             → set it with: export SHOP_SECRET=…
        """,
    ),
    Mistake(
        "an MCP server that is not installed",
        settings("mcp: {servers: {files: {command: mcp-server-filez}}}"),
        """
        WARN mcp files: there is no program mcp-server-filez
             → install it, or set mcp.servers.files.command
        """,
    ),
    Mistake(
        "no owlclaw.yaml",
        {SETTINGS: None},
        """
        OK   settings: defaults; there is no owlclaw.yaml
        OK   application: none; agents have no handlers
        """,
    ),
]

IN_CODE = [
    Mistake(
        "a syntax error",
        app("-> int:", "-> int"),
        """
        FAIL application: app 'app:app': importing it failed at FOLDER/app.py:7 with SyntaxError: expected ':'
             → mend the line: def price(article: str) -> int
        """,
    ),
    Mistake(
        "a circular import",
        {
            APP: "from owlclaw_ray import OwlClaw\nfrom pricing import price\n\napp = OwlClaw('desk')\n",
            "pricing.py": "from app import app\n\n\n@app.tool\ndef price() -> int:\n    return 1\n",
        },
        """
        FOLDER/pricing.py:1 with ImportError: cannot import name 'app' from partially initialized module 'app' (most
               likely due to a circular import) (FOLDER/app.py)
             → two modules import each other: put `app = OwlClaw(…)` into a module of its own, which imports neither
               and which both import
        """,
    ),
    Mistake(
        "a module that is not installed",
        app("from owlclaw_ray", "import snowpandas\nfrom owlclaw_ray"),
        """
        FAIL application: app 'app:app': importing it failed at FOLDER/app.py:1 with ModuleNotFoundError: No module
               named 'snowpandas'
             → install the package that has it into the environment of owlclaw: PYTHON -m pip install snowpandas
        """,
    ),
    Mistake(
        "a name misspelt in an import",
        app("import OwlClaw", "import Owlclaw"),
        """
        FOLDER/app.py:1 with ImportError: cannot import name 'Owlclaw' from 'owlclaw_ray' (ROOT/owlclaw_ray/__init__.py)
             → did you mean OwlClaw?
        """,
    ),
    Mistake(
        "a name that is not defined",
        app("article: str", "article: Article"),
        """
        FAIL application: app 'app:app': importing it failed at FOLDER/app.py:7 with NameError: name 'Article' is not
               defined
             → define or import it before that line
        """,
    ),
    Mistake(
        "a decorator without parentheses",
        {},
        """
        OK   application: app:app registers 1 tool
        OK   tools: 1 tool beside the runtime's own
        """,
    ),
    Mistake(
        "no type hints",
        app("article: str", "article, count"),
        """
        FAIL application: FOLDER/app.py:6: tool 'desk.price': article: has no type annotation
             → write article: str, or whatever it is
        FAIL application: FOLDER/app.py:6: tool 'desk.price': count: has no type annotation
             → write count: str, or whatever it is
        """,
    ),
    Mistake(
        "a parameter of a type that no model can write",
        {APP: "import sqlite3\n" + GOOD_APP.replace("article: str", "article: str, base: sqlite3.Connection")},
        """
        FAIL application: FOLDER/app.py:7: tool 'desk.price': base: is of the type sqlite3.Connection, which no model
               can write
             → use str, int, float, bool, list, dict, Literal, Enum, dataclasses or pydantic models; what only the
               application has is no parameter
        """,
    ),
    Mistake(
        "two tools of one name",
        {APP: f'{GOOD_APP}\n\n@app.handler("price")\ndef set_price() -> None:\n    """Set it."""\n'},
        """
        FAIL application: FOLDER/app.py:12: tool 'desk.price': is registered twice
             → give one of them another name
        """,
    ),
    Mistake(
        "a tool's name with spaces",
        app("@app.tool", '@app.tool("what it costs")'),
        """
        FAIL application: FOLDER/app.py:6: tool 'desk.what it costs': has a name that model providers reject
             → use letters, digits, '_' and '-', with dots between parts, starting with a letter, such as reports.write
        """,
    ),
    Mistake(
        "an effect that there is not",
        app("@app.tool", '@app.tool(effect="sometimes")'),
        """
        FAIL application: FOLDER/app.py:6: tool 'desk.price': effect: is 'sometimes'
             → use one of pure, idempotent, once
        """,
    ),
    Mistake(
        "a tool without a docstring",
        app('    """Say what an article costs."""\n', ""),
        """
        WARN tools: tool 'desk.price' (FOLDER/app.py:6): has no docstring: models are told its name only
             → write one whose first paragraph says what it does and when to use it, or give description=
        """,
    ),
    Mistake(
        "a state with two parameters",
        {APP: f"{GOOD_APP}\n\n@app.state\ndef stock(agent, shelf):\n    return 1\n"},
        """
        FAIL application: FOLDER/app.py:12: state 'stock': has parameters agent, shelf
             → a provider takes nothing, or the asking agent's AgentRef
        """,
    ),
]

IN_AGENTS = [
    Mistake(
        "a misspelt folder of agents",
        settings("agents_dir: agnts"),
        """
        FAIL agents: agents_dir: there is no folder FOLDER/agnts
             → set agents_dir to the folder of the definitions, or make one with: owlclaw init
        """,
    ),
    Mistake(
        "no agents",
        {SOUL: None, IDENTITY: None, AGENT: None, "agents/notes.md": "Later.\n"},
        """
        FAIL agents: there is no definition in FOLDER/agents
             → make one with: owlclaw init
        """,
    ),
    Mistake(
        "a capital in a folder's name",
        {SOUL: None, IDENTITY: None, AGENT: None, "agents/Clerk/SOUL.md": "A clerk.\n"},
        """
        FAIL agents: FOLDER/agents/Clerk: 'Clerk' is no agent's name: names are lower-case letters, digits, '_' and
               '-', at most 64
             → rename it, such as: mv FOLDER/agents/Clerk FOLDER/agents/clerk
        """,
    ),
    Mistake(
        "no SOUL.md",
        {SOUL: None},
        """
        FAIL agent clerk: clerk/SOUL.md: does not exist
             → write there who the agent is: its role and its principles
        """,
    ),
    Mistake(
        "IDENTITY.md without its section",
        {IDENTITY: "# Clerk\nSells.\n"},
        """
        FAIL agent clerk: clerk/IDENTITY.md: has no section '## My Capabilities' (or '## 我的能力')
             → write there what the agent can do, one point a line
        """,
    ),
    Mistake(
        "a misspelt key",
        {AGENT: "modle: scripted:echo\n"},
        """
        FAIL agent clerk: clerk/agent.yaml:1: modle: there is no such key
             → did you mean model?
        """,
    ),
    Mistake(
        "a misspelt model",
        {AGENT: "model: gpt-4o-minni\n"},
        """
        WARN model gpt-4o-minni: litellm knows no such model; did you mean gpt-4o-mini?
        """,
    ),
    Mistake(
        "a misspelt tool that must not be called",
        agent("permissions: {deny: [desk.prize]}"),
        """
        WARN tools: clerk/agent.yaml:2: permissions.deny[0]: is 'desk.prize', which matches no tool: the rule does nothing
             → did you mean desk.price?
        """,
    ),
    Mistake(
        "a misspelt tool that the agent should have",
        agent("tools: {allow: [desk.prize]}"),
        """
        WARN tools: clerk/agent.yaml:2: tools.allow[0]: is 'desk.prize', which matches no tool: the rule does nothing
             → did you mean desk.price?
        """,
    ),
    Mistake(
        "a misspelt tool in IDENTITY.md",
        {IDENTITY: "## My Capabilities\n- Prices, with desk.prize\n"},
        """
        WARN tools: clerk/IDENTITY.md:2: names 'desk.prize', a tool that does not exist
             → did you mean desk.price?
        """,
    ),
    Mistake(
        "a misspelt tool in a script",
        scripted("rules:\n  - turns:\n      - tool_calls: [{name: desk.prize}]\n"),
        """
        WARN tools: clerk/script.yaml:3: rules[0].turns[0].tool_calls[0].name: calls 'desk.prize', a tool that does not exist
             → did you mean desk.price?
        """,
    ),
    Mistake(
        "a skill's name with a capital",
        {SKILL: "---\nname: Sell It\ndescription: How to sell.\n---\nSell.\n"},
        """
        WARN agent clerk: clerk/capabilities/sell/SKILL.md:2: name: is 'Sell It': a name has 1 to 64 lower-case
               letters and digits, with single hyphens between them; the skill is skipped
        """,
    ),
    Mistake(
        "no key of the provider",
        {AGENT: "model: openai/gpt-4o-mini\n"},
        """
        FAIL model openai/gpt-4o-mini: OPENAI_API_KEY is not set
             → set OPENAI_API_KEY
        """,
    ),
    Mistake(
        "a script that is not there",
        {AGENT: "model: scripted:script.yaml\n"},
        """
        FAIL model scripted:script.yaml: scripted:script.yaml: there is no file FOLDER/agents/clerk/script.yaml
             → a path in scripted:<path> starts at the agent definition's folder
        """,
    ),
    Mistake(
        "a text of a script that needs quotes",
        scripted("rules:\n  - turns:\n      - text: Done: all sold\n"),
        """
        FAIL model scripted:script.yaml: FOLDER/agents/clerk/script.yaml: line 3, column 19: is no YAML: mapping
               values are not allowed here
             → quote texts that contain ': ' and templates: "{{ … }}"
        """,
    ),
    Mistake(
        "a misspelt key of a script",
        scripted("rule:\n  - turns:\n      - text: Done\n"),
        """
        FAIL model scripted:script.yaml: FOLDER/agents/clerk/script.yaml: unknown key rule; the keys here are
               description, rules
             → docs/scripted-model.md describes the form
        """,
    ),
]

WITH_COMMANDS = [
    Mistake(
        "PostgreSQL is down",
        {},
        """
        FAIL store: store postgresql+asyncpg://desk@127.0.0.1:PORT/desk: no server answers at 127.0.0.1:PORT:
               Connection refused
             → start PostgreSQL there, or name the server that runs in store_url (OWLCLAW_STORE_URL)
        """,
        variables={"OWLCLAW_STORE_URL": "postgresql://desk@127.0.0.1:PORT/desk"},
    ),
    Mistake(
        "PostgreSQL is down when the runtime is started",
        {},
        """
        store postgresql+asyncpg://desk@127.0.0.1:PORT/desk: no server answers at 127.0.0.1:PORT: Connection refused
               (start PostgreSQL there,
        """,
        typed=("up",),
        variables={"OWLCLAW_STORE_URL": "postgresql://desk@127.0.0.1:PORT/desk"},
    ),
    Mistake(
        "the port is in use",
        {},
        """
        http.port: 127.0.0.1:PORT cannot be listened on: Address already in use (stop what listens there (owlclaw
               down, if it is a runtime of this folder), or set OWLCLAW_HTTP__PORT)
        """,
        typed=("up",),
        meanwhile=a_program_on_the_port,
    ),
    Mistake(
        "a second runtime in one folder",
        {},
        """
        data_dir: FOLDER/.owlclaw is in use by another process, which is starting (stop it with: owlclaw down, or set
               OWLCLAW_DATA_DIR to another folder)
        """,
        typed=("up",),
        meanwhile=another_runtime,
    ),
    Mistake(
        "no runtime is up",
        {},
        """
        nothing is listening at http://127.0.0.1:PORT
          → start it with: owlclaw up, or name a server that runs with --url or OWLCLAW_URL
        """,
        typed=("runs",),
    ),
    Mistake(
        "an address without http://",
        {},
        """
        --url or OWLCLAW_URL: is '127.0.0.1:PORT' (write it as http://127.0.0.1:PORT)
        """,
        typed=("runs", "--url", "127.0.0.1:PORT"),
    ),
    Mistake(
        "an address of something else",
        {},
        """
        --url or OWLCLAW_URL: is 'ftp://127.0.0.1' (write it as http://127.0.0.1)
        """,
        typed=("runs", "--url", "ftp://127.0.0.1"),
    ),
    Mistake(
        "a folder that is not there",
        {},
        """
        FOLDER/nowhere: there is no such folder (name the application's folder with --folder)
        """,
        typed=("runs", "--folder", "nowhere"),
    ),
    Mistake(
        "models to be probed of a cluster",
        {},
        """
        Invalid value for --probe: asks the models of the application, which --cluster leaves out
        """,
        typed=("doctor", "--cluster", "--probe"),
    ),
    Mistake(
        "a payload that is no JSON",
        {},
        """
        Invalid value for --payload: --payload is not JSON: unexpected character, expected a string key at line 1,
               column 2; quote a plain text twice: --payload '"text"'
        """,
        typed=("trigger", "clerk", "--payload", "{order: 1}"),
    ),
    Mistake(
        "a misspelt command",
        {},
        """
        No such command 'triger'. Did you mean 'trigger'?
        """,
        typed=("triger", "clerk"),
    ),
]

TABLE = [*IN_SETTINGS, *IN_CODE, *IN_AGENTS, *WITH_COMMANDS]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
@pytest.mark.parametrize("mistake", TABLE, ids=[mistake.made for mistake in TABLE])
def test_a_mistake_is_told_with_its_place_cause_and_remedy(
    mistake: Mistake, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    port = _free_port()
    for name in ("OPENAI_API_KEY", "SHOP_SECRET"):
        monkeypatch.delenv(name, raising=False)
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value.replace("PORT", str(port)))
    for name, text in {**GOOD, **mistake.files}.items():
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text.replace("PORT", str(port)))

    with mistake.meanwhile(tmp_path, port):
        output = cli(*(word.replace("PORT", str(port)) for word in mistake.typed)).output

    assert " ".join(mistake.said.split()) in _shown(output, tmp_path, port)


def _shown(output: str, folder: Path, port: int) -> str:
    """Return an output as the table has it: on one line, without frames and what is of this machine and moment."""
    line = " ".join(output.replace("│", " ").split())
    line = re.sub(r"\S*/bin/python[\d.]*(?= -m)", "PYTHON", line)
    return line.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT").replace(str(port), "PORT")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_what_users_are_told_to_install_can_be_installed_from_a_checkout():
    sources = [
        path
        for part in ("owlclaw_ray", "actors", "serve", "console", "benchmarks", "docs")
        for path in (ROOT / part).rglob("*")
    ]
    texts = {
        path: path.read_text() for path in [*sources, ROOT / "README.md"] if path.suffix in {".py", ".md", ".template"}
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    commands = re.compile(r"(?:pip install -e '\.\[|install_(?:hint|command)\(['\"])([\w-]+)")
    named = {extra for text in texts.values() for extra in commands.findall(text)}

    assert [path for path, text in texts.items() if re.search(r"pip install '?owlclaw-ray", text)] == []
    assert {"langfuse", "otlp-grpc", "local-embeddings", "bench", "peers"} <= named <= extras.keys()
