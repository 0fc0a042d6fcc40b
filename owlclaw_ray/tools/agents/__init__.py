"""Agent tools: starting other agents, and the tasks that agents share (T22)."""
