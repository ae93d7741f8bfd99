"""Task labels as functions of the concepts: y = f(c), with the incomplete and nonlinear variants.

All functions take annotated concepts `(n, k)` of 0 and 1 and return class indices `(n,)`
(Leakage paper, appendix A). A label that is a function of the concepts can be learnt without any
leakage, which is what makes these tasks a test bed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_binary_concepts

__all__ = [
    "DSPRITES_CLASSES",
    "SHAPES3D_CLASSES",
    "dsprites_task",
    "remove_concepts",
    "shapes3d_task",
    "tabulartoy_task",
    "tabulartoy_two_concept_task",
]

DSPRITES_CLASSES = 8
SHAPES3D_CLASSES = 12


def tabulartoy_task(c: ArrayLike, *, nonlinear: bool = False) -> NDArray[np.int64]:
    """Majority of three concepts, or the variant that no linear head can represent.

    Parameters
    ----------
    c : Int[ndarray, "n 3"]
        Annotated concepts.
    nonlinear : bool
        False: ``y = 1[c1 + c2 + c3 >= 2]``. True: ``y = 1[c1 + c2 + c3 - 2 c1 c2 >= 2]``. The
        paper gives no coefficient; any above 1 gives the same labels, and with it a linear head
        on the true concepts reaches 0.685, as in its Table 3 (0.687).

    Returns
    -------
    Int[ndarray, "n"], 0 or 1.
    """
    concepts = _checked(c, 3)
    total = concepts.sum(axis=1)
    if nonlinear:
        total = total - 2 * concepts[:, 0] * concepts[:, 1]
    return (total >= 2).astype(np.int64)


def tabulartoy_two_concept_task(c: ArrayLike) -> NDArray[np.int64]:
    """Disjunction of two concepts, ``y = 1[c1 + c2 >= 1]`` (Figures 2 and 3).

    Parameters
    ----------
    c : Int[ndarray, "n 2"]
        Annotated concepts.

    Returns
    -------
    Int[ndarray, "n"], 0 or 1.
    """
    return (_checked(c, 2).sum(axis=1) >= 1).astype(np.int64)


def dsprites_task(c: ArrayLike, *, nonlinear: bool = False) -> NDArray[np.int64]:
    """Eight classes: the first concept chooses which pair of the others is read.

    Parameters
    ----------
    c : Int[ndarray, "n 5"]
        Concepts shape, scale, rotation, x half and y half.
    nonlinear : bool
        Subtract the products c0 c1 c4, c0 c2 c4, c0 c1 c3 and (1 - c0) c2 c3.

    Returns
    -------
    Int[ndarray, "n"] in 0..7: ``2 c1 + c2`` where ``c0 = 1``, else ``4 + 2 c3 + c4``.
    """
    c0, c1, c2, c3, c4 = _checked(c, 5).T
    y = np.where(c0 == 1, 2 * c1 + c2, 4 + 2 * c3 + c4)
    if nonlinear:
        y = y - c0 * c1 * c4 - c0 * c2 * c4 - c0 * c1 * c3 - (1 - c0) * c2 * c3
    return y.astype(np.int64)


def shapes3d_task(c: ArrayLike, *, nonlinear: bool = False) -> NDArray[np.int64]:
    """Twelve classes: the shape concept chooses between two and three of the others.

    Parameters
    ----------
    c : Int[ndarray, "n 6"]
        Concepts floor, wall and object hue, scale, shape, orientation.
    nonlinear : bool
        Subtract 3 c0 c1 c2, c3 c4 c5 and c0 c2 c4, add c1 c3 c5.

    Returns
    -------
    Int[ndarray, "n"] in 0..11: ``2 c0 + c1`` where ``c4 = 0``, else ``4 + 4 c2 + 2 c3 + c5``.
    """
    c0, c1, c2, c3, c4, c5 = _checked(c, 6).T
    y = np.where(c4 == 0, 2 * c0 + c1, 4 + 4 * c2 + 2 * c3 + c5)
    if nonlinear:
        y = y - 3 * c0 * c1 * c2 - c3 * c4 * c5 - c0 * c2 * c4 + c1 * c3 * c5
    return y.astype(np.int64)


def remove_concepts(
    c: ArrayLike, concept_names: tuple[str, ...], removed: tuple[int, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Concepts and names that are left of an incomplete set; the label keeps reading all of them.

    Parameters
    ----------
    c : Int[ndarray, "n k"]
        All annotated concepts.
    concept_names : tuple of str
        One name per column.
    removed : tuple of int
        Columns to leave out, counted from 0; at least one concept must remain.

    Returns
    -------
    The remaining columns and their names.

    Raises
    ------
    ValueError
        If a column does not exist, is named twice, or nothing would remain.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    k = concepts.shape[1]
    wrong = [i for i in removed if not 0 <= i < k]
    if wrong or len(set(removed)) != len(removed) or len(removed) >= k:
        raise ValueError(
            f"removed must name up to {k - 1} different columns 0..{k - 1}, got {tuple(removed)}."
        )
    kept = [i for i in range(k) if i not in removed]
    return concepts[:, kept], tuple(concept_names[i] for i in kept)


def _checked(c: ArrayLike, n_concepts: int) -> NDArray[np.int64]:
    concepts = as_binary_concepts("c", c, binary=True)
    if concepts.shape[1] != n_concepts:
        raise ValueError(
            f"c must have {n_concepts} columns for this task, got shape {concepts.shape}. "
            "Compute the label before concepts are removed."
        )
    return concepts
