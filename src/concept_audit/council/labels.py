"""The labels file: what people answered, one comparison a line.

    {"dataset": "cub200", "image_id": "cub-0001", "pair": ["lf_cbm", "vlg_cbm"],
     "answers": ["A", "A", "equally_good"]}

`A` stands for the first model of `pair`. Further fields are kept as they are; the study page writes
such files. Until people have answered, `synthetic_labels` stands in and marks every row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from concept_audit.council.scoring import ANSWERS, consensus

__all__ = ["is_synthetic", "read_labels", "synthetic_labels"]

_NEEDED = ("dataset", "image_id", "pair", "answers")


def read_labels(path: str | Path) -> list[dict[str, Any]]:
    """Read and check a labels file; `consensus` and `strength` are computed from the answers.

    Raises
    ------
    ValueError  naming the line: no JSON, a missing field, an unknown answer, a repetition.
    """
    file = Path(path)
    rows: list[dict[str, Any]] = []
    seen: dict[tuple[str, str, frozenset[str]], int] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: cannot be read as JSON: {error}.") from None
        if not isinstance(row, dict) or any(name not in row for name in _NEEDED):
            raise ValueError(f"{where}: must be an object with {', '.join(_NEEDED)}.")
        pair, answers = row["pair"], row["answers"]
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"{where}: pair must name two different models, got {pair!r}.")
        if not isinstance(answers, list) or not answers or set(answers) - set(ANSWERS):
            raise ValueError(
                f"{where}: answers must be a list of {', '.join(ANSWERS)}, got {answers!r}."
            )
        key = (str(row["dataset"]), str(row["image_id"]), frozenset(map(str, pair)))
        if key in seen:
            raise ValueError(f"{where}: repeats the comparison of line {seen[key]}.")
        seen[key] = number
        decided = consensus(answers)
        rows.append({**row, "consensus": decided.label, "strength": decided.strength})
    if not rows:
        raise ValueError(f"{file} holds no label. The study page exports them.")
    return rows


def synthetic_labels(
    quality: Mapping[tuple[str, str, str], float],
    *,
    noise: float = 0.15,
    tie_width: float = 0.1,
    n_answers: int = 3,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Labels of invented people, each row with `"synthetic": true`.

    Every answer compares two qualities after normal noise on both; a difference within `tie_width`
    is a tie, good or bad by their mean. For rehearsing the alignment, never as evidence.

    Parameters
    ----------
    quality : per (dataset, image, model), in [0, 1]
    noise : standard deviation of one person's view of one explanation
    tie_width : smallest difference that a person prefers by
    n_answers : answers per comparison; the paper has 3
    seed : of the noise
    """
    rng = np.random.default_rng(seed)
    images: dict[tuple[str, str], list[str]] = {}
    for dataset, image, model in quality:
        images.setdefault((dataset, image), []).append(model)
    rows = []
    for (dataset, image), models in images.items():
        for pair in combinations(models, 2):
            true = np.array([quality[(dataset, image, model)] for model in pair])
            seen = true + rng.normal(0, noise, size=(n_answers, 2))
            answers = [_answer(first, second, tie_width) for first, second in seen]
            decided = consensus(answers)
            rows.append(
                {
                    "dataset": dataset,
                    "image_id": image,
                    "pair": list(pair),
                    "answers": answers,
                    "consensus": decided.label,
                    "strength": decided.strength,
                    "synthetic": True,
                }
            )
    return rows


def _answer(first: float, second: float, tie_width: float) -> str:
    if abs(first - second) <= tie_width:
        return "equally_good" if first + second >= 1 else "equally_bad"
    return "A" if first > second else "B"


def is_synthetic(rows: list[dict[str, Any]]) -> bool:
    """Whether any row is marked synthetic; such tables say so wherever they appear."""
    return any(row.get("synthetic") for row in rows)
