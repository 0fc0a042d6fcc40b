"""The templates, compiled once, and what they know of numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, urlencode
from zlib import crc32

from jinja2 import Environment, PackageLoader, StrictUndefined

from console.arguments import argument_fields
from console.schedule_times import in_words, local
from console.static_files import address
from console.text import brief, clipped, field, finalised, pretty, whole


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalised,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "argument_fields": argument_fields,
        "brief": brief,
        "clipped": clipped,
        "count": counted,
        "definition": definition_of,
        "digest": digest,
        "duration": duration,
        "field": field,
        "in_words": in_words,
        "instant": instant,
        "iso": iso,
        "local": local,
        "money": money,
        "pretty": pretty,
        "segment": segment,
        "since": since,
        "stamp": stamp,
        "whole": whole,
    }
    environment.globals |= {"address": address, "query": query}
    environment.globals["parts"] = environment.get_template("_parts.html").module  # blocks alone see no imports
    environment.globals["charts"] = environment.get_template("_charts.html").module
    environment.globals["calls"] = environment.get_template("_approval.html").module
    return environment


class Templates:
    """Renders pages, and parts of them."""

    def __init__(self) -> None:
        self._environment = _environment()
        self._badge = self._environment.from_string("{{ parts.badge(pending) }}")

    def page(self, name: str, context: Mapping[str, object]) -> str:
        """Return a page."""
        return self._environment.get_template(name).render(context)

    def part(self, name: str, block: str, context: Mapping[str, object]) -> str:
        """Return one block of a page."""
        template = self._environment.get_template(name)
        return "".join(template.blocks[block](template.new_context(dict(context))))

    def live_part(self, name: str, block: str, context: Mapping[str, object]) -> str:
        """Return one block of a page for who has that open, and the badge, which is outside of all blocks."""
        return self.part(name, block, context) + self._badge.render(pending=context["pending"])


def definition_of(agent: str) -> str:
    """Return the name of an agent's definition."""
    return agent.partition(":")[0]


def counted(number: int) -> str:
    """Return 1234567 as 1,234,567."""
    return f"{number:,}"


def duration(milliseconds: float) -> str:
    """Return a span as people say it: 7 ms, 1.25 s, 2 m 03 s, 1 h 02 m."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def money(dollars: float) -> str:
    """Return an amount of US dollars: small ones with the digits that say something."""
    if not dollars:
        return "$0"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}" if dollars >= 0.0001 else "<$0.0001"


def iso(at: datetime) -> str:
    """Return a time for programs."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(at: datetime) -> str:
    """Return a time for forms that send it back: to the microsecond."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def since(at: datetime, begin: datetime) -> str:
    """Return how long after the beginning it was."""
    return f"+{duration(1_000 * max(0.0, (at - begin).total_seconds()))}"


def stamp(at: datetime) -> str:
    """Return a time for people who have no JavaScript: in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache(4_096)
def segment(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="")


def digest(text: str) -> str:
    """Return what tells a text from others, in a few characters."""
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):x}"


def query(**values: object) -> str:
    """Return `?a=1&b=2` of what is said, empty if nothing is."""
    said = {name: value for name, value in values.items() if value not in {None, ""}}
    return f"?{urlencode(said)}" if said else ""
