"""Random Fourier feature probes: a linear model on m features of a Gaussian kernel (DCI-ES, 6).

The m-feature map is made of the first m columns of the largest map, so all ladder steps share one
factorisation: with G = F'F/n + ridge = L L' the columns of W = F L'^-1 are orthonormal on the
training rows, and because L' is triangular the first m columns of W belong to the first m of F.
Ridge regression for every m is then a cumulative sum. Categorical factors get a softmax layer,
fitted by L-BFGS in the coordinates of W, where the problem is well conditioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.metrics.probes.base import CapacityScale, LadderFit, ProbeData, on_scale
from concept_audit.metrics.probes.networks import Network, Training, import_torch

__all__ = ["FourierProbe", "RffProbes", "fourier_features", "nested_ridge", "softmax_regression"]

# Beyond this the factor of the Gram matrix (m^2) or the features (n m) get too large to hold.
_EXACT_FEATURES = 4096
_EXACT_ELEMENTS = 1 << 28


def fourier_features(codes: NDArray[Any], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interleaved cos and sin of 2 pi B c, `(n, 2 * frequencies)`: prefixes are smaller maps."""
    phase = 2 * np.pi * (codes @ frequencies.T)
    result = np.empty((len(phase), 2 * phase.shape[1]))
    result[:, 0::2] = np.cos(phase)
    result[:, 1::2] = np.sin(phase)
    return result


