"""Interventions: accuracy as concepts are set to their true values, S_int, a head's mistakes.

The head is a callable `head(bottleneck) -> logits` on numpy arrays, so a trained torch head, a
scikit-learn pipeline or a lambda all serve. All samples take one step together: a curve of G groups
costs G + 1 calls of the head (CooP: two more per concept and step).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import (
    as_binary_concepts,
    as_labels,
    as_matrix,
    as_vectors,
    check_same_rows,
    check_same_shape,
    to_numpy,
)
from concept_audit.metrics.accuracy import as_logits, predicted_classes
from concept_audit.metrics.intervention_policies import (
    Groups,
    Head,
    InterventionSetup,
    as_groups,
    expand_mask,
    fixed_order,
    named_order,
    set_masks,
)

__all__ = [
    "ConfigurationErrors",
    "InterventionCurve",
    "coop_weights",
    "intervention_curve",
    "intervention_score",
    "misclassified_configurations",
]

Kind = Literal["hard", "soft", "logit", "embedding"]

KINDS = ("hard", "soft", "logit", "embedding")
COOP_WEIGHTS = (0.1, 1.0, 10.0, 100.0)  # leakage paper's code: grid of both CooP weights
MAX_CONFIGURATION_CONCEPTS = 12  # 2^12 configurations are still a list one can read


@dataclass(frozen=True)
class InterventionCurve:
    """Task accuracy after 0..G groups of concepts were set to their true values.

    Attributes
    ----------
    task_accuracy : NDArray
        `(n_groups + 1,)`; entry j is the accuracy after j groups.
    order : NDArray or None
        `(n, n_groups)`: group set at each step, per sample; None for precomputed logits.
    policy, kind : str
        Policy (`fixed` for a given order, `precomputed` for given logits) and concept kind.
    group_names : tuple of str
        Names in the numbering of `order`.
    competence : float
        Chance that a set value is the true one.
    seed : int
        Seed of the random policy and of the competence draws.
    n_samples, n_concepts, n_groups : int
        Rows, concepts, groups.
    """

    task_accuracy: Float[NDArray[np.float64], " steps"]
    order: Int[NDArray[np.int64], "n groups"] | None
    policy: str
    kind: str
    group_names: tuple[str, ...]
    competence: float
    seed: int
    n_samples: int
    n_concepts: int
    n_groups: int

    @property
    def intervened_task_accuracy(self) -> float:
        """Accuracy after all groups: second term of S_int (eq. 5), the same for every policy."""
        return float(self.task_accuracy[-1])


@dataclass(frozen=True)
class ConfigurationErrors:
    """Which concept configurations a fully intervened head gets wrong.

    Attributes
    ----------
    configurations : NDArray
        `(q, k)`: the configurations that occur in the data, in binary order.
    bits : tuple of str
        The same as strings, first concept first, for example `011`.
    expected, predicted : NDArray
        `(q,)`: most frequent label of the rows of a configuration, and the head's class.
    share : NDArray
        `(q,)`: share of all rows with that configuration; sums to 1.
    wrong_share : NDArray
        `(q,)`: share of all rows that have the configuration and are misclassified; sums to
        1 minus the accuracy after all interventions.
    n_samples, n_concepts : int
        Rows and concepts.
    """

    configurations: Int[NDArray[np.int64], "q k"]
    bits: tuple[str, ...]
    expected: Int[NDArray[np.int64], " q"]
    predicted: Int[NDArray[np.int64], " q"]
    share: Float[NDArray[np.float64], " q"]
    wrong_share: Float[NDArray[np.float64], " q"]
    n_samples: int
    n_concepts: int

    @property
    def misclassified(self) -> dict[str, float]:
        """Share of all rows lost to each configuration whose class is not the expected one."""
        wrong = np.flatnonzero(self.expected != self.predicted)
        return {self.bits[i]: float(self.wrong_share[i]) for i in wrong}

    @property
    def intervened_task_accuracy(self) -> float:
        """Accuracy after all interventions."""
        return float(1.0 - self.wrong_share.sum())


def _as_percentiles(
    percentiles: ArrayLike | None, kind: str, k: int
) -> Float[NDArray[np.float64], "2 k"]:
    """Values that stand for 0 and 1 in each concept."""
    if kind != "logit":
        if percentiles is not None:
            raise ValueError(f"percentiles belong to kind='logit', got kind={kind!r}.")
        return np.stack([np.zeros(k), np.ones(k)])
    if percentiles is None:
        raise ValueError(
            "percentiles are needed for kind='logit': the 5th and 95th percentile of each "
            "concept's logits over the training set, shape (2, k), for example "
            "np.percentile(c_logits_train, [5, 95], axis=0). Those of the evaluated rows would "
            "make an intervention depend on the batch."
        )
    values = as_matrix("percentiles", percentiles)
    if values.shape != (2, k):
        raise ValueError(f"percentiles must have shape (2, {k}), got {values.shape}.")
    if np.any(values[0] > values[1]):
        worst = int(np.argmax(values[0] - values[1]))
        raise ValueError(
            "percentiles must hold the low value first, got "
            f"{values[0, worst]:.4g} above {values[1, worst]:.4g} for concept {worst}."
        )
    return values


def _prepare(
    head: Head,
    bottleneck: ArrayLike,
    y: ArrayLike,
    groups: tuple[tuple[int, ...], ...],
    concepts: NDArray[np.int64],
    kind: str,
    percentiles: ArrayLike | None,
    c_pos: ArrayLike | None,
    c_neg: ArrayLike | None,
) -> InterventionSetup:
    """Check the arrays of a curve and lay out what an intervention writes."""
    labels = as_labels("y", y)
    k = concepts.shape[1]
    values = _as_percentiles(percentiles, kind, k)
    if kind != "embedding":
        if c_pos is not None or c_neg is not None:
            raise ValueError(f"c_pos and c_neg belong to kind='embedding', got kind={kind!r}.")
        current = as_matrix("bottleneck", bottleneck)
        check_same_rows(bottleneck=current, c=concepts, y=labels)
        check_same_shape("(n, k)", bottleneck=current, c=concepts)
        low = np.broadcast_to(values[0], current.shape)
        high = np.broadcast_to(values[1], current.shape)
        flat = False
    else:
        if c_pos is None or c_neg is None:
            raise ValueError(
                "c_pos and c_neg are needed for kind='embedding': an intervention replaces the "
                "mixed vector of a concept by its positive or negative one, (n, k, m) each."
            )
        high, low = as_vectors("c_pos", c_pos), as_vectors("c_neg", c_neg)
        check_same_shape("(n, k, m)", c_pos=high, c_neg=low)
        raw = to_numpy("bottleneck", bottleneck)
        flat = raw.ndim == 2
        if flat and raw.shape[1] == high.shape[1] * high.shape[2]:
            raw = raw.reshape(raw.shape[0], high.shape[1], high.shape[2])
        current = as_vectors("bottleneck", raw)
        check_same_shape("(n, k, m)", bottleneck=current, c_pos=high)
        check_same_rows(bottleneck=current, c=concepts, y=labels)
        if current.shape[1] != k:
            raise ValueError(
                f"c_pos and c must agree on the number of concepts k: got {current.shape[1]} "
                f"and {k}."
            )
    target = np.where(expand_mask(concepts == 1, current), high, low)
    return InterventionSetup(head, current, target, low, high, flat, concepts, labels, groups)


def intervention_curve(
    head: Head | ArrayLike,
    bottleneck: ArrayLike | None,
    c: ArrayLike,
    y: ArrayLike,
    *,
    policy: str | Sequence[int | str] = "random",
    groups: Groups | None = None,
    kind: Kind = "soft",
    percentiles: ArrayLike | None = None,
    c_pos: ArrayLike | None = None,
    c_neg: ArrayLike | None = None,
    c_hat: ArrayLike | None = None,
    competence: float = 1.0,
    coop_alpha: float = 1.0,
    coop_beta: float = 1.0,
    seed: int = 0,
) -> InterventionCurve:
    """Task accuracy after 0, 1, .., G groups of concepts were set to their annotated values.

    Parameters
    ----------
    head : callable, or Float[ndarray, "steps n l"]
        `head(bottleneck) -> logits`, (n, l) or one logit per row; or the logits already computed
        after 0..G interventions, in which case `bottleneck` is None and only accuracies are taken.
    bottleneck : Float[ndarray, "n k"], "n k m" or "n k*m"
        What the head reads before any intervention; the head gets the same layout.
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}.
    y : Int[ndarray, "n"]
        Class index.
    policy : str or sequence
        `random` (per sample, uniform among the groups left), `uncertainty` (largest mean entropy
        of `c_hat` first), `coop`, or a fixed order of group numbers or names.
    groups : mapping of name to concept indices, or sequence of index lists
        Groups set together; by default each concept is its own.
    kind : str
        `hard` and `soft` write 0 or 1, `logit` writes `percentiles`, `embedding` writes the vector
        of `c_pos` or `c_neg`.
    percentiles : Float[ndarray, "2 k"]
        5th and 95th percentile of each concept's logits over the training set; `logit` only.
    c_pos, c_neg : Float[ndarray, "n k m"]
        Positive and negative embeddings; `embedding` only.
    c_hat : Float[ndarray, "n k"]
        Concept probabilities for `uncertainty` and `coop`; by default the soft bottleneck itself
        or the sigmoid of the logits.
    competence : float
        Chance that the value written is the annotated one; 1 in the paper, 0 is adversarial.
    coop_alpha, coop_beta : float
        Weights of entropy and expected change in CooP; see `coop_weights`.
    seed : int
        Seed of the random order and of the competence draws.

    Returns
    -------
    InterventionCurve
        `task_accuracy` (G + 1,) in [0, 1] and the order used.

    Raises
    ------
    ValueError
        On unequal shapes, concepts other than 0 and 1, missing percentiles, embeddings or
        probabilities, groups that are no partition, unknown policy or kind.

    Notes
    -----
    Leakage paper, section on interventions. Accuracy is used for one logit too, where the
    authors' code takes the AUC; CooP weighs the expected change by the concept's probability in
    both cases, where the code forgets the weight for one logit.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    n, k = concepts.shape
    names, members = as_groups(groups, k)
    if not 0.0 <= competence <= 1.0:
        raise ValueError(f"competence must lie between 0 and 1, got {competence}.")
    if not callable(head):
        return _from_logits(head, bottleneck, y, names, n, k, competence, seed)
    if bottleneck is None:
        raise ValueError("bottleneck is needed when head is a callable: what it reads, (n, k).")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    rng = np.random.default_rng(seed)
    order_rng, flip_rng = rng.spawn(2)
    if competence < 1.0:
        wrong = flip_rng.random((n, k)) >= competence
        concepts = np.where(wrong, 1 - concepts, concepts)
    setup = _prepare(head, bottleneck, y, members, concepts, kind, percentiles, c_pos, c_neg)
    label = policy if isinstance(policy, str) else "fixed"
    if not isinstance(policy, str):
        order = fixed_order(policy, names, n)
    else:
        order = named_order(policy, setup, kind, c_hat, coop_alpha, coop_beta, order_rng)
    accuracies = [
        setup.accuracy(set_masks(order, step, members, k)) for step in range(len(members))
    ]
    accuracies.append(setup.full_accuracy())
    return InterventionCurve(
        task_accuracy=np.array(accuracies),
        order=order.astype(np.int64),
        policy=label,
        kind=kind,
        group_names=names,
        competence=float(competence),
        seed=seed,
        n_samples=n,
        n_concepts=k,
        n_groups=len(members),
    )


