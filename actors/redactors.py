"""What takes secrets out of what leaves a node: ledger records and traces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

import msgspec

from actors.plan import RuntimePlan
from owlclaw_ray.configuration.placeholders import names_in
from owlclaw_ray.ledger.redaction import Redactor, named_secrets


def node_redactor(plan: RuntimePlan, store_url: str, own: Mapping[str, str] = MappingProxyType({})) -> Redactor:
    """Return what takes out this process's secrets, that of the store's URL, a tenant's `own`, and what the settings say."""
    environ = os.environ  # noqa: TID251 - tools of this node have the same variables, and may print them
    secrets = named_secrets(environ)
    placed = names_in(msgspec.json.encode(plan, enc_hook=str).decode())
    secrets |= {name: environ[name] for name in placed if name in environ}
    password = urlsplit(store_url).password
    if password:
        secrets["store_url"] = unquote(password)
    return Redactor({**own, **secrets}, plan.redact)
