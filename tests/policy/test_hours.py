from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.testing.clock import ManualClock
from tests.policy.world import Rules, tool

WEEK = 7 * 1_440
ZONES = ("UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
WORKDAYS = (0, 1, 2, 3, 4)


def minutes(text):
    hours, _, rest = text.partition(":")
    return int(hours) * 60 + int(rest)


def hours(start, end, zone="UTC", days=(0, 1, 2, 3, 4, 5, 6)):
    return Hours(("*",), minutes(start), minutes(end), zone, days)


@given(
    start=st.integers(0, 1_439),
    end=st.integers(0, 1_440),
    zone=st.sampled_from(ZONES),
    days=st.sets(st.integers(0, 6), min_size=1),
    at=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_hours_are_the_minutes_of_the_week_that_they_cover_on_the_clocks_of_their_zone(start, end, zone, days, at):
    if start == end:
        return
    last = end if end > start else end + 1_440
    covered = {(day * 1_440 + minute) % WEEK for day in days for minute in range(start, last)}

    local = at.astimezone(ZoneInfo(zone))
    shown = local.weekday() * 1_440 + local.hour * 60 + local.minute
    assert Hours(("*",), start, end, zone, tuple(sorted(days))).contains(at) == (shown in covered)


@pytest.mark.parametrize(
    ("local", "inside"),
    [("2026-03-29T01:59", False), ("2026-03-29T03:00", True), ("2026-10-25T02:30", True), ("2026-10-25T03:30", False)],
)
def test_hours_follow_the_clocks_when_summer_time_begins_and_ends(local, inside):
    berlin = hours("02:00", "03:30", "Europe/Berlin")
    for fold in (0, 1):
        at = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
        assert berlin.contains(at.astimezone(UTC)) == inside


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin():
    friday_night = hours("22:00", "02:00", "UTC", (4,))
    friday = datetime(2026, 11, 20, 22, 0, tzinfo=UTC)
    assert friday_night.contains(friday)
    assert friday_night.contains(friday + timedelta(hours=3, minutes=59))
    assert not friday_night.contains(friday + timedelta(hours=4))
    assert not friday_night.contains(friday + timedelta(days=1))
    assert not friday_night.contains(friday - timedelta(hours=21))


async def test_a_tool_is_hidden_outside_all_of_its_hours():
    rules = Governance(
        hours=(
            Hours(("shop.*",), minutes("09:30"), minutes("11:30"), "Asia/Shanghai", WORKDAYS),
            Hours(("shop.sell",), minutes("13:00"), minutes("15:00"), "Asia/Shanghai", WORKDAYS),
        )
    )
    lunch = ManualClock(datetime(2026, 11, 20, 4, 30, tzinfo=UTC))
    governed = Rules(rules, tool("shop.buy"), tool("shop.sell"), tool("look"), clock=lunch)

    assert await governed.reasons() == {
        "shop.buy": ("hours", "it is outside 09:30-11:30 mon,tue,wed,thu,fri Asia/Shanghai"),
        "shop.sell": (
            "hours",
            "it is outside 09:30-11:30 mon,tue,wed,thu,fri Asia/Shanghai and 13:00-15:00 mon,tue,wed,thu,fri Asia/Shanghai",
        ),
    }
    await lunch.advance(3_600)
    assert (await governed.visible()).visible == ("look", "shop.sell")


async def test_hours_in_a_zone_that_this_machine_does_not_know_hide_their_tools():
    governed = Rules(Governance(hours=(hours("00:00", "24:00", "Mars/Olympus"),)), tool("look"))

    [(by, reason)] = (await governed.reasons()).values()

    assert by == "hours"
    assert reason.startswith("the evaluator hours failed: ZoneInfoNotFoundError")
