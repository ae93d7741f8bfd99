"""Images: input, augmentation, the four renderers, and training of a VAE and a ResNet-18."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from concept_audit.data.base import ConceptDataset
from concept_audit.data.standins import cars3d, dsprites, mpi3d, shapes3d
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.image_encoders import ResNet18Spec
from concept_audit.models.losses import concept_loss, task_loss
from concept_audit.models.randomness import stream
from concept_audit.models.vae import VAESpec
from concept_audit.training.batches import EpochLoader, InputTransform, order_of
from concept_audit.training.families import fit_one
from concept_audit.training.recipe import Member, Recipe, initial_model

__all__ = ["run"]

MEAN, STD = (0.5, 0.5, 0.5), (2.0, 2.0, 2.0)
BATCH = 64


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of all image work, one thread, process time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            _input(quick),
            _augmented_input(quick),
            *_renderers(quick),
            _training("VAE, big network", VAESpec(network="big", n_latents=10), quick),
            _training(
                "CBM on ResNet-18",
                CBMSpec(encoding="soft", encoder=ResNet18Spec(weights="random")),
                quick,
            ),
        ]
    finally:
        torch.set_num_threads(threads)


def _row(work: str, peer: str, ours_ms: float, peer_ms: float, **rest: Any) -> dict[str, Any]:
    row = {"work": work, "peer": peer, "must": None, "aim": None, "ratio": peer_ms / ours_ms}
    return {**row, "ours_ms": ours_ms, "peer_ms": peer_ms, **rest}


def _median_ms(task: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        task()
        times.append(1e3 * (time.process_time() - start))
    return median(times)


def _dataset(x: np.ndarray) -> ConceptDataset:
    """Images, the last two for validation, with two concepts that repeat every four rows."""
    n = len(x)
    c = np.stack([np.arange(n) % 2, np.arange(n) // 2 % 2], axis=1)
    rows = np.arange(n)
    return ConceptDataset(
        name="noise",
        x=x,
        c=c,
        y=c[:, 0],
        concept_names=("odd", "second_bit"),
        class_names=("even", "odd"),
        splits={"train": rows[:-2], "val": rows[-2:]},
        mean=MEAN,
        std=STD,
    )


def _noise(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)


class _PerSample(Dataset):
    """One image, transformed, as torchvision's own datasets give it."""

    def __init__(self, x: np.ndarray, transform: Callable[[np.ndarray], torch.Tensor]) -> None:
        self.x, self.transform = x, transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.transform(self.x[row])


def _input(quick: bool) -> dict[str, Any]:
    n = 512 if quick else 4096
    dataset = _dataset(_noise(n + 2))
    loader = EpochLoader(dataset, "train", batch_size=BATCH, shuffle=True)
    transform = InputTransform(dataset, channels_last=True)  # as configs/trainer has it
    to_normalised = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    peer = DataLoader(
        _PerSample(dataset.x[:n], to_normalised),
        batch_size=BATCH,
        sampler=order_of(n, 0, "joint", 0, True).tolist(),
        num_workers=0,
    )
    equal = all(
        torch.equal(transform(ours.x), theirs) for ours, theirs in zip(loader, peer, strict=True)
    )
    ours_ms = _median_ms(lambda: [transform(batch.x).shape for batch in loader], 5)
    peer_ms = _median_ms(lambda: [batch.shape for batch in peer], 3 if quick else 5)
    return _row(
        "image input, bytes in memory to normalised batches",
        "torchvision ToTensor and Normalize per sample, DataLoader without workers",
        ours_ms,
        peer_ms,
        must=10.0,
        sizes=f"{n} images 64x64x3, batch {BATCH}, shuffled",
        equal=equal,
        note=f"{1e3 * n / ours_ms:,.0f} images/s",
    )


def _augmented_input(quick: bool) -> dict[str, Any]:
    n = 128 if quick else 1024
    dataset = _dataset(_noise(n + 2))
    loader = EpochLoader(dataset, "train", batch_size=BATCH, augmentation="jitter_crop_flip")
    transform = InputTransform(dataset)
    published = transforms.Compose([
        transforms.ToTensor(),
        transforms.ColorJitter(brightness=32 / 255, saturation=(0.5, 1.5)),
        transforms.RandomResizedCrop(64),
        transforms.RandomHorizontalFlip(),
        transforms.Normalize(MEAN, STD),
    ])  # fmt: skip
    peer = DataLoader(_PerSample(dataset.x[:n], published), batch_size=BATCH, num_workers=0)
    ours_ms = _median_ms(
        lambda: [transform(batch.x, batch.augmentation).shape for batch in loader], 5
    )
    peer_ms = _median_ms(lambda: [batch.shape for batch in peer], 3 if quick else 5)
    return _row(
        "image input with colour jitter, random crop and flip",
        "the same of torchvision per sample, DataLoader without workers",
        ours_ms,
        peer_ms,
        sizes=f"{n} images 64x64x3, batch {BATCH}",
        equal="other random numbers (equal with the same ones: tests/training)",
        note=f"{1e3 * n / ours_ms:,.0f} images/s",
    )


