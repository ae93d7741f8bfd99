"""Leakage paper, Table 3: accuracies of heads trained on annotated concepts."""

from __future__ import annotations

import pandas as pd

from concept_audit.reporting.tables.matching import (
    base_dataset,
    comparison,
    comparison_frame,
    find,
    with_base_dataset,
)

__all__ = ["build"]


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Reference accuracies y_acc^(k), ours beside the paper's.

    Parameters
    ----------
    rows : results table; rows of scope mean are read: reference_task_accuracy, or task_accuracy of
        the reference heads, which is the same number
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`. Where heads of both kinds were run, the paper's linear
    columns take the linear ones, the others the MLP.
    """
    rows = with_base_dataset(rows)
    heads = rows[
        (rows["scope"] == "mean") & (rows["target"] == "mean") & (rows["model"] == "reference_head")
    ]
    lines = []
    for line in paper_values[paper_values["artefact"] == "tab03_reference_accuracies"].to_dict(
        "records"
    ):
        of_data = heads[heads["dataset"] == base_dataset(line["dataset"])]
        kinds = set(of_data["head"].dropna())
        if line["model"].endswith("head=linear"):
            of_data = of_data[of_data["head"] == "linear"]
        elif len(kinds) > 1:
            of_data = of_data[of_data["head"] == "mlp"]
        ours = find(of_data, metric="reference_task_accuracy")
        if ours is None:
            ours = find(of_data, metric="task_accuracy")
        lines.append(comparison(line, ours))
    return comparison_frame(lines)
