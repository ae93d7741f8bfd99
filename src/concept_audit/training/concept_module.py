"""The LightningModule of concept-based models: wires a plain model to its losses, nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import distributed, nn

from concept_audit.models.losses import concept_loss, task_loss
from concept_audit.models.randomness import SeededDropout, stream
from concept_audit.training.batches import Batch
from concept_audit.training.recipe import Member, Phase, diverged_message
from concept_audit.training.rules import EpochRules

__all__ = ["ConceptModule", "TrainingDiverged"]


class TrainingDiverged(FloatingPointError):
    """The training loss is no longer finite."""


class ConceptModule(pl.LightningModule):
    """One phase of training one model, or this process's part of it.

    Parameters
    ----------
    model : nn.Module
        CBM, CEM or reference head.
    member : Member
        Loss weight, training interventions and seed.
    phase : Phase
        Which loss, which weights, which optimiser.
    rules : EpochRules
        Learning-rate schedule and the choice of the epoch to keep.
    pos_weight : Float[Tensor, "k"], optional
        Weights of the concept loss.
    first_epoch : int
        Epochs that an earlier, interrupted run has finished.
    """

    loss_names: tuple[str, ...] = ("loss", "concept_loss", "task_loss")

    def __init__(
        self,
        model: nn.Module,
        member: Member,
        phase: Phase,
        rules: EpochRules,
        *,
        pos_weight: torch.Tensor | None = None,
        first_epoch: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.member = member
        self.phase = phase
        self.rules = rules
        self.first_epoch = first_epoch
        self.history: list[dict[str, Any]] = []
        self.register_buffer("pos_weight", pos_weight, persistent=False)
        self.keep_this_epoch = False
        self.optimiser_state: dict[str, Any] | None = None
        self._interventions: torch.Tensor | None = None
        self._losses: dict[str, list[torch.Tensor]] = {"train": [], "val": []}
        self._counts: dict[str, list[int]] = {"train": [], "val": []}
        # Gradients of parts that the phase leaves alone are neither computed nor awaited.
        trained = {id(parameter) for parameter in self._trained().parameters()}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in trained)

    @property
    def epoch(self) -> int:
        """Epochs finished in this phase, over all interrupted runs."""
        return self.first_epoch + self.current_epoch

    def _trained(self) -> nn.Module:
        """The part of the model that this phase trains."""
        name = self.phase.name
        part: nn.Module = self.model
        return getattr(self.model, name, part) if name in ("encoder", "head") else part

    def losses(self, batch: Batch, intervene: torch.Tensor | None = None) -> torch.Tensor:
        """Loss of this phase, concept loss and task loss of a batch, as one tensor (3,)."""
        nothing = torch.zeros((), device=batch.c.device)
        if self.phase.name == "head":
            task = task_loss(self.model.head(batch.x), batch.y)  # type: ignore[operator]
            return torch.stack([task, nothing, task])
        pos_weight: Any = self.pos_weight
        if self.phase.name == "encoder":
            c_logits = self.model.concepts(batch.x)[0]  # type: ignore[operator]
            concept = concept_loss(c_logits, batch.c, pos_weight)
            return torch.stack([concept, concept, nothing])
        output = self.model(batch.x, batch.c, intervene)
        concept = concept_loss(output.c_logits, batch.c, pos_weight)
        task = task_loss(output.y_logits, batch.y)
        return torch.stack([self.member.lambda_concept * concept + task, concept, task])

    def extra_state(self) -> dict[str, Any]:
        """What an interrupted run needs beside the model and its optimiser."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""

    def on_fit_start(self) -> None:
        """Put the data where the model is, if they fit."""
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        datamodule.place(self.device)

    def on_train_epoch_start(self) -> None:
        """Address all randomness of the coming epoch by seed, phase and epoch."""
        seed, name, epoch = self.member.seed, self.phase.name, self.epoch
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        datamodule.train_dataloader().set_epoch(epoch)
        # Processes that share a batch draw the same interventions, but noise of their own.
        own = f"{name}/{self.global_rank}" if self.global_rank else name
        torch.manual_seed(int(stream(seed, f"torch/{own}", epoch).integers(2**31)))
        self._interventions = None
        if self.member.p_int > 0:  # all of the epoch's at once: one copy to the device
            loader = datamodule.train_dataloader()
            shape = len(loader) // self.micro_batches, loader.n_concepts
            drawn = stream(seed, f"interventions/{name}", epoch).random(shape) < self.member.p_int
            self._interventions = torch.from_numpy(drawn).to(self.device)
        masks = stream(seed, f"dropout/{own}", epoch)
        for module in self.model.modules():
            if isinstance(module, SeededDropout):
                module.start_epoch(masks)
        if self.phase.name == "head":
            for part, module in self.model.named_children():
                module.train(part == "head")

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Loss of a batch; one intervention mask per batch and concept, shared by its samples."""
        intervene = None
        if self._interventions is not None:
            intervene = self._interventions[batch_idx // self.micro_batches]
        losses = self.losses(batch, intervene)
        # Looking at the value here would make a GPU wait: it is judged at the end of the epoch.
        self._losses["train"].append(losses.detach())
        self._counts["train"].append(batch.n_counted)
        return losses[0] * batch.scale

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Keep the losses of a batch for the epoch's means."""
        self._losses["val"].append(self.losses(batch))
        self._counts["val"].append(batch.n_counted)

    def on_validation_epoch_end(self) -> None:
        """Write the epoch into the history and set the next learning rate.

        Raises
        ------
        TrainingDiverged
            If a training loss of the epoch was not finite, in any process.
        """
        row: dict[str, Any] = {"phase": self.phase.name, "epoch": self.epoch}
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        sizes = {
            "train": len(datamodule.train_dataloader().rows),
            "val": len(datamodule.val_dataloader().rows),
        }
        for split, parts in self._losses.items():
            losses = torch.stack(parts).double()
            counts = torch.tensor(self._counts[split], dtype=torch.float64, device=losses.device)
            # A row that only fills a place may be anything, also not finite: it is left out.
            weighted = torch.where(counts[:, None] > 0, losses * counts[:, None], 0.0)
            total = weighted.sum(dim=0)
            if self.trainer.world_size > 1:
                distributed.all_reduce(total)
            mean = (total / sizes[split]).cpu().numpy()
            if split == "train" and not np.isfinite(mean[0]):
                self._raise_diverged(losses[:, 0].cpu().numpy())
            names = [f"{split}_{name}" for name in self.loss_names]
            row |= dict(zip(names, mean.tolist(), strict=True))
            parts.clear()
            self._counts[split].clear()
        row["lr"] = float(self.rules.lr[0])
        self.history.append(row)
        optimiser: Any = self.optimizers()
        both = np.array([row["train_loss"]]), np.array([row["val_loss"]])
        self.keep_this_epoch = bool(self.rules.update(self.epoch, *both)[0])
        for group in optimiser.param_groups:
            group["lr"] = float(self.rules.lr[0])

    @property
    def micro_batches(self) -> int:
        """Pieces in which each batch is computed."""
        return int(self.trainer.accumulate_grad_batches)

    def _raise_diverged(self, losses: NDArray[np.float64]) -> None:
        """Name the first step whose loss was not finite; of another process, the last step."""
        bad = np.flatnonzero(~np.isfinite(losses))
        first, value = (int(bad[0]), float(losses[bad[0]])) if len(bad) else (-1, float("nan"))
        per_epoch = len(losses) // self.micro_batches
        step = self.epoch * per_epoch + first % len(losses) // self.micro_batches
        raise TrainingDiverged(
            diverged_message(self.member, self.phase.name, self.epoch, step, value)
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Optimiser of the phase, with the state of an interrupted run if there is one."""
        parameters, lr = self._trained().parameters(), float(self.rules.lr[0])
        fused = True if self.device.type == "cuda" else None  # one kernel for all weights
        optimiser: torch.optim.Optimizer
        if self.phase.optimiser == "adam":
            optimiser = torch.optim.Adam(
                parameters,
                lr=lr,
                betas=(self.phase.momentum, 0.999),
                weight_decay=self.phase.weight_decay,
                fused=fused,
            )
        else:
            optimiser = torch.optim.SGD(
                parameters,
                lr=lr,
                momentum=self.phase.momentum,
                weight_decay=self.phase.weight_decay,
                fused=fused,
            )
        if self.optimiser_state is not None:
            optimiser.load_state_dict(self.optimiser_state)
        return optimiser
