"""Secrets in handlers, through the whole engine."""

from __future__ import annotations

import pytest

from owlclaw_ray import OwlClaw, ToolContext
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.errors import NotFoundError, SecretsUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId, ToolCallId
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.secrets import FRESH_SECONDS, ToolSecrets, secret_of

ACME, GLOBEX = TenantId("acme"), TenantId("globex")
VALUE = 'correct "horse" battery staple'
CALL = ToolCallId("call_1")


class Values(dict):
    """Who is asked for secrets, and how often."""

    asked = 0

    def __call__(self, tenant, name):
        self.asked += 1
        if (tenant, name) not in self:
            raise NotFoundError("secret", name)
        return self[tenant, name]


@pytest.fixture
def values():
    return Values({(ACME, "CRM"): VALUE, (GLOBEX, "CRM"): "another-value"})


async def test_a_value_is_kept_for_seconds_only(values):
    clock = ManualClock()
    secrets = ToolSecrets(values, clock)
    assert [secrets.value(ACME, "CRM") for _ in range(3)] == [VALUE] * 3
    assert values.asked == 1

    values[ACME, "CRM"] = "the-next-value"
    await clock.advance(FRESH_SECONDS)

    assert secrets.value(ACME, "CRM") == "the-next-value"
    assert secrets.value(GLOBEX, "CRM") == "another-value"
    assert (
        secrets.redacted(ACME, ToolResult(CALL, content=f"{VALUE}, the-next-value")).content
        == "[redacted:CRM], [redacted:CRM]"
    )


def test_what_was_read_is_hidden_in_every_part_of_a_result_of_its_tenant_alone(values):
    secrets = ToolSecrets(values, ManualClock())
    secrets.value(ACME, "CRM")
    told = {"header": [VALUE, {VALUE: 'as JSON: correct \\"horse\\" battery staple'}], "number": 1}
    result = ToolResult(CALL, content=told, error=ToolError("failed", f"no {VALUE}", details=[VALUE]), metadata=told)

    found = secrets.redacted(ACME, result)

    assert "horse" not in str(found)
    assert found.content == {"header": ["[redacted:CRM]", {"[redacted:CRM]": "as JSON: [redacted:CRM]"}], "number": 1}
    assert secrets.redacted(GLOBEX, result) is result
    assert "horse" not in secrets.hidden(f"line {VALUE}")


def test_outside_of_a_call_no_secret_can_be_read():
    with pytest.raises(SecretsUnavailableError, match="in a tool's call only"):
        secret_of(ACME, "CRM")


app = OwlClaw("shop")


@app.handler("login")
def login(context: ToolContext) -> str:
    """Print what must not be printed."""
    return f"{context.secret('CRM')} has {len(context.secret('CRM'))} characters"


@app.handler("login_later")
async def login_later(context: ToolContext) -> dict[str, str]:
    """Print it from a coroutine."""
    return {"token": context.secret("CRM"), "plain": f"it is {context.secret('CRM')}"}


@app.handler("crash")
def crash(context: ToolContext) -> str:
    """Fail with it."""
    raise ValueError(f"cannot use {context.secret('CRM')}")


@pytest.fixture
def agents(tmp_path):
    folder = tmp_path / "agents" / "worker"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Worker\n\n## My Capabilities\n- look\n")
    calls = "\n".join(f"      - {{name: shop.{each}, arguments: {{}}}}" for each in ("login", "login_later", "crash"))
    (folder / "script.yaml").write_text(f"rules:\n- turns:\n  - tool_calls:\n{calls}\n  - text: done\n")
    (folder / "agent.yaml").write_text("model: scripted:script.yaml\n")
    return tmp_path / "agents"


async def test_a_handler_reads_a_secret_that_no_journal_and_no_ledger_has(agents, tmp_path):
    async with in_process_runtime(agents_dir=agents, data_dir=tmp_path / "data", app=app) as runtime:
        await runtime.secrets.set_secret(DEFAULT_TENANT, "CRM", VALUE, "ada")
        run = await runtime.trigger("worker")
        entries = str(await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id)))
        records = str([each.record.data for each in await runtime.store.read(LedgerFilter(DEFAULT_TENANT))])
    contents = b"".join(each.read_bytes() for each in (tmp_path / "data").glob("owlclaw.db*"))

    assert "[redacted:CRM] has 30 characters" in entries
    assert "cannot use [redacted:CRM]" in entries
    assert "[redacted:CRM]" in records
    assert not any("horse" in each for each in (entries, records))
    assert b"horse" not in contents
