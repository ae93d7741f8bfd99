"""Leakage of learnt concepts: about the task (CTL) and between concepts (ICL).

Leakage paper (arXiv 2504.14094), eq. 6 to 9. Both compare the information in learnt concepts with
that in the annotated ones, each normalised to [0, 1]; 0 means nothing beyond the annotations.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import (
    as_binary_concepts,
    as_labels,
    as_matrix,
    check_same_rows,
    check_same_shape,
)
from concept_audit.metrics.information import plugin
from concept_audit.metrics.information.ksg import (
    ksg_pairs,
    self_information_closed_form,
    sort_columns,
)
from concept_audit.metrics.information.normalised import check_enough_rows, ratio
from concept_audit.metrics.information.ross import ross_scalars
from concept_audit.metrics.information.variables import (
    Compat,
    check_options,
    is_integer_valued,
    jitter,
    jitter_scale,
    rounded,
)

__all__ = [
    "ConceptsTaskLeakage",
    "InterconceptLeakage",
    "concepts_task_leakage",
    "interconcept_leakage",
]

Kind = Literal["auto", "discrete", "continuous"]
_KINDS = ("auto", "discrete", "continuous")
_TIE_FREE_GAP = 1e3  # neighbours further apart than this many jitter widths keep their order


@dataclass(frozen=True)
class ConceptsTaskLeakage:
    """CTL with its two terms and the options it was computed with."""

    mean: float  # in [0, 1]
    per_concept: Float[NDArray, " k"]
    learnt_information: Float[NDArray, " k"]  # I(c_hat_i, y) / H(y)
    annotated_information: Float[NDArray, " k"]  # I(c_i, y) / H(y)
    task_entropy: float  # H(y) in nats
    kinds: tuple[str, ...]  # estimator of each learnt concept
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None

    def minus(self, other: ConceptsTaskLeakage) -> float:
        """Difference of the means; warns where the two are not computed alike."""
        return _difference("CTL", self, other)


@dataclass(frozen=True)
class InterconceptLeakage:
    """ICL with its two terms and the options it was computed with.

    Pairs with a constant concept are undefined: NaN in `matrix`, left out of the means, named in
    `undefined` and counted in `n_undefined_pairs`.
    """

    mean: float  # in [0, 1]; NaN when no pair is defined
    per_concept: Float[NDArray, " k"]
    matrix: Float[NDArray, "k k"]  # symmetric, zero diagonal
    learnt_information: Float[NDArray, "k k"]  # I(c_hat_i, c_hat_j) / normaliser
    annotated_information: Float[NDArray, "k k"]  # I(c_i, c_j) / sqrt(H(c_i) H(c_j))
    learnt_entropy: Float[NDArray, " k"]  # what normalises the learnt term, nats
    annotated_entropy: Float[NDArray, " k"]  # H(c_i), nats
    undefined: tuple[str, ...]  # reasons, one a constant concept
    n_undefined_pairs: int
    kinds: tuple[str, ...]
    entropy: str
    n_samples: int
    n_neighbors: int
    seed: int
    compat: str | None

    def minus(self, other: InterconceptLeakage) -> float:
        """Difference of the means; warns where the two are not computed alike.

        The normaliser of continuous concepts grows with the number of samples, so ICL values of
        different n are not on one scale.
        """
        return _difference("ICL", self, other)


def _difference(
    score: str,
    one: ConceptsTaskLeakage | InterconceptLeakage,
    other: ConceptsTaskLeakage | InterconceptLeakage,
) -> float:
    options = ("n_samples", "n_neighbors", "kinds", "compat", "entropy")
    unequal = [
        f"{option} {getattr(one, option)} and {getattr(other, option)}"
        for option in options
        if getattr(one, option, None) != getattr(other, option, None)
    ]
    if unequal:
        warnings.warn(
            f"{score} values computed differently are compared: {'; '.join(unequal)}. "
            "Score both on the same number of samples, with the same options.",
            UserWarning,
            stacklevel=3,
        )
    return one.mean - other.mean


def concepts_task_leakage(
    c_hat: ArrayLike,
    c: ArrayLike,
    y: ArrayLike,
    *,
    kind: Kind | Sequence[Kind] = "auto",
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
) -> ConceptsTaskLeakage:
    """Information about the task in learnt concepts beyond the annotated ones (CTL).

    Parameters
    ----------
    c_hat : array (n, k)
        Learnt concepts as the head sees them: probabilities, logits or {0, 1}.
    c : array (n, k)
        Annotated concepts, class indices (usually 0 and 1).
    y : array (n,)
        Class index.
    kind : {"auto", "discrete", "continuous"} or one of them per concept
        ``"auto"`` looks at each concept by itself: integers are discrete.
    n_neighbors : int
        Neighbours of the Ross estimator; the paper uses 3.
    seed : int
        Seed of the tie-breaking noise.
    compat : {None, "reference"}
        ``"reference"`` repeats the published code: one kind for the whole matrix, values passed
        on unrounded, noise scaled by the signed mean, no upper clip.

    Returns
    -------
    ConceptsTaskLeakage
        ``mean`` and ``per_concept`` (k,), unitless in [0, 1], with both terms.

    Raises
    ------
    ValueError
        On unequal n or k, NaN or infinite values, a y with a single class or with a class of its
        own for every row, fewer than ``n_neighbors + 2`` samples for a continuous concept.

    Notes
    -----
    Leakage paper, eq. 6 per concept and eq. 7 mean:
    ``CTL_i = max(0, I(c_hat_i, y) / H(y) - I(c_i, y) / H(y))``. A constant concept carries no
    information, so its term is 0.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> c = rng.integers(0, 2, (1000, 3))
    >>> y = (c.sum(axis=1) >= 2).astype(int)
    >>> concepts_task_leakage(c, c, y).mean  # concepts that are the annotations leak nothing
    0.0
    """
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    learnt, annotated = _concepts(c_hat, c)
    labels = as_labels("y", y)
    n = check_same_rows(c_hat=learnt, c=annotated, y=labels)
    labels = plugin.as_symbols(labels)
    task_entropy = plugin.entropy(labels)
    n_classes = int(labels.max()) + 1
    if compat is None and n_classes == 1:
        raise ValueError(
            "y must hold at least two classes, got a single one: its entropy is zero and CTL is "
            "not defined. Score on a split that holds more classes."
        )
    if n_classes == n and n > 1:
        raise ValueError(
            f"y has {n} distinct labels in {n} rows: no class has a second sample, so CTL is not "
            "defined. Pass class indices, not row numbers or a continuous target."
        )
    kinds = _kinds(learnt, kind, compat)
    symbols, columns, order = _split(learnt, kinds, seed, compat)
    if compat is None and order.size:
        check_enough_rows(n, n_neighbors)
    information = np.zeros(learnt.shape[1])
    for at, column in symbols.items():
        information[at] = plugin.information(column, labels)
    if order.size:
        scores = ross_scalars(sort_columns(columns), labels, n_neighbors=n_neighbors)
        information[order] = np.maximum(scores, 0.0)
    truth = np.array(
        [plugin.information(plugin.as_symbols(column), labels) for column in annotated.T]
    )
    if compat == "reference":
        with np.errstate(divide="ignore", invalid="ignore"):
            predicted, true = information / task_entropy, truth / task_entropy
        per_concept = np.maximum(predicted - true, 0.0)
    else:
        predicted, true = ratio(information, task_entropy), ratio(truth, task_entropy)
        per_concept = np.clip(predicted - true, 0.0, 1.0)
    return ConceptsTaskLeakage(
        mean=float(per_concept.mean()),
        per_concept=per_concept,
        learnt_information=predicted,
        annotated_information=true,
        task_entropy=task_entropy,
        kinds=kinds,
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def interconcept_leakage(
    c_hat: ArrayLike,
    c: ArrayLike,
    *,
    kind: Kind | Sequence[Kind] = "auto",
    entropy: Literal["self", "binary"] = "self",
    n_neighbors: int = 3,
    seed: int = 0,
    compat: Compat | None = None,
) -> InterconceptLeakage:
    """Information that learnt concepts share beyond what the annotated ones share (ICL).

    Parameters
    ----------
    c_hat : array (n, k)
        Learnt concepts as the head sees them: probabilities, logits or {0, 1}; k of at least 2.
    c : array (n, k)
        Annotated concepts, class indices (usually 0 and 1).
    kind : {"auto", "discrete", "continuous"} or one of them per concept
        ``"auto"`` looks at each concept by itself: integers are discrete. A pair of unlike kinds
        uses the Ross estimator, each entropy by its own kind.
    entropy : {"self", "binary"}
        What normalises the learnt term. ``"self"``, the paper's: for a continuous concept its
        information with itself, which for tie-free data is psi(n) - psi(n_neighbors + 1) and so
        grows with n. ``"binary"``: the entropies of the annotated concepts.
    n_neighbors : int
        Neighbours of the estimators; the paper uses 3.
    seed : int
        Seed of the tie-breaking noise.
    compat : {None, "reference"}
        ``"reference"`` repeats the published code: one kind for the whole matrix, values passed
        on unrounded, noise scaled by the signed mean, no upper clip, constant concepts scored 0.

    Returns
    -------
    InterconceptLeakage
        ``mean``, ``per_concept`` (k,) and symmetric ``matrix`` (k, k), unitless in [0, 1].

    Raises
    ------
    ValueError
        On unequal n or k, a single concept, NaN or infinite values, fewer than
        ``n_neighbors + 2`` samples for a continuous concept.

    Notes
    -----
    Leakage paper, eq. 8 and 9. With the default normaliser ICL depends on n, and soft and hard
    models are not on one scale: compare at equal n and kind (`InterconceptLeakage.minus` warns).

    Examples
    --------
    >>> import numpy as np
    >>> c = np.random.default_rng(0).integers(0, 2, (1000, 3))
    >>> interconcept_leakage(c, c).mean
    0.0
    """
    check_options(n_neighbors=n_neighbors, seed=seed, compat=compat)
    if entropy not in ("self", "binary"):
        raise ValueError(
            f"entropy must be 'self' or 'binary', got {entropy!r}. 'self' is the paper's."
        )
    learnt, annotated = _concepts(c_hat, c)
    n, k = learnt.shape
    if k < 2:
        raise ValueError(
            "c_hat must hold at least two concepts, got one: ICL is a score of pairs. "
            "For a single concept use concepts_task_leakage."
        )
    kinds = _kinds(learnt, kind, compat)
    symbols, columns, order = _split(learnt, kinds, seed, compat)
    if order.size:
        check_enough_rows(n, n_neighbors, spare=1 if compat == "reference" else 2)
    information, learnt_entropy = _pairwise(
        learnt, symbols, columns, order, n_neighbors, seed, compat
    )
    truth = plugin.information_matrix(
        np.column_stack([plugin.as_symbols(column) for column in annotated.T])
    )
    annotated_entropy = np.diag(truth).copy()
    normalising = learnt_entropy if entropy == "self" else annotated_entropy
    own, true_own = (np.sqrt(np.outer(h, h)) for h in (normalising, annotated_entropy))
    if compat == "reference":
        predicted, true = information / (own + 1e-10), truth / (true_own + 1e-10)
        matrix = np.maximum(predicted - true, 0.0)
        lost = np.zeros(k, dtype=bool)
        reasons: tuple[str, ...] = ()
    else:
        predicted, true = ratio(information, own), ratio(truth, true_own)
        matrix = np.clip(predicted - true, 0.0, 1.0)
        lost = (normalising <= 0) | (annotated_entropy <= 0) | (learnt_entropy <= 0)
        reasons = _reasons(annotated_entropy <= 0, lost)
        matrix[lost, :] = np.nan
        matrix[:, lost] = np.nan
    np.fill_diagonal(matrix, 0.0)
    defined = k - int(lost.sum())
    per_concept = np.full(k, np.nan)
    if defined > 1:
        kept = ~lost
        per_concept[kept] = matrix[np.ix_(kept, kept)].sum(axis=1) / (defined - 1)
    return InterconceptLeakage(
        mean=float(per_concept[~lost].mean()) if defined > 1 else float("nan"),
        per_concept=per_concept,
        matrix=matrix,
        learnt_information=predicted,
        annotated_information=true,
        learnt_entropy=normalising,
        annotated_entropy=annotated_entropy,
        undefined=reasons,
        n_undefined_pairs=k * (k - 1) // 2 - defined * (defined - 1) // 2,
        kinds=kinds,
        entropy=entropy,
        n_samples=n,
        n_neighbors=n_neighbors,
        seed=seed,
        compat=compat,
    )


def _concepts(c_hat: ArrayLike, c: ArrayLike) -> tuple[NDArray, NDArray]:
    if getattr(c_hat, "ndim", 2) == 3:
        raise ValueError(
            f"c_hat must have shape (n, k), got {tuple(c_hat.shape)}. "  # type: ignore[union-attr]
            "For concept embeddings (n, k, m) use concepts_task_information, "
            "interconcept_information or alignment_leakage."
        )
    learnt = as_matrix("c_hat", c_hat)
    annotated = as_binary_concepts("c", c)
    check_same_rows(c_hat=learnt, c=annotated)
    check_same_shape("(n, k)", c_hat=learnt, c=annotated)
    return learnt, annotated


def _kinds(
    learnt: Float[NDArray, "n k"], kind: Kind | Sequence[Kind], compat: Compat | None
) -> tuple[str, ...]:
    """Kind of each learnt concept: declared, else looked up column by column."""
    k = learnt.shape[1]
    stated = [kind] * k if isinstance(kind, str) else list(kind)
    wrong = [value for value in stated if value not in _KINDS]
    if wrong:
        raise ValueError(
            f"kind must be 'auto', 'discrete' or 'continuous', got {wrong[0]!r}. "
            "'auto' takes integers as discrete."
        )
    if len(stated) != k:
        raise ValueError(
            f"kind must be one word or one for each of the {k} concepts, got {len(stated)}."
        )
    if compat == "reference":
        whole = "discrete" if is_integer_valued(learnt, compat) else "continuous"
        return tuple(whole if value == "auto" else value for value in stated)
    result = []
    for i, value in enumerate(stated):
        integers = is_integer_valued(learnt[:, i])
        if value == "discrete" and not integers:
            raise ValueError(
                f"kind='discrete' needs integers, but column {i} of c_hat holds values such as "
                f"{learnt[np.abs(learnt[:, i] - np.rint(learnt[:, i])) >= 1e-8, i][0]:.6g}. "
                "Threshold the concepts first, for example c_hat > 0.5, or leave kind out."
            )
        if value == "auto":
            value = "discrete" if integers else "continuous"
        result.append(value)
    return tuple(result)


def _split(
    learnt: Float[NDArray, "n k"], kinds: tuple[str, ...], seed: int, compat: Compat | None
) -> tuple[dict[int, Int[NDArray, " n"]], Float[NDArray, "n q"], Int[NDArray, " q"]]:
    """Symbols of the discrete columns; jittered continuous columns and where they stand.

    A constant column is left out of both: its information with anything is 0.
    """
    discrete = [i for i, kind in enumerate(kinds) if kind == "discrete"]
    values = learnt[:, discrete]
    if discrete and compat is None:
        values = rounded("c_hat", values)
    symbols = {i: plugin.as_symbols(values[:, at]) for at, i in enumerate(discrete)}
    rng = np.random.default_rng(seed)
    noisy = {i: jitter(learnt[:, i], rng, compat) for i in range(len(kinds)) if i not in symbols}
    order = np.array(
        [i for i in noisy if compat == "reference" or np.ptp(learnt[:, i]) > 0], dtype=np.int64
    )
    columns = np.column_stack([noisy[i] for i in order]) if order.size else np.empty((0, 0))
    return symbols, columns, order


def _pairwise(
    learnt: Float[NDArray, "n k"],
    symbols: dict[int, Int[NDArray, " n"]],
    columns: Float[NDArray, "n q"],
    order: Int[NDArray, " q"],
    n_neighbors: int,
    seed: int,
    compat: Compat | None,
) -> tuple[Float[NDArray, "k k"], Float[NDArray, " k"]]:
    """Information of every pair of learnt concepts and the entropy of each, in nats."""
    k = learnt.shape[1]
    information = np.zeros((k, k))
    entropy = np.zeros(k)
    discrete = np.array(list(symbols), dtype=np.int64)
    if discrete.size:
        among = plugin.information_matrix(np.column_stack([symbols[i] for i in discrete]))
        information[np.ix_(discrete, discrete)] = among
        entropy[discrete] = np.diag(among)
    if order.size:
        sorted_columns = sort_columns(columns)
        entropy[order] = _self_information(
            learnt[:, order], columns, sorted_columns.smallest_gap, n_neighbors, seed, compat
        )
        one, other = np.triu_indices(order.size, 1)
        if one.size:
            pairs = np.column_stack([one, other])
            scores = ksg_pairs(sorted_columns, pairs, n_neighbors=n_neighbors)
            information[order[one], order[other]] = np.maximum(scores, 0.0)
            information[order[other], order[one]] = np.maximum(scores, 0.0)
        for i, column in symbols.items():
            if entropy[i] > 0:
                scores = ross_scalars(sorted_columns, column, n_neighbors=n_neighbors)
                information[order, i] = information[i, order] = np.maximum(scores, 0.0)
    return information, entropy


def _self_information(
    values: Float[NDArray, "n q"],
    first: Float[NDArray, "n q"],
    gaps: Float[NDArray, " q"],
    n_neighbors: int,
    seed: int,
    compat: Compat | None,
) -> Float[NDArray, " q"]:
    """Information of each continuous column with a second jittered copy of itself.

    Without ties it has a closed form; with ties it depends on the data and is estimated.
    """
    n, q = values.shape
    result = np.full(q, self_information_closed_form(n, n_neighbors))
    scales = np.array([abs(jitter_scale(column, compat)) for column in values.T])
    tied = np.flatnonzero(gaps <= _TIE_FREE_GAP * scales)
    if compat == "reference":
        tied = np.arange(q)
    if tied.size:
        rng = np.random.default_rng([seed, 1])  # apart from the stream of the first copies
        second = np.column_stack([jitter(values[:, i], rng, compat) for i in tied])
        both = sort_columns(np.column_stack([first[:, tied], second]))
        pairs = np.column_stack([np.arange(tied.size), np.arange(tied.size) + tied.size])
        result[tied] = np.maximum(ksg_pairs(both, pairs, n_neighbors=n_neighbors), 0.0)
    return result


def _reasons(constant: NDArray, lost: NDArray) -> tuple[str, ...]:
    return tuple(
        f"concept {i} is constant in {'c' if constant[i] else 'c_hat'}: no pair with it is defined"
        for i in np.flatnonzero(lost)
    )
