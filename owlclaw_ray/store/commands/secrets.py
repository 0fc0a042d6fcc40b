"""Commands about the secrets of tenants. They have ciphertexts only."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.ids import TenantId


class PutSecret(Struct, frozen=True):
    """Store a secret; of one that is there only the value changes. Outcome: SecretsChanged."""

    tenant: TenantId
    name: str
    key_id: str
    """The master key that encrypted it."""
    ciphertext: bytes
    by: str
    """Who sets it."""
    at: datetime


class ReplaceCiphertext(Struct, frozen=True):
    """Store the value of a secret as another master key encrypts it, unless it was set or deleted meanwhile. Outcome: SecretsChanged."""

    tenant: TenantId
    name: str
    before: bytes
    """The ciphertext that this one takes the place of."""
    key_id: str
    ciphertext: bytes
    at: datetime


class DeleteSecret(Struct, frozen=True):
    """Remove a secret; harmless if there is none. Outcome: SecretsChanged."""

    tenant: TenantId
    name: str


class SecretsChanged(Struct, frozen=True):
    """The secret is as the command says."""
