"""Many small networks as one: stacked weights, products over the stack, gradients written by hand.

Every array has the members in front: inputs ``(M, b, d)``, a linear layer's weights
``(M, out, in)``. Nothing ever mixes members, so each computes what it would compute alone, up to
the order in which a product adds its terms. Tests hold the gradients against autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from concept_audit.models.cbm import CBM
from concept_audit.models.cem import CEM
from concept_audit.models.encoders import LEAKY_SLOPE

__all__ = [
    "BatchedCBM",
    "BatchedCEM",
    "BatchedHead",
    "BatchedNetwork",
    "BatchedSequential",
    "ParameterStack",
]

_leaky_backward = torch.ops.aten.leaky_relu_backward.grad_input
_relu_backward = torch.ops.aten.threshold_backward.grad_input


class ParameterStack:
    """Weights of M members in one matrix (M, P), with a view per name, and the same for gradients.

    Parameters
    ----------
    states : list of dict of str to Tensor
        One state per member, all with the same names and shapes.
    names : list of str
        The weights to train, in this order.
    device : str or torch.device
        Where they live.
    """

    def __init__(
        self,
        states: Sequence[dict[str, torch.Tensor]],
        names: Sequence[str],
        device: str | torch.device = "cpu",
    ) -> None:
        self.names = list(names)
        self.shapes = [tuple(states[0][name].shape) for name in names]
        rows = [torch.cat([state[name].reshape(-1) for name in names]) for state in states]
        self._take(torch.stack(rows).to(device=device, dtype=torch.float32))

    def _take(self, values: torch.Tensor) -> None:
        self.values = values
        self.grads = torch.zeros_like(values)
        self._value_views = self._views(self.values)
        self._grad_views = self._views(self.grads)

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        views, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            size = int(torch.Size(shape).numel())
            views[name] = flat[:, start : start + size].unflatten(1, shape or (1,))
            start += size
        return views

    def __len__(self) -> int:
        return len(self.values)

    def value(self, name: str) -> torch.Tensor:
        """Weights of all members under this name."""
        return self._value_views[name]

    def grad(self, name: str) -> torch.Tensor:
        """Gradients of all members under this name."""
        return self._grad_views[name]

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these members only."""
        self._take(self.values[rows].clone())

    def unstack(self, flat_row: torch.Tensor) -> dict[str, torch.Tensor]:
        """CPU copies by name of one row (P,)."""
        views = self._views(flat_row.detach().cpu().clone()[None])
        return {name: view[0].clone() for name, view in views.items()}


class _Linear:
    """Affine map per member."""

    def __init__(self, stack: ParameterStack, prefix: str) -> None:
        self.stack = stack
        self.weight = f"{prefix}.weight"
        self.bias = f"{prefix}.bias"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x = x
        bias = self.stack.value(self.bias).unsqueeze(1)
        return torch.baddbmm(bias, x, self.stack.value(self.weight).transpose(1, 2))

    def backward(self, grad: torch.Tensor, needs_input: bool) -> torch.Tensor | None:
        self.stack.grad(self.weight).copy_(torch.bmm(grad.transpose(1, 2), self.x))
        torch.sum(grad, dim=1, out=self.stack.grad(self.bias))
        return torch.bmm(grad, self.stack.value(self.weight)) if needs_input else None


class _LayerNorm:
    """Normalisation over the last axis, with weights per member."""

    def __init__(self, stack: ParameterStack, prefix: str, eps: float) -> None:
        self.stack = stack
        self.weight = f"{prefix}.weight"
        self.bias = f"{prefix}.bias"
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x = x
        size = [x.shape[-1]]
        self.normal, self.mean, self.rstd = torch.native_layer_norm(x, size, None, None, self.eps)
        weight = self.stack.value(self.weight).unsqueeze(1)
        return torch.addcmul(self.stack.value(self.bias).unsqueeze(1), self.normal, weight)

    def backward(self, grad: torch.Tensor, needs_input: bool) -> torch.Tensor | None:
        torch.sum(grad * self.normal, dim=1, out=self.stack.grad(self.weight))
        torch.sum(grad, dim=1, out=self.stack.grad(self.bias))
        inner = grad * self.stack.value(self.weight).unsqueeze(1)
        size = [self.x.shape[-1]]
        mask = [True, False, False]
        result: torch.Tensor = torch.ops.aten.native_layer_norm_backward(
            inner, self.x, size, self.mean, self.rstd, None, None, mask
        )[0]
        return result


class _Rectifier:
    """ReLU or LeakyReLU, in place on a fresh array."""

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.slope:
            self.y = nn.functional.leaky_relu_(x, self.slope)
        else:
            self.y = x.relu_()
        return self.y

    def backward(self, grad: torch.Tensor, needs_input: bool) -> torch.Tensor | None:
        if self.slope:
            _leaky_backward(grad, self.y, self.slope, True, grad_input=grad)
        else:
            _relu_backward(grad, self.y, 0, grad_input=grad)
        return grad


