"""Measurements, each with its baseline in the same run."""
