"""The arguments of the built-in tools: one pydantic model each gives both the JSON schema and the validation."""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.signature import arguments_of_model

_NOT_BLANK = r"\S"


class InvalidToolArgumentsError(ToolArgumentsError, ValueError):
    """ToolArgumentsError that is also the ValueError which callers of `execute` expect (T18)."""


Focus = Annotated[
    str,
    Field(
        min_length=1,
        max_length=500,
        pattern=_NOT_BLANK,
        description="What the future run should attend to, in one or two sentences. It is all that the run is told.",
    ),
]
Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=_NOT_BLANK)]


class ArgumentModel(BaseModel):
    """What all tools' arguments have in common: nothing unknown is accepted."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScheduleOnceArguments(ArgumentModel):
    """Arguments of schedule_once."""

    delay_seconds: int = Field(
        ge=1,
        le=2_592_000,
        description="Seconds from now until the run: 300 is five minutes, 86400 a day; at most 30 days.",
    )
    focus: Focus


class ScheduleCronArguments(ArgumentModel):
    """Arguments of schedule_cron."""

    cron_expression: str = Field(
        min_length=1,
        max_length=200,
        description="Five fields: minute, hour, day of month, month, day of week. '0 9 * * MON-FRI' is 09:00 on workdays.",
    )
    focus: Focus
    timezone: str = Field(
        default="UTC",
        min_length=1,
        max_length=64,
        description="IANA name of the time zone that the expression is in, such as Asia/Shanghai.",
    )


class CancelScheduleArguments(ArgumentModel):
    """Arguments of cancel_schedule."""

    schedule_id: str = Field(
        min_length=1, max_length=128, description="The schedule_id that schedule_once or schedule_cron returned."
    )


class RememberArguments(ArgumentModel):
    """Arguments of remember."""

    content: str = Field(
        min_length=1,
        max_length=2_000,
        pattern=_NOT_BLANK,
        description="What to remember, complete in itself: name who, what and when, for a reader who knows nothing else.",
    )
    tags: list[Tag] = Field(
        default=[], max_length=10, description="Short labels to find it by, such as a topic or a customer."
    )


class RecallArguments(ArgumentModel):
    """Arguments of recall."""

    query: str = Field(
        min_length=1,
        max_length=2_000,
        pattern=_NOT_BLANK,
        description="What you want to know, as a question or as key words, in the language of the memory.",
    )
    limit: int = Field(default=5, ge=1, le=20, description="How many memories to return at most.")
    tags: list[Tag] = Field(
        default=[], max_length=10, description="Only memories that carry all of these tags; none: any memory."
    )
    archived: bool = Field(
        default=False,
        description="Search by words what was archived for being old instead, when nothing else answers the question.",
    )
    explain: bool = Field(default=False, description="Also say what each score is made of.")


class QueryStateArguments(ArgumentModel):
    """Arguments of query_state."""

    state_name: str = Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,128}$", description="Name of the state, as your skills and instructions give it."
    )


class LogDecisionArguments(ArgumentModel):
    """Arguments of log_decision."""

    reasoning: str = Field(
        min_length=1,
        max_length=1_000,
        pattern=_NOT_BLANK,
        description="What you decided and why, for the people who audit it.",
    )
    decision_type: Literal["capability_selection", "schedule_decision", "no_action", "other"] = Field(
        default="other",
        description="What it was about: which capability to use, when to run next, doing nothing, or anything else.",
    )


A = TypeVar("A", bound=ArgumentModel)


def parse(tool: str, model: type[A], arguments: JsonObject) -> A:
    """Return the arguments as the model, or raise InvalidToolArgumentsError with one line a problem."""
    try:
        (parsed,) = arguments_of_model(model, tool).read(tool, json.dumps(arguments)).positional
    except ToolArgumentsError as error:
        raise InvalidToolArgumentsError(tool, error.details) from None
    return cast("A", parsed)
