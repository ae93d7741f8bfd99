"""The DCI-ES paper's claims in words, each tested on our rows by a stated rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd

from concept_audit.pipeline.claims import Claim, Rows

__all__ = ["CLAIMS", "check_claims"]

_PERFECT = 0.95  # a score this high is read as 1
_LOW = 0.3  # D and C this low are read as very low
_NO_LOSS = 0.05  # a loss this small is read as about 0
_ALIKE = 0.1  # scores E this close are read as similar
_PROBES = ("mlp", "rff", "random_forest")
_SMALL = ("vae", "beta_vae")
_LARGE = ("resnet18_imagenet", "resnet18_random", "raw_pixels")

Tests = list[tuple[str, bool]]


def _singles(rows: pd.DataFrame) -> pd.DataFrame:
    """One number per run: means over the fits of the probes, of the lowest training."""
    found = rows[(rows["scope"] == "run") & rows["repeat"].isna() & (rows["target"] == "mean")]
    return found[found["fold"] == found["fold"].min()]


def _by_model(rows: pd.DataFrame, metric: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Value of a score for each representation, by data set."""
    found = rows[rows["metric"] == metric]
    for dataset, group in found.groupby("dataset", sort=True, observed=True):
        yield str(dataset), dict(zip(group["model"], group["value"].astype(float), strict=True))


def _curves(rows: pd.DataFrame, probe: str) -> Iterator[tuple[str, dict[str, pd.Series]]]:
    """Losses by size of the probe, smallest first, for each representation, by data set."""
    found = rows[rows["metric"] == f"loss_{probe}"]
    for dataset, group in found.groupby("dataset", sort=True, observed=True):
        yield (
            str(dataset),
            {
                str(model): part.set_index("step")["value"].astype(float).sort_index()
                for model, part in group.groupby("model", observed=True)
            },
        )


