"""Figure 3: task accuracy of the models of Figure 2 as concepts are set to their true values.

Rows: scope "run" with empty `repeat` (mean and interval over repeated interventions on one model),
metric `intervention_accuracy`, target "random", step = number of concepts intervened on; data sets
`*_two_concepts`; hard CBMs and soft ones at every `lambda_concept` present; lowest fold.
Optional: scope "mean", metric `reference_task_accuracy` of the same data set.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._interventions import reference_number, steps
from concept_audit.reporting.figures.leakage._two_concepts import models_found
from concept_audit.reporting.panels import (
    STEP_LABEL,
    Series,
    curve,
    grid,
    legend,
    panel_title,
    reference_line,
    step_axis,
)
from concept_audit.reporting.selection import (
    interval_caption,
    model_rows,
    number,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import ENCODING_COLOURS, axis_label, caption, ramp, styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A panel for each setting with a curve for each model."""
    selected = select(
        rows,
        "fig03_interventions",
        ["intervention_accuracy"],
        scope="run",
        encodings=("hard", "soft"),
        target="random",
        variants=("two_concepts",),
    )
    shown, models = settings(selected), models_found(selected)
    n_soft = sum(model.encoding == "soft" for model in models)
    shades = [ENCODING_COLOURS["hard"]] * (len(models) - n_soft)
    shades += reversed(ramp(ENCODING_COLOURS["soft"], n_soft)) if n_soft else []
    marks = zip(
        models, shades, ("s", "o", "^", "D", "v", "P"), ("-", "--", ":", "-."), strict=False
    )
    series = [Series(model.label, shade, marker, line) for model, shade, marker, line in marks]
    figure, axes = grid(1, len(shown), width=3.0, height=2.3, sharey="row")
    drawn = []
    for panel, setting in zip(axes[0], shown, strict=True):
        panel_title(panel, setting)
        part = setting_rows(selected, setting)
        for model, one in zip(models, series, strict=False):
            own = model_rows(part, model)
            curve(panel, [(step, number(own, step=step)) for step in steps(own)], one)
        drawn.append(reference_line(panel, reference_number(rows, setting)))
        step_axis(panel)
        panel.set_xlabel(STEP_LABEL)
    axes[0, 0].set_ylabel(axis_label("intervention_accuracy"))
    legend(figure, series, "lines", others=drawn)
    caption(figure, interval_caption(selected, "Curves", interval="bands"))
    return figure
