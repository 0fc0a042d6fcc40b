"""The console: pages for people, above the HTTP API."""
