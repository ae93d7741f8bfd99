"""D, C, I and S of a representation with its loss-capacity curves, by one family of probes each.

Every metric ends in the name of the probes: `disentanglement_mlp`, `loss_random_forest`. Points of
a curve are told apart by the size of the probe (depth, hidden width, number of features) in `step`;
`capacity_<probe>` gives the place of each size on the curve's axis, which several sizes can share.
Explicitness needs the capacities of all representations that are compared, so `compare` adds it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, repeated, row

__all__ = ["dci_es_mlp", "dci_es_random_forest", "dci_es_rff", "repeated_fits"]

# E is not taken from here: it needs the capacities of other runs, and `compare` adds it.
_ANY_RANGE = (0.0, 1e12)
_FEW_PLAYERS = 64  # SAGE of so many codes meets its threshold soon; `sage_permutations` is for more
_SPLITS = ("train", "val", "test")
MaxFeatures = Literal["sqrt"] | float | None


class RepresentationRun(EvaluatedRun, Protocol):
    """A run whose bundles hold codes, with what is known of them."""

    identity: dict[str, Any]  # columns that every row repeats
    metadata: dict[str, Any]  # factor_names, factor_sizes, factor_kinds, weights


@needs("codes", "factors")
def dci_es_random_forest(
    run: RepresentationRun,
    *,
    n_trees: int = 100,
    depths: Sequence[int] = (1, 2, 3, 4, 8, 10, 12, 14, 16, 18, 20, 32),
    max_features: MaxFeatures = "sqrt",
    regression_max_features: MaxFeatures = None,
    wide: int | None = None,
    rows: int | None = None,
    pixel_grid: int | None = None,
    select_on: Literal["test", "val"] = "test",
    repeats: int = 10,
    seed: int = 0,
) -> list[Row]:
    """Forests of growing depth, with their own importances.

    Beyond `wide` codes every split is offered the square root of their number, in regression too.
    """
    from concept_audit.metrics.probes.random_forest import RandomForestProbes

    data = _Data(run, rows=rows, pixel_grid=pixel_grid, seed=seed)
    is_wide = wide is not None and data.n_codes > wide
    family = RandomForestProbes(
        n_trees=n_trees,
        depths=tuple(depths),
        max_features="sqrt" if is_wide else max_features,
        regression_max_features="sqrt" if is_wide else regression_max_features,
    )
    if is_wide and regression_max_features != "sqrt":
        data.notes.append(f"{data.n_codes} codes, of which sqrt(L) are offered at a split")
    return _score(data, family, select_on=select_on, repeats=repeats, seed=seed)


@needs("codes", "factors")
def dci_es_mlp(
    run: RepresentationRun,
    *,
    width_factors: Sequence[int] = (0, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    learning_rate: float = 2e-4,
    batch_size: int = 128,
    epochs: int = 10,
    reference_samples: int | None = None,
    min_steps: int | None = None,
    capacity: Literal["excess", "hidden_only", "total"] = "excess",
    standardize_codes: bool = False,
    sage_background: int = 32,
    sage_rows: int = 256,
    sage_threshold: float = 0.1,
    sage_permutations: int | None = None,
    rows: int | None = None,
    pixel_grid: int | None = None,
    select_on: Literal["test", "val"] = "test",
    repeats: int = 10,
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """A linear probe and MLPs whose two hidden layers have `width_factors` times K units; SAGE."""
    from concept_audit.metrics.probes.mlp import MlpProbes

    data = _Data(run, rows=rows, pixel_grid=pixel_grid, seed=seed)
    family = MlpProbes(
        widths=tuple(factor * data.n_factors for factor in width_factors),
        learning_rate=learning_rate,
        batch_size=batch_size,
        epochs=epochs,
        reference_samples=reference_samples,
        min_steps=min_steps,
        capacity=capacity,
    )
    return _score(
        data,
        family,
        select_on=select_on,
        repeats=repeats,
        seed=seed,
        standardize_codes=standardize_codes,
        sage_background=sage_background,
        sage_rows=sage_rows,
        sage_threshold=sage_threshold,
        sage_permutations=sage_permutations,
        device=_device(device),
    )


@needs("codes", "factors")
def dci_es_rff(
    run: RepresentationRun,
    *,
    features: Sequence[int] = tuple(2**i for i in range(4, 18)),
    sigma: float | Literal["median"] = 0.08,
    wide_sigma: float | Literal["median"] = "median",
    wide: int | None = None,
    standardize_codes: bool = False,
    sage_background: int = 32,
    sage_rows: int = 256,
    sage_threshold: float = 0.1,
    sage_permutations: int | None = None,
    rows: int | None = None,
    pixel_grid: int | None = None,
    select_on: Literal["test", "val"] = "test",
    repeats: int = 10,
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Linear probes on random Fourier features of growing number; SAGE.

    Beyond `wide` codes the frequencies have the deviation `wide_sigma`: at hundreds of codes a
    fixed one makes all rows equally far apart.
    """
    from concept_audit.metrics.probes.rff import RffProbes

    data = _Data(run, rows=rows, pixel_grid=pixel_grid, seed=seed)
    is_wide = wide is not None and data.n_codes > wide
    family = RffProbes(features=tuple(features), sigma=wide_sigma if is_wide else sigma)
    if is_wide and wide_sigma != sigma:
        data.notes.append(
            f"{data.n_codes} codes: RFF frequencies by the median distance between rows"
            if wide_sigma == "median"
            else f"{data.n_codes} codes: RFF frequencies with deviation {wide_sigma}"
        )
    return _score(
        data,
        family,
        select_on=select_on,
        repeats=repeats,
        seed=seed,
        standardize_codes=standardize_codes,
        sage_background=sage_background,
        sage_rows=sage_rows,
        sage_threshold=sage_threshold,
        sage_permutations=sage_permutations,
        device=_device(device),
    )


