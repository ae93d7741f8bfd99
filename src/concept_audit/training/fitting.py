"""Training one model with Lightning: the general way, for any encoder on any device."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment

from concept_audit.data.base import ConceptDataset
from concept_audit.models.arithmetic import matrix_products
from concept_audit.training.batches import Shard
from concept_audit.training.callbacks import EpochRecorder, cpu_copy
from concept_audit.training.concept_module import ConceptModule, TrainingDiverged
from concept_audit.training.datamodule import ConceptDataModule
from concept_audit.training.distributed import process_of
from concept_audit.training.phase_data import concept_weights, head_inputs
from concept_audit.training.predict import training_percentiles
from concept_audit.training.recipe import (
    FitResult,
    Member,
    Phase,
    Progress,
    Recipe,
    identity,
    initial_model,
    phases_of,
)
from concept_audit.training.resume_file import read_resume, remove_resume
from concept_audit.training.rules import EpochRules
from concept_audit.training.shared_norms import SharedNorms

__all__ = ["COMPILED", "fit_single"]

COMPILED = ("encoder", "body", "decoder")  # where the time goes; the rest is a layer or two

_QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "use_distributed_sampler": False,  # `EpochLoader` shares batches out itself
}


@dataclass(frozen=True)
class _Hardware:
    """What `trainer` may hold beside arguments of Lightning's Trainer."""

    num_workers: int = 0
    compile: bool = False
    tf32: bool = False
    channels_last: bool = False
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.micro_batches < 1 or self.num_workers < 0:
            raise ValueError(
                "micro_batches must be at least 1 and num_workers at least 0, got "
                f"{self.micro_batches} and {self.num_workers}."
            )


def fit_single(
    member: Member,
    dataset: ConceptDataset,
    *,
    recipe: Recipe,
    trainer: dict[str, Any] | None = None,
    progress: Progress | None = None,
    resume_path: str | Path | None = None,
    save_every: int = 10,
    module_type: type[ConceptModule] = ConceptModule,
) -> FitResult:
    """Train one model.

    Parameters
    ----------
    member : Member
        The model, its seed and its loss weight.
    dataset : ConceptDataset
        Data with splits ``train`` and ``val``.
    recipe : Recipe
        Optimisation settings.
    trainer : dict, optional
        Arguments of ``pytorch_lightning.Trainer``; the default is a quiet one on the CPU. Beside
        them: ``num_workers`` (processes that decode files), ``compile`` (the encoder, or the VAE,
        by ``torch.compile``), ``tf32`` (products in TF32 where the GPU can), ``channels_last``
        (memory format of images), and ``micro_batches`` (pieces in which a batch is computed, to
        save memory; batch norm then sees a piece at a time).
    progress : callable, optional
        Called after each epoch, see `Progress`.
    resume_path : str or Path, optional
        File that holds the state of an unfinished training. If it exists, training continues from
        it to the same numbers as without the interruption; it is removed at the end.
    save_every : int
        Epochs between two states.
    module_type : type
        Lightning module that knows the losses of this kind of model.

    Returns
    -------
    FitResult; a loss that is no longer finite ends up in its `failed`, not in an exception.
    """
    start = time.perf_counter()
    phases = phases_of(member.spec, recipe)
    options = {**_QUIET, **(trainer or {})}
    hardware = _Hardware(
        **{
            field.name: options.pop(field.name)
            for field in fields(_Hardware)
            if field.name in options
        }
    )
    device = "cuda" if options["accelerator"] in ("gpu", "cuda") else "cpu"
    known_as = identity([member], dataset, recipe)
    state = read_resume(resume_path, known_as) if resume_path is not None else None
    model = initial_model(member, dataset)
    history: list[dict[str, Any]] = []
    rules = None
    n_epochs = sum(phase.epochs for phase in phases)
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices), matrix_products(tf32=hardware.tf32):
        for position, phase in enumerate(phases):
            if state is not None and position < state["phase"]:
                continue
            rules = EpochRules(1, phase, recipe)
            try:
                history += _fit_phase(
                    model,
                    member,
                    dataset,
                    recipe,
                    phase,
                    rules,
                    module_type,
                    options,
                    hardware,
                    device,
                    state if state is not None and position == state["phase"] else None,
                    {
                        "resume_path": resume_path,
                        "identity": known_as,
                        "save_every": save_every,
                        "earlier": {"phase": position, "history": history},
                        "progress": progress,
                        "epochs_before": sum(p.epochs for p in phases[:position]),
                        "n_epochs": n_epochs,
                    },
                )
            except TrainingDiverged as error:
                if resume_path is not None and process_of(options)[1] == 1:
                    remove_resume(resume_path)  # going on from it would end the same way
                seconds = time.perf_counter() - start
                return FitResult(member, {}, history, -1, None, seconds, failed=str(error))
    percentiles = None
    if member.spec.training is not None:
        percentiles = training_percentiles(model, dataset, device=device)
        model.cpu()
        if hasattr(model, "concept_percentiles"):
            model.get_buffer("concept_percentiles").copy_(percentiles)
    if resume_path is not None and process_of(options)[1] == 1:  # else: once all have ended
        remove_resume(resume_path)
    best = int(rules.best_epoch[0]) if rules is not None else -1
    return FitResult(
        member,
        cpu_copy(model.state_dict()),
        history,
        best,
        percentiles,
        time.perf_counter() - start,
    )