def _from_logits(
    logits: ArrayLike,
    bottleneck: ArrayLike | None,
    y: ArrayLike,
    names: tuple[str, ...],
    n: int,
    k: int,
    competence: float,
    seed: int,
) -> InterventionCurve:
    """Curve of logits computed elsewhere."""
    if bottleneck is not None:
        raise ValueError(
            "head must be callable when a bottleneck is given; for logits computed elsewhere, "
            "shape (n_groups + 1, n, l), pass bottleneck=None."
        )
    labels = as_labels("y", y)
    steps = to_numpy("head", logits)
    expected = (len(names) + 1, n)
    if steps.ndim != 3 or steps.shape[:2] != expected or labels.shape[0] != n:
        raise ValueError(
            f"head as precomputed logits must have shape (n_groups + 1, n, l) = "
            f"({expected[0]}, {expected[1]}, l), got {steps.shape} with y {labels.shape}."
        )
    accuracies = [
        float(np.mean(predicted_classes(as_logits("head", step, n)) == labels)) for step in steps
    ]
    return InterventionCurve(
        task_accuracy=np.array(accuracies),
        order=None,
        policy="precomputed",
        kind="precomputed",
        group_names=names,
        competence=float(competence),
        seed=seed,
        n_samples=n,
        n_concepts=k,
        n_groups=len(names),
    )


