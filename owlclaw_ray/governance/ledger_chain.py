"""The ledger's hash chain: each record's hash covers the record and the hash before it.

A chain belongs to a tenant and a writer. Its head (last position and hash) is kept beside the records, in the transaction
that adds them, so that a removed tail is found as well as a record that was changed, removed, inserted or moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC

import orjson

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerRecord
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ports.store import ChainBreak

GENESIS = hashlib.sha256(b"owlclaw ledger").hexdigest()
"""The hash before the first record of every chain."""


@dataclass(frozen=True, slots=True)
class ChainHead:
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
    """Follows one chain, record by record in the order of their positions. Each damage is told once: after a break the
    chain is followed from what the record itself says.
    """

    def __init__(self, tenant: TenantId, writer: str) -> None:
        self._head = ChainHead(tenant, writer)

    def follow(self, record: ChainedRecord) -> Iterator[ChainBreak]:
        """Take the next record and yield what is wrong with it or missing before it."""
        head, expected = self._head, self._head.position + 1
        if record.position != expected:
            yield self._broken(expected, _gap(expected, record.position - 1))
        elif record.previous_hash != head.hash:
            yield self._broken(record.position, "does not follow the record before it")
        before = ChainHead(head.tenant, head.writer, record.position - 1, record.previous_hash)
        if next_hash(before, record.record, canonical_data(record.record.data)) != record.hash:
            yield self._broken(record.position, f"record {record.record.record_id} was changed")
        self._head = ChainHead(head.tenant, head.writer, record.position, record.hash)

    def finish(self, end: ChainHead) -> Iterator[ChainBreak]:
        """Compare what was followed with the recorded end of the chain."""
        head = self._head
        if head.position < end.position:
            yield self._broken(head.position + 1, _gap(head.position + 1, end.position))
        elif head.position > end.position:
            yield self._broken(end.position + 1, "records follow the recorded end of the chain")
        elif head.hash != end.hash:
            yield self._broken(head.position, "is not the recorded end of the chain")

    def _broken(self, position: int, problem: str) -> ChainBreak:
        return ChainBreak(self._head.tenant, self._head.writer, position, problem)


def verify(records: Iterable[ChainedRecord], end: ChainHead) -> tuple[ChainBreak, ...]:
    """Return where one chain does not hold, from its records in the order of their positions and its recorded end."""
    verifier = ChainVerifier(end.tenant, end.writer)
    breaks = [each for record in records for each in verifier.follow(record)]
    return (*breaks, *verifier.finish(end))


def _gap(first: int, last: int) -> str:
    return f"record {first} is missing" if first >= last else f"records {first} to {last} are missing"
