"""Scripts in YAML: rules, turns, templates."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import yaml
from msgspec import Struct
from pydantic import ValidationError

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
from owlclaw_ray.models.scripted.variables import conversation_variables
from owlclaw_ray.models.scripted.yaml_form import ErrorForm, RuleForm, ScriptForm, TurnForm, WhenForm

Answer: TypeAlias = Callable[[ScriptedRequest], ScriptedReply]


def load_yaml(path: Path, text: str) -> YamlScript:
    """Return the script, or raise ConfigurationError with every problem, each with its path in the file."""
    try:
        form = ScriptForm.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigurationError([_syntax_problem(path, error)]) from error
    except ValidationError as error:
        problems = [_problem(path, [str(part) for part in e["loc"]], e["msg"]) for e in error.errors()]
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
                return rule.answer(request)
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
        turns = tuple(_answer(f"{where}.turns.{index}", turn) for index, turn in enumerate(form.turns))
        return cls(where, _conditions(form.when), turns, _answer(f"{where}.then", form.then or TurnForm()))

    def applies(self, request: ScriptedRequest) -> bool:
        try:
            return all(condition(request) for condition in self.conditions)
        except TemplateError as error:
            raise ScriptError(f"{self.where}.when.payload: {error}") from error

    def answer(self, request: ScriptedRequest) -> ScriptedReply:
        turn = request.turn
        return (self.turns[turn] if turn < len(self.turns) else self.then)(request)


def _conditions(when: WhenForm) -> tuple[Callable[[ScriptedRequest], bool], ...]:
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
    return tuple(conditions)


def _answer(where: str, turn: TurnForm) -> Answer:
    """Return what gives the turn's reply; a turn without templates is made here, once."""
    usage = Usage(**turn.usage.model_dump())
    text = compile_value(turn.text)
    calls = [(compile_value(call.name), compile_value(call.arguments)) for call in turn.tool_calls]

    def computed(variables: Variables) -> ScriptedReply:
        made = [ScriptedCall(as_text(name(variables)), as_text(arguments(variables))) for name, arguments in calls]
        return ScriptedReply(as_text(text(variables)), made, turn.latency, usage)

    templates = [turn.text, *(part for call in turn.tool_calls for part in (call.name, call.arguments))]
    succeed = partial(_compute, where, computed) if is_template(templates) else _always(computed({}))
    return succeed if turn.error is None else _failing(turn.error, turn.latency, succeed)


def _always(reply: ScriptedReply) -> Answer:
    return lambda _: reply


def _compute(where: str, computed: Callable[[Variables], ScriptedReply], request: ScriptedRequest) -> ScriptedReply:
    try:
        return computed(conversation_variables(request))
    except TemplateError as error:
        raise ScriptError(f"{where}: {error}") from error


def _failing(form: ErrorForm, latency: float, succeed: Answer) -> Answer:
    error = ScriptedError(form.message, form.type == "unavailable", form.retry_after)
    failed = ScriptedReply(latency=latency, error=error)
    return lambda request: failed if form.times is None or request.attempt <= form.times else succeed(request)


def _problem(path: Path, location: list[str], message: str) -> Problem:
    where = f"{path}: {'.'.join(location)}" if location else str(path)
    return Problem(where, message.removeprefix("Value error, "), "docs/scripted-model.md describes the form")


def _syntax_problem(path: Path, error: yaml.YAMLError) -> Problem:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    where = f"{path}: line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
    what = f"is no YAML: {getattr(error, 'problem', None) or error}"
    return Problem(where, what, "quote texts that contain ': ' and templates: \"{{ … }}\"")
