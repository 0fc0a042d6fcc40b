"""MCP servers through the official SDK: their processes, the connections to them, and the pool of a node."""
