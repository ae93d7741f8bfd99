"""Losses of a probe that knows only some of the codes, and Shapley values of that game (SAGE)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.arrays import to_numpy
from concept_audit.metrics.probes.networks import NetworkWeights

__all__ = ["MaskedProbe", "Predict", "by_closed_form", "by_enumeration", "by_permutations"]

Predict = Callable[[NDArray[Any]], Any]
# Activations of one block of predictions: small enough to stay in cache.
_BLOCK_ELEMENTS = 1 << 19
_MOST_COVARIATES = 128


class MaskedProbe:
    """Losses of a probe when only some groups of codes are known."""

    def __init__(
        self,
        predict: Predict,
        x: NDArray[np.float64],
        y: NDArray[Any],
        background: NDArray[np.float64],
        categorical: bool,
        members: NDArray[np.bool_],
    ) -> None:
        self.predict = predict
        self.x, self.y, self.background = x, y, background
        self.categorical = categorical
        self.members = members  # (groups, L)
        width = background.shape[1]
        if isinstance(predict, NetworkWeights):
            width = max(width, *(w.shape[1] for w, _ in predict.layers))
            self.x, self.background = x.astype(np.float32), background.astype(np.float32)
        self.block = max(1, _BLOCK_ELEMENTS // (len(background) * width))

    def outputs(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Predictions as (n, outputs)."""
        values = to_numpy("the probe's predictions", self.predict(x))
        if values.ndim not in (1, 2) or len(values) != len(x):
            raise ValueError(
                f"the probe must return (n,) or (n, outputs) for n = {len(x)} rows, "
                f"got {values.shape}."
            )
        return values.reshape(len(x), -1).astype(np.float64)

    def losses(self, prediction: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        """Loss per row: cross entropy of clipped probabilities, or squared error."""
        if not self.categorical:
            return (prediction[:, 0] - y) ** 2
        chosen = prediction[np.arange(len(y)), y]
        return -np.log(np.clip(chosen, 1e-12, 1 - 1e-12))

    def full(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Losses with all codes known: no background is needed."""
        return self.losses(self.outputs(self.x[rows]), self.y[rows])

    def empty(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Losses with none known: one mean prediction for all rows."""
        mean = self.outputs(self.background).mean(axis=0)
        return self.losses(np.broadcast_to(mean, (len(rows), len(mean))), self.y[rows])

    def covariates(self) -> NDArray[np.float64]:
        """What is known of every row before any coalition is drawn, standardised `(n, p)`.

        The loss that all codes remove, the target, the codes, and their products with target and
        residual: they explain most of how contributions differ between rows. Many codes would need
        more draws than they save, then only the losses and the target are taken.
        """
        rows = np.arange(len(self.x))
        full, y = self.full(rows), self.y.astype(np.float64)
        columns = [self.empty(rows) - full, full, y]
        x = self.x.astype(np.float64)
        if 4 * x.shape[1] <= _MOST_COVARIATES:
            prediction = self.outputs(self.x)
            residual = -full if self.categorical else y - prediction[:, 0]
            centred = x - self.background.mean(axis=0)
            columns += [*x.T, *(centred**2).T, *(x.T * y), *(x.T * residual)]
        result = np.stack(columns, axis=1)
        result -= result.mean(axis=0)
        spread = result.std(axis=0)
        kept = spread > 1e-12
        return np.asarray(result[:, kept] / spread[kept])

    def __call__(self, rows: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Losses of rows, each with its own known groups `(r, groups)`."""
        codes = known @ self.members
        result = np.empty(len(rows))
        for start in range(0, len(rows), self.block):
            stop = start + self.block
            x, keep = self.x[rows[start:stop]], codes[start:stop]
            mixed = np.where(keep[:, None, :], x[:, None, :], self.background)
            mean = self._mean_prediction(mixed.reshape(-1, mixed.shape[2]), len(x))
            result[start:stop] = self.losses(mean, self.y[rows[start:stop]])
        return result

    def _mean_prediction(self, mixed: NDArray[Any], n: int) -> NDArray[np.float64]:
        """Mean prediction over the background of each of n rows."""
        net = self.predict
        if isinstance(net, NetworkWeights) and net.kind == "continuous":
            hidden = mixed  # the last layer is linear, so the mean is taken before it
            for weight, bias in net.layers[:-1]:
                hidden = hidden @ weight
                hidden += bias
                np.maximum(hidden, 0, out=hidden)
            weight, bias = net.layers[-1]
            pooled = hidden.reshape(n, -1, hidden.shape[1]).mean(axis=1)
            return (pooled @ weight + bias).astype(np.float64)
        values = self.outputs(mixed)
        return values.reshape(n, -1, values.shape[1]).mean(axis=1)


def _shapley_weights(n_groups: int) -> NDArray[np.float64]:
    """Weight of a coalition of each size, without the player: s! (d - s - 1)! / d!."""
    d = n_groups
    return np.array([1 / (d * math.comb(d - 1, s)) for s in range(d)])


def by_enumeration(game: MaskedProbe) -> NDArray[np.float64]:
    """SAGE contribution of every row (n, d) from all 2^d coalitions."""
    n, d = len(game.x), len(game.members)
    rows = np.arange(n)
    losses = np.empty((2**d, n))
    bits = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    losses[0], losses[-1] = game.empty(rows), game.full(rows)
    for code in range(1, 2**d - 1):
        losses[code] = game(rows, np.broadcast_to(bits[code].astype(bool), (n, d)))
    weights = _shapley_weights(d)[np.minimum(bits.sum(axis=1), d - 1)]
    result = np.empty((n, d))
    for i in range(d):
        without = np.flatnonzero(bits[:, i] == 0)
        change = losses[without] - losses[without | (1 << i)]
        result[:, i] = weights[without] @ change
    return result


def by_permutations(
    game: MaskedProbe,
    *,
    batch: int,
    threshold: float,
    limit: int,
    antithetic: bool,
    adjust: bool,
    seed: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, bool]:
    """Mean, standard error, permutations used and whether the threshold was met."""
    n, d = len(game.x), len(game.members)
    rng = np.random.default_rng(seed)
    used = 0
    covariates = game.covariates() if adjust else np.empty((n, 0))
    size = max(1, batch // 2) if antithetic else batch
    design = np.column_stack([np.ones(n), covariates])
    gram = np.zeros((design.shape[1],) * 2)
    cross, squares = np.zeros((design.shape[1], d)), np.zeros(d)
    mean, error = np.zeros(d), np.full(d, np.inf)
    while used < limit:
        rows = rng.choice(n, size)
        orders = np.tile(np.arange(d), (size, 1))
        for order in orders:
            rng.shuffle(order)
        scores = _unroll(game, rows, orders)
        used += size
        if antithetic:  # a permutation and its reverse: one draw of lower variance
            scores = (scores + _unroll(game, rows, orders[:, ::-1])) / 2
            used += size
        a = design[rows]
        gram += a.T @ a
        cross += a.T @ scores
        squares += (scores**2).sum(axis=0)
        mean, error = _intercept(gram, cross, squares)
        if error.max() / max(float(mean.max() - mean.min()), 1e-12) < threshold:
            return mean, error, used, True
    return mean, error, used, False


def _intercept(
    gram: NDArray[np.float64], cross: NDArray[np.float64], squares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the draws and its standard error, adjusted once there are enough of them.

    Covariates are centred on all rows, so the intercept of a regression on them estimates the mean
    without the part of the noise that comes from which rows were drawn.
    """
    count, p = gram[0, 0], len(gram)
    if p == 1 or count < 4 * p:
        mean = cross[0] / count
        return mean, np.sqrt(np.maximum(squares - count * mean**2, 0)) / count
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    weights = inverse @ cross
    left = np.maximum(squares - (weights * cross).sum(axis=0), 0) / (count - p)
    return weights[0], np.sqrt(left * inverse[0, 0])


def _unroll(
    game: MaskedProbe, rows: NDArray[np.int64], orders: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Drop in loss as the groups of each row become known in its order."""
    r, d = orders.shape
    rank = np.empty_like(orders)
    np.put_along_axis(rank, orders, np.broadcast_to(np.arange(d), (r, d)), axis=1)
    losses = np.empty((d + 1, r))
    losses[0], losses[d] = game.empty(rows), game.full(rows)
    if d > 1:
        known = rank[None] < np.arange(1, d)[:, None, None]
        losses[1:d] = game(np.tile(rows, d - 1), known.reshape(-1, d)).reshape(d - 1, r)
    drops = (losses[:-1] - losses[1:]).T
    return np.take_along_axis(drops, rank, axis=1)


def by_closed_form(
    weight: NDArray[np.float64],
    bias: float,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    background: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Closed form per row for a linear probe with squared error; holds for correlated codes.

    With Y = x - mean(background) and e = y - f(x) the game is quadratic in the coalition, so its
    Shapley value is the player's own term plus half of each interaction.
    """
    centred = x - background.mean(axis=0)
    residual = y - (x @ weight + bias)
    contribution = centred * weight
    return (
        contribution * contribution.sum(axis=1, keepdims=True)
        + 2 * contribution * (residual[:, None])
    )
