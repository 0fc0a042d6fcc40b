"""Webhooks that come in, and callbacks that go out."""
