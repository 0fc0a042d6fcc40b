from __future__ import annotations

import hashlib
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.access_key import KEY_PATTERN, make_key, make_secret, read_key
from tests.contracts.store_access_contract import KEY
from tests.contracts.store_commands import NOW

SECRETS = st.binary(min_size=32, max_size=32)


def random(secret: bytes):
    return lambda size: secret[:size]


@given(SECRETS)
def test_a_key_is_read_as_its_id_and_the_hash_of_its_secret(secret):
    key_id, text, secret_hash = make_key(random(secret))

    assert re.fullmatch(KEY_PATTERN, text)
    assert read_key(text) == (key_id, secret_hash)
    assert secret_hash == hashlib.sha256(text.split("_")[2].encode()).hexdigest()
    assert secret_hash not in text


@given(SECRETS, SECRETS)
def test_different_secrets_have_different_keys(one, other):
    assert (make_secret(KEY.key_id, random(one))[0] == make_secret(KEY.key_id, random(other))[0]) is (one == other)


@given(SECRETS, st.integers(0, 62), st.sampled_from("0aZ_-é\n"))
def test_a_mistyped_key_is_no_key(secret, place, typed):
    _, text, _ = make_key(random(secret))
    mistyped = text[:place] + typed + text[place + 1 :]

    assert read_key(mistyped) is None or mistyped == text
    assert read_key(text + "\n") is None
    assert read_key(text[:place]) is None


@pytest.mark.parametrize(
    ("changes", "given_hash", "after", "why"),
    [
        ({}, "ab" * 32, 0, ""),
        ({}, "cd" * 32, 0, "unknown"),
        ({}, "ab" * 32, 90 * 86_400 - 1, ""),
        ({}, "ab" * 32, 90 * 86_400, "expired"),
        ({"revoked_at": NOW}, "ab" * 32, 0, "revoked"),
        ({"previous_hash": "cd" * 32, "previous_until": NOW + timedelta(seconds=60)}, "cd" * 32, 59, ""),
        ({"previous_hash": "cd" * 32, "previous_until": NOW + timedelta(seconds=60)}, "cd" * 32, 60, "rotated"),
        ({"previous_hash": "cd" * 32, "previous_until": NOW + timedelta(seconds=60)}, "ab" * 32, 60, ""),
        ({"previous_hash": "cd" * 32, "previous_until": NOW + timedelta(days=91)}, "cd" * 32, 90 * 86_400, "expired"),
        ({"previous_hash": "cd" * 32, "revoked_at": NOW}, "cd" * 32, 0, "revoked"),
    ],
)
def test_a_secret_is_let_in_while_it_is_valid(changes, given_hash, after, why):
    assert replace(KEY, **changes).refusal(given_hash, NOW + timedelta(seconds=after)) == why
