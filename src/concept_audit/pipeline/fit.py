"""Fit stage: cells in, one finished run folder for each out; small models trained many at once."""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from typing import Any

from concept_audit.pipeline.plan import config_dir
from concept_audit.pipeline.progress import Progress
from concept_audit.pipeline.resume import KeyedCell, dataset_of
from concept_audit.pipeline.schema import build
from concept_audit.pipeline.workers import progress_channel, worker_pool
from concept_audit.store.atomic import remove_leftovers
from concept_audit.store.keys import canonical_json
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock, lock_holder
from concept_audit.store.manifest import new_manifest
from concept_audit.store.status import is_done, mark_failed, mark_running

__all__ = ["GPU", "fit"]

_LARGEST_GROUP = 60  # models in one program; more would leave the cache and gain nothing
GPU = ("gpu", "cuda")  # accelerators that mean a CUDA device
Report = Callable[[str, float], None]


def _member(config: Mapping[str, Any], label: str) -> Any:
    from concept_audit.training.recipe import Member

    model = config["model"]
    return Member(
        spec=build(model["spec"]),
        seed=int(config["seed"]),
        lambda_concept=float(model.get("lambda_concept", 1.0)),
        p_int=float(model.get("p_int", 0.0)),
        label=label,
    )


def _groups(items: Sequence[KeyedCell]) -> list[list[KeyedCell]]:
    """Cells that may share a program, large groups cut to size; others stay alone."""
    from concept_audit.training.recipe import group_key

    groups: dict[str, list[KeyedCell]] = {}
    for item in items:
        config = item.cell.config
        shared = group_key(_member(config, item.key))
        name = (
            item.key
            if shared is None
            else canonical_json([config["data"], config["recipe"], config["trainer"], shared])
        )
        groups.setdefault(name, []).append(item)
    pieces = []
    for members in groups.values():
        count = -(-len(members) // _LARGEST_GROUP)
        size = -(-len(members) // count)
        pieces += [members[start : start + size] for start in range(0, len(members), size)]
    return sorted(pieces, key=len, reverse=True)


def _group_name(items: Sequence[KeyedCell]) -> str:
    """Name of a group of cells."""
    return hashlib.sha256(" ".join(item.key for item in items).encode()).hexdigest()[:16]


def _trainer_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the config says of the trainer, all GPUs of this machine counted where it says -1."""
    options = {name: value for name, value in config["trainer"].items() if name != "jobs"}
    if options["devices"] == -1:
        import torch

        options["devices"] = max(1, torch.cuda.device_count())
    return options


def _train_one(config: Mapping[str, Any], member: Any, dataset: Any, **options: Any) -> Any:
    """Train one model by itself: in this process, or in one for each device."""
    trainer = _trainer_options(config)
    if trainer["devices"] > 1 and member.spec.family != "representation":
        from concept_audit.training.distributed import fit_distributed

        make_dataset = partial(dataset_of, {"data": config["data"]})
        return fit_distributed(member, make_dataset, trainer=trainer, **options)
    from concept_audit.training.families import fit_one

    alone = {**trainer, "devices": 1, "strategy": "auto", "sync_batchnorm": False}
    return fit_one(member, dataset, trainer=alone, **options)


def _train(
    items: Sequence[KeyedCell], layout: OutputLayout, report: Report
) -> dict[str, str | None]:
    """Train one group in this process and write its runs; returns the error text of each key."""
    from concept_audit.training.recipe import group_key

    config = items[0].cell.config
    dataset = dataset_of(config)
    recipe = build(config["recipe"])
    members = [_member(item.cell.config, item.key) for item in items]
    manifests = {
        item.key: new_manifest(
            command=sys.argv,
            config=item.cell.config,
            key_parts=item.parts,
            seeds={"seed": item.cell.config["seed"], "eval_seed": item.cell.config["eval_seed"]},
            dataset_fingerprint=dataset.fingerprint(),
            repository=config_dir().parent,
        )
        for item in items
    }
    for item in items:
        mark_running(layout.run_dir(item.key))
    from concept_audit.pipeline.predict import inputs_of, write_run

    device = "cuda" if config["trainer"]["accelerator"] in GPU else "cpu"
    inputs = inputs_of(config, members[0].spec, device=device)

    def progress(epoch: int, n_epochs: int, losses: Mapping[Any, float]) -> None:
        report(items[0].key, len(items) * epoch / n_epochs)

    # Named after all of the group: a group of other members must not read this one's state.
    resume_path = layout.root / "resume" / _group_name(items) / "state.ckpt"
    resume_path.parent.mkdir(parents=True, exist_ok=True)
    if group_key(members[0]) is not None:
        from concept_audit.models.arithmetic import one_thread
        from concept_audit.training.bank import train_bank

        with one_thread():
            results = train_bank(
                members,
                inputs,
                recipe=recipe,
                progress=progress,
                resume_path=resume_path,
                device=device,
            )
    else:
        results = [
            _train_one(
                config,
                members[0],
                inputs,
                recipe=recipe,
                progress=progress,
                resume_path=resume_path,
            )
        ]
    remove_leftovers(resume_path.parent)
    resume_path.parent.rmdir()
    errors: dict[str, str | None] = {}
    for item, result in zip(items, results, strict=True):
        if result.failed is not None:
            mark_failed(layout.run_dir(item.key), result.failed)
        else:
            write_run(layout, item, inputs, result, manifests[item.key], device=device)
        errors[item.key] = result.failed
    return errors


def _locked_train(
    items: Sequence[KeyedCell], layout: OutputLayout, report: Report
) -> dict[str, str | None]:
    """Train those of the group that nobody else is training, then wait for the others."""
    errors: dict[str, str | None] = {}
    elsewhere = []
    with ExitStack() as stack:
        mine = []
        for item in items:
            if not stack.enter_context(held_lock(layout.lock_path(item.key))):
                elsewhere.append(item)
            elif is_done(layout.run_dir(item.key)):  # finished while we waited for our turn
                errors[item.key] = None
            else:
                mine.append(item)
        if mine:
            try:
                errors.update(_train(mine, layout, report))
            except Exception as error:  # one group must not stop the others; the table names it
                text = "".join(traceback.format_exception(error, limit=12))
                for item in mine:
                    mark_failed(layout.run_dir(item.key), text)
                    errors[item.key] = text
    for item in elsewhere:
        print(
            f"run {item.key} is being trained by "
            f"{lock_holder(layout.lock_path(item.key))}; waiting",
            file=sys.stderr,
        )
        with held_lock(layout.lock_path(item.key), wait_s=None):
            done = is_done(layout.run_dir(item.key))
        errors[item.key] = None if done else "the process that was training this run did not finish"
    return errors


def _in_process(
    items: Sequence[KeyedCell], root: str, threads: int, channel: Any
) -> dict[str, str | None]:
    import torch

    torch.set_num_threads(threads)
    return _locked_train(items, OutputLayout(root), lambda name, share: channel.put((name, share)))


def _pooled(
    groups: Sequence[list[KeyedCell]], layout: OutputLayout, jobs: int, progress: Progress
) -> dict[str, str | None]:
    errors: dict[str, str | None] = {}
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with progress_channel() as channel, worker_pool(jobs) as pool:
        pending: dict[Future[dict[str, str | None]], list[KeyedCell]] = {
            pool.submit(_in_process, group, str(layout.root), threads, channel): group
            for group in groups
        }
        while pending:
            finished, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            while True:
                try:
                    progress.partial(*channel.get_nowait())
                except queue.Empty:
                    break
            for future in finished:
                group = pending.pop(future)
                _count(group, future.result(), errors, progress)
    return errors


def _count(
    group: Sequence[KeyedCell],
    found: Mapping[str, str | None],
    errors: dict[str, str | None],
    progress: Progress,
) -> None:
    errors.update(found)
    failed = sum(error is not None for error in found.values())
    progress.finish("done", len(found) - failed, name=group[0].key)
    if failed:
        progress.finish("failed", failed)


def fit(layout: OutputLayout, items: Sequence[KeyedCell], *, jobs: int = 1) -> dict[str, str]:
    """Train every cell that is not done; returns the error text of those that failed."""
    errors: dict[str, str | None] = {}
    with Progress("train", len(items)) as progress:
        todo = []
        for item in items:
            if is_done(layout.run_dir(item.key)):
                progress.finish("skipped")
            else:
                todo.append(item)
        if todo:
            groups = _groups(todo)
            if jobs > 1 and len(groups) > 1:
                errors = _pooled(groups, layout, jobs, progress)
            else:
                for group in groups:
                    _count(group, _locked_train(group, layout, progress.partial), errors, progress)
    return {key: error for key, error in errors.items() if error is not None}
