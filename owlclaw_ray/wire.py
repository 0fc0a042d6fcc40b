"""The JSON of the HTTP API, as types: what serve/ reads and sends, what the client sends and receives, what the OpenAPI document describes.

One source for all of these. Bodies of requests carry their limits: `description` says what would be right, in the document and in the
answer to a wrong body. Times are ISO 8601 in UTC with milliseconds (those of ledger records with microseconds, which their
hashes cover) and a `Z`; money is US dollars; a value that is not
there yet is null, never missing. Fields may be added to what is answered, so readers ignore what they do not know.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, get_args

from msgspec import Meta
from typing_extensions import TypedDict

from owlclaw_ray.domain.access_key import DEFAULT_DAYS as DEFAULT_KEY_DAYS
from owlclaw_ray.domain.access_key import MAX_DAYS as MAX_KEY_DAYS
from owlclaw_ray.domain.agent import AGENT_ID
from owlclaw_ray.domain.callback import MAX_NETWORKS, MAX_URL
from owlclaw_ray.domain.principal import ALL, MAX_NAME, PATTERN, ROLES, SCOPES, TENANT_ID
from owlclaw_ray.domain.quota import MAX_QUOTA
from owlclaw_ray.domain.retention import MAX_DAYS
from owlclaw_ray.domain.schedule import (
    MAX_DELAY_SECONDS,
    MAX_FOCUS,
    MAX_INTERVAL_SECONDS,
    MAX_JITTER_SECONDS,
    MIN_INTERVAL_SECONDS,
)
from owlclaw_ray.domain.score import LARGEST, MAX_COMMENT_CHARACTERS, MAX_NAME_CHARACTERS, MAX_WORD_CHARACTERS
from owlclaw_ray.domain.text import NAME, UNSEEN
from owlclaw_ray.domain.trigger import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_DEADLINE_SECONDS,
    MAX_LABEL_CHARACTERS,
    MAX_TASK_TYPE,
)

RunStatus: TypeAlias = Literal[
    "queued", "running", "waiting", "completed", "failed", "timeout", "terminated", "cancelled", "skipped"
]
TriggerKind: TypeAlias = Literal["api", "webhook", "event", "schedule_once", "schedule_cron", "heartbeat", "agent"]
SubmittedKind: TypeAlias = Literal["api", "event"]
EventKind: TypeAlias = Literal[
    "run_queued",
    "trigger_merged",
    "run_started",
    "run_resumed",
    "approval_requested",
    "run_waiting",
    "approval_decided",
    "run_continued",
    "run_active",
    "heartbeat_woken",
    "prompt_built",
    "context_compacted",
    "model_attempt_failed",
    "model_replied",
    "tool_started",
    "tool_finished",
    "cancel_requested",
    "run_finished",
]
LedgerKind: TypeAlias = Literal[
    "trigger", "run", "model_call", "tool_call", "approval", "memory", "decision", "visibility", "access", "warning"
]
BreakKind: TypeAlias = Literal["changed", "removed", "inserted", "moved"]
ApprovalStatus: TypeAlias = Literal["pending", "allowed", "denied", "expired", "withdrawn"]
DecisionKind: TypeAlias = Literal["allow_once", "allow_for_session", "deny"]
BusyPolicy: TypeAlias = Literal["enqueue", "reject", "coalesce", "interrupt"]
RiskLevel: TypeAlias = Literal["low", "medium", "high", "critical"]
DeliveryStatus: TypeAlias = Literal["triggered", "ignored", "waiting", "handled", "unmapped", "refused"]
CallbackStatus: TypeAlias = Literal["waiting", "pending", "delivered", "dead"]
ScheduleKind: TypeAlias = Literal["once", "interval", "cron", "heartbeat"]
ScheduleStatus: TypeAlias = Literal["active", "paused", "done", "cancelled"]
OverlapPolicy: TypeAlias = Literal["buffer_one", "skip", "enqueue", "cancel_previous"]
TickOutcome: TypeAlias = Literal["fired", "caught_up", "skipped"]
Grain: TypeAlias = Literal["minute", "hour", "day", "total"]
UsageBy: TypeAlias = Literal["none", "agent", "definition", "tool"]


NO_NUL = r"^[^\u0000]*$"
"""No database keeps a text with a NUL."""
_SPACES = r"\s\u001c-\u001f\u0085\ufeff"
"""What Python or ECMAScript counts as blank."""
_NOT_BLANK = rf"^[^\u0000]*[^\u0000{_SPACES}][^\u0000]*$"
_WORD = f"[^ ,{UNSEEN}]+"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
AGENT_PATTERN = "^" + AGENT_ID.pattern.replace(r"\w", r"\p{L}\p{N}_") + "$"
"""What AgentRef.parse takes, as ECMAScript writes it."""
AGENTS_PATTERN = "^" + PATTERN.replace(r"\w", r"\p{L}\p{N}_") + "$"
"""What a key may be narrowed to, as ECMAScript writes it."""
MAX_ID = 200
MAX_BATCH = 500
MAX_ARCHIVED = 1_000
"""Memories that one request archives."""


NOT_SHOWN = "unseen"
"""The mark of a field whose value no message repeats."""


def moment(value: object) -> datetime:
    """Return the time that a text of RFC 3339 means, in UTC; raises ValueError for anything else, leap seconds too."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("must be a time with its zone, such as 2026-11-03T09:30:00Z")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999 of UTC") from None


def _short(value: str) -> None:
    """Raise ValueError unless it is of a length that the parsers of cron expressions and zones are asked about."""
    if not 1 <= len(value) <= 200 or "\0" in value:
        raise ValueError(value)


def _text(right: str, most: int, least: int = 0, pattern: str = NO_NUL, **schema: Any) -> Meta:
    r"""Return the limits of a text. The pattern means the same to Python and to ECMAScript but for its end, which is `\Z` in Python."""
    end = pattern.removesuffix("$") + r"\Z"
    return Meta(
        description=right or None, max_length=most, min_length=least or None, pattern=end, extra_json_schema=schema
    )


