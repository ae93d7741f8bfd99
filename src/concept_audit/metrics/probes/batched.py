"""Many small networks trained as one program of batched matrix products.

Networks are stacked on a leading axis and every step is a handful of `baddbmm` calls over shared
batches, with the gradients written out by hand: no graph is built, and the cost of launching an
operation is paid once for all networks instead of once for each. Networks of unlike width share a
bucket when padding costs little; padded units start at zero and stay exactly zero under Adam with
ReLU, so a padded network is the same network.

Used by the MLP and RFF probes of DCI-ES and by the impurity scores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import to_numpy
from concept_audit.metrics.probes.networks import (
    Network,
    NetworkWeights,
    OutputKind,
    Training,
    check_targets,
    import_torch,
    initial_weights,
    validation_score,
)

__all__ = [
    "Network",
    "NetworkWeights",
    "TrainedNetworks",
    "Training",
    "import_torch",
    "train_networks",
]

# Parameters of one bucket on a CPU: weights, gradients and both moments of Adam then fit in cache.
_CPU_BUCKET_PARAMETERS = 1 << 18
_PREDICT_ELEMENTS = 1 << 22


class _Head:
    """Output layer of neighbours in a bucket that have one kind and one number of outputs."""

    def __init__(
        self, start: int, stop: int, kind: OutputKind, y: Any, weight: Any, bias: Any
    ) -> None:
        self.rows = slice(start, stop)
        self.kind = kind
        self.y = y  # (nets, n) class indices or (nets, n, outputs)
        self.weight = weight
        self.bias = bias

    def gradient(self, logits: Any, y: Any) -> Any:
        """Derivative of the mean loss by the logits; `logits` is overwritten."""
        n, n_outputs = logits.shape[1:]
        if self.kind == "categorical":
            gradient = logits.softmax(-1)
            index = y.unsqueeze(-1)
            gradient.scatter_add_(2, index, gradient.new_full((1, 1, 1), -1.0).expand(index.shape))
            return gradient.div_(n)
        if self.kind == "binary":
            return logits.sigmoid_().sub_(y).div_(n * n_outputs)
        return logits.sub_(y).mul_(2.0 / (n * n_outputs))


class _Bucket:
    """Networks of like width, their weights stacked and padded to the widest of them."""

    def __init__(
        self,
        torch: Any,
        networks: Sequence[Network],
        members: Sequence[int],
        n_inputs: int,
        targets: Sequence[Any],
        training: Training,
        device: Any,
        dtype: Any,
    ) -> None:
        self.torch = torch
        # Neighbours with the same kind and number of outputs share one output layer.
        self.members = sorted(
            members, key=lambda i: (networks[i].kind, networks[i].n_outputs, networks[i].source)
        )
        nets = [networks[i] for i in self.members]
        self.networks = nets
        depth = len(nets[0].hidden)
        widths = [max(net.hidden[layer] for net in nets) for layer in range(depth)]
        self.n_inputs = n_inputs
        self.source = torch.tensor([net.source for net in nets], device=device)
        self.one_source = nets[0].source if len({net.source for net in nets}) == 1 else None
        fans = [n_inputs, *widths]
        drawn = [initial_weights(torch, net, n_inputs, training.init) for net in nets]

        def stacked(rows: slice, layer: int, n_in: int, n_out: int) -> tuple[Any, Any]:
            """Weights and biases of one layer of some networks, padded with zeros."""
            chosen = drawn[rows]
            weight = torch.zeros(len(chosen), n_in, n_out, dtype=dtype)
            bias = torch.zeros(len(chosen), 1, n_out, dtype=dtype)
            for i, layers in enumerate(chosen):
                w, b = layers[layer]
                weight[i, : w.shape[0], : w.shape[1]] = w
                bias[i, 0, : b.shape[0]] = b
            return weight.to(device), bias.to(device)

        everyone = slice(0, len(nets))
        self.hidden = [stacked(everyone, i, fans[i], fans[i + 1]) for i in range(depth)]
        self.heads: list[_Head] = []
        start = 0
        for stop in range(1, len(nets) + 1):
            same = stop < len(nets) and (
                (nets[stop].kind, nets[stop].n_outputs) == (nets[start].kind, nets[start].n_outputs)
            )
            if not same:
                rows = slice(start, stop)
                y = _stack_targets(
                    torch, [targets[net.target] for net in nets[rows]], device, dtype
                )
                weight, bias = stacked(rows, depth, fans[-1], nets[start].n_outputs)
                self.heads.append(_Head(start, stop, nets[start].kind, y, weight, bias))
                start = stop
        pairs = [*self.hidden, *((head.weight, head.bias) for head in self.heads)]
        self.parameters = [tensor for pair in pairs for tensor in pair]
        for tensor in self.parameters:
            tensor.grad = torch.zeros_like(tensor)
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            eps=training.epsilon,
            fused=True,
        )
        self.best = [tensor.clone() for tensor in self.parameters]

    def inputs(self, sources: Any) -> Any:
        """Batch of each network `(nets, n, n_inputs)` from the batch of each source."""
        if self.one_source is not None:
            x = sources[self.one_source, :, : self.n_inputs]
            return x.expand(len(self.networks), *x.shape)
        return sources[self.source, :, : self.n_inputs]

    def step(self, sources: Any, rows: Any) -> None:
        """One step of the optimiser on the batch with these row numbers."""
        torch = self.torch
        activations = [self.inputs(sources)]
        for weight, bias in self.hidden:
            activations.append(torch.baddbmm(bias, activations[-1], weight).relu_())
        last = activations[-1]
        downstream = torch.empty_like(last) if self.hidden else None
        for head in self.heads:
            a = last[head.rows]
            logits = torch.baddbmm(head.bias, a, head.weight)
            y = head.y.index_select(1, rows)
            gradient = head.gradient(logits, y)
            torch.bmm(a.transpose(1, 2), gradient, out=head.weight.grad)
            torch.sum(gradient, 1, keepdim=True, out=head.bias.grad)
            if downstream is not None:
                torch.bmm(gradient, head.weight.transpose(1, 2), out=downstream[head.rows])
        for layer in range(len(self.hidden) - 1, -1, -1):
            weight, bias = self.hidden[layer]
            downstream = torch.ops.aten.threshold_backward(downstream, activations[layer + 1], 0)
            torch.bmm(activations[layer].transpose(1, 2), downstream, out=weight.grad)
            torch.sum(downstream, 1, keepdim=True, out=bias.grad)
            if layer:
                downstream = torch.bmm(downstream, weight.transpose(1, 2))
        self.optimiser.step()

    def logits(self, sources: Any, parameters: Sequence[Any]) -> list[Any]:
        """Outputs per head on a batch, with the given weights."""
        torch = self.torch
        a = self.inputs(sources)
        n_hidden = 2 * len(self.hidden)
        for i in range(0, n_hidden, 2):
            a = torch.baddbmm(parameters[i + 1], a, parameters[i]).relu_()
        return [
            torch.baddbmm(
                parameters[n_hidden + 2 * i + 1], a[head.rows], parameters[n_hidden + 2 * i]
            )
            for i, head in enumerate(self.heads)
        ]

    def chunk(self) -> int:
        """Rows per forward pass that keep the largest activation small."""
        width = max([1, *(weight.shape[2] for weight, _ in self.hidden)])
        width = max(width, *(head.weight.shape[2] for head in self.heads))
        return max(256, _PREDICT_ELEMENTS // (len(self.networks) * width))

    def keep(self, improved: Sequence[bool]) -> None:
        """Copy the present weights of the networks that improved."""
        mask = self.torch.tensor(list(improved), device=self.parameters[0].device)
        n_hidden = 2 * len(self.hidden)
        for i, (best, now) in enumerate(zip(self.best, self.parameters, strict=True)):
            rows = mask if i < n_hidden else mask[self.heads[(i - n_hidden) // 2].rows]
            best[rows] = now[rows]


def _stack_targets(torch: Any, columns: Sequence[NDArray[Any]], device: Any, dtype: Any) -> Any:
    """Targets of neighbours in one tensor; class indices stay integers."""
    stacked = torch.from_numpy(np.stack(columns))
    if stacked.is_floating_point():
        return stacked.to(device=device, dtype=dtype)
    return stacked.to(device)


def _buckets(
    networks: Sequence[Network], sizes: Sequence[int], on_gpu: bool
) -> list[tuple[int, list[int]]]:
    """Group networks that may share a program: (input width, members) per bucket."""

    def stage(width: int) -> int:
        # On a GPU launches dominate up to a few hundred units; on a CPU padded units cost time.
        if on_gpu:
            return 0 if width <= 64 else 1 if width <= 256 else width
        return 0 if width <= 16 else round(2 * math.log2(width))

    grouped: dict[Any, list[int]] = {}
    for i, net in enumerate(networks):
        n_inputs = sizes[net.source] if net.n_inputs is None else net.n_inputs
        grouped.setdefault((n_inputs, tuple(stage(w) for w in net.hidden)), []).append(i)
    result = []
    for (n_inputs, _), members in grouped.items():
        members = sorted(members, key=lambda i: networks[i].hidden)
        limit = len(members)
        if not on_gpu:
            largest = networks[members[-1]]
            widths = [n_inputs, *largest.hidden, largest.n_outputs]
            size = sum(a * b for a, b in itertools.pairwise(widths))
            limit = max(1, _CPU_BUCKET_PARAMETERS // max(size, 1))
        result += [(n_inputs, members[i : i + limit]) for i in range(0, len(members), limit)]
    return result


class TrainedNetworks:
    """Networks after training: predictions, weights and the history of validation scores."""

    def __init__(
        self,
        torch: Any,
        networks: Sequence[Network],
        buckets: Sequence[_Bucket],
        device: Any,
        dtype: Any,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        self._torch = torch
        self.networks = tuple(networks)
        self._buckets = tuple(buckets)
        self._device = device
        self._dtype = dtype
        self._transform = transform
        self.validation_scores: NDArray[np.float64] = np.zeros((0, len(networks)))
        """Validation score per evaluated epoch and network (empty without validation data)."""
        self.best_epochs: NDArray[np.int64] = np.full(len(networks), -1)
        """Epoch whose weights were kept, counted from 0."""

    def _batches(self, sources: Any, rows: int) -> Any:
        for start in range(0, sources.shape[1], rows):
            batch = sources[:, start : start + rows].to(self._device)
            yield start, batch if self._transform is None else self._transform(batch)

    def _outputs(self, sources: Any, *, logits: bool, best: bool) -> list[NDArray[Any]]:
        n = sources.shape[1]
        numpy_dtype = np.float64 if self._dtype == self._torch.float64 else np.float32
        results = [np.empty((n, net.n_outputs), dtype=numpy_dtype) for net in self.networks]
        with self._torch.no_grad():
            for bucket in self._buckets:
                parameters = bucket.best if best else bucket.parameters
                for start, batch in self._batches(sources, bucket.chunk()):
                    parts = bucket.logits(batch, parameters)
                    for head, out in zip(bucket.heads, parts, strict=True):
                        if head.kind == "categorical" and not logits:
                            out = out.softmax(-1)
                        elif head.kind == "binary" and not logits:
                            out = out.sigmoid()
                        for member, values in zip(
                            bucket.members[head.rows], out.cpu(), strict=True
                        ):
                            results[member][start : start + len(values)] = values.numpy()
        return results

    def predict(self, inputs: Sequence[ArrayLike], *, logits: bool = False) -> list[NDArray[Any]]:
        """Predictions of each network, `(n, n_outputs)`: probabilities, or values if continuous."""
        return self._outputs(
            _stack_inputs(self._torch, inputs, self._dtype), logits=logits, best=True
        )

    def weights(self, index: int) -> NetworkWeights:
        """Weights of one network without its padding."""
        if not 0 <= index < len(self.networks):
            raise IndexError(f"index must be below {len(self.networks)}, got {index}.")
        net = self.networks[index]
        layers = []
        for bucket in self._buckets:
            if index not in bucket.members:
                continue
            row = bucket.members.index(index)
            n_in = bucket.n_inputs
            for i, width in enumerate(net.hidden):
                weight, bias = bucket.best[2 * i][row], bucket.best[2 * i + 1][row, 0]
                layers.append((weight[:n_in, :width], bias[:width]))
                n_in = width
            for i, head in enumerate(bucket.heads):
                if head.rows.start <= row < head.rows.stop:
                    place = 2 * (len(bucket.hidden) + i)
                    weight = bucket.best[place][row - head.rows.start]
                    layers.append((weight[:n_in], bucket.best[place + 1][row - head.rows.start, 0]))
        return NetworkWeights(
            net.kind, tuple((w.float().cpu().numpy(), b.float().cpu().numpy()) for w, b in layers)
        )


def _stack_inputs(torch: Any, inputs: Sequence[ArrayLike], dtype: Any) -> Any:
    """All sources as one tensor `(sources, n, width)`, narrow ones padded with zero columns."""
    arrays = [to_numpy(f"inputs[{i}]", x) for i, x in enumerate(inputs)]
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"inputs must hold matrices (n, d) with one n, got inputs[{i}] {array.shape} "
                f"beside inputs[0] {arrays[0].shape}. For one column pass x[:, None]."
            )
    width = max(array.shape[1] for array in arrays)
    if len(arrays) == 1 and arrays[0].flags.c_contiguous and arrays[0].flags.writeable:
        return torch.from_numpy(arrays[0]).to(dtype).unsqueeze(0)
    stacked = torch.zeros(len(arrays), arrays[0].shape[0], width, dtype=dtype)
    for i, array in enumerate(arrays):
        stacked[i, :, : array.shape[1]] = torch.tensor(np.ascontiguousarray(array), dtype=dtype)
    return stacked


def train_networks(
    inputs: Sequence[ArrayLike],
    targets: Sequence[ArrayLike],
    networks: Sequence[Network],
    *,
    training: Training | None = None,
    validation: tuple[Sequence[ArrayLike], Sequence[ArrayLike]] | None = None,
    transform: Callable[[Any], Any] | None = None,
    transformed_width: int | None = None,
    device: str | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> TrainedNetworks:
    """Train many small networks on shared batches, as few batched programs.

    Parameters
    ----------
    inputs : matrices `(n, d)`; each network reads one of them (`Network.source`)
    targets : class indices `(n,)` for categorical networks, `(n,)` or `(n, outputs)` for others
    networks : what to train
    training : epochs, batch size, optimiser and schedule, shared by all networks
    validation : inputs and targets on which the best epoch is chosen; without it the last is kept
    transform : applied to each batch of inputs `(sources, batch, d)`, a torch function without
        parameters (for example random Fourier features); `transformed_width` is its output width
    device : of torch; None takes the CPU

    Returns
    -------
    TrainedNetworks, in the order of `networks`. A network trained in company equals the same
    network trained alone up to the rounding of float32 (about 1e-6 after some hundred steps).

    Raises
    ------
    ImportError  without torch.
    ValueError  on shapes, kinds or indices that do not fit, or if a loss is no longer finite.
    """
    torch = import_torch("Training networks")
    training = training or Training()
    if not networks:
        raise ValueError("networks must hold at least one Network, got none.")
    place = torch.device("cpu" if device is None else device)
    kind = torch.float64 if dtype == "float64" else torch.float32
    sources = _stack_inputs(torch, inputs, kind)
    n = sources.shape[1]
    columns = check_targets(targets, networks, n, len(inputs), "targets")
    width = [to_numpy("inputs", x).shape[1] for x in inputs]
    if transform is not None:
        if transformed_width is None:
            raise ValueError("transform needs transformed_width, the number of columns it returns.")
        width = [transformed_width] * len(inputs)
    buckets = [
        _Bucket(torch, networks, members, n_inputs, columns, training, place, kind)
        for n_inputs, members in _buckets(networks, width, place.type == "cuda")
    ]
    trained = TrainedNetworks(torch, networks, buckets, place, kind, transform)
    sources = sources.to(place)
    held: tuple[Any, list[NDArray[Any]]] | None = None
    if validation is not None:
        held_x = _stack_inputs(torch, validation[0], kind)
        held = (
            held_x,
            check_targets(
                validation[1], networks, held_x.shape[1], len(inputs), "validation targets"
            ),
        )
    groups = [(i,) if net.group is None else net.group for i, net in enumerate(networks)]
    best: dict[Hashable, float] = {}
    history = []
    evaluated = training.evaluated()
    generator = torch.Generator().manual_seed(training.order_seed)
    with torch.no_grad():
        for epoch in range(training.epochs):
            order = torch.randperm(n, generator=generator).to(place)
            for bucket in buckets:
                for settings in bucket.optimiser.param_groups:
                    settings["lr"] = training.learning_rate_at(epoch)
            for bucket in buckets:  # one bucket at a time: its weights stay in cache for an epoch
                for start in range(0, n, training.batch_size):
                    rows = order[start : start + training.batch_size]
                    batch = sources.index_select(1, rows)
                    bucket.step(batch if transform is None else transform(batch), rows)
            _check_finite(torch, buckets, epoch, training)
            if held is None or epoch not in evaluated:
                continue
            outputs = trained._outputs(held[0], logits=True, best=False)
            scores = np.array(
                [
                    validation_score(net, out, held[1][net.target])
                    for net, out in zip(networks, outputs, strict=True)
                ]
            )
            history.append(scores)
            improved = set()
            for group in dict.fromkeys(groups):
                mean = float(
                    np.mean([s for s, g in zip(scores, groups, strict=True) if g == group])
                )
                if mean > best.get(group, -math.inf):
                    best[group] = mean
                    improved.add(group)
            for bucket in buckets:
                bucket.keep([groups[i] in improved for i in bucket.members])
            trained.best_epochs[[g in improved for g in groups]] = epoch
        if held is None:
            for bucket in buckets:
                bucket.keep([True] * len(bucket.members))
            trained.best_epochs[:] = training.epochs - 1
        else:
            trained.validation_scores = np.array(history)
    return trained


def _check_finite(torch: Any, buckets: Sequence[_Bucket], epoch: int, training: Training) -> None:
    """Weights that are no longer numbers end the training with the settings that led there."""
    for bucket in buckets:
        if not all(bool(torch.isfinite(tensor).all()) for tensor in bucket.parameters):
            raise ValueError(
                f"Weights are not finite after epoch {epoch + 1} at learning_rate "
                f"{training.learning_rate}. Lower it, or standardise the inputs."
            )
