"""Neighbours of D, C and I that people ask for: MIG, SAP, the FactorVAE score and MCC.

All take codes (n, L) and factors (n, K) as they are: no generator is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_binary_concepts, as_matrix, check_same_rows
from concept_audit.metrics.probes.base import as_kinds

__all__ = ["FactorScores", "factor_vae_score", "mcc", "mig", "sap"]


@dataclass(frozen=True)
class FactorScores:
    """A score per factor and its mean; `matrix` (L, K) is what it was computed from.

    `matched_code` (K,) is the code paired with each factor, -1 for none. `options` names what the
    score was computed with.
    """

    mean: float
    per_factor: Float[np.ndarray, " K"]
    matrix: Float[np.ndarray, "L K"]
    matched_code: Int[np.ndarray, " K"]
    n_samples: int
    options: str
    reason: str = ""


def _checked(
    codes: ArrayLike, factors: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    x = as_matrix("codes", codes, columns="L", min_rows=2)
    z = as_binary_concepts("factors", factors, min_rows=2)
    n = check_same_rows(codes=x, factors=z)
    for j in range(z.shape[1]):
        if len(np.unique(z[:, j])) < 2:
            raise ValueError(f"factors[:, {j}] has a single value: no score is defined for it.")
    return x, z, n


def _gap(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest minus second largest entry of each column; NaN with a single row."""
    if len(matrix) < 2:
        return np.full(matrix.shape[1], np.nan)
    top = np.sort(matrix, axis=0)
    return top[-1] - top[-2]


def mig(codes: ArrayLike, factors: ArrayLike, *, n_bins: int = 20) -> FactorScores:
    """Mutual information gap: how much more the best code knows of a factor than the second best.

    Parameters
    ----------
    codes : Float[ndarray, "n L"], cut into `n_bins` equally wide bins each
    factors : Int[ndarray, "n K"], class index

    Returns
    -------
    FactorScores in [0, 1]: gap of the mutual information (nats) over the factor's entropy. With one
    code there is no second: NaN, with the reason.

    Raises
    ------
    ValueError  on shapes that disagree, a constant factor or fewer than two bins.

    Notes
    -----
    Chen, Li, Grosse and Duvenaud, "Isolating Sources of Disentanglement in Variational
    Autoencoders" (2018), on empirical counts of binned codes.
    """
    x, z, n = _checked(codes, factors)
    if n_bins < 2:
        raise ValueError(f"n_bins must be at least 2, got {n_bins}.")
    low, span = x.min(axis=0), np.ptp(x, axis=0)
    span[span == 0] = 1.0
    bins = np.minimum((x - low) / span * n_bins, n_bins - 1).astype(np.int64)
    matrix = np.empty((x.shape[1], z.shape[1]))
    entropy = np.empty(z.shape[1])
    for j in range(z.shape[1]):
        classes, index = np.unique(z[:, j], return_inverse=True)
        of_factor = np.bincount(index) / n
        entropy[j] = -(of_factor * np.log(of_factor)).sum()
        for i in range(x.shape[1]):
            cells = np.bincount(bins[:, i] * len(classes) + index, minlength=n_bins * len(classes))
            joint = cells.reshape(n_bins, len(classes)) / n
            product = joint.sum(axis=1, keepdims=True) * of_factor
            filled = joint > 0
            matrix[i, j] = (joint[filled] * np.log(joint[filled] / product[filled])).sum()
    scores = _gap(matrix) / entropy
    return FactorScores(
        float(scores.mean()),
        scores,
        matrix,
        matrix.argmax(axis=0),
        n,
        f"n_bins={n_bins}",
        "" if x.shape[1] > 1 else "MIG needs at least two codes, got one",
    )


def sap(
    codes: ArrayLike, factors: ArrayLike, kinds: Sequence[str] | str = "categorical"
) -> FactorScores:
    """Separated attribute predictability: gap between the two codes that best predict a factor.

    Parameters
    ----------
    codes : Float[ndarray, "n L"]
    factors : Int[ndarray, "n K"], class index
    kinds : a "continuous" factor is scored by the squared correlation with a code, a "categorical"
        one by the balanced accuracy of the best q - 1 thresholds on it (a tree of q leaves)

    Returns
    -------
    FactorScores; NaN with the reason when there is one code.

    Raises
    ------
    ValueError  on shapes that disagree or a constant factor.

    Notes
    -----
    Kumar, Sattigeri and Balakrishnan, "Variational Inference of Disentangled Latent Concepts": the
    thresholds are chosen and scored on the same rows. disentanglement_lib takes a linear SVM there,
    which cannot single out a class between two others.
    Kumar, Sattigeri and Balakrishnan, "Variational Inference of Disentangled Latent Concepts from
    Unlabeled Observations" (2018).
    """
    x, z, n = _checked(codes, factors)
    names = as_kinds(kinds, z.shape[1])
    scaled = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    matrix = np.empty((x.shape[1], z.shape[1]))
    for j, kind in enumerate(names):
        if kind == "continuous":
            target = (z[:, j] - z[:, j].mean()) / z[:, j].std()
            matrix[:, j] = (scaled.T @ target / n) ** 2
        else:
            matrix[:, j] = [_threshold_accuracy(scaled[:, i], z[:, j]) for i in range(x.shape[1])]
    scores = _gap(matrix)
    return FactorScores(
        float(scores.mean()),
        scores,
        matrix,
        matrix.argmax(axis=0),
        n,
        f"kinds={','.join(names)}",
        "" if x.shape[1] > 1 else "SAP needs at least two codes, got one",
    )


