"""The leakage paper's claims in words, each tested on our rows by a stated rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["CLAIMS", "Claim", "check_claims"]

_NEAR_ZERO = 0.02  # a leakage score this small is read as none
_ALIKE = 0.02  # accuracies this close cannot tell two models apart


@dataclass(frozen=True)
class Claim:
    """Outcome of one claim: in how many of the cases it can be tested in here it holds.

    `standin` says that the cases are of drawn data, which no claim of a paper is about.
    """

    name: str
    rule: str
    holds: int
    total: int
    evidence: str
    standin: bool = False


Rows = Callable[[str], pd.DataFrame]


def _means(rows: pd.DataFrame, metric: str, target: str = "mean") -> pd.DataFrame:
    return rows[(rows["scope"] == "mean") & (rows["metric"] == metric) & (rows["target"] == target)]


def _value(frame: pd.DataFrame, **setting: Any) -> float:
    for column, wanted in setting.items():
        frame = frame[frame[column] == wanted]
    return float(frame["value"].iloc[0]) if len(frame) else float("nan")


def _cases(
    frame: pd.DataFrame, columns: list[str]
) -> Iterable[tuple[dict[str, Any], pd.DataFrame]]:
    for key, group in frame.groupby(columns, dropna=False, sort=True):
        yield dict(zip(columns, key, strict=True)), group


def _label(case: dict[str, Any]) -> str:
    return " ".join(str(value) for value in case.values() if not pd.isna(value))


def _tally(tests: list[tuple[str, bool]]) -> tuple[int, int, str]:
    holds = sum(good for _, good in tests)
    return holds, len(tests), "; ".join(text for text, _ in tests)


def _pairs(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/tab01_pairs")
    verdicts = frame[frame["metric"] == "leakage_criterion"]
    tests = []
    for row in verdicts.to_dict("records"):
        gaps = []
        for metric in ("concept_accuracy", "task_accuracy"):
            means = _means(frame, metric)
            means = means[means["concept_output"] == row["concept_output"]]
            gaps.append(abs(_value(means, encoding="soft") - _value(means, encoding="logit")))
        text = (
            f"{row['dataset']} {row['concept_output']}: accuracies differ by at most "
            f"{max(gaps):.3f}; {row['note']}"
        )
        tests.append((text, max(gaps) < _ALIKE and row["value"] > 0))
    return tests


def _hard(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/fig05_hard_models")
    tests = []
    for metric in ("ctl", "icl"):
        for case, group in _cases(_means(frame, metric), ["dataset", "concept_output"]):
            value = float(group["value"].iloc[0])
            tests.append((f"{metric} {_label(case)} {value:.4f}", value < _NEAR_ZERO))
    return tests


def _correlations(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/tab02_correlations")
    found = frame[(frame["scope"] == "comparison") & (frame["target"] == "ctl~intervention_score")]
    tests = []
    for case, group in _cases(found, ["dataset", "concept_output"]):
        r, p = _value(group, metric="pearson_r"), _value(group, metric="pearson_p")
        tests.append((f"{_label(case)}: r {r:.2f}, p {p:.1g}", r > 0 and p < 0.05))
    return tests


def _supervision(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/fig20_supervision")
    tests = []
    for case, group in _cases(_means(frame, "ctl"), ["dataset", "encoding", "concept_output"]):
        group = group.sort_values("lambda_concept")
        first, last = group["value"].iloc[0], group["value"].min()
        tests.append((f"{_label(case)}: {first:.3f} falls to {last:.3f}", last < 0.8 * first))
    for case, group in _cases(_means(frame, "ctl"), ["dataset", "concept_output"]):
        floor = group.groupby("encoding")["value"].min()
        if {"soft", "logit"} <= set(floor.index):
            text = (
                f"{_label(case)}: floor of logit {floor['logit']:.3f}, of soft {floor['soft']:.3f}"
            )
            tests.append((text, floor["logit"] > floor["soft"]))
    return tests


def _leaks_more(name: str, variant: str) -> Callable[[Rows], list[tuple[str, bool]]]:
    def test(rows: Rows) -> list[tuple[str, bool]]:
        frame = rows(name)
        tests = []
        for case, group in _cases(_means(frame, "ctl"), ["concept_output", "lambda_concept"]):
            worse = group[group["dataset"].str.endswith(variant)]["value"]
            base = group[~group["dataset"].str.endswith(variant)]["value"]
            if len(worse) == 1 and len(base) == 1:
                text = f"{_label(case)}: CTL {base.iloc[0]:.3f}, {variant} {worse.iloc[0]:.3f}"
                tests.append((text, bool(worse.iloc[0] > base.iloc[0])))
        return tests

    return test


def _rank_correlation(x: pd.Series, y: pd.Series) -> float:
    x, y = x.align(y, join="inner")
    if len(x) < 3 or x.nunique() < 2 or y.nunique() < 2:
        return float("nan")
    return float(np.corrcoef(x.rank(), y.rank())[0, 1])


def _grid(frame: pd.DataFrame, metric: str) -> pd.Series:
    return _means(frame, metric).set_index(["lambda_concept", "p_int"])["value"]


def _task_information(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/fig10_cem_task_information")
    information = _grid(frame, "concepts_task_information")
    with_task = _rank_correlation(information, _grid(frame, "task_accuracy"))
    with_concepts = _rank_correlation(information, _grid(frame, "concept_accuracy"))
    own, others = _grid(frame, "self_information"), _grid(frame, "interconcept_information")
    together = _rank_correlation(own, others)
    by_lambda = others.groupby("lambda_concept").mean()
    grows = bool(by_lambda.iloc[-1] > by_lambda.iloc[0])
    return [
        (
            f"rank correlation of task information with y_acc {with_task:.2f}, with c_acc "
            f"{with_concepts:.2f}",
            with_task > with_concepts,
        ),
        (f"self and interconcept information: rank correlation {together:.2f}", together > 0),
        (
            f"interconcept information {by_lambda.iloc[0]:.3f} at the lowest weight, "
            f"{by_lambda.iloc[-1]:.3f} at the highest",
            grows,
        ),
    ]


def _alignment(rows: Rows) -> list[tuple[str, bool]]:
    means = _means(rows("leakage/fig14_alignment"), "alignment_leakage")
    return [
        (
            f"lambda {row['lambda_concept']:g}, p_int {row['p_int']:g}: {row['value']:.3f} "
            f"[{row['low']:.3f}, {row['high']:.3f}]",
            bool(row["low"] > 0 or row["high"] < 0),
        )
        for row in means.to_dict("records")
    ]


def _probabilities(rows: Rows) -> list[tuple[str, bool]]:
    ctl = _grid(rows("leakage/fig13_cem_probabilities"), "ctl").groupby("lambda_concept").mean()
    vectors = (
        _grid(rows("leakage/fig12_cem_self_interconcept"), "interconcept_information")
        .groupby("lambda_concept")
        .mean()
    )
    return [
        (
            f"CTL of probabilities {ctl.iloc[0]:.3f} at the lowest weight, "
            f"{ctl.iloc[-1]:.3f} at the highest",
            bool(ctl.iloc[-1] < ctl.iloc[0]),
        ),
        (
            f"interconcept information of vectors {vectors.iloc[0]:.3f}, {vectors.iloc[-1]:.3f}",
            bool(vectors.iloc[-1] > vectors.iloc[0]),
        ),
    ]


def _cem_interventions(rows: Rows) -> list[tuple[str, bool]]:
    frame = rows("leakage/fig25_cem_interventions")
    tests = []
    for row in _means(frame, "intervention_score").to_dict("records"):
        text = f"lambda {row['lambda_concept']:g}, p_int {row['p_int']:g}: S_int {row['value']:.3f}"
        if row["p_int"] > 0:
            tests.append((text, abs(row["value"]) < 0.05))
    return tests


# name -> rule, test; the statements stand in data/paper_values/leakage.csv
CLAIMS: dict[str, tuple[str, Callable[[Rows], list[tuple[str, bool]]]]] = {
    "claim_01": (
        f"accuracies within {_ALIKE}, and by the leakage criterion the logit model leaks more",
        _pairs,
    ),
    "claim_02": (f"mean CTL and ICL of hard models below {_NEAR_ZERO}", _hard),
    "claim_03": ("Pearson r of CTL with S_int positive with p < 0.05", _correlations),
    "claim_04": (
        "CTL falls by a fifth or more from the lowest weight to its minimum; the minimum is higher "
        "for logit than for soft models",
        _supervision,
    ),
    "claim_05": (
        "mean CTL higher with an incomplete concept set",
        _leaks_more("leakage/fig07_incomplete", "incomplete"),
    ),
    "claim_06": (
        "mean CTL higher with a misspecified head",
        _leaks_more("leakage/fig08_misspecified", "nonlinear"),
    ),
    "claim_07": (
        "over the CEM grid: task information ranks with y_acc more than with c_acc; self and "
        "interconcept information rank together; interconcept information grows with the weight",
        _task_information,
    ),
    "claim_08": ("95 % interval of alignment leakage excludes zero", _alignment),
    "claim_09": (
        "from the lowest to the highest weight CTL of probabilities falls and interconcept "
        "information of the vectors grows",
        _probabilities,
    ),
    "claim_10": (
        "S_int within 0.05 of zero for CEMs with training interventions",
        _cem_interventions,
    ),
}


def check_claims(rows: Rows) -> list[Claim]:
    """Test every claim whose artefacts are stored.

    Parameters
    ----------
    rows : gives the rows of an artefact by name; raises FileNotFoundError where it was not run
    """
    found = []
    for name, (rule, test) in CLAIMS.items():
        try:
            holds, total, evidence = _tally(test(rows))
        except FileNotFoundError:
            holds, total, evidence = 0, 0, "not run"
        found.append(Claim(name, rule, holds, total, evidence or "no case to test"))
    return found