def _checked_later(right: str, **schema: Any) -> Meta:
    """Return what to say of a field of which the runtime checks more than its type."""
    return Meta(description=right, extra_json_schema=schema)


def _one_of(words: object, **schema: Any) -> Meta:
    return _checked_later(f"one of {', '.join(get_args(words))}", **schema)


_TaskType: TypeAlias = Annotated[str, _text(f"a text of up to {MAX_TASK_TYPE} characters, without NUL", MAX_TASK_TYPE)]
_Label: TypeAlias = Annotated[
    str,
    _text(
        f"a text of 1 to {MAX_LABEL_CHARACTERS} visible ASCII characters and blanks",
        MAX_LABEL_CHARACTERS,
        1,
        r"^[ -~]+$",
    ),
]
IdempotencyKey: TypeAlias = Annotated[str, _text("1 to 255 visible ASCII characters", 255, 1, r"^[!-~]+$")]
_Time: TypeAlias = Annotated[
    str, _checked_later("a time with its zone, such as 2026-11-03T09:30:00Z", format="date-time"), moment
]
_Content: TypeAlias = Annotated[
    str, _text("a text of 1 to 2,000 characters, not blank, without NUL", 2_000, 1, _NOT_BLANK)
]
_Tags: TypeAlias = Annotated[
    list[Annotated[str, _text("one line without a comma", 64, 1, f"^{_WORD}( +{_WORD})*$")]],
    Meta(max_length=10, description="up to 10 texts of 1 to 64 characters in one line, without a comma"),
]


_Name: TypeAlias = Annotated[
    str, _text(f"one line of 1 to {MAX_NAME} characters, no blank at its ends", MAX_NAME, 1, f"^{NAME}$")
]


class TriggerRequest(TypedDict):
    """Why a run should start: any JSON as `payload`, a `focus` of up to 500 characters, and `kind`; and how it comes to its agent.

    `task_type`: what kind of work it is, for which the settings may name a model.
    `session` and `user`: what its trace is grouped with, and for whom it is, up to 128 visible ASCII characters and blanks each.

    `busy`: what becomes of it if the agent has runs already. `priority`: higher goes first. `deadline_seconds`, from acceptance:
    a run that has not begun by then is skipped, one that has is ended. `callback_url`: who is told of the run's end.
    """

    payload: NotRequired[Any]
    focus: NotRequired[Annotated[str, _text(f"a text of up to {MAX_FOCUS} characters, without NUL", MAX_FOCUS)]]
    kind: NotRequired[Annotated[SubmittedKind, _one_of(SubmittedKind, default="api")]]
    task_type: NotRequired[_TaskType]
    session: NotRequired[_Label]
    user: NotRequired[_Label]
    busy: NotRequired[Annotated[BusyPolicy, _one_of(BusyPolicy, default="enqueue")]]
    priority: NotRequired[
        Annotated[
            int,
            Meta(
                ge=LOWEST_PRIORITY,
                le=HIGHEST_PRIORITY,
                description=f"a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}",
                extra_json_schema={"default": 0},
            ),
        ]
    ]
    deadline_seconds: NotRequired[
        Annotated[
            float,
            Meta(gt=0, le=MAX_DEADLINE_SECONDS, description=f"seconds, over 0 and up to {MAX_DEADLINE_SECONDS:.0f}"),
        ]
    ]
    callback_url: NotRequired[
        Annotated[
            str,
            _text(
                f"a URL with https:// or http://, of up to {MAX_URL:,} visible ASCII characters",
                MAX_URL,
                1,
                r"^https?://[!-~]+$",
                format="uri",
            ),
        ]
    ]


class BatchTrigger(TriggerRequest):
    """One trigger of several, with its agent and its own Idempotency-Key."""

    agent: Annotated[str, _checked_later("an agent's id, such as assistant", pattern=AGENT_PATTERN)]
    idempotency_key: NotRequired[IdempotencyKey]


class BatchRequest(TypedDict):
    """Up to 500 triggers. What is no `BatchTrigger` is answered with its own `problem`."""

    triggers: Annotated[
        list[Any], Meta(min_length=1, max_length=MAX_BATCH, description=f"a list of 1 to {MAX_BATCH} triggers")
    ]


class Accepted(TypedDict):
    """A committed trigger. `duplicate`: the Idempotency-Key named this earlier run. `scripted`: no real model answers.

    `merged`: the trigger joined this run, which was queued before it. `interrupted`: the run that is cancelled in its favour.
    """

    run_id: str
    agent: str
    status: RunStatus
    scripted: bool
    duplicate: bool
    merged: bool
    interrupted: str | None


class Trigger(TypedDict):
    """Why a run started. `source` is what fired it: a schedule id, a webhook delivery, a parent run id; empty for a plain request.

    `merged`: how many triggers it stands for, of which the payload is the newest one's. `payload`: in a listing only if asked for.
    `task_type`: only if the trigger named one.
    `session` and `user`: of its trace, as far as the caller said.
    """

    kind: TriggerKind
    payload: NotRequired[Any]
    focus: str
    source: str
    merged: int
    task_type: NotRequired[str]
    session: NotRequired[str]
    user: NotRequired[str]


class Tokens(TypedDict):
    """Tokens of all model calls of a run; `cached` ones are among `prompt`."""

    prompt: int
    completion: int
    cached: int


class RunError(TypedDict):
    """Why a run did not complete."""

    type: str
    message: str
    retryable: bool


class RunResult(TypedDict):
    """How a run ended. `scripted`: some reply came from a script and not from a model."""

    status: RunStatus
    turns: int
    tool_calls: int
    final_text: str
    tools_called: list[str]
    duration_ms: int
    tokens: Tokens
    cost: float
    model: str
    scripted: bool
    error: RunError | None


