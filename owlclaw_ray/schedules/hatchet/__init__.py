"""Hatchet as an alarm engine: alarms over its REST API, and a worker process that it rings."""
