"""Figures of the DCI-ES paper, one module each."""
