"""The form of a script in YAML; docs/scripted-model.md describes it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.models.scripted.templates import compile_condition, compile_value


def _template(value: JsonValue) -> JsonValue:
    compile_value(value)
    return value


def _condition(expression: str) -> str:
    compile_condition(expression)
    return expression


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


TemplateText = Annotated[str, AfterValidator(_template)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _know_every_key(cls, data: JsonValue) -> JsonValue:
        unknown = [str(key) for key in data if key not in cls.model_fields] if isinstance(data, dict) else []
        if unknown:
            raise ValueError(f"unknown key {', '.join(unknown)}; the keys here are {', '.join(cls.model_fields)}")
        return data


class WhenForm(_Form):
    """Which runs a rule is for; everything that is given must hold."""

    trigger: TriggerKind | list[TriggerKind] | None = None
    agent: Pattern | None = None
    focus: Pattern | None = None
    payload: Annotated[str, AfterValidator(_condition)] | None = None


class CallForm(_Form):
    """A tool call of a turn."""

    name: TemplateText
    arguments: Annotated[JsonObject | str, AfterValidator(_template)] = Field(default_factory=dict)


class ErrorForm(_Form):
    """A failure of a turn, for ever or the first `times` times."""

    type: Literal["unavailable", "refused"]
    message: str = "the script says so"
    retry_after: float | None = Field(default=None, ge=0)
    times: int | None = Field(default=None, ge=1)


class UsageForm(_Form):
    """What a turn says that it cost."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cost: float = Field(default=0.0, ge=0)


class TurnForm(_Form):
    """One reply."""

    text: TemplateText = ""
    tool_calls: list[CallForm] = Field(default_factory=list)
    latency: float = Field(default=0.0, ge=0)
    error: ErrorForm | None = None
    usage: UsageForm = Field(default_factory=UsageForm)


class RuleForm(_Form):
    """The replies to the runs that it is for, and the one (`then`) to every further question."""

    when: WhenForm = Field(default_factory=WhenForm)
    turns: list[TurnForm] = Field(default_factory=list)
    then: TurnForm | None = None

    @model_validator(mode="after")
    def _say_something(self) -> Self:
        if not self.turns and self.then is None:
            raise ValueError("a rule needs turns, or then")
        return self


class ScriptForm(_Form):
    """A whole file."""

    description: str = ""
    rules: list[RuleForm] = Field(min_length=1)
