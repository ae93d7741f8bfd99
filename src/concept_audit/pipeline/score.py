"""`concept-audit score FILE`: every score that a file of predictions allows, on the base install.

Prints a table and writes `scores.json`, `scores.csv` and `scores.html` (and `scores.parquet` where
pyarrow is installed). Scores that need torch are listed with that remark, not dropped.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from concept_audit import metrics
from concept_audit.pipeline.score_input import Predictions, ScoreInputError, read_predictions
from concept_audit.pipeline.score_page import score_page

__all__ = ["Score", "compute_scores", "main", "score"]

NEEDS_TORCH = "needs concept-audit[torch]"
PROBES = ("random_forest", "mlp", "rff")
MINIMUM = "at least one pair of (c_hat, c), (codes, factors), (c_mix, c), (y_logits, y)"


@dataclass(frozen=True)
class Score:
    """One score of a file."""

    key: str
    name: str
    value: float | None
    better: str  # "lower", "higher" or ""
    reading: str
    per_item: dict[str, float] = field(default_factory=dict)  # by concept or factor
    matrix: list[list[float]] | None = None
    labels: tuple[str, ...] = ()
    curve: list[tuple[float, float]] | None = None
    note: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    """A score to compute: arrays it needs, and how."""

    key: str
    name: str
    needs: tuple[str, ...]
    better: str
    call: Callable[..., Any]
    read: Callable[[float], str]
    torch: bool = False
    value: str = "mean"
    options: tuple[str, ...] = ("n_samples", "n_neighbors", "seed", "entropy", "probe")


def _leak_reading(what: str, limits: tuple[float, float] = (0.02, 0.1)) -> Callable[[float], str]:
    """Words for a leakage score: none, some, much."""

    def read(value: float) -> str:
        if math.isnan(value):
            return "Not defined on these data."
        if value < limits[0]:
            return f"Next to none: the learnt concepts carry no {what} beyond the annotations."
        amount = "Some" if value < limits[1] else "Much"
        return f"{amount}: the learnt concepts carry {what} that the annotations do not."

    return read


def _plain(text: str) -> Callable[[float], str]:
    return lambda value: "Not defined on these data." if math.isnan(value) else text.format(value)


def _jobs(probe: str, kinds: list[str]) -> list[_Job]:
    """All scores, in the order of the page."""
    m = metrics
    dci = _once(probe, kinds)
    icl = "information about each other"
    # With self-information as normaliser two copies of one bit score about 0.12 at n = 1000.
    return [
        _Job("ctl", "Concepts-task leakage (CTL)", ("c_hat", "c", "y"), "lower",
             m.concepts_task_leakage, _leak_reading("information about the task")),
        _Job("icl", "Interconcept leakage (ICL)", ("c_hat", "c"), "lower",
             m.interconcept_leakage, _leak_reading(icl, (0.005, 0.03))),
        _Job("icl_binary", "ICL on the scale of binary entropies", ("c_hat", "c"), "lower",
             lambda c_hat, c: m.interconcept_leakage(c_hat, c, entropy="binary"),
             _leak_reading(icl)),
        _Job("ois", "Oracle impurity (OIS)", ("c_hat", "c"), "lower", m.oracle_impurity_score,
             lambda v: _plain("Read from another, a concept's AUC is off that of the annotations "
                              "by {0:.2f} (root mean square).")(v / 2), torch=True),
        _Job("nis", "Niche impurity (NIS)", ("c_hat", "c"), "lower", m.niche_impurity_score,
             _plain("Reading concepts from the learnt concepts outside their niche integrates to "
                    "{0:.2f}; 0.475 is chance, 0.95 the most.")),
        _Job("concept_accuracy", "Concept accuracy", ("p_hat", "c"), "higher", m.concept_accuracy,
             _plain("{0:.1%} of the concept predictions agree with the annotations."),
             value="accuracy"),
        _Job("concept_auc", "Concept AUC", ("p_hat", "c"), "higher", m.concept_accuracy,
             _plain("Drawn one of each, the present concept outranks the absent one {0:.1%} of "
                    "the time."), value="auc"),
        _Job("task_accuracy", "Task accuracy", ("y_logits", "y"), "higher", m.task_accuracy,
             _plain("{0:.1%} of the task predictions are right."), value="accuracy"),
        _Job("concepts_task_information", "Concepts-task information of vectors",
             ("c_mix", "y"), "", m.concepts_task_information,
             _plain("The concept vectors carry {0:.0%} of the task's entropy on average.")),
        _Job("interconcept_information", "Interconcept information of vectors", ("c_mix", "c"), "",
             m.interconcept_information,
             _plain("A vector carries {0:.0%} of the entropy of another concept on average.")),
        _Job("self_information", "Self-information of vectors", ("c_mix", "c"), "higher",
             m.self_information,
             _plain("A vector carries {0:.0%} of the entropy of its own concept on average.")),
        _Job("alignment_leakage", "Alignment leakage", ("c_pos", "c_neg", "c", "y"), "lower",
             m.alignment_leakage,
             _plain("Vectors on the side that agrees with the annotation carry {0:+.2f} more of "
                    "the task's entropy; near 0 is what one wants.")),
        *[
            _Job(key, name, ("codes", "factors"), better,
                 dci, _plain(text),
                 torch=probe == "mlp", value=key)
            for key, name, better, text in (
                ("D", "Disentanglement", "higher", "Each code serves one factor to {0:.0%}."),
                ("C", "Completeness", "higher", "Each factor is held by one code to {0:.0%}."),
                ("I", "Informativeness", "higher", "Probes predict the factors to {0:.0%}."),
                ("E", "Explicitness", "higher",
                 "Small probes do {0:.0%} as well as large ones: 100 % is linear-like."),
                ("S", "Size (factors / codes)", "higher", "{0:.2f} factors per code."),
            )
        ],
    ]  # fmt: skip


def _once(probe: str, kinds: list[str]) -> Callable[..., Any]:
    """One fit shared by the five scores of codes and factors."""
    fits: list[Any] = []

    def fit(codes: Any, factors: Any) -> Any:
        if not fits:
            fits.append(metrics.dci_es(codes, factors, kinds, probe=probe))
        return fits[0]

    return fit


def _arrays(data: Predictions, on: str) -> dict[str, Any]:
    """Arrays by name as the jobs ask for them; `p_hat` are probabilities."""
    arrays: dict[str, Any] = dict(data.arrays)
    c_hat, logits = arrays.get("c_hat"), arrays.get("c_logits")
    if c_hat is not None and c_hat.min() >= 0.0 and c_hat.max() <= 1.0:
        arrays["p_hat"] = c_hat
    elif logits is not None:
        arrays["p_hat"] = 1.0 / (1.0 + np.exp(-np.clip(logits.astype(np.float64), -700, 700)))
    if on == "logits":
        if logits is None:
            raise ScoreInputError(
                f"{data.path.name}: on=logits looked for an array c_logits and found "
                f"{', '.join(sorted(data.arrays))}. Save the logits beside the probabilities."
            )
        arrays["c_hat"] = logits.astype(np.float64)
    return arrays


def _items(result: Any, names: tuple[str, ...], value: str) -> dict[str, float]:
    """Per-concept or per-factor values of a result."""
    fields = {"D": "D_per_code", "C": "C_per_factor", "I": "I_per_factor", "E": "E_per_factor"}
    attribute = fields.get(value, "per_concept" if value == "mean" else f"{value}_per_concept")
    values = getattr(result, attribute, None)
    if values is None:
        return {}
    if len(values) != len(names) or value in fields:
        names = tuple(f"{'code' if value == 'D' else 'factor'} {i + 1}" for i in range(len(values)))
    return {name: float(v) for name, v in zip(names, values, strict=True)}


def _run(job: _Job, arrays: dict[str, Any], names: tuple[str, ...], suffix: str) -> Score:
    """Compute one score; what is undefined on these data is said, not hidden."""
    key, title = job.key + suffix, job.name + (" on logits" if suffix else "")
    if job.torch and find_spec("torch") is None:
        return Score(key, title, None, job.better, "Not computed.", note=NEEDS_TORCH)
    try:
        result = job.call(*(arrays[name] for name in job.needs))
    except ValueError as error:
        return Score(key, title, None, job.better, "Not defined on these data.", note=str(error))
    value = float(getattr(result, job.value))
    matrix = getattr(result, "matrix", None) if job.key.startswith("icl") else None
    notes = [*getattr(result, "undefined", ()), *getattr(result, "notes", ())]
    curve = None
    if job.key == "E":
        curve = [
            (float(x), float(y))
            for x, y in zip(result.curve.capacities, result.curve.mean, strict=True)
        ]
    return Score(
        key=key,
        name=title,
        value=value,
        better=job.better,
        reading=job.read(value),
        per_item=_items(result, names, job.value),
        matrix=None if matrix is None else np.asarray(matrix).tolist(),
        labels=names if matrix is not None else (),
        curve=curve,
        note=" ".join(str(note) for note in notes),
        options={o: getattr(result, o) for o in job.options if hasattr(result, o)},
    )


def compute_scores(
    data: Predictions,
    *,
    on: Literal["as_given", "logits"] = "as_given",
    probe: str | None = None,
    skip: Sequence[str] = (),
) -> list[Score]:
    """Every score that the arrays allow.

    Parameters
    ----------
    data : Predictions
        Arrays of a file.
    on : str
        `as_given` scores c_hat, `logits` scores c_logits in float64, where the saturation of
        float32 probabilities cannot hurt. CTL and ICL come on both when both are there.
    probe : str or None
        Probe of D, C, I, E: `random_forest`, `rff`, or `mlp` with torch. None takes `mlp` where
        torch is installed, else `random_forest`.
    skip : sequence of str
        Keys of scores to leave out.

    Returns
    -------
    list of Score
        In the order of the page.

    Raises
    ------
    ScoreInputError
        On unknown options, and when no score can be computed from the arrays found.
    """
    if on not in ("as_given", "logits"):
        raise ScoreInputError(f"on must be as_given or logits, got {on!r}.")
    if probe is not None and probe not in PROBES:
        raise ScoreInputError(f"probe must be one of {', '.join(PROBES)}, got {probe!r}.")
    probe = probe or ("mlp" if find_spec("torch") is not None else "random_forest")
    arrays = _arrays(data, on)
    kinds = [
        "categorical" if np.all(column == np.rint(column)) else "continuous"
        for column in np.asarray(arrays.get("factors", np.zeros((0, 0)))).T
    ]
    scores = []
    jobs = [job for job in _jobs(probe, kinds) if job.key not in skip]
    for job in jobs:
        if all(name in arrays for name in job.needs):
            scores.append(_run(job, arrays, data.concept_names, "_on_logits" if on == "logits"
                               and "c_hat" in job.needs else ""))  # fmt: skip
    if on == "as_given" and "c_logits" in arrays and "c_hat" in arrays:
        both = {**arrays, "c_hat": arrays["c_logits"].astype(np.float64)}
        for job in jobs:
            wanted = job.key in ("ctl", "icl") and all(name in both for name in job.needs)
            if wanted and not np.array_equal(arrays["c_hat"], arrays["c_logits"]):
                scores.append(_run(job, both, data.concept_names, "_on_logits"))
    if not scores:
        raise ScoreInputError(
            f"{data.path.name}: looked for {MINIMUM}, found "
            f"{', '.join(sorted([*data.arrays, *data.ignored])) or 'nothing'}. Rename the arrays."
        )
    return scores


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def _print_table(data: Predictions, scores: Sequence[Score]) -> None:
    width = max(len(score.name) for score in scores)
    print(f"{data.path.name}: n = {data.n_samples}, concepts = {len(data.concept_names)}")
    for score in scores:
        arrow = {"lower": "lower is better", "higher": "higher is better"}.get(score.better, "")
        computed = score.value is not None and not math.isnan(score.value)
        print(f"  {score.name:<{width}}  {_number(score.value):>9}  {arrow:<16}  "
              f"{score.reading if computed else score.note or score.reading}")  # fmt: skip
    found = [score for score in scores if score.value is not None]
    for probe in dict.fromkeys(s.options["probe"] for s in found if "probe" in s.options):
        print(f"D, C, I, E read by {probe}.")
    for note in dict.fromkeys(score.note for score in found if score.note):
        print(f"Note: {note}")


def _write(folder: Path, data: Predictions, scores: Sequence[Score]) -> list[Path]:
    """JSON, CSV, HTML and, with pyarrow, Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for score in scores:
        rows.append((score.key, "mean", score.value, score.note))
        rows += [(score.key, name, value, "") for name, value in score.per_item.items()]
        for i, first in enumerate(score.labels):
            for j, second in enumerate(score.labels[i + 1 :], start=i + 1):
                rows.append((score.key, f"{first}|{second}", (score.matrix or [])[i][j], ""))
    columns = ("metric", "target", "value", "note")
    content = {
        "file": data.path.name,
        "n_samples": data.n_samples,
        "concept_names": list(data.concept_names),
        "ignored": list(data.ignored),
        "scores": [_json_ready(asdict(score)) for score in scores],
    }
    written = [folder / f"scores.{suffix}" for suffix in ("json", "csv", "html")]
    written[0].write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with written[1].open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    written[2].write_text(score_page(data, scores), encoding="utf-8")
    if find_spec("pyarrow") is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(
            {name: [row[i] for row in rows] for i, name in enumerate(columns)},
            schema=pa.schema(
                [("metric", pa.string()), ("target", pa.string()), ("value", pa.float64()),
                 ("note", pa.string())]
            ),
        )  # fmt: skip
        written.append(folder / "scores.parquet")
        pq.write_table(table, written[-1])
    return written


