"""MLP probes: a linear model, then two equal hidden layers of growing width (DCI-ES, section 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.metrics.probes.base import CapacityScale, LadderFit, ProbeData, on_scale
from concept_audit.metrics.probes.networks import Network, NetworkWeights, Training, import_torch

__all__ = ["MlpProbes", "mlp_capacity", "mlp_parameters"]

# DCI-ES paper: hidden widths are these multiples of the number of factors, after a linear probe.
_WIDTH_FACTORS = (2, 4, 8, 16, 32, 64, 128, 256, 512)

MlpCapacity = Literal["excess", "hidden_only", "total"]


def mlp_parameters(n_codes: int, hidden: int, n_outputs: int) -> int:
    """Weights and biases of the probe of one factor; `hidden` 0 is the linear probe."""
    if hidden == 0:
        return (n_codes + 1) * n_outputs
    return (n_codes + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * n_outputs


def mlp_capacity(
    n_codes: int, hidden: int, n_outputs: Sequence[int], capacity: MlpCapacity
) -> float:
    """Capacity of a width, averaged over factors, before any logarithm.

    "excess" is the number of parameters beyond the linear probe (paper), not below 0; "total" all
    parameters (the authors' script); "hidden_only" leaves the output layer out and always grows.
    """
    if capacity == "hidden_only":
        return float((n_codes + 1) * hidden + (hidden + 1) * hidden if hidden else 0)
    total = float(np.mean([mlp_parameters(n_codes, hidden, o) for o in n_outputs]))
    if capacity == "total":
        return total
    if capacity == "excess":
        linear = float(np.mean([mlp_parameters(n_codes, 0, o) for o in n_outputs]))
        return max(0.0, total - linear)
    raise ValueError(f"capacity must be 'excess', 'hidden_only' or 'total', got {capacity!r}.")


@dataclass(frozen=True)
class MlpProbes:
    """Ladder of MLP probes, all factors, widths and seeds trained as one batched program.

    `widths=None` takes the paper's ladder 0, 2K, 4K, .., 512K. `reference_samples` rescales the
    epochs so that a data set of another size sees as many samples, as the authors do with the
    295,488 rows of MPI3D; `min_steps` raises them to a number of optimiser steps. The seeds of one
    call share the order of batches and differ in their initial weights.
    """

    widths: tuple[int, ...] | None = None
    learning_rate: float = 2e-4
    batch_size: int = 128
    epochs: int = 10
    milestones: tuple[float, ...] = (0.4, 0.8)
    weight_decay: float = 0.0
    capacity: MlpCapacity = "excess"
    scale: CapacityScale = "log1p"
    reference_samples: int | None = None
    min_steps: int | None = None
    evaluations: int | None = None
    name: str = "mlp"

    def ladder(self, n_factors: int) -> tuple[int, ...]:
        """Hidden widths in use, sorted."""
        if self.widths is None:
            return (0, *(n_factors * factor for factor in _WIDTH_FACTORS))
        widths = tuple(sorted(set(int(w) for w in self.widths)))
        if not widths or widths[0] < 0:
            raise ValueError(f"widths must hold hidden widths of at least 0, got {self.widths}.")
        return widths

    def n_epochs(self, n_train: int) -> int:
        """Epochs after rescaling to the reference size and the least number of steps."""
        epochs = self.epochs
        if self.reference_samples is not None:
            epochs = max(1, int(epochs * self.reference_samples // n_train))
        if self.min_steps is not None:
            epochs = max(epochs, math.ceil(self.min_steps / math.ceil(n_train / self.batch_size)))
        return epochs

    def capacities(
        self, n_codes: int, n_outputs: Sequence[int], widths: Sequence[int]
    ) -> NDArray[np.float64]:
        """Capacity of each width on the curve's axis."""
        raw = [mlp_capacity(n_codes, h, n_outputs, self.capacity) for h in widths]
        return on_scale(raw, self.scale)

    def fit(self, data: ProbeData, seeds: Sequence[int], *, device: str | None = None) -> LadderFit:
        """Train all probes at once; the best epoch is chosen per seed and width on validation."""
        import_torch("The MLP probe")
        from concept_audit.metrics.probes.batched import train_networks

        widths = self.ladder(data.n_factors)
        networks = []
        for s, seed in enumerate(seeds):
            for t, width in enumerate(widths):
                for j, n_outputs in enumerate(data.n_outputs):
                    draw = np.random.SeedSequence([seed, width, j]).generate_state(1)[0]
                    networks.append(
                        Network(
                            target=j,
                            hidden=(width, width) if width else (),
                            kind=data.kinds[j],
                            n_outputs=n_outputs,
                            seed=int(draw),
                            group=(s, t),
                        )
                    )
        factors = range(data.n_factors)
        trained = train_networks(
            [data.train.codes],
            [data.target(data.train, j) for j in factors],
            networks,
            training=Training(
                epochs=self.n_epochs(len(data.train.codes)),
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                milestones=self.milestones,
                order_seed=int(seeds[0]),
                evaluations=self.evaluations,
            ),
            validation=(
                [data.validation.codes],
                [data.target(data.validation, j) for j in factors],
            ),
            device=device,
        )
        shape = (len(seeds), len(widths), data.n_factors)
        scores = {}
        for name, split in (("validation", data.validation), ("test", data.test)):
            outputs = trained.predict([split.codes])
            rows = [
                data.scores(split, outputs[i : i + data.n_factors], "grid")
                for i in range(0, len(networks), data.n_factors)
            ]
            scores[name] = np.array(rows).reshape(shape)
        capacities = self.capacities(data.n_codes, data.n_outputs, widths)
        # "total" can put the linear probe after narrow MLPs; equal capacities keep width order.
        order = np.argsort(capacities, kind="stable")

        def probe(s: int, t: int, j: int) -> NetworkWeights:
            return trained.weights(int(np.ravel_multi_index((s, order[t], j), shape)))

        return LadderFit(
            capacities=capacities[order],
            sizes=tuple(widths[t] for t in order),
            validation_scores=scores["validation"][:, order],
            test_scores=scores["test"][:, order],
            probe=probe,
        )

    def describe(self) -> str:
        """Capacity axis in words."""
        return f"MLP probes, capacity {self.capacity} parameters, {self.scale} scale"
