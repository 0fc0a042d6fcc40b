"""Agent definitions: SOUL.md, IDENTITY.md and agent.yaml, checked and parsed."""
