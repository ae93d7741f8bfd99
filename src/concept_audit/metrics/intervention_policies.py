"""Intervention policies: in which order the groups of concepts are set, per sample.

`random`, `uncertainty` and a fixed order are known beforehand; CooP (Chauhan et al., 2023) asks the
head at every step which group would change its answer most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_matrix, check_same_shape
from concept_audit.metrics.accuracy import as_logits, class_log_probabilities, predicted_classes

__all__ = [
    "Groups",
    "Head",
    "InterventionSetup",
    "as_groups",
    "coop_order",
    "expand_mask",
    "fixed_order",
    "named_order",
    "set_masks",
]

Head = Callable[[NDArray[np.float64]], ArrayLike]
Groups = Mapping[str, Sequence[int]] | Sequence[Sequence[int]]

POLICIES = ("random", "uncertainty", "coop")


@dataclass(frozen=True)
class InterventionSetup:
    """Checked inputs of one curve."""

    head: Head
    bottleneck: NDArray[np.float64]
    target: NDArray[np.float64]  # what an intervened bottleneck holds, same shape
    low: NDArray[np.float64]  # the bottleneck if every concept were set to 0
    high: NDArray[np.float64]
    flat: bool
    c: NDArray[np.int64]  # the values set: the annotations, some flipped when competence < 1
    y: NDArray[np.int64]
    groups: tuple[tuple[int, ...], ...]

    def call(self, mixed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logits `(n, l)` of a bottleneck."""
        rows = mixed.reshape(mixed.shape[0], -1) if self.flat else mixed
        return as_logits("head(bottleneck)", self.head(np.ascontiguousarray(rows)), rows.shape[0])

    def mix(self, done: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Bottleneck in which the concepts marked in `done` (n, k) are set."""
        return np.where(expand_mask(done, self.bottleneck), self.target, self.bottleneck)

    def accuracy(self, done: NDArray[np.bool_]) -> float:
        """Task accuracy with the concepts of `done` set."""
        return float(np.mean(predicted_classes(self.call(self.mix(done))) == self.y))

    def full_accuracy(self) -> float:
        """Accuracy with all concepts set; the head sees each distinct configuration once."""
        k = self.c.shape[1]
        if self.bottleneck.ndim == 3 or k > 62:
            return self.accuracy(np.ones_like(self.c, dtype=bool))
        codes = self.c @ (np.int64(1) << np.arange(k, dtype=np.int64))
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        y_hat = predicted_classes(self.call(self.target[first]))
        return float(np.mean(y_hat[inverse] == self.y))


def expand_mask(mask: NDArray[np.bool_], like: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask `(n, k)` broadcast over embeddings `(n, k, m)`."""
    return mask[:, :, None] if like.ndim == 3 else mask


def as_groups(groups: Groups | None, k: int) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Names and members; every concept belongs to exactly one group."""
    if groups is None:
        return tuple(f"c{i + 1}" for i in range(k)), tuple((i,) for i in range(k))
    if isinstance(groups, Mapping):
        names = tuple(str(name) for name in groups)
        members = tuple(tuple(int(i) for i in group) for group in groups.values())
    else:
        members = tuple(tuple(int(i) for i in group) for group in groups)
        names = tuple(f"group {i + 1}" for i in range(len(members)))
    listed = sorted(i for group in members for i in group)
    if listed != list(range(k)) or any(not group for group in members):
        missing = sorted(set(range(k)) - set(listed))
        raise ValueError(
            f"groups must put each of the {k} concepts into exactly one non-empty group, got "
            f"{len(members)} groups with {len(listed)} members (missing: {missing})."
        )
    return names, members


def _concept_probabilities(
    c_hat: ArrayLike | None, setup: InterventionSetup, kind: str, policy: str
) -> Float[NDArray[np.float64], "n k"]:
    """Probabilities whose entropy the policy reads."""
    if c_hat is not None:
        given = as_matrix("c_hat", c_hat)
        check_same_shape("(n, k)", c_hat=given, c=setup.c)
        if given.min() < 0.0 or given.max() > 1.0:
            raise ValueError(
                f"c_hat must hold probabilities in [0, 1], got values from {given.min():.4g} to "
                f"{given.max():.4g}. Pass the sigmoid of the logits."
            )
        return given
    if kind == "soft":
        return np.clip(setup.bottleneck, 0.0, 1.0)
    if kind == "logit":
        from scipy.special import expit

        return np.asarray(expit(setup.bottleneck))
    raise ValueError(
        f"c_hat is needed for policy={policy!r} with kind={kind!r}: the concept probabilities, "
        "shape (n, k), whose entropy decides the order."
    )


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of a Bernoulli in units of ln 2."""
    from scipy.special import entr

    return np.asarray(entr(p) + entr(1.0 - p)) / np.log(2.0)


def _group_means(
    scores: NDArray[np.float64], groups: tuple[tuple[int, ...], ...]
) -> NDArray[np.float64]:
    """Mean of per-concept scores over the members of each group."""
    return np.stack([scores[:, list(group)].mean(axis=1) for group in groups], axis=1)


def set_masks(
    order: NDArray[np.int64], step: int, groups: tuple[tuple[int, ...], ...], k: int
) -> NDArray[np.bool_]:
    """Concepts set after `step` steps of `order`."""
    member_of = np.empty(k, dtype=np.int64)
    for index, group in enumerate(groups):
        member_of[list(group)] = index
    done = np.zeros((order.shape[0], len(groups)), dtype=bool)
    np.put_along_axis(done, order[:, :step], True, axis=1)
    return done[:, member_of]


def _coop_scores(
    setup: InterventionSetup,
    done: NDArray[np.bool_],
    entropy: NDArray[np.float64],
    p: NDArray[np.float64],
    alpha: float,
    beta: float,
) -> NDArray[np.float64]:
    """Alpha * entropy + beta * expected change of the predicted class's probability."""
    n, k = setup.c.shape
    mixed = setup.mix(done)
    log_p = class_log_probabilities(setup.call(mixed))
    y_hat = predicted_classes(log_p)
    rows = np.arange(n)
    current = np.exp(log_p[rows, y_hat])
    change = np.zeros((n, k))
    for j in range(k):
        open_rows = np.flatnonzero(~done[:, j])
        if not open_rows.size:
            continue
        trial = np.concatenate([mixed[open_rows], mixed[open_rows]])
        m = open_rows.size
        trial[:m, j] = setup.low[open_rows, j]
        trial[m:, j] = setup.high[open_rows, j]
        log_q = class_log_probabilities(setup.call(trial))
        kept = np.exp(log_q[np.arange(2 * m), np.tile(y_hat[open_rows], 2)])
        weight = p[open_rows, j]
        expected = (1.0 - weight) * kept[:m] + weight * kept[m:]
        change[open_rows, j] = np.abs(expected - current[open_rows])
    return alpha * entropy + beta * change


def coop_order(
    setup: InterventionSetup, p: NDArray[np.float64], alpha: float, beta: float
) -> NDArray[np.int64]:
    """Order chosen step by step; ties go to the lower group."""
    n, k = setup.c.shape
    n_groups = len(setup.groups)
    order = np.empty((n, n_groups), dtype=np.int64)
    entropy = _entropy(p)
    for step in range(n_groups):
        done = set_masks(order, step, setup.groups, k)
        scores = _group_means(_coop_scores(setup, done, entropy, p, alpha, beta), setup.groups)
        if step:
            np.put_along_axis(scores, order[:, :step], -np.inf, axis=1)
        order[:, step] = scores.argmax(axis=1)
    return order


def fixed_order(policy: Sequence[int | str], names: tuple[str, ...], n: int) -> NDArray[np.int64]:
    """A given order of group numbers or names, the same for every sample."""
    lookup = {name: index for index, name in enumerate(names)}
    unknown = [p for p in policy if isinstance(p, str) and p not in lookup]
    if unknown:
        raise ValueError(f"policy names unknown groups {unknown}; there are {list(names)}.")
    order = [lookup[p] if isinstance(p, str) else int(p) for p in policy]
    if sorted(order) != list(range(len(names))):
        raise ValueError(
            f"policy as a fixed order must list each of the {len(names)} groups once "
            f"(0..{len(names) - 1} or their names), got {list(policy)}."
        )
    return np.tile(np.array(order, dtype=np.int64), (n, 1))


def named_order(
    policy: str,
    setup: InterventionSetup,
    kind: str,
    c_hat: ArrayLike | None,
    coop_alpha: float,
    coop_beta: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Order `(n, n_groups)` of a policy known by name."""
    if policy not in POLICIES:
        raise ValueError(
            f"policy must be one of {', '.join(POLICIES)} or a fixed order of groups, "
            f"got {policy!r}."
        )
    n, n_groups = setup.c.shape[0], len(setup.groups)
    if policy == "random":
        return rng.permuted(np.tile(np.arange(n_groups), (n, 1)), axis=1)
    p = _concept_probabilities(c_hat, setup, kind, policy)
    if policy == "uncertainty":
        return np.argsort(-_group_means(_entropy(p), setup.groups), axis=1, kind="stable")
    return coop_order(setup, p, coop_alpha, coop_beta)
