"""agent.yaml: what a definition sets beside its texts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from owlclaw_ray.configuration.governance import GovernanceFile, ToolsFile, Zone
from owlclaw_ray.configuration.limits import Count, LimitOverrides
from owlclaw_ray.configuration.models import EndpointFile, Routes
from owlclaw_ray.configuration.permissions import PermissionSettings
from owlclaw_ray.configuration.section import Section
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import EVERY_STATE, Isolation, ModelChoice, StateChoice, ToolChoice
from owlclaw_ray.domain.endpoint import endpoint_of, provider_of
from owlclaw_ray.domain.heartbeat import EventSourceKind, Heartbeat
from owlclaw_ray.domain.schedule import MAX_FOCUS, MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS

_NonEmpty = Annotated[str, Field(min_length=1)]


Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?-]+$", max_length=64)]


class StateSection(Section):
    """Which states a definition's agents may query."""

    allow: tuple[_NonEmpty, ...] = EVERY_STATE.allow
    deny: tuple[_NonEmpty, ...] = EVERY_STATE.deny

    def choice(self) -> StateChoice:
        """Return it as the domain says it."""
        return StateChoice(self.allow, self.deny)


class ToolSection(ToolsFile):
    """Which tools a definition's agents may be given (canonical names, with `*` and `?`), and within which limits."""

    allow: tuple[Pattern, ...] = ToolChoice().allow
    deny: tuple[Pattern, ...] = ()
    states: StateSection = Field(default_factory=StateSection)

    def choice(self) -> ToolChoice:
        """Return it as the domain says it."""
        return ToolChoice(self.allow, self.deny)


_DEFAULT = Heartbeat()


class HeartbeatFile(Section):
    """The section `heartbeat` of agent.yaml; to write it, be it empty, turns heartbeats on."""

    every_seconds: Annotated[int, Field(ge=MIN_INTERVAL_SECONDS, le=MAX_INTERVAL_SECONDS)] = _DEFAULT.every_seconds
    sources: Annotated[tuple[EventSourceKind, ...], Field(min_length=1)] = _DEFAULT.sources
    focus: Annotated[str, Field(min_length=1, max_length=MAX_FOCUS, pattern=r"\S")] = _DEFAULT.focus
    max_per_day: Annotated[int, Field(ge=1)] | None = _DEFAULT.max_per_day
    pause_after_idle_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = _DEFAULT.pause_after_idle_days
    query: str = _DEFAULT.query
    url_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$")] = _DEFAULT.url_variable

    @model_validator(mode="after")
    def _whole_database(self) -> HeartbeatFile:
        wanted = EventSourceKind.DATABASE in self.sources
        if wanted and not (self.query.strip() and self.url_variable):
            raise ValueError(
                "has the source database: write its query, and url_variable, the variable with the database's URL"
            )
        if not wanted and (self.query or self.url_variable):
            raise ValueError("has a query or url_variable, but not the source database: add it to sources")
        return self

    def heartbeat(self) -> Heartbeat:
        """Return it as the domain says it."""
        return Heartbeat(**self.model_dump())


class AgentFile(EndpointFile):
    """The keys of agent.yaml; all are optional. Those of EndpointFile are of the provider of `model`."""

    model: _NonEmpty | None = None
    """None takes the settings' model and fallback chain."""
    fallback: tuple[_NonEmpty, ...] | None = None
    routes: Routes = Field(default_factory=dict)
    """Models of certain types of tasks, before those of the settings."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Count | None = None
    stream: bool = False
    isolation: Isolation = Isolation.DEDICATED
    limits: LimitOverrides = Field(default_factory=LimitOverrides)
    permissions: PermissionSettings | None = None
    """None leaves it to the settings' rules and the defaults."""
    preload_memories: Annotated[int, Field(ge=0, le=20)] = 5
    timezone: Zone = "UTC"
    governance: GovernanceFile = Field(default_factory=GovernanceFile)
    tools: ToolSection = Field(default_factory=ToolSection)
    heartbeat: HeartbeatFile | None = None
    """None has no heartbeats."""
    callback_url: str = ""
    """The address that is notified of the end of every run."""

    def model_choice(self, defaults: Defaults) -> ModelChoice:
        """Return the chain: a model written here stands alone unless a fallback is written too."""
        inherited = defaults.chain[1:] if self.model is None else ()
        fallback = self.fallback if self.fallback is not None else inherited
        chain = (self.model or defaults.chain[0], *fallback)
        endpoints = defaults.endpoints
        if not self.model_fields_set.isdisjoint(EndpointFile.model_fields):
            provider = provider_of(chain[0])
            own, general = self.endpoint(provider), endpoint_of(chain[0], defaults.endpoints)
            others = (each for each in defaults.endpoints if each.provider != provider)
            endpoints = (own if general is None else own.over(general), *others)
        return ModelChoice(chain, self.temperature, self.max_tokens, self.stream, endpoints)
