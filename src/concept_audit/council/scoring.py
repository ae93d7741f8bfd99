"""From judges' scores to labels, normalised scores and rankings.

CBX-Bench, sections 3.1 and 3.2: consensus of annotators, vote-majority and score-sum councils.
Arrays of scores carry the judges on their first axis: `(J, m)` for the m models of one image,
`(J, n, m)` for n images. A missing score is NaN (or None) and is never replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ANSWERS",
    "BenchmarkScores",
    "Consensus",
    "CouncilLabels",
    "ScoreInterval",
    "benchmark_scores",
    "consensus",
    "majority_label",
    "normalised_score",
    "ranks",
    "score_sum_council",
    "vote_majority_council",
]

ANSWERS = ("A", "B", "equally_good", "equally_bad")
_THREE_WAY = {"A": "A", "B": "B", "tie": "tie", "equally_good": "tie", "equally_bad": "tie"}


@dataclass(frozen=True)
class Consensus:
    """Agreement of the people who compared two explanations."""

    label: str | None  # "A", "B", "tie", or None without a consensus
    strength: str  # "unanimous", "majority" or "none"
    collapsed: tuple[str, ...]  # answers with both equalities read as "tie"


def consensus(labels: Sequence[str]) -> Consensus:
    """Consensus of raw answers: both equalities become a tie first, then more than half decides.

    Parameters
    ----------
    labels : answers `A`, `B`, `equally_good`, `equally_bad` (or `tie`), in canonical model order

    Returns
    -------
    Consensus; with A, B and tie once each there is none, and the item is left out of alignment.

    Raises
    ------
    ValueError  without answers or on an unknown one.

    Notes
    -----
    CBX-Bench, section 3.1: three of three is unanimous, two of three a majority.
    """
    if not labels:
        raise ValueError("labels must hold at least one answer, got none.")
    unknown = [label for label in labels if label not in _THREE_WAY]
    if unknown:
        raise ValueError(f"labels must be one of {', '.join(_THREE_WAY)}, got {unknown[0]!r}.")
    collapsed = tuple(_THREE_WAY[label] for label in labels)
    label, count = Counter(collapsed).most_common(1)[0]
    if count == len(collapsed):
        return Consensus(label, "unanimous", collapsed)
    if 2 * count > len(collapsed):
        return Consensus(label, "majority", collapsed)
    return Consensus(None, "none", collapsed)


@dataclass(frozen=True)
class CouncilLabels:
    """Pairwise labels of a council for every pair of models."""

    pairs: tuple[tuple[Any, Any], ...]  # model names, or their positions
    labels: NDArray[
        np.object_
    ]  # (n_pairs,) or (n, n_pairs): "A", "B", "tie"; None: no judge has both
    sums: NDArray[np.float64]  # (m,) or (n, m) sums of scores, NaN where a judge is missing
    n_valid: NDArray[np.int64]  # shape of `labels`: judges with a score for both models
    n_judges: int

    def label(self, first: Any, second: Any) -> Any:
        """Label of one pair of one image, `A` standing for `first`."""
        if self.labels.ndim != 1:
            raise ValueError("label() reads one image; index `labels` (n, n_pairs) for several.")
        if (first, second) in self.pairs:
            return self.labels[self.pairs.index((first, second))]
        if (second, first) in self.pairs:
            return _flip(self.labels[self.pairs.index((second, first))])
        raise ValueError(f"no pair of {first!r} and {second!r}; pairs are {list(self.pairs)}.")


def _flip(label: Any) -> Any:
    return {"A": "B", "B": "A"}.get(label, label)


def majority_label(labels: Sequence[str]) -> str:
    """Label held by more than half of the votes, else `tie`."""
    if not labels:
        raise ValueError("labels must hold at least one vote, got none.")
    label, count = Counter(labels).most_common(1)[0]
    return label if 2 * count > len(labels) else "tie"


def score_sum_council(
    scores: ArrayLike | Mapping[str, Mapping[str, int | None]],
) -> CouncilLabels:
    """Labels from the sums of all judges' scores: the higher sum wins, equal sums tie.

    Parameters
    ----------
    scores : Float[ndarray, "J m"], Float[ndarray, "J n m"], or for one image a table
        `{judge: {model: score}}`; integers, NaN or None where a score is missing

    Returns
    -------
    CouncilLabels. Where scores are missing a pair is compared on the judges that scored both
    models; `n_valid` tells how many those are.

    Raises
    ------
    ValueError  with fewer than two models, no judge, or scores that are no integers.

    Notes
    -----
    CBX-Bench, section 3.2. Sums of integers are compared exactly; the labels are transitive as long
    as no score is missing.
    """
    array, names = _scores(scores)
    pairs, shape = _pairs(array, names)
    labels = np.empty((*shape, len(pairs)), dtype=object)
    n_valid = np.zeros(labels.shape, dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(array.shape[-1]), 2)):
        both = np.isfinite(array[..., i]) & np.isfinite(array[..., j])
        difference = np.where(both, array[..., i] - array[..., j], 0.0).sum(axis=0)
        n_valid[..., column] = both.sum(axis=0)
        labels[..., column] = _labels(difference, n_valid[..., column])
    return CouncilLabels(pairs, labels, array.sum(axis=0), n_valid, array.shape[0])


def vote_majority_council(
    scores: ArrayLike | Mapping[str, Mapping[str, int | None]],
) -> CouncilLabels:
    """Labels by vote: each judge's own label, then the one that more than half of them hold.

    Parameters
    ----------
    scores : as in `score_sum_council`

    Returns
    -------
    CouncilLabels; `tie` where no label has a majority. A judge that lacks a score of the pair does
    not vote on it. Votes may be cyclic over three models.

    Notes
    -----
    CBX-Bench, section 3.2.
    """
    array, names = _scores(scores)
    pairs, shape = _pairs(array, names)
    labels = np.empty((*shape, len(pairs)), dtype=object)
    n_valid = np.zeros(labels.shape, dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(array.shape[-1]), 2)):
        difference = array[..., i] - array[..., j]  # NaN where the judge does not vote
        voters = np.isfinite(difference).sum(axis=0)
        for_a = 2 * (difference > 0).sum(axis=0) > voters
        for_b = 2 * (difference < 0).sum(axis=0) > voters
        n_valid[..., column] = voters
        labels[..., column] = _labels(for_a.astype(float) - for_b, voters)
    return CouncilLabels(pairs, labels, array.sum(axis=0), n_valid, array.shape[0])


def _labels(difference: NDArray[np.float64], n_valid: NDArray[np.int64]) -> NDArray[np.object_]:
    names = np.array(["B", "tie", "A"], dtype=object)
    labels = names[np.sign(difference).astype(int) + 1]
    return np.asarray(np.where(n_valid > 0, labels, None), dtype=object)


def _pairs(
    array: NDArray[np.float64], names: Sequence[Any]
) -> tuple[tuple[tuple[Any, Any], ...], tuple[int, ...]]:
    return tuple(combinations(names, 2)), array.shape[1:-1]


def _scores(
    scores: ArrayLike | Mapping[str, Mapping[str, int | None]],
) -> tuple[NDArray[np.float64], Sequence[Any]]:
    """Scores as `(J, ..., m)` floats with NaN for missing, and the models' names or positions."""
    if isinstance(scores, Mapping):
        names: list[Any] = list(dict.fromkeys(m for row in scores.values() for m in row))
        table = [[row.get(model) for model in names] for row in scores.values()]
        array = np.array(table, dtype=np.float64).reshape(len(table), len(names))
    else:
        array = np.array(scores, dtype=np.float64)  # None becomes NaN
        names = list(range(array.shape[-1])) if array.ndim else []
    if array.ndim not in (2, 3) or array.shape[0] == 0:
        raise ValueError(
            f"scores must have shape (J, m) or (J, n, m), judges first, got {array.shape}."
        )
    if array.shape[-1] < 2:
        raise ValueError(f"scores must cover at least two models, got {array.shape[-1]}.")
    _check_integers(array)
    return array, names


