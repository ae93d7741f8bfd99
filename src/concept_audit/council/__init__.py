"""Judging of explanations by a council of models."""
