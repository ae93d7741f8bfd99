"""How fast photographs are read and decoded on their way to a device."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from concept_audit.data.cub import cub
from concept_audit.data.standins.cub import write_miniature
from concept_audit.training.batches import EpochLoader

__all__ = ["decoding_speed"]


def decoding_speed(
    folder: Path, device: str, *, num_workers: int, side: int, n_images: int
) -> list[dict[str, Any]]:
    """Photographs per second through the loader of a training, without and with worker processes.

    Parameters
    ----------
    folder : Path
        Gets a drawn miniature of CUB in its official layout.
    device : str
        Batches are pinned for a GPU.
    num_workers : int
        Processes of the second measurement.
    side : int
        Pixels along an edge of the decoded images.
    n_images : int
        Pictures to draw, a multiple of 10.
    """
    root = folder / "raw" / "cub"
    root.mkdir(parents=True)
    per_class = n_images // 10
    write_miniature(root, n_classes=10, images_per_class=per_class, size=(500, 375))
    dataset = cub(
        data_dir=folder,
        selection="rule",
        min_class_count=2,
        image_size=side,
        keep_decoded=False,
    )
    rows = []
    for workers in (0, num_workers):
        loader = EpochLoader(dataset, "train", batch_size=16, shuffle=True, num_workers=workers)
        loader.place(torch.device(device))
        speeds = []
        for epoch in range(4):  # workers start in the first one and live on
            loader.set_epoch(epoch)
            start = time.perf_counter()
            n_read = sum(len(batch.y) for batch in loader)
            speeds.append(n_read / (time.perf_counter() - start))
        rows.append(
            {
                "num_workers": workers,
                "images_per_s": median(speeds[1:]),
                "images_per_s_of_repeats": speeds[1:],
                "side": side,
                "n_images": n_read,
                "data": "drawn pictures of 500 x 375 pixels in the layout of CUB (stand-in)",
            }
        )
        del loader
        gc.collect()  # ends the workers
    return rows
