"""OIS: all probes at once and joint heads, against the same probes one at a time in plain torch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from concept_audit.metrics.accuracy import column_auc
from concept_audit.metrics.oracle_probes import (
    HIDDEN_UNITS,
    KERAS_EPSILON,
    LEARNING_RATE,
    ProbeSettings,
    probe_auc,
    split_rows,
)

EQUAL_TO = 2e-3  # float32 rounding over the whole training swaps a few near-ties of the AUC


def data(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, (n, k))
    logits = 2.0 * (2 * c - 1) + np.roll(c, 1, axis=1) + rng.standard_normal((n, k))
    return 1 / (1 + np.exp(-logits)), c


def one_by_one(
    c_hat: np.ndarray, c: np.ndarray, settings: ProbeSettings, sources: int
) -> np.ndarray:
    """Held-out AUC of the probes of the first sources: a loop as one would write it."""
    import torch

    from concept_audit.metrics.probes.batched import Network
    from concept_audit.metrics.probes.networks import initial_weights

    n, k = c.shape
    train, test = split_rows(n, settings.seed)
    x, t = (torch.tensor(a, dtype=torch.float32) for a in (c_hat, c))
    base = int(np.random.SeedSequence(settings.seed).generate_state(2, dtype=np.uint32)[0])
    auc = np.empty((sources, k))
    for i in range(sources):
        for j in range(k):
            net = Network(kind="binary", n_outputs=1, hidden=(HIDDEN_UNITS,), seed=base + i * k + j)
            layers = initial_weights(torch, net, 1, "glorot")
            model = torch.nn.Sequential(
                torch.nn.Linear(1, HIDDEN_UNITS), torch.nn.ReLU(), torch.nn.Linear(HIDDEN_UNITS, 1)
            )
            with torch.no_grad():
                for layer, (w, b) in zip((model[0], model[2]), layers, strict=True):
                    layer.weight.copy_(w.T)
                    layer.bias.copy_(b.reshape(-1))
            optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, eps=KERAS_EPSILON)
            loss = torch.nn.BCEWithLogitsLoss()
            xi, tj = x[train][:, [i]], t[train][:, [j]]
            generator = torch.Generator().manual_seed(settings.seed)
            for _ in range(settings.epochs):
                order = torch.randperm(len(train), generator=generator)
                for start in range(0, len(train), settings.batch_size):
                    rows = order[start : start + settings.batch_size]
                    optimiser.zero_grad()
                    loss(model(xi[rows]), tj[rows]).backward()
                    optimiser.step()
            with torch.no_grad():
                scores = model(x[test][:, [i]]).numpy().astype(float)
            auc[i, j] = column_auc(scores, c[test][:, [j]])[0]
    return auc


def timed(call: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Median milliseconds and the last result."""
    taken, result = [], None
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken), result


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of the table; the peer is timed on a few source concepts and scaled to all of them."""
    import torch

    torch.set_num_threads(1)
    n, k, epochs, sources, runs = (400, 4, 2, 2, 1) if quick else (10_000, 12, 25, 1, 5)
    c_hat, c = data(n, k)
    pairwise = ProbeSettings("pairwise", epochs, 512, 0, None)
    joint = ProbeSettings("joint", epochs, 512, 0, None)
    values = c_hat[:, :, None]
    probe_auc([values[:50]], 0, c[:50], ProbeSettings("pairwise", 1, 50, 0, None), None)  # imports
    ours_ms, ours = timed(lambda: probe_auc([values], 0, c, pairwise, None)[0], runs)
    joint_ms, _ = timed(lambda: probe_auc([values], 0, c, joint, None)[0], runs)
    part_ms, theirs = timed(lambda: one_by_one(c_hat, c, pairwise, sources), 1 if quick else 3)
    peer_ms = part_ms * k / sources
    difference = float(np.abs(ours[:sources] - theirs).max())
    sizes = f"n={n}, k={k}, {epochs} epochs of 512"
    peer = f"plain torch, one probe at a time (from {sources * k} of {k * k})"
    return [
        {
            "work": "OIS, all k x k probes at once", "peer": peer, "must": 3.0, "aim": None,
            "ratio": peer_ms / ours_ms, "ours_ms": ours_ms, "peer_ms": peer_ms, "sizes": sizes,
            "equal": f"{difference <= EQUAL_TO}, AUC to {difference:.1e}",
        },
        {
            "work": "OIS, joint heads", "peer": peer, "must": 30.0, "aim": None,
            "ratio": peer_ms / joint_ms, "ours_ms": joint_ms, "peer_ms": peer_ms, "sizes": sizes,
            "equal": "another probe: one net per source concept",
        },
    ]  # fmt: skip