def _check_integers(array: NDArray[np.float64]) -> None:
    odd = array[np.isfinite(array) & (array != np.rint(array))]
    if odd.size or np.isinf(array).any():
        value = odd.flat[0] if odd.size else np.inf
        raise ValueError(f"scores must be integers, NaN where missing, got {value}.")


def normalised_score(scores: ArrayLike, *, scale_max: int = 9) -> NDArray[np.float64] | float:
    """Sum of the judges' scores, moved from [J, J K] to [0, 1].

    Parameters
    ----------
    scores : Float[ndarray, "J ..."]   judges on the first axis; NaN where missing
    scale_max : K of the scale 1..K

    Returns
    -------
    Float for `(J,)`, else an array of the remaining shape; NaN where any judge is missing.

    Raises
    ------
    ValueError  on a score outside 1..K or one that is no integer.

    Notes
    -----
    (S - J) / (J (K - 1)). CBX-Bench states the range: five judges on 1-9 map [5, 45] to [0, 1].
    """
    array = np.array(scores, dtype=np.float64)
    if array.ndim == 0 or array.shape[0] == 0:
        raise ValueError("scores must have the judges on the first axis, got a single number.")
    _check_integers(array)
    valid = array[np.isfinite(array)]
    if valid.size and (valid.min() < 1 or valid.max() > scale_max):
        raise ValueError(
            f"scores must lie in 1..{scale_max}, got {valid.min():.0f} to {valid.max():.0f}. "
            "A missing score is NaN, not 0."
        )
    n_judges = array.shape[0]
    result = (array.sum(axis=0) - n_judges) / (n_judges * (scale_max - 1))
    return float(result) if result.ndim == 0 else result