def _renderers(quick: bool) -> list[dict[str, Any]]:
    """Whole outlines of each set, as a full rendering meets them, and single images of them."""
    draw = np.random.default_rng(0)

    def whole(module: Any, outline: tuple[int, ...], count: int) -> np.ndarray:
        """Factors of all images of `count` random values of the factors that make the outline."""
        sizes = module.GRID.sizes
        numbers = np.arange(module.GRID.n_rows).reshape(sizes)
        numbers = np.moveaxis(numbers, outline, range(len(outline)))
        numbers = numbers.reshape(np.prod([sizes[i] for i in outline]), -1)
        chosen = draw.choice(len(numbers), size=count, replace=False)
        return module.GRID.factors_of(numbers[chosen].ravel())

    sprites = whole(dsprites, (0, 1, 2), 3 if quick else 12)
    rooms = whole(shapes3d, (3, 4, 5), 1 if quick else 6)
    arms = whole(mpi3d, (1, 2, 3, 5, 6), 4 if quick else 40)
    # Of a view of Cars3D all rays are shared, but each car has an outline of its own.
    cars = whole(cars3d, (0, 1), 1)[:: 30 if quick else 4]
    return [
        _renderer("dSprites", dsprites, sprites, quick, "60 s"),
        _renderer("3dshapes", shapes3d, rooms, quick, "300 s"),
        _renderer("MPI3D", mpi3d, arms, quick, None),
        _renderer("Cars3D, 64 pixels", cars3d, cars, quick, "360 s"),
    ]


def _renderer(
    name: str, module: Any, factors: np.ndarray, quick: bool, limit: str | None
) -> dict[str, Any]:
    singles = np.random.default_rng(1).choice(len(factors), 5 if quick else 30, replace=False)
    images = module.render(factors)  # what does not depend on the image is kept, for both sides
    one_by_one = [module.render(factors[row : row + 1])[0] for row in singles]
    repeats = 1 if quick else 5
    ours_ms = 1e3 / len(factors) * _median_ms(lambda: module.render(factors), repeats)
    peer_ms = (
        1e3 / len(singles)
        * _median_ms(lambda: [module.render(factors[row : row + 1]) for row in singles], repeats)
    )  # fmt: skip
    n_all = module.GRID.n_rows
    note = (
        f"{1e6 / ours_ms:,.0f} images/s; all {n_all:,} in about {n_all * ours_ms / 1e6:,.0f} s on "
        f"one core, files not counted"
    )
    return _row(
        f"{name} stand-in, per 1000 images",
        "the same renderer, one image a call",
        ours_ms,
        peer_ms,
        sizes=f"{len(factors)} images, {len(singles)} one by one",
        equal=bool(np.array_equal(images[singles], one_by_one)),
        note=note if limit is None else f"{note} (must: {limit} on two cores)",
    )


def _training(name: str, spec: Any, quick: bool) -> dict[str, Any]:
    """Our training on copies of one batch against a plain loop on that batch, made before."""
    batch, steps, epochs = (4, 1, 3) if quick else (BATCH, 2, 4)
    x = np.concatenate([np.tile(_noise(batch), (steps, 1, 1, 1)), _noise(2)])
    dataset = _dataset(x)
    if spec.family == "vae":  # reads images in [0, 1]
        dataset = replace(dataset, mean=None, std=None)
    member = Member(spec, seed=1)
    recipe = Recipe(epochs=epochs, batch_size=batch, lr=1e-3, shuffle=False, checkpoint="last")
    ticks: list[float] = []
    result = fit_one(
        member,
        dataset,
        recipe=recipe,
        trainer={"channels_last": True},
        progress=lambda *_: ticks.append(time.process_time()),
    )
    if result.failed:
        raise RuntimeError(f"{name}: {result.failed}")
    ours = [after - before for before, after in itertools.pairwise(ticks)]
    losses, theirs = _plain_loop(member, dataset, recipe, steps)
    gap = max(
        abs(row["train_loss"] / loss - 1) for row, loss in zip(result.history, losses, strict=True)
    )
    ours_ms, peer_ms = (1e3 * median(times) / steps for times in (ours, theirs[1:]))
    return _row(
        f"{name}, one training step",
        "plain torch loop on one constant batch",
        ours_ms,
        peer_ms,
        sizes=f"64x64x3, batch {batch}, median of {epochs - 1} epochs of {steps} steps",
        equal=f"{gap < 1e-4}, losses to {gap:.0e}",
        note=f"{1e3 * batch / ours_ms:.0f} against {1e3 * batch / peer_ms:.0f} images/s; "
        "0.9x is the target on a GPU",
    )


def _plain_loop(
    member: Member, dataset: ConceptDataset, recipe: Recipe, steps: int
) -> tuple[list[float], list[float]]:
    """Mean loss and process time of each epoch."""
    spec: Any = member.spec
    rows = np.arange(recipe.batch_size)
    x = InputTransform(dataset, channels_last=True)(torch.from_numpy(dataset.x[rows]))
    c = torch.from_numpy(dataset.c[rows]).float()
    y = torch.from_numpy(dataset.y[rows])
    model = initial_model(member, dataset).to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    phase = "reconstruction" if spec.family == "vae" else "joint"
    losses, times = [], []
    for epoch in range(recipe.epochs):
        # The noise of a VAE is addressed by seed, phase and epoch.
        torch.manual_seed(int(stream(member.seed, f"torch/{phase}", epoch).integers(2**31)))
        start, total = time.process_time(), 0.0
        for _ in range(steps):
            optimiser.zero_grad()
            output = model(x)
            if spec.family == "vae":
                loss = spec.loss(output, x, n_train=steps * len(rows)).total
            else:
                loss = task_loss(output.y_logits, y) + concept_loss(output.c_logits, c)
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total / steps)
        times.append(time.process_time() - start)
    return losses, times


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run("--quick" in sys.argv), indent=2))
