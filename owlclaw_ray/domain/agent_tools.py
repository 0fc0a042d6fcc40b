"""The names of the agent tools (T22), and what agents that were started by others never have."""

from __future__ import annotations

LIST_AGENT_DEFINITIONS = "agent.list_agent_definitions"
CREATE_SUB_AGENT = "agent.create_sub_agent"
FORK_AGENT = "agent.fork_agent"
LIST_WORKERS = "agent.list_workers"
DISPATCH_WORKER = "agent.dispatch_worker"
INSPECT_AGENT = "agent.inspect_agent"
PLAN_TEMPLATE = "agent.plan_template"
TASK_TEMPLATE = "agent.task_template"
TASK_CREATE = "agent.task_create"
TASK_GET = "agent.task_get"
TASK_LIST = "agent.task_list"
TASK_UPDATE = "agent.task_update"
TASK_QUERY_STEPS = "agent.task_query_steps"
TASK_CLAIM_STEP = "agent.task_claim_step"
TASK_UPDATE_STEP = "agent.task_update_step"
TASK_COMPLETE = "agent.task_complete"
TASK_FAIL = "agent.task_fail"
TASK_CANCEL = "agent.task_cancel"

STARTING = frozenset({CREATE_SUB_AGENT, FORK_AGENT, DISPATCH_WORKER})
"""Those whose calls start a run and wait for its end."""

ORCHESTRATING = STARTING | {
    LIST_AGENT_DEFINITIONS,
    LIST_WORKERS,
    INSPECT_AGENT,
    PLAN_TEMPLATE,
    TASK_TEMPLATE,
    TASK_CREATE,
    TASK_LIST,
    TASK_UPDATE,
    TASK_COMPLETE,
    TASK_FAIL,
    TASK_CANCEL,
}
"""Agent tools that only an agent has which nobody started."""

WORKING = frozenset({TASK_GET, TASK_QUERY_STEPS, TASK_CLAIM_STEP, TASK_UPDATE_STEP})
"""Agent tools that started agents have too."""

AGENT_TOOLS = ORCHESTRATING | WORKING

CHILD_FAILED = "child_failed"
"""The error type of calls whose run did not complete."""

OUTLASTING = frozenset({"remember", "recall", "schedule_once", "schedule_cron"})
"""Built-in tools that would reach beyond the run of a started agent: its memory, and runs that nobody above it knows of."""