def ranks(scores: Mapping[str, float | None]) -> dict[str, int | None]:
    """Competition ranks (1, 2, 2, 4), higher first; None for a model without a score."""
    known = [value for value in scores.values() if value is not None and np.isfinite(value)]
    return {
        name: None
        if value is None or not np.isfinite(value)
        else 1 + sum(_above(other, value) for other in known)
        for name, value in scores.items()
    }


def _above(other: float, value: float) -> bool:
    """Larger by more than rounding: means of the same grades in another order are equal."""
    return other > value + 1e-12


@dataclass(frozen=True)
class ScoreInterval:
    """Score of one model on one dataset, or over all of them."""

    model: str
    dataset: str  # or "overall"
    value: float | None  # None without full coverage
    low: float | None
    high: float | None
    partial: float | None  # mean of what is there; equals `value` at full coverage
    n_images: int  # images with all judges' scores
    n_expected: int
    rank: int | None
    p_first: float | None  # share of bootstrap draws in which no model scores higher


@dataclass(frozen=True)
class BenchmarkScores:
    """CBX scores, intervals and ranks."""

    scores: tuple[ScoreInterval, ...]
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    judges: tuple[str, ...]
    scale_max: int
    confidence: float
    n_resamples: int
    per_item: dict[tuple[str, str, str], float]  # (dataset, image, model) -> z in [0, 1]
    incomplete: tuple[tuple[str, str, str], ...]  # items that lack a judge's score
    p_better: dict[tuple[str, str, str], float]  # (dataset, first, second) -> share of draws

    def get(self, model: str, dataset: str = "overall") -> ScoreInterval:
        """Entry of one model and dataset."""
        for entry in self.scores:
            if (entry.model, entry.dataset) == (model, dataset):
                return entry
        raise KeyError(f"no score of model {model!r} on {dataset!r}; models are {self.models}.")


