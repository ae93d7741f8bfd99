"""Small probes that read each concept from each: the part of OIS that trains something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_matrix, as_vectors, check_same_rows, to_numpy
from concept_audit.metrics.accuracy import column_auc

__all__ = [
    "TEST_SHARE",
    "Heads",
    "ProbeSettings",
    "as_representations",
    "check_compat",
    "probe_auc",
    "probe_settings",
    "split_rows",
    "torch_device",
]

Heads = Literal["auto", "pairwise", "joint"]

HIDDEN_UNITS = 32  # Leakage paper's code: Dense(32, relu), Adam 1e-3 with the epsilon of Keras
LEARNING_RATE = 1e-3
KERAS_EPSILON = 1e-7
TEST_SHARE = 0.2
TRAINED = (200, 64)  # epochs, batch size: heads that converge at n = 1000
PUBLISHED = (50, 2048)  # 50 steps in all when n <= 2048: the heads stay near their initialisation
PAIRWISE_LIMIT = 20  # concepts; above, one net per source concept predicts all targets


@dataclass(frozen=True)
class ProbeSettings:
    """How the probes of an oracle matrix were trained: part of the score's identity.

    Attributes
    ----------
    heads : str
        `pairwise` (one net per pair) or `joint` (one net per source concept for all targets).
    epochs, batch_size : int
        Training length.
    seed : int
        Seed of split, order and weights.
    compat : str or None
        `reference` for the published settings.
    """

    heads: str
    epochs: int
    batch_size: int
    seed: int
    compat: str | None


def as_representations(
    c_hat: ArrayLike, c: NDArray[np.int64]
) -> Float[NDArray[np.float64], "n k m"]:
    """Learnt concepts as `(n, k, m)`, with the (n, k) of the annotations."""
    raw = to_numpy("c_hat", c_hat)
    values = as_vectors("c_hat", raw) if raw.ndim == 3 else as_matrix("c_hat", raw)[:, :, None]
    check_same_rows(c_hat=values, c=c)
    if values.shape[1] != c.shape[1]:
        raise ValueError(
            "c_hat and c must agree on the number of concepts k: got c_hat "
            f"{tuple(raw.shape)} and c {c.shape}."
        )
    return values


def check_compat(compat: str | None) -> None:
    """Refuse an unknown `compat`."""
    if compat not in (None, "reference"):
        raise ValueError(f"compat must be None or 'reference', got {compat!r}.")


def probe_settings(
    heads: str,
    epochs: int | None,
    batch_size: int | None,
    seed: int,
    compat: str | None,
    n: int,
    k: int,
) -> ProbeSettings:
    """Resolve defaults; the published settings always use joint heads."""
    check_compat(compat)
    if heads not in ("auto", "pairwise", "joint"):
        raise ValueError(f"heads must be 'auto', 'pairwise' or 'joint', got {heads!r}.")
    if heads == "auto":
        heads = "joint" if compat == "reference" or k > PAIRWISE_LIMIT else "pairwise"
    default_epochs, default_batch = PUBLISHED if compat == "reference" else TRAINED
    epochs = default_epochs if epochs is None else epochs
    batch_size = min(default_batch if batch_size is None else batch_size, n)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    return ProbeSettings(heads, int(epochs), int(batch_size), seed, compat)


def split_rows(n: int, seed: int, stream: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Seeded 80/20 split of the rows."""
    n_test = int(np.ceil(TEST_SHARE * n))
    if n < 10:
        raise ValueError(f"c needs at least 10 rows to train probes and hold out a fifth, got {n}.")
    order = np.random.default_rng([seed, stream]).permutation(n)
    return order[n_test:], order[:n_test]


def probe_auc(
    sides: list[Float[NDArray[np.float64], "n k m"]],
    first_side: int,
    c: NDArray[np.int64],
    settings: ProbeSettings,
    device: str | None,
) -> list[Float[NDArray[np.float64], "k k"]]:
    """Held-out AUC matrix of each side, all probes of all sides in one batched program."""
    from concept_audit.metrics.probes.batched import Network, Training, train_networks

    n, k = c.shape
    # The authors split each side anew; one split for both takes that noise out of the difference.
    own_split = settings.compat == "reference" and first_side == 1
    train, test = split_rows(n, settings.seed, int(own_split))
    sources = [side[:, i] for side in sides for i in range(k)]
    bases = np.random.SeedSequence(settings.seed).generate_state(2, dtype=np.uint32)
    joint = settings.heads == "joint"
    networks = []
    for s in range(len(sides)):
        base = int(bases[first_side + s])
        for i in range(k):
            for j in range(1 if joint else k):
                networks.append(
                    Network(
                        source=s * k + i,
                        target=0 if joint else j,
                        kind="binary",
                        n_outputs=k if joint else 1,
                        hidden=(HIDDEN_UNITS,),
                        seed=base + i * k + j,
                    )
                )
    labels = c.astype(np.float32)
    targets = [labels[train]] if joint else [labels[train][:, [j]] for j in range(k)]
    training = Training(
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=LEARNING_RATE,
        milestones=(),
        init="glorot",
        epsilon=KERAS_EPSILON,
        order_seed=settings.seed,
    )
    trained = train_networks(
        [x[train] for x in sources], targets, networks, training=training, device=device
    )
    logits = np.concatenate(trained.predict([x[test] for x in sources], logits=True), axis=1)
    truth = np.tile(c[test], (1, len(sides) * k))
    areas = column_auc(logits.astype(np.float64), truth)
    if settings.compat == "reference":  # the authors' code: accuracy where the AUC is undefined
        agreement = ((logits > 0) == (truth > 0)).mean(axis=0)
        areas = np.where(np.isnan(areas), agreement, areas)
    return list(areas.reshape(len(sides), k, k))


def torch_device(device: str | None, *arrays: Any) -> str | None:
    """Given device, or that of the first tensor which is not on the CPU."""
    if device is not None:
        return device
    for array in arrays:
        place = str(getattr(array, "device", "cpu"))
        if hasattr(array, "detach") and not place.startswith("cpu"):
            return place
    return None
