"""Numbers that need many runs: means over trainings, S_int, correlations, criterion, and E."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from concept_audit.metrics import leakage_criterion, mean_interval, pooled_pearson
from concept_audit.metrics.explicitness import explicitness, shared_capacity_range
from concept_audit.pipeline.evaluations.dci_es import repeated_fits
from concept_audit.store.results import rows_frame

__all__ = ["COMPARISONS", "SETTING", "compare"]

# What makes two runs trainings of the same setting.
SETTING = [
    "dataset",
    "standin",
    "model",
    "encoding",
    "lambda_concept",
    "p_int",
    "head",
    "concept_output",
    "encoder",
    "setting",  # also what has no column of its own, for example the recipe
]
_QUANTITY = ["split", "metric", "target", "step", "unit"]
_LOSS = re.compile(r"loss_(\w+)")  # loss-capacity curves, by the probes' name
_ONE_CAPACITY = (
    "no probe of this ladder has more parameters than the linear one, so that E = 1 by construction"
)
_NO_RANGE = "undefined: all probes of all representations have the same capacity"
_SINGLE_MODEL = (
    "concept_density",
    "projection_1",
    "projection_2",
)  # drawn for one model, never averaged


def _groups(frame: pd.DataFrame, columns: list[str]) -> Any:
    return frame.groupby(columns, dropna=False, sort=False, observed=True)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: Any = frame.to_dict("records")
    return list(records)


def _one_number_per_run(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the mean over evaluations: those without a repeat number."""
    return rows[(rows["scope"] == "run") & rows["repeat"].isna()]


def means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over the trainings of each setting, with the 95 % t interval."""
    runs = _one_number_per_run(rows)
    runs = runs[~runs["metric"].isin(_SINGLE_MODEL)]
    if runs.empty:
        return rows_frame([])
    number = _groups(runs, SETTING + _QUANTITY).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    result = runs.iloc[order[starts]][[*SETTING, *_QUANTITY, "paper", "n_samples"]].reset_index(
        drop=True
    )
    intervals, notes = [], []
    for values in np.split(runs["value"].to_numpy(float)[order], starts[1:]):
        finite = values[np.isfinite(values)]
        intervals.append(
            (*_interval(finite), len(finite)) if len(finite) else (np.nan, np.nan, np.nan, 0)
        )
        lost = len(values) - len(finite)
        notes.append(f"undefined in {lost} of {len(values)} runs" if lost else None)
    result["scope"] = "mean"
    result[["value", "low", "high"]] = np.array([line[:3] for line in intervals])
    result["n_runs"] = [line[3] for line in intervals]
    result["note"] = pd.Series(notes, dtype="string")
    return rows_frame(result)


def _interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    interval = mean_interval(values)
    return interval.mean, interval.low, interval.high


def reference_accuracies(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Test accuracy of heads trained on annotated concepts: y_acc^(k) of eq. 5."""
    heads = rows[(rows["model"] == "reference_head") & (rows["metric"] == "task_accuracy")]
    return [
        {**row, "metric": "reference_task_accuracy"} for row in _records(_one_number_per_run(heads))
    ]


