"""Rows as an evaluation of many models would give them, invented but plausible, to draw from."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = [
    *("run_key", "paper", "scope", "dataset", "standin", "model", "encoding", "lambda_concept"),
    *("p_int", "head", "concept_output", "fold", "repeat", "split", "metric", "target", "step"),
    *("value", "low", "high", "unit", "n_samples", "n_runs", "note"),
]
LAMBDAS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0)
CEM_LAMBDAS = (0.1, 1.0, 10.0)
CEM_CHANCES = (0.0, 0.25, 0.75)
CONCEPTS = {"tabulartoy": 3, "dsprites": 5, "shapes3d": 6, "cub": 112, "ham10k": 18}


class Rows:
    """Collects rows; every number depends on its place and the seed only."""

    def __init__(self, seed: int = 0, interval: float = 0.02) -> None:
        self.random = np.random.default_rng(seed)
        self.interval = interval
        self.rows: list[dict[str, Any]] = []

    def add(self, metric: str, value: float, *, bounded: bool = True, **columns: Any) -> None:
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        spread = self.interval * (0.5 + self.random.random())
        row |= {
            "paper": "leakage",
            "scope": "mean",
            "split": "test",
            "target": "mean",
            "metric": metric,
            "value": float(value),
            "unit": "unitless",
            "n_samples": 1000,
            "n_runs": 5,
        }
        if bounded:
            row |= {"low": float(value) - spread, "high": float(value) + spread}
        row |= columns
        if row["scope"] == "run":
            row |= {"run_key": f"{len(self.rows):016x}", "fold": columns.get("fold", 0)}
        self.rows.append(row)

    def frame(self) -> pd.DataFrame:
        frame = pd.DataFrame(self.rows, columns=COLUMNS)
        numbers = ["lambda_concept", "p_int", "step", "value", "low", "high"]
        frame[numbers] = frame[numbers].astype(float)
        for column in ("fold", "repeat", "n_samples", "n_runs"):
            frame[column] = frame[column].astype("Int64")
        return frame


def _leak(encoding: str, level: float | None, output: str) -> float:
    """Leakage that falls with lambda to a floor, higher for logit."""
    if encoding == "hard" or level is None:
        return 0.002
    floor = {"soft": 0.02, "logit": 0.18}[encoding] + (0.08 if output == "leaky_relu" else 0.0)
    return floor + 0.65 / (1 + (level / 0.3) ** 1.5) + (0.05 if level > 10 else 0.0)


def fake_rows(
    datasets: tuple[tuple[str, str], ...] = (
        ("tabulartoy_d025", "linear"),
        ("tabulartoy_d025", "leaky_relu"),
        ("tabulartoy_d075", "linear"),
    ),
    *,
    ois: bool = True,
    variants: bool = True,
    seed: int = 0,
) -> pd.DataFrame:
    """Rows of all metrics for the data sets, their variants and the two-concept task.

    Parameters
    ----------
    datasets : names of plain data sets with their concept output
    ois : whether impurity scores are there
    variants : whether incomplete, nonlinear and two-concept data sets are there
    seed : of the invented numbers
    """
    rows = Rows(seed)
    for dataset, output in datasets:
        standin = dataset.endswith("_standin")
        family = dataset.split("_")[0]
        place = {"dataset": dataset, "standin": standin, "concept_output": output}
        head = "linear" if family == "tabulartoy" else "mlp"
        names = [f"c{i + 1}" for i in range(CONCEPTS[family])]
        _cbm(rows, place | {"head": head}, names, ois=ois)
        if output == "linear":
            _cem(rows, place | {"concept_output": None, "head": head}, names)
        _truth(rows, place, names)
        rows.add("reference_task_accuracy", 1.0, **place, model="reference_head", head=head)
        if not variants:
            continue
        base = dataset.removesuffix("_standin")
        for variant in ("incomplete", "nonlinear"):
            name = f"{base}_{variant}" + ("_standin" if standin else "")
            for level in (0.1, 1.0, 5.0):
                kind = place | {"dataset": name, "model": "cbm", "encoding": "soft"}
                kind |= {"lambda_concept": level, "head": "linear"}
                for metric in ("ctl", "icl"):
                    rows.add(metric, 1.25 * _leak("soft", level, output), **kind)
                    if variant == "nonlinear" and head == "mlp":
                        linear = place | {"head": "linear", "model": "cbm", "encoding": "soft"}
                        rows.add(
                            metric, _leak("soft", level, output), **linear, lambda_concept=level
                        )
                rows.add("concept_accuracy", 0.9 + 0.015 * level, **kind)
                rows.add("task_accuracy", 0.97 - 0.01 * level, **kind)
                if variant == "nonlinear" and head == "mlp":
                    rows.add("concept_accuracy", 0.93, **linear, lambda_concept=level)
                    rows.add("task_accuracy", 0.95, **linear, lambda_concept=level)
    if variants:
        for output in sorted({output for _, output in datasets}, reverse=True):
            _two_concepts(rows, output)
    return rows.frame()


def _cbm(rows: Rows, place: dict[str, Any], names: list[str], *, ois: bool) -> None:
    """Hard, soft and logit models: means, one model's numbers, comparisons."""
    output = place["concept_output"]
    models = [("hard", None)] + [(e, level) for e in ("soft", "logit") for level in LAMBDAS]
    for encoding, level in models:
        kind = place | {"model": "cbm", "encoding": encoding, "lambda_concept": level}
        leak = _leak(encoding, level, output)
        noise = rows.random.normal(0, 0.02)
        rows.add("ctl", abs(leak + noise), **kind)
        rows.add("icl", abs(0.4 * leak + noise), **kind)
        if ois:
            rows.add("ois_reference", 0.4 + 0.3 * leak + 3 * noise, **kind)
            rows.add("ois", 0.06 + 0.3 * leak, **kind)
            rows.add("nis", 0.55 + 0.2 * leak, **kind)
            rows.add("nis_reference", 0.9 - 0.3 * leak, **kind)
        rows.add("concept_accuracy", 0.995 - 0.1 * leak, **kind)
        rows.add("task_accuracy", 0.99 - (0.002 * level if level and level > 5 else 0), **kind)
        rows.add("intervention_score", max(0.0, 0.8 * leak + noise), **kind)
        for fold in (0, 1):
            single = kind | {"scope": "run", "fold": fold}
            for repeat in (None, 0, 1):
                bounded = repeat is None
                every = single | {"repeat": repeat}
                rows.add("ctl", leak + 0.1 * fold, bounded=bounded, **every)
                rows.add("icl", 0.4 * leak, bounded=bounded, **every)
                if ois:
                    rows.add("ois_reference", 0.45 + leak / 3, bounded=bounded, **every)
                    rows.add("ois", 0.1 + leak / 3, bounded=bounded, **every)
            for i, name in enumerate(names):
                rows.add("ctl", leak * (0.8 + 0.2 * (i % 3)), target=name, **single)
                rows.add("icl", 0.4 * leak * (0.8 + 0.2 * (i % 3)), target=name, **single)
            for a, b in list(combinations(names, 2))[:10]:
                rows.add("icl", 0.4 * leak, target=f"{a}|{b}", **single)
            _curve(rows, single, len(names), 0.99, 1.0 - leak)
    for score in ("ctl", "icl", "ois_reference") if ois else ("ctl", "icl"):
        columns = place | {"scope": "comparison", "target": f"{score}~intervention_score"}
        rows.add("pearson_r", 0.75, **columns)
        rows.add("pearson_p", 0.0034, bounded=False, **columns)


