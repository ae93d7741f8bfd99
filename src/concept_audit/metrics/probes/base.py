"""What all probes share: the data they read, how they are scored, and the ladder they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_binary_concepts, as_matrix, check_same_rows

__all__ = [
    "CapacityScale",
    "FactorKind",
    "LadderFit",
    "ProbeData",
    "ProbeFamily",
    "Split",
    "as_kinds",
    "baseline_loss",
    "factor_score",
    "grid_variance",
    "on_scale",
]

FactorKind = Literal["categorical", "continuous"]
CapacityScale = Literal["linear", "log", "log1p"]
_KINDS = ("categorical", "continuous")


def as_kinds(kinds: Sequence[str] | str, n_factors: int) -> tuple[FactorKind, ...]:
    """Kind of each factor; one word stands for all."""
    names = (kinds,) * n_factors if isinstance(kinds, str) else tuple(kinds)
    if len(names) != n_factors:
        raise ValueError(
            f"kinds must name one kind for each of {n_factors} factors, got {len(names)}: {names}."
        )
    for name in names:
        if name not in _KINDS:
            close = get_close_matches(str(name), _KINDS, n=1, cutoff=0.3)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"kinds must be 'categorical' or 'continuous', got {name!r}.{hint}")
    return cast("tuple[FactorKind, ...]", names)


def grid_variance(size: int) -> float:
    """Variance of the uniform grid {0, 1/(q-1), .., 1}, by which the reference divides the MSE."""
    return (size + 1) / (12 * (size - 1))


def factor_score(
    prediction: NDArray[Any],
    target: NDArray[np.int64],
    kind: FactorKind,
    size: int,
    *,
    variance: Literal["grid", "sample"] = "grid",
) -> float:
    """Accuracy of a categorical factor, R2 of a continuous one (its target scaled to [0, 1]).

    `variance="grid"` divides the squared error by the variance of the full uniform grid, as the
    authors' neural probes do; `"sample"` by that of the targets at hand, as scikit-learn does.
    """
    if kind == "categorical":
        return float(np.mean(np.argmax(prediction, axis=1) == target))
    z = target / (size - 1)
    error = float(np.mean((np.asarray(prediction, dtype=np.float64).reshape(len(z)) - z) ** 2))
    return 1 - error / (grid_variance(size) if variance == "grid" else max(float(z.var()), 1e-12))


def baseline_loss(
    factors: NDArray[np.int64],
    kinds: Sequence[FactorKind],
    sizes: Sequence[int],
    rule: Literal["auto", "sizes", "frequency"] = "auto",
) -> NDArray[np.float64]:
    """Loss of the best constant prediction: 1 for R2, one minus the largest class share else.

    "sizes" takes all classes as equally frequent (1 - 1/q); "auto" does so unless the largest
    class is more frequent than chance allows (three standard errors above 1/q).
    """
    if rule not in ("auto", "sizes", "frequency"):
        raise ValueError(f"baseline must be 'auto', 'sizes' or 'frequency', got {rule!r}.")
    result = np.ones(len(kinds))
    for j, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if kind == "categorical":
            share = np.bincount(factors[:, j], minlength=size).max() / len(factors)
            even = 1 / size
            allowed = 3 * np.sqrt(even * (1 - even) / len(factors))
            uneven = rule == "frequency" or (rule == "auto" and share > even + allowed)
            result[j] = 1 - (share if uneven else even)
    return result


def on_scale(capacity: ArrayLike, scale: CapacityScale) -> NDArray[np.float64]:
    """Capacities on the axis of the loss-capacity curve."""
    values = np.asarray(capacity, dtype=np.float64)
    if scale == "log1p":
        return np.log1p(np.maximum(values, 0))
    if scale == "log":
        if (values <= 0).any():
            raise ValueError(f"scale='log' needs positive capacities, got {values}. Use 'log1p'.")
        return np.log(values)
    if scale == "linear":
        return values
    raise ValueError(f"scale must be 'log1p', 'log' or 'linear', got {scale!r}.")


@dataclass(frozen=True)
class Split:
    """Codes `(n, L)` float64 and factors `(n, K)` class indices of one part of the data."""

    codes: NDArray[np.float64]
    factors: NDArray[np.int64]

    @classmethod
    def checked(cls, name: str, codes: ArrayLike, factors: ArrayLike) -> Split:
        """Split from a user's arrays."""
        prefix = f"{name} " if name else ""
        x = as_matrix(f"{prefix}codes", codes, columns="L", min_rows=2)
        z = as_binary_concepts(f"{prefix}factors", factors, min_rows=2)
        check_same_rows(**{f"{prefix}codes": x, f"{prefix}factors": z})
        if z.min() < 0:
            raise ValueError(f"{prefix}factors must hold class indices from 0 up, got {z.min()}.")
        return cls(x, z)


