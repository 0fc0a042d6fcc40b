"""Edits of a text: exact replacements, each in one place unless it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from owlclaw_ray.tools.code.arguments import Edit
from owlclaw_ray.tools.failure import ToolFailureError


def replaced(text: str, edits: Sequence[Edit]) -> tuple[str, int]:
    """Return the text with all edits made, one after another, and how many places they changed.

    Raises ToolFailureError: `text_not_found`, or `ambiguous_edit` for a text in several places. Places may overlap.
    """
    places = 0
    for number, edit in enumerate(edits, 1):
        count = _occurrences(text, edit.old)
        if count == 0:
            raise ToolFailureError(
                "text_not_found",
                f"edit {number}: its old text is not in the file. Read the file again and copy the text exactly.",
                details={"edit": number},
            )
        if count > 1 and not edit.replace_all:
            raise ToolFailureError(
                "ambiguous_edit",
                f"edit {number}: its old text is in {count} places. Add lines around it, or set replace_all.",
                details={"edit": number, "places": count},
            )
        places += text.count(edit.old)
        text = text.replace(edit.old, edit.new)
    return text, places


def _occurrences(text: str, part: str) -> int:
    count, at = 0, text.find(part)
    while at >= 0:
        count += 1
        at = text.find(part, at + 1)
    return count
