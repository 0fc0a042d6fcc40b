"""The options of the Hatchet adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatchet_sdk import ClientConfig

RING = "owlclaw-ring"
"""The name of the workflow that the engine runs for an alarm."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections to the engine are secured."""

    strategy: str
    """`none`, `tls` or `mtls`."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class HatchetOptions:
    """The engine's address and this installation's identity there. The token is not in its repr."""

    token: str = field(repr=False)
    tenant_id: str
    api_url: str
    grpc_address: str
    tls: Tls
    namespace: str

    @property
    def installation(self) -> str:
        """Distinguishes our alarms from those of other installations in the same Hatchet tenant."""
        return self.namespace or "default"

    @property
    def workflow(self) -> str:
        """The full name of our workflow."""
        return f"{self.namespace}_{RING}" if self.namespace else RING


def client_config(options: HatchetOptions, health_port: int | None = None) -> ClientConfig:
    """Return the SDK's settings, independent of its files and variables. Calls are not retried."""
    from hatchet_sdk import ClientConfig, ClientTLSConfig
    from hatchet_sdk.config import HealthcheckConfig, TenacityConfig

    tls = options.tls
    return ClientConfig(
        _env_file=None,
        token=options.token,
        tenant_id=options.tenant_id,
        server_url=options.api_url,
        host_port=options.grpc_address,
        namespace=options.namespace,
        tls_config=ClientTLSConfig(
            _env_file=None,
            strategy=tls.strategy,
            root_ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            server_name=tls.server_name,
        ),
        healthcheck=HealthcheckConfig(
            _env_file=None, enabled=health_port is not None, port=health_port or 1, bind_address="127.0.0.1"
        ),
        tenacity=TenacityConfig(_env_file=None, max_attempts=0),
    )
