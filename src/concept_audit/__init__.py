"""Leakage, disentanglement and explanation scores for concept-based models."""

__all__ = ["__version__"]

__version__ = "0.1.0"
