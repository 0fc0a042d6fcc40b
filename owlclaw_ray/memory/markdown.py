r"""The format of MEMORY.md: what people may read and edit, and what content cannot break.

An entry is a heading `## <memory id> · <ISO 8601 time>`, then `tags:` and `run:` lines if it has them, a blank line, the
content, and a rule `---`. A line of content that could be taken for structure, or that an editor would change (control
characters, trailing blanks, a leading `## `, `---` or `\`), stands as a backslash and a JSON string, so any content
comes back exactly.

What people write is read generously: any `## ` heading begins an entry and `---` ends one; text without a heading is an
entry too. An entry without an id gets one derived from its content, so it is the same at every reading; one without a
time takes that of the entry before it. An unfinished last entry of ours (a crash during the write) is no entry.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId, derived_id

HEADER = """# Memory

<!-- What this agent remembers. You may edit, add and delete entries: an entry is a heading, text, and a rule of three
dashes that ends it. Entries without an id are welcome. -->
"""
_RULE = "---"
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff\ud800-\udfff]")
_PLAIN = re.compile(r"[\w.:/@+-]+(?: [\w.:/@+-]+)*")
_ID = re.compile(r"mem_[\w.:@+-]+")
_STAMPED = re.compile(rf"({_ID.pattern})(?: · (.*))?")
_TAGS = re.compile(r"[Tt]ags:[ \t]*(.*)")
_RUN = re.compile(r"run:[ \t]*(.*)")
_UNFINISHED_HEADING = re.compile(r"## mem_\S*(?: \S?(?: \S*)?)?")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TITLE = re.compile(r"\A\s*#(?: .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the file as it stands there, and the memory that it is, if it is one."""

    text: str
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed MEMORY.md. The texts of its blocks and `torn`, joined, are the file."""

    blocks: tuple[Block, ...] = ()
    torn: str = ""
    """An unfinished entry at the end of the file."""
    memories: tuple[Memory, ...] = field(init=False, repr=False, compare=False)
    by_id: dict[MemoryId, Memory] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        memories = tuple(block.memory for block in self.blocks if block.memory is not None)
        object.__setattr__(self, "memories", memories)
        object.__setattr__(self, "by_id", {memory.memory_id: memory for memory in memories})


@dataclass(frozen=True, slots=True)
class _Draft:
    """A block before ids and times that it lacks are filled in."""

    text: str
    content: str | None = None
    memory_id: str = ""
    tags: tuple[str, ...] = ()
    run_id: str = ""
    created_at: datetime | None = None


def render(memory: Memory) -> str:
    """Return the entry's text, a blank line before it, from which `parse` gives an equal memory.

    Raises ValueError for an id that cannot stand in a heading.
    """
    if not _ID.fullmatch(memory.memory_id):
        raise ValueError(f"{memory.memory_id!r} is no memory id: it must be mem_ and letters, digits or any of _.:@+-")
    lines = ["", f"## {memory.memory_id} · {memory.created_at.astimezone(UTC).isoformat()}"]
    if memory.tags:
        plain = all(_PLAIN.fullmatch(tag) for tag in memory.tags)
        written = ", ".join(memory.tags) if plain else f"[{', '.join(_quoted(tag) for tag in memory.tags)}]"
        lines.append(f"tags: {written}")
    if memory.run_id:
        lines.append(f"run: {memory.run_id if _PLAIN.fullmatch(memory.run_id) else _quoted(memory.run_id)}")
    content = memory.content.split("\n")
    last = len(content) - 1
    lines += ["", *(_escaped(line, edge=number in {0, last}) for number, line in enumerate(content)), "", _RULE, ""]
    return "\n".join(lines)


def parse(data: bytes, undated: datetime) -> Document:
    """Return what the bytes of a MEMORY.md say; never raises.

    `undated` is the time of entries that have none themselves and no entry with one around them.
    """
    text = data.decode("utf-8", "surrogateescape")
    whole = text.rstrip("\0")
    pieces, closed = _split(whole)
    torn = text[len(whole) :]
    if pieces and not closed:
        kept, unfinished = _without_unfinished(pieces.pop())
        pieces += [kept] if kept else []
        torn = unfinished + torn
    drafts = [_draft(piece, first=number == 0) for number, piece in enumerate(pieces)]
    return Document(tuple(_complete(drafts, undated)), torn)


def _quoted(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _escaped(line: str, *, edge: bool) -> str:
    structural = line.startswith(("\\", "## ", _RULE)) or line == "##"
    editable = line.endswith((" ", "\t")) or (edge and not line)
    return "\\" + _quoted(line) if structural or editable or _UNSAFE.search(line) else line


def _unescaped(line: str) -> str:
    if line.startswith('\\"'):
        try:
            return str(json.loads(line[1:]))
        except ValueError:
            return line
    return line


def _split(text: str) -> tuple[list[str], bool]:
    """Return the texts of the blocks, and whether a rule ends the last."""
    pieces: list[str] = []
    current: list[str] = []
    closed = True
    for line in _lines(text):
        bare = line.rstrip()
        if (bare == "##" or line.startswith("## ")) and any(part.strip() for part in current):
            pieces.append("".join(current))
            current = []
        current.append(line)
        closed = bare == _RULE
        if closed:
            pieces.append("".join(current))
            current = []
    if any(part.strip() for part in current) or not pieces:
        pieces.append("".join(current))
    elif current:
        pieces[-1] += "".join(current)
        closed = True
    return pieces, closed


def _lines(text: str) -> Iterable[str]:
    *ended, rest = text.split("\n")
    return (*(line + "\n" for line in ended), *([rest] if rest else []))


def _without_unfinished(piece: str) -> tuple[str, str]:
    """Return the last block, which no rule ends, in two: what counts, and what a crash left of an entry of ours."""
    if _is_unfinished(piece):
        return "", piece
    before, newline, last = piece.rpartition("\n")
    return (before + newline, last) if last == "#" else (piece, "")


def _is_unfinished(piece: str) -> bool:
    heading, newline, _ = piece.lstrip().partition("\n")
    if not newline:
        return "## mem_".startswith(heading) or _UNFINISHED_HEADING.fullmatch(heading) is not None
    stamp = _STAMPED.fullmatch(heading.removeprefix("## ").rstrip())
    return heading.startswith("## ") and stamp is not None and _time(stamp[2] or "") is not None


def _draft(piece: str, *, first: bool) -> _Draft:
    text = piece if piece.isascii() else piece.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    text = text.removeprefix("\ufeff") if first else text
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[0].strip():
        del lines[0]
    if lines and lines[0].startswith("##") and (lines[0].startswith("## ") or lines[0].rstrip() == "##"):
        return _headed(piece, lines[0][2:].strip(), lines[1:])
    text = _COMMENT.sub("", "\n".join(lines))
    text = _TITLE.sub("", text, count=1) if first else text
    return _Draft(piece, None if first and HEADER.startswith(piece) else _content(text.split("\n")))


def _headed(piece: str, heading: str, lines: list[str]) -> _Draft:
    memory_id, created_at, title = _read_heading(heading)
    tags: tuple[str, ...] = ()
    run_id = ""
    if lines and (match := _TAGS.fullmatch(lines[0])):
        tags, lines = _read_tags(match[1]), lines[1:]
    if memory_id and lines and (match := _RUN.fullmatch(lines[0])):
        run_id, lines = _unescaped("\\" + match[1]) if match[1].startswith('"') else match[1].strip(), lines[1:]
    content = _content(lines)
    if title:
        content = title if content is None else f"{title}\n{content}"
    return _Draft(piece, content, memory_id, tags, run_id, created_at)


def _read_heading(heading: str) -> tuple[str, datetime | None, str]:
    """Return the id, the time and the title that the heading gives; what it does not give is empty or None."""
    if stamp := _STAMPED.fullmatch(heading):
        return stamp[1], _time(stamp[2] or ""), ""
    created_at = _time(heading)
    return "", created_at, "" if created_at else heading


def _read_tags(written: str) -> tuple[str, ...]:
    if written.startswith("["):
        try:
            tags = json.loads(written)
        except ValueError:
            written = written.strip("[] \t")
        else:
            return tuple(str(tag) for tag in tags)
    return tuple(tag.strip() for tag in re.split("[,，]", written) if tag.strip())  # noqa: RUF001 - people type it


def _content(lines: list[str]) -> str | None:
    """Return the text between blank lines at both ends and before a rule, or None if there is nothing."""
    lines = _without_blank_end(lines)
    if lines and lines[-1].rstrip() == _RULE:
        lines = _without_blank_end(lines[:-1])
    start = next((number for number, line in enumerate(lines) if line.strip(" \t")), 0)
    return "\n".join(_unescaped(line) for line in lines[start:]) if lines else None


def _without_blank_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip(" \t"):
        end -= 1
    return lines[:end]


def _time(text: str) -> datetime | None:
    try:
        value = datetime.fromisoformat(text)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _complete(drafts: list[_Draft], undated: datetime) -> Iterable[Block]:
    previous = next((draft.created_at for draft in drafts if draft.created_at), undated)
    seen: dict[MemoryId, Memory] = {}
    copies: Counter[str] = Counter()
    for draft in drafts:
        if draft.content is None:
            yield Block(draft.text, None)
            continue
        previous = draft.created_at or previous
        memory = Memory(MemoryId(draft.memory_id), draft.content, draft.tags, previous, draft.run_id)
        earlier = seen.get(memory.memory_id)
        if earlier is not None and (earlier.content, earlier.tags) == (memory.content, memory.tags):
            yield Block(draft.text, None)
            continue
        if earlier is not None or not memory.memory_id:
            copies[memory.content] += 1
            derived = derived_id("mem", _encodable(memory.content), str(copies[memory.content]))
            memory = replace(memory, memory_id=MemoryId(derived))
        seen[memory.memory_id] = memory
        yield Block(draft.text, memory)


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
