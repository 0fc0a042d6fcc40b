"""May this call run? `ToolDispatch` (`runs/tool_dispatch.py`) asks, in this order, and the first refusal holds:

1. Is the tool visible to the run? `GovernedRun.decide` (`governor.py`), once a run: it asks all evaluators.
2. Do permissions deny it, or does it need an approval? `PermissionGate` (`permission.py`).
3. Does a rule forbid it now? `GovernedRun.forbids`: the evaluators that are enforced before each call.
4. Is there room for it now? `GovernedRun.admit`: rate, breaker, budget.
5. Do the application's hooks let it pass? In the worker: `tools/hooks.py`.
"""
