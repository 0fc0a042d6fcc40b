"""What people and models wrote, on its way out: masked, without secrets, and bounded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import orjson

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors

Mask: TypeAlias = Callable[[JsonValue], JsonValue]
"""An application's own: takes a value that is about to leave, and returns what may."""

LONGEST = 32_768
"""Characters of an attribute."""
_PROMPTS = 256
"""Of so many the form in which they leave is kept."""
MASK_FAILED = "[masked: the application's mask failed]"

logger = logging.getLogger(__name__)


class ContentAttributes:
    """Makes attribute values of what was said in runs. Without `shown` it makes none."""

    def __init__(self, redactors: TenantRedactors, mask: Mask | None = None, *, shown: bool = True) -> None:
        self.shown, self.redactors, self.mask = shown, redactors, mask
        self._prompts: dict[tuple[Redactor, str], str] = {}

    def of_run(self, tenant: TenantId, said: JsonValue) -> RunContent:
        """Return what makes attribute values of one run of a tenant, in which nothing else was said than this and a prompt."""
        redactor = self.redactors.of(tenant)
        return RunContent(self, redactor, suspect=self.shown and redactor.suspects(orjson.dumps(said)))

    def of_tenant(self, tenant: TenantId) -> RunContent:
        """Return what makes attribute values of anything that was said of a tenant's run."""
        return RunContent(self, self.redactors.of(tenant), suspect=True)

    def prompt(self, redactor: Redactor, digest: str, value: JsonValue) -> str:
        """Return as `RunContent.json` what is the same in many runs, under a hash that it is known by."""
        known = self._prompts.get((redactor, digest))
        if known is None:
            if len(self._prompts) >= _PROMPTS:
                self._prompts.clear()
            known = self._prompts[redactor, digest] = RunContent(self, redactor, suspect=True).json(value)
        return known


class RunContent:
    """The content of one run: its values are looked at for secrets only if it is `suspect`, for it may hold some."""

    def __init__(self, content: ContentAttributes, redactor: Redactor, *, suspect: bool) -> None:
        self.shown = content.shown
        self._content, self._redactor, self._suspect = content, redactor, suspect

    def prompt(self, digest: str, value: JsonValue) -> str:
        """Return as `json` what is the same in many runs, under a hash that it is known by."""
        return self._content.prompt(self._redactor, digest, value)

    def text(self, value: str) -> str:
        """Return a text as it may leave."""
        cleaned = self._cleaned(value)
        return _bounded(cleaned if isinstance(cleaned, str) else orjson.dumps(cleaned).decode())

    def json(self, value: JsonValue) -> str:
        """Return a value as it may leave, as JSON text."""
        return _bounded(orjson.dumps(self._cleaned(value)).decode())

    def error(self, kind: str, message: str) -> str:
        """Return what of an error may leave: its message may hold anything."""
        return self.text(message) if self.shown else kind

    def _cleaned(self, value: JsonValue) -> JsonValue:
        """Return what the application's mask makes of the value, nothing of it if the mask fails, without secrets."""
        if self._content.mask is not None:
            try:
                value = self._content.mask(value)
                orjson.dumps(value)
            except Exception:
                logger.exception("the application's mask of traces failed: the value is left out")
                value = MASK_FAILED
        return self._redactor.redact({"content": value})["content"] if self._suspect else value


def _bounded(text: str) -> str:
    left_out = len(text) - LONGEST
    return text if left_out <= 0 else f"{text[:LONGEST]}… [{counted(left_out, 'character')} left out]"