class BatchedSequential:
    """The batched form of a linear layer or of a plain sequence of layers.

    Parameters
    ----------
    stack : ParameterStack
        Weights, under the names of the model's state.
    template : nn.Module
        ``nn.Linear``, or ``nn.Sequential`` of Linear, LayerNorm, ReLU, LeakyReLU and Flatten.
    prefix : str
        Name of the template inside the model.

    Raises
    ------
    TypeError
        If the template holds another layer.
    """

    def __init__(self, stack: ParameterStack, template: nn.Module, prefix: str) -> None:
        single = isinstance(template, nn.Linear)
        children = [("", template)] if single else list(template.named_children())
        self.layers: list[_Linear | _LayerNorm | _Rectifier] = []
        for name, layer in children:
            path = f"{prefix}.{name}" if name else prefix
            if isinstance(layer, nn.Linear):
                self.layers.append(_Linear(stack, path))
            elif isinstance(layer, nn.LayerNorm):
                self.layers.append(_LayerNorm(stack, path, layer.eps))
            elif isinstance(layer, nn.LeakyReLU):
                self.layers.append(_Rectifier(layer.negative_slope))
            elif isinstance(layer, nn.ReLU):
                self.layers.append(_Rectifier(0.0))
            elif not isinstance(layer, nn.Flatten):
                raise TypeError(
                    f"a bank holds Linear, LayerNorm, ReLU and LeakyReLU layers, got "
                    f"{type(layer).__name__} at {path}. Train this model by itself."
                )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (M, b, out) of inputs (M, b, in); keeps what `backward` needs."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, grad: torch.Tensor, *, needs_input: bool) -> torch.Tensor:
        """Write the gradients of all weights; returns that of the input if asked for.

        `grad` may be overwritten.
        """
        for position, layer in reversed(list(enumerate(self.layers))):
            result = layer.backward(grad, needs_input or position > 0)
            if result is not None:
                grad = result
        return grad


