from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from console.timeline import Zoom, flame, timeline
from owlclaw_ray.domain.journal import EntryKind, JournalEntry

START = datetime(2026, 11, 3, 9, tzinfo=UTC)


def entry(seq, kind, seconds, **data):
    return JournalEntry(seq, kind, START + timedelta(seconds=seconds), data)


def test_what_took_time_is_a_bar_as_long_as_its_share():
    shown = timeline(
        [
            entry(1, EntryKind.RUN_QUEUED, 0),
            entry(2, EntryKind.MODEL_REPLIED, 4, model="m", duration_ms=4_000),
            entry(3, EntryKind.TOOL_FINISHED, 6, tool="t", duration_ms=2_000, error={"type": "timeout"}),
            entry(4, EntryKind.MODEL_REPLIED, 8, model="m", duration_ms=2_000),
        ],
        START,
        over=True,
    )

    assert shown is not None
    assert [(bar.lane, bar.x, bar.width, bar.tone, bar.seq) for bar in shown.bars] == [
        ("model", 0.0, 500.0, "", 2),
        ("tools", 500.0, 250.0, "bad", 3),
        ("model", 750.0, 250.0, "", 4),
    ]
    assert (shown.lanes, shown.total, shown.folds) == (("model", "tools"), "8.00 s", ())
    assert shown.bars[1].title == "t · 2.00 s"


def test_a_night_of_waiting_is_folded_and_the_work_before_and_after_keeps_its_room():
    shown = timeline(
        [
            entry(1, EntryKind.MODEL_REPLIED, 2, model="m", duration_ms=2_000),
            entry(2, EntryKind.RUN_WAITING, 2, approvals=["apr_1"]),
            entry(3, EntryKind.RUN_CONTINUED, 36_002),
            entry(4, EntryKind.TOOL_FINISHED, 36_004, tool="t", duration_ms=2_000),
        ],
        START,
        over=True,
    )

    assert shown is not None
    (fold,) = shown.folds
    assert (fold.x, fold.title) == (480.0, "nothing for 10 h 00 m")
    assert [(bar.lane, bar.x, bar.width) for bar in shown.bars] == [
        ("model", 0.0, 480.0),
        ("waits", 480.0, 40.0),
        ("tools", 520.0, 480.0),
    ]


def test_many_folds_leave_half_of_the_picture_to_what_happened():
    steps = [entry(seq, EntryKind.TOOL_FINISHED, 1_000 * seq, tool="t", duration_ms=100) for seq in range(1, 101)]

    shown = timeline(steps, START, over=True)

    assert shown is not None
    assert len(shown.folds) == 99
    assert {each.width for each in shown.folds} == {5.05}
    places = [each.x for each in shown.bars]
    assert places == sorted(places)
    assert all(each.x >= 0 and each.x + each.width <= 1_000 and each.width > 3 for each in shown.bars)
    assert all(
        fold.x == pytest.approx(bar.x + bar.width, abs=0.02) for fold, bar in zip(shown.folds, shown.bars, strict=False)
    )


def test_a_wait_that_goes_on_lasts_until_now():
    entries = [entry(1, EntryKind.RUN_STARTED, 0), entry(2, EntryKind.RUN_WAITING, 1, runs={"c1": "run_2"})]

    shown = timeline(entries, START + timedelta(seconds=61), over=False)

    assert shown is not None
    assert [(bar.lane, bar.title) for bar in shown.bars] == [("children", "waiting for other runs · 1 m 00 s")]


def test_what_took_no_time_has_no_picture_and_what_took_little_can_be_seen():
    assert timeline([], START, over=True) is None
    assert timeline([entry(1, EntryKind.RUN_QUEUED, 0)], START, over=True) is None
    at_once = timeline([entry(1, EntryKind.MODEL_REPLIED, 0, model="m", duration_ms=0)], START, over=True)
    assert at_once is not None
    assert at_once.bars[0].width >= 3
    assert at_once.bars[0].x + at_once.bars[0].width <= 1_000


STEPS = [
    entry(1, EntryKind.PROMPT_BUILT, 0, usage={"cost": 0.01}),
    entry(2, EntryKind.MODEL_REPLIED, 4, model="m", duration_ms=4_000, usage={"cost": 0.03}),
    entry(3, EntryKind.TOOL_FINISHED, 6, tool="t", duration_ms=2_000),
    entry(4, EntryKind.MODEL_REPLIED, 8, model="m", duration_ms=2_000, usage={"cost": 0.06}),
]


def test_a_flame_of_cost_is_as_wide_as_what_each_call_cost_under_its_turn():
    shown = flame(STEPS, "cost")

    assert shown is not None
    assert [(bar.lane, bar.color, bar.x, bar.width, bar.seq) for bar in shown.bars] == [
        ("turns", "turns", 0.0, 100.0, 1),
        ("calls", "tools", 0.0, 100.0, 1),
        ("turns", "turns", 100.0, 300.0, 2),
        ("calls", "model", 100.0, 300.0, 2),
        ("turns", "turns", 400.0, 600.0, 4),
        ("calls", "model", 400.0, 600.0, 4),
    ]
    assert (shown.lanes, shown.total) == (("turns", "calls"), "$0.1000")
    assert shown.bars[-1].title == "m · $0.0600, 60 %"


def test_a_flame_of_time_has_calls_of_tools_in_the_turn_that_asked_for_them():
    shown = flame(STEPS, "time")

    assert shown is not None
    assert [(bar.lane, bar.x, bar.width, bar.seq) for bar in shown.bars] == [
        ("turns", 0.0, 750.0, 2),
        ("calls", 0.0, 500.0, 2),
        ("calls", 500.0, 250.0, 3),
        ("turns", 750.0, 250.0, 4),
        ("calls", 750.0, 250.0, 4),
    ]
    assert flame([entry(1, EntryKind.MODEL_REPLIED, 0, duration_ms=5)], "cost") is None


