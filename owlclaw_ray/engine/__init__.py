"""Decisions over ports: how agents are activated, how runs execute, resume and end. Standard library only."""
