"""`${NAME}` in the configuration of servers."""

from __future__ import annotations

import re
from collections.abc import Mapping

PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def names_in(text: str) -> tuple[str, ...]:
    """Return the variables that a text names, in order."""
    return tuple(found[1] for found in PLACEHOLDER.finditer(text))


def has_stray_placeholder(text: str) -> bool:
    """Return whether a text has the beginning of a placeholder that is none."""
    return "${" in PLACEHOLDER.sub("", text)


def filled(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with the values of its variables; raises KeyError with the first that is not set."""
    return PLACEHOLDER.sub(lambda found: environ[found[1]], text)


def filled_or_none(text: str, environ: Mapping[str, str]) -> str | None:
    """Return as `filled`, None if a variable is not set."""
    try:
        return filled(text, environ)
    except KeyError:
        return None