def coop_weights(
    head: Head, bottleneck: ArrayLike, c: ArrayLike, y: ArrayLike, **options: Any
) -> tuple[float, float]:
    """Weights (alpha, beta) of CooP with the best curve on a validation split.

    Parameters
    ----------
    head, bottleneck, c, y : as in `intervention_curve`
        A validation split, not the one that is evaluated.
    **options : Any
        Further options of `intervention_curve` except `policy`, `coop_alpha`, `coop_beta`.

    Returns
    -------
    tuple of float
        The pair of {0.1, 1, 10, 100}^2 with the largest accuracy summed over the numbers of
        interventions with weights 1 - j/G; of pairs with the same ratio only the first is tried,
        and ties go to the earlier pair.

    Raises
    ------
    ValueError
        As `intervention_curve`.
    """
    best, chosen = -np.inf, (1.0, 1.0)
    tried: set[float] = set()
    for alpha in COOP_WEIGHTS:
        for beta in COOP_WEIGHTS:
            ratio = round(float(np.log10(alpha / beta)), 6)
            if ratio in tried:
                continue
            tried.add(ratio)
            curve = intervention_curve(
                head, bottleneck, c, y, policy="coop", coop_alpha=alpha, coop_beta=beta, **options
            )
            weights = 1.0 - np.arange(curve.n_groups + 1) / curve.n_groups
            value = float(weights @ curve.task_accuracy)
            if value > best:
                best, chosen = value, (alpha, beta)
    return chosen


