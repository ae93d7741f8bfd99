"""Figures of "Leakage and Interpretability in Concept-Based Models" (arXiv 2504.14094)."""
