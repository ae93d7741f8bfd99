"""Speed of the training loop on one device, beside a bare loop on one batch that is there already.

The bare loop has the same network, loss and optimiser and nothing else: no data, no Lightning, no
history. What is missing to its speed is what our loop costs.
"""

from __future__ import annotations

import gc
import itertools
import resource
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.arithmetic import matrix_products
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.image_encoders import Conv4Spec, ResNet18Spec
from concept_audit.models.losses import concept_loss, task_loss
from concept_audit.models.vae import VAESpec
from concept_audit.pipeline.device_profile import Profile
from concept_audit.training.batches import to_inputs
from concept_audit.training.concept_module import ConceptModule
from concept_audit.training.fitting import COMPILED, fit_single
from concept_audit.training.recipe import Member, Recipe, initial_model
from concept_audit.training.vae_module import VAEModule

__all__ = [
    "TARGET",
    "NoTimeLeftError",
    "Settings",
    "SpeedCase",
    "measure",
    "speed_cases",
    "speed_ratio",
]

TARGET = 0.90  # of the bare loop's images per second
_SHORT_STEP = 0.5  # seconds
_SLACK = 1.25  # of the time that a case is expected to take
_PROFILED = 8  # steps of one more epoch, at most, of a training that was slow
_MAX_BYTES = 600 * 2**20  # of random images


class NoTimeLeftError(RuntimeError):
    """A measurement would take longer than allowed."""


@dataclass(frozen=True)
class SpeedCase:
    """A model with the shape of its images; `mapped` images lie in a file, as decoded CUB does."""

    name: str
    spec: Any
    side: int
    batch_size: int
    n_concepts: int = 6
    n_classes: int = 12
    mapped: bool = False


@dataclass(frozen=True)
class Settings:
    """How a case is run: the options of a training, and how long it is timed.

    `repeat_seconds` is aimed at by the number of steps, between 2 and `max_steps`, of each of the
    `repeats`, which are epochs of the training and stretches of the bare loop.
    """

    device: str
    precision: str = "32-true"
    tf32: bool = False
    compile: bool = False
    channels_last: bool = False
    repeats: int = 3
    repeat_seconds: float = 1.0
    max_steps: int = 50

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")


def speed_cases(device: str, *, quick: bool) -> tuple[SpeedCase, ...]:
    """Models to time, the cheap ones first; a CPU gets smaller batches."""
    gpu = device.startswith("cuda")
    resnet, vae = ResNet18Spec(weights="random"), VAESpec(network="big")
    conv4 = SpeedCase(
        "conv4", CBMSpec(encoder=Conv4Spec()), 64, 512 if gpu else 16 if quick else 64
    )
    small = SpeedCase("resnet18_64px", CBMSpec(encoder=resnet), 64, 512 if gpu else 64)
    if quick:
        return (conv4, small) if gpu else (conv4,)
    return (
        conv4,
        small,
        SpeedCase("vae_big", vae, 64, 512 if gpu else 64),
        *((SpeedCase("vae_big_paper_batch", vae, 64, 64),) if gpu else ()),
        # CUB: 299 pixels, 112 concepts, 200 species, batches of 64 (leakage paper, appendix).
        SpeedCase(
            "resnet18_cub", CBMSpec(encoder=resnet), 299, 64 if gpu else 4, 112, 200, mapped=True
        ),
    )


def speed_ratio(ours: float, bare: float) -> dict[str, Any]:
    """Our images per second over the bare loop's, and whether the target is reached."""
    if not (np.isfinite([ours, bare]).all() and ours > 0 and bare > 0):
        raise ValueError(f"images per second must be finite and above 0, got {ours} and {bare}.")
    ratio = ours / bare
    return {"ratio": ratio, "target": TARGET, "reached": ratio >= TARGET}


