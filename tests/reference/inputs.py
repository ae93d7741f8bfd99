"""Inputs of the reference values, rebuilt from the recipes stored beside them."""

from __future__ import annotations

from typing import Any

import numpy as np


def verify(array: np.ndarray, check: dict[str, Any]) -> None:
    """Assert that a rebuilt array is the one the reference was computed on."""
    flat = np.asarray(array, dtype=float).ravel()
    assert flat.size == check["n"]
    np.testing.assert_allclose(flat.sum(), check["sum"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((flat**2).sum(), check["sumsq"], rtol=1e-9)
    np.testing.assert_allclose(flat[:3], check["first3"], rtol=1e-9)
    np.testing.assert_allclose(flat[-1], check["last"], rtol=1e-9)


def gauss_1d(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.RandomState(row["seed"])
    x, z = r.standard_normal(row["n"]), r.standard_normal(row["n"])
    return x, row["rho"] * x + np.sqrt(1 - row["rho"] ** 2) * z


def mixture(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.RandomState(row["seed"])
    d = r.randint(0, row["K"], row["n"])
    values = row["sep"] * d + r.standard_normal(row["n"])
    if "note" in row:
        d[0] = 7
        d[1] = d[2] = 9
    return values, d


def toy_concepts(
    r: np.random.RandomState, n: int, delta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Latents, concepts and label of a three-concept toy."""
    covariance = np.full((3, 3), delta)
    np.fill_diagonal(covariance, 1.0)
    z = r.standard_normal((n, 3)) @ np.linalg.cholesky(covariance).T
    c = (z > 0).astype(float)
    return z, c, (c.sum(axis=1) >= 2).astype(int)


def cbm_like(params: dict[str, Any]) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    r = np.random.RandomState(params["s"])
    z, c, y = toy_concepts(r, params["n"], params["delta"])
    e = r.standard_normal((params["n"], 3))
    logits = (
        params["gain"] * z
        + params["noise"] * e
        + params["leak"] * (2 * y - 1)[:, None]
        + params["mix"] * (2 * np.roll(c, 1, axis=1) - 1)
    )
    soft = 1 / (1 + np.exp(-logits))
    return {"logit": logits, "soft": soft, "hard": (soft > 0.5).astype(float)}, c, y


def saturated_soft(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, c, y = toy_concepts(np.random.RandomState(row["seed"]), row["n"], 0.25)
    noise = np.random.RandomState(row["seed"] + 1).standard_normal((row["n"], 3))
    logits = row["gain"] * (2 * c - 1) + noise
    return (1 / (1 + np.exp(-logits))).astype(np.float32), c, y


def cem_like(row: dict[str, Any]) -> dict[str, np.ndarray]:
    n, d = row["n"], row["d"]
    r = np.random.RandomState(row["seed"])
    z, c, y = toy_concepts(r, n, 0.25)
    p = 1 / (1 + np.exp(-(4 * z + r.standard_normal((n, 3)))))
    up, un, wy = (r.standard_normal((3, d)) for _ in range(3))
    ep, en = (r.standard_normal((n, 3, d)) for _ in range(2))
    sign = (2 * y - 1)[:, None, None]
    pos = up + row["leak"] * sign * wy * c[:, :, None] + ep
    neg = un + row["leak"] * sign * wy * (1 - c)[:, :, None] + en
    mix = p[:, :, None] * pos + (1 - p)[:, :, None] * neg
    return {"pos": pos, "neg": neg, "mix": mix, "c": c, "y": y}
