"""Numbers behind the pictures of a trained run: reconstructions, traversals, losses per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.vae import VAE
from concept_audit.reporting.pictures import (
    LossCurve,
    Predictions,
    Reconstructions,
    Traversals,
)
from concept_audit.training.batches import to_inputs

__all__ = [
    "Posteriors",
    "chosen_rows",
    "largest_change",
    "loss_curves",
    "posteriors",
    "predictions",
    "reconstructions",
    "traversals",
]

_ROWS_MEASURED = 2000  # enough for a mean and for percentiles; a split may hold 100 times as many
_MOST_LATENTS = 16  # rows of a traversal that still fit a page
_OUTER = 2.5  # percentile of the lowest value of a traversal; 100 less that of the highest
_MOST_CONCEPTS = 30  # lines of a picture of predictions
_BATCH = 256


def chosen_rows(dataset: ConceptDataset, split: str, n: int, *, seed: int = 0) -> NDArray[np.int64]:
    """`n` rows of a split in an order fixed by the seed; a larger `n` only adds rows."""
    rows = dataset.rows(split)
    order: NDArray[np.int64] = np.random.default_rng(seed).permutation(rows)
    return order[:n]


@dataclass(frozen=True)
class Posteriors:
    """Codes and losses of images of one split, reconstructed from the posterior means.

    Attributes
    ----------
    rows : Int[ndarray, "n"]
        Rows of the dataset.
    mean, log_variance : Float[ndarray, "n L"]
        Posterior of each image.
    cross_entropy, least : Float[ndarray, "n"]
        Cross-entropy of the pixels of each image, and its least value, that of a perfect
        reconstruction; in nats. The least is 0 for black and white pixels only.
    kl : Float[ndarray, "n L"] or None
        KL from the unit Gaussian by latent, in nats; None for a plain autoencoder.
    """

    rows: NDArray[np.int64]
    mean: NDArray[np.float64]
    log_variance: NDArray[np.float64]
    cross_entropy: NDArray[np.float64]
    least: NDArray[np.float64]
    kl: NDArray[np.float64] | None


def _images(dataset: ConceptDataset, rows: NDArray[np.int64]) -> torch.Tensor:
    """Images in [0, 1], channels first, as the autoencoders were trained on them."""
    return to_inputs(replace(dataset, mean=None, std=None), rows)


def _channels_last(images: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = images.movedim(-3, -1).cpu().numpy()
    return array


def _cross_entropy(x: torch.Tensor, logits: torch.Tensor) -> NDArray[np.float64]:
    """Sum over the pixels of each image (n,), in nats."""
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.double(), x.double(), reduction="none"
    )
    total: NDArray[np.float64] = losses.flatten(1).sum(dim=1).numpy()
    return total


def _entropy(x: torch.Tensor) -> NDArray[np.float64]:
    """Cross-entropy of the pixels of each image with themselves (n,), in nats."""
    pixels = x.double().flatten(1)
    entropies = torch.special.entr(pixels) + torch.special.entr(1 - pixels)
    total: NDArray[np.float64] = entropies.sum(dim=1).numpy()
    return total


def posteriors(model: VAE, dataset: ConceptDataset, split: str) -> Posteriors:
    """Measure the model on a split, or on 2000 of its rows if it has more.

    Parameters
    ----------
    model : VAE
        Trained, in evaluation mode.
    dataset : ConceptDataset
        What it was trained on.
    split : str
        ``train``, ``val`` or ``test``.
    """
    rows = chosen_rows(dataset, split, _ROWS_MEASURED)
    parts: dict[str, list[NDArray[np.float64]]] = {}
    with torch.inference_mode():
        for start in range(0, len(rows), _BATCH):
            x = _images(dataset, rows[start : start + _BATCH])
            mean, log_variance = model.posterior(x)
            found = {
                "mean": mean.double().numpy(),
                "log_variance": log_variance.double().numpy(),
                "cross_entropy": _cross_entropy(x, model.decoder(mean)),
                "least": _entropy(x),
            }
            for name, values in found.items():
                parts.setdefault(name, []).append(values)
    arrays = {name: np.concatenate(blocks) for name, blocks in parts.items()}
    kl = None
    if model.sampled:
        spread = arrays["log_variance"]
        kl = 0.5 * (arrays["mean"] ** 2 + np.exp(spread) - 1 - spread)
    return Posteriors(rows=rows, kl=kl, **arrays)


def reconstructions(
    model: VAE, dataset: ConceptDataset, measured: Posteriors, n_examples: int
) -> Reconstructions:
    """The first rows of `measured` beside their reconstructions from the posterior mean."""
    x = _images(dataset, measured.rows[:n_examples])
    with torch.inference_mode():
        decoded = model.decode(model.encode(x))
    return Reconstructions(
        images=_channels_last(x),
        reconstructions=_channels_last(decoded),
        differences=np.abs(_channels_last(x) - _channels_last(decoded)).mean(axis=-1),
        cross_entropy=measured.cross_entropy[:n_examples],
        excess=(measured.cross_entropy - measured.least)[:n_examples],
        kl=None if measured.kl is None else measured.kl[:n_examples].sum(axis=1),
    )


def traversals(
    model: VAE, dataset: ConceptDataset, measured: Posteriors, n_steps: int
) -> Traversals:
    """What each latent changes in the first image of `measured`.

    A latent takes percentiles of its posterior means over `measured`, from 2.5 to 97.5 in equal
    steps. So it never leaves the range that the decoder has seen, whether codes are standardised
    (VAE) or not (autoencoder), and it skips values between two clusters. Rows are ordered by the
    mean KL of the latent, or without one by the variance of its codes, largest first; at most 16
    are drawn.
    """
    if measured.kl is None:
        importance, label = measured.mean.var(axis=0), "variance {:.3g}"
    else:
        importance, label = measured.kl.mean(axis=0), "KL {:.2f} nats"
    latents = np.argsort(-importance, kind="stable")[:_MOST_LATENTS]
    percentiles = np.linspace(_OUTER, 100 - _OUTER, n_steps)
    values = np.percentile(measured.mean, percentiles, axis=0).T  # (L, S)
    with torch.inference_mode():
        x = _images(dataset, measured.rows[:1])
        codes = model.encode(x)
        images = model.traversal(codes, torch.from_numpy(values).to(codes.dtype))[0]
        example, decoded = _channels_last(x)[0], _channels_last(model.decode(codes))[0]
    own = measured.mean[0]
    return Traversals(
        example=example,
        reconstruction=decoded,
        images=_channels_last(images)[latents],
        values=values[latents],
        percentiles=percentiles,
        latents=latents,
        importance=importance[latents],
        importance_label=label,
        nearest=np.abs(values - own[:, None]).argmin(axis=1)[latents],
    )


def largest_change(shown: Traversals) -> float:
    """Largest mean absolute difference, in [0, 1], of two pictures along one latent."""
    n_steps = shown.images.shape[1]
    return max(
        float(np.abs(shown.images - shown.images[:, [step]]).mean(axis=(2, 3, 4)).max())
        for step in range(n_steps)
    )


def predictions(
    arrays: Mapping[str, NDArray[Any]],
    n_examples: int,
    *,
    concept_names: Sequence[str],
    class_names: Sequence[str],
    dataset: ConceptDataset | None = None,
) -> Predictions:
    """What a concept model says about some rows of a split.

    Parameters
    ----------
    arrays : of the split's bundle: `index`, `y`, `y_logits`, `c`, `c_hat`, and `c_logits` of models
        that have them
    n_examples : rows to show, chosen as by `chosen_rows`
    concept_names, class_names : of the columns of `c` and of the classes
    dataset : where the images come from; None for tables

    Returns
    -------
    Predictions with at most 30 concepts, those that the model gets wrong most often first.
    """
    # A logit model hands logits to its head, so its c_hat is no probability.
    c, logits = arrays["c"], arrays.get("c_logits")
    probabilities = arrays["c_hat"] if logits is None else 1 / (1 + np.exp(-np.float64(logits)))
    wrong = (probabilities > 0.5) != (c == 1)
    accuracy = 1 - wrong.mean(axis=0)
    concepts = np.argsort(accuracy, kind="stable")[:_MOST_CONCEPTS]
    rows = np.random.default_rng(0).permutation(len(c))[:n_examples]
    images = None if dataset is None else _channels_last(_images(dataset, arrays["index"][rows]))
    y_hat = arrays["y_logits"].argmax(axis=1)
    return Predictions(
        images=images,
        classes=tuple(class_names[i] for i in arrays["y"][rows]),
        predicted_classes=tuple(class_names[i] for i in y_hat[rows]),
        task_accuracy=float((y_hat == arrays["y"]).mean()),
        concept_names=tuple(concept_names[i] for i in concepts),
        concept_accuracy=accuracy[concepts],
        annotated=c[np.ix_(rows, concepts)],
        probabilities=probabilities[np.ix_(rows, concepts)],
        wrong=wrong[np.ix_(rows, concepts)],
    )


_WORDS = {"kl": "KL", "loss": "loss minimised"}


def loss_curves(
    history: Sequence[Mapping[str, Any]], best_epoch: int, *, keeps: str, unit: str
) -> list[LossCurve]:
    """Losses of each phase, without those that are 0 throughout or repeat another.

    Parameters
    ----------
    history : rows of a checkpoint: `phase`, `epoch` from 0, and `train_...`, `val_...` losses
    best_epoch : epoch, from 0, of the weights kept in the last phase
    keeps : ``best`` or ``last``, the recipe's choice, by which earlier phases kept theirs
    unit : of all losses

    Returns
    -------
    list of LossCurve, epochs counted from 1.
    """
    curves: list[LossCurve] = []
    phases = list(dict.fromkeys(row["phase"] for row in history))
    for phase in phases:
        rows = [row for row in history if row["phase"] == phase]
        if phase == phases[-1]:
            kept = best_epoch
        else:
            losses = [row["val_loss"] for row in rows]
            kept = rows[int(np.argmin(losses)) if keeps == "best" else -1]["epoch"]
        names = [key.removeprefix("train_") for key in rows[0] if key.startswith("train_")]
        found = {
            name: np.array([[row[f"{split}_{name}"] for split in ("train", "val")] for row in rows])
            for name in names
        }
        # The parts say more than their sum where one part is all of it.
        if any(np.array_equal(found[name], found["loss"]) for name in names if name != "loss"):
            del found["loss"]
        for name, values in found.items():
            if not values.any():
                continue
            curves.append(
                LossCurve(
                    phase=phase,
                    name=_WORDS.get(name, name.replace("_", " ")),
                    unit=unit,
                    epochs=np.array([row["epoch"] + 1 for row in rows]),
                    train=values[:, 0],
                    val=values[:, 1],
                    kept_epoch=kept + 1,
                )
            )
    return curves
