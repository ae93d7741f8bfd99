"""Information in the vectors of concept embedding models.

Leakage paper (arXiv 2504.14094), eq. 10 to 13. All four scores are Ross estimates between one
concept's vector and labels, with exact Euclidean distances in any dimension, normalised by the
entropy of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_binary_concepts, as_labels, check_same_rows
from concept_audit.metrics.information import plugin
from concept_audit.metrics.information.embeddings import (
    normalised_with_labels,
    tie_free_vectors,
    vector_information,
)
from concept_audit.metrics.information.normalised import check_enough_rows, ratio
from concept_audit.metrics.information.on_torch import device_of
from concept_audit.metrics.information.variables import Compat, check_options

__all__ = [
    "AlignmentLeakage",
    "ConceptsTaskInformation",
    "InterconceptInformation",
    "SelfInformation",
    "alignment_leakage",
    "concepts_task_information",
    "information_matrix",
    "interconcept_information",
    "self_information",
]


@dataclass(frozen=True)
class ConceptsTaskInformation:
    """Information of each concept's vector with the task label, over H(y) (eq. 10)."""

    mean: float  # in [0, 1]
    per_concept: Float[NDArray, " k"]
    task_entropy: float  # nats
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None


@dataclass(frozen=True)
class InterconceptInformation:
    """Information of each concept's vector with every other concept, over H(c_j) (eq. 11).

    ``matrix[i, j]`` is that of vector i with concept j; the diagonal is NaN (see
    `self_information`), and so is the column of a constant concept: such pairs are left out of the
    means, named in `undefined` and counted.
    """

    mean: float  # in [0, 1], over ordered pairs
    per_concept: Float[NDArray, " k"]  # mean over j for vector i
    matrix: Float[NDArray, "k k"]
    undefined: tuple[str, ...]
    n_undefined_pairs: int
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None


@dataclass(frozen=True)
class SelfInformation:
    """Information of each concept's vector with its own concept, over H(c_i) (eq. 12)."""

    mean: float  # in [0, 1]
    per_concept: Float[NDArray, " k"]  # NaN for a constant concept
    undefined: tuple[str, ...]
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None


@dataclass(frozen=True)
class AlignmentLeakage:
    """Alignment leakage with its four terms (eq. 13)."""

    mean: float  # in (-2, 2)
    per_concept: Float[NDArray, " k"]  # NaN where undefined
    positive_aligned: Float[NDArray, " k"]  # c_pos where the concept is on
    positive_unaligned: Float[NDArray, " k"]  # c_pos where it is off
    negative_aligned: Float[NDArray, " k"]  # c_neg where it is off
    negative_unaligned: Float[NDArray, " k"]  # c_neg where it is on
    undefined: tuple[str, ...]
    n_used: Int[NDArray, " k"]  # samples of each side, the size of the rarer one
    subset: str
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None


def information_matrix(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
    device: str | None = None,
) -> Float[NDArray, "k t"]:
    """Normalised information of every vector with every column of labels.

    Parameters
    ----------
    vectors : array (n, k, m)
        One vector per concept.
    labels : array (n, t)
        Columns of class indices, for example ``np.column_stack([c, y])``: the distances of a
        vector are then computed once for eq. 10, 11 and 12.
    n_neighbors, seed, compat, device
        As in `concepts_task_information`.

    Returns
    -------
    array (k, t)
        In [0, 1]; NaN in the column of a constant label.
    """
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    where = device_of(device, vectors)
    values, constant = tie_free_vectors("vectors", vectors, seed, compat)
    columns = as_binary_concepts("labels", labels)
    check_enough_rows(check_same_rows(vectors=values, labels=columns), n_neighbors)
    return normalised_with_labels(values, constant, columns, n_neighbors, compat, where)


