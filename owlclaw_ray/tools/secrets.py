"""Secrets of tenants inside a process that runs tools: asked for when a tool reads one, kept for seconds, and hidden in what it returns."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.tool import ToolResult
from owlclaw_ray.errors import SecretsUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.ledger.redaction import marker

FRESH_SECONDS = 5.0
"""For how long a value that was read serves further reads."""


class ToolSecrets:
    """What this process has read of secrets. May be used by threads."""

    def __init__(self, ask: Callable[[TenantId, str], str], clock: Clock) -> None:
        """`ask` returns the value of a tenant's secret, and raises NotFoundError or SecretsUnavailableError."""
        self._ask, self._clock = ask, clock
        self._lock = threading.Lock()
        self._fresh: dict[tuple[TenantId, str], tuple[str, float]] = {}
        self._read: dict[TenantId, dict[str, str]] = {}
        """All values that were read, and what stands for each, of each tenant."""

    def value(self, tenant: TenantId, name: str) -> str:
        """Return the value of the tenant's secret, as it is or was a few seconds ago."""
        now = self._clock.monotonic()
        value, until = self._fresh.get((tenant, name), ("", now))
        if until <= now:
            value = self._ask(tenant, name)
            with self._lock:
                self._fresh[tenant, name] = value, now + FRESH_SECONDS
                spelled = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
                known = self._read.get(tenant, {}) | dict.fromkeys(spelled, marker(name))
                self._read[tenant] = dict(sorted(known.items(), key=lambda item: len(item[0]), reverse=True))
        return value

    def hidden(self, text: str) -> str:
        """Return the text without any value that was read, of whatever tenant: for logs."""
        for read in tuple(self._read.values()):
            text = _replaced(text, read)
        return text

    def redacted(self, tenant: TenantId, result: ToolResult) -> ToolResult:
        """Return the result without the values of the tenant that were read here."""
        read = self._read.get(tenant)
        if not read:
            return result
        error = result.error
        if error is not None:
            error = replace(error, message=_replaced(error.message, read), details=_without(error.details, read))
        return replace(
            result, content=_without(result.content, read), error=error, metadata=_without(result.metadata, read)
        )

    @contextmanager
    def given(self) -> Iterator[None]:
        """Have ToolContext.secret read here, inside the block."""
        token = _PRESENT.set(self)
        try:
            yield
        finally:
            _PRESENT.reset(token)


_PRESENT: ContextVar[ToolSecrets | None] = ContextVar("owlclaw_tool_secrets", default=None)


def secret_of(tenant: TenantId, name: str) -> str:
    """Return the value of the tenant's secret; raises SecretsUnavailableError outside of a tool's call."""
    present = _PRESENT.get()
    if present is None:
        raise SecretsUnavailableError(f"secret {name} can be read in a tool's call only")
    return present.value(tenant, name)


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