def _empty_cache(device: str) -> None:
    """Give back what earlier work held, also through the traceback of an error by now handled."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def _synchronise(device: str) -> None:
    """Wait for the device: kernels run behind the program that starts them."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _reset_peak(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> dict[str, Any]:
    if device.startswith("cuda"):
        return {
            "peak_memory_mib": torch.cuda.max_memory_allocated() / 2**20,
            "peak_reserved_mib": torch.cuda.max_memory_reserved() / 2**20,
            "peak_memory_of": "tensors of this training on the GPU",
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        # bytes on macOS, KiB elsewhere
        "peak_memory_mib": peak / 2 ** (20 if sys.platform == "darwin" else 10),
        "peak_reserved_mib": None,
        "peak_memory_of": "this process since it started: a CPU keeps no peak of one training",
    }


def _random_dataset(case: SpeedCase, n_steps: int, folder: Path) -> ConceptDataset:
    """Random images, concepts and classes that fill `n_steps` batches and one of validation."""
    n_train = n_steps * case.batch_size
    n = n_train + case.batch_size  # equal batches throughout: no shape is compiled twice
    rng = np.random.default_rng(0)
    shape = (n, case.side, case.side, 3)
    images: NDArray[np.uint8]
    if case.mapped:
        images = np.memmap(folder / f"{case.name}.images", np.uint8, mode="w+", shape=shape)
        for start in range(0, n, case.batch_size):
            stop = min(start + case.batch_size, n)
            images[start:stop] = rng.integers(0, 256, (stop - start, *shape[1:]), np.uint8)
    else:
        images = rng.integers(0, 256, shape, np.uint8)
    return ConceptDataset(
        name="random_images",
        x=images,
        c=rng.integers(0, 2, (n, case.n_concepts)),
        y=rng.integers(0, case.n_classes, n),
        concept_names=tuple(f"c{i}" for i in range(case.n_concepts)),
        class_names=tuple(f"class_{i}" for i in range(case.n_classes)),
        splits={"train": np.arange(n_train), "val": np.arange(n_train, n)},
        standin=True,
        content_digest="random",  # hashing the images would only take time
    )


class _BareLoop:
    """One constant batch on the device, trained on again and again."""

    def __init__(self, case: SpeedCase, settings: Settings, dataset: ConceptDataset) -> None:
        self.case = case
        self.settings = settings
        rows = dataset.rows("train")[: case.batch_size]
        device = settings.device
        last = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.x = to_inputs(dataset, rows).to(device).contiguous(memory_format=last)
        self.c = torch.from_numpy(dataset.c[rows]).to(device, torch.float32)
        self.y = torch.from_numpy(dataset.y[rows]).to(device)
        self.n_train = len(dataset.rows("train"))
        model = initial_model(Member(case.spec), dataset).to(device).train()
        if settings.channels_last or case.spec.family == "vae":  # `VAEModule` always does
            model.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        if settings.compile:
            for name, part in model.named_children():
                if name in COMPILED:
                    part.compile(dynamic=False)
        self.model: Any = model
        fused = True if settings.is_cuda else None
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.settings.precision == "32-true":
            return nullcontext()
        return torch.autocast("cuda" if self.settings.is_cuda else "cpu", dtype=torch.bfloat16)

    def step(self) -> None:
        """One step of training."""
        self.optimiser.zero_grad()
        with self._autocast():
            if self.case.spec.family == "vae":
                loss = self.case.spec.loss(self.model(self.x), self.x, n_train=self.n_train).total
            else:
                output = self.model(self.x, self.c, None)
                loss = concept_loss(output.c_logits, self.c) + task_loss(output.y_logits, self.y)
        loss.backward()
        self.optimiser.step()

    def seconds(self, n_steps: int) -> float:
        """Wall time of some steps, the device's work included."""
        _synchronise(self.settings.device)
        start = time.perf_counter()
        for _ in range(n_steps):
            self.step()
        _synchronise(self.settings.device)
        return time.perf_counter() - start


class _EnoughError(Exception):
    """Ends a training whose remaining work is not to be measured."""


