from __future__ import annotations

import asyncio
import base64

import pytest

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.keys import AccessKeys, KeyRequest
from owlclaw_ray.access.sessions import Sessions
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.errors import UnauthenticatedError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.store.queries import KeyById, LedgerFilter
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from tests.world import InlineDatabase

_DATABASE = InlineDatabase()


class World:
    """Two replicas that share a store and a clock."""

    def __init__(self) -> None:
        _DATABASE.empty()
        self.store, self.clock = SqlStore(_DATABASE, "test", TenantRedactors(Redactor)), ManualClock()
        ids = SequentialIds()
        self.keys = AccessKeys(self.store, self.clock, ids)
        authenticators = [Authenticator(self.store, self.clock, ids) for _ in range(2)]
        self.one, self.other = (Sessions(self.store, each, self.clock, ids) for each in authenticators)
        self.authenticator = authenticators[1]

    async def key(self) -> str:
        return (await self.keys.create(LOCAL, KeyRequest("ada", ("operator",)))).text

    async def begun(self) -> int:
        found = await self.store.read(LedgerFilter(DEFAULT_TENANT))
        return sum(each.record.data["what"] == "session_begun" for each in found)


@pytest.fixture
def world():
    return World()


async def test_a_session_of_one_replica_is_the_key_to_another_for_twelve_hours(world):
    key = await world.key()

    session = await world.one.begin(key)

    assert await world.other.key_of(session) == key
    await world.clock.advance(12 * 3_600 - 1)
    assert await world.other.key_of(session) == key
    await world.clock.advance(2)
    assert await world.other.key_of(session) is None
    assert await world.one.key_of(session) is None
    assert await world.begun() == 1


@pytest.mark.parametrize("end", ["revoke", "rotate"])
async def test_the_end_of_the_key_ends_its_sessions_within_five_seconds(world, end):
    key = await world.key()
    session, key_id = await world.one.begin(key), key.split("_")[1]
    assert (await world.authenticator.principal_of(await world.other.key_of(session))).name == "ada"

    await (world.keys.revoke(LOCAL, key_id) if end == "revoke" else world.keys.rotate(LOCAL, key_id, 0))
    await world.clock.advance(5)

    with pytest.raises(UnauthenticatedError):
        await world.authenticator.principal_of(await world.other.key_of(session))


async def test_a_session_of_a_rotated_key_lasts_as_long_as_its_old_secret(world):
    key = await world.key()
    session, key_id = await world.one.begin(key), key.split("_")[1]

    await world.keys.rotate(LOCAL, key_id, 60)

    assert await world.other.key_of(session) == key
    await world.clock.advance(5)
    assert (await world.authenticator.principal_of(key)).name == "ada"
    await world.clock.advance(60)
    with pytest.raises(UnauthenticatedError):
        await world.authenticator.principal_of(key)


async def test_what_was_changed_made_up_or_made_for_something_else_is_no_session(world):
    key = await world.key()
    session, code = await world.one.begin(key), await world.one.code(key)
    key_id, _, sealed = session.partition(".")
    other_id = (await world.key()).split("_")[1]
    raw = bytearray(base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)))
    raw[-1] ^= 1
    changed = f"{key_id}.{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"

    for made_up in (
        "",
        ".",
        "a.b",
        key,
        code,
        changed,
        f"{other_id}.{sealed}",
        f"none.{sealed}",
        f"{key_id}.é",
        session[:20],
    ):
        assert await world.other.key_of(made_up) is None
    with pytest.raises(UnauthenticatedError):
        await world.other.redeem(session)


async def test_neither_the_store_nor_a_session_tells_the_key(world):
    key = await world.key()
    session = await world.one.begin(key)
    secret = key.split("_")[2]

    stored = await world.store.read(KeyById(key.split("_")[1]))

    sealed = session.partition(".")[2]
    assert secret.encode() not in base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
    assert secret not in str(stored)
    assert secret not in str(await world.store.read(LedgerFilter(DEFAULT_TENANT)))


async def test_a_code_begins_one_session_whoever_comes_first(world):
    key = await world.key()
    code = await world.one.code(key)

    outcomes = await asyncio.gather(world.one.redeem(code), world.other.redeem(code), return_exceptions=True)

    (session,) = [each for each in outcomes if isinstance(each, str)]
    assert sum(isinstance(each, UnauthenticatedError) for each in outcomes) == 1
    assert await world.other.key_of(session) == key
    with pytest.raises(UnauthenticatedError, match="owlclaw console"):
        await world.one.redeem(code)
    assert await world.begun() == 1


async def test_a_code_is_valid_for_a_minute(world):
    code = await world.one.code(await world.key())
    await world.clock.advance(61)

    with pytest.raises(UnauthenticatedError):
        await world.one.redeem(code)


@pytest.mark.parametrize("given", ["", "nonsense", "a.b.c"])
async def test_only_a_key_begins_a_session(world, given):
    for attempt in (world.one.begin, world.one.code, world.one.redeem):
        with pytest.raises(UnauthenticatedError):
            await attempt(given)
