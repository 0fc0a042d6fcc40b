"""Identifiers: their types, and the two ways to make them.

Random ids name what happens once (a run, an activation). Derived ids name what must come out the same when it is
done again (the schedule that a retried tool call creates), and so carry idempotency.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import NewType, Protocol

TenantId = NewType("TenantId", str)
AgentId = NewType("AgentId", str)
RunId = NewType("RunId", str)
ActivationId = NewType("ActivationId", str)
ScheduleId = NewType("ScheduleId", str)
FiringId = NewType("FiringId", str)
MemoryId = NewType("MemoryId", str)
RecordId = NewType("RecordId", str)
ToolCallId = NewType("ToolCallId", str)
ApprovalId = NewType("ApprovalId", str)
RequestId = NewType("RequestId", str)
ArtifactId = NewType("ArtifactId", str)
ReservationId = NewType("ReservationId", str)
TaskId = NewType("TaskId", str)
DeliveryId = NewType("DeliveryId", str)
CallbackId = NewType("CallbackId", str)
KeyId = NewType("KeyId", str)

DEFAULT_TENANT = TenantId("default")

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


class IdSource(Protocol):
    """Makes ids that were never made before."""

    def make(self, prefix: str) -> str:
        """Return `<prefix>_<unique>`. Ids of one source sort in the order of their making, to the millisecond."""
        ...


class RandomIds:
    """Time-sorted random ids: 48 bits of milliseconds, 80 bits of randomness (the layout of ULID)."""

    def make(self, prefix: str) -> str:
        """Return an id such as `run_01jd4k…`."""
        value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        digits = []
        for _ in range(26):
            value, digit = divmod(value, 32)
            digits.append(_CROCKFORD[digit])
        return f"{prefix}_{''.join(reversed(digits))}"


def derived_id(prefix: str, *parts: str) -> str:
    """Return the id that these parts always give. Parts are length-prefixed, so no two lists of parts collide by joining."""
    encoded = [part.encode() for part in parts]
    framed = b"".join([piece for part in encoded for piece in (len(part).to_bytes(8), part)])
    return f"{prefix}_{hashlib.sha256(framed).hexdigest()[:26]}"