class _Watch:
    """Times of each epoch's training steps, of a training that is stopped when they suffice."""

    def __init__(self, settings: Settings, goal_s: float, deadline: float = float("inf")) -> None:
        self.device = settings.device
        self.n_epochs = 1 + settings.repeats  # the first one is warm-up
        self.goal_s = goal_s
        self.deadline = deadline  # of `time.perf_counter`
        self.spans: list[tuple[float, float]] = []
        self.peak: dict[str, Any] = {}
        self.profile: Profile | None = None
        self._start = 0.0

    @property
    def seconds(self) -> list[float]:
        """Training time of each timed epoch."""
        return [stop - start for start, stop in self.spans[1:]]

    @property
    def between(self) -> list[float]:
        """Time from the last step of an epoch to the first of the next: validation, keeping."""
        return [nxt[0] - this[1] for this, nxt in itertools.pairwise(self.spans)]

    def starts(self) -> None:
        """Begin an epoch; the one after the timed ones is profiled if they were slow, else none."""
        _synchronise(self.device)
        late = len(self.spans) > 1 and time.perf_counter() > self.deadline
        if len(self.spans) == self.n_epochs or late:
            self.peak = _peak(self.device)
            if late or median(self.seconds) <= self.goal_s:
                raise _EnoughError
            self.profile = Profile(self.device, n_steps=_PROFILED)
            self.profile.start()
        self._start = time.perf_counter()

    def steps(self) -> None:
        """Count a step, for the profile."""
        if self.profile is not None and self.profile.step():
            _synchronise(self.device)
            self.profile.stop()
            raise _EnoughError

    def stops(self) -> None:
        """End an epoch's steps."""
        _synchronise(self.device)
        if self.profile is not None:  # an epoch of fewer steps than a profile takes
            self.profile.stop()
            raise _EnoughError
        self.spans.append((self._start, time.perf_counter()))


def _watched(base: type[ConceptModule], watch: _Watch) -> type[ConceptModule]:
    """A Lightning module that tells when an epoch's training steps begin and end."""

    class Watched(base):  # type: ignore[misc]
        def on_train_epoch_start(self) -> None:
            super().on_train_epoch_start()
            watch.starts()

        def on_train_batch_end(self, *arguments: Any) -> None:
            super().on_train_batch_end(*arguments)
            watch.steps()

        def on_validation_start(self) -> None:
            super().on_validation_start()
            watch.stops()

    return Watched


def _train(
    case: SpeedCase, settings: Settings, dataset: ConceptDataset, watch: _Watch
) -> str | None:
    """Train until the watch has seen enough; returns why it failed, if it did."""
    recipe = Recipe(
        epochs=settings.repeats + 3, batch_size=case.batch_size, lr=1e-3, checkpoint="last"
    )
    trainer = {
        "accelerator": "gpu" if settings.is_cuda else "cpu",
        "devices": 1,
        "precision": settings.precision,
        "tf32": settings.tf32,
        "compile": settings.compile,
        "channels_last": settings.channels_last,
    }
    base = VAEModule if case.spec.family == "vae" else ConceptModule
    try:
        result = fit_single(
            Member(case.spec),
            dataset,
            recipe=recipe,
            trainer=trainer,
            module_type=_watched(base, watch),
        )
    except _EnoughError:
        return None
    return result.failed


