"""D, C, I, E and S of a representation in one call.

Paper: "DCI-ES: An Extended Disentanglement Framework with Connections to Identifiability".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.metrics.disentanglement import (
    completeness,
    disentanglement,
    informativeness,
    representation_size,
)
from concept_audit.metrics.explicitness import (
    LossCapacityCurve,
    Preset,
    as_seeds,
    curve_from_fit,
    explicitness,
    probe_family,
)
from concept_audit.metrics.importance import importance_matrix
from concept_audit.metrics.probes.base import LadderFit, ProbeData, ProbeFamily
from concept_audit.metrics.probes.networks import NetworkWeights

__all__ = ["DciEsScores", "dci_es"]

# Exact SAGE values are taken as long as they cost less than this many multiplications per factor.
_EXACT_BUDGET = 2e10


@dataclass(frozen=True)
class DciEsScores:
    """The five scores, means over seeds, with everything they were computed from.

    D, C, I are those of the capacity with the highest mean score (`best_size`), chosen per seed
    (ties: see `dci_es`); E belongs to `capacity_range`. `R` (L, K) is the mean of `R_per_seed`.
    `per_seed` holds the scores of each seed, `std` their standard deviation (ddof 0). `notes` says
    what is undefined or must be read with care.
    """

    D: float
    C: float
    I: float  # noqa: E741 -- the paper's name
    E: float
    S: float
    R: Float[np.ndarray, "L K"]
    curve: LossCapacityCurve
    capacity_range: tuple[float, float]
    D_per_code: Float[np.ndarray, " L"]
    C_per_factor: Float[np.ndarray, " K"]
    I_per_factor: Float[np.ndarray, " K"]
    I_chance_corrected: Float[np.ndarray, " K"]
    E_per_factor: Float[np.ndarray, " K"]
    R_per_seed: Float[np.ndarray, "s L K"]
    per_seed: dict[str, Float[np.ndarray, " s"]]
    std: dict[str, float]
    best_index: Int[np.ndarray, " s"]
    probe: str
    select_on: str
    importance: str
    n_samples: int
    n_codes: int
    n_factors: int
    notes: tuple[str, ...]

    @property
    def best_size(self) -> tuple[int, ...]:
        """Width, depth or number of features at which D, C and I were taken, per seed."""
        return tuple(self.curve.sizes[t] for t in self.best_index)


def dci_es(
    codes: ArrayLike,
    factors: ArrayLike,
    kinds: Sequence[str] | str,
    probe: str | ProbeFamily = "mlp",
    *,
    preset: Preset = "small",
    factor_sizes: Sequence[int] | None = None,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    n_seeds: int = 1,
    standardize_codes: bool = False,
    capacity_range: tuple[float, float] | None = None,
    select_on: Literal["test", "validation"] = "test",
    negative: Literal["abs", "clip"] = "abs",
    lstar: Literal["zero", "own"] | float = "zero",
    baseline: Literal["auto", "sizes", "frequency"] = "auto",
    sage_background: int = 32,
    sage_rows: int = 256,
    sage_threshold: float = 0.1,
    sage_permutations: int | None = None,
    groups: ArrayLike | None = None,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
    device: str | None = None,
) -> DciEsScores:
    """Disentanglement, completeness, informativeness, explicitness and size of a representation.

    Parameters
    ----------
    codes : Float[ndarray, "n L"]   representation
    factors : Int[ndarray, "n K"]   class index of each factor
    kinds : "categorical" or "continuous" per factor, or one word for all; continuous factors are
        regressed on index / (q - 1)
    probe : "mlp", "random_forest", "rff", or a `ProbeFamily` of one's own
    preset : ladder of a probe given by name: "small" fits on a laptop, "paper" is the paper's
    factor_sizes, validation, test, standardize_codes, baseline : see `loss_capacity_curve`
    n_seeds : repeated fits (paper: 10)
    capacity_range : range shared by all representations compared (`shared_capacity_range` of their
        curves); None takes this curve's own and says so in `notes`
    select_on : rows on which the capacity of D, C and I is chosen; the authors use the test rows
    negative : what becomes of negative SAGE values
    lstar : see `explicitness`
    sage_background, sage_rows, sage_threshold : SAGE of MLP and RFF probes: background rows, test
        rows for exact enumeration (at most 12 codes), and threshold of the sampled estimator
    sage_permutations : the sampled estimator stops after so many orders of the codes, its threshold
        met or not; None lets it go on. Noise adds to small importances and lowers D and C
    groups : group of each code for SAGE, as in `sage_values`
    compat : "reference" gives ties of `select_on` to the smallest capacity, as the authors' code
        does; see Notes
    device : of torch

    Returns
    -------
    DciEsScores. With one factor D is NaN, with one code C is NaN; `notes` says so. E must be read
    together with I: a representation that holds nothing has E = 1.

    Raises
    ------
    ValueError  on shapes, kinds or sizes that do not fit, a factor with a single value, a ladder of
        one capacity, or a capacity range that does not hold the curve.
    ImportError  for "mlp" without torch.

    Notes
    -----
    DCI-ES paper, sections 2 to 4. Importances: a forest's own; SAGE values for MLP and RFF probes,
    only at the chosen capacity.

    Capacities that tie on the best mean score are told apart by what R is read from. SAGE explains
    the predictions, which tied probes share: the smallest is taken. A forest's importances are
    normalised within each tree, so a tree of depth 1 gives all of them to the code it was offered,
    informative or not; at easy factors shallow forests predict perfectly by vote while every column
    of R is flat and D = 0. There the deepest of the tied forests is taken, whose splits were
    offered every code that matters. `notes` says when there was a tie.
    """
    if select_on not in ("test", "validation"):
        raise ValueError(f"select_on must be 'test' or 'validation', got {select_on!r}.")
    data = ProbeData.checked(
        codes,
        factors,
        kinds,
        factor_sizes=factor_sizes,
        validation=validation,
        test=test,
        seed=seed,
    )
    if compat not in (None, "reference"):
        raise ValueError(f"compat must be None or 'reference', got {compat!r}.")
    if sage_permutations is not None and sage_permutations < 2:
        raise ValueError(f"sage_permutations must be None or at least 2, got {sage_permutations}.")
    if standardize_codes:
        data = data.standardised()
    family = probe_family(probe, preset=preset, n_factors=data.n_factors)
    seeds = as_seeds(seed, n_seeds)
    fit = family.fit(data, seeds, device=device)
    curve = curve_from_fit(fit, data, family, seeds, baseline)
    notes = []
    if capacity_range is None:
        capacity_range = (float(curve.capacities[0]), float(curve.capacities[-1]))
        notes.append(
            f"E belongs to this curve's own capacity range {capacity_range}; to compare "
            "representations, pass one range for all."
        )
    selection = fit.test_scores if select_on == "test" else fit.validation_scores
    best, tied = _best_capacities(
        selection.mean(axis=2), largest=fit.importances is not None and compat is None
    )
    if tied:
        notes.append(
            f"{tied} of {len(best)} seeds have several capacities with the best score; D and C are "
            "those of the largest of them (compat='reference' takes the smallest)."
        )

    matrices, methods, of_D, of_C, of_E = [], set(), [], [], []
    for s, t in enumerate(best):
        matrix, method = _importances(
            fit,
            data,
            s,
            int(t),
            negative=negative,
            background=sage_background,
            rows=sage_rows,
            threshold=sage_threshold,
            permutations=sage_permutations,
            groups=groups,
            seed=seed,
        )
        matrices.append(matrix)
        methods.add(method)
        of_D.append(disentanglement(matrix))
        of_C.append(completeness(matrix))
        of_E.append(
            explicitness(
                (curve.capacities, curve.per_seed[s]),
                capacity_range=capacity_range,
                baseline=curve.baseline,
                lstar=lstar,
            )
        )
    scores = np.array([fit.test_scores[s, t] for s, t in enumerate(best)])
    informed = informativeness((1 - scores).mean(axis=0), data.kinds, baseline=curve.baseline)
    size = representation_size(data.n_codes, data.n_factors)
    per_seed = {
        "D": np.array([d.mean for d in of_D]),
        "C": np.array([c.mean for c in of_C]),
        "I": scores.mean(axis=1),
        "E": np.array([e.mean for e in of_E]),
    }
    undefined = [d.reason for d in of_D] + [c.reason for c in of_C]
    notes += [reason for reason in dict.fromkeys(undefined) if reason]
    notes += [note for note in dict.fromkeys(e.note for e in of_E) if note]
    return DciEsScores(
        **{name: float(values.mean()) for name, values in per_seed.items()},
        S=size,
        R=np.mean(matrices, axis=0),
        curve=curve,
        capacity_range=capacity_range,
        D_per_code=np.mean([d.per_code for d in of_D], axis=0),
        C_per_factor=np.mean([c.per_factor for c in of_C], axis=0),
        I_per_factor=informed.per_factor,
        I_chance_corrected=informed.chance_corrected,
        E_per_factor=np.mean([e.per_factor for e in of_E], axis=0),
        R_per_seed=np.array(matrices),
        per_seed=per_seed,
        std={name: float(values.std()) for name, values in per_seed.items()},
        best_index=best,
        probe=curve.description,
        select_on=select_on,
        importance=", ".join(sorted(methods)),
        n_samples=curve.n_samples,
        n_codes=data.n_codes,
        n_factors=data.n_factors,
        notes=tuple(notes),
    )


def _best_capacities(
    scores: NDArray[np.float64], *, largest: bool
) -> tuple[NDArray[np.int64], int]:
    """Index of the best capacity per seed; how many seeds took a later one than the first."""
    first = scores.argmax(axis=1)
    if not largest:
        return first, 0
    # Means of K scores that tie can differ in their last digits.
    near = scores >= scores.max(axis=1, keepdims=True) - 1e-12
    last = scores.shape[1] - 1 - near[:, ::-1].argmax(axis=1)
    return last, int(np.count_nonzero(last != first))


def _importances(
    fit: LadderFit,
    data: ProbeData,
    s: int,
    t: int,
    *,
    negative: Literal["abs", "clip"],
    background: int,
    rows: int,
    threshold: float,
    permutations: int | None,
    groups: ArrayLike | None,
    seed: int,
) -> tuple[NDArray[np.float64], str]:
    """R of one seed and capacity: the forest's own importances, else SAGE on the test rows."""
    if fit.importances is not None:
        return fit.importances(s, t), "gini"
    if fit.probe is None:
        raise TypeError("a probe family must return importances or probes, got neither.")
    probes = [fit.probe(s, t, j) for j in range(data.n_factors)]
    targets = np.stack(
        [data.target(data.test, j).astype(np.float64) for j in range(data.n_factors)], axis=1
    )
    n_players = data.n_codes if groups is None else len(np.unique(groups))
    rows = min(rows, len(data.test.codes))
    exact = n_players <= 12 and 2.0**n_players * rows * background * _cost(probes) < _EXACT_BUDGET
    options: dict[str, Any] = {"max_rows": rows} if exact else {"sage_method": "permutation"}
    if permutations is not None and not exact:
        options.update(batch_size=min(128, permutations), max_permutations=permutations)
    matrix = importance_matrix(
        probes,
        data.test.codes,
        targets,
        data.kinds,
        negative=negative,
        background=background,
        threshold=threshold,
        groups=groups,
        seed=seed,
        **options,
    )
    return matrix.R, "sage, exact" if exact else "sage, sampled"


def _cost(probes: Sequence[Any]) -> float:
    """Multiplications of one prediction of the largest probe; 1e4 where it cannot be told."""
    sizes = [p.n_parameters if isinstance(p, NetworkWeights) else 1e4 for p in probes]
    return float(max(sizes))
