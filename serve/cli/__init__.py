"""The command line `owlclaw`."""

from serve.cli.entry import main

__all__ = ["main"]
