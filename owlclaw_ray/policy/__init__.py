"""May this call run: visible tools, permissions and approvals, budgets, rate limits, circuit breakers."""
