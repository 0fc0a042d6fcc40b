from datetime import UTC, datetime, timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.schedule import ScheduleKind
from tests.tools.builtin.conftest import TRADER, invocation

OTHER = AgentRef.parse("clerk")


async def test_schedule_once_creates_one_schedule_however_often_it_is_repeated(call, schedules, clock):
    first = call("schedule_once", delay_seconds=300, focus="看看港口是否开放")
    await clock.advance(60)
    assert call("schedule_once", delay_seconds=300, focus="看看港口是否开放") == first
    assert first == {
        "schedule_id": first["schedule_id"],
        "scheduled_at": "2026-03-01T12:05:00+00:00",
        "focus": "看看港口是否开放",
    }
    (stored,) = schedules.stored.values()
    assert (stored.kind, stored.agent, stored.created_by_run) == (ScheduleKind.ONCE, TRADER, "run_1")
    assert stored.next_fire_at == datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    assert call("schedule_once", number=2, delay_seconds=300, focus="again")["schedule_id"] != first["schedule_id"]


def test_schedule_cron_tells_the_next_time_in_its_zone(call, schedules):
    given = call("schedule_cron", cron_expression=" 0 9  * * MON-FRI ", focus="open", timezone="Asia/Shanghai")
    assert given["next_run_at"] == "2026-03-02T01:00:00+00:00"
    assert given["cron_expression"] == "0 9 * * MON-FRI"
    (stored,) = schedules.stored.values()
    assert (stored.kind, stored.timezone, stored.focus) == (ScheduleKind.CRON, "Asia/Shanghai", "open")
    assert call("schedule_cron", number=2, cron_expression="0 9 * * *", focus="open")["next_run_at"].startswith(
        "2026-03-02T09"
    )


def test_cancel_schedule_ends_only_the_agents_own(call):
    schedule_id = call("schedule_once", delay_seconds=300, focus="x")["schedule_id"]
    refused = call("cancel_schedule", agent=OTHER, schedule_id=schedule_id)
    assert (refused["cancelled"], refused["schedule_id"]) == (False, schedule_id)
    assert refused["message"]
    assert call("cancel_schedule", schedule_id=schedule_id)["cancelled"] is True
    assert call("cancel_schedule", schedule_id=schedule_id)["cancelled"] is False


def test_the_hundredth_and_first_schedule_is_refused_with_a_way_out(tools):
    arguments = {"delay_seconds": 300, "focus": "x"}
    for number in range(2):
        assert tools.call(
            "schedule_once", arguments, invocation("schedule_once", number, active_schedules=2)
        ).result.content
    refused = tools.call("schedule_once", arguments, invocation("schedule_once", 9, active_schedules=2)).result.error
    assert refused.type == "limit_reached"
    assert "cancel_schedule" in refused.message
    repeated = tools.call("schedule_once", arguments, invocation("schedule_once", 1, active_schedules=2)).result
    assert repeated.error is None


def test_remember_and_recall(call, memory):
    stored = call("remember", content="客户张伟喜欢绿茶", tags=["客户", "客户", "tea"])
    assert stored == {
        "memory_id": stored["memory_id"],
        "created_at": "2026-03-01T12:00:00+00:00",
        "tags": ["客户", "tea"],
    }
    assert call("remember", content="客户张伟喜欢绿茶", tags=["客户", "tea"]) == stored
    again = call("remember", number=3, content="客户张伟喜欢绿茶。", tags=["order"])
    assert again == {**stored, "tags": ["客户", "tea", "order"]}
    stored = call("remember", number=3, content="客户张伟喜欢绿茶。", tags=["order"])
    assert stored == again
    call("remember", number=2, content="The harbour closes at six")
    found = call("recall", query="张伟喜欢什么", limit=1)
    assert found == {
        "memories": [
            {**stored, "content": "客户张伟喜欢绿茶", "score": found["memories"][0]["score"]},
        ],
        "count": 1,
        "degraded": False,
    }
    assert found["memories"][0]["score"] > 0
    assert call("recall", query="张伟", tags=["harbour"])["count"] == 0
    assert call("recall", query="张伟", agent=OTHER)["memories"] == []
    assert memory.files.memories(TRADER)[0].run_id == "run_1"


def test_query_state_asks_for_the_calling_agent(call):
    assert call("query_state", state_name="market.open") == {"state": True}
    assert call("query_state", state_name="who", agent=OTHER) == {"state": {"agent": "clerk"}}


async def test_log_decision_hands_the_host_one_record_with_a_stable_id(tools, clock):
    arguments = {"reasoning": "市场休市，无需操作", "decision_type": "no_action"}  # noqa: RUF001
    first = tools.call("log_decision", arguments, invocation("log_decision"))
    await clock.advance(5)
    again = tools.call("log_decision", arguments, invocation("log_decision"))
    (record,) = first.records
    assert first.result.content == {
        "decision_id": record.data["decision_id"],
        "logged": True,
        "created_at": "2026-03-01T12:00:00+00:00",
    }
    assert (record.kind, record.agent_id, record.run_id) == (LedgerKind.DECISION, "trader", "run_1")
    assert record.data["reasoning"] == arguments["reasoning"]
    assert again.records[0].record_id == record.record_id
    assert again.result.content["decision_id"] == first.result.content["decision_id"]


async def test_the_outcome_carries_its_call_and_its_duration(tools, clock, states):
    def slow(agent):
        clock._elapsed += 0.25
        return 1

    states.providers["slow"] = slow
    outcome = tools.call("query_state", {"state_name": "slow"}, invocation("query_state", 7))
    assert (outcome.result.call_id, outcome.duration_ms) == ("call_7", 250)


def test_a_schedule_may_lie_thirty_days_ahead(call):
    given = call("schedule_once", delay_seconds=2_592_000, focus="x")
    assert datetime.fromisoformat(given["scheduled_at"]) == datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(days=30)
