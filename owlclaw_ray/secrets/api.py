"""Who keeps the secrets of tenants, as interfaces ask for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import TenantId

AskSecret: TypeAlias = Callable[[TenantId, str], Awaitable[str]]
"""Returns the value of a tenant's secret; raises NotFoundError, SecretsUnavailableError if it cannot be decrypted, or another OwlClawError.
Parts of the runtime that use secrets have it; interfaces have not.
"""


async def no_secrets(_tenant: TenantId, name: str) -> str:
    """Have no secret of any tenant: see AskSecret."""
    raise NotFoundError("secret", name)


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

    async def rotate_all_secrets(self, by: str) -> int:
        """Do that for all tenants. Raises SecretsUnavailableError if any secret is left that needs another key, all others being done."""
        ...
