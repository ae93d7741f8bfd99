"""Models of the two-concept task shown in Figures 2 and 3."""

from __future__ import annotations

import pandas as pd

from concept_audit.reporting.selection import Model, lambdas

__all__ = ["models_found"]


def models_found(rows: pd.DataFrame) -> list[Model]:
    """The hard model first, then soft ones from strong to weak supervision."""
    hard = [Model("hard")] if (rows["encoding"] == "hard").any() else []
    soft = rows[rows["encoding"] == "soft"]
    return hard + [Model("soft", level) for level in reversed(lambdas(soft))]
