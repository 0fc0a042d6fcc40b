"""What a tenant has of its own: definitions that go before shared ones, and settings that they inherit."""

from __future__ import annotations

import re

import pytest

from owlclaw_ray.configuration.governance import SharedBudgetFile
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.folder import DefinitionFolder, misnamed_definition_problems
from owlclaw_ray.domain.agent import AgentRef, Limits
from owlclaw_ray.domain.budget import BudgetScope
from owlclaw_ray.domain.permission import PermissionPolicy, PermissionRules
from owlclaw_ray.errors import DefinitionError, UnknownAgentError
from owlclaw_ray.ids import TenantId
from tests.definitions.writing import write_definition

ACME, OTHER = TenantId("acme"), TenantId("other")
SHARED_BUDGET = SharedBudgetFile.model_validate({"name": "all", "unit": "tokens", "limit": 9}).budget()
DEFAULTS = Defaults(
    chain=("openai/big", "openai/small"),
    limits=Limits(turns=7, tool_calls=8),
    permissions=PermissionPolicy(inherited=PermissionRules(ask=("shell.*",), not_by_submitter=("risk:critical",))),
    budgets=(SHARED_BUDGET,),
    routes=(("summary", ("openai/small",)), ("code", ("openai/big",))),
)
SETTINGS = """
definitions: [watch, "s*"]
model: anthropic/claude
routes: {code: anthropic/code}
limits: {turns: 3}
permissions: {deny: [shell.exec], two_people: ["risk:critical"], not_by_submitter: [mail.send]}
budgets:
- {name: monthly, unit: money, limit: 50, period: month}
"""


@pytest.fixture
def definitions(tmp_path):
    for name in ("watch", "shop", "clerk"):
        write_definition(tmp_path / name, soul=f"Shared {name}.")
    return DefinitionFolder(tmp_path, DEFAULTS)


def settings(folder, text):
    (folder / "@acme").mkdir(exist_ok=True)
    (folder / "@acme" / "tenant.yaml").write_text(text)


def name_of(agent, tenant):
    return AgentRef.parse(agent, tenant).qualified_definition


async def test_a_tenants_own_definition_goes_before_the_shared_one_for_it_alone(tmp_path, definitions):
    write_definition(tmp_path / "@acme" / "watch", soul="Of Acme.")
    write_definition(tmp_path / "@acme" / "buyer", soul="Buys.")

    souls = {
        (tenant, name): (await definitions.get(name_of(name, tenant))).soul
        for tenant, name in [(ACME, "watch"), (ACME, "shop"), (ACME, "buyer:1"), (OTHER, "watch"), ("default", "watch")]
    }

    assert souls == {
        (ACME, "watch"): "Of Acme.",
        (ACME, "shop"): "Shared shop.",
        (ACME, "buyer:1"): "Buys.",
        (OTHER, "watch"): "Shared watch.",
        ("default", "watch"): "Shared watch.",
    }
    assert await definitions.names(ACME) == ("buyer", "clerk", "shop", "watch")
    assert await definitions.names(OTHER) == await definitions.names() == ("clerk", "shop", "watch")
    assert await definitions.own() == {ACME: ("buyer", "watch")}


@pytest.mark.parametrize("tenant", [OTHER, TenantId("default")])
async def test_what_one_tenant_has_of_its_own_is_unknown_to_others(tmp_path, definitions, tenant):
    write_definition(tmp_path / "@acme" / "buyer")

    with pytest.raises(UnknownAgentError, match=r"'buyer'; defined here: clerk, shop, watch$"):
        await definitions.get(name_of("buyer", tenant))
    for name in ("@acme/buyer", "default/@acme", "../@acme/buyer", "acme/../@acme/buyer", "other/../buyer"):
        with pytest.raises(UnknownAgentError):
            await definitions.get(name)


async def test_what_a_tenant_has_not_of_its_own_is_there_once(tmp_path, definitions):
    (tmp_path / "@acme").mkdir()

    assert await definitions.get("acme/watch") is await definitions.get("other/watch") is await definitions.get("watch")


async def test_an_own_definition_is_never_taken_for_the_shared_one(tmp_path, definitions):
    write_definition(tmp_path / "@acme" / "watch", soul="Shared watch.")

    own, shared = await definitions.get("acme/watch"), await definitions.get("watch")

    assert (own.soul, own.folder) == (shared.soul, str(tmp_path / "@acme" / "watch"))
    assert own.version != shared.version


