"""The index of runs by the words of their focus: a row of `focus_terms` for each word of each run.

A term is a number: which 4,096 runs the run is among, in the upper bits, and 40 bits of the word's hash. So the runs that are accepted now
write the same few pages, however long the index is, and what has a word is read from the newest runs backwards, as far as is wanted.
Hashes of different words may be equal: who finds a run this way looks at its focus too. Heartbeats have no terms: there are many,
they are removed one by one, and their focus is their definition's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from owlclaw_ray.domain.focus import index_terms
from owlclaw_ray.domain.trigger import TriggerKind

_WORD_BITS, _BUCKET_BITS = 40, 12


def bucket_of(seq: int) -> int:
    """Return which runs the run with that number is among."""
    return seq >> _BUCKET_BITS


def first_of(bucket: int) -> int:
    """Return the lowest number of a run in the bucket."""
    return bucket << _BUCKET_BITS


@lru_cache(maxsize=65_536)
def word_hash(word: str) -> int:
    """Return the part of a term that is the word's."""
    return int.from_bytes(blake2b(word.encode(), digest_size=_WORD_BITS // 8).digest())


def term_of(bucket: int, word: int) -> int:
    """Return the term of a word's hash for the runs of a bucket."""
    return bucket << _WORD_BITS | word


def term_rows(tenant: str, seq: int, kind: TriggerKind, focus: str) -> Iterator[tuple[str, int, int]]:
    """Yield the rows of a run."""
    if kind is not TriggerKind.HEARTBEAT:
        bucket = bucket_of(seq)
        for word in index_terms(focus):
            yield tenant, term_of(bucket, word_hash(word)), seq