def _fit_phase(
    model: torch.nn.Module,
    member: Member,
    dataset: ConceptDataset,
    recipe: Recipe,
    phase: Phase,
    rules: EpochRules,
    module_type: type[ConceptModule],
    trainer_options: dict[str, Any],
    hardware: _Hardware,
    device: str,
    state: dict[str, Any] | None,
    recording: dict[str, Any],
) -> list[dict[str, Any]]:
    """Train `model` in place through one phase; returns the phase's rows of the history."""
    kept = cpu_copy(model.state_dict())
    first_epoch = 0
    earlier_rows: list[dict[str, Any]] = []
    if state is not None:
        model.load_state_dict(state["model"])
        kept.update(state["kept"])
        rules.load(state["rules"])
        first_epoch = int(state["epoch"])
        earlier_rows = list(state["history"])
        recording["earlier"]["history"] = earlier_rows
    if first_epoch < phase.epochs and not rules.stopped[0]:
        module = module_type(
            model,
            member,
            phase,
            rules,
            pos_weight=concept_weights(dataset, recipe),
            first_epoch=first_epoch,
        )
        if state is not None:
            module.optimiser_state = state["optimiser"]
            module.load_extra_state(state["extra"])
        data = ConceptDataModule(
            dataset,
            batch_size=recipe.batch_size,
            seed=member.seed,
            phase=phase.name,
            shuffle=recipe.shuffle,
            inputs=(
                head_inputs(model, member, dataset, device=device) if phase.name == "head" else None
            ),
            augmentation=recipe.augmentation,
            shard=Shard(*process_of(trainer_options), hardware.micro_batches),
            num_workers=hardware.num_workers,
            channels_last=hardware.channels_last,
        )
        if hardware.channels_last:
            model.to(memory_format=torch.channels_last)
        if hardware.compile:
            torch.compiler.reset()  # graphs of earlier models count towards a limit
            for name, part in model.named_children():
                if name in COMPILED:
                    part.compile(dynamic=False)
        model.train()
        options = dict(trainer_options)
        if options.pop("sync_batchnorm", False):
            options["plugins"] = [SharedNorms()]
        # Not what Slurm or another launcher says: a training's processes are our own.
        options["plugins"] = [*options.get("plugins", ()), LightningEnvironment()]
        with _quiet_lightning():
            runner = pl.Trainer(
                **options,
                accumulate_grad_batches=hardware.micro_batches,
                max_epochs=phase.epochs - first_epoch,
                callbacks=[EpochRecorder(kept, **recording)],
            )
            try:
                runner.fit(module, datamodule=data)
            finally:
                data.release()
                for part in model.children():
                    part._compiled_call_impl = None  # predictions come in batches of other sizes
        if runner.interrupted:
            raise KeyboardInterrupt
        model.cpu()
        earlier_rows = earlier_rows + module.history
    model.load_state_dict(kept)
    return earlier_rows


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Lightning says nothing about devices and tips, nor about its own use of torch, meanwhile."""
    logger = logging.getLogger("pytorch_lightning")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
