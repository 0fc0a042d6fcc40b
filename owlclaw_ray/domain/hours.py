"""Times of day on days of the week."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Hours(Struct, frozen=True):
    """When tools may be used: from one time of day up to another, on some days, by the clocks of a zone."""

    tools: tuple[str, ...]
    """Patterns of canonical names, as in a shell: `shop.*`."""
    start: int
    """Minutes after midnight."""
    end: int
    """Minutes after midnight, up to 1,440. Before `start`: on the next day."""
    zone: str = "UTC"
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    """Days on which it begins, Monday being 0."""

    def contains(self, now: datetime) -> bool:
        """Return whether the clocks of the zone show a time inside these hours.

        It is clocks that count: an hour that comes twice when summer time ends is inside twice, one that is left out in spring never.
        Hours over midnight belong to the day on which they begin.
        """
        from zoneinfo import ZoneInfo

        local = now.astimezone(ZoneInfo(self.zone))
        minute, today = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        yesterday = (today - 1) % 7
        return (minute >= self.start and today in self.days) or (minute < self.end and yesterday in self.days)

    def __str__(self) -> str:
        days = "" if len(self.days) == len(DAYS) else f" {','.join(DAYS[day] for day in self.days)}"
        return f"{_time(self.start)}-{_time(self.end)}{days} {self.zone}"


def _time(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