class BatchedNetwork(Protocol):
    """What the bank asks of a batched model."""

    def losses(
        self,
        x: torch.Tensor,
        c: torch.Tensor,
        y_onehot: torch.Tensor,
        mask: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Concept loss and task loss of each member, both (M,)."""
        ...

    def backward(self, lambda_concept: torch.Tensor) -> None:
        """Write the gradients of ``lambda * concept loss + task loss`` of the last batch."""
        ...


class _TaskLoss:
    """Mean cross-entropy per member, and its gradient."""

    def forward(self, y_logits: torch.Tensor, y_onehot: torch.Tensor) -> torch.Tensor:
        self.log_p = torch.log_softmax(y_logits, dim=-1)
        self.y_onehot = y_onehot
        return -(self.log_p * y_onehot).sum(dim=(1, 2)) / y_logits.shape[1]

    def backward(self) -> torch.Tensor:
        return self.log_p.exp_().sub_(self.y_onehot).div_(self.log_p.shape[1])


class _ConceptLoss:
    """Mean binary cross-entropy per member from logits, and its gradient."""

    def __init__(self, pos_weight: torch.Tensor | None) -> None:
        self.pos_weight = pos_weight

    def forward(self, c_logits: torch.Tensor, p: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        self.p, self.c = p, c
        loss = nn.functional.softplus(c_logits).sub_(c * c_logits)
        if self.pos_weight is not None:
            self.weight = c * (self.pos_weight - 1) + 1
            loss = loss * self.weight
        return loss.mean(dim=(1, 2))

    def backward(self, lambda_concept: torch.Tensor) -> torch.Tensor:
        share = lambda_concept[:, None, None] / (self.p.shape[1] * self.p.shape[2])
        grad = (self.p - self.c).mul_(share)
        return grad if self.pos_weight is None else grad.mul_(self.weight)


class BatchedHead:
    """A head by itself on fixed inputs."""

    def __init__(self, stack: ParameterStack, head: nn.Module) -> None:
        self.head = BatchedSequential(stack, head, "head")
        self.task = _TaskLoss()

    def losses(
        self,
        x: torch.Tensor,
        c: torch.Tensor,
        y_onehot: torch.Tensor,
        mask: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """No concept loss, and the task loss."""
        task = self.task.forward(self.head.forward(x), y_onehot)
        return torch.zeros_like(task), task

    def backward(self, lambda_concept: torch.Tensor) -> None:
        """Gradients of the task loss."""
        self.head.backward(self.task.backward(), needs_input=False)


class BatchedCBM:
    """CBMs in joint training, or their encoders alone.

    Parameters
    ----------
    stack : ParameterStack
        Weights.
    template : CBM
        One of the members, for its layers and its encoding.
    encoder_only : bool
        Train the encoder on the concept loss; the task loss is 0.
    pos_weight : Float[Tensor, "k"], optional
        Weights of the concept loss.
    """

    def __init__(
        self,
        stack: ParameterStack,
        template: CBM,
        *,
        encoder_only: bool = False,
        pos_weight: torch.Tensor | None = None,
    ) -> None:
        self.encoder = BatchedSequential(stack, template.encoder, "encoder")
        self.head = None if encoder_only else BatchedSequential(stack, template.head, "head")
        self.encoding = template.encoding
        leaky = template.concept_output == "leaky_relu"
        self.activation = _Rectifier(LEAKY_SLOPE) if leaky else None
        self.concept = _ConceptLoss(pos_weight)
        self.task = _TaskLoss()

    def losses(
        self,
        x: torch.Tensor,
        c: torch.Tensor,
        y_onehot: torch.Tensor,
        mask: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Concept loss and task loss of each member; `mask` (M, b, k) is the dropout's."""
        c_logits = self.encoder.forward(x)
        if self.activation is not None:
            c_logits = self.activation.forward(c_logits)
        if mask is not None:
            c_logits = c_logits * mask
        self.mask = mask
        self.p = torch.sigmoid(c_logits)
        concept = self.concept.forward(c_logits, self.p, c)
        if self.head is None:
            return concept, torch.zeros_like(concept)
        y_logits = self.head.forward(self.p if self.encoding == "soft" else c_logits)
        return concept, self.task.forward(y_logits, y_onehot)

    def backward(self, lambda_concept: torch.Tensor) -> None:
        """Gradients of all trained weights."""
        grad = self.concept.backward(lambda_concept)
        if self.head is not None:
            through = self.head.backward(self.task.backward(), needs_input=True)
            if self.encoding == "soft":
                through = torch.ops.aten.sigmoid_backward(through, self.p)
            grad = grad.add_(through)
        if self.mask is not None:
            grad = grad.mul_(self.mask)
        if self.activation is not None:
            self.activation.backward(grad, True)
        self.encoder.backward(grad, needs_input=False)


class BatchedCEM:
    """CEMs in joint training.

    Parameters
    ----------
    stack : ParameterStack
        Weights.
    template : CEM
        One of the members.
    pos_weight : Float[Tensor, "k"], optional
        Weights of the concept loss.
    """

    def __init__(
        self, stack: ParameterStack, template: CEM, *, pos_weight: torch.Tensor | None = None
    ) -> None:
        self.stack = stack
        self.encoder = BatchedSequential(stack, template.encoder, "encoder")
        self.context = BatchedSequential(stack, template.context, "context")
        self.rectifier = _Rectifier(LEAKY_SLOPE)
        self.scorer = _Linear(stack, "scorer")
        self.head = BatchedSequential(stack, template.head, "head")
        self.k, self.m = template.n_concepts, template.embedding_size
        self.concept = _ConceptLoss(pos_weight)
        self.task = _TaskLoss()

    def losses(
        self,
        x: torch.Tensor,
        c: torch.Tensor,
        y_onehot: torch.Tensor,
        mask: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Concept loss and task loss; `intervene` (M, 1, k) marks concepts set to the truth."""
        members, rows = x.shape[0], x.shape[1]
        both = self.rectifier.forward(self.context.forward(self.encoder.forward(x)))
        self.both = both.view(members, rows * self.k, 2 * self.m)
        c_logits = self.scorer.forward(self.both).view(members, rows, self.k)
        self.p = torch.sigmoid(c_logits)
        concept = self.concept.forward(c_logits, self.p, c)
        self.intervene = intervene
        mixing = self.p if intervene is None else torch.where(intervene, c, self.p)
        self.mixing = mixing.reshape(members, rows * self.k, 1)
        c_pos, c_neg = self.both.split(self.m, dim=2)
        self.gap = c_pos - c_neg
        mix = torch.addcmul(c_neg, self.mixing, self.gap)
        y_logits = self.head.forward(mix.view(members, rows, self.k * self.m))
        return concept, self.task.forward(y_logits, y_onehot)

    def backward(self, lambda_concept: torch.Tensor) -> None:
        """Gradients of all weights."""
        members, rows = self.p.shape[:2]
        grad_mix = self.head.backward(self.task.backward(), needs_input=True)
        grad_mix = grad_mix.view(members, rows * self.k, self.m)
        through = (grad_mix * self.gap).sum(dim=2).view(members, rows, self.k)
        if self.intervene is not None:
            through = through.masked_fill(self.intervene, 0.0)
        grad = torch.ops.aten.sigmoid_backward(through, self.p)
        grad = grad.add_(self.concept.backward(lambda_concept)).view(members, rows * self.k, 1)
        grad_both = self.scorer.backward(grad, True)
        if grad_both is None:
            raise RuntimeError("a linear layer returned no gradient although one was asked for.")
        grad_pos = grad_mix * self.mixing
        grad_both[:, :, : self.m].add_(grad_pos)
        grad_both[:, :, self.m :].add_(grad_mix.sub_(grad_pos))
        grad_both = grad_both.view(members, rows, self.k * 2 * self.m)
        self.rectifier.backward(grad_both, True)
        grad_hidden = self.context.backward(grad_both, needs_input=True)
        self.encoder.backward(grad_hidden, needs_input=False)
