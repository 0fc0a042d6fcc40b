"""After a run in which everything that may tell a secret did: no log, ledger, trace, metric, answer, file or command line has one."""

from __future__ import annotations

from contextlib import suppress

import httpx
import psutil
import pytest

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.secrets.keyring import new_key
from owlclaw_ray.testing.otlp_receiver import OtlpServer
from serve.processes import command_line

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

VALUE = "correct-horse-battery-staple"
MANY = 200
"""Runs of as many agents, after the one that is looked at closely."""
APP = """
import logging

from owlclaw_ray import OwlClaw, ToolContext

own = logging.getLogger("own")
own.addHandler(logging.StreamHandler())  # as many applications do at their import: it keeps the stream that is there

app = OwlClaw("trial")


@app.handler("tell")
def tell(context: ToolContext) -> str:
    '''Tell the secret in every way that a handler has.'''
    secret = context.secret("CRM")
    logging.getLogger("shop").warning("logged in with %s", secret)
    own.warning("logged in with %s", secret)
    print(f"printed {secret}")
    return f"returned {secret}"


@app.handler("fail")
def fail(context: ToolContext) -> str:
    '''Raise an error that has the secret.'''
    raise ValueError(f"no access with {context.secret('CRM')}")
"""
TURNS = [
    {"tool_calls": [{"name": "trial.tell", "arguments": {}}, {"name": "trial.fail", "arguments": {}}]},
    {"tool_calls": [{"name": "log_decision", "arguments": {"reasoning": f"it is {VALUE}"}}]},
    {"text": "done"},
]


def asked_in_every_way(http, key):
    """Return the answers to requests that have the key in right and in wrong places."""
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    return [
        http.get("/v1/runs", headers={"Authorization": f"Bearer {key}"}),
        http.get("/v1/runs", headers={"Authorization": f"Bearer {wrong}"}),
        http.get("/v1/runs", headers={"Authorization": f"Basic {key}"}),
        http.get("/v1/runs", headers={"Authorization": f"Bearer {key}", "X-Again": key}),
        http.get("/v1/nothing", headers={"Authorization": f"Bearer {key}"}),
        http.post("/v1/agents/worker/triggers", headers={"Authorization": f"Bearer {key}"}, content=b"{"),
        http.post("/v1/agents/nobody/triggers", headers={"Authorization": f"Bearer {key}"}),
        http.get("/v1/keys", headers={"Authorization": f"Bearer {key}"}),
        http.get("/v1/secrets", headers={"Authorization": f"Bearer {key}"}),
        http.get("/metrics", headers={"Authorization": f"Bearer {key}"}),
    ]


def command_lines(installation):
    processes = [psutil.Process(installation.process.pid), *installation.family()]
    return [word for each in processes for word in command_line(each)]


def files_with(folders, secrets):
    """Return the files of the folders in which one of the secrets is, with what it is."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    content = path.read_bytes()
                    found += [(str(path), name) for name, secret in secrets.items() if secret.encode() in content]
    return found


def secrets_of(master, first, other):
    """Return what nobody may read, by what it is."""
    keys = {"the first key": first, "the other key": other}
    return (
        {"the master key": master, "the value": VALUE}
        | keys
        | {f"the secret of {name}": key.split("_")[2] for name, key in keys.items()}
    )


def test_no_secret_is_told_by_anything_that_people_or_programs_read(installation, monkeypatch):
    master = new_key()
    monkeypatch.setenv(KEYS_VARIABLE, master)
    (installation.folder / "trial_app.py").write_text(APP)
    installation.define("worker", {"turns": TURNS})
    first = installation.owlclaw("keys", "create", "--first").strip()
    with OtlpServer() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        installation.up()
        url = f"http://127.0.0.1:{installation.port}"
        installation.variables = {"OWLCLAW_URL": url, "OWLCLAW_API_KEY": first}
        scratch = installation.scratch()
        admin = {"Authorization": f"Bearer {first}"}
        with httpx.Client(base_url=url, timeout=60) as http:
            other = http.post("/v1/keys", json={"name": "ci", "scopes": ["admin"]}, headers=admin).json()["key"]
            put = http.put("/v1/secrets/CRM", json={"value": VALUE}, headers=admin)
            short = http.put("/v1/secrets/CRM", json={"value": [VALUE]}, headers=admin)
            ran = http.post("/v1/agents/worker/triggers?wait=60", headers=admin).json()
            run = http.get(f"/v1/runs/{ran['run_id']}?events=true", headers=admin)
            triggers = [{"agent": f"worker:{number}"} for number in range(MANY)]
            http.post("/v1/triggers:batch", json={"triggers": triggers}, headers=admin).raise_for_status()
            while http.get("/v1/runs?open=true&limit=1", headers=admin).json()["runs"]:
                assert installation.process.poll() is None
            listed = http.get("/v1/runs?status=completed&limit=500", headers=admin)
            answers = [each for key in (first, other) for each in asked_in_every_way(http, key)]
            http.post("/v1/keys/" + other.split("_")[1] + "/revoke", headers=admin)
            ledger = http.get("/v1/ledger?limit=1000", headers=admin)
        receiver.wait_for(lambda spans: sum(each.attributes["owlclaw.run.id"] == ran["run_id"] for each in spans) >= 6)
        spans = str(receiver.spans)
        shown = [
            installation.owlclaw(*words)
            for words in (("runs",), ("keys", "list"), ("secrets", "list"), ("ledger", "query"))
        ]
        lines = command_lines(installation)
        kept = files_with([scratch], secrets_of(master, first, other))
        assert installation.interrupt() == 0

    assert ran["status"] == "completed"
    assert len(listed.json()["runs"]) == MANY + 1
    assert [each["data"].get("error") for each in run.json()["events"] if each["kind"] == "tool_finished"][1]
    assert "[redacted:CRM]" in run.text + ledger.text
    secrets = secrets_of(master, first, other)
    texts = {
        "answers": [each.text + str(each.headers) for each in (*answers, put, short, listed)],
        "the run": [
            run.text.replace(f"it is {VALUE}", "")
        ],  # what the model itself says stays in the journal of its run
        "the ledger": [ledger.text],
        "traces": [spans],
        "output": [*installation.said, *shown],
        "command lines": lines,
    }
    told = [
        (where, name) for where, said in texts.items() for name, secret in secrets.items() if secret in "".join(said)
    ]
    assert told == []
    kept += files_with([installation.folder / ".owlclaw"], secrets)
    journals = {
        str(path) for path in (installation.folder / ".owlclaw").glob("owlclaw.db*")
    }  # with what the model itself says
    assert [each for each in kept if each[1] != "the value" or each[0] not in journals] == []
