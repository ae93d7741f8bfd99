"""Probes: what predicts a factor from a code, each as a ladder of growing capacity."""

from __future__ import annotations
