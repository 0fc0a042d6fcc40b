"""Long-term memory: MEMORY.md, its index, and the order of recall."""