class _Data:
    """Codes and factors of a run's splits as the probes read them, and what was done to them."""

    def __init__(
        self, run: RepresentationRun, *, rows: int | None, pixel_grid: int | None, seed: int
    ) -> None:
        self.notes: list[str] = []
        self.model = _model_name(run)
        if self.model != run.identity["model"]:
            self.notes.append("the ImageNet weights were not found, so the encoder is random")
        self.factor_names = tuple(run.metadata["factor_names"])
        self.factor_sizes = tuple(run.metadata["factor_sizes"])
        self.kinds = tuple(run.metadata["factor_kinds"])
        self.n_factors = len(self.factor_names)
        self.groups: NDArray[np.int64] | None = None
        self.splits = {}
        for place, split in enumerate(_SPLITS):
            arrays = run.arrays(split)
            codes, factors = arrays["codes"], arrays["factors"]
            if rows is not None and len(codes) > rows:
                random = np.random.default_rng([seed, place])
                chosen = np.sort(random.choice(len(codes), rows, replace=False))
                if split == "train":
                    self.notes.append(f"fitted on {rows} of {len(codes)} training rows")
                codes, factors = codes[chosen], factors[chosen]
            self.size = codes.shape[1]  # L, before pixels are pooled
            if run.identity["model"] == "raw_pixels":
                codes = self._pixels(codes, pixel_grid)
            self.splits[split] = (np.asarray(codes), np.asarray(factors))
        self.n_codes = self.splits["train"][0].shape[1]
        if self.n_codes < self.size:
            self.notes.append(
                f"pixels are averaged over blocks to {pixel_grid} x {pixel_grid} before probing"
            )

    @property
    def n_players(self) -> int:
        """Codes, or groups of them, whose SAGE values are taken."""
        return self.n_codes if self.groups is None else len(np.unique(self.groups))

    def _pixels(self, codes: NDArray[Any], grid: int | None) -> NDArray[Any]:
        """Pixels, averaged to `grid` x `grid` if given; SAGE takes them by 16 x 16 superpixels."""
        channels, side = _image_shape(codes.shape[1])
        if grid is not None and grid < side:
            if side % grid:
                raise ValueError(f"pixel_grid must divide the {side} pixels of a side, got {grid}.")
            blocks = np.reshape(codes, (len(codes), channels, grid, side // grid, grid, -1))
            codes = blocks.mean(axis=(3, 5)).reshape(len(codes), -1)
            side = grid
        # DCI-ES code: superpixels over all channels, 256 of them in images of 64 x 64.
        place = np.arange(side) * min(side, 16) // side
        square = place[:, None] * min(side, 16) + place
        self.groups = np.tile(square.ravel(), channels)
        return codes


def _device(name: str) -> str:
    """Where torch computes: "auto" is a GPU if there is one."""
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _model_name(run: RepresentationRun) -> str:
    """Name of the representation; an encoder whose ImageNet weights were not found says so."""
    name = str(run.identity["model"])
    if run.metadata.get("weights") == "random" and name.endswith("_imagenet"):
        return name.removesuffix("_imagenet") + "_random"
    return name


def _image_shape(n_codes: int) -> tuple[int, int]:
    """Channels and side of square images with so many values."""
    for channels in (3, 1):
        side = math.isqrt(n_codes // channels)
        if channels * side * side == n_codes:
            return channels, side
    raise ValueError(
        f"codes of raw_pixels must be square images of one or three channels, got L = {n_codes}."
    )


def _score(
    data: _Data,
    family: Any,
    *,
    select_on: Literal["test", "val"],
    repeats: int,
    seed: int,
    **options: Any,
) -> list[Row]:
    """Rows of one ladder of probes, with each seed of theirs as a repeat."""
    from concept_audit.metrics.dci_es import dci_es
    from concept_audit.metrics.disentanglement import representation_size

    if select_on not in ("test", "val"):
        raise ValueError(f"select_on must be 'test' or 'val', got {select_on!r}.")
    if data.n_players <= _FEW_PLAYERS:
        options.pop("sage_permutations", None)
    with warnings.catch_warnings():  # factors are classes because the data set says so
        warnings.filterwarnings("ignore", message="The number of unique classes")
        scores = dci_es(
            *data.splits["train"],
            data.kinds,
            family,
            factor_sizes=data.factor_sizes,
            validation=data.splits["val"],
            test=data.splits["test"],
            n_seeds=repeats,
            capacity_range=_ANY_RANGE,
            select_on="validation" if select_on == "val" else "test",
            groups=None if family.name == "random_forest" else data.groups,
            seed=seed,
            **options,
        )
    curve = scores.curve
    of_scores = (note.rstrip(".") for note in scores.notes if not note.startswith("E "))
    notes = [*data.notes, *of_scores]
    orders = options.get("sage_permutations")
    if orders is not None and scores.importance == "sage, sampled":
        notes.append(
            f"SAGE values of {scores.R.shape[0]} codes from {orders} orders at most, whose noise "
            "lowers D and C"
        )
    shared: dict[str, Any] = {
        "split": "test",
        "n": len(data.splits["test"][0]),
        "model": data.model,
        "note": "; ".join(data.notes) or None,
    }
    noted = {**shared, "note": "; ".join(notes) or None}
    name = family.name
    rows: list[Row] = []
    losses: list[Row] = []
    chosen: list[Row] = []
    for s in range(repeats):
        best = int(scores.best_index[s])
        for metric, score in (
            ("disentanglement", "D"),
            ("completeness", "C"),
            ("informativeness", "I"),
        ):
            value = scores.per_seed[score][s]
            rows.append(row(f"{metric}_{name}", value, repeat=s, **noted))
        rows += [
            row(f"informativeness_{name}", 1 - loss, target=factor, repeat=s, **shared)
            for factor, loss in zip(data.factor_names, curve.per_seed[s, best], strict=True)
        ]
        chosen.append(row(f"best_size_{name}", curve.sizes[best], repeat=s, **shared))
        for t, size in enumerate(curve.sizes):
            values = curve.per_seed[s, t]
            step: dict[str, Any] = {"step": size, "repeat": s, **shared}
            losses.append(row(f"loss_{name}", values.mean(), **step))
            losses += [
                row(f"loss_{name}", loss, target=factor, **step)
                for factor, loss in zip(data.factor_names, values, strict=True)
            ]
    rows = [*repeated_fits(rows), *chosen, *losses, *_mean_and_deviation(losses)]
    for metric, per_factor in (
        ("completeness", scores.C_per_factor),
        ("informativeness_chance_corrected", scores.I_chance_corrected),
        ("baseline_loss", curve.baseline),
    ):
        if metric != "completeness":
            rows.append(row(f"{metric}_{name}", np.mean(per_factor), **shared))
        rows += [
            row(f"{metric}_{name}", value, target=factor, **shared)
            for factor, value in zip(data.factor_names, per_factor, strict=True)
        ]
    rows += [
        row(f"capacity_{name}", capacity, step=size, unit=curve.description, **shared)
        for size, capacity in zip(curve.sizes, curve.capacities, strict=True)
    ]
    relative = representation_size(data.size, data.n_factors)
    return [*rows, row(f"size_{name}", relative, **noted)]


def repeated_fits(rows: Sequence[Row]) -> list[Row]:
    """The rows, and their means over fits of the probes with intervals, from three fits on.

    The t interval of two fits is 12.7 standard errors wide, beyond the range of the scores.
    """
    result = repeated(rows)
    for item in result[len(rows) :]:
        if item["n_runs"] < 3:
            item.pop("low", None)
            item.pop("high", None)
    return result


def _mean_and_deviation(losses: Sequence[Row]) -> list[Row]:
    """Mean over the probes' seeds; `low` and `high` are one standard deviation (ddof 0) away."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for item in losses:
        groups.setdefault((item["target"], item["step"]), []).append(item)
    summaries = []
    for members in groups.values():
        values = np.array([item["value"] for item in members])
        summary = {key: value for key, value in members[0].items() if key != "repeat"}
        summary.update(value=float(values.mean()), n_runs=len(values))
        if len(values) > 1:
            summary.update(
                low=float(values.mean() - values.std()), high=float(values.mean() + values.std())
            )
        summaries.append(summary)
    return summaries
