"""Values of tenants' secrets that a process has read, and what takes them out of what leaves it."""

from __future__ import annotations

import json
import threading
from typing import Any

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.redaction import marker


class ReadSecrets:
    """The values that were read here, former ones too. May be used by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[TenantId, dict[str, str]] = {}
        """Of each tenant the values as they may be spelled, the longest first, with what stands for each."""

    def add(self, tenant: TenantId, name: str, value: str) -> None:
        """Take the value out from now on."""
        spelled = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        with self._lock:
            known = self._read.get(tenant, {}) | dict.fromkeys(spelled, marker(name))
            self._read[tenant] = dict(sorted(known.items(), key=lambda item: len(item[0]), reverse=True))

    def hidden(self, text: str) -> str:
        """Return the text without any value, of whatever tenant: for logs."""
        for read in tuple(self._read.values()):
            text = _replaced(text, read)
        return text

    def has_any_of(self, tenant: TenantId) -> bool:
        """Return whether a secret of the tenant was read."""
        return tenant in self._read

    def without(self, tenant: TenantId, value: JsonValue) -> Any:
        """Return the JSON without the values of the tenant."""
        read = self._read.get(tenant)
        return _without(value, read) if read else value


def _replaced(text: str, read: dict[str, str]) -> str:
    for value, shown in read.items():
        text = text.replace(value, shown)
    return text


def _without(value: JsonValue, read: dict[str, str]) -> Any:
    match value:
        case str():
            return _replaced(value, read)
        case dict():
            return {_replaced(key, read): _without(each, read) for key, each in value.items()}
        case list() | tuple():
            return [_without(each, read) for each in value]
        case _:
            return value
