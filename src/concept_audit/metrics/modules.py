"""The scores as `torchmetrics.Metric` classes: update per batch, compute once, safe under DDP.

Scores of this kind are no means over batches, so each class keeps the arrays it is given
(`dist_reduce_fx="cat"`), puts them together and calls the function of the same name: the number is
the same. `compute()` returns the mean as a float64 tensor, ready for `self.log`; `result()` returns
the function's own result with the per-concept values. Not imported by `concept_audit.metrics`,
because it needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

try:
    import torch
    from torchmetrics import Metric
except ImportError as error:  # the base install has neither
    raise ImportError(
        "concept_audit.metrics.modules needs torch and torchmetrics: "
        "pip install 'concept-audit[torch]'. The functions in concept_audit.metrics do not."
    ) from error

__all__ = [
    "DCIES",
    "MCC",
    "MIG",
    "SAP",
    "AlignmentLeakage",
    "ArrayMetric",
    "Completeness",
    "ConceptAccuracy",
    "ConceptsTaskInformation",
    "ConceptsTaskLeakage",
    "Disentanglement",
    "Explicitness",
    "FactorVAEScore",
    "Informativeness",
    "InterconceptInformation",
    "InterconceptLeakage",
    "InterventionAccuracy",
    "InterventionScore",
    "LeakageCriterion",
    "LossCapacityCurve",
    "MeanInterval",
    "MutualInformation",
    "NicheImpurityScore",
    "OracleImpurityScore",
    "PooledPearson",
    "RepresentationSize",
    "SelfInformation",
    "TaskAccuracy",
]


class ArrayMetric(Metric):
    """Base: keeps every array handed to `update` and calls a function of `concept_audit.metrics`.

    Parameters
    ----------
    **options : Any
        Options of the function; those of `torchmetrics.Metric` (`dist_sync_on_step`,
        `process_group`, `sync_on_compute`, `compute_on_cpu`, ...) are passed on to it.

    Attributes
    ----------
    function : str
        Name in `concept_audit.metrics`.
    arrays : tuple of str
        Arguments of `update`, in the order of the function's own.
    value : str
        Attribute of the function's result that `compute` returns; empty for the result itself.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better: bool | None = None

    function: ClassVar[str]
    arrays: tuple[str, ...]
    value: ClassVar[str] = "mean"

    _METRIC_OPTIONS = frozenset(
        (
            "compute_on_cpu",
            "compute_with_cache",
            "dist_sync_fn",
            "dist_sync_on_step",
            "distributed_available_fn",
            "process_group",
            "sync_on_compute",
        )
    )

    def __init__(self, **options: Any) -> None:
        own = {name: options.pop(name) for name in self._METRIC_OPTIONS & set(options)}
        super().__init__(**own)
        self.options = options
        for name in self.arrays:
            self.add_state(f"{name}_rows", default=[], dist_reduce_fx="cat")

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Keep the arrays of one batch: tensors, numpy arrays or lists, by position or name."""
        given = dict(zip(self.arrays, args, strict=False))
        surplus = len(args) > len(self.arrays) or set(kwargs) & set(given)
        given.update(kwargs)
        if surplus or set(given) != set(self.arrays):
            raise TypeError(
                f"{type(self).__name__}.update takes {', '.join(self.arrays)}, "
                f"got {len(args)} by position and {sorted(kwargs)} by name."
            )
        for name in self.arrays:
            batch = torch.as_tensor(given[name]).detach()
            if batch.ndim == 0:
                batch = batch[None]
            getattr(self, f"{name}_rows").append(batch.to(self.device))

    def _gathered(self) -> dict[str, np.ndarray]:
        """All rows of each array."""
        result = {}
        for name in self.arrays:
            rows = getattr(self, f"{name}_rows")
            if not isinstance(rows, list):
                rows = [rows]  # torchmetrics has put the processes' parts together
            if not rows:
                raise ValueError(f"{type(self).__name__} has seen no batch: call update first.")
            joined = torch.cat(rows).cpu()
            result[name] = (joined.float() if joined.dtype == torch.bfloat16 else joined).numpy()
        return result

    def evaluate(self, **arrays: np.ndarray) -> Any:
        """Call the function on whole arrays; classes with another call override this."""
        function = getattr(import_module("concept_audit.metrics"), self.function)
        return function(*(arrays[name] for name in self.arrays), **self.options)

    def result(self) -> Any:
        """Result of the function on the rows seen by this process."""
        return self.evaluate(**self._gathered())

    def compute(self) -> torch.Tensor:
        """Score as a float64 tensor, over the rows of all processes."""
        result = self.result()
        value = getattr(result, self.value) if self.value else result
        return torch.as_tensor(np.array(value, dtype=np.float64))


class MutualInformation(ArrayMetric):
    """`mutual_information(x, y)` in nats."""

    function, arrays, value = "mutual_information", ("x", "y"), ""


class ConceptsTaskLeakage(ArrayMetric):
    """`concepts_task_leakage(c_hat, c, y)` (CTL)."""

    function, arrays, higher_is_better = "concepts_task_leakage", ("c_hat", "c", "y"), False


class InterconceptLeakage(ArrayMetric):
    """`interconcept_leakage(c_hat, c)` (ICL)."""

    function, arrays, higher_is_better = "interconcept_leakage", ("c_hat", "c"), False


class ConceptsTaskInformation(ArrayMetric):
    """`concepts_task_information(vectors, y)` of a concept embedding model."""

    function, arrays = "concepts_task_information", ("vectors", "y")


class InterconceptInformation(ArrayMetric):
    """`interconcept_information(vectors, c)` of a concept embedding model."""

    function, arrays = "interconcept_information", ("vectors", "c")


class SelfInformation(ArrayMetric):
    """`self_information(vectors, c)` of a concept embedding model."""

    function, arrays = "self_information", ("vectors", "c")


class AlignmentLeakage(ArrayMetric):
    """`alignment_leakage(c_pos, c_neg, c, y)` of a concept embedding model."""

    function, arrays, higher_is_better = "alignment_leakage", ("c_pos", "c_neg", "c", "y"), False


class TaskAccuracy(ArrayMetric):
    """`task_accuracy(y_logits, y)`: once over all rows, not a mean over batches."""

    function, arrays, value = "task_accuracy", ("y_logits", "y"), "accuracy"
    higher_is_better = True


class ConceptAccuracy(ArrayMetric):
    """`concept_accuracy(c_hat, c)`: once over all rows."""

    function, arrays, value = "concept_accuracy", ("c_hat", "c"), "accuracy"
    higher_is_better = True


class InterventionAccuracy(ArrayMetric):
    """`intervention_curve(head, bottleneck, c, y)`: the accuracies after 0..G interventions.

    Parameters
    ----------
    head : callable
        As in `intervention_curve`.
    embedding : bool
        Whether `update` also takes `c_pos` and `c_neg` (then `kind="embedding"`).
    **options : Any
        Further options of `intervention_curve`.
    """

    function, value = "intervention_curve", "task_accuracy"
    arrays: tuple[str, ...] = ("bottleneck", "c", "y")
    higher_is_better = True

    def __init__(
        self, head: Callable[..., Any], *, embedding: bool = False, **options: Any
    ) -> None:
        if embedding:
            self.arrays = (*type(self).arrays, "c_pos", "c_neg")
            options.setdefault("kind", "embedding")
        super().__init__(**options)
        self.head = head

    def evaluate(self, **arrays: np.ndarray) -> Any:
        """Call `intervention_curve` with the head."""
        from concept_audit.metrics.interventions import intervention_curve

        bottleneck, c, y = (arrays.pop(name) for name in ("bottleneck", "c", "y"))
        options: dict[str, Any] = {**arrays, **self.options}
        return intervention_curve(self.head, bottleneck, c, y, **options)


class InterventionScore(InterventionAccuracy):
    """S_int (eq. 5): `reference_task_accuracy` minus the accuracy after all interventions."""

    value = ""
    higher_is_better = False

    def __init__(
        self, head: Callable[..., Any], *, reference_task_accuracy: float, **options: Any
    ) -> None:
        super().__init__(head, **options)
        self.reference_task_accuracy = reference_task_accuracy

    def evaluate(self, **arrays: np.ndarray) -> Any:
        """Score of the curve."""
        from concept_audit.metrics.interventions import intervention_score

        return intervention_score(self.reference_task_accuracy, super().evaluate(**arrays))


class OracleImpurityScore(ArrayMetric):
    """`oracle_impurity_score(c_hat, c)` (OIS)."""

    function, arrays, higher_is_better = "oracle_impurity_score", ("c_hat", "c"), False


class NicheImpurityScore(ArrayMetric):
    """`niche_impurity_score(c_hat, c)` (NIS)."""

    function, arrays, higher_is_better = "niche_impurity_score", ("c_hat", "c"), False


class DCIES(ArrayMetric):
    """`dci_es(codes, factors, kinds)`; `compute` returns the vector (D, C, I, E, S)."""

    function, arrays = "dci_es", ("codes", "factors")

    def compute(self) -> torch.Tensor:
        """D, C, I, E and S as a float64 vector."""
        result = self.result()
        values = [float(getattr(result, name)) for name in "DCIES"]
        return torch.tensor(values, dtype=torch.float64)


class Disentanglement(DCIES):
    """D of `dci_es(codes, factors, kinds)`."""

    higher_is_better = True
    letter: ClassVar[str] = "D"

    def compute(self) -> torch.Tensor:
        """One of the five scores, as a float64 tensor."""
        return torch.as_tensor(float(getattr(self.result(), self.letter)), dtype=torch.float64)


class Completeness(Disentanglement):
    """C of `dci_es(codes, factors, kinds)`."""

    letter = "C"


class Informativeness(Disentanglement):
    """I of `dci_es(codes, factors, kinds)`."""

    letter = "I"


class Explicitness(Disentanglement):
    """E of `dci_es(codes, factors, kinds)` over its `capacity_range`."""

    letter = "E"


class LossCapacityCurve(ArrayMetric):
    """`loss_capacity_curve(codes, factors, ...)`; `compute` returns losses (T, K)."""

    function, arrays, value = "loss_capacity_curve", ("codes", "factors"), "losses"


class RepresentationSize(ArrayMetric):
    """`representation_size(L, K)` of the codes and factors seen."""

    function, arrays, value = "representation_size", ("codes", "factors"), ""

    def evaluate(self, **arrays: np.ndarray) -> Any:
        """Ratio of widths."""
        from concept_audit.metrics.disentanglement import representation_size

        return representation_size(arrays["codes"].shape[1], arrays["factors"].shape[1])


class MIG(ArrayMetric):
    """`mig(codes, factors)`."""

    function, arrays, higher_is_better = "mig", ("codes", "factors"), True


class SAP(ArrayMetric):
    """`sap(codes, factors)`."""

    function, arrays, higher_is_better = "sap", ("codes", "factors"), True


class FactorVAEScore(ArrayMetric):
    """`factor_vae_score(codes, factors)`."""

    function, arrays, higher_is_better = "factor_vae_score", ("codes", "factors"), True


class MCC(ArrayMetric):
    """`mcc(codes, factors)`."""

    function, arrays, higher_is_better = "mcc", ("codes", "factors"), True


class MeanInterval(ArrayMetric):
    """`mean_interval(values)`; `compute` returns (mean, low, high)."""

    function, arrays = "mean_interval", ("values",)

    def compute(self) -> torch.Tensor:
        """Mean and interval as a float64 vector."""
        interval = self.result()
        return torch.tensor([interval.mean, interval.low, interval.high], dtype=torch.float64)


class LeakageCriterion(ArrayMetric):
    """`leakage_criterion(a, b)`; `compute` returns 1 (a leaks more), -1, 0 or NaN (undecided)."""

    function, arrays = "leakage_criterion", ("a", "b")
    sign: ClassVar[dict[str, float]] = {
        "a_leaks_more": 1.0,
        "b_leaks_more": -1.0,
        "compatible": 0.0,
        "undecided": float("nan"),
    }

    def compute(self) -> torch.Tensor:
        """Verdict as a number."""
        return torch.tensor(self.sign[self.result().verdict], dtype=torch.float64)


class PooledPearson(ArrayMetric):
    """`pooled_pearson(x, sx, y, sy)`; `compute` returns (r, p)."""

    function, arrays = "pooled_pearson", ("x", "sx", "y", "sy")

    def compute(self) -> torch.Tensor:
        """Correlation and p-value as a float64 vector."""
        pooled = self.result()
        return torch.tensor([pooled.r, pooled.p_value], dtype=torch.float64)
