from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from owlclaw_ray.domain.access_key import KEY_PATTERN
from tests.serve.cli.conftest import Run
from tests.serve.double import MemoryRuntime


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "owlclaw.yaml").write_text("app: app:app\n")
    return tmp_path


def made(output: str) -> str:
    found = re.search(KEY_PATTERN, output)
    assert found is not None, output
    return found[0]


@pytest.fixture
def keyed(owlclaw: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of a server that needs one, in the variable that commands read."""
    key = made(owlclaw("keys", "create", "ci", "--scope", "admin").output)
    monkeypatch.setenv("OWLCLAW_API_KEY", key)
    return key


def test_the_first_key_is_made_in_the_store_without_a_server_and_without_a_key(cli: Run, project: Path):
    result = cli("keys", "create", "--first")

    assert result.exit_code == 0, result.output
    key = made(result.stdout)
    assert result.stdout.strip() == key
    assert "valid until" in result.stderr
    assert "export OWLCLAW_API_KEY=" in result.stderr
    again = json.loads(cli("keys", "create", "--first", "--json", "--days", "1").stdout)
    assert again["about"]["scopes"] == ["*"]
    assert made(again["key"]) != key


@pytest.mark.parametrize(
    "options", [["--scope", "viewer"], ["--agent", "agent:a"], ["--tenant", "acme"], ["--url", "http://127.0.0.1:1"]]
)
def test_the_first_key_is_not_narrowed_and_not_made_elsewhere(cli: Run, project: Path, options: list[str]):
    assert cli("keys", "create", "--first", *options).exit_code == 2


def test_commands_send_the_key_of_the_variable_and_say_what_to_do_without_one(
    owlclaw: Run, keyed: str, monkeypatch: pytest.MonkeyPatch
):
    assert owlclaw("runs").exit_code == 0

    monkeypatch.delenv("OWLCLAW_API_KEY")
    result = owlclaw("runs")

    assert result.exit_code == 1
    assert "this server needs a key" in result.output
    assert "OWLCLAW_API_KEY" in result.output
    assert "owlclaw keys create --first" in result.output


def test_a_key_that_may_not_do_something_is_told_so(owlclaw: Run, keyed: str, monkeypatch: pytest.MonkeyPatch):
    viewer = made(owlclaw("keys", "create", "eyes", "--scope", "viewer").output)
    monkeypatch.setenv("OWLCLAW_API_KEY", viewer)

    result = owlclaw("trigger", "assistant")

    assert result.exit_code == 1
    assert "(eyes) has no scope runs:write" in result.output


def test_keys_are_listed_without_their_secrets(owlclaw: Run, keyed: str):
    owlclaw("keys", "create", "trader bot", "--scope", "operator", "--agent", "agent:trader:*", "--days", "30")

    shown, as_json = owlclaw("keys", "list").output, json.loads(owlclaw("keys", "list", "--json").output)

    assert "trader bot" in shown
    assert "agent:trader:*" in shown
    assert {each["name"] for each in as_json} == {"ci", "trader bot"}
    assert keyed.split("_")[2] not in shown + str(as_json)


def test_quotas_of_a_key_are_given_when_it_is_made_and_shown_with_what_is_used_of_them(owlclaw: Run, keyed: str):
    quotas = [
        "--open-runs",
        "1500",
        "--running-runs",
        "2",
        "--model-tokens-a-minute",
        "9000",
        "--starts-a-minute",
        "60",
    ]
    limited = made(owlclaw("keys", "create", "bot", "--scope", "viewer", *quotas).output).split("_")[1]

    listed, shown = owlclaw("keys", "list").output, owlclaw("keys", "show", limited).output

    assert all(each in listed for each in ("open_runs=1,500", "running_runs=2", "starts_a_minute=60"))
    assert re.search(r"open runs +0 +1,500", shown)
    assert re.search(r"model tokens a minute +0 +9,000", shown)
    assert json.loads(owlclaw("keys", "show", limited, "--json").output)["use"]["open_runs"] == 0
    assert "no quotas of its own" in owlclaw("keys", "show", keyed.split("_")[1]).output


def test_a_key_is_rotated_and_revoked_by_its_id_and_not_by_itself(
    owlclaw: Run, keyed: str, monkeypatch: pytest.MonkeyPatch
):
    other = made(owlclaw("keys", "create", "other", "--scope", "viewer").output)

    rotated = owlclaw("keys", "rotate", other.split("_")[1], "--grace", "0")
    revoked = owlclaw("keys", "revoke", other.split("_")[1])
    refused = owlclaw("keys", "revoke", made(rotated.stdout))

    assert made(rotated.stdout) != other
    assert revoked.output == f"{other.split('_')[1]} (other) is revoked\n"
    assert "revoked" in owlclaw("keys", "list").output
    assert "is revoked: create another one" in owlclaw("keys", "rotate", other.split("_")[1]).output
    assert (refused.exit_code, "give its id" in refused.output) == (2, True)
    unknown = owlclaw("keys", "revoke", "00000000")
    assert (unknown.exit_code, "owlclaw keys list" in unknown.output) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ci"], "--scope"),
        (["--scope", "viewer"], "NAME"),
        (["ci", "--scope", "runs"], "scopes"),
        (["ci", "--scope", "viewer", "--agent", "trader"], "agents"),
        (["ci", "--scope", "viewer", "--days", "0"], "days"),
        (["ci", "--scope", "viewer", "--tenant", "nobody"], "there is no tenant 'nobody'"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_with_what_is_wrong(owlclaw: Run, arguments: list[str], said: str):
    result = owlclaw("keys", "create", *arguments)

    assert result.exit_code in {1, 2}
    assert said in result.output


def test_tenants_are_made_shown_changed_and_suspended(owlclaw: Run, keyed: str, runtime: MemoryRuntime):
    assert owlclaw("tenants", "create", "acme", "--name", "Acme", "--weight", "3").exit_code == 0
    assert "Acme" in owlclaw("tenants", "list").output
    assert owlclaw("tenants", "update", "acme", "--weight", "5").output == "acme (Acme) · active · weight 5\n"
    assert owlclaw("tenants", "suspend", "acme").output == "acme (Acme) · suspended · weight 5\n"
    shown = owlclaw("tenants", "show", "acme").output
    assert shown == (
        "acme (Acme) · suspended · weight 5\nit has no quotas\nit keeps things as long as the settings say\n"
    )
    assert (
        owlclaw("tenants", "update", "acme", "--quota", "open_runs=1500", "--quota", "starts_a_minute=60").exit_code
        == 0
    )
    lines = owlclaw("tenants", "show", "acme").output.splitlines()
    assert [line.split() for line in lines[1:-1]] == [
        ["QUOTA", "USED", "OF"],
        ["open", "runs", "0", "1,500"],
        ["starts", "a", "minute", "0", "60"],
    ]
    owlclaw("tenants", "update", "acme", "--quota", "open_runs=none")
    assert "open runs" not in owlclaw("tenants", "show", "acme").output
    for wrong in ("open_runs", "open_runs=-1", "open_runs=many"):
        refused = owlclaw("tenants", "update", "acme", "--quota", wrong)
        assert (refused.exit_code, "NAME=NUMBER" in refused.output) == (2, True)
    assert (
        "open_runs, running_runs, starts_a_minute" in owlclaw("tenants", "update", "acme", "--quota", "runs=1").output
    )
    assert json.loads(owlclaw("tenants", "resume", "acme", "--json").output)["status"] == "active"
    assert "there is a tenant 'acme'" in owlclaw("tenants", "create", "acme").output
    assert owlclaw("tenants", "update", "acme").exit_code == 2
    unknown = owlclaw("tenants", "show", "nobody")
    assert (unknown.exit_code, "owlclaw tenants list" in unknown.output) == (1, True)


def test_without_tenants_and_keys_the_lists_say_so(owlclaw: Run):
    assert "there are no keys: nobody needs one" in owlclaw("keys", "list").output
    assert "there is only the default tenant" in owlclaw("tenants", "list").output
