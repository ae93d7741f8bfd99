"""Estimators of mutual information: plug-in, Kraskov et al. 2004 and Ross 2014."""

from __future__ import annotations

from concept_audit.metrics.information.normalised import mutual_information

__all__ = ["mutual_information"]
