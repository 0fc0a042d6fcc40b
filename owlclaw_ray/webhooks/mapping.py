"""From a webhook's body and headers to a trigger (S5).

A text may have `{body}`, `{body.path.to.0.something}` and `{header.Name}` in it. A text that is nothing but one of them
stands for the value itself, be it an object; in longer texts values become text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson
from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef, InvalidAgentNameError
from owlclaw_ray.domain.json import JsonValue, texts_in
from owlclaw_ray.domain.trigger import MAX_LABEL_CHARACTERS, MAX_TASK_TYPE, Trigger, TriggerKind
from owlclaw_ray.domain.webhook import PLACE, BodyForm, WebhookSource
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.json_limits import JsonLimitError, read_json

MAX_FOCUS_CHARACTERS = 500
_UNLABELLED = re.compile(r"[^ -~]")


class UnmappableError(ValueError):
    """The content lacks what the mapping asks for; the message says what."""


class WebhookContent(Struct, frozen=True):
    """The content of a webhook."""

    body: JsonValue
    headers: Mapping[str, str]
    """By their names in lower case."""


class MappedWebhook(Struct, frozen=True):
    """What a webhook triggers."""

    agent: AgentRef
    trigger: Trigger


class IgnoredWebhook(Struct, frozen=True):
    """The webhook triggers nothing: `why`."""

    why: str


def read_body(form: BodyForm, body: bytes) -> JsonValue:
    """Return the content of a body; raises UnmappableError if it is not of that form."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise UnmappableError("the body is not UTF-8") from None
    match form:
        case BodyForm.TEXT:
            return text
        case BodyForm.FORM:
            fields = parse_qsl(text, keep_blank_values=True)
            return {name: value for name, value in reversed(fields)}  # noqa: C416 - of several the first
        case BodyForm.JSON:
            try:
                parsed: JsonValue = read_json(body)
            except JsonLimitError as error:
                raise UnmappableError(f"the body cannot be kept: {error}") from None
            except orjson.JSONDecodeError as error:
                where = f"line {error.lineno}, column {error.colno}"
                raise UnmappableError(f"the body is not JSON: {error.msg} at {where}") from None
            return parsed


def map_delivery(
    source: WebhookSource, tenant: TenantId, content: WebhookContent, fired: str
) -> MappedWebhook | IgnoredWebhook:
    """Return what the content triggers, `fired` by that delivery; raises UnmappableError."""
    mapping = source.mapping
    for template, values in mapping.when:
        try:
            found = text_of(template, content)
        except UnmappableError as error:
            return IgnoredWebhook(str(error))
        if found not in values:
            return IgnoredWebhook(f"{template} is {found[:80]!r}, which is none of {', '.join(values)}")
    try:
        agent = AgentRef.parse(text_of(mapping.agent, content), tenant)
    except InvalidAgentNameError as error:
        raise UnmappableError(str(error)) from None
    focus = text_of(mapping.focus, content).replace("\0", " ")[:MAX_FOCUS_CHARACTERS]
    task_type = text_of(mapping.task_type, content).replace("\0", " ")[:MAX_TASK_TYPE]
    session, user = (
        _UNLABELLED.sub("?", text_of(each, content))[:MAX_LABEL_CHARACTERS] for each in (mapping.session, mapping.user)
    )
    payload = rendered(mapping.payload, content)
    trigger = Trigger(TriggerKind.WEBHOOK, payload, focus, fired, task_type=task_type, session=session, user=user)
    return MappedWebhook(agent, trigger)


def rendered(template: JsonValue, content: WebhookContent) -> JsonValue:
    """Return the JSON value with every text filled in; raises UnmappableError."""
    match template:
        case str():
            whole = PLACE.fullmatch(template)
            return _value(whole, content) if whole else text_of(template, content)
        case list():
            return [rendered(each, content) for each in template]
        case dict():
            return {key: rendered(each, content) for key, each in template.items()}
        case _:
            return template


def text_of(template: str, content: WebhookContent) -> str:
    """Return a text with its places filled in; raises UnmappableError."""

    def fill(place: re.Match[str]) -> str:
        value = _value(place, content)
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    return PLACE.sub(fill, template)


def header_names(source: WebhookSource) -> frozenset[str]:
    """Return which headers the mapping reads, in small letters."""
    mapping = source.mapping
    texts = [
        mapping.agent,
        mapping.focus,
        mapping.session,
        mapping.user,
        mapping.task_type,
        mapping.dedupe,
        *(template for template, _ in mapping.when),
    ]
    texts += texts_in(mapping.payload)
    places = (place for text in texts for place in PLACE.finditer(text))
    return frozenset(place[2].removeprefix(".").lower() for place in places if place[1] == "header")


def _value(place: re.Match[str], content: WebhookContent) -> JsonValue:
    path = place[2].removeprefix(".")
    if place[1] == "header":
        if path.lower() not in content.headers:
            raise UnmappableError(f"there is no header {path}")
        return content.headers[path.lower()]
    value: Any = content.body
    for part in path.split(".") if path else ():
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise UnmappableError(f"the body has nothing at {path!r}")
    found: JsonValue = value
    return found