class Event(TypedDict):
    """One fact of a run's journal. `seq` counts from 1 without gaps; `data` has the keys of its kind."""

    seq: int
    kind: EventKind
    at: str
    data: dict[str, Any]


WaitsFor: TypeAlias = Literal["running_runs", "running_runs_of_key"]


class Run(TypedDict):
    """One execution from trigger to outcome. `events` only where they were asked for.

    `interrupted_by`: the run in whose favour this one was to be cancelled. `waits_for`: the quota of the tenant, or of its key, for which
    it waits to be executed, only while it does.
    """

    run_id: str
    agent: str
    status: RunStatus
    trigger: Trigger
    created_at: str
    started_at: str | None
    finished_at: str | None
    priority: int
    deadline: str | None
    cancel_requested: bool
    interrupted_by: str | None
    result: RunResult | None
    waits_for: NotRequired[WaitsFor]
    events: NotRequired[list[Event]]


class Runs(TypedDict):
    """Runs, the last accepted first. `next_before` continues the listing as `?before=`; null on its last page.

    `searched_to`: if the page has fewer runs than wanted though there may be more, how far back it has looked; else null.
    """

    runs: list[Run]
    next_before: str | None
    searched_to: str | None


class RunOutcomes(TypedDict):
    """How many runs ended how."""

    completed: int
    failed: int
    timeout: int
    terminated: int
    cancelled: int
    skipped: int


class UsageOfRuns(TypedDict):
    """Runs that ended in the time that begins at `begins_at` (null: in all of the time that was asked for), and what they used.

    `agent`, `definition`: whose, where that is counted apart. `cost`: US dollars. `queued_ms`: from acceptance to the beginning.
    `running_ms`: from there to the end, waits for people and other runs included.
    """

    begins_at: str | None
    agent: str | None
    definition: str | None
    runs: int
    outcomes: RunOutcomes
    cost: float
    tokens: Tokens
    queued_ms: int
    running_ms: int


class CallDurations(TypedDict):
    """How many calls took how long: up to 100 ms, longer and up to a second, and so on; `longer`: more than 60 seconds."""

    within_100ms: int
    within_1s: int
    within_10s: int
    within_60s: int
    longer: int


class UsageOfTool(TypedDict):
    """Calls of a tool that ended in the time that begins at `begins_at` (null: in all of the time that was asked for).

    Calls that were refused before the tool ran are not among them. `p95_ms`: 95 of 100 calls took no longer; it is the end of a class
    of `durations`, or the longest call.
    """

    begins_at: str | None
    tool: str
    calls: int
    failures: int
    running_ms: int
    mean_ms: float
    p95_ms: int
    longest_ms: int
    durations: CallDurations


class UsageReport(TypedDict):
    """What was counted, by time, and at one time what cost most, or took most time, first. `since`, `until`: the whole hours, days or
    minutes that were asked for. `complete`: whether nothing was left out for `limit`. `runs` is empty with `by=tool`, `tools` without.
    """

    since: str
    until: str
    grain: Grain
    by: UsageBy
    complete: bool
    runs: list[UsageOfRuns]
    tools: list[UsageOfTool]


class Agent(TypedDict):
    """An agent. `problem`: why its definition cannot be used, empty if it can. `created_at`: null before its first trigger."""

    agent: str
    definition: str
    model: str
    scripted: bool
    isolation: str
    problem: str
    warnings: list[str]
    runs: int
    recent_outcomes: list[str]
    queued_runs: int
    running_run: str | None
    created_at: str | None


class Agents(TypedDict):
    """Every definition's agent, and every agent with a key that ever had a trigger, by id, in the order of the ids' code points.

    `next_after`: where the next page begins; null on the last one.
    """

    agents: list[Agent]
    next_after: str | None


class Skill(TypedDict):
    """A skill of an agent's definition. `problem`: why it cannot be read on the server's machine, empty if it can; `constraints`:
    when and how often its capability may be used, in words.
    """

    name: str
    description: str
    tokens: int
    focus: list[str]
    trigger: list[str]
    task_type: str
    risk_level: RiskLevel
    requires_confirmation: bool
    constraints: list[str]
    problem: str


class Skills(TypedDict):
    """The skills of an agent's definition, by name."""

    skills: list[Skill]


class Memory(TypedDict):
    """One thing that the agent remembered. `run_id` is empty for one that a person wrote; `count`: how often it was remembered;
    `also`: the forms that its text had then, besides `content`.
    """

    memory_id: str
    content: str
    tags: list[str]
    created_at: str
    run_id: str
    session: str
    count: int
    also: list[str]


class Memories(TypedDict):
    """An agent's memories in the order of its file; `next_after` is null on the last page."""

    memories: list[Memory]
    next_after: str | None


class ArchivedMemories(TypedDict):
    """Memories that were moved to the archive."""

    memories: list[Memory]


class FoundMemory(Memory):
    """A memory that a query found. Scores compare within one answer; `explanation` has their parts, if they were asked for."""

    score: float
    explanation: dict[str, float | None] | None


class FoundMemories(TypedDict):
    """What a query found, best first. `degraded`: MEMORY.md was searched word by word, for the `reason`."""

    memories: list[FoundMemory]
    degraded: bool
    reason: str


class FileProblem(TypedDict):
    """Something in a file that could not be read as it was meant: where, what, and what would be right."""

    where: str
    what: str
    fix: str


class MemoryStats(TypedDict):
    """How much an agent remembers, and what is wrong with its files. `file_bytes` are those of MEMORY.md."""

    active: int
    archived: int
    file_bytes: int
    archive_bytes: int
    index_bytes: int
    oldest: str | None
    newest: str | None
    problems: list[FileProblem]


class MemoryRequest(TypedDict):
    """What an agent is to remember: up to 2,000 characters, and up to 10 tags."""

    content: _Content
    tags: NotRequired[_Tags]


