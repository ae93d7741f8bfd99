"""TabularToy(delta): three correlated Gaussians, seven features, three concepts, one binary task.

Leakage paper, appendix A. `z ~ N(0, S)` with unit variances and covariance delta; the features are
sin z + z and cos z + z of each coordinate and the squared norm; the concepts are the signs.
"""

from __future__ import annotations

import numpy as np

from concept_audit.data.base import ConceptDataset
from concept_audit.data.splits import three_way_split
from concept_audit.data.tasks import (
    remove_concepts,
    tabulartoy_task,
    tabulartoy_two_concept_task,
)

__all__ = ["tabulartoy"]


def tabulartoy(
    *,
    delta: float = 0.25,
    n_samples: int = 10_000,
    concepts: str = "three",
    removed_concept: int | None = None,
    nonlinear: bool = False,
    seed: int = 0,
    split_seed: int = 42,
) -> ConceptDataset:
    """TabularToy with every variant of the paper.

    Parameters
    ----------
    delta : float
        Covariance of the coordinates, in (-0.5, 1); the paper uses 0.25 and 0.75.
    n_samples : int
        Rows over all splits, 70 % train, 20 % validation, 10 % test.
    concepts : {"three", "two"}
        ``three``: y = 1[c1 + c2 + c3 >= 2]. ``two``: only c1 and c2, y = 1[c1 + c2 >= 1].
    removed_concept : int, optional
        Column (0, 1 or 2) to leave out of the annotations; the label still depends on it.
    nonlinear : bool
        The label that no linear head can represent.
    seed : int
        Seed of the sample.
    split_seed : int
        Seed of the splits.

    Returns
    -------
    ConceptDataset with `x` (n, 7) float32, `c` (n, 3) or (n, 2), `y` (n,) in 0..1.

    Raises
    ------
    ValueError
        On a delta without a positive definite covariance, an unknown `concepts`, or variants that
        exclude each other.
    """
    if not -0.5 < delta < 1:
        raise ValueError(
            f"delta must lie in (-0.5, 1) to give a covariance, got {delta}. The paper: 0.25, 0.75."
        )
    if concepts not in ("three", "two"):
        raise ValueError(f"concepts must be 'three' or 'two', got {concepts!r}.")
    if concepts == "two" and (removed_concept is not None or nonlinear):
        raise ValueError(
            "concepts='two' has no incomplete or nonlinear variant: got "
            f"removed_concept={removed_concept}, nonlinear={nonlinear}. Use concepts='three'."
        )
    covariance = np.full((3, 3), float(delta))
    np.fill_diagonal(covariance, 1.0)
    # A Cholesky factor instead of multivariate_normal: the same digits on every platform.
    normal = np.random.default_rng(seed).standard_normal((n_samples, 3))
    z = normal @ np.linalg.cholesky(covariance).T
    features = np.stack([np.sin(z) + z, np.cos(z) + z], axis=2).reshape(n_samples, 6)
    x = np.concatenate([features, np.square(z).sum(axis=1, keepdims=True)], axis=1)
    c = (z > 0).astype(np.int64)
    names: tuple[str, ...] = ("c1", "c2", "c3")
    if concepts == "two":
        c, names = c[:, :2], names[:2]
        y = tabulartoy_two_concept_task(c)
    else:
        y = tabulartoy_task(c, nonlinear=nonlinear)
        if removed_concept is not None:
            c, names = remove_concepts(c, names, (removed_concept,))
    return ConceptDataset(
        name=_name(delta, concepts, removed_concept, nonlinear),
        x=x.astype(np.float32),
        c=c,
        y=y,
        concept_names=names,
        class_names=("y=0", "y=1"),
        splits=three_way_split(n_samples, split_seed=split_seed),
    )


def _name(delta: float, concepts: str, removed_concept: int | None, nonlinear: bool) -> str:
    """`tabulartoy_d025`, or the variant's name, which leaves out the default delta."""
    variants = []
    if concepts == "two":
        variants.append("two_concepts")
    if nonlinear:
        variants.append("nonlinear")
    if removed_concept is not None:
        variants.append("incomplete")
    delta_part = f"d{round(delta * 100):03d}"
    if variants and delta == 0.25:
        return "_".join(["tabulartoy", *variants])
    return "_".join(["tabulartoy", delta_part, *variants])
