"""Representations without training (DCI-ES paper, section 6): labels, noisy, mixed, pixels.

Here `codes` are what that paper calls c, and `factors` (z) are normalised to [0, 1]: class index
over (number of values - 1). All functions return float32 codes `(n, L)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from concept_audit.arrays import as_binary_concepts
from concept_audit.models.arithmetic import matrix_products
from concept_audit.store.array_blocks import ArrayBlocks
from concept_audit.store.array_cache import cache_path, cached_array
from concept_audit.store.locks import held_lock, lock_holder

__all__ = [
    "frozen_codes",
    "kept_codes",
    "label_codes",
    "mixed_label_codes",
    "mixing_matrix",
    "module_codes",
    "noisy_label_codes",
    "pixel_codes",
]

NOISE_STD = 0.1  # DCI-ES paper: eps ~ N(0, 0.01 I)
_BATCH_PIXELS = 1 << 21  # one batch of ResNet-18 takes about 0.3 GB
MIXING_VARIANCE = 0.001  # DCI-ES paper: eps ~ N(0, 0.001), read as a variance like the noise above


def _normalised(factors: ArrayLike, factor_sizes: Sequence[int]) -> NDArray[np.float64]:
    indices = as_binary_concepts("factors", factors)
    sizes = np.array(factor_sizes)
    if sizes.shape != (indices.shape[1],) or (indices >= sizes).any():
        raise ValueError(
            f"factor_sizes must hold the number of values of each of the {indices.shape[1]} "
            f"factors, got {tuple(factor_sizes)} for indices up to {indices.max(axis=0).tolist()}."
        )
    return indices / np.maximum(sizes - 1, 1)


def label_codes(factors: ArrayLike, factor_sizes: Sequence[int]) -> NDArray[np.float32]:
    """Ground-truth labels: the factors `(n, K)`, class indices, normalised by their sizes."""
    return _normalised(factors, factor_sizes).astype(np.float32)


def noisy_label_codes(
    factors: ArrayLike, factor_sizes: Sequence[int], *, std: float = NOISE_STD, seed: int = 0
) -> NDArray[np.float32]:
    """Labels plus Gaussian noise, drawn once for the whole set, not per epoch.

    Parameters
    ----------
    factors, factor_sizes : class indices `(n, K)` and number of values of each factor
    std : of the noise; the paper's 0.01 is a variance
    seed : of the noise
    """
    if std < 0:
        raise ValueError(f"std must not be negative, got {std}.")
    labels = _normalised(factors, factor_sizes)
    noise = np.random.default_rng(seed).normal(0.0, std, size=labels.shape)
    return (labels + noise).astype(np.float32)


def mixing_matrix(
    n_codes: int, n_factors: int, *, variance: float = MIXING_VARIANCE, seed: int = 0
) -> NDArray[np.float64]:
    """Matrix W `(L, K)` with entries 1 / (L K) plus Gaussian noise.

    DEVIATION: the paper writes N(0, 0.001) without saying whether that is a variance. As a standard
    deviation it makes W so ill-conditioned (about 490 at K = 7) that no probe of the paper could
    undo it; as a variance the condition number is about 26.
    """
    if n_codes < 1 or n_factors < 1 or variance <= 0:
        raise ValueError(
            f"n_codes and n_factors must be at least 1 and variance above 0, got {n_codes}, "
            f"{n_factors} and {variance}."
        )
    noise = np.random.default_rng(seed).normal(0.0, variance**0.5, size=(n_codes, n_factors))
    return 1.0 / (n_codes * n_factors) + noise


def mixed_label_codes(
    factors: ArrayLike, factor_sizes: Sequence[int], *, n_codes: int | None = None, seed: int = 0
) -> NDArray[np.float32]:
    """Linearly mixed labels W z, as many codes as factors unless told otherwise."""
    labels = _normalised(factors, factor_sizes)
    matrix = mixing_matrix(n_codes or labels.shape[1], labels.shape[1], seed=seed)
    return (labels @ matrix.T).astype(np.float32)


def _check_images(images: Any) -> None:
    if len(getattr(images, "shape", ())) != 4 or images.dtype != np.uint8:
        raise ValueError(
            "images must be uint8 of shape (n, H, W, C), got shape "
            f"{getattr(images, 'shape', None)} and dtype {getattr(images, 'dtype', None)}."
        )


def _blocks(images: Any, batch_size: int) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    _check_images(images)
    for start in range(0, len(images), batch_size):
        rows = np.arange(start, min(start + batch_size, len(images)))
        yield rows, np.asarray(images[rows]).transpose(0, 3, 1, 2)


def pixel_codes(images: Any) -> ArrayBlocks:
    """Raw pixels in [0, 1], channels first and flattened: L = 12288 for 64 x 64 colour images.

    Made by blocks of 1024 rows, since the codes are four times the images: 51 GB for the whole of
    MPI3D, which neither memory nor a second array need hold. `numpy.asarray` joins them.
    """
    _check_images(images)
    n, height, width, channels = images.shape
    return ArrayBlocks(
        (n, height * width * channels),
        np.dtype(np.float32),
        lambda: (
            block.reshape(len(rows), -1) / np.float32(255) for rows, block in _blocks(images, 1024)
        ),
    )


def module_codes(
    images: Any,
    encode: Callable[[torch.Tensor], torch.Tensor],
    *,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Codes of all images by a network: a VAE's `encode`, or a frozen encoder.

    Parameters
    ----------
    images : UInt8[ndarray, "n H W C"], or anything that gives such a block for an index array
    encode : maps a batch `(b, C, H, W)` in [0, 1], normalised if asked, to codes `(b, L)`; a
        module is in evaluation mode during the call
    mean, std : per-channel constants, for example ImageNet's for a pretrained ResNet
    batch_size : images at a time; by default up to 256, fewer of larger images
    device : where to compute; neither changes the codes beyond rounding
    """
    owner = encode if isinstance(encode, nn.Module) else getattr(encode, "__self__", None)
    module = owner if isinstance(owner, nn.Module) else nn.Identity()
    was_training = module.training
    module.eval().to(device)
    shift = torch.tensor(mean or (0.0,), device=device).view(1, -1, 1, 1)
    scale = torch.tensor(std or (1.0,), device=device).view(1, -1, 1, 1)
    parts = []
    height, width = images.shape[1:3] if len(images.shape) == 4 else (1, 1)
    batch_size = batch_size or min(256, max(1, _BATCH_PIXELS // (height * width)))
    # Full float32 also in a GPU's convolutions: codes are kept and read on other devices.
    with torch.no_grad(), matrix_products():
        for _, block in _blocks(images, batch_size):
            # The bytes travel, a fourth of the floats.
            x = torch.from_numpy(np.ascontiguousarray(block)).to(device).to(torch.float32) / 255
            parts.append(encode((x - shift) / scale).float().cpu().numpy())
    module.train(was_training)
    return np.concatenate(parts)


def kept_codes(
    folder: str | Path,
    key: dict[str, Any],
    compute: Callable[[], NDArray[np.float32]],
    *,
    what: str = "images",
    announce: Callable[[str], None] | None = None,
) -> NDArray[np.float32]:
    """Codes computed once, by one process at a time, and kept in a folder.

    Parameters
    ----------
    folder : where to keep the codes, for example ``data/processed/codes``
    key : everything that decides the codes; a hash of it names the file
    compute : gives the codes `(n, L)`
    what : of what the codes are, for the messages
    announce : told in a line when computing starts and ends, or what is being waited for

    Returns
    -------
    Float32[ndarray, "n L"]; beyond 1 GiB a read-only memory map. A file that cannot be read is
    replaced.
    """
    path = cache_path(folder, key)
    say = announce or (lambda line: None)

    def build() -> NDArray[np.float32]:
        say(f"features of {what}")
        started = time.monotonic()
        codes = compute()
        say(f"features computed in {time.monotonic() - started:.1f} s, kept as {path}")
        return codes

    if path.exists():  # also where nothing can be written
        return cached_array(folder, key, build)
    lock = path.with_suffix(".lock")
    with held_lock(lock) as mine:
        if mine:
            return cached_array(folder, key, build)
    say(f"features are being computed by {lock_holder(lock) or 'another process'}; waiting")
    with held_lock(lock, wait_s=None):
        return cached_array(folder, key, build)


def frozen_codes(
    images: Any,
    encode: Callable[[torch.Tensor], torch.Tensor],
    folder: str | Path,
    *,
    key: dict[str, Any],
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """`module_codes` of a network of one's own, computed once and kept in a folder.

    Parameters
    ----------
    images, encode, mean, std, batch_size, device : as in `module_codes`
    folder : where to keep the codes
    key : everything that decides the codes: the dataset's fingerprint, the encoder's description, a
        hash of its weights

    Returns
    -------
    Float32[ndarray, "n L"]; every concept weight and fold can then train a small model on it.
    """
    return kept_codes(
        folder,
        {**key, "mean": mean, "std": std},
        lambda: module_codes(
            images, encode, mean=mean, std=std, batch_size=batch_size, device=device
        ),
    )
