"""Scripts in YAML: rules, turns, templates; docs/scripted-model.md describes the form."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

import yaml
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.scripted.script import (
    ScriptedCall,
    ScriptedError,
    ScriptedReply,
    ScriptedRequest,
    ScriptError,
)
from owlclaw_ray.models.scripted.templates import (
    TemplateError,
    Variables,
    as_text,
    compile_condition,
    compile_value,
    is_template,
)

Answer: TypeAlias = Callable[[ScriptedRequest], ScriptedReply]


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


def load_yaml(path: Path, text: str) -> YamlScript:
    """Return the script, or raise ConfigurationError with every problem, each with its path in the file."""
    try:
        form = ScriptForm.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f"{path}: line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        what = f"is no YAML: {getattr(error, 'problem', None) or error}"
        fix = "quote texts that contain ': ' and templates: \"{{ … }}\""
        raise ConfigurationError([Problem(where, what, fix)]) from error
    except ValidationError as error:
        problems = []
        for each in error.errors():
            where = ": ".join(part for part in (str(path), ".".join(map(str, each["loc"]))) if part)
            what = each["msg"].removeprefix("Value error, ")
            problems.append(Problem(where, what, "docs/scripted-model.md describes the form"))
        raise ConfigurationError(problems) from error
    return YamlScript(path, form)


class YamlScript:
    """Answers with the turn of the first rule that is for the run: as many replies the run has had, that turn."""

    def __init__(self, path: Path, form: ScriptForm) -> None:
        self._path = path
        self._rules = [_ScriptRule.of(f"{path}: rules.{index}", rule) for index, rule in enumerate(form.rules)]

    async def reply(self, request: ScriptedRequest) -> ScriptedReply:
        """Return the turn's reply, computed from the conversation where it has templates."""
        for rule in self._rules:
            if rule.applies(request):
                answer = rule.turns[request.turn] if request.turn < len(rule.turns) else rule.then
                return answer(request)
        trigger = request.trigger
        raise ScriptError(
            f"{self._path}: no rule is for a run of {request.agent_id} with trigger {trigger.kind.value} and focus "
            f"{trigger.focus!r}; end the rules with one that has no `when`"
        )


class _ScriptRule(Struct, frozen=True):
    where: str
    conditions: tuple[Callable[[ScriptedRequest], bool], ...]
    turns: tuple[Answer, ...]
    then: Answer

    @classmethod
    def of(cls, where: str, form: RuleForm) -> _ScriptRule:
        when = form.when
        conditions: list[Callable[[ScriptedRequest], bool]] = []
        if when.trigger is not None:
            kinds = frozenset([when.trigger] if isinstance(when.trigger, TriggerKind) else when.trigger)
            conditions.append(lambda request: request.trigger.kind in kinds)
        if when.agent is not None:
            agent = re.compile(when.agent)
            conditions.append(lambda request: agent.search(request.agent_id) is not None)
        if when.focus is not None:
            focus = re.compile(when.focus)
            conditions.append(lambda request: focus.search(request.trigger.focus) is not None)
        if when.payload is not None:
            holds = compile_condition(when.payload)
            conditions.append(lambda request: holds(conversation_variables(request)))
        turns = tuple(_answer(f"{where}.turns.{index}", turn) for index, turn in enumerate(form.turns))
        return cls(where, tuple(conditions), turns, _answer(f"{where}.then", form.then or TurnForm()))

    def applies(self, request: ScriptedRequest) -> bool:
        try:
            return all(condition(request) for condition in self.conditions)
        except TemplateError as error:
            raise ScriptError(f"{self.where}.when.payload: {error}") from error


def _answer(where: str, turn: TurnForm) -> Answer:
    """Return what gives the turn's reply; a turn without templates is made here, once."""
    usage = Usage(**turn.usage.model_dump())
    text = compile_value(turn.text)
    calls = [(compile_value(call.name), compile_value(call.arguments)) for call in turn.tool_calls]

    def computed(variables: Variables) -> ScriptedReply:
        made = [ScriptedCall(as_text(name(variables)), as_text(arguments(variables))) for name, arguments in calls]
        return ScriptedReply(as_text(text(variables)), made, turn.latency, usage)

    templates = [turn.text, *(part for call in turn.tool_calls for part in (call.name, call.arguments))]
    constant = None if is_template(templates) else computed({})
    form, failed = turn.error, None
    if form is not None:
        error = ScriptedError(form.message, form.type == "unavailable", form.retry_after)
        failed = ScriptedReply(latency=turn.latency, error=error)

    def answer(request: ScriptedRequest) -> ScriptedReply:
        if form is not None and failed is not None and (form.times is None or request.attempt <= form.times):
            return failed
        try:
            return computed(conversation_variables(request)) if constant is None else constant
        except TemplateError as error:
            raise ScriptError(f"{where}: {error}") from error

    return answer


def conversation_variables(request: ScriptedRequest) -> JsonObject:
    """Return the variables by name; docs/scripted-model.md lists them. `last` is missing while no tool has run."""
    trigger, payload = request.trigger, request.trigger.payload
    results = [asdict(result) for result in request.results]
    by_tool: JsonObject = {}
    for result in results:
        by_tool[result["name"]] = by_tool[result["name"].replace(".", "__")] = result["content"]
    variables: JsonObject = {
        "trigger": {
            "kind": trigger.kind.value,
            "focus": trigger.focus,
            "payload": payload,
            "source": trigger.source,
        },
        "payload": payload,
        "focus": trigger.focus,
        "agent_id": request.agent_id,
        "run_id": request.run_id,
        "turn": request.turn,
        "attempt": request.attempt,
        "system": request.system,
        "user": next((message.content for message in request.messages if message.role is MessageRole.USER), ""),
        "results": results,
        "result": by_tool,
    }
    if results:
        variables["last"] = results[-1]
    return variables
