"""Scores: pure functions on arrays."""
