"""Tools that work on a project's files and run its programs (T19). Off unless the settings turn them on."""