class MemoryChange(TypedDict):
    """What is to be another of a memory; what is left out stays. `old_content` and `old_tags` are what was read of it."""

    content: NotRequired[_Content]
    tags: NotRequired[_Tags]
    old_content: NotRequired[Annotated[str, _checked_later("the content as it was read")]]
    old_tags: NotRequired[Annotated[list[str], _checked_later("the tags as they were read")]]


class ArchiveRequest(TypedDict):
    """Memories that are to be archived, up to 1,000."""

    memory_ids: Annotated[
        list[Annotated[str, _text("a memory's id", MAX_ID)]],
        Meta(min_length=1, max_length=MAX_ARCHIVED, description=f"a list of 1 to {MAX_ARCHIVED} ids of memories"),
    ]


class MemoryImported(TypedDict):
    """What became of a MEMORY.md that was put in its place: memories that it lacked for being an older copy are in it again."""

    put_back: list[str]


class ArchiveImported(TypedDict):
    """What became of an archive that was imported: the memories that are new in the agent's archive."""

    added: list[str]


class Reindexed(TypedDict):
    """How many memories the new index holds."""

    indexed: int


class Artifact(TypedDict):
    """A result of a tool that was too large for the model, without its content. `media_type`: text, JSON, an image and so on."""

    artifact_id: str
    media_type: str
    size_bytes: int
    stored_at: str


class Artifacts(TypedDict):
    """An agent's artifacts, newest first."""

    artifacts: list[Artifact]


class Schedule(TypedDict):
    """A durable rule that produces triggers. `next_fire_at` is null once it is done or cancelled.

    `catch_up_seconds`: how late a missed time may still fire; null: as the server's setting says, and however late for kind `once`.
    `task_type`: what kind of work its runs are, empty if nobody says so.
    """

    schedule_id: str
    agent: str
    kind: ScheduleKind
    status: ScheduleStatus
    focus: str
    cron_expression: str
    timezone: str
    interval_seconds: int | None
    jitter_seconds: int
    overlap: OverlapPolicy
    catch_up_seconds: float | None
    task_type: str
    next_fire_at: str | None
    created_at: str
    created_by_run: str | None


class ScheduleRequest(TypedDict):
    """A new schedule. Exactly one of `at` (a time with its zone), `delay_seconds`, `interval_seconds` and `cron_expression` says when.

    `timezone`: the IANA zone of the expression. `jitter_seconds`: it fires later than its times, by a part of so many seconds
    that is ever the same. `overlap`: what becomes of a time when runs of earlier ones are not over. `task_type`: that of its
    runs' triggers.
    """

    focus: Annotated[
        str,
        _text(f"a text of 1 to {MAX_FOCUS} characters that are not all blank, without NUL", MAX_FOCUS, 1, _NOT_BLANK),
    ]
    at: NotRequired[_Time]
    delay_seconds: NotRequired[
        Annotated[float, _checked_later("a number of seconds", exclusiveMinimum=0, maximum=MAX_DELAY_SECONDS)]
    ]
    interval_seconds: NotRequired[
        Annotated[
            int,
            _checked_later("a whole number of seconds", minimum=MIN_INTERVAL_SECONDS, maximum=MAX_INTERVAL_SECONDS),
        ]
    ]
    cron_expression: NotRequired[
        Annotated[
            str,
            _checked_later("five fields, or a name such as @daily; up to 200 characters", format="cron"),
            _short,
        ]
    ]
    timezone: NotRequired[
        Annotated[
            str,
            _checked_later("an IANA zone, such as Asia/Shanghai", format="iana-time-zone", default="UTC"),
            _short,
        ]
    ]
    jitter_seconds: NotRequired[
        Annotated[int, _checked_later("a whole number of seconds", minimum=0, maximum=MAX_JITTER_SECONDS, default=0)]
    ]
    overlap: NotRequired[Annotated[OverlapPolicy, _one_of(OverlapPolicy, default="buffer_one")]]
    catch_up_seconds: NotRequired[
        Annotated[
            Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": MAX_INTERVAL_SECONDS})] | None,
            _checked_later("a number of seconds, or null"),
        ]
    ]
    task_type: NotRequired[_TaskType]


class Schedules(TypedDict):
    """Schedules by agent, oldest first. `next_after`: where the next page begins; null on the last one."""

    schedules: list[Schedule]
    next_after: str | None


class Tick(TypedDict):
    """What became of a due time, or of `count` of them up to `last_due_at`. `reason`: why it was skipped, or `backfill`."""

    firing_id: str
    due_at: str
    last_due_at: str
    count: int
    outcome: TickOutcome
    reason: str
    at: str
    run_id: str | None


class Ticks(TypedDict):
    """What became of a schedule's due times, newest first. `next_before`: where the next page begins; null on the last one."""

    ticks: list[Tick]
    next_before: str | None


class BackfillRequest(TypedDict):
    """From when to when, both included, past due times are to have runs: times with their zones."""

    since: _Time
    until: _Time


class Backfill(TypedDict):
    """The runs that were queued; how many due times had one already (`known`), and how many find the agent's queue full (`refused`)."""

    queued: list[str]
    known: int
    refused: int


class Ring(TypedDict):
    """When to ring for a schedule again (`at`): null if never, as far as is known."""

    schedule_id: str
    at: str | None


class ApprovalDecision(TypedDict):
    """What was decided. `arguments`: those that the approver put in the place of the request's, if any."""

    decision: DecisionKind
    reason: str
    by: str
    arguments: dict[str, Any] | None


class Allowance(TypedDict):
    """What one of the people said who must allow a call together. `principal`: by this they are told apart."""

    decision: DecisionKind
    reason: str
    by: str
    principal: str
    arguments: dict[str, Any] | None
    at: str


