"""Who keeps the secrets of tenants, as interfaces ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.ids import TenantId


class SecretKeeper(Protocol):
    """Sets and lists secrets. There is no way to read a value here. What is changed is told to the tenant's ledger, with `by` whom."""

    async def set_secret(self, tenant: TenantId, name: str, value: str, by: str) -> Secret:
        """Encrypt and store the value; return what may be known of the secret.

        Raises UserError for a name or a value that cannot be one, and SecretsUnavailableError without a master key.
        """
        ...

    async def secrets(self, tenant: TenantId) -> Sequence[Secret]:
        """Return what may be known of the tenant's secrets, by name."""
        ...

    async def delete_secret(self, tenant: TenantId, name: str, by: str) -> Secret:
        """Remove a secret, and return what was known of it; raises NotFoundError."""
        ...

    async def rotate_secrets(self, tenant: TenantId, by: str) -> int:
        """Encrypt with the newest master key what another one has encrypted; return how many that were.

        Values stay what they are, and can be read all the time. Raises SecretsUnavailableError if a key that is needed is missing.
        """
        ...
