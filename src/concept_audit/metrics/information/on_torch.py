"""Blocks of rows of vector distances on a torch device (extra `torch`), float64 throughout.

Distances are exact on both sides of the comparison: no dot-product expansion.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["device_of", "ksg_sums", "ross_sums"]

_CHUNK_BYTES = {"cpu": 64 * 2**20, "cuda": 1024 * 2**20}


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "device= needs torch, which is not installed. "
            "Install it with: pip install 'concept-audit[torch]', or leave device out."
        ) from error
    return torch


def device_of(device: str | None, *arrays: Any) -> str | None:
    """The device asked for, else that of the first tensor that lives on a GPU, else None."""
    if device is not None:
        _torch().device(device)  # a misspelt device fails here, before any work
        return str(device)
    for array in arrays:
        home = getattr(array, "device", None)
        if getattr(home, "type", None) == "cuda":
            return str(home)
    return None


def _rows_at_once(device: str, n: int, matrices: int) -> int:
    budget = _CHUNK_BYTES.get(device.partition(":")[0], _CHUNK_BYTES["cpu"])
    return max(1, budget // (8 * n * matrices))


def ksg_sums(
    vectors: Sequence[NDArray], pairs: NDArray, n_neighbors: int, table: NDArray, device: str
) -> NDArray:
    """Digamma sums over both marginals' counts for each pair of vectors."""
    torch = _torch()
    points = [torch.as_tensor(vector, dtype=torch.float64, device=device) for vector in vectors]
    psi = torch.tensor(table, dtype=torch.float64, device=device)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    n = points[0].shape[0]
    rows = _rows_at_once(device, n, len(points) + 4)
    sums = torch.zeros(len(pairs), dtype=torch.float64, device=device)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        distance = [torch.cdist(point[start:stop], point, p=float("inf")) for point in points]
        own = torch.arange(stop - start, device=device)
        for at, (i, j) in enumerate(pairs):
            joint = torch.maximum(distance[i], distance[j])
            joint[own, own + start] = float("inf")
            kth = joint.topk(n_neighbors, dim=1, largest=False).values[:, -1:]
            radius = torch.nextafter(kth, zero)
            for v in (i, j):
                sums[at] += psi[(distance[v] <= radius).sum(dim=1)].sum()
    return np.asarray(sums.cpu().numpy())


def ross_sums(
    vector: NDArray, index: NDArray, neighbours: NDArray, table: NDArray, device: str
) -> NDArray:
    """Digamma sums of the counts around each sample, for each row of class indices."""
    torch = _torch()
    points = torch.as_tensor(vector, dtype=torch.float64, device=device)
    labels = torch.as_tensor(index, device=device)
    wanted = torch.as_tensor(neighbours, device=device)
    psi = torch.tensor(table, dtype=torch.float64, device=device)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    infinity = torch.full((), float("inf"), dtype=torch.float64, device=device)
    n = points.shape[0]
    most = int(neighbours.max())
    rows = _rows_at_once(device, n, 6)
    sums = torch.zeros(len(index), dtype=torch.float64, device=device)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        squared = torch.zeros(stop - start, n, dtype=torch.float64, device=device)
        for column in points.T:  # two steps, so that no fused multiply-add changes the rounding
            gap = column[None, :] - column[start:stop, None]
            squared += gap.mul_(gap)
        own = torch.arange(stop - start, device=device)
        for t in range(len(index)):
            mine = labels[t, start:stop]
            same = torch.where(labels[t][None, :] == mine[:, None], squared, infinity)
            same[own, own + start] = float("inf")
            nearest = same.topk(most, dim=1, largest=False).values
            kth = nearest.gather(1, (wanted[t][mine.clamp(min=0)] - 1)[:, None])
            radius = torch.nextafter(kth.sqrt(), zero).square()
            inside = ((squared <= radius) & (labels[t] >= 0)[None, :]).sum(dim=1)
            sums[t] += torch.where(mine >= 0, psi[inside], zero).sum()
    return np.asarray(sums.cpu().numpy())
