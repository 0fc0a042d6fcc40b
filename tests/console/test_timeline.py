from __future__ import annotations

from datetime import UTC, datetime, timedelta

from console.timeline import timeline
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
