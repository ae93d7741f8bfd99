"""Judging of explanations by a council of models.

`from concept_audit.council import explain, score_sum_council` works for every name in `__all__`; a
name is loaded on first use (PEP 562), so importing this package loads neither torch, transformers
nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> module that defines it.
_HOME: dict[str, str] = {
    "ActivationTable": "importers",
    "Explanation": "explanations",
    "ModelEntry": "leaderboard",
    "ParsedScore": "parsing",
    "ReplyStore": "reply_store",
    "ShownConcept": "explanations",
    "SubsetManifest": "subsets",
    "accuracy_at_effective_concepts": "sparsity",
    "batching_check": "judging",
    "benchmark_scores": "scoring",
    "bradley_terry": "agreement",
    "chance_levels": "alignment",
    "check_submission": "submission",
    "choose_subset": "subsets",
    "consensus": "scoring",
    "consensus_table": "alignment",
    "explain": "explanations",
    "explain_contributions": "explanations",
    "inter_annotator_agreement": "agreement",
    "items_from_submission": "intake",
    "items_from_table": "intake",
    "judge_agreement": "agreement",
    "judge_items": "judging",
    "judge_pairs": "judging",
    "judge_panel": "judging",
    "labels_from_scores": "alignment",
    "load_cbm_suite": "importers",
    "load_labo": "importers",
    "load_lf_cbm": "importers",
    "load_vlg_cbm": "importers",
    "majority_label": "scoring",
    "make_submission": "submission_make",
    "model_entry": "intake",
    "normalised_score": "scoring",
    "number_of_contributing_concepts": "sparsity",
    "number_of_effective_concepts": "sparsity",
    "parse_preference": "parsing",
    "parse_score": "parsing",
    "permutation_baseline": "alignment",
    "position_bias_rate": "alignment",
    "ranking_recovery": "alignment",
    "ranks": "scoring",
    "read_decision_csv": "importers",
    "read_labels": "labels",
    "read_manifest": "subsets",
    "score_sum_council": "scoring",
    "synthetic_labels": "labels",
    "table_from_linear_cbm": "importers",
    "vote_majority_council": "scoring",
    "write_leaderboard": "leaderboard",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Load the module of a public name on first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
