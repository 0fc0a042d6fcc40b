"""Commands about attempts at tool calls: of two who name an attempt, the one who is to run it and the one who gives it up, one is first."""

from __future__ import annotations

from msgspec import Struct


class BeginAttempt(Struct, frozen=True):
    """Have the attempt begin, for who is to run it. Outcome: AttemptBegun, or AttemptRevoked if it must not run."""

    attempt: str


class RevokeAttempt(Struct, frozen=True):
    """Have the attempt never begin, for who has lost it. Outcome: AttemptRevoked, or AttemptBegun if it was too late for that."""

    attempt: str


class AttemptBegun(Struct, frozen=True):
    """The attempt has begun: the beginning came first."""

    seconds: float
    """How long ago, by the clock of the database."""


class AttemptRevoked(Struct, frozen=True):
    """The attempt has not begun, and never will."""


class ForgetAttempts(Struct, frozen=True):
    """Remove what is known of attempts that are over: nobody will name them again. Outcome: AttemptsForgotten.

    What nobody asks to forget is removed when it is 30 days old.
    """

    attempts: tuple[str, ...]


class AttemptsForgotten(Struct, frozen=True):
    """Nothing is known of the attempts any more."""
