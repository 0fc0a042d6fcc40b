"""Tags of tools as applications and files write them: permissions compare them letter by letter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from owlclaw_ray.errors import Problem

_TAG = re.compile(r"[a-z][a-z0-9_-]*(?::\S(?:.*\S)?)?")


def kept_tags(tags: Iterable[str]) -> str | tuple[str, ...]:
    """Return tags that may be looked through more than once; a text stays one, which `tags_problems` refuses."""
    return tags if isinstance(tags, str) else tuple(tags)


def tags_problems(where: str, tags: Iterable[str]) -> list[Problem]:
    """Return what is wrong with the tags that a decorator was given: a text, which would be taken for its letters, or wrong ones."""
    if isinstance(tags, str):
        return [Problem(f"{where}: tags", f"is the text {tags!r}", f'write tags=["{_right(tags)}"]')]
    return [Problem(f"{where}: tags", what, fix) for _, what, fix in tag_problems(tags)]


def tag_problems(tags: Iterable[object]) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each tag that is no word in small letters (after which a colon and a value may follow), what is wrong, and
    what would be right.
    """
    for place, tag in enumerate(tags):
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            right = _right(tag) if isinstance(tag, str) else ""
            said = f": write {right!r}" if _TAG.fullmatch(right) else ", such as network"
            yield place, f"has {tag!r}", f"a tag is a word in small letters{said}"


def _right(tag: str) -> str:
    word, colon, value = tag.partition(":")
    return f"{word.strip().lower()}{colon}{value.strip()}"
