"""The journal: append-only facts of a run, from which it resumes and replays, and which clients read as events."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject


class EntryKind(Enum):
    """What happened. The data of each kind is a JSON object with the keys named here."""

    RUN_QUEUED = "run_queued"
    """trigger, focus"""
    TRIGGER_MERGED = "trigger_merged"
    """trigger_id, merged (how many triggers the run stands for now), superseded (the payload that the newest one replaced)"""
    RUN_STARTED = "run_started"
    """epoch"""
    RUN_RESUMED = "run_resumed"
    """epoch, recorded_tool_calls: an activation took over a run that another had begun"""
    APPROVAL_REQUESTED = "approval_requested"
    """approval_id, call_id, tool, permission, tags, reason, arguments, written, target, expires_at, and all else that a person needs"""
    RUN_WAITING = "run_waiting"
    """approvals: the ids of those that the run waits for; runs: the runs whose ends it waits for, by the calls that started them"""
    APPROVAL_DECIDED = "approval_decided"
    """approval_id, call_id, decision, reason, by, arguments (if the approver changed them), status"""
    RUN_CONTINUED = "run_continued"
    """epoch: the run waits no more, and goes on"""
    RUN_ACTIVE = "run_active"
    """seconds: for how long it has been active in all; asking (the model that has not answered yet, if one is being asked);
    running [{call_id, tool, seconds, progress, total, message}] (the tool calls that have not ended, if some are being executed);
    waited_ms (as for model_replied): written from time to time while it is, so
    that its limit holds over take-overs"""
    HEARTBEAT_WOKEN = "heartbeat_woken"
    """events: what is pending, by source; pulse: what the agent remembers of its heartbeats if it deals with that"""
    PROMPT_BUILT = "prompt_built"
    """system, tools (hashes of blobs), user (the first user message), definition (its version), model, scripted, visible (tool names),
    skills (those that were read), withheld (those that must not be, with the reasons), memories (count preloaded)"""
    CONTEXT_COMPACTED = "context_compacted"
    """shortened (results as the model gets them from now on, by call_id), dropped (how many of the oldest turns it gets no more),
    records (of the last turns that were dropped), earlier (how they are shown), window (the tokens that the model was found to take,
    if less than was known)"""
    MODEL_ATTEMPT_FAILED = "model_attempt_failed"
    """model, attempt (which one of this model, from 1), error, next_model (who is asked next: the same, or one that it falls back to),
    retry_in (seconds), waited_ms (as for model_replied)"""
    MODEL_REPLIED = "model_replied"
    """text, tool_calls [{id, name, arguments}], model, scripted, usage {…}, duration_ms, asked_ms (with the attempts that failed
    before, if any), waited_ms (of the time since the entry before, what was spent waiting for a slot of a provider; if any), note (what
    is odd about the reply, if anything)"""
    TOOL_STARTED = "tool_started"
    """call_id, tool: written and committed before a `once` tool runs"""
    TOOL_FINISHED = "tool_finished"
    """call_id, tool, arguments, content | error {type, message, retryable, details}, duration_ms, hooks (what they did, if
    anything), executed (the arguments that the tool got, if others than the model's)"""
    CANCEL_REQUESTED = "cancel_requested"
    """by, if another run's trigger interrupted this one: that run"""
    RUN_FINISHED = "run_finished"
    """status, final_text, error, turns, tool_calls, duration_ms, usage"""


class JournalEntry(Struct, frozen=True):
    """One fact. `seq` counts from 1 in each run without gaps."""

    seq: int
    kind: EntryKind
    at: datetime
    data: JsonObject = field(default_factory=dict)
