"""When a failed model attempt is made again."""

from __future__ import annotations

from msgspec import Struct


class RetryPolicy(Struct, frozen=True):
    """Exponential backoff with jitter. Times in seconds."""

    attempts: int = 3
    """At each model, the first one included; at least 1."""
    base: float = 0.5
    """The longest wait before the second attempt; each further one is twice as long."""
    cap: float = 20.0
    """No wait is longer, whatever the backoff or the provider asks for."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base < 0 or self.cap < 0:
            raise ValueError(f"a retry policy needs attempts of at least 1 and times of at least 0, not {self}")

    def delay(self, attempt: int, jitter: float, retry_after: float | None = None) -> float:
        """Return how long to wait after failed attempt number `attempt` (from 1), given a jitter in [0, 1).

        The upper half of the backoff is spread by the jitter. A provider's `retry_after` is waited for at least.
        """
        backoff = self.base * 2.0 ** min(attempt - 1, 64) * (1.0 + jitter) / 2.0
        return min(self.cap, max(backoff, retry_after or 0.0))