class Approval(TypedDict):
    """A tool call that waits for a person, or did, with all that it takes to judge it.

    `role`: the agent's definition. `parent`: the agent that started it, if one did; `started_as`: what it is to that one.
    `reason`: why it asks. `arguments`: what the tool will get; `written`: what the model wrote.
    `target`: what the call acts on; `allow_for_session` is for this target. `hooks`: what hooks did to the call.
    `needed`: how many different people must allow it; `still_needed`: how many more, with the arguments of the last;
    `allowed_by`: who did, where it takes more than one. `excluded`: the principals that may not allow it, because they asked for the run.
    """

    approval_id: str
    status: ApprovalStatus
    agent: str
    role: str
    run_id: str
    call_id: str
    trigger: TriggerKind
    source: str
    parent: str
    started_as: Literal["", "sub_agent", "fork", "worker"]
    tool: str
    description: str
    permission: Literal["readonly", "write"]
    tags: list[str]
    reason: str
    arguments: dict[str, Any]
    written: str
    input_schema: dict[str, Any]
    target: str
    cwd: str
    hooks: list[dict[str, Any]]
    requested_at: str
    expires_at: str
    decided_at: str | None
    decision: ApprovalDecision | None
    needed: int
    still_needed: int
    allowed_by: list[Allowance]
    excluded: list[str]


class Approvals(TypedDict):
    """Approvals, newest first."""

    approvals: list[Approval]


class WebhookSource(TypedDict):
    """Somebody who may send webhooks. `window_seconds`: how old a signature may be, null if it carries no time."""

    source: str
    path: str
    agent: str
    signature_header: str
    algorithm: str
    window_seconds: float | None
    dedupe: str


class WebhookSources(TypedDict):
    """Who may send webhooks, by name."""

    sources: list[WebhookSource]


class WebhookReceipt(TypedDict):
    """What became of a webhook. `duplicate`: it came before, and changed nothing now."""

    delivery_id: str
    status: DeliveryStatus
    run_id: str | None
    duplicate: bool
    reason: str


class Delivery(TypedDict):
    """A webhook that came in. `reason`: why it has not triggered, or empty."""

    delivery_id: str
    source: str
    status: DeliveryStatus
    reason: str
    agent: str | None
    run_id: str | None
    received_at: str


class FullDelivery(Delivery):
    """A delivery with the headers that its mapping reads and its body; `repeatable`: it can be mapped again."""

    headers: dict[str, str]
    body: str
    repeatable: bool


class Deliveries(TypedDict):
    """Webhooks that came in, newest first. `next_before` continues the listing as `?before=`; null on its last page."""

    deliveries: list[Delivery]
    next_before: str | None


class Callback(TypedDict):
    """What is, or was, to be told of a run's end. `attempts`: how often it was tried; `problem`: why the last try failed."""

    callback_id: str
    run_id: str
    agent: str
    url: str
    status: CallbackStatus
    attempts: int
    problem: str
    created_at: str
    tried_at: str | None
    next_try_at: str | None
    delivered_at: str | None


class EndedTrigger(TypedDict):
    """Why a run that is told of started."""

    kind: TriggerKind
    focus: str
    source: str


class EndedRun(TypedDict):
    """What a callback says of a run. `final_text` has at most 100,000 characters; the rest, and the payload, is at /v1/runs."""

    run_id: str
    tenant: str
    agent: str
    status: RunStatus
    trigger: EndedTrigger
    created_at: str
    started_at: str | None
    finished_at: str
    final_text: str
    turns: int
    tool_calls: int
    duration_ms: int
    tokens: Tokens
    cost: float
    model: str
    scripted: bool
    error: RunError | None


class RunFinished(TypedDict):
    """The body of a callback, in the form of Standard Webhooks."""

    type: Literal["run.finished"]
    timestamp: str
    data: EndedRun


class Callbacks(TypedDict):
    """Callbacks, newest first. `next_before` continues the listing as `?before=`; null on its last page."""

    callbacks: list[Callback]
    next_before: str | None


class CallbackSecrets(TypedDict):
    """What signs the callbacks of a tenant, as Standard Webhooks writes it: the present secret, then, while the runtime changes over, the
    one before it. Each signs every callback.
    """

    tenant: str
    secrets: list[str]


class ScoreRequest(TypedDict):
    """What somebody thinks of a run: `name`, `value` (how much, whether, or which of several), and a `comment`."""

    name: Annotated[
        str,
        _text(
            f"a text of 1 to {MAX_NAME_CHARACTERS} characters that are not all blank, without NUL",
            MAX_NAME_CHARACTERS,
            1,
            _NOT_BLANK,
        ),
    ]
    value: Annotated[
        Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
        | bool
        | Annotated[str, _text("", MAX_WORD_CHARACTERS, 1, _NOT_BLANK)],
        Meta(
            title="Value",
            description=f"a number from {-LARGEST:g} to {LARGEST:g}, true, false, or a text of 1 to {MAX_WORD_CHARACTERS} characters",
        ),
    ]
    comment: NotRequired[
        Annotated[
            str,
            _text(f"a text of up to {MAX_COMMENT_CHARACTERS:,} characters, without NUL", MAX_COMMENT_CHARACTERS),
        ]
    ]


class Score(TypedDict):
    """A score that is kept beside its run's trace."""

    score_id: str
    run_id: str
    trace_id: str
    name: str
    value: float | bool | str
    comment: str


class DecisionRequest(TypedDict):
    """What is decided about a call: a `reason` of up to 1,000 characters, `by` whom (up to 200), other `arguments` for the call."""

    decision: Annotated[DecisionKind, _one_of(DecisionKind)]
    reason: NotRequired[Annotated[str, _text("a text of up to 1,000 characters, without NUL", 1_000)]]
    by: NotRequired[Annotated[str, _text("a text of up to 200 characters, without NUL", 200)]]
    arguments: NotRequired[
        Annotated[
            dict[str, Any],
            _checked_later("all arguments of the call, as the tool takes them", additionalProperties=True),
        ]
    ]