def _curve(rows: Rows, kind: dict[str, Any], k: int, first: float, last: float) -> None:
    """Accuracy over the number of interventions."""
    for step in range(k + 1):
        value = first + (last - first) * step / k
        rows.add("intervention_accuracy", value, **kind | {"target": "random", "step": step})


def _cem(rows: Rows, place: dict[str, Any], names: list[str]) -> None:
    """CEMs: means, and projections of one model."""
    for level in CEM_LAMBDAS:
        for chance in CEM_CHANCES:
            kind = place | {"model": "cem", "encoding": "embedding"}
            kind |= {"lambda_concept": level, "p_int": chance}
            x = np.log10(level)
            for metric, value in {
                "concepts_task_information": 0.93 - 0.05 * x - 0.05 * chance,
                "task_accuracy": 0.99 - 0.003 * x,
                "concept_accuracy": 0.96 + 0.02 * x,
                "self_information": 0.97 + 0.01 * x,
                "interconcept_information": 0.83 - 0.06 * x,
                "ctl": 0.06 - 0.05 * x - 0.02 * chance,
                "icl": 0.03 - 0.02 * x,
                "alignment_leakage": 0.2 + 0.1 * x + 0.1 * chance,
                "intervention_score": 0.05 - 0.05 * chance,
            }.items():
                rows.add(metric, value, **kind)
            _curve(rows, kind, len(names), 0.99, 0.95 + 0.05 * chance)
            if level == 1.0:
                continue
            for sample in range(150):
                bits = rows.random.integers(0, 2, size=3)
                y = int(bits.sum() >= 2) if len(names) == 3 else int(rows.random.integers(0, 8))
                note = f"y={y},{names[1]}={bits[1]},{names[2]}={bits[2]}"
                spot = kind | {"scope": "run", "target": names[0], "step": sample, "note": note}
                for axis, centre in (("projection_1", y), ("projection_2", bits[1] + level / 10)):
                    value = 2.0 * centre + rows.random.normal(0, 0.5)
                    rows.add(axis, value, bounded=False, **spot)