def concepts_task_information(
    vectors: ArrayLike,
    y: ArrayLike,
    *,
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
    device: str | None = None,
) -> ConceptsTaskInformation:
    """Information about the task in the concepts' vectors.

    Parameters
    ----------
    vectors : array (n, k, m)
        Vectors the head sees, ``c_mix`` of a concept embedding model.
    y : array (n,)
        Class index.
    n_neighbors : int
        Neighbours of the Ross estimator; the paper uses 3.
    seed : int
        Seed of the tie-breaking noise.
    compat : {None, "reference"}
        ``"reference"`` repeats the published code, whose neighbour search rounds distances above
        15 dimensions and so scores about 0.1 too low.
    device : str, optional
        Torch device, for example ``"cuda"``; a tensor on a GPU is handled there.

    Returns
    -------
    ConceptsTaskInformation
        ``mean`` and ``per_concept`` (k,), unitless in [0, 1].

    Raises
    ------
    ValueError
        On unequal n, NaN or infinite values, a y with a single class or with a class of its own
        for every row, fewer than ``n_neighbors + 2`` samples.

    Notes
    -----
    Leakage paper, eq. 10: the mean over concepts of I(c_mix_i, y) / H(y).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> vectors = rng.standard_normal((500, 2, 4)) + 20 * y[:, None, None]
    >>> round(concepts_task_information(vectors, y).mean, 2)  # every vector tells the class
    1.0
    """
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    where = device_of(device, vectors)
    values, constant = tie_free_vectors("vectors", vectors, seed, compat)
    labels = as_labels("y", y)
    n = check_same_rows(vectors=values, y=labels)
    check_enough_rows(n, n_neighbors)
    entropy = plugin.entropy(plugin.as_symbols(labels))
    if entropy == 0 and compat is None:
        raise ValueError(
            "y must hold at least two classes, got a single one: its entropy is zero and the "
            "score is not defined. Score on a split that holds more classes."
        )
    columns = labels[:, None]
    scores = normalised_with_labels(values, constant, columns, n_neighbors, compat, where)[:, 0]
    return ConceptsTaskInformation(
        mean=float(scores.mean()),
        per_concept=scores,
        task_entropy=entropy,
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def _with_concepts(
    vectors: ArrayLike,
    c: ArrayLike,
    n_neighbors: int,
    seed: int,
    compat: Compat | None,
    device: str | None,
) -> tuple[Float[NDArray, "n k m"], NDArray, Int[NDArray, "n k"], str | None]:
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    where = device_of(device, vectors)
    values, constant = tie_free_vectors("vectors", vectors, seed, compat)
    concepts = as_binary_concepts("c", c)
    check_enough_rows(check_same_rows(vectors=values, c=concepts), n_neighbors)
    if values.shape[1] != concepts.shape[1]:
        raise ValueError(
            f"vectors and c must agree on the number of concepts k: got vectors {values.shape} "
            f"and c {concepts.shape}. Pass the concepts in the order of the vectors."
        )
    return values, constant, concepts, where


def interconcept_information(
    vectors: ArrayLike,
    c: ArrayLike,
    *,
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
    device: str | None = None,
) -> InterconceptInformation:
    """Information about the other concepts in each concept's vector.

    Parameters
    ----------
    vectors : array (n, k, m)
        Vectors the head sees, ``c_mix`` of a concept embedding model; k of at least 2.
    c : array (n, k)
        Annotated concepts, class indices.
    n_neighbors, seed, compat, device
        As in `concepts_task_information`.

    Returns
    -------
    InterconceptInformation
        ``mean``, ``per_concept`` (k,) and ``matrix`` (k, k), unitless in [0, 1].

    Raises
    ------
    ValueError
        On unequal n or k, a single concept, NaN or infinite values, fewer than
        ``n_neighbors + 2`` samples.

    Notes
    -----
    Leakage paper, eq. 11. I(c_mix_i, c_j) / H(c_j) is not symmetric, so the mean takes all ordered
    pairs, as the published code does (the text speaks of k (k - 1) / 2 pairs).
    """
    values, constant, concepts, where = _with_concepts(
        vectors, c, n_neighbors, seed, compat, device
    )
    n, k = concepts.shape
    if k < 2:
        raise ValueError(
            "vectors must hold at least two concepts, got one: the score is one of pairs. "
            "For a single concept use self_information."
        )
    matrix = normalised_with_labels(values, constant, concepts, n_neighbors, compat, where)
    lost = np.isnan(matrix).all(axis=0)
    np.fill_diagonal(matrix, np.nan)
    defined = ~np.isnan(matrix)
    counts = defined.sum(axis=1)
    sums = np.where(defined, matrix, 0.0).sum(axis=1)
    per_concept = np.divide(sums, counts, out=np.full(k, np.nan), where=counts > 0)
    return InterconceptInformation(
        mean=float(sums.sum() / counts.sum()) if counts.any() else float("nan"),
        per_concept=per_concept,
        matrix=matrix,
        undefined=_constant(lost),
        n_undefined_pairs=k * (k - 1) - int(counts.sum()),
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def self_information(
    vectors: ArrayLike,
    c: ArrayLike,
    *,
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
    device: str | None = None,
) -> SelfInformation:
    """Information about its own concept in each concept's vector.

    Parameters
    ----------
    vectors : array (n, k, m)
        Vectors the head sees, ``c_mix`` of a concept embedding model.
    c : array (n, k)
        Annotated concepts, class indices.
    n_neighbors, seed, compat, device
        As in `concepts_task_information`.

    Returns
    -------
    SelfInformation
        ``mean`` and ``per_concept`` (k,), unitless in [0, 1].

    Raises
    ------
    ValueError
        On unequal n or k, NaN or infinite values, fewer than ``n_neighbors + 2`` samples.

    Notes
    -----
    Leakage paper, eq. 12: the mean over concepts of I(c_mix_i, c_i) / H(c_i).
    """
    values, constant, concepts, where = _with_concepts(
        vectors, c, n_neighbors, seed, compat, device
    )
    n, k = concepts.shape
    scores = np.array(
        [
            normalised_with_labels(
                values[:, i : i + 1], constant[i : i + 1], concepts[:, i : i + 1],
                n_neighbors, compat, where,
            )[0, 0]
            for i in range(k)
        ]
    )  # fmt: skip
    lost = np.isnan(scores)
    return SelfInformation(
        mean=float(scores[~lost].mean()) if not lost.all() else float("nan"),
        per_concept=scores,
        undefined=_constant(lost),
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def alignment_leakage(
    c_pos: ArrayLike,
    c_neg: ArrayLike,
    c: ArrayLike,
    y: ArrayLike,
    *,
    subset: Literal["random", "first"] = "random",
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
    device: str | None = None,
) -> AlignmentLeakage:
    """How much more the vectors tell about the task when they agree with the annotation.

    Parameters
    ----------
    c_pos, c_neg : array (n, k, m)
        Vectors of the concept being on and off.
    c : array (n, k)
        Annotated concepts, 0 or 1.
    y : array (n,)
        Class index.
    subset : {"random", "first"}
        Both sides of a concept use as many samples as the rarer one has: a seeded random draw, or
        the first ones in the order given, as in the published code.
    n_neighbors, seed, compat, device
        As in `concepts_task_information`; ``compat="reference"`` implies ``subset="first"``.

    Returns
    -------
    AlignmentLeakage
        ``mean`` and ``per_concept`` (k,), unitless in (-2, 2), with the four terms.

    Raises
    ------
    ValueError
        On unequal shapes, concepts other than 0 and 1, NaN or infinite values, a y with a single
        class, fewer than ``n_neighbors + 2`` samples.

    Notes
    -----
    Leakage paper, eq. 13: positive aligned - positive unaligned + negative aligned - negative
    unaligned, each I / H(y) within its samples. A concept on one side of which y has a single
    class, or no class twice, is undefined: left out of the mean and named.
    """
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    if subset not in ("random", "first"):
        raise ValueError(
            f"subset must be 'random' or 'first', got {subset!r}. 'first' is the published code's."
        )
    where = device_of(device, c_pos, c_neg)
    positive, _ = tie_free_vectors("c_pos", c_pos, seed, compat)
    negative, _ = tie_free_vectors("c_neg", c_neg, seed + 1, compat)
    if positive.shape != negative.shape:
        raise ValueError(
            f"c_pos and c_neg must agree on (n, k, m): got c_pos {positive.shape} and "
            f"c_neg {negative.shape}."
        )
    concepts = as_binary_concepts("c", c, binary=True)
    labels = as_labels("y", y)
    n = check_same_rows(c_pos=positive, c_neg=negative, c=concepts, y=labels)
    k = concepts.shape[1]
    if positive.shape[1] != k:
        raise ValueError(
            f"c_pos and c must agree on the number of concepts k: got c_pos {positive.shape} and "
            f"c {concepts.shape}."
        )
    check_enough_rows(n, n_neighbors)
    if np.ptp(labels) == 0:
        raise ValueError(
            "y must hold at least two classes, got a single one: its entropy is zero and "
            "alignment leakage is not defined. Score on a split that holds more classes."
        )
    if compat == "reference":
        subset = "first"
    terms = np.full((4, k), np.nan)
    used = np.zeros(k, dtype=np.int64)
    reasons: list[str] = []
    rng = np.random.default_rng([seed, 2])
    for i in range(k):
        on, off = (np.flatnonzero(concepts[:, i] == value) for value in (1, 0))
        used[i] = size = min(on.size, off.size)
        if subset == "random":
            on, off = (np.sort(rng.choice(side, size, replace=False)) for side in (on, off))
        on, off = on[:size], off[:size]
        reason = _side_problem(labels, on, off)
        if reason:
            reasons.append(f"concept {i}: {reason}")
            continue
        parts = ((positive, on), (positive, off), (negative, off), (negative, on))
        for at, (vectors, rows) in enumerate(parts):
            own = plugin.as_symbols(labels[rows])
            value = vector_information(vectors[rows, i], own[:, None], n_neighbors, compat, where)
            terms[at, i] = ratio(value, plugin.entropy(own))[0]
    per_concept = terms[0] - terms[1] + terms[2] - terms[3]
    kept = ~np.isnan(per_concept)
    return AlignmentLeakage(
        mean=float(per_concept[kept].mean()) if kept.any() else float("nan"),
        per_concept=per_concept,
        positive_aligned=terms[0],
        positive_unaligned=terms[1],
        negative_aligned=terms[2],
        negative_unaligned=terms[3],
        undefined=tuple(reasons),
        n_used=used,
        subset=subset,
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def _side_problem(labels: Int[NDArray, " n"], on: NDArray, off: NDArray) -> str:
    """Why the two sides of a concept cannot be scored, or nothing."""
    if not on.size:
        return "constant in c"
    for name, rows in (("on", on), ("off", off)):
        counts = np.unique(labels[rows], return_counts=True)[1]
        if counts.size < 2:
            return f"y has a single class in the {rows.size} samples where it is {name}"
        if counts.max() < 2:
            return f"no class of y occurs twice in the {rows.size} samples where it is {name}"
    return ""


def _constant(lost: NDArray) -> tuple[str, ...]:
    return tuple(f"concept {i} is constant in c: its entropy is zero" for i in np.flatnonzero(lost))