def _threshold_accuracy(code: NDArray[np.float64], target: NDArray[np.int64]) -> float:
    """Balanced accuracy of a tree on one code with as many leaves as there are classes."""
    from sklearn.tree import DecisionTreeClassifier

    classes, index = np.unique(target, return_inverse=True)
    tree = DecisionTreeClassifier(
        max_leaf_nodes=len(classes), class_weight="balanced", random_state=0
    )
    hit = tree.fit(code[:, None], index).predict(code[:, None]) == index
    counts = np.bincount(index)
    return float(np.mean(np.bincount(index, hit, minlength=len(classes)) / counts))


def factor_vae_score(
    codes: ArrayLike,
    factors: ArrayLike,
    *,
    batch_size: int = 64,
    n_votes: int = 10_000,
    seed: int = 0,
) -> FactorScores:
    """FactorVAE score: whether the code that varies least tells which factor was fixed.

    Parameters
    ----------
    codes : Float[ndarray, "n L"]
    factors : Int[ndarray, "n K"], class index
    batch_size : rows that share the value of the fixed factor, drawn with replacement
    n_votes : batches; half of them choose the majority factor of each code, half are scored

    Returns
    -------
    FactorScores: `mean` is the accuracy over the scored votes, `per_factor` that of each factor,
    `matrix` the votes (codes, factors). Codes without any variance never win a vote.

    Raises
    ------
    ValueError  on shapes that disagree, a constant factor, codes that are all constant, or too few
        votes.

    Notes
    -----
    Kim and Mnih, "Disentangling by Factorising" (2018).
    """
    x, z, n = _checked(codes, factors)
    n_codes, n_factors = x.shape[1], z.shape[1]
    if batch_size < 2 or n_votes < 2 * n_factors:
        raise ValueError(
            f"batch_size must be at least 2 and n_votes at least {2 * n_factors}, "
            f"got {batch_size} and {n_votes}."
        )
    variance = x.var(axis=0, ddof=1)
    active = variance > 0
    if not active.any():
        raise ValueError("codes must vary: all of them are constant.")
    rng = np.random.default_rng(seed)
    fixed = rng.integers(n_factors, size=n_votes)
    winner = np.empty(n_votes, dtype=np.int64)
    for j in range(n_factors):
        order = np.argsort(z[:, j], kind="stable")
        counts = np.bincount(z[order, j])
        starts = np.cumsum(counts) - counts
        votes = np.flatnonzero(fixed == j)
        value = rng.choice(np.flatnonzero(counts), size=len(votes))
        place = starts[value, None] + (
            rng.random((len(votes), batch_size)) * counts[value, None]
        ).astype(np.int64)
        block = max(1, (1 << 22) // (batch_size * n_codes))
        for start in range(0, len(votes), block):
            rows = order[place[start : start + block]]
            spread = x[rows].var(axis=1, ddof=1) / np.where(active, variance, 1.0)
            winner[votes[start : start + block]] = np.where(active, spread, np.inf).argmin(axis=1)
    half = n_votes // 2
    matrix = np.zeros((n_codes, n_factors))
    np.add.at(matrix, (winner[:half], fixed[:half]), 1)
    guess = matrix.argmax(axis=1)[winner[half:]]
    correct = guess == fixed[half:]
    per_factor = np.array(
        [
            correct[fixed[half:] == j].mean() if (fixed[half:] == j).any() else np.nan
            for j in range(n_factors)
        ]
    )
    return FactorScores(
        float(correct.mean()),
        per_factor,
        matrix,
        np.where(matrix.sum(axis=0) > 0, matrix.argmax(axis=0), -1),
        n,
        f"batch_size={batch_size}, n_votes={n_votes}, seed={seed}",
    )


def mcc(
    codes: ArrayLike, factors: ArrayLike, *, correlation: Literal["pearson", "spearman"] = "pearson"
) -> FactorScores:
    """Mean correlation coefficient of the best one-to-one matching of codes and factors.

    Parameters
    ----------
    codes : Float[ndarray, "n L"]
    factors : Int[ndarray, "n K"], taken as ordered values
    correlation : "pearson", or "spearman" (on ranks, for monotone but not linear codes)

    Returns
    -------
    FactorScores in [0, 1]; with fewer codes than factors the factors left over count 0. A constant
    code correlates 0 with everything.

    Raises
    ------
    ValueError  on shapes that disagree, a constant factor or an unknown correlation.

    Notes
    -----
    The measure of the identifiability literature: Hyvarinen and Morioka, "Unsupervised Feature
    Extraction by Time-contrastive Learning and Nonlinear ICA" (2016); here the absolute
    correlations are matched by the Hungarian method.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.stats import rankdata

    x, z, n = _checked(codes, factors)
    if correlation not in ("pearson", "spearman"):
        raise ValueError(f"correlation must be 'pearson' or 'spearman', got {correlation!r}.")
    values: NDArray[np.float64] = z.astype(np.float64)
    if correlation == "spearman":
        x = np.asarray(rankdata(x, axis=0), dtype=np.float64)
        values = np.asarray(rankdata(values, axis=0), dtype=np.float64)
    x = x - x.mean(axis=0)
    values = values - values.mean(axis=0)
    norms = np.sqrt((x**2).sum(axis=0))[:, None] * np.sqrt((values**2).sum(axis=0))
    matrix = np.abs(np.divide(x.T @ values, norms, out=np.zeros_like(norms), where=norms > 0))
    rows, columns = linear_sum_assignment(matrix, maximize=True)
    scores, matched = np.zeros(z.shape[1]), np.full(z.shape[1], -1)
    scores[columns], matched[columns] = matrix[rows, columns], rows
    return FactorScores(float(scores.mean()), scores, matrix, matched, n, correlation)
