"""One training shared by several processes of one machine, one for each GPU (DDP).

Lightning's own launchers start the whole command again for each process, which a pipeline with
locks and stages cannot have; here each process runs the training alone, and the first hands the
result back.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from concept_audit.data.base import ConceptDataset
from concept_audit.training.lifeline import leave_at_end_of, lifeline
from concept_audit.training.recipe import FitResult, Member, Progress, Recipe
from concept_audit.training.resume_file import remove_resume

__all__ = ["fit_distributed", "process_of"]

_POLL_S = 0.5


def process_of(trainer: Mapping[str, Any]) -> tuple[int, int]:
    """Rank of this process and how many share the training with these trainer options."""
    n_processes = int(trainer.get("devices", 1))
    if n_processes <= 1:
        return 0, 1
    if "LOCAL_RANK" not in os.environ:
        raise ValueError(
            f"devices must be 1 here, got {n_processes}: a training on several devices is started "
            "by concept_audit.training.distributed.fit_distributed."
        )
    return int(os.environ["LOCAL_RANK"]), n_processes


def fit_distributed(
    member: Member,
    make_dataset: Callable[[], ConceptDataset],
    *,
    recipe: Recipe,
    trainer: Mapping[str, Any],
    progress: Progress | None = None,
    resume_path: str | Path | None = None,
    save_every: int = 10,
) -> FitResult:
    """Train one model in ``trainer["devices"]`` processes that share every batch.

    The global batch is the recipe's, so the result is that of one device up to rounding; batch norm
    sees a process's part only, unless ``trainer["sync_batchnorm"]``, which needs GPUs.

    Parameters
    ----------
    member, recipe, progress, resume_path, save_every
        As in `fit_single`.
    make_dataset : callable
        Gives the data in each process; it must be picklable, for example a `functools.partial` of a
        function of a module.
    trainer : mapping
        As in `fit_single`, with ``devices`` above 1.

    Returns
    -------
    FitResult

    Raises
    ------
    ValueError
        When fewer GPUs are there than asked for, or batch norm is to be shared on the CPU.
    """
    n_processes = int(trainer["devices"])
    on_gpu = trainer.get("accelerator", "cpu") in ("gpu", "cuda")
    if on_gpu and n_processes > torch.cuda.device_count():
        raise ValueError(
            f"trainer.devices must not exceed the GPUs of this machine, got {n_processes} of "
            f"{torch.cuda.device_count()}. Set trainer.devices, or trainer.devices=-1 for all."
        )
    if trainer.get("sync_batchnorm") and not on_gpu:
        raise ValueError(
            "trainer.sync_batchnorm needs GPUs (torch's SyncBatchNorm has no CPU version), got "
            f"accelerator {trainer.get('accelerator', 'cpu')!r}. Set trainer.sync_batchnorm=false."
        )
    context = torch.multiprocessing.get_context("spawn")
    # Cutting the line ends the processes, also when this one dies or is interrupted; a SIGTERM
    # would not: Lightning answers it by waiting for all of them.
    with tempfile.TemporaryDirectory() as folder, lifeline() as line:
        channel = context.SimpleQueue() if progress is not None else None
        options = {
            "recipe": recipe,
            "trainer": {**trainer, "strategy": "ddp"},
            "resume_path": resume_path,
            "save_every": save_every,
        }
        result_path = Path(folder) / "result.pt"
        workers = torch.multiprocessing.spawn(
            _worker,
            (n_processes, _free_port(), line, member, make_dataset, options, channel, result_path),
            nprocs=n_processes,
            join=False,
        )
        finished = False
        while not finished:
            finished = workers.join(timeout=_POLL_S)
            while channel is not None and progress is not None and not channel.empty():
                progress(*channel.get())
        values = torch.load(result_path, weights_only=True)
    if resume_path is not None:
        remove_resume(resume_path)
    return FitResult(member=member, **values)


def _worker(
    rank: int,
    n_processes: int,
    port: int,
    line: Connection,
    member: Member,
    make_dataset: Callable[[], ConceptDataset],
    options: dict[str, Any],
    channel: Any,
    result_path: Path,
) -> None:
    """Train in this process; the first one writes the result."""
    leave_at_end_of(line)
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        NODE_RANK="0",
        LOCAL_RANK=str(rank),
        RANK=str(rank),
        WORLD_SIZE=str(n_processes),
    )
    if options["trainer"].get("accelerator") in ("gpu", "cuda"):
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // n_processes))
    from concept_audit.training.families import fit_one  # which imports this module's users

    def report(done: int, total: int, losses: dict[str, float]) -> None:
        channel.put((done, total, losses))

    result = fit_one(
        member, make_dataset(), progress=report if channel is not None else None, **options
    )
    if rank == 0:
        values = {
            field.name: getattr(result, field.name)
            for field in fields(result)
            if field.name != "member"
        }
        torch.save(values, result_path)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