def intervention_score(
    reference_task_accuracy: float, intervened_task_accuracy: float | InterventionCurve
) -> float:
    """Task accuracy lost when a model's concepts are all set to their true values (S_int).

    Parameters
    ----------
    reference_task_accuracy : float
        Test accuracy of a head of the same architecture trained separately on true concepts.
    intervened_task_accuracy : float or InterventionCurve
        Test accuracy of the evaluated model after all concepts were set, or its curve.

    Returns
    -------
    float
        Leakage paper, eq. 5, in [-1, 1]; lower is better, 0 for hard models by construction.
        Small negative values are possible and not clipped.

    Raises
    ------
    ValueError
        On an accuracy outside [0, 1].
    """
    if isinstance(intervened_task_accuracy, InterventionCurve):
        intervened_task_accuracy = intervened_task_accuracy.intervened_task_accuracy
    for name, value in (
        ("reference_task_accuracy", reference_task_accuracy),
        ("intervened_task_accuracy", intervened_task_accuracy),
    ):
        if not 0.0 <= value <= 1.0:
            raise ValueError(
                f"{name} must be a share in [0, 1], got {value}. Divide percentages by 100."
            )
    return float(reference_task_accuracy) - float(intervened_task_accuracy)


def misclassified_configurations(
    head: Head, values: ArrayLike | None, c: ArrayLike, y: ArrayLike
) -> ConfigurationErrors:
    """Concept configurations that the fully intervened head gets wrong, with their share of rows.

    Parameters
    ----------
    head : callable
        `head(bottleneck) -> logits` on scalar concepts, (q, k) in.
    values : Float[ndarray, "2 k"] or None
        What an intervention writes for 0 and for 1: the training percentiles of a logit model;
        None writes 0 and 1.
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}, at most 12 of them.
    y : Int[ndarray, "n"]
        Class index.

    Returns
    -------
    ConfigurationErrors
        Configurations that occur in `c`; a label that is no function of the concepts leaves some
        rows misclassified whatever the head says, and they count in `wrong_share`.

    Raises
    ------
    ValueError
        On more than 12 concepts, concepts other than 0 and 1, unequal rows.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    labels = as_labels("y", y)
    n = check_same_rows(c=concepts, y=labels)
    k = concepts.shape[1]
    if k > MAX_CONFIGURATION_CONCEPTS:
        raise ValueError(
            f"c must have at most {MAX_CONFIGURATION_CONCEPTS} concepts to list configurations, "
            f"got {k}. Select columns, or use intervention_curve for the accuracy alone."
        )
    pair = np.stack([np.zeros(k), np.ones(k)])
    if values is not None:
        pair = as_matrix("values", values)
        if pair.shape != (2, k):
            raise ValueError(f"values must have shape (2, {k}), got {pair.shape}.")
    found, inverse = np.unique(concepts, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    predicted = predicted_classes(
        as_logits("head(bottleneck)", head(np.where(found == 1, pair[1], pair[0])), len(found))
    )
    classes, codes = np.unique(labels, return_inverse=True)
    table = np.zeros((len(found), len(classes)), dtype=np.int64)
    np.add.at(table, (inverse, codes.reshape(-1)), 1)
    wrong = np.bincount(inverse, weights=predicted[inverse] != labels, minlength=len(found))
    return ConfigurationErrors(
        configurations=found,
        bits=tuple("".join(str(bit) for bit in row) for row in found),
        expected=classes[table.argmax(axis=1)],
        predicted=predicted,
        share=table.sum(axis=1) / n,
        wrong_share=wrong / n,
        n_samples=n,
        n_concepts=k,
    )
