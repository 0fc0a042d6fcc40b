"""Tools: how functions become definitions with schemas, and how calls are executed."""
