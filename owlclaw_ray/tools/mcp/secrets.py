"""`${NAME}` in the configuration of servers: filled in where servers are started, and hidden wherever it might show up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from owlclaw_ray.configuration.placeholders import PLACEHOLDER, names_in
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ledger.redaction import MIN_SECRET_CHARACTERS

_HIDDEN = "[secret]"


class Secrets:
    """The values of variables that were filled in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: set[str] = set()

    def fill(self, text: str, where: str) -> str:
        """Return the text with the values of its variables; raises ConfigurationError for those that are not set."""
        missing = [name for name in names_in(text) if name not in self._environ]
        if missing:
            what = f"the variable {missing[0]} is not set"
            raise ConfigurationError([Problem(where, what, "set it where the runtime is started")])
        self._values.update(self._environ[name] for name in names_in(text))
        return PLACEHOLDER.sub(lambda found: self._environ[found[1]], text)

    def filled(self, pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
        """Return the mapping with every value filled."""
        return {name: self.fill(text, f"{where}.{name}") for name, text in pairs}

    def hide(self, text: str) -> str:
        """Return the text without the values."""
        for value in sorted(self._values, key=len, reverse=True):
            if len(value) >= MIN_SECRET_CHARACTERS:
                text = text.replace(value, _HIDDEN)
        return text

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return the JSON value with the values hidden in all its texts."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in(each) for each in value]
        if isinstance(value, dict):
            return {self.hide(key): self.hide_in(each) for key, each in value.items()}
        return value
