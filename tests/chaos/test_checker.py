from __future__ import annotations

import orjson
import pytest

from benchmarks.chaos.checker import Promise
from benchmarks.chaos.session import ANSWERS
from owlclaw_ray.domain.ledger import LedgerKind

ENTRY = "UPDATE journal SET {change} WHERE run_id = '{{{run}}}' AND kind = '{kind}'"

RESULT = "run_id = '{{first}}' AND kind = 'tool_finished' AND json_extract(data, '$.tool') = '{tool}'"
LOOKED, PUT = RESULT.format(tool="chaos.look"), RESULT.format(tool="chaos.put")


def entry(run, kind, change):
    return ENTRY.format(run=run, kind=kind, change=change)


def test_a_session_without_a_fault_has_no_violation(played):
    assert played.broken() == set()
    kinds = [each.kind.value for each in played.evidence().journals[played.second]]
    assert kinds.count("run_resumed") == 1
    stopped = [each.record for each in played.evidence().ledger if each.record.run_id == played.runs[3]]
    assert [each.data["error"] for each in stopped if "error" in each.data and each.kind is LedgerKind.MODEL_CALL]
    assert {each.tool for each in played.evidence().executions} == {"chaos.look", "chaos.put", "chaos.pay"}


FORGED = {
    "a run that was accepted is gone": (
        ["DELETE FROM runs WHERE run_id = '{cancelled}'"],
        {Promise.ACCEPTED_RUN_LOST, Promise.LEDGER_COMPLETE},
    ),
    "a trigger made a second run": (
        ["UPDATE runs SET payload = json_set(payload, '$.number', 0) WHERE run_id = '{second}'"],
        {Promise.KEY_NAMES_ONE_RUN},
    ),
    "a run is running for ever": (
        [
            "UPDATE runs SET status = 'running', finished_at = NULL, result = NULL WHERE run_id = '{scheduled}'",
            "DELETE FROM journal WHERE run_id = '{scheduled}' AND kind = 'run_finished'",
        ],
        {Promise.RUN_ENDS, Promise.LEDGER_COMPLETE},
    ),
    "a run failed for no reason": (
        [
            "UPDATE runs SET status = 'failed' WHERE run_id = '{first}'",
            entry("first", "run_finished", "data = json_set(data, '$.status', 'failed')"),
        ],
        {Promise.ENDS_AS_IT_SHOULD, Promise.LEDGER_COMPLETE},
    ),
    "a run was cancelled that nobody cancelled": (
        [
            "UPDATE runs SET status = 'cancelled' WHERE run_id = '{first}'",
            entry("first", "run_finished", "data = json_set(data, '$.status', 'cancelled')"),
        ],
        {Promise.ENDS_AS_IT_SHOULD, Promise.LEDGER_COMPLETE},
    ),
    "a journal and the run's state disagree": (
        ["UPDATE runs SET status = 'timeout' WHERE run_id = '{cancelled}'"],
        {Promise.ENDS_AS_IT_SHOULD, Promise.JOURNAL_WHOLE},
    ),
    "an entry is missing": (
        ["DELETE FROM journal WHERE run_id = '{first}' AND kind = 'tool_started'"],
        {Promise.JOURNAL_WHOLE, Promise.ONCE_ANNOUNCED},
    ),
    "an entry follows the end": (
        [
            "INSERT INTO journal SELECT run_id, max(seq) + 1, 'cancel_requested', max(at), '{{}}' FROM journal WHERE run_id = '{first}'"
        ],
        {Promise.JOURNAL_WHOLE},
    ),
    "a run began twice": (
        [entry("second", "run_resumed", "kind = 'run_started'")],
        {Promise.JOURNAL_WHOLE},
    ),
    "a run without a beginning": (
        [
            "UPDATE journal SET seq = -seq WHERE run_id = '{scheduled}' AND seq > 1",
            "DELETE FROM journal WHERE run_id = '{scheduled}' AND seq = 1",
            "UPDATE journal SET seq = -seq - 1 WHERE run_id = '{scheduled}'",
        ],
        {Promise.JOURNAL_WHOLE},
    ),
    "two runs overlapped": (
        [
            "UPDATE runs SET finished_at = (SELECT finished_at FROM runs WHERE run_id = '{second}') WHERE run_id = '{first}'"
        ],
        {Promise.ONE_AT_A_TIME},
    ),
    "the later of two runs began first": (
        [
            "UPDATE runs SET started_at = (SELECT finished_at FROM runs WHERE run_id = '{second}') + 1 WHERE run_id = '{first}'"
        ],
        {Promise.IN_ORDER},
    ),
    "an epoch went back": (
        [entry("second", "run_resumed", "data = json_set(data, '$.epoch', 0)")],
        {Promise.ONE_WRITER},
    ),
    "two activations had the same epoch": (
        [entry("second", "run_resumed", "data = json_set(data, '$.epoch', 1)")],
        {Promise.ONE_WRITER},
    ),
    "an epoch is from nowhere": (
        [entry("scheduled", "run_started", "data = json_set(data, '$.epoch', 99)")],
        {Promise.ONE_WRITER},
    ),
    "an entry is older than the one before it": (
        [entry("second", "run_resumed", "at = at - 60000000")],
        {Promise.ONE_WRITER},
    ),
    "a claim waited for what the activation before it wrote, which is right": (
        [entry("second", "run_resumed", "at = at - 1000000")],
        set(),
    ),
    "a call was recorded before it was last executed": (
        [
            "UPDATE journal SET at = at - 10000000 WHERE run_id = '{first}'",
            entry("first", "run_finished", "at = at + 10000000"),
        ],
        {Promise.RECORDED_CALL_REPEATED, Promise.RESULT_IS_TRUE},
    ),
    "a call has two results": (
        [
            f"UPDATE journal SET data = (SELECT data FROM journal WHERE {LOOKED}) WHERE {PUT}",
        ],
        {Promise.CALL_ANSWERED_ONCE, Promise.LEDGER_COMPLETE},
    ),
    "a ledger record is missing": (
        ["DELETE FROM ledger WHERE run_id = '{first}' AND kind = 'tool_call'"],
        {Promise.LEDGER_COMPLETE, Promise.LEDGER_UNBROKEN},
    ),
    "a decision is missing": (
        ["DELETE FROM ledger WHERE run_id = '{first}' AND kind = 'decision'"],
        {Promise.LEDGER_COMPLETE, Promise.LEDGER_UNBROKEN},
    ),
    "a visibility record is missing": (
        ["DELETE FROM ledger WHERE run_id = '{first}' AND kind = 'visibility'"],
        {Promise.LEDGER_COMPLETE, Promise.LEDGER_UNBROKEN},
    ),
    "a model call is missing from the journal": (
        [
            entry("cancelled", "run_queued", "kind = 'run_queued'"),
            "DELETE FROM journal WHERE run_id = '{scheduled}' AND kind = 'model_replied'",
        ],
        {Promise.LEDGER_COMPLETE, Promise.JOURNAL_WHOLE},
    ),
    "a ledger record was changed": (
        ["UPDATE ledger SET at = at + 1 WHERE run_id = '{first}' AND kind = 'run'"],
        {Promise.LEDGER_UNBROKEN},
    ),
    "a schedule was lost": (
        ["DELETE FROM schedules"],
        {Promise.SCHEDULE_FIRES_ONCE},
    ),
    "a schedule made two runs": (
        [
            "UPDATE runs SET trigger = json_set(trigger, '$.source', (SELECT schedule_id FROM schedules)) WHERE run_id = '{second}'"
        ],
        {Promise.SCHEDULE_FIRES_ONCE},
    ),
    "a schedule never fired": (
        ["UPDATE schedules SET status = 'active'"],
        {Promise.SCHEDULE_FIRES_ONCE},
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_wrong_in_the_store_is_found(session, forged):
    statements, promises = FORGED[forged]
    session.sql(*statements)

    assert session.broken() == promises


def lines_of(session, tool, run_id):
    return [line for line in session.effects() if line["tool"] == tool and line["run_id"] == run_id]


def test_a_once_effect_that_happened_twice_is_found(session):
    session.write_effects([*session.effects(), *repeated(lines_of(session, "chaos.pay", session.second))])

    assert session.broken() == {Promise.ONCE_REPEATED, Promise.RECORDED_CALL_REPEATED}


def test_a_once_effect_that_happened_twice_before_its_result_was_recorded_is_found(session):
    session.write_effects([*session.effects(), *repeated(lines_of(session, "chaos.pay", session.second), later_ns=0)])

    assert session.broken() == {Promise.ONCE_REPEATED}


def test_an_idempotent_call_that_was_repeated_after_its_result_was_recorded_is_found(session):
    again = repeated(lines_of(session, "chaos.put", session.second))
    session.write_effects([*session.effects(), *again])
    session.sql("UPDATE journal SET at = at + 3600000000 WHERE run_id = '{second}' AND kind = 'run_finished'")

    assert session.broken() == {Promise.RECORDED_CALL_REPEATED}


def test_an_idempotent_call_that_was_repeated_before_its_result_was_recorded_is_right(session):
    session.write_effects([*session.effects(), *repeated(lines_of(session, "chaos.put", session.second), later_ns=0)])

    assert session.broken() == set()


def test_an_uncertain_effect_that_comes_late_is_right_and_a_second_one_is_not(session):
    uncertain = '{{"error": {{"type": "uncertain"}}}}'
    session.sql(
        f"UPDATE journal SET data = json_patch(data, '{uncertain}') WHERE run_id = '{{second}}' "
        "AND kind = 'tool_finished' AND json_extract(data, '$.tool') = 'chaos.pay'"
    )
    late = [{**line, "wall_ns": line["wall_ns"] + 10**9} for line in lines_of(session, "chaos.pay", session.second)]
    others = [line for line in session.effects() if line not in lines_of(session, "chaos.pay", session.second)]

    session.write_effects([*others, *late])
    assert Promise.RECORDED_CALL_REPEATED not in session.broken()
    assert Promise.ONCE_REPEATED not in session.broken()

    session.write_effects([*session.effects(), *repeated(late)])
    assert Promise.ONCE_REPEATED in session.broken()


def test_a_result_without_an_execution_is_found(session):
    session.write_effects([line for line in session.effects() if line["tool"] != "chaos.look"])

    assert session.broken() == {Promise.RESULT_IS_TRUE}


def test_a_result_of_an_execution_that_was_cut_short_is_found(session):
    look = lines_of(session, "chaos.look", session.first)
    session.write_effects([line for line in session.effects() if line not in look or line["phase"] == "start"])

    assert session.broken() == {Promise.RESULT_IS_TRUE}


def test_an_execution_that_no_reply_asked_for_is_found(session):
    stray = [{**line, "call_id": "call_of_nobody"} for line in lines_of(session, "chaos.look", session.first)]
    session.write_effects([*session.effects(), *repeated(stray, later_ns=0)])

    assert session.broken() == {Promise.EXECUTED_AS_ASKED}


def test_an_execution_after_the_end_of_its_run_is_found(session):
    again = repeated(lines_of(session, "chaos.put", session.first), later_ns=3600 * 10**9)
    session.write_effects([*session.effects(), *again])

    assert session.broken() == {Promise.EXECUTED_AS_ASKED, Promise.RECORDED_CALL_REPEATED}


def test_a_call_without_a_result_in_a_completed_run_is_found(session):
    session.sql(
        "UPDATE journal SET kind = 'cancel_requested' WHERE run_id = '{first}' AND kind = 'tool_finished' "
        "AND json_extract(data, '$.tool') = 'chaos.look'"
    )

    assert session.broken() == {Promise.CALL_ANSWERED_ONCE, Promise.LEDGER_COMPLETE}


@pytest.mark.parametrize(
    ("line", "promise"),
    [
        (
            {
                "what": "accepted",
                "number": 0,
                "key": "key-0",
                "run_id": "run_other",
                "duplicate": True,
                "agent": "crowd:1",
            },
            Promise.KEY_NAMES_ONE_RUN,
        ),
        (
            {
                "what": "accepted",
                "number": 9,
                "key": "key-9",
                "run_id": "run_lost",
                "duplicate": False,
                "agent": "crowd:1",
            },
            Promise.ACCEPTED_RUN_LOST,
        ),
        ({"what": "refused", "number": 9, "key": "key-9", "status": 409}, Promise.TRIGGER_REFUSED),
    ],
)
def test_a_wrong_answer_to_the_client_is_found(session, line, promise):
    with (session.folder / ANSWERS).open("ab") as log:
        log.write(orjson.dumps(line) + b"\n")

    assert promise in session.broken()


def test_a_run_of_another_trigger_as_the_answer_to_a_key_is_found(session):
    answer = {
        "what": "accepted",
        "number": 1,
        "key": "key-1",
        "run_id": session.first,
        "duplicate": True,
        "agent": "crowd:1",
    }
    with (session.folder / ANSWERS).open("ab") as log:
        log.write(orjson.dumps(answer) + b"\n")

    assert session.broken() == {Promise.KEY_NAMES_ONE_RUN}


def test_a_trigger_that_made_no_run_and_was_answered_with_another_triggers_is_found(session):
    log = session.folder / ANSWERS
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    answered = [{**line, "run_id": session.first} if line["number"] == 1 else line for line in lines]
    log.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in answered))
    session.sql("UPDATE runs SET trigger = json_set(trigger, '$.payload.number', 9) WHERE run_id = '{second}'")

    assert session.broken() == {Promise.KEY_NAMES_ONE_RUN}


def test_a_run_of_another_agent_as_the_answer_to_a_trigger_is_found(session):
    log = session.folder / ANSWERS
    log.write_bytes(log.read_bytes().replace(b"crowd:1", b"crowd:2"))

    assert session.broken() == {Promise.KEY_NAMES_ONE_RUN}


def test_a_memory_that_is_missing_is_found(session):
    [document] = (session.folder / ".owlclaw" / "agents").rglob("MEMORY.md")
    document.unlink()

    assert session.broken() == {Promise.REMEMBERED_ONCE}


def test_a_memory_that_is_there_twice_is_found(session):
    [document] = (session.folder / ".owlclaw" / "agents").rglob("MEMORY.md")
    head, mark, memory = document.read_text().partition("## ")
    document.write_text(head + mark + memory + mark + memory.replace("mem_", "mem_f"))

    assert session.broken() == {Promise.REMEMBERED_ONCE}


def repeated(lines, later_ns=10**9):
    """The same executions again, so much later."""
    return [
        {**line, "execution": f"{line['execution']} again", "wall_ns": line["wall_ns"] + later_ns} for line in lines
    ]
