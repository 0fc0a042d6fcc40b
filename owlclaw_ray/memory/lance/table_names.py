"""What the tables of an index are called: by the embedder whose vectors are in them, so that these can be asked again."""

from __future__ import annotations

import re
from urllib.parse import unquote

WORDS = "memories-words"
"""The table without vectors."""
_PLAIN = re.compile(r"[a-z0-9.-]")
_NAME = re.compile(r"memories-(.+)-([1-9][0-9]*)")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")


def encode(embedder_id: str, dimension: int) -> str:
    """Return the name of the table with vectors of this embedder: what LanceDB takes, and another one where case does not count."""
    return f"memories-{plain(embedder_id)}-{dimension}"


def plain(embedder_id: str) -> str:
    """Return the id in small letters, digits and `_.-`, another one for every id."""
    return "".join(map(_escaped, embedder_id))


def decode(name: str) -> tuple[str, int] | None:
    """Return the embedder's id and the dimension; None for the table without vectors, and for what is no table of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        raw = _ESCAPE.sub(lambda found: f"%{found[1]}", match[1].replace("%", "%25"))
        embedder_id = unquote(raw, errors="strict")
    except ValueError:
        return None
    return (embedder_id, int(match[2])) if encode(embedder_id, int(match[2])) == name else None


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"_{byte:02x}" for byte in character.encode())
