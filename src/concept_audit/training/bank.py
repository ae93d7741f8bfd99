"""A bank: many small models of one architecture trained as one batched program.

Each member has its own seed, order of rows, dropout, loss weight, training interventions, learning
rate, early stopping and best epoch, and ends where it would have ended alone: the same random
numbers, the same rules, products that differ in the last bits only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.cbm import CBM
from concept_audit.models.cem import CEM
from concept_audit.models.randomness import dropout_threshold, dropout_words, stream, words_for
from concept_audit.training.batched import (
    BatchedCBM,
    BatchedCEM,
    BatchedHead,
    BatchedNetwork,
    ParameterStack,
)
from concept_audit.training.batched_optimisers import build_optimiser, learning_rates
from concept_audit.training.batches import order_of, to_inputs
from concept_audit.training.phase_data import concept_weights, head_inputs
from concept_audit.training.predict import build_model, load_state, training_percentiles
from concept_audit.training.recipe import (
    FitResult,
    Member,
    Phase,
    Progress,
    Recipe,
    diverged_message,
    group_key,
    identity,
    initial_model,
    phases_of,
)
from concept_audit.training.resume_file import read_resume, remove_resume, write_resume
from concept_audit.training.rules import EpochRules

__all__ = ["CHUNK", "train_bank"]

CHUNK = 8  # members per product: their activations stay in the second-level cache


def train_bank(
    members: Sequence[Member],
    dataset: ConceptDataset,
    *,
    recipe: Recipe,
    progress: Progress | None = None,
    resume_path: str | Path | None = None,
    save_every: int = 10,
    device: str | torch.device = "cpu",
) -> list[FitResult]:
    """Train all members, which must share one `group_key`.

    Parameters
    ----------
    members : sequence of Member
        What to train; seeds, loss weights and `p_int` may differ.
    dataset : ConceptDataset
        Data with splits ``train`` and ``val``.
    recipe : Recipe
        Optimisation settings, shared.
    progress : callable, optional
        Called after each epoch with the validation losses of the members still training.
    resume_path : str or Path, optional
        File that holds the state of an unfinished training. If it exists, training continues from
        it to the same numbers, bit for bit, as without the interruption; it is removed at the end.
    save_every : int
        Epochs between two states.
    device : str or torch.device
        Where to compute.

    Returns
    -------
    list of FitResult, in the order of `members`. A member whose loss is no longer finite has
    `failed` set; the others go on.

    Raises
    ------
    ValueError
        If there is no member, or they cannot share one program.
    """
    bank = _Bank(list(members), dataset, recipe, torch.device(device))
    known_as = identity(bank.members, dataset, recipe)
    state = read_resume(resume_path, known_as) if resume_path is not None else None
    start = time.perf_counter()
    phases = bank.phases
    n_epochs = sum(phase.epochs for phase in phases)
    first = 0 if state is None else int(state["phase"])
    if state is not None:
        bank.load(state)
    for position in range(first, len(phases)):
        phase = phases[position]
        before = sum(p.epochs for p in phases[:position])
        chunks = bank.start_phase(phase)
        first_epoch = 0
        if state is not None and position == first:
            first_epoch = int(state["epoch"])
            chunks = [bank.loaded_chunk(phase, saved) for saved in state["chunks"]]
        for epoch in range(first_epoch, phase.epochs):
            for chunk in chunks:
                chunk.run_epoch(epoch)
            chunks = [chunk for chunk in chunks if len(chunk.rows)]
            if progress is not None:
                losses = {bank.label(i): v for c in chunks for i, v in c.val_losses().items()}
                progress(before + epoch + 1, n_epochs, losses)
            if not chunks:
                break
            if resume_path is not None and (epoch + 1) % save_every == 0:
                saved_chunks = [chunk.state() for chunk in chunks]
                extra = {"phase": position, "epoch": epoch + 1, "chunks": saved_chunks}
                write_resume(resume_path, known_as, {**bank.state(), **extra})
        for chunk in chunks:
            chunk.finish()
    results = bank.results((time.perf_counter() - start) / len(bank.members))
    if resume_path is not None:
        remove_resume(resume_path)
    return results


class _Bank:
    """Members, what has been trained of them so far, and the data they share."""

    def __init__(
        self,
        members: list[Member],
        dataset: ConceptDataset,
        recipe: Recipe,
        device: torch.device,
    ) -> None:
        keys = {group_key(member) for member in members}
        if len(keys) != 1 or None in keys:
            raise ValueError(
                f"members must share one group_key that is not None, got {sorted(map(str, keys))} "
                f"for {len(members)} members. Group them by group_key; train the rest singly."
            )
        self.members, self.dataset, self.recipe, self.device = members, dataset, recipe, device
        self.phases = phases_of(members[0].spec, recipe)
        self.template = initial_model(members[0], dataset)
        self.states = [initial_model(member, dataset).state_dict() for member in members]
        self.history: list[list[dict[str, Any]]] = [[] for _ in members]
        self.failed: list[str | None] = [None for _ in members]
        self.best_epoch = [-1 for _ in members]
        self.pos_weight = concept_weights(dataset, recipe)
        self.targets = {split: self._targets(split) for split in ("train", "val")}

    def _targets(self, split: str) -> torch.Tensor:
        """Concepts and one-hot classes of a split in one matrix, gathered together."""
        rows = self.dataset.rows(split)
        onehot = np.eye(self.dataset.n_classes, dtype=np.float32)[self.dataset.y[rows]]
        both = np.concatenate([self.dataset.c[rows].astype(np.float32), onehot], axis=1)
        return torch.from_numpy(both).to(self.device)

    def label(self, member: int) -> str:
        return self.members[member].label or str(member)

    def start_phase(self, phase: Phase) -> list[_Chunk]:
        """Chunks of the members that have not failed."""
        alive = [i for i, reason in enumerate(self.failed) if reason is None]
        # Chunks of equal size: 45 members become 6 chunks of 7 or 8.
        parts = np.array_split(np.array(alive, dtype=np.int64), max(1, -(-len(alive) // CHUNK)))
        return [_Chunk(self, phase, part) for part in parts if len(part)]

    def loaded_chunk(self, phase: Phase, saved: dict[str, Any]) -> _Chunk:
        chunk = _Chunk(self, phase, np.array(saved["rows"], dtype=np.int64))
        chunk.load(saved)
        return chunk

    def inputs(self, phase: Phase, rows: NDArray[np.int64], split: str) -> torch.Tensor:
        """Inputs of a split: (n, d) shared by all members, or (M, n, k) where each has its own."""
        if phase.name != "head":
            x = to_inputs(self.dataset, self.dataset.rows(split)).flatten(1)
        elif self.members[0].spec.training == "sequential":
            models = [load_state(build_model(self.members[i].spec, self.dataset), self.states[i])
                      for i in rows]  # fmt: skip
            x = torch.stack(
                [head_inputs(model, self.members[0], self.dataset)[split] for model in models]
            )
        else:
            x = head_inputs(self.template, self.members[0], self.dataset)[split]
        return x.to(self.device)

    def state(self) -> dict[str, Any]:
        return {
            "states": [dict(state) for state in self.states],
            "history": self.history,
            "failed": self.failed,
            "best_epoch": self.best_epoch,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.states, self.history = state["states"], state["history"]
        self.failed, self.best_epoch = state["failed"], state["best_epoch"]

    def results(self, seconds: float) -> list[FitResult]:
        results = []
        for i, member in enumerate(self.members):
            reason = self.failed[i]
            state, percentiles = self.states[i], None
            if reason is not None:
                results.append(
                    FitResult(member, {}, self.history[i], -1, None, seconds, failed=reason)
                )
                continue
            if member.spec.training is not None:
                model = load_state(build_model(member.spec, self.dataset), state)
                percentiles = training_percentiles(model, self.dataset)
                if "concept_percentiles" in state:
                    state = {**state, "concept_percentiles": percentiles.clone()}
            results.append(
                FitResult(member, state, self.history[i], self.best_epoch[i], percentiles, seconds)
            )
        return results


class _Chunk:
    """Some members in one phase: their stacked weights, optimiser, rules and best weights."""

    def __init__(self, bank: _Bank, phase: Phase, rows: NDArray[np.int64]) -> None:
        self.bank, self.phase, self.rows = bank, phase, rows
        states = [bank.states[i] for i in rows]
        self.stack = ParameterStack(states, self._trained_names(), bank.device)
        self.optimiser = build_optimiser(self.stack, phase)
        self.rules = EpochRules(len(rows), phase, bank.recipe)
        self.best = self.stack.values.clone()
        self.x = {split: bank.inputs(phase, rows, split) for split in ("train", "val")}
        self.network = self._network()
        self._set_weights()

    def _trained_names(self) -> list[str]:
        names = [name for name, _ in self.bank.template.named_parameters()]
        prefix = {"joint": "", "encoder": "encoder.", "head": "head."}[self.phase.name]
        return [name for name in names if name.startswith(prefix)]

    def _network(self) -> BatchedNetwork:
        template, pos_weight = self.bank.template, self.bank.pos_weight
        if pos_weight is not None:
            pos_weight = pos_weight.to(self.bank.device)
        if self.phase.name == "head":
            return BatchedHead(self.stack, template.get_submodule("head"))
        if isinstance(template, CEM):
            return BatchedCEM(self.stack, template, pos_weight=pos_weight)
        if not isinstance(template, CBM):
            raise TypeError(f"a bank holds CBMs, CEMs and heads, got {type(template).__name__}.")
        encoder_only = self.phase.name == "encoder"
        return BatchedCBM(self.stack, template, encoder_only=encoder_only, pos_weight=pos_weight)

    def _set_weights(self) -> None:
        """Loss weights and intervention chances of the members at hand."""
        members = [self.bank.members[i] for i in self.rows]
        joint = self.phase.name == "joint"
        weights = [member.lambda_concept if joint else 1.0 for member in members]
        self.lambda_concept = torch.tensor(weights, device=self.bank.device)
        self.task_weight = 0.0 if self.phase.name == "encoder" else 1.0
        self.p_int = np.array([member.p_int for member in members])

    def run_epoch(self, epoch: int) -> None:
        """One pass over the training split, validation, rules; members may leave."""
        train = self._drop_diverged(epoch, self._train_epoch(epoch))
        if not len(self.rows):
            return
        sizes = self._batch_sizes("train")
        train_means = self._means(train, sizes)
        val_means = self._means(self._validate(), self._batch_sizes("val"))
        lr = self.rules.lr.copy()
        keep = self.rules.update(epoch, train_means[:, 0], val_means[:, 0])
        for j, i in enumerate(self.rows):
            row: dict[str, Any] = {"phase": self.phase.name, "epoch": epoch}
            for split, means in (("train", train_means), ("val", val_means)):
                names = (f"{split}_loss", f"{split}_concept_loss", f"{split}_task_loss")
                row |= dict(zip(names, map(float, means[j]), strict=True))
            row["lr"] = float(lr[j])
            self.bank.history[i].append(row)
        kept = torch.from_numpy(keep).to(self.bank.device)
        self.best[kept] = self.stack.values[kept]
        if self.rules.stopped.any():
            self._leave(np.flatnonzero(self.rules.stopped))

    def _train_epoch(self, epoch: int) -> torch.Tensor:
        """Train; returns the losses (steps, M, 3) of all batches."""
        bank, phase = self.bank, self.phase
        n, k = len(bank.targets["train"]), bank.dataset.n_concepts
        seeds = [bank.members[i].seed for i in self.rows]
        shuffle, batch = bank.recipe.shuffle, bank.recipe.batch_size
        orders = np.stack([order_of(n, seed, phase.name, epoch, shuffle) for seed in seeds])
        order = torch.from_numpy(orders).to(bank.device)
        masks = self._dropout_masks(seeds, epoch)
        intervene = None
        if self.p_int.any():
            draws = [
                stream(seed, f"interventions/{phase.name}", epoch).random((-(-n // batch), k))
                for seed in seeds
            ]
            hit = np.stack(draws, axis=1) < self.p_int[None, :, None]
            intervene = torch.from_numpy(hit).to(bank.device)[:, :, None, :]
        lr = learning_rates(self.rules.lr, bank.device)
        losses = []
        for step, start in enumerate(range(0, n, batch)):
            index = order[:, start : start + batch]
            x, c, onehot = self._gather(index)
            mask = masks[step].to(bank.device) if masks is not None else None
            hit_now = intervene[step] if intervene is not None else None
            concept, task = self.network.losses(x, c, onehot, mask, hit_now)
            losses.append(self._stacked(concept, task))
            self.network.backward(self.lambda_concept)
            self.optimiser.step(lr)
        return torch.stack(losses)

    def _gather(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, concepts and one-hot classes (M, b, .) of the rows in `index` (M, b)."""
        flat, shape = index.reshape(-1), index.shape
        x = self.x["train"]
        if x.ndim == 3:
            x = x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
        else:
            x = x.index_select(0, flat).view(*shape, -1)
        targets = self.bank.targets["train"].index_select(0, flat).view(*shape, -1)
        k = self.bank.dataset.n_concepts
        return x, targets[..., :k], targets[..., k:]

    def _dropout_masks(self, seeds: list[int], epoch: int) -> list[torch.Tensor] | None:
        """Masks (M, b, k) of every batch, as single training would draw them."""
        template = self.bank.template
        p = template.concept_dropout.p if isinstance(template, CBM) else 0.0
        if not p or self.phase.name == "head":
            return None
        k = self.bank.dataset.n_concepts
        sizes = self._batch_sizes("train")
        spans = [4 * words_for(size * k) for size in sizes]
        generators = [stream(seed, f"dropout/{self.phase.name}", epoch) for seed in seeds]
        draws = np.stack([dropout_words(generator, sum(spans)) for generator in generators])
        threshold = dropout_threshold(p)
        scale = np.float32(65536 / threshold)
        masks, start = [], 0
        for size, span in zip(sizes, spans, strict=True):
            part = draws[:, start : start + size * k] < threshold
            mask = torch.from_numpy(part.astype(np.float32)).mul_(float(scale))
            masks.append(mask.view(len(seeds), size, k))
            start += span
        return masks

    def _validate(self) -> torch.Tensor:
        """Losses (batches, M, 3) over the validation split; no dropout, no interventions."""
        k, members = self.bank.dataset.n_concepts, len(self.rows)
        targets, x = self.bank.targets["val"], self.x["val"]
        batch, losses = self.bank.recipe.batch_size, []
        for start in range(0, len(targets), batch):
            part = targets[start : start + batch].expand(members, -1, -1)
            x_part = x[..., start : start + batch, :].expand(members, -1, -1)
            concept, task = self.network.losses(x_part, part[..., :k], part[..., k:])
            losses.append(self._stacked(concept, task))
        return torch.stack(losses)

    def _stacked(self, concept: torch.Tensor, task: torch.Tensor) -> torch.Tensor:
        total = self.lambda_concept * concept + self.task_weight * task
        return torch.stack([total, concept, task], dim=1)

    def _batch_sizes(self, split: str) -> list[int]:
        n, batch = len(self.bank.targets[split]), self.bank.recipe.batch_size
        return [min(batch, n - start) for start in range(0, n, batch)]

    def _means(self, losses: torch.Tensor, sizes: list[int]) -> NDArray[np.float64]:
        """Means over the rows of a split (M, 3)."""
        weights = torch.tensor(sizes, dtype=torch.float64)[:, None, None] / sum(sizes)
        means: NDArray[np.float64] = (losses.cpu().double() * weights).sum(dim=0).numpy()
        return means

    def val_losses(self) -> dict[int, float]:
        """Last validation loss by member."""
        return {int(i): float(self.bank.history[i][-1]["val_loss"]) for i in self.rows}

    def _drop_diverged(self, epoch: int, losses: torch.Tensor) -> torch.Tensor:
        """Let members with a loss that is not finite go; returns the losses of the others."""
        finite = torch.isfinite(losses[:, :, 0]).cpu().numpy()
        bad = np.flatnonzero(~finite.all(axis=0))
        for j in bad:
            member, first = self.bank.members[self.rows[j]], int(np.argmin(finite[:, j]))
            step = epoch * len(losses) + first
            value = float(losses[first, j, 0])
            self.bank.failed[self.rows[j]] = diverged_message(
                member, self.phase.name, epoch, step, value
            )
        if not len(bad):
            return losses
        staying = np.setdiff1d(np.arange(len(self.rows)), bad)
        self._keep(staying)
        return losses[:, torch.from_numpy(staying).to(losses.device)]

    def _leave(self, leaving: NDArray[np.int64]) -> None:
        for j in leaving:
            self._write_back(int(j))
        self._keep(np.setdiff1d(np.arange(len(self.rows)), leaving))

    def _keep(self, staying: NDArray[np.int64]) -> None:
        index = torch.from_numpy(staying).to(self.bank.device)
        self.stack.keep(index)
        self.optimiser.keep(index)
        self.rules.keep(staying)
        self.best = self.best[index].clone()
        for split, x in self.x.items():
            if x.ndim == 3:
                self.x[split] = x[index]
        self.rows = self.rows[staying]
        self._set_weights()

    def _write_back(self, j: int) -> None:
        """Put the kept weights of one member into the bank."""
        i = int(self.rows[j])
        self.bank.states[i] = {**self.bank.states[i], **self.stack.unstack(self.best[j])}
        self.bank.best_epoch[i] = int(self.rules.best_epoch[j])

    def finish(self) -> None:
        """Put the kept weights of all members into the bank."""
        for j in range(len(self.rows)):
            self._write_back(j)

    def state(self) -> dict[str, Any]:
        """For a resume file."""
        return {
            "rows": [int(i) for i in self.rows],
            "values": self.stack.values.cpu(),
            "best": self.best.cpu(),
            "optimiser": self.optimiser.state(),
            "rules": self.rules.state(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continue from `saved`."""
        self.stack.values.copy_(saved["values"])
        self.best = saved["best"].to(self.bank.device)
        self.optimiser.load(saved["optimiser"])
        self.rules.load(saved["rules"])