def _truth(rows: Rows, place: dict[str, Any], names: list[str]) -> None:
    """Dependence of the annotated concepts."""
    level = 0.22 if "d075" in place["dataset"] else 0.02
    for i, (a, b) in enumerate(combinations(names, 2)):
        value = level * (1 + 0.2 * (i % 4))
        for fold in (0, 1):
            spot = {"scope": "run", "split": "train", "target": f"{a}|{b}", "fold": fold}
            rows.add(
                "interconcept_information_true", value, bounded=False, **place, **spot, model="cbm"
            )


def _two_concepts(rows: Rows, output: str) -> None:
    """Histograms and intervention curves of the two-concept task."""
    place = {"dataset": "tabulartoy_two_concepts", "standin": False, "concept_output": output}
    centres = (np.arange(20) + 0.5) / 20
    for encoding, level in (("hard", None), ("soft", 1.0), ("soft", 0.01)):
        kind = place | {"model": "cbm", "encoding": encoding, "lambda_concept": level}
        kind |= {"head": "linear", "scope": "run"}
        for cell, share, centre in (
            ("c2=0,y=0", 0.3, 0.02),
            ("c2=0,y=1", 0.2, 0.98),
            ("c2=1,y=1", 0.5, 0.5 if level == 0.01 else 0.9),
        ):
            width = {None: 0.02, 1.0: 0.06, 0.01: 0.2}[level]
            weight = np.exp(-0.5 * ((centres - centre) / width) ** 2)
            for bin_centre, value in zip(centres, share * weight / weight.sum(), strict=True):
                spot = {"target": f"c1|{cell}", "step": bin_centre}
                rows.add("concept_density", value, bounded=False, **kind, **spot)
        _curve(rows, kind, 2, 0.99, {None: 1.0, 1.0: 0.99, 0.01: 0.55}[level])
    rows.add("reference_task_accuracy", 1.0, **place, model="reference_head", head="linear")
