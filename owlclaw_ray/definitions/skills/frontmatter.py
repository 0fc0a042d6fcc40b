"""The frontmatter of a SKILL.md (agentskills.io) with the `owlclaw:` extension (R4)."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from owlclaw_ray.configuration.governance import TimesFile
from owlclaw_ray.configuration.limits import Count
from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.environment import name_problem, value_problem
from owlclaw_ray.domain.trigger import TriggerKind

_NAME_CHARACTERS = 64
NAMES, VALUES = "names", "values"
"""The two forms of `owlclaw.env`, as the paths of errors name them."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _skill_name(name: str) -> str:
    name = unicodedata.normalize("NFKC", name)
    parts = name.split("-")
    if len(name) > _NAME_CHARACTERS or name != name.lower() or not all(part.isalnum() for part in parts):
        what = f"a name has 1 to {_NAME_CHARACTERS} lower-case letters and digits, with single hyphens between them"
        raise ValueError(f"is {name[:80]!r}: {what}")
    return name


def _variable(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(f"{name!r} {problem}")
    return name


def _settable(name: str) -> str:
    if problem := value_problem(name):
        raise ValueError(f"{name!r} {problem}")
    return name


def _value(value: Any) -> Any:
    if isinstance(value, str) and "${" in value:
        raise ValueError(
            f"is {value!r}: values are taken as they are written; what is secret comes to a program by its own list of variables"
        )
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_Text = Annotated[str, Field(min_length=1)]
BatchTexts = Annotated[tuple[_Text, ...], BeforeValidator(_as_list)]
Kinds = Annotated[tuple[TriggerKind, ...], BeforeValidator(_as_list)]
_Variables = Annotated[tuple[Annotated[str, AfterValidator(_variable)], ...], BeforeValidator(_as_list)]
_Values = dict[Annotated[str, AfterValidator(_settable)], Annotated[str, BeforeValidator(_value)]]
_NamesOrValues = Annotated[
    Annotated[_Variables, Tag(NAMES)] | Annotated[_Values, Tag(VALUES)],
    Discriminator(lambda written: VALUES if isinstance(written, dict) else NAMES),
]


class Prerequisites(Section):
    """What has to be there, or the skill is not read."""

    env: _Variables = ()
    """Variables that are set."""
    bins: BatchTexts = ()
    """Programs on the PATH."""
    python_packages: BatchTexts = ()
    """Modules that can be imported."""
    os: Annotated[tuple[Literal["linux", "darwin", "windows"], ...], BeforeValidator(_as_list)] = ()
    """One of these is the system."""
    tools: BatchTexts = ()
    """Tools that the run can use: canonical names."""


class Constraints(Section):
    """When and how often the skill's capability may be used. What else is written here only the model can keep."""

    model_config = ConfigDict(extra="allow")

    hours: TimesFile | None = None
    trading_hours_only: bool = False
    max_daily_calls: Count | None = None
    cooldown_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class Extension(Section):
    """What OwlClaw adds."""

    task_type: str = ""
    constraints: Constraints = Field(default_factory=Constraints)
    focus: BatchTexts = ()
    trigger: Kinds = ()
    risk_level: Literal["low", "medium", "high", "critical"] = "low"
    requires_confirmation: bool = False
    prerequisites: Prerequisites = Field(default_factory=Prerequisites)
    env: _NamesOrValues = ()
    """Names: variables that have to be set, as `prerequisites.env`. Values by names: what programs of its runs get."""


class Frontmatter(BaseModel):
    """All keys of the specification. Others are kept out with a warning, not refused: skills travel between products."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    name: Annotated[str, AfterValidator(_skill_name)]
    description: Annotated[str, Field(min_length=1, max_length=1024)]
    license: str = ""
    compatibility: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    allowed_tools: Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(alias="allowed-tools")] = ()
    owlclaw: Extension = Field(default_factory=Extension)
