from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import (
    ALL,
    LOCAL,
    OF_OPERATORS,
    ROLES,
    SCOPES,
    VERBS,
    WITHOUT_AGENTS,
    Principal,
    PrincipalKind,
    parse_patterns,
    parse_scopes,
    parse_tenant,
)
from owlclaw_ray.errors import AccessDeniedError, InvalidAccessError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

ACME = TenantId("acme")


def principal(*scopes: str, patterns: tuple[str, ...] = (), tenant: TenantId = DEFAULT_TENANT) -> Principal:
    return Principal(tenant, PrincipalKind.KEY, "4fT0aQ1z", "ci", frozenset(scopes), patterns)


@pytest.mark.parametrize(
    ("has", "wants", "may"),
    [
        ((), "runs:read", False),
        (("runs:read",), "runs:read", True),
        (("runs:read",), "runs:write", False),
        (("runs:write",), "runs:read", True),
        (("runs:write",), "agents:read", False),
        (("approvals:decide",), "approvals:read", True),
        (("approvals:read",), "approvals:decide", False),
        (("keys:admin",), "keys:read", True),
        (("keys:read",), "keys:admin", False),
        (("keys:admin",), "tenants:read", False),
        ((ALL,), "tenants:admin", True),
        ((ALL,), "runs:write", True),
        (("runs:admin",), "runs:write", True),
    ],
)
def test_a_scope_includes_reading_and_nothing_of_another_resource(has, wants, may):
    assert principal(*has).may(wants) is may


def test_what_belongs_to_no_tenant_is_for_principals_of_the_default_one_alone():
    everything = {scope for scope in SCOPES if principal(ALL, tenant=ACME).may(scope)}

    assert everything == {scope for scope in SCOPES if scope.partition(":")[0] not in OF_OPERATORS}
    assert not principal("system:read", tenant=ACME).may("system:read")
    assert all(LOCAL.may(scope) for scope in SCOPES)


def test_who_is_narrowed_to_agents_has_nothing_that_knows_no_agents():
    narrowed = principal(ALL, *SCOPES, patterns=("agent:trader",))

    assert {scope.partition(":")[0] for scope in SCOPES if narrowed.may(scope)} == VERBS.keys() - WITHOUT_AGENTS
    assert not any(
        principal(f"{resource}:{VERBS[resource][-1]}", patterns=("agent:trader",)).may(f"{resource}:read")
        for resource in WITHOUT_AGENTS
    )


@pytest.mark.parametrize(
    ("patterns", "agent", "sees"),
    [
        ((), "trader:AAPL", True),
        (("agent:trader",), "trader", True),
        (("agent:trader",), "trader:AAPL", False),
        (("agent:trader:*",), "trader:AAPL", True),
        (("agent:trader:*",), "trader", False),
        (("agent:trader:*",), "trader2:AAPL", False),
        (("agent:trader:AA*",), "trader:AAPL", True),
        (("agent:trader:AA*",), "trader:MSFT", False),
        (("agent:*",), "assistant", True),
        (("agent:a", "agent:b"), "b", True),
    ],
)
def test_a_pattern_is_one_agent_or_all_whose_ids_begin_like_it(patterns, agent, sees):
    one = principal("runs:read", patterns=patterns)

    assert one.sees(AgentRef.parse(agent)) is sees
    assert not one.sees(AgentRef.parse(agent, ACME))


def test_refusals_say_who_lacks_what():
    narrowed = principal("runs:read", patterns=("agent:trader",))

    with pytest.raises(AccessDeniedError, match=r"^key:4fT0aQ1z \(ci\) has no scope runs:write$") as refused:
        narrowed.require("runs:write")
    with pytest.raises(AccessDeniedError, match="is for agent:trader, not for agent 'assistant'"):
        narrowed.require_agent(AgentRef.parse("assistant"))
    with pytest.raises(AccessDeniedError, match="is for agent:trader: ask for one of these agents"):
        narrowed.require_all_agents()
    assert refused.value.scope == "runs:write"


SETS = st.frozensets(st.sampled_from([*sorted(SCOPES), ALL]), max_size=6)
PATTERNS = st.lists(
    st.sampled_from(["agent:*", "agent:a", "agent:a*", "agent:a:*", "agent:a:b", "agent:b"]), max_size=3
)
AGENTS = [AgentRef.parse(each) for each in ("a", "ab", "a:b", "a:bc", "b", "c")]


@given(SETS, PATTERNS, SETS, PATTERNS, st.sampled_from([DEFAULT_TENANT, ACME]))
def test_nobody_can_give_what_they_do_not_have(had, narrow, given_scopes, given_patterns, tenant):
    minter = principal(*had, patterns=tuple(narrow), tenant=tenant)
    minted = principal(*given_scopes, patterns=tuple(given_patterns), tenant=tenant)
    try:
        minter.require_grant(given_scopes, given_patterns)
    except AccessDeniedError:
        return

    assert {scope for scope in SCOPES if minted.may(scope)} <= {scope for scope in SCOPES if minter.may(scope)}
    assert {each for each in AGENTS if minted.sees(each)} <= {each for each in AGENTS if minter.sees(each)}


@given(SETS.filter(bool), PATTERNS)
def test_what_one_has_one_can_give(had, narrow):
    if narrow:
        had = frozenset(scope for scope in had if scope != ALL and scope.partition(":")[0] not in WITHOUT_AGENTS)

    principal(*had, patterns=tuple(narrow)).require_grant(had, narrow)


def test_roles_are_sets_of_scopes_that_exist():
    for role, scopes in ROLES.items():
        assert scopes <= SCOPES | {ALL}
        assert parse_scopes([role]) == scopes
    assert ROLES["viewer"] < ROLES["operator"] < ROLES["developer"]
    assert not any(scope.startswith(("keys", "tenants", "system", "secrets")) for scope in ROLES["operator"])


@pytest.mark.parametrize("scopes", [["runs"], ["runs:drop"], ["Runs:read"], ["runs:*"], ["keys:write"], [""], []])
def test_what_is_no_scope_is_refused_with_those_that_are(scopes):
    with pytest.raises(InvalidAccessError, match=r"^scopes: .*viewer"):
        parse_scopes(scopes)


@pytest.mark.parametrize(
    "pattern", ["trader", "agent:", "agent:Trader", "agent:a b", "run:*", "agent:**", "agent:a*b", "*"]
)
def test_what_is_no_pattern_is_refused_with_what_is(pattern):
    with pytest.raises(InvalidAccessError, match=r"^agents: .*agent:trader"):
        parse_patterns([pattern], ["runs:read"])


def test_patterns_are_refused_beside_scopes_that_know_no_agents():
    with pytest.raises(InvalidAccessError, match="cannot narrow keys:admin"):
        parse_patterns(["agent:trader"], ["runs:read", "keys:admin"])
    with pytest.raises(InvalidAccessError, match=r"cannot narrow \*"):
        parse_patterns(["agent:trader"], [ALL])
    assert parse_patterns(["agent:a", "agent:a"], ["runs:read"]) == ("agent:a",)


def test_a_tenant_has_an_id_that_any_host_could_have():
    assert parse_tenant("acme-2") == "acme-2"
    for wrong in ("", "Acme", "-a", "a-", "a_b", "a/b", "..", "ä", "a" * 64, "a\n"):
        with pytest.raises(InvalidAccessError, match=r"^tenant: "):
            parse_tenant(wrong)
