"""`python -m serve.cli`: the command line without its installed script."""

from serve.cli import main

main()
