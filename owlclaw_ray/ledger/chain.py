"""The ledger's hash chain: each record's hash covers the record and the hash before it.

A chain belongs to a tenant and a writer. Its head (last position and hash) is kept beside the records, in the transaction
that adds them, so that a removed tail is found as well as a record that was changed, removed, inserted or moved.

A record's hash covers its position, so one edit that renumbers what follows breaks every hash after it. To name the edit and
not its consequences, each record is looked for at the position where its hash holds: its origin. Records whose hash holds
nowhere near, the suspects, were changed if nothing else has their place, and else inserted. What was inserted is compared
with what is missing in the end: a match was moved. Records with a right hash that no other record follows were replaced, or
inserted, by an attacker who can compute hashes. One who recomputes all of them, and the head, leaves no trace in the chain
itself: against that, heads are noted elsewhere, and compared.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC

import orjson
from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import BreakKind, ChainBreak, ChainedRecord, LedgerRecord, NotedHead
from owlclaw_ray.ids import RecordId, TenantId

GENESIS = hashlib.sha256(b"owlclaw ledger").hexdigest()
"""The hash before the first record of every chain."""
_NEAR = 16
"""How many positions ahead a record's origin is looked for."""
_RECENT = 64
"""How many accepted records can still turn out to be inserted ones."""
_COMPARED = 10_000
"""How many pairs of an inserted record and a missing position are compared."""


class ChainHead(Struct, frozen=True):
    """The end of a chain: the position and hash of its last record."""

    tenant: TenantId
    writer: str
    position: int = 0
    hash: str = GENESIS


def canonical_data(data: JsonObject) -> bytes:
    """Return the one JSON text of the data, whatever the order of its keys; raises TypeError for what is no JSON."""
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS)


def next_hash(head: ChainHead, record: LedgerRecord, data: bytes) -> str:
    """Return the hash of the record that follows the head; `data` is its canonical data."""
    covered = orjson.dumps(
        [
            head.hash,
            record.tenant,
            head.writer,
            head.position + 1,
            record.record_id,
            record.agent_id,
            record.run_id,
            record.kind.value,
            record.at.astimezone(UTC),
            orjson.Fragment(data),
        ]
    )
    return hashlib.sha256(covered).hexdigest()


def chain(head: ChainHead, record: LedgerRecord) -> tuple[ChainHead, ChainedRecord]:
    """Return the chain's new head, and the record in its place."""
    digest = next_hash(head, record, canonical_data(record.data))
    after = ChainHead(head.tenant, head.writer, head.position + 1, digest)
    return after, ChainedRecord(record, head.writer, after.position, head.hash, digest)


