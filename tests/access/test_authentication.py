from __future__ import annotations

import asyncio
import hmac
from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.access.authentication import FRESH_SECONDS, Authenticator
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.access_key import make_secret
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.errors import StoreUnavailableError, UnauthenticatedError
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from tests.access.test_keys import CI, World

ACME = TenantId("acme")
WITHIN = 5.0
"""Seconds after which a change is seen everywhere."""


class Gate(World):
    """A world with an authenticator, whose reads are counted and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.authenticator = Authenticator(self.store, self.clock, self.ids)
        self.reads, self.read, self.broken, self.held = [], self.store.read, False, None
        self.store.read = self._read

    async def _read(self, query):
        self.reads.append(type(query).__name__)
        if self.held is not None:
            await self.held.wait()
        if self.broken:
            raise StoreUnavailableError("the store is away")
        return await self.read(query)

    async def lets_in(self, key):
        remembered = self.authenticator.remembered(key)
        try:
            principal = await self.authenticator.principal_of(key)
        except UnauthenticatedError:
            assert remembered is None
            return False
        assert remembered in {None, principal}
        return True


@pytest.fixture
def gate():
    return Gate()


async def test_where_others_reach_the_server_nobody_is_let_in_without_a_key_even_while_there_are_none(gate):
    gate.authenticator = Authenticator(gate.store, gate.clock, gate.ids, keys_required=True)

    assert not await gate.lets_in(None)
    assert await gate.lets_in((await gate.keys.create(LOCAL, CI)).text)


async def test_both_secrets_of_a_key_are_compared_in_constant_time_whichever_it_is(gate, monkeypatch):
    first = await gate.keys.create(LOCAL, CI)
    second = await gate.keys.rotate(LOCAL, first.key.key_id, 3_600)
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))

    for text in (first.text, second.text, make_secret(first.key.key_id, lambda size: b"\1" * size)[0]):
        compared.clear()
        await gate.lets_in(text)
        assert len(compared) == 2


async def test_a_request_that_is_not_of_this_machine_needs_a_key_even_while_there_are_none(gate):
    with pytest.raises(UnauthenticatedError):
        await gate.authenticator.principal_of(None, local=False)


async def test_nobody_needs_a_key_until_there_is_one_and_then_everybody_does_for_good(gate):
    assert await gate.authenticator.principal_of(None) is LOCAL

    issued = await gate.keys.create(LOCAL, CI)
    await gate.clock.advance(WITHIN)

    assert not await gate.lets_in(None)
    await gate.keys.revoke(LOCAL, issued.key.key_id)
    await gate.clock.advance(WITHIN)
    assert not await gate.lets_in(None)
    with pytest.raises(UnauthenticatedError, match="Authorization: Bearer owl_"):
        await gate.authenticator.principal_of(None)


async def test_a_tenant_ends_the_time_without_keys_as_well(gate):
    assert await gate.lets_in(None)

    await gate.tenants.create(LOCAL, "acme")
    await gate.clock.advance(WITHIN)

    assert not await gate.lets_in(None)


async def test_where_the_first_key_is_made_it_is_needed_at_once(gate):
    assert await gate.lets_in(None)

    gate.authenticator.close()

    assert not await gate.lets_in(None)


async def test_a_look_that_is_under_way_does_not_open_what_was_closed_meanwhile(gate):
    gate.held = asyncio.Event()
    asking = asyncio.create_task(gate.lets_in(None))
    await gate.clock.settle()

    gate.authenticator.close()
    gate.held.set()

    assert not await asking


async def test_a_key_is_its_principal(gate):
    issued = await gate.keys.create(LOCAL, replace(CI, agents=("agent:trader:*",)))

    assert await gate.authenticator.principal_of(issued.text) == issued.key.principal


async def test_what_was_answered_a_moment_ago_is_remembered_and_no_longer(gate):
    assert await gate.lets_in(None)
    assert gate.authenticator.remembered(None) is LOCAL
    assert gate.authenticator.remembered(None, local=False) is None
    issued = await gate.keys.create(LOCAL, CI)
    assert gate.authenticator.remembered(issued.text) is None
    assert await gate.lets_in(issued.text)
    await gate.clock.advance(FRESH_SECONDS - 0.1)
    assert gate.authenticator.remembered(issued.text) == issued.key.principal

    await gate.clock.advance(0.1)

    assert gate.authenticator.remembered(issued.text) is None
    assert gate.authenticator.remembered(None) is None


async def test_all_who_come_at_once_without_a_key_are_one_question_and_none_once_there_is_a_key(gate):
    assert await asyncio.gather(*(gate.lets_in(None) for _ in range(3))) == [True] * 3
    assert len(gate.reads) == 1
    await gate.keys.create(LOCAL, CI)
    await gate.clock.advance(WITHIN)
    assert not await gate.lets_in(None)
    gate.reads.clear()

    assert not await gate.lets_in(None)
    await gate.clock.advance(WITHIN)
    assert not await gate.lets_in(None)

    assert gate.reads == []


async def test_a_key_that_was_refused_is_asked_about_again_after_a_moment_alone(gate):
    issued = await gate.keys.create(LOCAL, CI)
    await gate.keys.revoke(LOCAL, issued.key.key_id)
    assert not await gate.lets_in(issued.text)
    gate.reads.clear()

    assert not await gate.lets_in(issued.text)
    assert gate.reads == []
    await gate.clock.advance(FRESH_SECONDS)
    assert not await gate.lets_in(issued.text)
    assert gate.reads != []


async def test_nobody_is_remembered_who_has_no_key_where_one_is_needed(gate):
    assert await gate.lets_in(None)
    gate.authenticator.close()
    assert gate.authenticator.remembered(None) is None

    gate.authenticator = Authenticator(gate.store, gate.clock, gate.ids, keys_required=True)
    assert not await gate.lets_in(None)
    gate.authenticator._open_since = gate.clock.monotonic()
    assert gate.authenticator.remembered(None) is None


@pytest.mark.parametrize("wrong", ["", "x", "owl_", "sk-1234", "é" * 60, "x" * 100_000])
async def test_what_is_no_key_is_refused_without_asking_the_store(gate, wrong):
    await gate.keys.create(LOCAL, CI)
    gate.reads.clear()

    assert not await gate.lets_in(wrong)
    assert gate.reads == []


async def test_an_unknown_id_and_a_wrong_secret_are_refused_in_the_same_words_after_the_same_reads(gate):
    issued = await gate.keys.create(LOCAL, CI)
    unknown, _ = make_secret(KeyId("00000000"), lambda size: b"\1" * size)
    wrong, _ = make_secret(issued.key.key_id, lambda size: b"\1" * size)

    said, read = [], []
    for each in (unknown, wrong):
        gate.reads.clear()
        with pytest.raises(UnauthenticatedError) as refused:
            await gate.authenticator.principal_of(each)
        said.append(str(refused.value))
        read.append([*gate.reads])

    assert said[0] == said[1]
    assert read[0] == read[1] == ["KeyById"]


async def test_a_key_that_is_revoked_is_refused_within_five_seconds(gate):
    issued = await gate.keys.create(LOCAL, CI)
    assert await gate.lets_in(issued.text)

    await gate.keys.revoke(LOCAL, issued.key.key_id)
    await gate.clock.advance(WITHIN)

    assert not await gate.lets_in(issued.text)


async def test_a_key_of_a_suspended_tenant_is_refused_until_it_is_active_again(gate):
    await gate.tenants.create(LOCAL, "acme")
    issued = await gate.keys.create(LOCAL, replace(CI, tenant=ACME))
    assert await gate.lets_in(issued.text)

    await gate.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
    await gate.clock.advance(WITHIN)
    assert not await gate.lets_in(issued.text)

    await gate.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.ACTIVE))
    await gate.clock.advance(WITHIN)
    assert await gate.lets_in(issued.text)


async def test_a_key_ends_with_its_time_and_an_old_secret_with_its_grace(gate):
    first = await gate.keys.create(LOCAL, replace(CI, days=1))
    second = await gate.keys.rotate(LOCAL, first.key.key_id, 60)
    assert [await gate.lets_in(each.text) for each in (first, second)] == [True, True]

    await gate.clock.advance(60 + FRESH_SECONDS)
    assert [await gate.lets_in(each.text) for each in (first, second)] == [False, True]

    await gate.clock.advance(timedelta(days=1).total_seconds())
    assert not await gate.lets_in(second.text)


async def test_the_store_is_asked_once_for_a_key_while_the_answer_is_fresh_and_once_for_all_who_ask_together(gate):
    issued = await gate.keys.create(LOCAL, CI)
    gate.reads.clear()
    gate.held = asyncio.Event()

    asking = [asyncio.create_task(gate.lets_in(issued.text)) for _ in range(100)]
    await asyncio.sleep(0)
    gate.held.set()

    assert all(await asyncio.gather(*asking))
    assert await gate.lets_in(issued.text)
    assert gate.reads.count("KeyById") == 1

    await gate.clock.advance(FRESH_SECONDS)
    assert await gate.lets_in(issued.text)
    assert gate.reads.count("KeyById") == 2


async def test_whoever_stops_asking_does_not_keep_others_from_the_answer(gate):
    issued = await gate.keys.create(LOCAL, CI)
    gate.held = asyncio.Event()
    first, second = (asyncio.create_task(gate.lets_in(issued.text)) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()
    await asyncio.sleep(0)
    gate.held.set()

    assert await second


async def test_without_the_store_nobody_is_let_in_or_refused(gate):
    issued = await gate.keys.create(LOCAL, CI)
    gate.broken = True

    for key in (issued.text, None):
        with pytest.raises(StoreUnavailableError):
            await gate.authenticator.principal_of(key)
    gate.broken = False
    assert await gate.lets_in(issued.text)


async def test_the_first_use_is_in_the_ledger_and_the_last_one_is_noted_once_a_minute(gate):
    issued = await gate.keys.create(LOCAL, CI)
    used = []
    for _ in range(5):
        await gate.lets_in(issued.text)
        await gate.clock.settle()
        used.append((await gate.keys.key(DEFAULT_TENANT, issued.key.key_id)).last_used_at)
        await gate.clock.advance(25)

    start = used[0]
    assert [(each - start).total_seconds() for each in used] == [0, 0, 0, 75, 75]
    assert [each["what"] for each in await gate.told()] == ["key_created", "key_first_used"]


async def test_a_refused_key_is_told_to_the_ledger_of_its_tenant_with_the_reason_once_a_minute(gate):
    await gate.tenants.create(LOCAL, "acme")
    issued = await gate.keys.create(LOCAL, replace(CI, tenant=ACME))
    await gate.keys.revoke(replace(LOCAL, tenant=ACME), issued.key.key_id)
    wrong, _ = make_secret(issued.key.key_id, lambda size: b"\1" * size)

    for _ in range(5):
        assert not await gate.lets_in(issued.text)
        assert not await gate.lets_in(wrong)
        await gate.clock.advance(WITHIN)

    refused = [each for each in await gate.told(ACME) if each["what"] == "key_refused"]
    assert [(each["key_id"], each["why"]) for each in refused] == [
        (issued.key.key_id, "revoked"),
        (issued.key.key_id, "wrong secret"),
    ]


async def test_who_watches_a_key_hears_when_it_is_refused(gate):
    one, other = await gate.keys.create(LOCAL, CI), await gate.keys.create(LOCAL, replace(CI, name="other"))
    watching = gate.authenticator.watching
    with watching(one.text) as first, watching(one.text) as second, watching(other.text) as kept:
        await gate.clock.advance(WITHIN)
        assert not first.is_set()

        await gate.keys.revoke(LOCAL, one.key.key_id)
        gate.broken = True
        await gate.clock.advance(WITHIN)
        assert not first.is_set()

        gate.broken = False
        await gate.clock.advance(WITHIN)
        assert (first.is_set(), second.is_set(), kept.is_set()) == (True, True, False)
    await gate.clock.settle()
    assert gate.clock.sleepers == 0


class Tokens:
    """Tokens of an issuer that does not answer."""

    def __init__(self, error=None):
        self.error = error

    async def verified(self, token, terms=None):
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"


async def test_an_issuer_that_hangs_delays_no_key_and_its_streams_end_when_nobody_knows_for_a_minute(gate):
    gate.authenticator = Authenticator(gate.store, gate.clock, gate.ids, Tokens())
    issued = await gate.keys.create(LOCAL, CI)
    watching = gate.authenticator.watching
    with watching(TOKEN) as token, watching(issued.text) as key, watching(f"{TOKEN}x") as other:
        await gate.clock.advance(WITHIN)
        await gate.keys.revoke(LOCAL, issued.key.key_id)
        await gate.clock.advance(WITHIN)
        assert (key.is_set(), token.is_set(), other.is_set()) == (True, False, False)

        for _ in range(13):
            await gate.clock.advance(WITHIN)
        assert (token.is_set(), other.is_set()) == (True, True)
    await gate.clock.settle()
    assert gate.clock.sleepers == 0


async def test_an_error_that_nobody_expects_ends_no_watching_and_is_in_the_log(gate, caplog):
    gate.authenticator = Authenticator(gate.store, gate.clock, gate.ids, Tokens(ZeroDivisionError("odd")))
    issued = await gate.keys.create(LOCAL, CI)
    with gate.authenticator.watching(TOKEN), gate.authenticator.watching(issued.text) as key:
        await gate.clock.advance(WITHIN)
        assert "odd" in caplog.text
        await gate.keys.revoke(LOCAL, issued.key.key_id)
        await gate.clock.advance(WITHIN)
        assert key.is_set()


async def test_keys_that_nobody_has_do_not_fill_the_memory(gate, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.access.authentication._REMEMBERED", 3)
    issued = await gate.keys.create(LOCAL, KeyRequest("ci", ("viewer",)))
    assert await gate.lets_in(issued.text)
    for number in range(10):
        await gate.lets_in(f"owl_{number}")

    assert len(gate.authenticator._refusals) == 3
    gate.reads.clear()
    assert await gate.lets_in(issued.text)
    assert gate.reads == [], "made-up keys take no real one's place"
