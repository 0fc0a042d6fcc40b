"""The life of a run: submission, activation, decision loop, journal, conversation and prompt."""
