"""`results/results.{csv,parquet}`: every number of every stored run, with means and comparisons."""

from __future__ import annotations

import pandas as pd

from concept_audit.pipeline.compare import COMPARISONS, compare
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock
from concept_audit.store.results import collect, rows_frame, write_results
from concept_audit.store.status import read_status

__all__ = ["current_rows", "write_results_table"]

_SAME_TRAINING = ["dataset", "standin", "setting", "fold"]


def current_rows(layout: OutputLayout) -> pd.DataFrame:
    """Rows of all finished runs; of trainings repeated since the code changed, the newest."""
    states = {key: read_status(layout.run_dir(key)) for key in layout.run_keys()}
    keys = [key for key, status in states.items() if status and status.state == "done"]
    rows = collect(layout, keys)
    if rows.empty:
        return rows
    age = {key: layout.status_path(key).stat().st_mtime_ns for key in rows["run_key"].unique()}
    runs = rows[["run_key", *_SAME_TRAINING]].drop_duplicates()
    order = runs["run_key"].map(age).sort_values(kind="stable").index
    # Runs from before settings were noted have none: nothing says which of them are the same.
    newest = runs.loc[order].drop_duplicates(_SAME_TRAINING, keep="last")
    kept = set(newest["run_key"]) | set(runs.loc[runs["setting"].isna(), "run_key"])
    return rows_frame(rows[rows["run_key"].isin(kept)])


def write_results_table(layout: OutputLayout) -> pd.DataFrame:
    """Write the table anew and return it: rows of runs, their means, and comparisons across runs.

    Comparisons see all runs of a dataset, an artefact's own rows only those that it names.
    """
    rows = current_rows(layout)
    if not rows.empty:
        rows = compare(rows, list(COMPARISONS))
    with held_lock(layout.report_lock, wait_s=None):
        write_results(layout, rows)
    return rows
