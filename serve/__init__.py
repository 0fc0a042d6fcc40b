"""The HTTP API and the command line: they translate, and decide nothing."""
