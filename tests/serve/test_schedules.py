"""Schedules over HTTP, on a real store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.ids import ActivationId, ScheduleId, TenantId
from owlclaw_ray.store.commands import ActivateAgent, ClaimRun, CreateSchedule
from owlclaw_ray.store.queries import RunById, ScheduleById, TicksOfSchedule
from tests.serve.double import MemoryRuntime

PATH = "/v1/agents/assistant/schedules"
YESTERDAY = datetime(2026, 1, 1, tzinfo=UTC)


async def make(http: httpx.AsyncClient, **fields: object) -> dict:
    response = await http.post(PATH, json={"focus": "看一下", **(fields or {"interval_seconds": 60})})
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/v1/schedules/{response.json()['schedule_id']}"
    return response.json()


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({"delay_seconds": 1.5}, {"kind": "once", "interval_seconds": None}),
        ({"at": "2100-01-01T08:00:00+08:00"}, {"kind": "once", "next_fire_at": "2100-01-01T00:00:00.000Z"}),
        ({"interval_seconds": 90, "overlap": "skip"}, {"kind": "interval", "interval_seconds": 90, "overlap": "skip"}),
        ({"interval_seconds": 90, "task_type": "交易"}, {"task_type": "交易"}),
        ({"interval_seconds": 90}, {"task_type": ""}),
        (
            {"cron_expression": " 0  9 * * MON-FRI", "timezone": "Asia/Shanghai", "catch_up_seconds": 5},
            {"kind": "cron", "cron_expression": "0 9 * * MON-FRI", "timezone": "Asia/Shanghai", "catch_up_seconds": 5},
        ),
    ],
)
async def test_a_schedule_is_made_and_read(http: httpx.AsyncClient, when: dict, told: dict):
    made = await make(http, **when)

    assert made.items() >= {**told, "status": "active", "focus": "看一下", "agent": "assistant"}.items()
    assert (await http.get(f"/v1/schedules/{made['schedule_id']}")).json() == made
    assert (await http.get(PATH)).json() == {"schedules": [made], "next_after": None}
    assert (await http.get("/v1/schedules", params={"agent": "patient"})).json()["schedules"] == []


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ({"focus": "x"}, ["body.schedule"]),
        ({"focus": "x", "delay_seconds": 1, "interval_seconds": 60}, ["body.schedule"]),
        ({"focus": " ", "delay_seconds": 1}, ["body.focus"]),
        ({"focus": "x", "delay_seconds": 0}, ["body.delay_seconds"]),
        ({"focus": "x", "at": "2026-01-01T00:00:00Z"}, ["body.at"]),
        ({"focus": "x", "interval_seconds": 59}, ["body.interval_seconds"]),
        ({"focus": "x", "cron_expression": "@reboot"}, ["body.cron_expression"]),
        ({"focus": "x", "cron_expression": "@daily", "timezone": "Mars/Olympus"}, ["body.timezone"]),
        ({"focus": "x", "interval_seconds": 60, "timezone": "Asia/Shanghai"}, ["body.timezone"]),
        ({"focus": "x", "delay_seconds": 1, "jitter_seconds": 5}, ["body.jitter_seconds"]),
        ({"focus": "x", "interval_seconds": 60, "jitter_seconds": 86_401}, ["body.jitter_seconds"]),
        ({"focus": "x", "interval_seconds": 60, "catch_up_seconds": -1}, ["body.catch_up_seconds"]),
        (
            {"fokus": "x", "at": "tomorrow", "interval_seconds": True, "overlap": "never"},
            ["body.fokus", "body.focus", "body.at", "body.interval_seconds", "body.overlap"],
        ),
        ({"focus": "x", "at": "2100-01-01T00:00:00"}, ["body.at"]),
        ({"focus": "x", "interval_seconds": 60, "task_type": "x" * 65}, ["body.task_type"]),
        ([], ["body"]),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_with_all_that_is_wrong(
    http: httpx.AsyncClient, body: object, problems: list[str]
):
    response = await http.post(PATH, json=body)

    assert response.status_code == 422
    assert [each["where"] for each in response.json()["problems"]] == problems
    assert (await http.get(PATH)).json()["schedules"] == []


async def test_the_same_request_makes_one_schedule_and_another_one_with_its_key_none(http: httpx.AsyncClient):
    key, body = {"Idempotency-Key": "k1"}, {"focus": "x", "delay_seconds": 60}

    first, again = [(await http.post(PATH, json=body, headers=key)).json() for _ in range(2)]
    other = await http.post(PATH, json={**body, "focus": "y"}, headers=key)

    assert first == again
    assert (other.status_code, other.json()["type"]) == (409, "urn:owlclaw:problem:idempotency-conflict")
    assert len((await http.get(PATH)).json()["schedules"]) == 1


async def test_an_agent_has_no_more_schedules_than_its_limit(http: httpx.AsyncClient):
    made = [await make(http) for _ in range(3)]
    await http.post(f"/v1/schedules/{made[0]['schedule_id']}/pause")

    refused = await http.post(PATH, json={"focus": "x", "interval_seconds": 60})
    await http.post(f"/v1/schedules/{made[0]['schedule_id']}/cancel")

    assert (refused.status_code, refused.json()["limit"]) == (409, 3)
    assert (await http.post(PATH, json={"focus": "x", "interval_seconds": 60})).status_code == 201


async def test_schedules_are_read_in_pages_and_by_status(http: httpx.AsyncClient):
    made = [(await make(http))["schedule_id"] for _ in range(3)]
    await http.post(f"/v1/schedules/{made[1]}/pause")

    page = (await http.get("/v1/schedules", params={"limit": 2})).json()
    rest = (await http.get("/v1/schedules", params={"limit": 2, "after": page["next_after"]})).json()
    paused = (await http.get(PATH, params={"status": "paused"})).json()["schedules"]

    assert [each["schedule_id"] for each in (*page["schedules"], *rest["schedules"])] == made
    assert rest["next_after"] is None
    assert [each["schedule_id"] for each in paused] == [made[1]]


async def test_a_schedule_is_paused_resumed_and_cancelled_as_often_as_one_likes(http: httpx.AsyncClient):
    path = f"/v1/schedules/{(await make(http))['schedule_id']}"

    verbs = ("pause", "pause", "resume", "resume", "cancel", "cancel")
    seen = [(await http.post(f"{path}/{verb}")).json()["status"] for verb in verbs]
    refused = await http.post(f"{path}/resume")

    assert seen == ["paused", "paused", "active", "active", "cancelled", "cancelled"]
    assert (refused.status_code, refused.json()["schedule_status"]) == (409, "cancelled")


async def test_backfilled_times_have_one_run_each_and_are_told_among_the_ticks(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    schedule_id = (await make(http, cron_expression="0 * * * *"))["schedule_id"]
    times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T03:00:00Z"}

    first, again = [(await http.post(f"/v1/schedules/{schedule_id}/backfill", json=times)).json() for _ in range(2)]
    page = (await http.get(f"/v1/schedules/{schedule_id}/ticks", params={"limit": 3})).json()
    rest = (await http.get(f"/v1/schedules/{schedule_id}/ticks", params={"before": page["next_before"]})).json()

    assert (len(first["queued"]), first["known"], first["refused"]) == (4, 0, 0)
    assert again == {"queued": [], "known": 4, "refused": 0}
    assert [each["run_id"] for each in (*page["ticks"], *rest["ticks"])] == first["queued"][::-1]
    assert {(each["outcome"], each["reason"]) for each in page["ticks"]} == {("caught_up", "backfill")}
    assert runtime.signals.woken == [AgentRef.parse("assistant")]


@pytest.mark.parametrize(
    ("rule", "times", "where"),
    [
        ({"cron_expression": "* * * * *"}, ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), "body.since"),
        ({"interval_seconds": 60}, ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), "body.until"),
        ({"interval_seconds": 60}, ("2026-01-02T00:00:00Z", "2100-01-01T00:00:00Z"), "body.until"),
        ({"interval_seconds": 60}, ("2026-01-02T00:00:00", "2026-01-02T00:00:00Z"), "body.since"),
    ],
)
async def test_a_backfill_that_cannot_be_is_refused(http: httpx.AsyncClient, rule: dict, times: tuple, where: str):
    schedule_id = (await make(http, **rule))["schedule_id"]

    response = await http.post(
        f"/v1/schedules/{schedule_id}/backfill", json=dict(zip(("since", "until"), times, strict=True))
    )

    assert response.status_code == 422
    assert [each["where"] for each in response.json()["problems"]] == [where]


async def test_a_schedule_that_has_one_time_only_has_nothing_to_backfill(http: httpx.AsyncClient):
    schedule_id = (await make(http, delay_seconds=60))["schedule_id"]
    times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}

    response = await http.post(f"/v1/schedules/{schedule_id}/backfill", json=times)

    assert (response.status_code, response.json()["type"]) == (409, "urn:owlclaw:problem:settled")


async def test_cancelling_signals_the_run_that_executes_and_ends_those_that_wait(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    agent, schedule_id = AgentRef.parse("assistant"), (await make(http, cron_expression="0 * * * *"))["schedule_id"]
    times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z"}
    first, second = (await http.post(f"/v1/schedules/{schedule_id}/backfill", json=times)).json()["queued"]
    await runtime.schedules.apply([ActivateAgent(agent, ActivationId("a"), YESTERDAY), ClaimRun(agent, 1, YESTERDAY)])

    await http.post(f"/v1/schedules/{schedule_id}/cancel")

    waiting = await runtime.schedules.read(RunById(agent.tenant, second))
    assert runtime.signals.told == [first]
    assert waiting is not None
    assert waiting.status.value == "cancelled"


async def test_what_another_tenant_has_is_not_there(http: httpx.AsyncClient, runtime: MemoryRuntime):
    stranger = AgentRef.parse("assistant", TenantId("other"))
    theirs = Schedule(
        ScheduleId("sch_x"),
        stranger,
        ScheduleKind.INTERVAL,
        "x",
        YESTERDAY,
        YESTERDAY + timedelta(60),
        interval_seconds=60,
    )
    await runtime.schedules.apply([CreateSchedule(theirs, 9)])

    for method, path in (
        ("GET", ""),
        ("GET", "/ticks"),
        *(("POST", f"/{verb}") for verb in ("pause", "resume", "cancel")),
    ):
        assert (await http.request(method, f"/v1/schedules/sch_x{path}")).status_code == 404
    times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z"}
    assert (await http.post("/v1/schedules/sch_x/backfill", json=times)).status_code == 404
    assert (await http.get("/v1/schedules")).json()["schedules"] == []
    assert await runtime.schedules.read(ScheduleById(stranger.tenant, ScheduleId("sch_x"))) == theirs


async def test_nobody_has_schedules_who_is_no_agent(http: httpx.AsyncClient):
    body = {"focus": "x", "delay_seconds": 1}

    assert (await http.post("/v1/agents/nobody/schedules", json=body)).status_code == 404
    assert (await http.get("/v1/schedules?agent=nobody")).status_code == 404
    assert (await http.post("/v1/agents/broken/schedules", json=body)).status_code == 409
    assert (await http.get("/v1/agents/broken/schedules")).status_code == 200


async def test_ringing_fires_what_is_due_once_and_says_when_to_ring_again(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    agent = AgentRef.parse("assistant")
    due = Schedule(
        ScheduleId("sch_due"),
        agent,
        ScheduleKind.INTERVAL,
        "x",
        YESTERDAY,
        YESTERDAY + timedelta(seconds=86_400),
        interval_seconds=86_400,
    )
    await runtime.schedules.apply([CreateSchedule(due, 9)])

    answers = [(await http.post("/v1/schedules/sch_due/ring")).json() for _ in range(2)]
    unknown = await http.post("/v1/schedules/sch_nobody/ring")

    assert answers[0] == answers[1]
    assert answers[0]["at"] > YESTERDAY.isoformat()
    assert [tick.run_id is not None for tick in await runtime.schedules.read(TicksOfSchedule(due.schedule_id))].count(
        True
    ) == 1
    assert (unknown.status_code, unknown.json()) == (200, {"schedule_id": "sch_nobody", "at": None})


async def test_a_schedule_of_another_tenant_does_not_fire_and_its_time_is_not_told(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    agent = AgentRef.parse("assistant", TenantId("acme"))
    day = timedelta(days=1)
    theirs = Schedule(
        ScheduleId("sch_theirs"), agent, ScheduleKind.INTERVAL, "x", YESTERDAY, YESTERDAY + day, interval_seconds=86_400
    )
    await runtime.schedules.apply([CreateSchedule(theirs, 9)])

    answer = await http.post("/v1/schedules/sch_theirs/ring")

    assert answer.json() == {"schedule_id": "sch_theirs", "at": None}
    assert await runtime.schedules.read(TicksOfSchedule(theirs.schedule_id)) == []
    assert await runtime.schedules.read(ScheduleById(agent.tenant, theirs.schedule_id)) == theirs
