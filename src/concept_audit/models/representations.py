"""Representations without training (DCI-ES paper, section 6): labels, noisy, mixed, pixels.

Here `codes` are what that paper calls c, and `factors` (z) are normalised to [0, 1]: class index
over (number of values - 1). All functions return float32 codes `(n, L)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from concept_audit.arrays import as_binary_concepts
from concept_audit.store.array_blocks import ArrayBlocks
from concept_audit.store.array_cache import cached_array

__all__ = [
    "frozen_codes",
    "label_codes",
    "mixed_label_codes",
    "mixing_matrix",
    "module_codes",
    "noisy_label_codes",
    "pixel_codes",
]

NOISE_STD = 0.1  # DCI-ES paper: eps ~ N(0, 0.01 I)
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
    batch_size: int = 256,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Codes of all images by a network: a VAE's `encode`, or a frozen encoder.

    Parameters
    ----------
    images : UInt8[ndarray, "n H W C"], or anything that gives such a block for an index array
    encode : maps a batch `(b, C, H, W)` in [0, 1], normalised if asked, to codes `(b, L)`; a
        module is in evaluation mode during the call
    mean, std : per-channel constants, for example ImageNet's for a pretrained ResNet
    batch_size, device : of the computation; they do not change the codes beyond rounding
    """
    owner = encode if isinstance(encode, nn.Module) else getattr(encode, "__self__", None)
    module = owner if isinstance(owner, nn.Module) else nn.Identity()
    was_training = module.training
    module.eval().to(device)
    shift = torch.tensor(mean or (0.0,), device=device).view(1, -1, 1, 1)
    scale = torch.tensor(std or (1.0,), device=device).view(1, -1, 1, 1)
    parts = []
    with torch.no_grad():
        for _, block in _blocks(images, batch_size):
            x = torch.from_numpy(np.ascontiguousarray(block)).to(device, torch.float32) / 255
            parts.append(encode((x - shift) / scale).float().cpu().numpy())
    module.train(was_training)
    return np.concatenate(parts)


def frozen_codes(
    images: Any,
    encode: Callable[[torch.Tensor], torch.Tensor],
    folder: str | Path,
    *,
    key: dict[str, Any],
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    batch_size: int = 256,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """`module_codes`, computed once and kept in a folder.

    Parameters
    ----------
    images, encode, mean, std, batch_size, device : as in `module_codes`
    folder : where to keep the codes, for example ``data/processed/codes``
    key : everything that decides the codes: the dataset's fingerprint, the encoder's description, a
        hash of its weights

    Returns
    -------
    Float32[ndarray, "n L"]; every concept weight and fold can then train a small model on it.
    """
    return cached_array(
        folder,
        {**key, "mean": mean, "std": std},
        lambda: module_codes(
            images, encode, mean=mean, std=std, batch_size=batch_size, device=device
        ),
    )
