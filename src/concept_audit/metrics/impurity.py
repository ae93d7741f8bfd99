"""Impurity of concept representations: oracle (OIS) and niche (NIS) scores.

OIS asks how well each concept can be read from each learnt concept, compared with reading it from
the annotations; NIS asks how well a concept can be read once the learnt concepts correlated with
it are removed. Both follow Espinosa Zarlenga et al. (2023); `compat="reference"` gives what the
authors of the Leakage paper ran.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_binary_concepts
from concept_audit.metrics.accuracy import column_auc
from concept_audit.metrics.oracle_probes import (
    TEST_SHARE,
    Heads,
    ProbeSettings,
    as_representations,
    check_compat,
    probe_auc,
    probe_settings,
    split_rows,
    torch_device,
)

__all__ = [
    "NicheImpurity",
    "OracleImpurity",
    "OracleMatrix",
    "ProbeSettings",
    "niche_impurity_score",
    "oracle_impurity_score",
    "oracle_matrix",
]

BETAS = np.arange(0.0, 1.0, 0.05)
NICHE_LAYERS = (20, 20)
NICHE_BATCH = 512
NICHE_EPOCHS = 1000


@dataclass(frozen=True)
class OracleMatrix:
    """AUC of predicting concept j from annotated concept i, to be shared by many models.

    Attributes
    ----------
    auc : NDArray
        `(k, k)`, rows are sources; NaN in the column of a concept with one class in the held-out
        fifth.
    settings : ProbeSettings
        How the probes were trained.
    n_samples, n_concepts : int
        Rows and concepts.
    """

    auc: Float[NDArray[np.float64], "k k"]
    settings: ProbeSettings
    n_samples: int
    n_concepts: int


@dataclass(frozen=True)
class OracleImpurity:
    """Oracle impurity score.

    Attributes
    ----------
    mean : float
        The score, 2/k times the Frobenius norm of `matrix`: 0 when every learnt concept tells as
        much about the others as its annotation does; NaN when no entry is defined.
    per_concept : NDArray
        `(k,)`: the same norm over the row of one source concept; their squares average to that of
        `mean`.
    matrix : NDArray
        `(k, k)`: `auc - oracle_auc`, rows are sources.
    auc, oracle_auc : NDArray
        `(k, k)` held-out AUC from learnt and from annotated concepts.
    undefined_concepts : tuple of int
        Targets with a single class among the held-out rows; left out.
    settings : ProbeSettings
        How the probes were trained.
    n_samples, n_concepts : int
        Rows and concepts.
    """

    mean: float
    per_concept: Float[NDArray[np.float64], " k"]
    matrix: Float[NDArray[np.float64], "k k"]
    auc: Float[NDArray[np.float64], "k k"]
    oracle_auc: Float[NDArray[np.float64], "k k"]
    undefined_concepts: tuple[int, ...]
    settings: ProbeSettings
    n_samples: int
    n_concepts: int


@dataclass(frozen=True)
class NicheImpurity:
    """Niche impurity score.

    Attributes
    ----------
    mean : float
        Integral over the correlation threshold of the mean AUC, at most 0.95; NaN when no concept
        has two classes among the held-out rows.
    per_concept : NDArray
        `(k,)` integral for each target.
    matrix : NDArray
        `(20, k)` AUC by threshold and target.
    thresholds : NDArray
        `(20,)` correlation above which a learnt concept belongs to a target's niche.
    undefined_concepts : tuple of int
        Targets left out.
    converged : bool
        Whether the network stopped before its last epoch.
    n_masks : int
        Distinct sets of removed concepts, each predicted once.
    compat : str or None
        `reference`: what lies inside the niche is kept, so higher is better (niche completeness).
    seed, n_samples, n_concepts : int
        Seed of the split; rows; concepts.
    """

    mean: float
    per_concept: Float[NDArray[np.float64], " k"]
    matrix: Float[NDArray[np.float64], "t k"]
    thresholds: Float[NDArray[np.float64], " t"]
    undefined_concepts: tuple[int, ...]
    converged: bool
    n_masks: int
    compat: str | None
    seed: int
    n_samples: int
    n_concepts: int


def oracle_matrix(
    c: ArrayLike,
    *,
    heads: Heads = "auto",
    epochs: int | None = None,
    batch_size: int | None = None,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
    device: str | None = None,
) -> OracleMatrix:
    """AUC of predicting each annotated concept from each: the side of OIS shared by all models.

    Parameters
    ----------
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}.
    heads, epochs, batch_size, compat, seed, device : as in `oracle_impurity_score`
        They must be the same in both.

    Returns
    -------
    OracleMatrix
        To be passed as `oracle=` for each model evaluated on these rows.

    Raises
    ------
    ValueError
        As `oracle_impurity_score`.
    ImportError
        Without torch.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    n, k = concepts.shape
    settings = probe_settings(heads, epochs, batch_size, seed, compat, n, k)
    values = concepts.astype(np.float64)[:, :, None]
    (auc,) = probe_auc([values], 1, concepts, settings, torch_device(device, c))
    return OracleMatrix(auc, settings, n, k)


