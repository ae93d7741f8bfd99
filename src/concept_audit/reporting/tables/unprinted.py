"""Our numbers behind a figure whose values the paper draws without printing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.matching import comparison, comparison_frame

__all__ = ["build", "setting_label"]

_FAMILIES = {
    "tabulartoy": "TabularToy",
    "dsprites": "dSprites",
    "shapes3d": "3dshapes",
    "cub": "CUB",
    "ham10k": "HAM10K",
    "mpi3d": "MPI3D",
    "cars3d": "Cars3D",
}
# Metrics that are drawn as clouds or histograms; their points are no numbers to read.
_DRAWN_ONLY = {"concept_density", "projection_1", "projection_2"}


def _dataset_label(name: str) -> str:
    family, *rest = name.split("_")
    label = _FAMILIES.get(family, family)
    words = []
    for token in rest:
        if token[0] == "d" and token[1:].isdigit():
            label += f"({int(token[1:]) / 100:g})"
        elif token[0] == "g" and token[1:].isdigit():
            label += f"({token[1:]})"
        else:
            words.append(token)
    return " ".join([label, *words]).replace("standin", "(stand-in)")


def setting_label(row: Mapping[Any, Any]) -> str:
    """Data set and model of a row, as a reader would say it."""
    parts = [_dataset_label(str(row["dataset"]))]
    model = "" if pd.isna(row["model"]) else str(row["model"])
    encoding = "" if pd.isna(row["encoding"]) else str(row["encoding"])
    if model == "cbm":
        parts.append(f"{encoding} CBM".strip())
    elif model:
        parts.append({"cem": "CEM", "reference_head": "reference head"}.get(model, model))
    for column, words in (("lambda_concept", "lambda"), ("p_int", "p_int")):
        if not pd.isna(row[column]):
            parts.append(f"{words} {float(row[column]):g}")
    if row["concept_output"] == "leaky_relu":
        parts.append("LeakyReLU output")
    if row["head"] == "mlp":
        parts.append("MLP head")
    return ", ".join(parts)


def build(rows: pd.DataFrame, paper_values: pd.DataFrame, artefact: str) -> pd.DataFrame:
    """Numbers of ours that an artefact draws, for each metric the paper leaves unprinted.

    Parameters
    ----------
    rows : results table of the artefact
    paper_values : from `read_paper_values`
    artefact : stem, such as fig06_supervision

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`, one line a setting and metric, ordered by setting. Means
    over several trainings are taken where there are some, else the single models' means over
    evaluations.
    """
    known = rows["split"].isna() | (rows["split"] != "val")
    several = (rows["scope"] == "mean") & (rows["n_runs"].fillna(0) > 1)
    single = (rows["scope"] == "run") & rows["repeat"].isna()
    picked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    unprinted = paper_values[
        (paper_values["artefact"] == artefact) & (paper_values["kind"] == "unknown")
    ]
    for order, paper_line in enumerate(unprinted.to_dict("records")):
        metric = paper_line["metric"]
        if metric in _DRAWN_ONLY:
            continue
        of_metric = rows["metric"].isin([metric, f"{metric}_reference"]) & known
        chosen = rows[of_metric & several]
        if chosen.empty:
            chosen = rows[of_metric & single]
        for _, row in chosen[_is_summary(chosen)].iterrows():
            line = {
                **paper_line,
                "row": setting_label(row.to_dict()),
                "column": _column(row),
                "dataset": row["dataset"],
                "metric": row["metric"],
            }
            picked.append((_place(row, order), comparison(line, row)))
    picked.sort(key=lambda pair: pair[0])
    return comparison_frame([line for _, line in picked])


def _place(row: pd.Series, order: int) -> tuple[Any, ...]:
    """Sorts lines by setting, then by the metrics' order in the paper, then along the curve."""
    texts = [str(row[name]) for name in ("dataset", "concept_output", "model", "head", "encoding")]
    numbers = [row[name] for name in ("lambda_concept", "p_int")]
    step = row["step"]
    return (
        *texts,
        *(-1.0 if pd.isna(number) else float(number) for number in numbers),
        order,
        str(row["metric"]),
        -1.0 if pd.isna(step) else float(step),
    )


def _is_summary(rows: pd.DataFrame) -> pd.Series:
    """Means over concepts, and accuracies along an intervention curve."""
    return (rows["target"] == "mean") | rows["target"].isna() | rows["step"].notna()


def _column(row: pd.Series) -> str:
    if pd.isna(row["step"]):
        return str(row["metric"])
    return f"{row['metric']} after {row['step']:g}"
