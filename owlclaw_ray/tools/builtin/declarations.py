"""The seven tools as a model is told of them."""

from __future__ import annotations

from owlclaw_ray.domain.tool import QUERY_STATE, RECALL, REMEMBER, Effect, ToolClass
from owlclaw_ray.tools.builtin import arguments
from owlclaw_ray.tools.builtin.contract import BuiltInDeclaration

SCHEDULE_ONCE = "schedule_once"
SCHEDULE_CRON = "schedule_cron"
CANCEL_SCHEDULE = "cancel_schedule"
LOG_DECISION = "log_decision"

_RECALLED_BYTES = 256 * 1024
"""More than 20 memories of 2,000 characters can have."""

DECLARATIONS = (
    BuiltInDeclaration(
        SCHEDULE_ONCE,
        "Start one future run of yourself after a delay. Use it to look again later instead of waiting. "
        "Returns schedule_id and scheduled_at.",
        arguments.ScheduleOnceArguments,
        Effect.IDEMPOTENT,
        ToolClass.QUICK,
    ),
    BuiltInDeclaration(
        SCHEDULE_CRON,
        "Start runs of yourself again and again at fixed times. Check that no schedule of yours does the same already. "
        "Returns schedule_id and next_run_at.",
        arguments.ScheduleCronArguments,
        Effect.IDEMPOTENT,
        ToolClass.QUICK,
    ),
    BuiltInDeclaration(
        CANCEL_SCHEDULE,
        "End one of your own schedules, so that it starts no more runs. `cancelled` tells whether it did; `message` why not.",
        arguments.CancelScheduleArguments,
        Effect.IDEMPOTENT,
        ToolClass.QUICK,
    ),
    BuiltInDeclaration(
        REMEMBER,
        "Store something in your long-term memory, where future runs find it with recall. Use it for facts, preferences and "
        "lessons that last; not for what is only of this run. Returns memory_id.",
        arguments.RememberArguments,
        Effect.IDEMPOTENT,
        ToolClass.MEMORY,
    ),
    BuiltInDeclaration(
        RECALL,
        "Search your long-term memory. Returns the memories that fit best, with the time when each was stored; of two that "
        "contradict each other, trust the newer.",
        arguments.RecallArguments,
        Effect.PURE,
        ToolClass.MEMORY,
        inline_bytes=_RECALLED_BYTES,
    ),
    BuiltInDeclaration(
        QUERY_STATE,
        "Read the present state of the business by its name. Use it before you act on figures that may have changed.",
        arguments.QueryStateArguments,
        Effect.PURE,
        ToolClass.STATE,
    ),
    BuiltInDeclaration(
        LOG_DECISION,
        "Record a decision and its reasons for the audit. Use it when you choose between options, and when you decide to do "
        "nothing.",
        arguments.LogDecisionArguments,
        Effect.IDEMPOTENT,
        ToolClass.QUICK,
    ),
)
