"""GET /v1/usage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.usage import Grain, floored
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import PutTenant
from tests.usage import ended, result

ASSISTANT, OTHER, FOREIGN = (
    AgentRef.parse("assistant:a"),
    AgentRef.parse("patient"),
    AgentRef.parse("assistant:a", TenantId("acme")),
)


def moment(at):
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.fixture
def now(runtime) -> datetime:
    return runtime._clock.now()


@pytest.fixture
async def filled(runtime, now) -> None:
    store = runtime.schedules
    await ended(store, ASSISTANT, now, result(0.5), [("look", 20, ""), ("look", 12_000, "timeout")])
    await ended(store, ASSISTANT, now, result(0.25, RunStatus.FAILED))
    await ended(store, OTHER, now, result(2.0), [("send", 3, "")])
    await ended(store, FOREIGN, now, result(64.0), [("foreign", 1, "")])


async def test_agents_are_told_with_what_their_runs_of_today_cost_the_dearest_first(http, filled, now):
    told = (await http.get("/v1/usage", params={"by": "agent"})).json()

    assert [(each["agent"], each["definition"], each["cost"]) for each in told["runs"]] == [
        ("patient", "patient", 2.0),
        ("assistant:a", "assistant", 0.75),
    ]
    assert told["runs"][1] == {
        "begins_at": None,
        "agent": "assistant:a",
        "definition": "assistant",
        "runs": 2,
        "outcomes": {"completed": 1, "failed": 1, "timeout": 0, "terminated": 0, "cancelled": 0, "skipped": 0},
        "cost": 0.75,
        "tokens": {"prompt": 2_000, "completion": 100, "cached": 800},
        "queued_ms": 0,
        "running_ms": 4_000,
    }
    today = floored(now, Grain.DAY)
    assert (told["since"], told["until"]) == (moment(today), moment(today + timedelta(days=1)))
    assert (told["grain"], told["by"], told["complete"], told["tools"]) == ("total", "agent", True, [])


async def test_tools_are_told_with_how_long_they_took_and_how_often_they_failed(http, filled):
    told = (await http.get("/v1/usage?by=tool")).json()

    assert [each["tool"] for each in told["tools"]] == ["look", "send"]
    assert told["tools"][0] == {
        "begins_at": None,
        "tool": "look",
        "calls": 2,
        "failures": 1,
        "running_ms": 12_020,
        "mean_ms": 6_010.0,
        "p95_ms": 12_000,
        "longest_ms": 12_000,
        "durations": {"within_100ms": 1, "within_1s": 0, "within_10s": 0, "within_60s": 1, "longer": 0},
    }
    assert told["runs"] == []


async def test_a_series_says_when_each_time_begins(http, filled, now):
    for grain in ("minute", "hour", "day"):
        (bucket,) = (await http.get(f"/v1/usage?grain={grain}")).json()["runs"]
        assert (bucket["begins_at"], bucket["runs"]) == (moment(floored(now, Grain(grain))), 3)
        assert (bucket["agent"], bucket["definition"]) == (None, None)
    (of_one,) = (await http.get("/v1/usage?grain=day&agent=patient")).json()["runs"]
    assert (of_one["runs"], of_one["cost"]) == (1, 2.0)
    definitions = (await http.get("/v1/usage?by=definition")).json()["runs"]
    assert [(each["definition"], each["agent"], each["runs"]) for each in definitions] == [
        ("patient", None, 1),
        ("assistant", None, 2),
    ]


async def test_times_are_whole_ones_and_what_is_not_kept_is_not_asked_for(http, filled, now):
    def of(since, until, **more):
        return {"since": moment(since), "until": moment(until), **more}

    hour = floored(now, Grain.HOUR)
    told = (await http.get("/v1/usage", params=of(now, now + timedelta(seconds=1)))).json()
    assert told["since"] == moment(hour)
    assert told["runs"][0]["runs"] == 3
    before = (await http.get("/v1/usage", params=of(hour - timedelta(hours=1), hour))).json()
    assert (before["until"], before["runs"]) == (moment(hour), [])
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)
    told = (await http.get("/v1/usage", params=of(first, last, by="agent"))).json()
    assert told["since"] >= moment(floored(now - timedelta(days=92), Grain.DAY))
    assert len(told["runs"]) == 2
    assert (await http.get("/v1/usage", params=of(last, first))).json()["runs"] == []


async def test_what_was_left_out_for_the_limit_is_said(http, filled):
    told = (await http.get("/v1/usage?by=agent&limit=1")).json()

    assert ([each["agent"] for each in told["runs"]], told["complete"]) == (["patient"], False)
    assert (await http.get("/v1/usage?by=agent&limit=2")).json()["complete"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        "by=agent&grain=hour",
        "by=definition&grain=minute",
        "agent=patient&grain=minute",
        "by=tool&grain=minute",
        "by=tool&agent=patient",
        "by=nothing",
        "grain=week",
        "since=yesterday",
        "limit=0",
        "from=2026-11-03T09:30:00Z",
    ],
)
async def test_what_is_not_counted_like_that_is_refused_and_said(http, wrong):
    refused = await http.get(f"/v1/usage?{wrong}")

    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert refused.json()["problems"][0]["where"].startswith("query")


async def test_a_key_sees_its_tenant_and_one_that_is_for_some_agents_sees_these(http, runtime, filled, now):
    await runtime.schedules.apply([PutTenant(Tenant(TenantId("acme"), "Acme", now, "system:local"), None)])
    narrowed = await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",), ("agent:patient",)))
    foreign = await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",), tenant="acme"))
    blind = await runtime.keys.create(LOCAL, KeyRequest("ci", ("approvals:read",)))

    async def get(key, query):
        return await http.get(f"/v1/usage?{query}", headers={"Authorization": f"Bearer {key.text}"})

    assert (await get(narrowed, "agent=patient")).json()["runs"][0]["runs"] == 1
    for query in ("", "by=agent", "by=tool", "agent=assistant:a"):
        assert (await get(narrowed, query)).status_code == 403
    (theirs,) = (await get(foreign, "by=agent")).json()["runs"]
    assert (theirs["agent"], theirs["cost"]) == ("assistant:a", 64.0)
    assert [each["tool"] for each in (await get(foreign, "by=tool")).json()["tools"]] == ["foreign"]
    assert (await get(blind, "")).status_code == 403
