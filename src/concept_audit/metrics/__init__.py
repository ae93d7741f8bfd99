"""Scores of concept-based models: arrays in, numbers out.

`from concept_audit.metrics import concepts_task_leakage` works for every name in `__all__`. A name
is loaded on first use (PEP 562), so importing this package takes milliseconds and pulls in neither
torch nor scikit-learn nor numba. The `torchmetrics` forms live in `concept_audit.metrics.modules`
and are imported from there.

Three scores bear the name of their module (`disentanglement`, `explicitness`, `dci_es`). Here the
name is always the function, whichever was imported first; the module is reached by its full path,
`from concept_audit.metrics.disentanglement import ...`.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

# Public name -> module that defines it. One line a name, one block a module.
_HOME: dict[str, str] = {
    # metrics/information
    "mutual_information": "information",
    # metrics/leakage.py
    "concepts_task_leakage": "leakage",
    "interconcept_leakage": "leakage",
    # metrics/cem_information.py
    "alignment_leakage": "cem_information",
    "concepts_task_information": "cem_information",
    "interconcept_information": "cem_information",
    "self_information": "cem_information",
    # metrics/checking.py
    "check_metric": "checking",
    # metrics/interventions.py
    "coop_weights": "interventions",
    "intervention_curve": "interventions",
    "intervention_score": "interventions",
    "misclassified_configurations": "interventions",
    # metrics/accuracy.py
    "concept_accuracy": "accuracy",
    "task_accuracy": "accuracy",
    # metrics/impurity.py
    "niche_impurity_score": "impurity",
    "oracle_impurity_score": "impurity",
    "oracle_matrix": "impurity",
    # metrics/comparison.py
    "leakage_criterion": "comparison",
    "mean_interval": "comparison",
    "pooled_pearson": "comparison",
    # metrics/disentanglement.py
    "completeness": "disentanglement",
    "disentanglement": "disentanglement",
    "informativeness": "disentanglement",
    "representation_size": "disentanglement",
    # metrics/explicitness.py
    "explicitness": "explicitness",
    "loss_capacity_curve": "explicitness",
    # metrics/dci_es.py
    "dci_es": "dci_es",
    # metrics/importance.py
    "importance_matrix": "importance",
    "sage_values": "importance",
    # metrics/generative.py
    "factor_vae_score": "generative",
    "mcc": "generative",
    "mig": "generative",
    "sap": "generative",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Load the module of a public name on first use."""
    home = _HOME.get(name)
    if home is None:
        near = get_close_matches(name, _HOME, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # next access is a plain lookup
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _MetricsPackage(ModuleType):
    """Package whose public names stay functions when a submodule of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOME.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _MetricsPackage