def test_a_part_of_a_picture_is_as_wide_as_the_whole_and_has_what_is_in_it():
    whole, part = (timeline(STEPS, START, over=True, zoom=zoom) for zoom in (Zoom(), Zoom(250, 625)))

    assert whole is not None
    assert part is not None
    assert [(bar.seq, bar.x, bar.width) for bar in whole.bars] == [
        (2, 0.0, 500.0),
        (3, 500.0, 250.0),
        (4, 750.0, 250.0),
    ]
    assert [(bar.seq, bar.x, bar.width) for bar in part.bars] == [(2, 0.0, 666.67), (3, 666.67, 333.33)]
    assert part.total == whole.total


def test_zooming_stays_within_the_picture():
    assert Zoom().scaled(0.5) == Zoom(250, 750)
    assert Zoom(0, 100).scaled(2) == Zoom(0, 200)
    assert Zoom(0, 100).shifted(-0.5) == Zoom(0, 100)
    assert Zoom(900, 1_000).shifted(0.5) == Zoom(900, 1_000)
    assert Zoom(100, 200).shifted(0.5) == Zoom(150, 250)
    assert Zoom(500, 510).scaled(0.5) == Zoom(500, 510)
    assert Zoom(10, 900).scaled(2).whole
    assert [str(each) for each in (Zoom(), Zoom(250, 750))] == ["", "250-750"]
    assert Zoom.parse(str(Zoom(250, 750))) == Zoom(250, 750)


@pytest.mark.parametrize("text", ["5", "-", "a-b", "700-300", "1-5", "0-1001", "0-99999", "-5-100", "²-100", "1-2-3"])
def test_what_is_no_part_of_a_picture_is_refused(text):
    with pytest.raises(ValueError, match="^" + re.escape(text) + "$"):
        Zoom.parse(text)


def drawn(entries, seconds, *, over=False):
    shown = timeline(entries, START + timedelta(seconds=seconds), over=over)
    assert shown is not None
    return shown


@pytest.mark.parametrize(
    "told",
    [
        entry(3, EntryKind.TOOL_STARTED, 1, call_id="c1", tool="refund"),
        entry(3, EntryKind.RUN_ACTIVE, 4, running=[{"call_id": "c1", "tool": "refund", "seconds": 3.0}]),
    ],
)
def test_a_tool_that_hangs_is_a_bar_until_now_and_no_time_in_which_nothing_happens(told):
    replied = entry(2, EntryKind.MODEL_REPLIED, 1, model="m", duration_ms=1_000)
    later = entry(4, EntryKind.RUN_ACTIVE, 8, running=[{"call_id": "c1", "tool": "refund", "seconds": 7.0}])

    shown = drawn([entry(1, EntryKind.RUN_STARTED, 0), replied, told, later], 10)

    assert shown.folds == ()
    assert [(bar.lane, bar.x, bar.width, bar.title, bar.seq) for bar in shown.bars] == [
        ("model", 0.0, 100.0, "m · 1.00 s", 2),
        ("tools", 100.0, 900.0, "refund, has not ended · 9.00 s", 3),
    ]


def test_a_model_that_has_not_answered_is_a_bar_from_when_it_was_asked():
    asking = [entry(seq, EntryKind.RUN_ACTIVE, 5 * seq, asking="large") for seq in (2, 3)]

    shown = drawn([entry(1, EntryKind.PROMPT_BUILT, 0), *asking], 20)

    assert [(bar.lane, bar.x, bar.width, bar.title) for bar in shown.bars] == [
        ("model", 0.0, 1_000.0, "large, has not ended · 20.0 s")
    ]
    replied = entry(4, EntryKind.MODEL_REPLIED, 20, model="large", duration_ms=20_000)
    shown = drawn([entry(1, EntryKind.PROMPT_BUILT, 0), *asking, replied], 30)
    assert [bar.title for bar in shown.bars] == ["large · 20.0 s"]


def test_a_call_that_its_run_did_not_wait_for_ends_with_the_run_or_with_what_was_last_heard_of_its_activation():
    started = entry(1, EntryKind.TOOL_STARTED, 0, call_id="c1", tool="refund")
    active = entry(2, EntryKind.RUN_ACTIVE, 4, running=[{"call_id": "c1", "tool": "refund", "seconds": 4.0}])

    ended = drawn([started, active, entry(3, EntryKind.RUN_FINISHED, 9)], 60, over=True)
    resumed = drawn([started, active, entry(3, EntryKind.RUN_RESUMED, 9)], 10)

    assert [(bar.title, bar.tone) for bar in ended.bars] == [("refund, ended with the run · 9.00 s", "bad")]
    assert [(bar.title, bar.tone) for bar in resumed.bars] == [("refund, interrupted · 4.00 s", "bad")]


def test_a_call_that_has_a_result_or_waits_for_a_person_does_not_go_on():
    started = entry(1, EntryKind.TOOL_STARTED, 0, call_id="c1", tool="refund")
    finished = entry(2, EntryKind.TOOL_FINISHED, 1, call_id="c1", tool="refund", duration_ms=1_000)
    asked = entry(2, EntryKind.APPROVAL_REQUESTED, 1, call_id="c1", tool="refund")

    shown = drawn([started, finished], 9)
    waiting = drawn([started, asked, entry(3, EntryKind.RUN_WAITING, 1, approvals=["apr_1"])], 9)

    assert [bar.title for bar in shown.bars] == ["refund · 1.00 s"]
    assert [bar.title for bar in waiting.bars] == ["waiting for approval · 8.00 s"]