class AccessKey(TypedDict):
    """An access key, without its secret. `agents`: patterns of the agents that it is for; empty: all of the tenant."""

    key_id: str
    tenant: str
    name: str
    scopes: list[str]
    agents: list[str]
    created_at: str
    created_by: str
    expires_at: str
    previous_until: str | None
    """Until when the secret before the last rotation is valid, too."""
    last_used_at: str | None
    """To a minute or so."""
    revoked_at: str | None
    starts_a_minute: int | None
    """How many runs may be started by it in one minute of the clock; null: as many as its tenant may."""
    open_runs: int | None
    """How many of its runs may be queued, running and waiting together."""
    running_runs: int | None
    """How many of its runs are executed at once."""
    model_tokens_a_minute: int | None
    """How many tokens of models its runs may use in one minute of the clock."""


class KeyQuotas(TypedDict):
    """Quotas of a key."""

    starts_a_minute: int | None
    open_runs: int | None
    running_runs: int | None
    model_tokens_a_minute: int | None


class KeyDetails(AccessKey):
    """An access key, and what it uses of its quotas at the moment: `use` has null for those that it does not have."""

    use: KeyQuotas


class AccessKeys(TypedDict):
    """Access keys, by id."""

    keys: list[AccessKey]
    next_after: str | None


class IssuedKey(TypedDict):
    """An access key with its text, which is told once."""

    key: str
    """What the header `Authorization: Bearer …` takes."""
    about: AccessKey


_Quota: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_QUOTA, description=f"a whole number from 0 to {MAX_QUOTA}")]

_Days: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DAYS, description=f"a number from 0 to {MAX_DAYS}")]


class KeyRequest(TypedDict):
    """A new access key: `name` says who has it, `scopes` are scopes or roles, `agents` patterns such as `agent:trader:*`, `days` how
    long it is valid, `tenant` another tenant that it is for.

    What it may have and start, beside what its tenant may: `starts_a_minute` how many runs may be started by it in one minute of the
    clock, `open_runs` how many of its runs may be queued, running and waiting together, `running_runs` how many are executed at once,
    `model_tokens_a_minute` how many tokens of models they may use in one minute of the clock.
    """

    name: _Name
    scopes: Annotated[
        list[
            Annotated[str, _checked_later("a scope such as runs:read, or a role", enum=[*ROLES, ALL, *sorted(SCOPES)])]
        ],
        Meta(min_length=1, max_length=50, description="a list of 1 to 50 scopes such as runs:read, or roles"),
    ]
    agents: NotRequired[
        Annotated[
            list[Annotated[str, _checked_later("a pattern such as agent:trader:*", pattern=AGENTS_PATTERN)]],
            Meta(max_length=50, description="a list of up to 50 patterns such as agent:trader:*"),
        ]
    ]
    days: NotRequired[
        Annotated[
            float,
            Meta(
                gt=0,
                le=MAX_KEY_DAYS,
                description=f"days, over 0 and up to {MAX_KEY_DAYS}",
                extra_json_schema={"default": DEFAULT_KEY_DAYS},
            ),
        ]
    ]
    tenant: NotRequired[Annotated[str, _text("a tenant's id", 63, 1, f"^{TENANT_ID}$")]]
    starts_a_minute: NotRequired[_Quota]
    open_runs: NotRequired[_Quota]
    running_runs: NotRequired[_Quota]
    model_tokens_a_minute: NotRequired[_Quota]


class KeyRotation(TypedDict):
    """For how many seconds the secret before stays valid."""

    grace_seconds: NotRequired[
        Annotated[
            float,
            Meta(ge=0, le=2_592_000, description="seconds, 0 to 2592000", extra_json_schema={"default": 0}),
        ]
    ]


TenantStatus: TypeAlias = Literal["active", "suspended", "deleting", "deleted"]
TenantStanding: TypeAlias = Literal["active", "suspended"]


class Quotas(TypedDict):
    """Quotas of a tenant; null: as much as it likes. `open_runs`: runs that are queued, running and waiting together. `running_runs`:
    runs that are executed at once; further ones wait. `starts_a_minute`: runs accepted in one minute of the clock. `agents`: those that
    exist. `schedules`: those that are active or paused, but for heartbeats. `memories`: what agents remember, archived or not.
    `memory_bytes`, `artifact_bytes`: what agents' memories and large results take in the store. `model_tokens_a_minute`: tokens of
    prompts, of replies, and of texts that are made into vectors; model calls wait for the next minute.
    """

    open_runs: int | None
    running_runs: int | None
    starts_a_minute: int | None
    agents: int | None
    schedules: int | None
    memories: int | None
    memory_bytes: int | None
    artifact_bytes: int | None
    model_tokens_a_minute: int | None


class Retention(TypedDict):
    """For how many days a tenant's things are kept; 0: for ever, null: as the settings of the runtime say. `artifact_days`: large results.
    `webhook_days`: deliveries that came in and callbacks that went out. `memory_days`: what its agents remember. `run_days`: runs that
    are over, with their journals.
    """

    artifact_days: float | None
    webhook_days: float | None
    memory_days: float | None
    run_days: float | None


class TenantDeletion(TypedDict):
    """What became of the wish to delete a tenant: how many rows of tables, and files of places, were removed (`removed`), and what was
    `left` when it was last looked (`checked_at`). `unreached`: nodes whose own folders could not be looked at.
    """

    by: str
    requested_at: str
    removed: dict[str, int]
    checked_at: str | None
    left: dict[str, int]
    unreached: list[str]
    deleted_at: str | None


class Tenant(TypedDict):
    """Who shares the runtime. `weight`: its share of what is scarce, beside the weights of the others. `deletion`: null, unless it is
    `deleting` or `deleted`. `retention`: for how many days its things are kept; 0: for ever, null: as the settings of the runtime say.
    `callback_networks`: where its callbacks may go besides public addresses; null: as the settings say.
    """

    tenant: str
    name: str
    status: TenantStatus
    weight: int
    quotas: Quotas
    created_at: str
    created_by: str
    deletion: TenantDeletion | None
    retention: Retention
    callback_networks: list[str] | None


