"""Leakage paper, Table 1: models of equal accuracy whose intervention scores differ."""

from __future__ import annotations

import re

import pandas as pd

from concept_audit.reporting.tables.matching import (
    base_dataset,
    comparison,
    comparison_frame,
    find,
    with_base_dataset,
)

__all__ = ["build"]

_MODEL = re.compile(r"cbm_(\w+) lambda_concept=([\d.]+)")
# TabularToy's paper value of S_int needs this encoder output; the other one is shown beside it.
_HELD_AGAINST, _BESIDE = "leaky_relu", "linear"
_NOTES = {
    "concept_balanced_accuracy": (
        "the paper's c_AUC is taken on thresholded concepts, which makes it the balanced accuracy; "
        "so is ours here"
    ),
    "task_auc": (
        "the paper's y_AUC averages batches and counts 0 where a class is absent; ours is taken "
        "once over the whole split"
    ),
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Accuracies and S_int of the pairs, ours beside the paper's.

    Parameters
    ----------
    rows : results table; rows of scope mean are read, of scope run and metric
        misclassified_configuration for the note on S_int
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`. `ours` are TabularToy models with LeakyReLU and dropout on
    their concept outputs, `beside` the same with linear outputs; other data have one kind of
    output. A paper's row whose data set was not run says so.
    """
    rows = with_base_dataset(rows)
    means = rows[(rows["scope"] == "mean") & (rows["model"] == "cbm")]
    lines = []
    for line in paper_values[paper_values["artefact"] == "tab01_pairs"].to_dict("records"):
        match = _MODEL.fullmatch(line["model"])
        if match is None:
            raise ValueError(
                f"model of Table 1 must read 'cbm_<encoding> lambda_concept=<number>', got "
                f"{line['model']!r}. Correct the file of paper values."
            )
        dataset = base_dataset(line["dataset"])
        of_model = means[
            (means["dataset"] == dataset)
            & (means["encoding"] == match.group(1))
            & (means["lambda_concept"] == float(match.group(2)))
            & (means["target"] == "mean")
            & (means["metric"] == line["metric"])
        ]
        ours = find(of_model, concept_output=_HELD_AGAINST)
        beside = find(of_model, concept_output=_BESIDE)
        if ours is None and not dataset.startswith("tabulartoy"):
            ours, beside = beside, None  # image encoders have linear outputs only
        note = _NOTES.get(line["metric"], "")
        if line["metric"] == "intervention_score" and ours is not None:
            note = _wrong_configurations(rows, ours)
        lines.append(comparison(line, ours, beside=beside, note=note))
    return comparison_frame(lines)


def _wrong_configurations(rows: pd.DataFrame, model: pd.Series) -> str:
    """Concept configurations that the heads get wrong under full intervention, and in how many."""
    setting = ["dataset", "model", "encoding", "lambda_concept", "concept_output"]
    wrong = rows[
        (rows["metric"] == "misclassified_configuration")
        & (rows["scope"] == "run")
        & rows["repeat"].isna()
        & (rows["value"] > 0)
    ]
    for column in setting:
        wrong = wrong[wrong[column] == model[column]]
    if wrong.empty:
        return ""
    shares = wrong.groupby("target")["value"].agg(["max", "count"]).sort_index()
    texts = [
        f"{target} ({share:.3f} of the test rows, {int(count)} "
        f"{'training' if count == 1 else 'trainings'})"
        for target, share, count in zip(shares.index, shares["max"], shares["count"], strict=True)
    ]
    return "with all concepts set right, heads are wrong on " + ", ".join(texts)