def intervention_scores(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """S_int of each run: reference accuracy of its dataset less its own after all interventions."""
    heads = rows[(rows["model"] == "reference_head") & (rows["metric"] == "task_accuracy")]
    reference = _one_number_per_run(heads).groupby("dataset", observed=True)["value"].mean()
    models = rows[
        (rows["metric"] == "intervened_task_accuracy") & (rows["model"] != "reference_head")
    ]
    result = []
    for row in _records(models):
        if row["dataset"] not in reference.index:
            continue
        best = float(reference[row["dataset"]])
        score = {**row, "metric": "intervention_score", "value": best - row["value"]}
        if not pd.isna(row["low"]):
            score.update(low=best - row["high"], high=best - row["low"])
        result.append(score)
    return result


def correlations(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Pearson correlation of leakage scores with S_int over classes of models (Table 2).

    A class is one setting; its value is the mean over trainings, its standard error is over them.
    """
    runs = _one_number_per_run(rows)
    runs = runs[
        (runs["target"] == "mean") & (runs["model"] == "cbm") & (runs["encoding"] != "hard")
    ]
    result = []
    for (dataset, standin, output), group in _groups(
        runs, ["dataset", "standin", "concept_output"]
    ):
        table = _groups(group, [*SETTING, "metric"])["value"].agg(["mean", "sem", "count"])
        if "intervention_score" not in table.index.get_level_values("metric"):
            continue
        y = table.xs("intervention_score", level="metric")
        for score in ("ctl", "icl", "ois", "ois_reference"):
            if score not in table.index.get_level_values("metric"):
                continue
            x = table.xs(score, level="metric").reindex(y.index)
            usable = (x["count"] > 1) & (y["count"] > 1)
            if usable.sum() < 4:
                continue
            pooled = pooled_pearson(
                x.loc[usable, "mean"],
                x.loc[usable, "sem"],
                y.loc[usable, "mean"],
                y.loc[usable, "sem"],
            )
            shared = {
                "scope": "comparison",
                "paper": group["paper"].iloc[0],
                "dataset": dataset,
                "standin": standin,
                "concept_output": output,
                "target": f"{score}~intervention_score",
                "n_runs": int(usable.sum()),
                "note": f"{int(usable.sum())} classes of models",
                "unit": "1",
            }
            result += [
                {**shared, "metric": "pearson_r", "value": pooled.r},
                {**shared, "metric": "pearson_p", "value": pooled.p_value},
            ]
    return result


def criteria(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Leakage criterion between soft and logit models of the same data, output and weight."""
    runs = _one_number_per_run(rows)
    runs = runs[(runs["target"] == "mean") & (runs["model"] == "cbm")]
    result = []
    keys = ["dataset", "standin", "concept_output", "lambda_concept"]
    for key, group in _groups(runs, keys):
        scores = {
            encoding: {
                score: group.loc[
                    (group["encoding"] == encoding) & (group["metric"] == score.lower()), "value"
                ].to_numpy(float)
                for score in ("CTL", "ICL")
            }
            for encoding in ("logit", "soft")
        }
        if any(len(values) < 2 for pair in scores.values() for values in pair.values()):
            continue
        outcome = leakage_criterion(scores["logit"], scores["soft"])
        result.append(
            {
                **dict(zip(keys, key, strict=True)),
                "scope": "comparison",
                "paper": group["paper"].iloc[0],
                "metric": "leakage_criterion",
                "target": "logit>soft",
                "value": {"a_leaks_more": 1.0, "b_leaks_more": -1.0}.get(outcome.verdict, 0.0),
                "note": f"a: logit, b: soft. {outcome.text}",
                "n_runs": len(scores["soft"]["CTL"]),
                "unit": "1",
            }
        )
    return result


def explicitness_scores(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """E of each run: its loss-capacity curves over the capacities of all runs of one data set.

    DCI-ES paper, section 4: the capacities are shared by all representations that are compared, so
    a representation added to the rows can move the E of the others.
    """
    runs = rows[rows["scope"] == "run"]
    result = []
    for probe in sorted({m[1] for name in set(runs["metric"]) if (m := _LOSS.fullmatch(name))}):
        for _, group in _groups(runs, ["dataset", "standin"]):
            result += _explicitness(group, probe)
    return result


def _explicitness(rows: pd.DataFrame, probe: str) -> list[dict[str, Any]]:
    """E of all runs of one data set for one family of probes, by seed of the probes and in all."""
    per_factor = rows[rows["target"] != "mean"]
    losses = per_factor[(per_factor["metric"] == f"loss_{probe}") & per_factor["repeat"].notna()]
    curves = {}
    for (key, repeat), group in _groups(losses, ["run_key", "repeat"]):
        own = rows[rows["run_key"] == key]
        place = own[own["metric"] == f"capacity_{probe}"].set_index("step")["value"]
        chance = own[own["metric"] == f"baseline_loss_{probe}"].set_index("target")["value"]
        table = group.pivot(index="step", columns="target", values="value").sort_index()
        capacities = place.reindex(table.index).to_numpy(float)
        names = list(table.columns)
        curve = (capacities, table.to_numpy(float))
        curves[key, repeat] = (group.iloc[0], names, curve, chance.reindex(names).to_numpy(float))
    if not curves:
        return []
    shared = shared_capacity_range([curve for _, _, curve, _ in curves.values()])
    by_run: dict[str, list[dict[str, Any]]] = {}
    result: list[dict[str, Any]] = []
    for (key, _), (first, names, curve, chance) in curves.items():
        scores: dict[str, float] = dict.fromkeys(["mean", *names], np.nan)
        note = _NO_RANGE
        known = "" if pd.isna(first["note"]) else str(first["note"])
        if shared[0] < shared[1]:
            found = explicitness(curve, capacity_range=shared, baseline=chance)
            scores = {"mean": found.mean, **dict(zip(names, found.per_factor, strict=True))}
            note = found.note or (_ONE_CAPACITY if len(set(curve[0])) == 1 else "")
        row = {
            **first.to_dict(),
            "metric": f"explicitness_{probe}",
            "step": None,
            "low": None,
            "high": None,
            "note": "; ".join([text for text in (known, note) if text]) or None,
        }
        by_run.setdefault(key, []).extend(
            {**row, "target": target, "value": float(value)} for target, value in scores.items()
        )
    for members in by_run.values():  # what one seed warns of is said of the run
        warned = next((member["note"] for member in members if member["note"]), None)
        result += repeated_fits([{**member, "note": warned} for member in members])
    return result


COMPARISONS: dict[str, Callable[[pd.DataFrame], list[dict[str, Any]]]] = {
    "intervention_score": lambda rows: [*reference_accuracies(rows), *intervention_scores(rows)],
    "correlations": correlations,
    "leakage_criterion": criteria,
    "explicitness": explicitness_scores,
}


def compare(rows: pd.DataFrame, names: Sequence[str] = ()) -> pd.DataFrame:
    """All rows of an artefact: of single runs, of their means, and of the named comparisons.

    Comparisons run in the given order and see what the earlier ones added.
    """
    unknown = set(names) - set(COMPARISONS)
    if unknown:
        raise ValueError(f"artefact.compare names {sorted(unknown)}; known: {sorted(COMPARISONS)}.")
    for name in names:
        more = COMPARISONS[name](rows)
        if more:
            rows = pd.concat([rows, rows_frame(more)], ignore_index=True)
    return rows_frame(pd.concat([rows, means(rows)], ignore_index=True))