def steps_per_repeat(
    case: SpeedCase,
    settings: Settings,
    step_seconds: float,
    budget_seconds: float,
    share_seconds: float = float("inf"),
) -> int:
    """Steps of each repeat: as many as fill it, as few as the time and the memory ask for.

    Raises
    ------
    NoTimeLeftError
        If one step each would already take longer than `budget_seconds`.
    """
    most = min(settings.max_steps, _MAX_BYTES // (case.batch_size * case.side**2 * 3))
    wanted = int(np.clip(round(settings.repeat_seconds / step_seconds), 2, max(2, most)))
    # Stretches of the bare loop, epochs of the training and two more, to warm up and to profile.
    per_step = 2 * settings.repeats + 2
    validation = (settings.repeats + 1) / 2  # a step without its backward pass each

    def affordable(seconds: float) -> float:
        return (seconds / (_SLACK * step_seconds) - validation) / per_step

    if affordable(budget_seconds) < 1:
        raise NoTimeLeftError(
            f"{case.name} takes {step_seconds:.2g} s a step here, too long for the "
            f"{max(0.0, budget_seconds):.0f} s that are left. Raise --limit-seconds."
        )
    return max(1, int(min(wanted, affordable(min(share_seconds, budget_seconds)))))


def measure(
    case: SpeedCase,
    settings: Settings,
    folder: Path,
    *,
    budget_seconds: float = float("inf"),
    share_seconds: float = float("inf"),
) -> dict[str, Any]:
    """Time one case.

    Parameters
    ----------
    case, settings
        What to train and how.
    folder : Path
        For images that lie in a file.
    budget_seconds : float
        Time that the case may take, as far as its first steps tell.
    share_seconds : float
        Time that it should take, if it can: the others want theirs.

    Returns
    -------
    dict
        Images per second of both loops as medians over the repeats, their ratio, milliseconds per
        step, peak memory of the training, and where the time goes if the target is missed.

    Raises
    ------
    NoTimeLeftError
        If the time does not suffice.
    RuntimeError
        If the loss is not finite.
    """
    start = time.perf_counter()
    _empty_cache(settings.device)
    if settings.compile:
        torch.compiler.reset()  # past 8 variants of one function torch would no longer compile
    with matrix_products(tf32=settings.tf32):
        bare = _BareLoop(case, settings, _random_dataset(case, 1, folder))
        bare.seconds(1)  # sets up kernels, compiles
        step_seconds, warmup = bare.seconds(1), 2
        spent = time.perf_counter() - start
        limits = budget_seconds - spent, share_seconds - spent
        n_steps = steps_per_repeat(case, settings, step_seconds, *limits)
        if step_seconds < _SHORT_STEP:  # the second step need not be a typical one
            step_seconds, warmup = min(bare.seconds(1) for _ in range(3)), 5
            n_steps = steps_per_repeat(case, settings, step_seconds, *limits)
        bare_seconds = [bare.seconds(n_steps) for _ in range(settings.repeats)]
    del bare
    _empty_cache(settings.device)
    dataset = _random_dataset(case, n_steps, folder)
    _reset_peak(settings.device)
    watch = _Watch(settings, median(bare_seconds) / TARGET, start + budget_seconds)
    failed = _train(case, settings, dataset, watch)
    _empty_cache(settings.device)
    if failed is not None:
        raise RuntimeError(f"training {case.name} failed: {failed}")
    n_images = n_steps * case.batch_size
    speeds = [n_images / seconds for seconds in watch.seconds]
    bare_speeds = [n_images / seconds for seconds in bare_seconds]
    step_ms = 1e3 * median(watch.seconds) / n_steps
    return {
        "name": case.name,
        "model": repr(case.spec),
        "input_shape": list(dataset.input_shape),
        "batch_size": case.batch_size,
        "data": {
            "kind": "random uint8 images",
            "standin": True,
            "storage": "memory-mapped file" if case.mapped else "memory",
            "mib": dataset.x.nbytes / 2**20,
        },
        "precision": settings.precision,
        "tf32": settings.tf32,
        "compile": settings.compile,
        "channels_last": settings.channels_last or case.spec.family == "vae",
        "images_per_s": median(speeds),
        "images_per_s_of_repeats": speeds,
        "bare_images_per_s": median(bare_speeds),
        "bare_images_per_s_of_repeats": bare_speeds,
        **speed_ratio(median(speeds), median(bare_speeds)),
        "step_ms": step_ms,
        "bare_step_ms": 1e3 * median(bare_seconds) / n_steps,
        "between_epochs_ms": 1e3 * median(watch.between),
        "steps_timed": {"training": n_steps * len(speeds), "bare": n_steps * len(bare_speeds)},
        "warmup_steps": {"training": n_steps, "bare": warmup},
        **watch.peak,
        "where_the_time_goes": None if watch.profile is None else watch.profile.summary(step_ms),
        "seconds": time.perf_counter() - start,
    }
