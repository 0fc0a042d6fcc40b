"""Agent definitions: SOUL.md, IDENTITY.md, agent.yaml and skills, checked and parsed."""
