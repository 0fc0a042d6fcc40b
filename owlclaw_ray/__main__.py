"""The command `owlclaw`, also `python -m owlclaw_ray`: the command line of our own package `serve`, whatever else has that name."""

from __future__ import annotations

import importlib

from owlclaw_ray.own_packages import keep_own_packages


def main() -> None:
    """Run the command line of this process."""
    keep_own_packages()
    importlib.import_module("serve.cli").main()


if __name__ == "__main__":
    main()
