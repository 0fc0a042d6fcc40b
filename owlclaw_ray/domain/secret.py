"""Secrets of tenants, without their values."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.errors import UserError

SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
MAX_VALUE_BYTES = 64 * 1024
MAX_SECRETS = 1_000
"""Of one tenant."""
MIN_VALUE_CHARACTERS = 6
"""A shorter value could not be taken out of ledgers: it is in too much that is no secret."""


class Secret(Struct, frozen=True):
    """What may be known of a secret."""

    name: str
    key_id: str
    """The master key that encrypts it."""
    created_at: datetime
    rotated_at: datetime
    """When its value was last set, or encrypted with another key."""
    created_by: str


def check_value(value: str) -> None:
    """Raise UserError, which does not repeat the value, for one that cannot be kept secret."""
    if len(value) < MIN_VALUE_CHARACTERS:
        raise UserError(
            f"the value of a secret has at least {MIN_VALUE_CHARACTERS} characters, or it could not be redacted"
        )
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise UserError(f"the value of a secret has at most {MAX_VALUE_BYTES:,} bytes")


def check_name(name: str) -> None:
    """Raise UserError for what cannot be the name of a secret."""
    if not SECRET_NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no name of a secret: it begins with a letter or _ and has up to 100 letters, digits, _ and -, such as CRM_TOKEN"
        )
