"""What every Store promises about attempts at tool calls, as tests."""

from __future__ import annotations

from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AttemptBegun,
    AttemptRevoked,
    AttemptsForgotten,
    BeginAttempt,
    ForgetAttempts,
    RevokeAttempt,
)
from tests.contracts.store_commands import one


class AttemptContract:
    """Of two who name an attempt, one is first, and stays it."""

    async def test_an_attempt_that_began_is_not_revoked_any_more_and_its_age_grows(self, store: Store) -> None:
        assert isinstance(await one(store, BeginAttempt("try_1")), AttemptBegun)

        first, second = await one(store, RevokeAttempt("try_1")), await one(store, RevokeAttempt("try_1"))

        assert isinstance(first, AttemptBegun)
        assert isinstance(second, AttemptBegun)
        assert 0 <= first.seconds <= second.seconds < 60

    async def test_an_attempt_that_was_revoked_never_begins(self, store: Store) -> None:
        assert await one(store, RevokeAttempt("try_1")) == AttemptRevoked()
        assert await one(store, BeginAttempt("try_1")) == AttemptRevoked()
        assert await one(store, RevokeAttempt("try_1")) == AttemptRevoked()
        assert isinstance(await one(store, BeginAttempt("try_2")), AttemptBegun)

    async def test_to_begin_again_because_the_answer_was_lost_is_to_have_begun(self, store: Store) -> None:
        await one(store, BeginAttempt("try_1"))

        assert isinstance(await one(store, BeginAttempt("try_1")), AttemptBegun)

    async def test_in_one_batch_the_first_is_first(self, store: Store) -> None:
        revoked, too_late, begun, too_late_again = await store.apply(
            [RevokeAttempt("try_1"), BeginAttempt("try_1"), BeginAttempt("try_2"), RevokeAttempt("try_2")]
        )

        assert (revoked, too_late) == (AttemptRevoked(), AttemptRevoked())
        assert isinstance(begun, AttemptBegun)
        assert isinstance(too_late_again, AttemptBegun)

    async def test_of_an_attempt_that_is_forgotten_nothing_is_known(self, store: Store) -> None:
        await store.apply([BeginAttempt("try_1"), RevokeAttempt("try_2"), BeginAttempt("try_3")])

        assert await one(store, ForgetAttempts(("try_1", "try_2", "try_4"))) == AttemptsForgotten()

        assert await one(store, RevokeAttempt("try_1")) == AttemptRevoked()
        assert isinstance(await one(store, BeginAttempt("try_2")), AttemptBegun)
        assert isinstance(await one(store, RevokeAttempt("try_3")), AttemptBegun)