class ChainVerifier:
    """Follows one chain, record by record in the order of their positions. Each damage is reported once, at its position.

    It keeps what it needs of the damages and of the last few records, not the chain.
    """

    def __init__(self, tenant: TenantId, writer: str) -> None:
        self._head = ChainHead(tenant, writer)
        """The last record that was accepted, at its origin."""
        self._shift = 0
        """How much higher that record stands than its origin."""
        self._recent: deque[tuple[int, ChainedRecord]] = deque(maxlen=_RECENT)
        self._suspects: list[ChainedRecord] = []
        self._inserted: list[ChainedRecord] = []
        self._missing: list[range] = []
        self._changed: dict[int, ChainBreak] = {}

    def follow(self, record: ChainedRecord) -> None:
        """Take the next record."""
        origin = self._origin(record)
        if origin is None:
            self._suspects.append(record)
            return
        if origin == self._head.position + 1:
            self._link(record.previous_hash)
        self._settle_suspected(origin)
        self._recent.append((origin, record))
        self._head = replace(self._head, position=origin, hash=record.hash)
        self._shift = record.position - origin

    def finish(self, end: ChainHead) -> list[ChainBreak]:
        """Compare what was followed with the recorded end of the chain, and return all breaks in the order of their positions."""
        head = self._head
        if head.position == end.position:
            self._link(end.hash)
        self._settle_suspected(max(end.position, head.position) + 1)
        breaks = [*self._changed.values(), *self._moved()]
        breaks += [self._broken(BreakKind.REMOVED, each.start, _gap(each)) for each in self._missing]
        breaks += [self._about(BreakKind.INSERTED, each, "was inserted") for each in self._inserted]
        if head.position > end.position:
            first = end.position + 1
            which = f"record {first} comes" if head.position == first else f"records {first} to {head.position} come"
            breaks.append(self._broken(BreakKind.INSERTED, first, f"{which} after the recorded end of the chain"))
        return sorted(breaks, key=lambda each: each.position)

    def _holds(self, record: ChainedRecord, position: int) -> bool:
        before = replace(self._head, position=position - 1, hash=record.previous_hash)
        return next_hash(before, record.record, canonical_data(record.record.data)) == record.hash

    def _origin(self, record: ChainedRecord) -> int | None:
        """Return the position beyond the accepted ones at which the record's hash holds, if there is one nearby."""
        expected = record.position - self._shift
        if expected > self._head.position and self._holds(record, expected):
            return expected
        near = {record.position, *range(self._head.position + 1, self._head.position + 1 + _NEAR)}
        return next((each for each in sorted(near) if each > self._head.position and self._holds(record, each)), None)

    def _link(self, previous_hash: str) -> None:
        """Have the accepted records end in that hash: exchange those that do not lead to it for suspects that do."""
        if self._head.hash == previous_hash:
            return
        if not self._recent:
            self._changed.setdefault(1, self._broken(BreakKind.CHANGED, 1, "record 1 does not begin the chain"))
            return
        wanted, rightful_ones = previous_hash, list[tuple[int, ChainedRecord]]()
        while self._recent and self._recent[-1][1].hash != wanted:
            position, accepted = self._recent[-1]
            rightful = next(
                (each for each in self._suspects if each.hash == wanted and self._holds(each, position)), None
            )
            if rightful is None:
                said = "was replaced: what follows it followed another"
                self._changed.setdefault(position, self._about(BreakKind.CHANGED, accepted, said))
                break
            self._recent.pop()
            self._inserted.append(accepted)
            self._suspects.remove(rightful)
            rightful_ones.append((position, rightful))
            wanted = rightful.previous_hash
        self._recent.extend(reversed(rightful_ones))

    def _settle_suspected(self, origin: int) -> None:
        """Decide about the suspects before a record of that origin, and about the places between it and the last one."""
        free = range(self._head.position + 1, origin)
        places = set[int]()
        for suspect in self._suspects:
            place = suspect.position - self._shift
            if place in free and place not in places:
                places.add(place)
                self._changed[place] = self._about(BreakKind.CHANGED, suspect, "was changed")
            else:
                self._inserted.append(suspect)
        self._suspects = []
        self._missing += _without(free, places)

    def _moved(self) -> Iterator[ChainBreak]:
        """Match what was inserted with what is missing."""
        missing = sum(map(len, self._missing))
        if not missing or len(self._inserted) * missing > _COMPARED:
            return
        for record in list(self._inserted):
            places = (place for gap in self._missing for place in gap if self._holds(record, place))
            place = next(places, None)
            if place is not None:
                self._inserted.remove(record)
                self._missing = [rest for gap in self._missing for rest in _without(gap, {place})]
                yield self._about(BreakKind.MOVED, record, f"was moved here from position {place}")

    def _about(self, kind: BreakKind, record: ChainedRecord, said: str) -> ChainBreak:
        record_id = record.record.record_id
        return self._broken(kind, record.position, f"record {record_id} {said}", record_id)

    def _broken(self, kind: BreakKind, position: int, problem: str, record_id: RecordId | None = None) -> ChainBreak:
        return ChainBreak(self._head.tenant, self._head.writer, position, problem, kind, record_id)


class ChainCheck:
    """Says where one chain does not hold, from its records in the order of their positions, some at a time, and its recorded end.

    `noted` are ends that the chain had earlier: of those that it does not agree with, the first is reported.
    """

    def __init__(self, tenant: TenantId, writer: str, noted: Sequence[NotedHead] = ()) -> None:
        self._verifier = ChainVerifier(tenant, writer)
        self._noted = sorted(noted, key=lambda each: each.position)
        self._wanted = {head.position for head in noted}
        self._hashes = dict[int, str]()

    def follow(self, records: Iterable[ChainedRecord]) -> None:
        """Take the next records."""
        for record in records:
            if record.position in self._wanted:
                self._hashes[record.position] = record.hash
            self._verifier.follow(record)

    def finish(self, end: ChainHead) -> tuple[ChainBreak, ...]:
        """Return all breaks of what was followed."""
        breaks = self._verifier.finish(end)
        first_break = min((each.position for each in breaks), default=end.position + 1)
        for head in self._noted:
            if head.position > end.position:
                gap = range(end.position + 1, head.position + 1)
                said = f"{_gap(gap)}: the chain ended in record {head.position} at {head.at.isoformat()}"
                return (*breaks, ChainBreak(end.tenant, end.writer, gap.start, said, BreakKind.REMOVED))
            if head.position < first_break and self._hashes.get(head.position) != head.hash:
                said = f"record {head.position} had another hash at {head.at.isoformat()}: the records up to it were rewritten"
                broken = ChainBreak(end.tenant, end.writer, head.position, said, BreakKind.CHANGED)
                return tuple(sorted((*breaks, broken), key=lambda each: each.position))
        return tuple(breaks)


def verify(records: Iterable[ChainedRecord], end: ChainHead, noted: Sequence[NotedHead] = ()) -> tuple[ChainBreak, ...]:
    """Return where one chain does not hold, see ChainCheck."""
    check = ChainCheck(end.tenant, end.writer, noted)
    check.follow(records)
    return check.finish(end)


def _without(gap: range, taken: set[int]) -> Iterator[range]:
    """Yield the parts of the gap between the positions that are taken."""
    start = gap.start
    for place in sorted(taken):
        if start < place:
            yield range(start, place)
        start = place + 1
    if start < gap.stop:
        yield range(start, gap.stop)


def _gap(gap: range) -> str:
    return f"record {gap.start} is missing" if len(gap) == 1 else f"records {gap.start} to {gap[-1]} are missing"
