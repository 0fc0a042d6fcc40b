"""agent.yaml: what a definition sets beside its texts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from owlclaw_ray.configuration.governance import GovernanceFile, ToolsFile, Zone
from owlclaw_ray.configuration.heartbeat import HeartbeatFile
from owlclaw_ray.configuration.limits import Count, LimitOverrides
from owlclaw_ray.configuration.models import EndpointFile, Routes
from owlclaw_ray.configuration.permissions import PermissionSettings
from owlclaw_ray.configuration.section import Section
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import EVERY_STATE, Isolation, ModelChoice, StateChoice, ToolChoice
from owlclaw_ray.domain.endpoint import Endpoint, endpoint_of, provider_of
from owlclaw_ray.domain.permission import PermissionRules

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
    """Who is told of the end of every run."""

    @property
    def permission_rules(self) -> PermissionRules:
        """The rules that are written here; none, if there are none."""
        return PermissionRules() if self.permissions is None else self.permissions.rules

    def task_routes(self, defaults: Defaults) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the models of all types of tasks that have one."""
        return tuple({**dict(defaults.routes), **self.routes}.items())

    def model_choice(self, defaults: Defaults) -> ModelChoice:
        """Return the chain: a model written here stands alone unless a fallback is written too."""
        inherited = defaults.chain[1:] if self.model is None else ()
        fallback = self.fallback if self.fallback is not None else inherited
        chain = (self.model or defaults.chain[0], *fallback)
        return ModelChoice(chain, self.temperature, self.max_tokens, self.stream, self._endpoints(chain[0], defaults))

    def _endpoints(self, model: str, defaults: Defaults) -> tuple[Endpoint, ...]:
        if self.model_fields_set.isdisjoint(EndpointFile.model_fields):
            return defaults.endpoints
        provider = provider_of(model)
        own, inherited = self.endpoint(provider), endpoint_of(model, defaults.endpoints)
        others = (each for each in defaults.endpoints if each.provider != provider)
        return (own if inherited is None else own.over(inherited), *others)
