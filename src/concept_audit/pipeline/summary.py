"""What a command says in the terminal about the runs that it finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect

__all__ = ["run_lines", "sweep_lines"]

# In a sweep's table, the first of these that its runs have.
_COLUMNS = (
    "task_accuracy",
    "concept_accuracy",
    "intervened_task_accuracy",
    "ctl",
    "icl",
    "concepts_task_information",
    "reconstruction",
    "kl",
)
_MOST_COLUMNS = 5
_MOST_LINES = 40


def _place(layout: OutputLayout) -> str:
    root = str(layout.root)
    return "" if root == "outputs" else f" paths.output_dir={root}"


def _one_number_each(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over evaluations and over concepts, or of the random policy."""
    rows = rows[rows["repeat"].isna() & rows["target"].isin(["mean", "random"])]
    step = rows["step"]
    last = step.max()
    # Of an intervention curve its ends and two points between; other curves are drawn, not told.
    shown = step.isin([0, last // 4, last // 2, last]) & rows["metric"].str.startswith("interven")
    return rows[step.isna() | shown]


def run_lines(layout: OutputLayout, key: str, *, has_pictures: bool) -> list[str]:
    """The scores of one run, and what to do next."""
    rows = _one_number_each(collect(layout, [key]))
    lines = [f"run {key}: {layout.run_dir(key)}"]
    for row in rows.to_dict("records"):
        step = "" if row["step"] != row["step"] else f" after {row['step']:g} interventions"
        unit = "" if row["unit"] in ("1", None) or pd.isna(row["unit"]) else f" {row['unit']}"
        lines.append(f"  {row['metric'] + step:<48} {row['value']:.4f}{unit}")
    if rows.empty:
        lines.append(
            "  no score was asked for that applies to it; of a representation, for example "
            "evaluation=[dci_es_random_forest]"
        )
    if has_pictures:
        lines += ["", f"Pictures of it: concept-audit show run={key[:8]}{_place(layout)}"]
    return lines


def sweep_lines(
    layout: OutputLayout, rows: pd.DataFrame, runs: Iterable[tuple[str, Sequence[str]]]
) -> list[str]:
    """One line for each run of a sweep: key, what it varied, a few scores.

    Parameters
    ----------
    layout : the outputs folder
    rows : rows that hold those of the runs
    runs : key and overrides of each run, in the order of the sweep
    """
    by_key = {key: " ".join(overrides) for key, overrides in runs}
    found = _one_number_each(rows[rows["run_key"].isin(by_key) & (rows["scope"] == "run")])
    found = found[found["step"].isna()]
    names = [name for name in _COLUMNS if name in set(found["metric"])][:_MOST_COLUMNS]
    table: Any = found.drop_duplicates(["run_key", "metric"]).pivot(
        index="run_key", columns="metric", values="value"
    )
    width = max([len(text) for text in by_key.values()], default=0)
    lines = ["  ".join(["run     ", "setting".ljust(width), *names])]
    for key, text in list(by_key.items())[:_MOST_LINES]:
        values = [
            f"{table.loc[key, name]:.4f}".ljust(len(name))
            if key in table.index and table.loc[key, name] == table.loc[key, name]
            else "-".ljust(len(name))
            for name in names
        ]
        lines.append("  ".join([key[:8], text.ljust(width), *values]).rstrip())
    if len(by_key) > _MOST_LINES:
        lines.append(f"... and {len(by_key) - _MOST_LINES} more")
    return [*lines, "", f"All numbers: {layout.results_csv}"]
