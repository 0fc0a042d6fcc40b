"""The store: commands that change it, queries that read it, and the way to it from other processes."""
