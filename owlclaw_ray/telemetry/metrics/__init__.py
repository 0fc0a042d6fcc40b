"""Prometheus metrics: counted where commits pass, exposed as text."""
