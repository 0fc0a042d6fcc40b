"""The body of a decision, checked by hand so that everything wrong is said at once."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.shapes import Text

REASON, BY = Text(1_000), Text(200)
_FIELDS = ("decision", "reason", "by", "arguments")
_DECISIONS = {each.value: each for each in Decision}


def parse_decision(body: bytes) -> ApprovalDecision:
    """Return what a body decides; raises MalformedJsonError, or InvalidRequestError with every field that is wrong."""
    parsed = read_json(body or b"{}")
    if not isinstance(parsed, dict):
        raise InvalidRequestError([Problem("body", "must be a JSON object", 'such as {"decision": "allow_once"}')])
    problems = [*_unknown(parsed), *_decision_problems(parsed), *_text_problems(parsed), *_argument_problems(parsed)]
    if problems:
        raise InvalidRequestError(problems)
    return ApprovalDecision(
        _DECISIONS[parsed["decision"]], parsed.get("reason", ""), parsed.get("by", ""), parsed.get("arguments")
    )


def _unknown(parsed: dict[str, Any]) -> list[Problem]:
    known = f"known fields: {', '.join(_FIELDS)}"
    return [Problem(f"body.{name}", "unknown field", known) for name in parsed if name not in _FIELDS]


def _decision_problems(parsed: dict[str, Any]) -> list[Problem]:
    decision, allowed = parsed.get("decision"), f"one of {', '.join(_DECISIONS)}"
    if decision is None:
        return [Problem("body.decision", "is missing", allowed)]
    if not isinstance(decision, str) or decision not in _DECISIONS:
        return [Problem("body.decision", "is no decision", allowed)]
    if decision == Decision.DENY.value and "arguments" in parsed:
        return [Problem("body.arguments", "come with a denial", "leave them out, or allow the call")]
    return []


def _text_problems(parsed: dict[str, Any]) -> list[Problem]:
    return [
        Problem(f"body.{name}", "cannot be kept", f"a text of up to {text.most} characters, without NUL")
        for name, text in (("reason", REASON), ("by", BY))
        if not text.fits(parsed.get(name, ""))
    ]


def _argument_problems(parsed: dict[str, Any]) -> list[Problem]:
    if isinstance(parsed.get("arguments", {}), dict):
        return []
    return [Problem("body.arguments", "are no JSON object", "all arguments of the call, as the tool takes them")]
