r"""The format of MEMORY.md: what people may read and edit, and what content cannot break.

An entry is a heading `## <memory id> · <ISO 8601 time>`, then `tags:`, `run:`, `session:`, `count:`, `merged:` and `also:` lines
if it has them, a blank line, the content, and a rule `---`. A line of content that could be taken for structure, or that an editor
would change (control characters, trailing blanks, a leading `## `, `---` or `\`, a code fence that is not closed), stands as
a backslash and a JSON string, so any content comes back exactly.

What people write is read generously: any `## ` heading begins an entry and `---` ends one, except inside a closed code fence;
text without a heading is an entry too. An entry without an id gets one derived from its content, so it is the same at every
reading; one without a time takes that of the entry before it. What cannot be read as it was meant is a fault with its line;
its text stays. An unfinished last entry of ours (a crash during the write) is no entry, unless it ends with a whole line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct, field
from msgspec.structs import replace

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
_FIELD = re.compile(r"([Tt]ags|run|session|count|merged|also):[ \t]*(.*)")
_TAGS_ONLY = re.compile(r"([Tt]ags):[ \t]*(.*)")
_UNFINISHED_HEADING = re.compile(r"## mem_\S*(?: \S?(?: \S*)?)?")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TITLE = re.compile(r"\A\s*#(?: .*)?$", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\r\n]*)")
_UNDECODED = re.compile("[\udc80-\udcff]")


class MemoryBlock(Struct, frozen=True):
    """A stretch of the file as it stands there, and the memory that it is, if it is one."""

    text: str
    memory: Memory | None
    copy_of: MemoryId | None = None
    """The memory of which it is one more copy, which counts once."""

    @property
    def of(self) -> MemoryId | None:
        """The memory that it is, or is a copy of."""
        return self.memory.memory_id if self.memory is not None else self.copy_of


class ParseProblem(Struct, frozen=True):
    """Something that could not be read as it was meant. `line` counts from 1."""

    line: int
    what: str
    fix: str = ""


class _Draft(Struct, frozen=True):
    """A block before ids and times that it lacks are filled in."""

    text: str
    line: int
    """Of its heading, or of its first line."""
    content: str | None = None
    memory_id: str = ""
    tags: tuple[str, ...] = ()
    run_id: str = ""
    session: str = ""
    count: int = 1
    merged: tuple[MemoryId, ...] = ()
    also: tuple[str, ...] = ()
    created_at: datetime | None = None
    is_unfinished: bool = False
    faults: tuple[ParseProblem, ...] = ()


class MemoryDocument(Struct):
    """A parsed MEMORY.md. The texts of its blocks and `torn`, joined, are the file."""

    blocks: list[MemoryBlock] = field(default_factory=list)
    torn: str = ""
    """An unfinished entry at the end of the file, which counts as none."""
    unfinished: set[MemoryId] = field(default_factory=set)
    """Memories whose entries, of ours, nothing shows to be written to their ends."""
    is_relative: bool = False
    """Whether an entry lacks an id or a time, so that what it is depends on those before it."""
    by_id: dict[MemoryId, Memory] = field(default_factory=dict)
    faults: list[ParseProblem] = field(default_factory=list)
    is_undated: bool = False
    """Whether an entry has no time and none before or after it has one."""
    _lines: int = 0
    _previous: datetime | None = None
    _copies: Counter[str] = field(default_factory=Counter)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Return the memories in the order of the file."""
        return tuple(self.by_id.values())

    @classmethod
    def of(cls, blocks: Sequence[MemoryBlock]) -> MemoryDocument:
        """Return the document of blocks none of which depends on others."""
        document = cls(list(blocks))
        for block in blocks:
            if block.memory is not None:
                document.by_id[block.memory.memory_id] = block.memory
                document._previous = block.memory.created_at
            document._lines += block.text.count("\n")
        return document

    def extend(self, data: bytes, undated: datetime) -> None:
        """Read on: a whole file, or entries of ours that follow what was read, if that is not torn or undated. See `parse`."""
        text = data.decode("utf-8", "surrogateescape")
        whole = text.rstrip("\0")
        zeros = text[len(whole) :]
        is_first = not self.blocks
        pieces, closed = _split(whole, self._lines + 1)
        self._lines += text.count("\n")
        drafts = [_draft(piece, line, first=is_first and at == 0) for at, (piece, line) in enumerate(pieces)]
        self.torn = zeros
        if not closed:
            first = is_first and len(drafts) == 1
            kept, unfinished = _without_unfinished(drafts.pop(), pieces[-1][1], first=first, has_zeros=bool(zeros))
            drafts += [kept] if kept else []
            self.torn = unfinished + zeros
        if self.torn.strip():
            line = self._lines + 1 - self.torn.lstrip("\n").count("\n")
            self.faults.append(ParseProblem(line, "is what a crash left of an entry", "it counts as none"))
        if self._previous is None:
            dated = next((draft.created_at for draft in drafts if draft.created_at), None)
            self.is_undated = dated is None and any(draft.content is not None for draft in drafts)
            self._previous = dated or (undated if self.is_undated else None)
        for draft in drafts:
            self._take(draft)

    def _take(self, draft: _Draft) -> None:
        self.faults += draft.faults
        if draft.content is None:
            if draft.memory_id:
                self.faults.append(ParseProblem(draft.line, f"{draft.memory_id} has no text", "it counts as deleted"))
            self.blocks.append(MemoryBlock(draft.text, None))
            return
        self.is_relative |= not draft.memory_id or draft.created_at is None
        self._previous = draft.created_at or self._previous
        assert self._previous is not None
        memory = Memory(
            MemoryId(draft.memory_id),
            draft.content,
            draft.tags,
            self._previous,
            draft.run_id,
            draft.session,
            draft.count,
            draft.merged,
            draft.also,
        )
        earlier = self.by_id.get(memory.memory_id)
        if earlier is not None and (earlier.content, earlier.tags) == (memory.content, memory.tags):
            self.blocks.append(MemoryBlock(draft.text, None, earlier.memory_id))
            return
        if earlier is not None or not memory.memory_id:
            self.is_relative = True
            self._copies[memory.content] += 1
            derived = derived_id(
                "mem", memory.content.encode("utf-8", "replace").decode("utf-8"), str(self._copies[memory.content])
            )
            memory = replace(memory, memory_id=MemoryId(derived))
        if earlier is not None:
            what = f"the id {earlier.memory_id} is used above for another text"
            self.faults.append(ParseProblem(draft.line, what, f"this entry counts as {memory.memory_id}"))
        if draft.is_unfinished:
            self.unfinished.add(memory.memory_id)
        self.by_id[memory.memory_id] = memory
        self.blocks.append(MemoryBlock(draft.text, memory))


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
    for name, value in (("run", memory.run_id), ("session", memory.session)):
        if value:
            lines.append(f"{name}: {value if _PLAIN.fullmatch(value) else _quoted(value)}")
    if memory.count != 1:
        lines.append(f"count: {memory.count}")
    if memory.merged:
        lines.append(f"merged: {', '.join(memory.merged)}")
    if memory.also:
        lines.append(f"also: [{', '.join(_quoted(text) for text in memory.also)}]")
    lines += ["", *_escaped_lines(memory.content), "", _RULE, ""]
    return "\n".join(lines)


