"""Rows of the council beside the paper's, and those that have no counterpart there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.matching import comparison, comparison_frame, find

__all__ = ["beside_paper", "dataset_label", "model_label"]

# Our data set that imitates one of the paper's.
_IMITATES = {"cub200": "cub_standin"}
_DATA = {
    "overall": "all data sets",
    "cub_standin": "CUB (stand-in)",
    "ham10k_standin": "HAM10K (stand-in)",
}
_METHODS = {
    "score_sum": "score-sum council",
    "vote_majority": "vote-majority council",
    "best_judge": "best single judge",
    "lowest_judge": "least of the judges",
    "highest_judge": "most of the judges",
}


def dataset_label(name: str) -> str:
    """Data set as a reader would say it."""
    return _DATA.get(name, name)


def model_label(name: str) -> str:
    """Judge, council or model of a row, `score_sum scale=9` as `score-sum council, 1-9`."""
    method, _, scale = name.partition(" scale=")
    if method.startswith("cbm_"):
        kind, _, weight = method.removeprefix("cbm_").partition("_lambda")
        return f"{kind} CBM" + (f", lambda {weight}" if weight else "")
    label = _METHODS.get(method, method.replace("_", " ") + (" judge" if scale else ""))
    return f"{label}, 1-{scale}" if scale else label


def beside_paper(
    rows: pd.DataFrame,
    paper_values: pd.DataFrame,
    artefact: str,
    *,
    extra: Collection[str],
    label: Callable[[Mapping[Any, Any]], tuple[str, str]],
) -> pd.DataFrame:
    """Lines of the paper with ours beside them, then ours that the paper does not have.

    Parameters
    ----------
    rows : results table; rows of scope comparison are read
    paper_values : from `read_paper_values`
    artefact : stem of the table
    extra : metrics whose remaining rows follow
    label : row and column text of one of those

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`; an image count stands in the note.
    """
    rows = rows[(rows["scope"] == "comparison") & (rows["paper"] == "cbx")]
    used: set[tuple[str, str, str]] = set()
    lines = []
    for line in paper_values[paper_values["artefact"] == artefact].to_dict("records"):
        dataset = _IMITATES.get(line["dataset"], line["dataset"] or "overall")
        ours = find(rows, metric=line["metric"], dataset=dataset, model=line["model"] or None)
        if ours is not None:
            used.add(_identity(ours.to_dict()))
        lines.append(comparison(line, ours, note="" if ours is None else _note(ours)))
    for _, ours in rows[rows["metric"].isin(list(extra))].iterrows():
        record = ours.to_dict()
        if _identity(record) in used:
            continue
        used.add(_identity(record))
        row, column = label(record)
        own: dict[Any, Any] = {
            **dict.fromkeys(("value", "low", "high", "resolution"), float("nan")),
            "row": row,
            "column": column,
            "metric": record["metric"],
            "dataset": record["dataset"],
            "source": "ours alone",
        }
        lines.append(comparison(own, ours, note=_note(ours)))
    return comparison_frame(lines)


def _identity(record: Mapping[Any, Any]) -> tuple[str, str, str]:
    model = "" if pd.isna(record["model"]) else str(record["model"])
    return str(record["metric"]), str(record["dataset"]), model


def _note(row: pd.Series) -> str:
    parts = [] if pd.isna(row["note"]) else [str(row["note"])]
    if not pd.isna(row["n_samples"]):
        of_pairs = row["metric"].startswith(("consensus", "position"))
        at_chance = not pd.isna(row["model"]) and row["model"] == "chance"
        kind = "comparisons" if of_pairs or at_chance else "images"
        parts.insert(0, f"{int(row['n_samples'])} {kind}")
    return "; ".join(parts)
