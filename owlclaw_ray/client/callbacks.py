"""For programs that receive callbacks when runs end."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson

from owlclaw_ray import wire
from owlclaw_ray.domain.signing import key_of, signed_callback
from owlclaw_ray.domain.webhook import SecretForm
from owlclaw_ray.errors import WebhookRefusedError

_SENDER = "owlclaw"


def verify_callback(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now: datetime,
    tolerance: float = 300.0,
    *,
    tenant: str = "default",
) -> wire.RunFinished:
    """Return what a callback says, if one of the secrets signed it, not more than `tolerance` seconds ago, and the run is the tenant's.

    `secrets` are those of that tenant, see Client.callback_secrets: who receives callbacks of several tenants asks once for each, and
    never with secrets of two. The same callback may come again, with the same header webhook-id. Raises WebhookRefusedError.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    callback_id, timestamp = lowered.get("webhook-id", ""), lowered.get("webhook-timestamp", "")
    given = lowered.get("webhook-signature", "").split()
    if not callback_id or not given or not (timestamp.isascii() and timestamp.isdecimal()):
        raise WebhookRefusedError(_SENDER, "webhook-id, webhook-timestamp or webhook-signature is missing")
    right = False
    for secret in secrets:
        expected = signed_callback(callback_id, int(timestamp), body, key_of(secret, SecretForm.BASE64)).encode()
        for each in given:
            right |= hmac.compare_digest(each.encode(), expected)
    if not right:
        raise WebhookRefusedError(_SENDER, "the signature does not match")
    if abs(now.timestamp() - int(timestamp)) > tolerance:
        raise WebhookRefusedError(_SENDER, f"the time of the signature differs by more than {tolerance:g} s")
    said: wire.RunFinished = orjson.loads(body)
    if said["data"]["tenant"] != tenant:
        raise WebhookRefusedError(_SENDER, f"the run is not of the tenant {tenant}")
    return said