def oracle_impurity_score(
    c_hat: ArrayLike,
    c: ArrayLike,
    *,
    heads: Heads = "auto",
    epochs: int | None = None,
    batch_size: int | None = None,
    oracle: OracleMatrix | None = None,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
    device: str | None = None,
) -> OracleImpurity:
    """How differently learnt and annotated concepts tell about each other (OIS).

    Parameters
    ----------
    c_hat : Float[ndarray, "n k"] or Float[ndarray, "n k m"]
        Learnt concepts; for a hard model the thresholded ones.
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}.
    heads : str
        `pairwise` trains one small net per pair, `joint` one per source concept with an output
        for each target; `auto` is pairwise up to 20 concepts. Part of the result's settings.
    epochs, batch_size : int or None
        None: 200 and 64, with which the heads converge at a thousand rows.
    oracle : OracleMatrix or None
        Computed here unless given; `oracle_matrix` on the same rows and settings.
    compat : str or None
        `reference`: joint heads, 50 epochs in batches of 2048 and accuracy in place of an undefined
        AUC, as in the authors' runs. Up to 2560 rows that is 50 steps, and the score is mostly
        the noise of the initialisation (about 0.4 for annotations against themselves).
    seed : int
        Seed of split, order and weights. Both sides share the split, so that annotations scored
        against themselves give 0; with `compat="reference"` each side has its own, as in the code.
    device : str or None
        Torch device; None takes that of the tensors, else the CPU.

    Returns
    -------
    OracleImpurity
        `.mean` (lower is better), `.matrix`, both AUC matrices, the settings.

    Raises
    ------
    ValueError
        On unequal shapes, concepts other than 0 and 1, fewer than 10 rows, an oracle of other rows
        or settings, unknown options.
    ImportError
        Without torch.

    Notes
    -----
    Leakage paper, eq. 4: 2/k times the Frobenius norm of the difference of the AUC matrices, the
    diagonal included. Undefined columns are left out and the norm is scaled to the entries kept.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    values = as_representations(c_hat, concepts)
    n, k = concepts.shape
    settings = probe_settings(heads, epochs, batch_size, seed, compat, n, k)
    place = torch_device(device, c_hat, c)
    if oracle is None:
        truth = concepts.astype(np.float64)[:, :, None]
        auc, oracle_auc = _both_sides(values, truth, concepts, settings, place)
    else:
        if (oracle.n_samples, oracle.n_concepts) != (n, k) or oracle.settings != settings:
            raise ValueError(
                f"oracle must come from the same rows and settings: it has ({oracle.n_samples}, "
                f"{oracle.n_concepts}) with {oracle.settings}, here ({n}, {k}) with {settings}. "
                "Call oracle_matrix(c, ...) with the same options."
            )
        (auc,) = probe_auc([values], 0, concepts, settings, place)
        oracle_auc = oracle.auc
    matrix = auc - oracle_auc
    undefined = np.flatnonzero(np.isnan(matrix).all(axis=0))
    defined = np.delete(matrix, undefined, axis=1)
    nothing = defined.shape[1] == 0
    # (2/k) * Frobenius norm = 2 * root mean square, which also fits when columns are left out.
    rows = np.full(k, np.nan) if nothing else 2.0 * np.sqrt((defined**2).mean(axis=1))
    return OracleImpurity(
        mean=float("nan") if nothing else float(2.0 * np.sqrt((defined**2).mean())),
        per_concept=rows,
        matrix=matrix,
        auc=auc,
        oracle_auc=oracle_auc,
        undefined_concepts=tuple(int(j) for j in undefined),
        settings=settings,
        n_samples=n,
        n_concepts=k,
    )


def _both_sides(
    values: NDArray[np.float64],
    truth: NDArray[np.float64],
    c: NDArray[np.int64],
    settings: ProbeSettings,
    device: str | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Learnt and oracle AUC; one program when both sides have scalar concepts and one split."""
    if values.shape[2] == 1 and settings.compat is None:
        auc, oracle_auc = probe_auc([values, truth], 0, c, settings, device)
        return auc, oracle_auc
    (auc,) = probe_auc([values], 0, c, settings, device)
    (oracle_auc,) = probe_auc([truth], 1, c, settings, device)
    return auc, oracle_auc