class TenantDetails(Tenant):
    """A tenant, and what it uses of its quotas at the moment: `use` has null for those that it does not have."""

    use: Quotas


class Tenants(TypedDict):
    """Tenants, by id."""

    tenants: list[Tenant]
    next_after: str | None


_Weight: TypeAlias = Annotated[
    int, Meta(ge=1, le=1_000, description="a whole number from 1 to 1000", extra_json_schema={"default": 1})
]


QuotaName: TypeAlias = Literal[
    "open_runs",
    "running_runs",
    "starts_a_minute",
    "agents",
    "schedules",
    "memories",
    "memory_bytes",
    "artifact_bytes",
    "model_tokens_a_minute",
]
QuotaChange: TypeAlias = dict[QuotaName, _Quota | None]
"""The quotas that are to be others; null removes one."""
_QuotaChange: TypeAlias = Annotated[
    QuotaChange,
    Meta(
        description=f"an object of {', '.join(get_args(QuotaName))}: whole numbers from 0 to {MAX_QUOTA}, "
        "or null for as much as it likes",
        extra_json_schema={
            "properties": {
                name: {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_QUOTA}, {"type": "null"}]}
                for name in get_args(QuotaName)
            }
        },
    ),
]


RetentionName: TypeAlias = Literal["artifact_days", "webhook_days", "memory_days", "run_days"]
RetentionChange: TypeAlias = dict[RetentionName, _Days | None]
"""What of the retention is to be another; null: as the settings of the runtime say."""
_RetentionChange: TypeAlias = Annotated[
    RetentionChange,
    Meta(
        description=f"an object of {', '.join(get_args(RetentionName))}: days from 0 (for ever) to {MAX_DAYS}, or null for what the "
        "settings of the runtime say",
        extra_json_schema={
            "properties": {
                name: {"anyOf": [{"type": "number", "minimum": 0, "maximum": MAX_DAYS}, {"type": "null"}]}
                for name in get_args(RetentionName)
            }
        },
    ),
]


_CallbackNetworks: TypeAlias = Annotated[
    Annotated[list[Annotated[str, _checked_later("a network such as 10.1.0.0/16")]], Meta(max_length=MAX_NETWORKS)]
    | None,
    Meta(
        description=f"a list of up to {MAX_NETWORKS} networks such as 10.1.0.0/16, where callbacks may go besides public addresses; "
        "null for what the settings of the runtime say"
    ),
]


class TenantRequest(TypedDict):
    """A new tenant."""

    tenant: Annotated[str, _text("1 to 63 of a-z, 0-9 and '-', not '-' at its ends", 63, 1, f"^{TENANT_ID}$")]
    name: NotRequired[_Name]
    weight: NotRequired[_Weight]
    quotas: NotRequired[_QuotaChange]
    retention: NotRequired[_RetentionChange]
    callback_networks: NotRequired[_CallbackNetworks]


class TenantChange(TypedDict):
    """What is to be another of a tenant; what is left out stays."""

    name: NotRequired[_Name]
    weight: NotRequired[_Weight]
    status: NotRequired[Annotated[TenantStanding, _one_of(TenantStanding)]]
    quotas: NotRequired[_QuotaChange]
    retention: NotRequired[_RetentionChange]
    callback_networks: NotRequired[_CallbackNetworks]


class LeftOutTool(TypedDict):
    """A tool of an MCP server that agents cannot be given."""

    tool: str
    why: str


class SecretRequest(TypedDict):
    """The `value` of a secret, of 6 characters to 65,536 bytes of UTF-8, and `by` whom it is set (up to 200). No answer has the value."""

    value: Annotated[
        str,
        Meta(
            description="a text of at least 6 characters", extra={NOT_SHOWN: True}, extra_json_schema={"minLength": 6}
        ),
    ]
    by: NotRequired[Annotated[str, _text("a text of up to 200 characters, without NUL", 200)]]


class Secret(TypedDict):
    """What may be known of a secret. `rotated_at`: when its value was last set, or encrypted with another master key."""

    name: str
    key_id: str
    """The master key that encrypts it."""
    created_at: str
    rotated_at: str
    created_by: str


class Secrets(TypedDict):
    """Secrets, by name, without their values."""

    secrets: list[Secret]


class SecretRotation(TypedDict):
    """How many secrets were encrypted with the newest master key."""

    rotated: int


class McpServer(TypedDict):
    """An MCP server."""

    name: str
    transport: Literal["stdio", "http"]
    target: str
    state: Literal["connecting", "up", "down", "idle", "stopped"]
    since: str
    problem: str
    """Why it is down, or empty."""
    starts: int
    """How often a connection to it was begun."""
    calls: int
    """How many have ended, since the node began."""
    running: int
    """How many run now."""
    tenants: list[str]
    """Whose agents alone have its tools; empty: those of all tenants."""
    tools: list[str]
    """Canonical names."""
    left_out: list[LeftOutTool]


class McpServers(TypedDict):
    """The MCP servers of one node, by name."""

    servers: list[McpServer]


class LedgerRecord(TypedDict):
    """One audit record with its place in the hash chain of its writer."""

    record_id: str
    agent: str
    run_id: str
    kind: LedgerKind
    at: str
    data: dict[str, Any]
    writer: str
    position: int
    previous_hash: str
    hash: str


class Ledger(TypedDict):
    """Ledger records, oldest first. `next_after` continues the listing as `?after=`; null on its last page."""

    records: list[LedgerRecord]
    next_after: str | None


class LedgerChain(TypedDict):
    """A writer's chain as it was recorded: how many records it has had, and the hash of the last."""

    writer: str
    records: int
    hash: str


class LedgerBreak(TypedDict):
    """Where a chain does not hold: the position, what was done there, and the record, null for one that is not there."""

    writer: str
    position: int
    kind: BreakKind
    record_id: str | None
    problem: str