@dataclass(frozen=True)
class ProbeData:
    """Train, validation and test rows with the kind and the number of values of each factor."""

    train: Split
    validation: Split
    test: Split
    kinds: tuple[FactorKind, ...]
    sizes: tuple[int, ...]

    @classmethod
    def checked(
        cls,
        codes: ArrayLike,
        factors: ArrayLike,
        kinds: Sequence[str] | str,
        *,
        factor_sizes: Sequence[int] | None = None,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        seed: int = 0,
    ) -> ProbeData:
        """Check a user's arrays; parts that are not given are drawn from `codes` by `seed`.

        A test part takes 20 % and a validation part 10 % of all rows.
        """
        train = Split.checked("", codes, factors)
        n = len(train.codes)
        n_test = 0 if test is not None else max(2, round(0.2 * n))
        n_validation = 0 if validation is not None else max(2, round(0.1 * n))
        if n - n_test - n_validation < 2:
            raise ValueError(
                f"codes need at least {n_test + n_validation + 2} rows to be split into train, "
                f"validation and test, got {n}. Pass validation= and test= to use all for training."
            )
        order = (
            np.random.default_rng(seed).permutation(n) if n_test + n_validation else np.arange(n)
        )

        def part(rows: NDArray[np.int64]) -> Split:
            return Split(train.codes[rows], train.factors[rows])

        held_test = part(order[:n_test]) if test is None else Split.checked("test", *test)
        held_validation = (
            part(order[n_test : n_test + n_validation])
            if validation is None
            else Split.checked("validation", *validation)
        )
        rest = part(order[n_test + n_validation :])
        for name, held in (("validation", held_validation), ("test", held_test)):
            if held.codes.shape[1:] != rest.codes.shape[1:] or (
                held.factors.shape[1:] != rest.factors.shape[1:]
            ):
                raise ValueError(
                    f"{name} must have L = {rest.codes.shape[1]} codes and "
                    f"K = {rest.factors.shape[1]} factors like the training rows, got "
                    f"{held.codes.shape[1]} and {held.factors.shape[1]}."
                )
        names = as_kinds(kinds, rest.factors.shape[1])
        largest = np.max(
            [s.factors.max(axis=0) for s in (rest, held_validation, held_test)], axis=0
        )
        sizes = (
            tuple(int(v) + 1 for v in largest)
            if factor_sizes is None
            else tuple(map(int, factor_sizes))
        )
        if len(sizes) != len(names) or (np.array(sizes) <= largest).any():
            raise ValueError(
                f"factor_sizes must exceed the largest value of each factor {largest.tolist()}, "
                f"got {list(sizes)}."
            )
        for j, size in enumerate(sizes):
            if size < 2 or len(np.unique(rest.factors[:, j])) < 2:
                raise ValueError(
                    f"factors[:, {j}] has a single value, so no probe can learn it. Leave it out."
                )
        return cls(rest, held_validation, held_test, names, sizes)

    @property
    def n_codes(self) -> int:
        """L."""
        return self.train.codes.shape[1]

    @property
    def n_factors(self) -> int:
        """K."""
        return len(self.kinds)

    @property
    def n_outputs(self) -> tuple[int, ...]:
        """Outputs of the probe of each factor: its classes, or one."""
        return tuple(
            size if kind == "categorical" else 1
            for kind, size in zip(self.kinds, self.sizes, strict=True)
        )

    def target(self, split: Split, factor: int) -> NDArray[Any]:
        """What a probe of this factor predicts: the class, or the value scaled to [0, 1]."""
        z = split.factors[:, factor]
        return z if self.kinds[factor] == "categorical" else z / (self.sizes[factor] - 1)

    def scores(
        self, split: Split, predictions: Sequence[NDArray[Any]], variance: Literal["grid", "sample"]
    ) -> NDArray[np.float64]:
        """Score of each factor `(K,)`."""
        return np.array(
            [
                factor_score(
                    predictions[j],
                    split.factors[:, j],
                    self.kinds[j],
                    self.sizes[j],
                    variance=variance,
                )
                for j in range(self.n_factors)
            ]
        )

    def standardised(self) -> ProbeData:
        """The same data with codes of mean 0 and standard deviation 1 on the training rows."""
        mean, std = self.train.codes.mean(axis=0), self.train.codes.std(axis=0)
        std[std == 0] = 1.0

        def scaled(split: Split) -> Split:
            return Split((split.codes - mean) / std, split.factors)

        return replace(
            self,
            train=scaled(self.train),
            validation=scaled(self.validation),
            test=scaled(self.test),
        )


@dataclass(frozen=True)
class LadderFit:
    """Probes of all capacities (T), seeds (S) and factors (K) after fitting.

    `capacities` are on the axis of the curve, sorted; `sizes` says what each step is (hidden width,
    depth, number of features). `importances(s, t)` is the forests' own matrix `(L, K)`;
    `probe(s, t, j)` predicts one factor from codes: probabilities or values.
    """

    capacities: NDArray[np.float64]
    sizes: tuple[int, ...]
    validation_scores: NDArray[np.float64]
    test_scores: NDArray[np.float64]
    importances: Callable[[int, int], NDArray[np.float64]] | None = None
    probe: Callable[[int, int, int], Any] | None = None


class ProbeFamily(Protocol):
    """A ladder of probes of growing capacity; write one to add a probe."""

    @property
    def name(self) -> str:
        """Short name, shown with the curve."""
        ...

    def fit(self, data: ProbeData, seeds: Sequence[int], *, device: str | None = None) -> LadderFit:
        """Fit every step of the ladder for every seed and factor."""
        ...

    def describe(self) -> str:
        """Capacity axis and options in one line: part of a score's identity."""
        ...
