"""`check_metric` passes the package's scores and names what is wrong with bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.metrics import check_metric, concepts_task_leakage, interconcept_leakage


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, (300, 3))
    y = (c.sum(axis=1) >= 2).astype(int)
    return c + 0.2 * rng.standard_normal(c.shape) + 0.1 * y[:, None], c, y


def test_the_scores_of_the_package_pass():
    c_hat, c, y = arrays()
    report = check_metric(concepts_task_leakage, c_hat, c, y)
    assert report.passed, str(report)
    assert "concepts_task_leakage on 300 samples" in str(report)
    report = check_metric(interconcept_leakage, c_hat, c)
    assert report.passed, str(report)
    assert [r.name for r in report.results if r.status == "does not apply"] == ["names of classes"]
    only = check_metric(
        lambda a, b: float(np.abs(np.asarray(a) - b).mean()), c_hat[:, :1], c[:, :1]
    )
    assert "sees a leak" in [r.name for r in only.results if r.status == "does not apply"]


def failures(metric, **options) -> set[str]:
    return {result.name for result in check_metric(metric, *arrays(), **options).failures}


def test_bad_metrics_are_told_what_is_wrong():
    rng = np.random.default_rng(0)
    assert "same call, same number" in failures(lambda c_hat, c, y: float(rng.random()))
    constant = failures(lambda c_hat, c, y: 0.5)
    assert constant == {
        "0 without leakage",
        "sees a leak",
        "NaN is refused",
        "unequal rows are refused",
    }
    assert "within [0, 1]" in failures(lambda c_hat, c, y: 2.0)
    assert "order of rows" in failures(lambda c_hat, c, y: float(np.asarray(c_hat)[0, 0]))
    assert "order of concepts" in failures(lambda c_hat, c, y: float(np.mean(c_hat, axis=0)[0]))
    assert "names of classes" in failures(lambda c_hat, c, y: float(np.mean(y)))

    def writes(c_hat, c, y):
        if isinstance(c_hat, np.ndarray) and c_hat.flags.writeable:
            c_hat[0, 0] = 9.0
        return 0.0

    assert "inputs unchanged" in failures(writes)

    def swapped(c_hat, c, y):
        result = concepts_task_leakage(c_hat, c, y)
        return type("Result", (), {"mean": result.mean, "per_concept": np.arange(3.0)})()

    assert failures(swapped) == {"order of concepts, each"}


def test_messages():
    c_hat, c, y = arrays()
    with pytest.raises(TypeError, match=r"metric must be callable as .*, got float"):
        check_metric(0.3, c_hat, c, y)
    with pytest.raises(ValueError, match="tolerance must not be negative, got -1"):
        check_metric(concepts_task_leakage, c_hat, c, y, tolerance=-1)
    with pytest.raises(ValueError, match="c must hold 0 or 1, got values from 0 to 2"):
        check_metric(concepts_task_leakage, c_hat, 2 * c, y)
    with pytest.raises(ValueError, match="at least 10 rows, got 5"):
        check_metric(concepts_task_leakage, c_hat[:5], c[:5], y[:5])
