"""The runtime as HTTP, the command line, clients and tests use it."""
