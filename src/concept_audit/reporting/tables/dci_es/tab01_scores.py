"""DCI-ES paper, Table 1: D, C, I, E and S of every representation, by probe and data set."""

from __future__ import annotations

import pandas as pd

from concept_audit.reporting.tables.matching import (
    comparison,
    comparison_frame,
    find,
    with_base_dataset,
)

__all__ = ["build"]

# Shown where the pretrained encoder could not be had; its rows carry a note that says so.
_INSTEAD = {"resnet18_imagenet": "resnet18_random"}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Scores of ours beside the paper's.

    Parameters
    ----------
    rows : results table: rows of scope mean over several trainings, else of scope run with empty
        `repeat`, whose intervals are over fits of the probes
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`, one line for each line of the paper's values.
    """
    known = with_base_dataset(rows)
    known = known[(known["target"] == "mean") & known["step"].isna()]
    several = known[(known["scope"] == "mean") & (known["n_runs"].fillna(0) > 1)]
    single = known[(known["scope"] == "run") & known["repeat"].isna()]
    lines = []
    for line in paper_values[paper_values["artefact"] == "tab01_scores"].to_dict("records"):
        names = (line["model"], _INSTEAD.get(line["model"], line["model"]))
        found = (
            find(part, metric=line["metric"], dataset=line["dataset"], model=name)
            for name in names
            for part in (several, single)
        )
        ours = next((row for row in found if row is not None), None)
        note = "" if ours is None or pd.isna(ours["note"]) else str(ours["note"])
        lines.append(comparison(line, ours, note=note))
    return comparison_frame(lines)
