"""Tools of MCP servers: which servers there are, what their tools are here, and what calls of them give (T21)."""