def benchmark_scores(
    rows: Sequence[Mapping[str, Any]],
    *,
    scale_max: int = 9,
    judges: Sequence[str] | None = None,
    images: Mapping[str, Sequence[str]] | None = None,
    incomplete: Literal["refuse", "scale"] = "refuse",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BenchmarkScores:
    """Score and rank models by the mean normalised score-sum over images.

    Parameters
    ----------
    rows : table with `dataset`, `image_id`, `model`, `judge`, `score` (None where missing)
    scale_max : K of the scale 1..K
    judges : the panel; all judges of the rows by default
    images : image names per data set that count as full coverage, as a manifest lists them; by
        default every image that any model has
    incomplete : `refuse` leaves an item out that lacks a judge's score; `scale` uses the mean of
        the other judges instead
    n_resamples, confidence, seed : percentile bootstrap over images, the same draws for all models

    Returns
    -------
    BenchmarkScores. The overall score is the unweighted mean over datasets. A model without all
    images of a dataset has no value and no rank there, only a `partial` mean.

    Raises
    ------
    ValueError  on no rows, a repeated (item, judge), a score outside 1..K, or mixed protocols.

    Notes
    -----
    CBX-Bench, table 6: five judges on 1-9, [5, 45] to [0, 1]. Formulas of section 3.3 are lost in
    the text at hand; the range is the paper's, the means are ours.
    """
    if not rows:
        raise ValueError("rows must hold at least one score, got none.")
    protocols = sorted({str(row["protocol_id"]) for row in rows if row.get("protocol_id")})
    if len(protocols) > 1:
        raise ValueError(
            f"rows must come from one protocol, got {', '.join(protocols)}. "
            "Scores of different panels, scales or prompts do not compare."
        )
    panel = tuple(dict.fromkeys(judges or sorted({str(row["judge"]) for row in rows})))
    z, missing, order = _item_scores(rows, panel, scale_max, incomplete)
    covered_by = _expected_images(order, images)
    models = tuple(dict.fromkeys(model for _, _, model in order))

    rng = np.random.default_rng(seed)
    tables, draws = {}, {}
    for dataset, names in covered_by.items():
        table = np.array([[z.get((dataset, i, m), np.nan) for m in models] for i in names])
        rows_drawn = rng.integers(len(names), size=(n_resamples, len(names)))
        tables[dataset] = table
        draws[dataset] = np.stack([table[chosen].mean(axis=0) for chosen in rows_drawn])
    values = {dataset: table.mean(axis=0) for dataset, table in tables.items()}
    values["overall"] = np.mean(list(values.values()), axis=0)
    draws["overall"] = np.mean(list(draws.values()), axis=0)

    entries, p_better = [], {}
    for dataset, value in values.items():
        rank = ranks({m: float(value[k]) for k, m in enumerate(models)})
        drawn = draws[dataset]
        covered = np.isfinite(value)
        best = drawn >= np.max(np.where(covered, drawn, -np.inf), axis=1, keepdims=True) - 1e-12
        tail = 100 * (1 - confidence) / 2
        for k, model in enumerate(models):
            cells = np.concatenate(
                [t[:, k] for d, t in tables.items() if dataset in (d, "overall")]
            )
            there = np.isfinite(cells)
            low, high = (
                np.percentile(drawn[:, k], [tail, 100 - tail]) if covered[k] else (None, None)
            )
            entries.append(
                ScoreInterval(
                    model=model,
                    dataset=dataset,
                    value=float(value[k]) if covered[k] else None,
                    low=None if low is None else float(low),
                    high=None if high is None else float(high),
                    partial=float(cells[there].mean()) if there.any() else None,
                    n_images=int(there.sum()),
                    n_expected=int(cells.size),
                    rank=rank[model],
                    p_first=float(best[:, k].mean()) if covered[k] else None,
                )
            )
        for i, j in combinations(np.flatnonzero(covered), 2):
            p_better[(dataset, models[i], models[j])] = float(
                np.mean(drawn[:, i] > drawn[:, j]) + np.mean(drawn[:, i] == drawn[:, j]) / 2
            )
    return BenchmarkScores(
        scores=tuple(entries),
        datasets=tuple(covered_by),
        models=models,
        judges=panel,
        scale_max=scale_max,
        confidence=confidence,
        n_resamples=n_resamples,
        per_item=z,
        incomplete=tuple(missing),
        p_better=p_better,
    )


def _expected_images(
    items: Sequence[tuple[str, str, str]], given: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    """Images per data set that a model must cover; others may not be scored."""
    seen: dict[str, dict[str, None]] = {}
    for dataset, image, _ in items:
        seen.setdefault(dataset, {})[image] = None
    if given is None:
        return {dataset: list(names) for dataset, names in seen.items()}
    expected = {dataset: list(map(str, names)) for dataset, names in given.items() if names}
    for dataset, names in seen.items():
        foreign = sorted(set(names) - set(expected.get(dataset, ())))
        if foreign:
            raise ValueError(
                f"images must list every scored image, {dataset} lacks {len(foreign)}, first "
                f"{foreign[0]!r}. Score the images of the manifest only."
            )
    return expected


def _item_scores(
    rows: Sequence[Mapping[str, Any]], panel: Sequence[str], scale_max: int, incomplete: str
) -> tuple[
    dict[tuple[str, str, str], float], list[tuple[str, str, str]], list[tuple[str, str, str]]
]:
    """Normalised score of every complete item, the incomplete items, and all items in order."""
    if incomplete not in ("refuse", "scale"):
        raise ValueError(f"incomplete must be 'refuse' or 'scale', got {incomplete!r}.")
    places = {judge: position for position, judge in enumerate(panel)}
    grid: dict[tuple[str, str, str], list[float]] = {}
    seen: set[tuple[str, str, str, str]] = set()
    for row in rows:
        if row["judge"] not in places:
            continue
        item = (str(row["dataset"]), str(row["image_id"]), str(row["model"]))
        if (*item, row["judge"]) in seen:
            raise ValueError(
                "rows must hold one score per item and judge, "
                f"got two of {row['judge']!r} for {item}."
            )
        seen.add((*item, row["judge"]))
        score = row["score"]
        cells = grid.setdefault(item, [np.nan] * len(panel))
        cells[places[row["judge"]]] = np.nan if score is None else float(score)
    if not grid:
        raise ValueError(f"rows hold no score of the judges {', '.join(panel)}.")
    matrix = np.array(list(grid.values()))  # (items, J)
    full = np.atleast_1d(normalised_score(matrix.T, scale_max=scale_max))
    missing = [item for item, value in zip(grid, full, strict=True) if not np.isfinite(value)]
    z = {item: float(v) for item, v in zip(grid, full, strict=True) if np.isfinite(v)}
    if incomplete == "scale":
        for item in missing:
            valid = [value for value in grid[item] if np.isfinite(value)]
            if valid:
                z[item] = float(np.asarray(normalised_score(valid, scale_max=scale_max)))
    return z, missing, list(grid)