class LedgerHead(TypedDict):
    """The end of a chain at a time: the hash of the record at this position, the last one."""

    at: str
    tenant: str
    writer: str
    position: int
    hash: str


class LedgerHeads(TypedDict):
    """The ends of all chains, to be kept elsewhere."""

    heads: list[LedgerHead]


class LedgerNotes(TypedDict):
    """With how many heads, noted outside the store, the chains were compared; and why these are fewer than they should be."""

    heads: int
    problems: list[str]


class LedgerVerification(TypedDict):
    """What came of following all chains. `holds`: nothing was changed, removed, inserted or moved.

    `missing_guards`: triggers that have the store refuse to change records, and are not there; a start of the runtime puts them back.
    """

    holds: bool
    chains: list[LedgerChain]
    breaks: list[LedgerBreak]
    noted: LedgerNotes
    missing_guards: list[str]


class NodeVersions(TypedDict):
    """What a node's processes run on."""

    python: str
    ray: str
    owlclaw: str
    platform: str


class Disk(TypedDict):
    """A folder, and the bytes of its file system; both 0 if it does not answer, or the folder is not there."""

    path: str
    free: int
    total: int


class NodeLoad(TypedDict):
    """What a node has to do."""

    hosts: int
    agents: int
    """How many are activated."""
    running: int
    """How many of them are at work."""
    memory_used: float
    """The used share of the machine's memory, or the container's, from 0 to 1."""
    store_seconds: float | None
    """How long a small read of the store takes through the node's Keeper, the median of some; null if one failed."""
    store_problem: str
    waiting_calls: dict[str, int]
    """Calls of tools and memories that wait for one of the node's slots, by the slots' name."""


class NodeVariable(TypedDict):
    """A variable that must be the same on all nodes; of a secret one a hash, which is another in each answer."""

    name: str
    value: str | None


class NodeReport(TypedDict):
    """What a node says of itself."""

    versions: NodeVersions
    memory: int
    """Bytes."""
    data_dir: Disk
    ray_dir: Disk
    load: NodeLoad
    variables: list[NodeVariable]
    application: str
    """A hash of the definitions and of the application's Python files; empty if its folder is not there."""
    shared_files: bool
    """Whether memories, artifacts or attempts are files in `data_dir`, which then must be the same folder on all nodes."""
    folder_mark: str
    """What the Directory wrote into its `data_dir` when it began, as the node sees it; empty if it sees nothing."""


class NodeClock(TypedDict):
    """By how many seconds a node's clock is ahead of the server's, and how exact that is."""

    skew: float
    uncertainty: float


class Slots(TypedDict):
    """A resource that tool calls take."""

    name: str
    total: float
    available: float


class Node(TypedDict):
    """A node of the Ray cluster."""

    node_id: str
    name: str
    """The machine's, with a part of the id if it has several nodes."""
    address: str
    head: bool
    state: Literal["active", "joining", "draining", "no_root", "silent", "lost"]
    problem: str
    """Why it is not active, or empty."""
    cpus: float
    slots: list[Slots]
    parts: list[str]
    """The parts of the runtime that live there."""
    missing: list[str]
    """Those that each node has, and this one has not."""
    clock: NodeClock | None
    report: NodeReport | None
    """Null if the node did not answer."""


class OtherCluster(TypedDict):
    """Another cluster with nodes in the same store, as they said of themselves when they joined."""

    cluster: str
    machines: list[str]
    version: str
    """Of OwlClaw; empty if it is one that does not say so."""
    schema: str
    """The newest that it knows; empty as the version is."""
    since: str


class Lease(TypedDict):
    """The lease of the store, which says which cluster runs its agents."""

    cluster: str
    """This cluster."""
    held: bool
    generation: int
    """How often the lease has changed hands; 0 if it is not known."""
    holder: str
    """The other cluster that holds it; empty if this one does, or if it is not known."""
    others: list[OtherCluster]
    """The other clusters that use the store, or did until lately."""


class Nodes(TypedDict):
    """The nodes of the cluster, by id, those that were lost included. `lease` is null where no other cluster can use the store."""

    nodes: list[Node]
    missing: list[str]
    """Parts of which the cluster has one, and that live nowhere now."""
    lease: Lease | None


class Liveness(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Health(TypedDict):
    """Whether triggers are accepted (`status`). For who has the scope `system:read`, and for everybody as long as there are no keys, also
    the state of each part: `ok`, or what is wrong.
    """

    status: Literal["ready", "not_ready"]
    ready: NotRequired[bool]
    parts: NotRequired[dict[str, str]]
    standby: NotRequired[bool]
    """Whether another cluster runs the agents of the store."""
    holder: NotRequired[str]
    """Which; empty if there is none."""


class RequestProblem(TypedDict):
    """One thing that is wrong: where, what, and what would be right."""

    where: str
    what: str
    fix: str


class Problem(TypedDict):
    """An error (RFC 9457). `type` is stable and names the kind; `detail` is a sentence for people; the rest depends on the kind."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    problems: NotRequired[list[RequestProblem]]
    agent: NotRequired[str]
    known: NotRequired[list[str]]
    kind: NotRequired[str]
    id: NotRequired[str]
    key: NotRequired[str]
    line: NotRequired[int]
    column: NotRequired[int]
    limit_bytes: NotRequired[int]
    limit: NotRequired[int]
    run_id: NotRequired[str]
    approval_id: NotRequired[str]
    approval_status: NotRequired[ApprovalStatus]
    url: NotRequired[str]
    source: NotRequired[str]
    delivery_id: NotRequired[str]
    settled_status: NotRequired[str]
    why: NotRequired[str]


class BatchResult(TypedDict):
    """What became of one trigger of several: `status` is what it would have been answered alone, with `accepted` or `problem`."""

    status: int
    accepted: Accepted | None
    problem: Problem | None


class BatchResults(TypedDict):
    """One result for each trigger, in the order of the request."""

    results: list[BatchResult]
