"""Adam and SGD on a stack of weights, with a learning rate per member."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from concept_audit.training.batched import ParameterStack
from concept_audit.training.recipe import Phase

__all__ = ["BatchedAdam", "BatchedOptimiser", "BatchedSGD", "build_optimiser"]

_BETA2, _EPS = 0.999, 1e-8  # the defaults of torch.optim.Adam


class BatchedOptimiser(Protocol):
    """One step for all members, and what a resume needs."""

    def step(self, lr: torch.Tensor) -> None:
        """Update the weights from the gradients; `lr` has shape (M, 1)."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these members only."""
        ...

    def state(self) -> dict[str, Any]:
        """Tensors and numbers for a resume file."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        ...


class BatchedAdam:
    """Adam as `torch.optim.Adam` computes it."""

    def __init__(self, stack: ParameterStack, phase: Phase) -> None:
        self.stack = stack
        self.beta1, self.weight_decay = phase.momentum, phase.weight_decay
        self.steps = 0
        self.mean = torch.zeros_like(stack.values)
        self.square = torch.zeros_like(stack.values)
        self._buffer = torch.empty_like(stack.values)

    def step(self, lr: torch.Tensor) -> None:
        """Update the weights from the gradients."""
        values, grads, buffer = self.stack.values, self.stack.grads, self._buffer
        self.steps += 1
        if self.weight_decay:
            grads.add_(values, alpha=self.weight_decay)
        self.mean.lerp_(grads, 1 - self.beta1)
        self.square.mul_(_BETA2).addcmul_(grads, grads, value=1 - _BETA2)
        correction1 = 1 - self.beta1**self.steps
        correction2 = 1 - _BETA2**self.steps
        torch.sqrt(self.square, out=buffer)
        buffer.div_(correction2**0.5).add_(_EPS)
        torch.div(self.mean, buffer, out=buffer)
        values.sub_(buffer.mul_(lr / correction1))

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these members only."""
        self.mean, self.square = self.mean[rows].clone(), self.square[rows].clone()
        self._buffer = torch.empty_like(self.mean)

    def state(self) -> dict[str, Any]:
        """Tensors and numbers for a resume file."""
        return {"steps": self.steps, "mean": self.mean.cpu(), "square": self.square.cpu()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.steps = int(state["steps"])
        self.mean = state["mean"].to(self.stack.values.device)
        self.square = state["square"].to(self.stack.values.device)
        self._buffer = torch.empty_like(self.mean)


class BatchedSGD:
    """SGD with momentum as `torch.optim.SGD` computes it."""

    def __init__(self, stack: ParameterStack, phase: Phase) -> None:
        self.stack = stack
        self.momentum, self.weight_decay = phase.momentum, phase.weight_decay
        self.mean = torch.zeros_like(stack.values)

    def step(self, lr: torch.Tensor) -> None:
        """Update the weights from the gradients."""
        values, grads = self.stack.values, self.stack.grads
        if self.weight_decay:
            grads.add_(values, alpha=self.weight_decay)
        self.mean.mul_(self.momentum).add_(grads)
        values.sub_(self.mean * lr)

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these members only."""
        self.mean = self.mean[rows].clone()

    def state(self) -> dict[str, Any]:
        """Tensors and numbers for a resume file."""
        return {"mean": self.mean.cpu()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.mean = state["mean"].to(self.stack.values.device)


def build_optimiser(stack: ParameterStack, phase: Phase) -> BatchedOptimiser:
    """Optimiser that the phase names."""
    return BatchedAdam(stack, phase) if phase.optimiser == "adam" else BatchedSGD(stack, phase)


def learning_rates(lr: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Learning rates (M, 1) beside the weights."""
    return torch.from_numpy(lr).to(device=device, dtype=torch.float32)[:, None]
