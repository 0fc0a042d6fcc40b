"""Schedules: what is due, what fires, and who rings at the time."""