def _niche_correlation(
    values: Float[NDArray[np.float64], "n k m"], c: NDArray[np.int64], signed: bool
) -> Float[NDArray[np.float64], "k k"]:
    """Largest correlation of any coordinate of concept i with annotation j; NaN never wins."""
    n, k, m = values.shape
    x = values.reshape(n, k * m)
    x = x - x.mean(axis=0)
    t = c - c.mean(axis=0)
    scale = np.sqrt((x**2).sum(axis=0))[:, None] * np.sqrt((t**2).sum(axis=0))[None, :]
    r = np.where(scale > 0.0, (x.T @ t) / np.where(scale > 0.0, scale, 1.0), -np.inf)
    r = r if signed else np.where(np.isinf(r), r, np.abs(r))
    return r.reshape(k, m, k).max(axis=1)


def niche_impurity_score(
    c_hat: ArrayLike,
    c: ArrayLike,
    *,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
    network_seed: int = 1,
) -> NicheImpurity:
    """How well concepts can be read from learnt concepts outside their niche (NIS).

    Parameters
    ----------
    c_hat : Float[ndarray, "n k"] or Float[ndarray, "n k m"]
        Learnt concepts; for a hard model the thresholded ones.
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}.
    compat : str or None
        None removes the niche, as NIS is defined, with the absolute correlation. `reference`
        keeps the niche and removes the rest, with the signed correlation: what the published
        values measure, high for good models.
    seed : int
        Seed of the 80/20 split.
    network_seed : int
        Seed of the network (scikit-learn, two layers of 20); the authors fix it to 1.

    Returns
    -------
    NicheImpurity
        `.mean` in [0, 0.95]; 0.475 is chance, lower than what a clean model gives when concepts
        are truly correlated.

    Raises
    ------
    ValueError
        On unequal shapes, concepts other than 0 and 1, a single concept, fewer than 10 rows.

    Notes
    -----
    Espinosa Zarlenga et al. (2023); Leakage paper, Appendix B. The network is trained once on all
    learnt concepts; a mask zeroes inputs, and each distinct mask is predicted once.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    check_compat(compat)
    concepts = as_binary_concepts("c", c, binary=True)
    values = as_representations(c_hat, concepts)
    n, k, m = values.shape
    if k < 2:
        raise ValueError("c needs at least 2 concepts for NIS, got 1: nothing lies outside.")
    split_rows(n, seed)  # the same rule on the number of rows as OIS
    keep = compat == "reference"
    train_v, test_v, train_c, test_c = train_test_split(
        values, concepts, test_size=TEST_SHARE, random_state=seed
    )
    # The authors' code lays vectors out coordinate by coordinate but masks concept by concept.
    order = (0, 2, 1) if keep else (0, 1, 2)
    train_x = train_v.transpose(order).reshape(len(train_v), -1)
    test_x = test_v.transpose(order).reshape(len(test_v), -1)
    network = MLPClassifier(
        NICHE_LAYERS,
        random_state=network_seed,
        max_iter=NICHE_EPOCHS,
        batch_size=min(NICHE_BATCH, len(train_x)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported as `converged`
        network.fit(train_x, train_c)
    correlation = _niche_correlation(train_v, train_c, signed=keep)
    members = correlation[None] > BETAS[:, None, None]  # (threshold, source, target)
    kept = members if keep else ~members
    masks, which = np.unique(kept.transpose(0, 2, 1).reshape(-1, k), axis=0, return_inverse=True)
    which = which.reshape(len(BETAS), k)
    matrix = np.full((len(BETAS), k), np.nan)
    for index, mask in enumerate(masks):
        predicted = network.predict_proba(test_x * np.repeat(mask, m))
        targets = np.flatnonzero((which == index).any(axis=0))
        areas = column_auc(predicted[:, targets], test_c[:, targets])
        for target, area in zip(targets, areas, strict=True):
            matrix[which[:, target] == index, target] = area
    per_concept = BETAS[1] * (matrix[:-1] + matrix[1:]).sum(axis=0) / 2.0  # trapezoids
    undefined = np.flatnonzero(np.isnan(per_concept))
    defined = np.delete(per_concept, undefined)
    return NicheImpurity(
        mean=float(defined.mean()) if defined.size else float("nan"),
        per_concept=per_concept,
        matrix=matrix,
        thresholds=BETAS.copy(),
        undefined_concepts=tuple(int(j) for j in undefined),
        converged=bool(network.n_iter_ < NICHE_EPOCHS),
        n_masks=len(masks),
        compat=compat,
        seed=seed,
        n_samples=n,
        n_concepts=k,
    )
