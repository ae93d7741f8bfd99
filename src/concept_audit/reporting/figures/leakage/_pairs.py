"""The pairs of Table 1: two models that accuracy cannot tell apart and leakage can."""

from __future__ import annotations

import pandas as pd

from concept_audit.reporting.panels import Series
from concept_audit.reporting.selection import Model, Setting, model_rows, setting_rows, settings
from concept_audit.reporting.style import ENCODING_COLOURS, parse_dataset

__all__ = ["complete_pairs", "pair_of", "pair_series"]

_PAIRS: dict[str, tuple[Model, Model]] = {  # Leakage paper, Table 1
    "tabulartoy": (Model("soft", 5.0), Model("logit", 5.0)),
    "dsprites": (Model("logit", 5.0), Model("logit", 0.5)),
    "shapes3d": (Model("soft", 0.1), Model("soft", 0.01)),
}
_OTHER_FAMILIES = (Model("soft", 5.0), Model("logit", 5.0))  # our choice


def pair_of(dataset: str) -> tuple[Model, Model]:
    """The two models compared on a data set, the one that leaks less first."""
    return _PAIRS.get(parse_dataset(dataset).family, _OTHER_FAMILIES)


def complete_pairs(rows: pd.DataFrame) -> list[tuple[Setting, tuple[Model, Model]]]:
    """Settings for which rows of both models are there."""
    found = []
    for setting in settings(rows):
        pair = pair_of(setting.dataset)
        if all(not model_rows(setting_rows(rows, setting), model).empty for model in pair):
            found.append((setting, pair))
    return found


def pair_series(pair: tuple[Model, Model]) -> list[Series]:
    """Colours by encoding; the second model is hatched and dashed."""
    first, second = pair
    return [
        Series(first.label, ENCODING_COLOURS[first.encoding], "o", "-"),
        Series(second.label, ENCODING_COLOURS[second.encoding], "s", "--", "////"),
    ]
