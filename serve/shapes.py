"""What single values of requests may be: each said once, for the check and for the OpenAPI document."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import Struct
from typing_extensions import TypeIs

from owlclaw_ray.domain.json import JsonObject

NO_NUL = r"^[^\u0000]*$"
"""No database keeps a text with a NUL."""
_SPACES = r"\s\u001c-\u001f\u0085\ufeff"
"""What Python or ECMAScript counts as blank."""
NOT_BLANK = rf"^[^\u0000]*[^\u0000{_SPACES}][^\u0000]*$"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Text(Struct, frozen=True):
    """A text of `least` to `most` characters, of a pattern that means the same to Python and to ECMAScript."""

    most: int
    least: int = 0
    pattern: str = NO_NUL

    def fits(self, value: object) -> TypeIs[str]:
        """Return whether the value is such a text."""
        if not isinstance(value, str) or not self.least <= len(value) <= self.most:
            return False
        return re.fullmatch(self.pattern, value) is not None

    @property
    def schema(self) -> JsonObject:
        """The JSON schema of such texts."""
        least: JsonObject = {"minLength": self.least} if self.least else {}
        return {"type": "string", **least, "maxLength": self.most, "pattern": self.pattern}


ID = Text(200)
"""The name of something that may be there."""


def whole(value: object) -> int | None:
    """Return a whole number of JSON, where 5.0 is 5; None for anything else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(value: object) -> datetime:
    """Return the time that a text of RFC 3339 means, in UTC; raises ValueError for anything else, leap seconds too."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("must be a time with its zone, such as 2026-11-03T09:30:00Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999 of UTC") from None
