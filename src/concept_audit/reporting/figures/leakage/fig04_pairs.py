"""Figure 4: the pairs of Table 1, models of equal accuracy and unequal leakage.

Rows: scope "run" with empty `repeat` (mean and interval over repeated evaluations of one model),
lowest fold; metric `intervention_accuracy` with target "random" and step = number of concepts, and
metrics `ctl`, `icl`, `ois_reference`, `ois` with target "mean"; the two models of the pair (see
`_pairs`). A data set is drawn if rows of both are there.
Optional: scope "mean", metric `reference_task_accuracy` of the same data set.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._interventions import reference_number, steps
from concept_audit.reporting.figures.leakage._pairs import complete_pairs, pair_series
from concept_audit.reporting.panels import (
    STEP_LABEL,
    curve,
    grid,
    grouped_bars,
    panel_title,
    reference_line,
    step_axis,
)
from concept_audit.reporting.selection import (
    interval_caption,
    missing_rows,
    model_rows,
    number,
    select,
    setting_rows,
)
from concept_audit.reporting.style import axis_label, caption, styled

__all__ = ["draw"]

_STEM = "fig04_pairs"
_SHORT = {"ctl": "CTL", "icl": "ICL", "ois_reference": "OIS,\nref.", "ois": "OIS,\ntrained"}
_SCORES = tuple(_SHORT)


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A row for each pair: intervention curves, then bars of the scores."""
    metrics = ("intervention_accuracy", *_SCORES)
    selected = select(rows, _STEM, metrics, scope="run", encodings=("soft", "logit"), target=None)
    selected = selected[
        selected["target"].eq(
            selected["metric"].map(lambda m: "random" if m == metrics[0] else "mean")
        )
    ]
    pairs = complete_pairs(selected)
    if not pairs:
        raise missing_rows(_STEM, metrics, "run", "both models of a pair of Table 1", rows)
    drawn = pd.concat(
        [model_rows(setting_rows(selected, s), model) for s, pair in pairs for model in pair]
    )
    with_curve = bool((drawn["metric"] == metrics[0]).any())
    scores = [score for score in _SCORES if score in set(drawn["metric"])]
    n_columns = int(with_curve) + int(bool(scores))
    figure, axes = grid(len(pairs), n_columns, width=2.8, height=2.1, extra=(2.0, 0.5))
    for line, (setting, pair) in zip(axes, pairs, strict=True):
        series = pair_series(pair)
        part = setting_rows(drawn, setting)
        for panel in line:
            panel_title(panel, setting)
        if with_curve:
            for model, one in zip(pair, series, strict=True):
                own = model_rows(part[part["metric"] == metrics[0]], model)
                curve(line[0], [(step, number(own, step=step)) for step in steps(own)], one)
            reference_line(line[0], reference_number(rows, setting))
            step_axis(line[0])
            line[0].set_xlabel(STEP_LABEL)
            line[0].set_ylabel(axis_label(metrics[0]))
        if scores:
            groups = [_SHORT[score] for score in scores]
            numbers = {
                (group, one.label): number(model_rows(part, model), metric=score)
                for group, score in zip(groups, scores, strict=True)
                for model, one in zip(pair, series, strict=True)
            }
            grouped_bars(line[-1], groups, series, numbers)
            line[-1].set_xlabel("score")
            line[-1].set_ylabel("value (unitless)")
        handles, labels = line[0].get_legend_handles_labels()
        by_label = dict(zip(labels, handles, strict=True))
        line[-1].legend(
            by_label.values(), by_label.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5)
        )
    sentences = interval_caption(drawn, "Curves and bars", interval="bands and whiskers")
    if any(score.startswith("ois") for score in scores):
        sentences.append(
            "OIS, ref.: probes as in the reference code; OIS, trained: probes until convergence."
        )
    caption(figure, sentences)
    return figure