def parse(data: bytes, undated: datetime) -> MemoryDocument:
    """Return what the bytes of a MEMORY.md say; never raises.

    `undated` is the time of entries that have none themselves and no entry with one around them.
    """
    document = MemoryDocument()
    document.extend(data, undated)
    return document


def begins_entry(data: bytes) -> bool:
    """Return whether the bytes begin, after blank lines, with the heading of an entry of ours."""
    first = data.lstrip(b"\n").partition(b"\n")[0]
    return _is_stamped(first.decode("utf-8", "replace"))


def _quoted(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _escaped_lines(content: str) -> list[str]:
    """Return the content's lines, those as a backslash and a JSON string that could be taken for structure or be changed."""
    lines = content.split("\n")
    open_fence = ""
    for line in lines:
        fence = _FENCE.match(line)
        if fence is not None and not open_fence:
            open_fence = "" if _is_no_fence(fence) else fence[1]
        elif fence is not None and _closes(fence, open_fence):
            open_fence = ""
    escaped: list[str] = []
    for number, line in enumerate(lines):
        is_blank_end = not line and number in {0, len(lines) - 1}
        is_structure = line.startswith(("\\", "## ", _RULE)) or line == "##" or (open_fence and _FENCE.match(line))
        is_fragile = line.endswith((" ", "\t")) or _UNSAFE.search(line)
        escaped.append("\\" + _quoted(line) if is_blank_end or is_structure or is_fragile else line)
    return escaped


def _split(text: str, first_line: int) -> tuple[list[tuple[str, int]], bool]:
    """Return the texts of the blocks with the lines where they begin, and whether a rule ends the last."""
    lines = _lines(text)
    fenced = _fenced(lines) if "```" in text or "~~~" in text else frozenset()
    pieces: list[tuple[str, int]] = []
    begin, blank, closed = 0, True, True
    for number, line in enumerate(lines):
        if number in fenced:
            blank = closed = False
            continue
        bare = line.rstrip()
        if not blank and (line.startswith("## ") or bare == "##"):
            pieces.append(("".join(lines[begin:number]), first_line + begin))
            begin = number
        blank = blank and not bare
        closed = bare == _RULE
        if closed:
            pieces.append(("".join(lines[begin : number + 1]), first_line + begin))
            begin, blank = number + 1, True
    rest = "".join(lines[begin:])
    if not blank or not pieces:
        pieces.append((rest, first_line + begin))
    elif rest:
        pieces[-1] = (pieces[-1][0] + rest, pieces[-1][1])
        closed = True
    return pieces, closed


def _lines(text: str) -> list[str]:
    *ended, rest = text.split("\n")
    return [*(line + "\n" for line in ended), *([rest] if rest else [])]


def _fenced(lines: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the lines of code fences that are closed before the next entry of ours."""
    inside: set[int] = set()
    number = 0
    hopeless: dict[str, tuple[int, int]] = {}
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None or _is_no_fence(fence):
            number += 1
            continue
        mark = fence[1]
        length, until = hopeless.get(mark[0], (0, 0))
        end = None if number < until and len(mark) >= length else _fence_end(lines, number, mark)
        if end is None:
            after = range(number + 1, len(lines))
            next_entry = next((each for each in after if _is_stamped(lines[each])), len(lines))
            hopeless[mark[0]] = (len(mark), max(until, next_entry))
            number += 1
        else:
            inside.update(range(number, end + 1))
            number = end + 1
    return frozenset(inside)


def _is_no_fence(fence: re.Match[str]) -> bool:
    return fence[1][0] == "`" and "`" in fence[2]


def _closes(fence: re.Match[str], mark: str) -> bool:
    return fence[1].startswith(mark) and not fence[2].strip()


def _fence_end(lines: Sequence[str], begin: int, mark: str) -> int | None:
    for number in range(begin + 1, len(lines)):
        fence = _FENCE.match(lines[number])
        if fence is not None and _closes(fence, mark):
            return number
        if _is_stamped(lines[number]):
            return None
    return None


def _is_stamped(line: str) -> bool:
    if not line.startswith("## mem_"):
        return False
    stamp = _STAMPED.fullmatch(line[3:].rstrip())
    return stamp is not None and _time(stamp[2] or "") is not None


def _without_unfinished(draft: _Draft, line: int, *, first: bool, has_zeros: bool) -> tuple[_Draft | None, str]:
    """Return the last block, which no rule ends, in two: what counts, and what a crash left of an entry of ours."""
    piece = draft.text
    heading, newline, _ = piece.lstrip().partition("\n")
    if not newline:
        is_torn = "## mem_".startswith(heading) or _UNFINISHED_HEADING.fullmatch(heading) is not None
    else:
        is_torn = _is_stamped(heading) and (has_zeros or draft.content is None or not piece.endswith("\n"))
    if is_torn:
        return None, piece
    before, newline, last = piece.rpartition("\n")
    if last != "#":
        return draft, ""
    if not before.strip():
        return None, piece
    return _draft(before + newline, line, first=first), last


def _draft(piece: str, line: int, *, first: bool) -> _Draft:
    text, faults = piece, []
    if match := _UNDECODED.search(piece):
        text = piece.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        faults.append(ParseProblem(line + piece.count("\n", 0, match.start()), "is no UTF-8", "it is read with \ufffd"))
    text = text.removeprefix("\ufeff") if first else text
    lines = [each.removesuffix("\r") for each in text.split("\n")]
    blanks = 0
    while blanks < len(lines) and not lines[blanks].strip():
        blanks += 1
    line, lines = line + blanks, lines[blanks:]
    if lines and lines[0].startswith("##") and (lines[0].startswith("## ") or lines[0].rstrip() == "##"):
        return _headed(piece, line, lines, faults)
    if first and HEADER.startswith(piece):
        return _Draft(piece, line)
    text = _COMMENT.sub("", "\n".join(lines))
    text = _TITLE.sub("", text, count=1) if first else text
    content, broken = _content(text.split("\n"), line)
    return _Draft(piece, line, content, faults=(*faults, *broken))


def _headed(piece: str, line: int, lines: Sequence[str], faults: list[ParseProblem]) -> _Draft:
    heading = lines[0][2:].strip()
    if stamp := _STAMPED.fullmatch(heading):
        memory_id, created_at, title = stamp[1], _time(stamp[2] or ""), ""
    else:
        memory_id, created_at = "", _time(heading)
        title = "" if created_at else heading
    if memory_id and created_at is None:
        faults.append(
            ParseProblem(line, f"{memory_id} has no time that is ISO 8601", "it takes that of the entry before")
        )
    is_unfinished = bool(memory_id) and created_at is not None and not piece.rstrip().endswith("\n" + _RULE)
    if is_unfinished:
        faults.append(ParseProblem(line, f"{memory_id} has no rule --- at its end", "it may have been cut"))
    if title.startswith("mem_"):
        faults.append(ParseProblem(line, f"{heading!r} begins like an id and is none", "it is read as a title"))
    values: dict[str, str] = {}
    at = 1
    for each in lines[1:]:
        match = (_FIELD if memory_id else _TAGS_ONLY).fullmatch(each)
        if match is None or match[1].lower() in values:
            break
        values[match[1].lower()] = match[2]
        at += 1
    fields = _Fields(values, line, faults)
    content, broken = _content(lines[at:], line + at)
    if title:
        content = title if content is None else f"{title}\n{content}"
    return _Draft(
        piece,
        line,
        content,
        memory_id,
        fields.tags(),
        fields.text("run"),
        fields.text("session"),
        fields.count(),
        fields.merged(),
        fields.also(),
        created_at,
        is_unfinished,
        (*faults, *broken),
    )


class _Fields(Struct, frozen=True):
    """The lines between an entry's heading and its content."""

    written: dict[str, str]
    heading: int
    """The line of the heading; the fields follow in their order."""
    faults: list[ParseProblem]

    def tags(self) -> tuple[str, ...]:
        written = self.written.get("tags", "")
        if written.startswith("["):
            try:
                return tuple(str(tag) for tag in json.loads(written))
            except ValueError:
                self._fault("tags", "is no JSON list", "it is cut at the commas")
                written = written.strip("[] \t")
        return tuple(tag.strip() for tag in re.split("[,，]", written) if tag.strip())  # noqa: RUF001 - people type it

    def text(self, name: str) -> str:
        written = self.written.get(name, "").strip()
        if not written.startswith('"'):
            return written
        try:
            return str(json.loads(written))
        except ValueError:
            self._fault(name, "is no JSON string", "it is read as it stands")
            return written

    def count(self) -> int:
        written = self.written.get("count", "1").strip()
        if written.isdecimal() and int(written[:18]) > 0:
            return int(written[:18])
        self._fault("count", "is no number from 1 up", "it counts as 1")
        return 1

    def merged(self) -> tuple[MemoryId, ...]:
        ids = tuple(each for part in self.written.get("merged", "").split(",") if (each := part.strip()))
        if any(not _ID.fullmatch(each) for each in ids):
            self._fault("merged", "is no list of memory ids", "what is none is left out")
        return tuple(MemoryId(each) for each in ids if _ID.fullmatch(each))

    def also(self) -> tuple[str, ...]:
        written = self.written.get("also", "").strip()
        try:
            texts = json.loads(written or "[]")
        except ValueError:
            texts = None
        if isinstance(texts, list):
            return tuple(str(text) for text in texts)
        self._fault("also", "is no JSON list", "it is read as one text")
        return (written,)

    def _fault(self, name: str, what: str, fix: str) -> None:
        line = self.heading + 1 + list(self.written).index(name)
        self.faults.append(ParseProblem(line, f"{name}: {self.written[name]!r} {what}", fix))


def _content(lines: Sequence[str], first_line: int) -> tuple[str | None, Sequence[ParseProblem]]:
    """Return the text between blank lines at both ends and before a rule, None if there is nothing, and its faults."""
    lines = _without_blank_end(lines)
    if lines and lines[-1].rstrip() == _RULE:
        lines = _without_blank_end(lines[:-1])
    if not lines:
        return None, ()
    start = next((number for number, line in enumerate(lines) if line.strip(" \t")), 0)
    faults, read = [], []
    for number, line in enumerate(lines[start:], first_line + start):
        text = line
        if line.startswith('\\"'):
            try:
                text = str(json.loads(line[1:]))
            except ValueError:
                what = "begins with a backslash and is no JSON string"
                faults.append(ParseProblem(number, what, "it is read as it stands"))
        read.append(text)
    return "\n".join(read), faults


def _without_blank_end(lines: Sequence[str]) -> Sequence[str]:
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
