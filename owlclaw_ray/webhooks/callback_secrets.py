"""The secrets that sign callbacks: each tenant has its own, so that nobody who checks those of one tenant can sign those of another."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from owlclaw_ray.domain.signing import SECRET_PREFIX, key_of
from owlclaw_ray.domain.webhook import SecretForm
from owlclaw_ray.ids import TenantId

_USE = "owlclaw callbacks, version 1, tenant "
_KEY_BYTES = 32


def tenant_secrets(secrets: Sequence[str], tenant: TenantId) -> tuple[str, ...]:
    """Return the tenant's secrets as Standard Webhooks writes them, one for each of the runtime's in their order: derived by HKDF-SHA256
    from it and the tenant's id, so none is stored, and none leads to another one.
    """
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"{_USE}{tenant}".encode()
    keys = (
        HKDF(SHA256(), _KEY_BYTES, salt=None, info=info).derive(key_of(secret, SecretForm.BASE64)) for secret in secrets
    )
    return tuple(SECRET_PREFIX + base64.b64encode(key).decode() for key in keys)