def _json_ready(value: Any) -> Any:
    """NaN and infinity become null: JSON has neither."""
    if isinstance(value, dict):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def score(
    path: str | Path,
    *,
    on: Literal["as_given", "logits"] = "as_given",
    probe: str | None = None,
    out: str | Path | None = None,
    skip: Sequence[str] = (),
) -> int:
    """Score a file, print the table and write the results.

    Parameters
    ----------
    path : str or Path
        File to score; see `read_predictions`.
    on, probe, skip : as in `compute_scores`
        What to score.
    out : str or Path or None
        Folder of the results; by default `<file>_scores` beside the file.

    Returns
    -------
    int
        0, or 2 with a message on standard error when the file cannot be scored.
    """
    try:
        data = read_predictions(path)
        scores = compute_scores(data, on=on, probe=probe, skip=skip)
        folder = Path(out) if out is not None else data.path.with_name(f"{data.path.stem}_scores")
        written = _write(folder, data, scores)
    except (ValueError, ImportError, OSError) as error:
        print(f"concept-audit score: {error}", file=sys.stderr)
        return 2
    _print_table(data, scores)
    print("written: " + ", ".join(str(file) for file in written))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `FILE [on=logits] [probe=NAME] [out=DIR] [skip=KEY,KEY]` and score the file.

    Parameters
    ----------
    argv : sequence of str or None
        Words after `concept-audit score`.

    Returns
    -------
    int
        Exit code.
    """
    parser = argparse.ArgumentParser(
        prog="concept-audit score",
        description="Leakage, impurity and disentanglement scores of a file of predictions.",
        epilog="Arrays: c_hat, c, y; c_logits; c_pos, c_neg, c_mix; y_logits; codes, factors; "
        "concept_names. A table has columns y, c_hat_<name>, c_<name>, ...",
    )
    parser.add_argument("file", help="predictions.npz, .safetensors, .csv or .parquet")
    parser.add_argument(
        "option", nargs="*", help="on=logits, probe=mlp|random_forest|rff, out=DIR, skip=KEY,KEY"
    )
    words = parser.parse_args(argv)
    options: dict[str, Any] = {}
    for word in words.option:
        name, equals, value = word.partition("=")
        if not equals or name not in ("on", "probe", "out", "skip"):
            parser.error(f"unknown option {word!r}; there are on=, probe=, out=, skip=")
        options[name] = value.split(",") if name == "skip" else value
    return score(words.file, **options)


if __name__ == "__main__":
    sys.exit(main())
