"""Concept vectors of CEMs on their first two principal components (Figures 9, 11, 23, 24).

Rows: scope "run", metrics `projection_1` and `projection_2`, target = the concept projected,
step = sample number, note = the sample's labels, e.g. "y=1,c2=0,c3=1".
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._cem import intervention_probabilities
from concept_audit.reporting.panels import Series, grid, legend, panel_title
from concept_audit.reporting.selection import (
    Model,
    Setting,
    interval_caption,
    lambdas,
    lowest_fold,
    missing_rows,
    model_rows,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import CLASS_COLOURS, CLASS_MARKERS, caption

__all__ = ["by_concepts", "by_task", "draw_projection"]

_METRICS = ("projection_1", "projection_2")


def by_task(labels: dict[str, str]) -> tuple[str, str]:
    """Colour by the task label: (words of the panel's title, class)."""
    return "", f"y = {labels['y']}"


def by_concepts(labels: dict[str, str]) -> tuple[str, str]:
    """Colour by the first two concepts named in the note: (words of the title, class)."""
    names = [name for name in labels if name != "y"][:2]
    return (
        f"colour: ({', '.join(names)})",
        f"({', '.join(labels[name] for name in names)})",
    )


def draw_projection(
    rows: pd.DataFrame,
    stem: str,
    colour: Callable[[dict[str, str]], tuple[str, str]],
    *,
    interventions: bool,
) -> Figure:
    """Scatter of one concept's vectors at the lowest and highest lambda.

    Parameters
    ----------
    rows : results table
    stem : name of the figure
    colour : `by_task` or `by_concepts`
    interventions : models trained with p_int > 0, or those with p_int = 0
    """
    selected = select(rows, stem, _METRICS, scope="run", encodings=("cem",), target=None)
    chance = selected["p_int"].fillna(0.0).astype(float)
    rule = "p_int > 0" if interventions else "p_int = 0"
    selected = selected[(chance > 0) == interventions].assign(p_int=chance)
    if selected.empty:
        raise missing_rows(stem, _METRICS, "run", f"model 'cem' with {rule}", rows)
    shown = [
        (setting, model)
        for setting in settings(selected)
        for model in _models(setting_rows(selected, setting))
    ]
    n_columns = min(4 if len(shown) > 4 else 2, len(shown))
    figure, axes = grid(-(-len(shown) // n_columns), n_columns, width=2.9, height=2.3)
    classes: dict[str, tuple[str, str]] = {}
    clouds = []
    for setting, model in shown:
        cloud, title = _cloud(selected, setting, model, colour, stem)
        clouds.append((cloud, title))
    for index, name in enumerate(sorted({n for cloud, _ in clouds for n in cloud}, key=_natural)):
        classes[name] = (
            CLASS_COLOURS[index % len(CLASS_COLOURS)],
            CLASS_MARKERS[index % len(CLASS_MARKERS)],
        )
    for panel in axes.flat[len(shown) :]:
        panel.remove()
    for panel, (setting, model), (cloud, title) in zip(axes.flat, shown, clouds, strict=False):
        panel_title(panel, setting, "\n".join(filter(None, [model.label, title])))
        for name in sorted(cloud, key=_natural):
            shade, marker = classes[name]
            panel.scatter(
                cloud[name]["projection_1"],
                cloud[name]["projection_2"],
                s=9,
                c=shade,
                marker=marker,
                alpha=0.7,
                linewidths=0,
                label=name,
                rasterized=True,
            )
        panel.set_xlabel("principal component 1 (unitless)")
        panel.set_ylabel("principal component 2\n(unitless)")
    series = [Series(name, *marks) for name, marks in classes.items()]
    named = "values of the two concepts named above each panel" if any(t for _, t in clouds) else ""
    legend(figure, series, "points", title=named)
    concept = ", ".join(sorted(set(selected["target"].astype(str))))
    caption(
        figure,
        [
            f"One model per panel; each point is the vector of concept {concept} for one test "
            "sample. Vectors have unit length, features are standardised, components are those "
            "of the vectors of all concepts.",
            *interval_caption(selected, "Points")[1:],
        ],
    )
    return figure


def _models(rows: pd.DataFrame) -> list[Model]:
    """Lowest and highest lambda for each p_int."""
    levels = lambdas(rows)
    ends = [levels[0], levels[-1]] if len(levels) > 1 else levels
    found = []
    for chance in intervention_probabilities(rows):
        models = [Model("cem", level, chance) for level in ends]
        found += [model for model in models if not model_rows(rows, model).empty]
    return found


def _cloud(
    selected: pd.DataFrame,
    setting: Setting,
    model: Model,
    colour: Callable[[dict[str, str]], tuple[str, str]],
    stem: str,
) -> tuple[dict[str, pd.DataFrame], str]:
    """Points of one model by class, and the addition to the panel's title."""
    part = lowest_fold(model_rows(setting_rows(selected, setting), model))
    part = part[part["target"] == part["target"].iloc[0]]
    if part.duplicated(["metric", "step"]).any():
        raise ValueError(
            f"{stem}: several rows for one sample of {setting.dataset}, {model.label}. "
            "Pass the rows of one run of this setting."
        )
    wide = part.pivot(index="step", columns="metric", values="value")
    notes = part.drop_duplicates("step").set_index("step")["note"]
    labelled = notes.map(lambda note: colour(_parse_note(note, stem)))
    classes = labelled.map(lambda pair: pair[1])
    cloud = {name: wide.loc[classes.index[classes == name]] for name in set(classes)}
    return cloud, labelled.iloc[0][0]


def _parse_note(note: object, stem: str) -> dict[str, str]:
    """Labels in a note such as "y=1,c2=0,c3=1"."""
    parts = dict(word.split("=", 1) for word in str(note).split(",") if "=" in word)
    if "y" not in parts or len(parts) < 2:
        raise ValueError(
            f"{stem} reads the labels of each sample from the column note, as in "
            f"'y=1,c2=0,c3=1'; got {note!r}. Write the note where projections are computed."
        )
    return parts


def _natural(name: str) -> tuple[int, str]:
    """Order in which "y = 10" follows "y = 9"."""
    return len(name), name