def _noisy_labels(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/fig01_loss_capacity"))
    tests = []
    for probe in _PROBES:
        for dataset, curves in _curves(frame, probe):
            # True and mixed labels hold more than noisy ones by construction.
            others = {
                model: curve
                for model, curve in curves.items()
                if model not in ("labels", "noisy_labels", "mixed_labels")
            }
            if "noisy_labels" not in curves or not others:
                continue
            noisy = curves["noisy_labels"]
            first = min(curve.iloc[0] for curve in others.values())
            best = min(curve.min() for curve in others.values())
            text = (
                f"{dataset} {probe}: {noisy.iloc[0]:.2f} at the smallest probe (others {first:.2f} "
                f"at best), {noisy.min():.2f} at the best (others {best:.2f})"
            )
            tests.append((text, bool(noisy.iloc[0] < first and noisy.min() > best)))
    return tests


def _mixed_at_once(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/fig01_loss_capacity"))
    tests = []
    for probe in _PROBES:
        for dataset, curves in _curves(frame, probe):
            if "mixed_labels" not in curves:
                continue
            first = float(curves["mixed_labels"].iloc[0])
            wanted = first < _NO_LOSS if probe == "mlp" else first > _NO_LOSS
            tests.append((f"{dataset} {probe}: {first:.2f} at the smallest probe", wanted))
    return tests


def _true_labels(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/tab01_scores"))
    tests = []
    for probe in _PROBES:
        scores: dict[str, list[tuple[str, float]]] = {}
        for letter, score in _LETTERS.items():
            for dataset, values in _by_model(frame, f"{score}_{probe}"):
                if "labels" in values:
                    scores.setdefault(dataset, []).append((letter, values["labels"]))
        for dataset, found in scores.items():
            text = f"{dataset} {probe}: " + ", ".join(f"{k} {v:.2f}" for k, v in found)
            tests.append((text, all(value > _PERFECT for _, value in found)))
    return tests


_LETTERS = {
    "D": "disentanglement",
    "C": "completeness",
    "I": "informativeness",
    "E": "explicitness",
    "S": "size",
}


def _mixed_scores(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/tab01_scores"))
    tests = []
    for dataset, e in _by_model(frame, "explicitness_mlp"):
        d = dict(_by_model(frame, "disentanglement_mlp"))[dataset].get("mixed_labels")
        c = dict(_by_model(frame, "completeness_mlp"))[dataset].get("mixed_labels")
        if d is None or c is None or "mixed_labels" not in e:
            continue
        text = f"{dataset} mlp: D {d:.2f}, C {c:.2f}, E {e['mixed_labels']:.2f}"
        tests.append((text, d < _LOW and c < _LOW and e["mixed_labels"] > _PERFECT))
    return tests


def _larger_is_more_explicit(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/tab01_scores"))
    tests = []
    for probe in _PROBES:
        for dataset, values in _by_model(frame, f"explicitness_{probe}"):
            small = {name: values[name] for name in _SMALL if name in values}
            large = {name: values[name] for name in _LARGE if name in values}
            if not small or not large:
                continue
            text = f"{dataset} {probe}: " + ", ".join(
                f"{name} {value:.2f}" for name, value in {**large, **small}.items()
            )
            tests.append((text, min(large.values()) > max(small.values())))
    return tests


def _beta_vae(rows: Rows) -> Tests:
    frame = _singles(rows("dci_es/tab01_scores"))
    tests = []
    for probe in _PROBES:
        d = dict(_by_model(frame, f"disentanglement_{probe}"))
        c = dict(_by_model(frame, f"completeness_{probe}"))
        for dataset, e in _by_model(frame, f"explicitness_{probe}"):
            if not {"vae", "beta_vae"} <= set(e):
                continue
            pairs = [(s[dataset]["beta_vae"], s[dataset]["vae"]) for s in (d, c)]
            pairs.append((e["beta_vae"], e["vae"]))
            text = f"{dataset} {probe}: " + ", ".join(
                f"{letter} {beta:.2f} against {plain:.2f}"
                for letter, (beta, plain) in zip("DCE", pairs, strict=True)
            )
            higher = all(beta > plain for beta, plain in pairs[:2])
            tests.append((text, higher and abs(pairs[2][0] - pairs[2][1]) < _ALIKE))
    return tests


# name -> rule, test; the statements stand in data/paper_values/dci_es.csv
CLAIMS: dict[str, tuple[str, Callable[[Rows], Tests]]] = {
    "claim_01": (
        "noisy labels have a lower loss than all learnt codes and pixels at the smallest probe, "
        "and a higher one than the best of these when each has its best probe",
        _noisy_labels,
    ),
    "claim_02": (
        f"loss of mixed labels at the smallest probe below {_NO_LOSS} for MLPs, above for others",
        _mixed_at_once,
    ),
    "claim_03": (f"all five scores of true labels above {_PERFECT}", _true_labels),
    "claim_04": (f"D and C below {_LOW} and E above {_PERFECT} with MLP probes", _mixed_scores),
    "claim_05": (
        "E of ResNet-18 and of pixels both above that of VAE and beta-VAE",
        _larger_is_more_explicit,
    ),
    "claim_06": (
        f"D and C of beta-VAE above those of the VAE, E within {_ALIKE}",
        _beta_vae,
    ),
}


def _noted(rows: Rows, read: list[pd.DataFrame], artefact: str) -> pd.DataFrame:
    """Rows of an artefact, remembered in `read`."""
    read.append(rows(artefact))
    return read[-1]


def check_claims(rows: Rows) -> list[Claim]:
    """Test every claim whose artefacts are stored.

    Parameters
    ----------
    rows : gives the rows of an artefact by name; raises FileNotFoundError where it was not run
    """
    found = []
    for name, (rule, test) in CLAIMS.items():
        read: list[pd.DataFrame] = []
        try:
            tests = test(partial(_noted, rows, read))
        except FileNotFoundError:
            found.append(Claim(name, rule, 0, 0, "not run"))
            continue
        holds = sum(good for _, good in tests)
        standin = any(bool(frame["standin"].any()) for frame in read)
        evidence = "; ".join(text for text, _ in tests) or "no case to test"
        found.append(Claim(name, rule, holds, len(tests), evidence, standin))
    return found