async def test_settings_of_a_tenant_are_inherited_by_shared_definitions_and_its_own(tmp_path, definitions):
    write_definition(tmp_path / "@acme" / "buyer", agent="limits: {tool_calls: 2}\nmodel: openai/own")
    settings(tmp_path, SETTINGS)

    shared, own = await definitions.get("acme/watch"), await definitions.get("acme/buyer")

    assert (shared.model.chain, own.model.chain) == (("anthropic/claude",), ("openai/own",))
    assert (shared.limits.turns, shared.limits.tool_calls) == (3, 8)
    assert (own.limits.turns, own.limits.tool_calls) == (3, 2)
    for each in (shared, own):
        assert dict(each.routes) == {"summary": ("openai/small",), "code": ("anthropic/code",)}
        assert each.permissions.inherited == PermissionRules(
            ask=("shell.*",),
            deny=("shell.exec",),
            two_people=("risk:critical",),
            not_by_submitter=("risk:critical", "mail.send"),
        )
        assert [budget.name for budget in each.governance.budgets] == ["all", "monthly"]
        assert each.governance.budgets[1].scope is BudgetScope.TENANT
    untouched = await definitions.get("other/watch")
    assert untouched is await definitions.get("watch")
    assert (untouched.model.chain, untouched.limits.turns) == (DEFAULTS.chain, 7)
    assert untouched.governance.budgets == (SHARED_BUDGET,)
    assert untouched.version != shared.version


async def test_only_the_shared_definitions_that_its_settings_name_can_be_used(tmp_path, definitions):
    write_definition(tmp_path / "@acme" / "buyer")
    settings(tmp_path, SETTINGS)

    assert await definitions.names(ACME) == ("buyer", "shop", "watch")
    with pytest.raises(UnknownAgentError, match=r"'clerk'; defined here: buyer, shop, watch$"):
        await definitions.get("acme/clerk")
    assert (await definitions.get("other/clerk")).soul == "Shared clerk."


async def test_a_change_is_seen_by_the_next_get(tmp_path, definitions):
    settings(tmp_path, "limits: {turns: 3}")
    assert (await definitions.get("acme/watch")).limits.turns == 3

    settings(tmp_path, "limits: {turns: 12}")
    assert (await definitions.get("acme/watch")).limits.turns == 12
    write_definition(tmp_path / "@acme" / "watch", soul="Of Acme.")
    assert (await definitions.get("acme/watch")).soul == "Of Acme."

    (tmp_path / "@acme" / "tenant.yaml").unlink()
    assert ((await definitions.get("acme/watch")).soul, (await definitions.get("acme/shop")).limits.turns) == (
        "Of Acme.",
        7,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("limit: {turns: 3}", r"@acme/tenant\.yaml:1: limit: there is no such key \(did you mean limits\?\)"),
        ("limits: {turns: 0}", r"@acme/tenant\.yaml:1: limits\.turns: is 0"),
        ("a: b: c", r"@acme/tenant\.yaml:1: is not valid YAML"),
        ("budgets: [{name: all, unit: tokens, limit: 5}]", "'all', and so has owlclaw.yaml"),
        ("http: {port: 1}", r"@acme/tenant\.yaml:1: http: there is no such key"),
    ],
)
async def test_wrong_settings_of_a_tenant_stop_its_agents_and_nobody_elses(tmp_path, definitions, text, problem):
    write_definition(tmp_path / "@acme" / "buyer")
    settings(tmp_path, text)

    for name in ("acme/watch", "acme/buyer"):
        with pytest.raises(DefinitionError, match=problem):
            await definitions.get(name)
    assert await definitions.names(ACME) == ("buyer", "clerk", "shop", "watch")
    names, (wrong,) = definitions.tenants_own()
    assert names == ()
    assert re.search(problem, str(wrong))
    assert (await definitions.get("watch")).soul == "Shared watch."

    settings(tmp_path, "")
    assert (await definitions.get("acme/watch")).soul == "Shared watch."
    assert definitions.tenants_own() == (("acme/buyer",), ())


async def test_a_broken_definition_of_a_tenant_is_named_with_its_folder(tmp_path, definitions):
    write_definition(tmp_path / "@acme" / "watch", soul="")

    with pytest.raises(DefinitionError, match=r"@acme/watch/SOUL\.md: is empty"):
        await definitions.get("acme/watch")
    assert (await definitions.get("watch")).soul == "Shared watch."


def test_folders_that_are_of_no_tenant_are_named(tmp_path):
    write_definition(tmp_path / "@default" / "watch")
    write_definition(tmp_path / "@Acme" / "watch")
    write_definition(tmp_path / "@acme" / "Watch")
    write_definition(tmp_path / "@right" / "watch")

    capital, default, misnamed = sorted(map(str, misnamed_definition_problems(tmp_path)), key=str.lower)[:3]

    said = f"{capital} {default} {misnamed}"
    assert "'Acme' is no tenant's id" in said
    assert "@default: is not read: what the default tenant may use is beside this folder" in said
    assert "'Watch' is no agent's name" in said
    assert len(misnamed_definition_problems(tmp_path)) == 3