@dataclass(frozen=True)
class FourierProbe:
    """Fitted probe of one factor and one m: predicts from codes."""

    kind: str
    frequencies: NDArray[np.float64]
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __call__(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities or values `(n, outputs)`."""
        features = fourier_features(codes, self.frequencies)
        out = features @ self.weight + self.bias
        return _softmax(out) if self.kind == "categorical" else out


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def nested_ridge(
    features: NDArray[np.float64], ridge: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower Cholesky factor L of F'F/n + ridge, and W = F L'^-1; one call serves all prefixes."""
    from scipy.linalg import cholesky, solve_triangular

    gram = features.T @ features / len(features)
    gram[np.diag_indices_from(gram)] += ridge
    lower = cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    white = solve_triangular(lower, features.T, lower=True, check_finite=False).T
    return lower, white


def softmax_regression(
    white: NDArray[np.float64],
    lower: NDArray[np.float64],
    classes: NDArray[np.int64],
    start: NDArray[np.float64],
    *,
    ridge: float,
    max_iterations: int,
) -> NDArray[np.float64]:
    """Weights (1 + m, q) of a softmax layer, intercept first, in the coordinates of `white`.

    Minimises cross entropy + ridge / 2 |w|^2 with w = L'^-1 v the weights on the raw features.
    """
    from scipy.linalg import solve_triangular
    from scipy.optimize import minimize

    n, m = white.shape
    q = start.shape[1]
    rows = np.arange(n)

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        v = flat.reshape(1 + m, q)
        logits = white @ v[1:] + v[0]
        logits -= logits.max(axis=1, keepdims=True)
        probability = np.exp(logits)
        total = probability.sum(axis=1)
        value = float(np.mean(np.log(total) - logits[rows, classes]))
        probability /= total[:, None]
        probability[rows, classes] -= 1
        raw = solve_triangular(lower, v[1:], lower=True, trans="T", check_finite=False)
        pull = solve_triangular(lower, raw, lower=True, check_finite=False)
        gradient = np.empty_like(v)
        gradient[0] = probability.mean(axis=0)
        gradient[1:] = white.T @ probability / n + ridge * pull
        return value + 0.5 * ridge * float((raw**2).sum()), gradient.ravel()

    found = minimize(
        loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": max_iterations}
    )
    return np.asarray(found.x, dtype=np.float64).reshape(1 + m, q)


@dataclass(frozen=True)
class RffProbes:
    """Ladder of random Fourier feature probes by the number of features m.

    `sigma` is the standard deviation of the frequencies (0.08 in the authors' code for ten-wide VAE
    codes), or "median" for 1 / (2 pi median distance), which suits wide codes. Factors are exact:
    ridge regression and softmax regression with `ridge` and `softmax_ridge`. `solver="adam"` trains
    mini-batches with torch, for m or n too large to factorise; "auto" takes it beyond 4096 features
    or 2^28 feature values.
    """

    features: tuple[int, ...] = tuple(2**i for i in range(4, 18))  # paper: 2^4 .. 2^17
    sigma: float | Literal["median"] = 0.08
    ridge: float = 1e-6
    softmax_ridge: float = 1e-6
    max_iterations: int = 100
    solver: Literal["auto", "exact", "adam"] = "auto"
    scale: CapacityScale = "log"
    learning_rate: float = 1e-3
    batch_size: int = 128
    epochs: int = 10
    name: str = "rff"

    def __post_init__(self) -> None:
        if not self.features or any(m < 2 or m % 2 for m in self.features):
            raise ValueError(f"features must be even numbers of at least 2, got {self.features}.")
        if self.sigma != "median" and not self.sigma > 0:
            raise ValueError(f"sigma must be positive or 'median', got {self.sigma!r}.")
        if self.solver not in ("auto", "exact", "adam"):
            raise ValueError(f"solver must be 'auto', 'exact' or 'adam', got {self.solver!r}.")

    def frequencies(self, data: ProbeData, seed: int) -> NDArray[np.float64]:
        """Frequencies of the largest map; smaller maps take the first of them."""
        rng = np.random.default_rng(seed)
        sigma = self.sigma
        if sigma == "median":
            from scipy.spatial.distance import pdist

            chosen = rng.permutation(len(data.train.codes))[:1000]
            sigma = 1 / (2 * np.pi * max(float(np.median(pdist(data.train.codes[chosen]))), 1e-12))
        return rng.normal(scale=sigma, size=(max(self.features) // 2, data.n_codes))

    def fit(self, data: ProbeData, seeds: Sequence[int], *, device: str | None = None) -> LadderFit:
        """Fit all feature counts; each seed draws its own frequencies."""
        ladder = sorted(set(self.features))
        largest = ladder[-1]
        too_large = largest > _EXACT_FEATURES or largest * len(data.train.codes) > _EXACT_ELEMENTS
        adam = self.solver == "adam" or (self.solver == "auto" and too_large)
        shape = (len(seeds), len(ladder), data.n_factors)
        validation, test = np.empty(shape), np.empty(shape)
        probes: dict[tuple[int, int, int], FourierProbe] = {}
        for s, seed in enumerate(seeds):
            frequencies = self.frequencies(data, seed)
            fitted = (
                self._by_adam(data, frequencies, ladder, seed, device)
                if adam
                else self._exact(data, frequencies, ladder)
            )
            for (t, j), probe in fitted.items():
                probes[s, t, j] = probe
            for t in range(len(ladder)):
                for split, scores in ((data.validation, validation), (data.test, test)):
                    features = fourier_features(split.codes, probes[s, t, 0].frequencies)
                    outputs = [
                        features @ probes[s, t, j].weight + probes[s, t, j].bias
                        for j in range(data.n_factors)
                    ]
                    scores[s, t] = data.scores(split, outputs, "grid")
        return LadderFit(
            capacities=on_scale(ladder, self.scale),
            sizes=tuple(ladder),
            validation_scores=validation,
            test_scores=test,
            probe=lambda s, t, j: probes[s, t, j],
        )

    def _exact(
        self, data: ProbeData, frequencies: NDArray[np.float64], ladder: Sequence[int]
    ) -> dict[tuple[int, int], FourierProbe]:
        """One factorisation for all m; each softmax starts from the one before."""
        from scipy.linalg import solve_triangular

        features = fourier_features(data.train.codes, frequencies)
        center = features.mean(axis=0)
        lower, white = nested_ridge(features - center, self.ridge)
        probes = {}

        def probe(t: int, j: int, v: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
            """Bring weights back to the raw features."""
            m = ladder[t]
            weight = solve_triangular(lower[:m, :m], v, lower=True, trans="T", check_finite=False)
            bias = intercept - center[:m] @ weight
            probes[t, j] = FourierProbe(data.kinds[j], frequencies[: m // 2], weight, bias)

        for j, n_outputs in enumerate(data.n_outputs):
            target = data.target(data.train, j)
            if data.kinds[j] == "continuous":
                mean = target.mean()
                projected = white.T @ (target - mean) / len(white)
                for t, m in enumerate(ladder):
                    probe(t, j, projected[:m, None], np.array([mean]))
                continue
            v = np.zeros((1, n_outputs))
            for t, m in enumerate(ladder):
                start = np.vstack([v, np.zeros((1 + m - len(v), n_outputs))])
                v = softmax_regression(
                    white[:, :m],
                    lower[:m, :m],
                    target,
                    start,
                    ridge=self.softmax_ridge,
                    max_iterations=self.max_iterations,
                )
                probe(t, j, v[1:], v[0])
        return probes

    def _by_adam(
        self,
        data: ProbeData,
        frequencies: NDArray[np.float64],
        ladder: Sequence[int],
        seed: int,
        device: str | None,
    ) -> dict[tuple[int, int], FourierProbe]:
        """Mini-batches through the batched program; features are drawn up per batch."""
        torch = import_torch("The RFF probe with solver='adam'")
        from concept_audit.metrics.probes.batched import train_networks

        place = torch.device("cpu" if device is None else device)
        turn = torch.tensor(2 * np.pi * frequencies.T, dtype=torch.float32, device=place)

        def transform(batch: Any) -> Any:
            phase = batch @ turn
            return torch.stack([phase.cos(), phase.sin()], dim=-1).flatten(-2)

        pairs = [(t, j) for t in range(len(ladder)) for j in range(data.n_factors)]
        trained = train_networks(
            [data.train.codes],
            [data.target(data.train, j) for j in range(data.n_factors)],
            [
                Network(
                    target=j,
                    kind=data.kinds[j],
                    n_outputs=data.n_outputs[j],
                    seed=seed,
                    group=t,
                    n_inputs=ladder[t],
                )
                for t, j in pairs
            ],
            training=Training(
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                order_seed=seed,
            ),
            validation=(
                [data.validation.codes],
                [data.target(data.validation, j) for j in range(data.n_factors)],
            ),
            transform=transform,
            transformed_width=2 * len(frequencies),
            device=device,
        )
        probes = {}
        for i, (t, j) in enumerate(pairs):
            ((weight, bias),) = trained.weights(i).layers
            probes[t, j] = FourierProbe(
                data.kinds[j],
                frequencies[: ladder[t] // 2],
                weight.astype(np.float64),
                bias.astype(np.float64),
            )
        return probes

    def describe(self) -> str:
        """Capacity axis in words."""
        return f"random Fourier features, sigma {self.sigma}, capacity m, {self.scale} scale"
