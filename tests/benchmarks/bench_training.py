"""Training: 45 TabularToy CBMs in a bank against Lightning with in-memory batches."""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import Any

import torch

from concept_audit.data.tabulartoy import tabulartoy
from concept_audit.models.cbm import CBMSpec
from concept_audit.training.bank import train_bank
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import Member, Recipe

__all__ = ["run"]

LAMBDAS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 50.0)
MAX_LOSS_DIFFERENCE = 1e-4


def run(quick: bool) -> list[dict[str, Any]]:
    """Process time per model and epoch of both ways, and whether their losses agree."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_bank_against_lightning(quick)]
    finally:
        torch.set_num_threads(threads)


def _bank_against_lightning(quick: bool) -> dict[str, Any]:
    dataset = tabulartoy()
    epochs = 4 if quick else 8
    recipe = Recipe(epochs=epochs)
    spec = CBMSpec(encoding="logit", concept_output="leaky_relu", concept_dropout=0.2)
    seeds = range(1 if quick else 5)
    members = [Member(spec, seed=s, lambda_concept=w) for s in seeds for w in LAMBDAS]
    ours, bank = _epoch_times(
        lambda tick: train_bank(members, dataset, recipe=recipe, progress=tick)
    )
    theirs, alone = _epoch_times(
        lambda tick: fit_single(members[0], dataset, recipe=recipe, progress=tick)
    )
    gap = max(
        abs(a["val_loss"] - b["val_loss"])
        for a, b in zip(bank[0].history, alone.history, strict=True)
    )
    ours_ms, peer_ms = 1e3 * median(ours) / len(members), 1e3 * median(theirs)
    return {
        "work": f"{len(members)} TabularToy CBMs, per model and epoch",
        "peer": "Lightning with in-memory batches, one model at a time",
        "must": 2.5,
        "aim": 6.0,
        "ratio": peer_ms / ours_ms,
        "ours_ms": ours_ms,
        "peer_ms": peer_ms,
        "sizes": "7000 training and 2000 validation rows, batch 512, validation on both sides",
        "equal": bool(gap < MAX_LOSS_DIFFERENCE),
    }


def _epoch_times(train: Any) -> tuple[list[float], Any]:
    """Process time of each epoch but the first, which carries the set-up."""
    ticks: list[float] = []
    result = train(lambda *_: ticks.append(time.process_time()))
    return [after - before for before, after in itertools.pairwise(ticks)], result


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run("--quick" in sys.argv), indent=2))
