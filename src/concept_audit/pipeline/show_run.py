"""`concept-audit show run=<key>`: find a stored run, compute what its pictures show, write them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from concept_audit.pipeline.find_run import (
    RunNotReadyError,
    UnknownRunError,
    find_run,
    model_label,
)
from concept_audit.pipeline.runs import SPLITS, StoredRun

__all__ = ["NothingToDrawError", "show_run"]

_DEFAULTS = {
    "run": "",
    "split": "test",
    "n_examples": "8",
    "n_steps": "9",
    "paths.output_dir": "",
    "paths.data_dir": "",
}
_VISIBLE = 2 / 255  # mean change of a picture's pixels, in [0, 1], below which nobody sees it
_BOUNDS = {"n_examples": (1, 24), "n_steps": (2, 15)}


class NothingToDrawError(RuntimeError):
    """The run is complete, and of a kind that has no picture."""


def _options(argv: Sequence[str]) -> dict[str, str]:
    options = dict(_DEFAULTS)
    for text in argv:
        key, _, value = text.partition("=")
        if key not in options:
            if key == "data":
                raise ValueError("data= and run= exclude each other: a run names its own dataset.")
            close = difflib.get_close_matches(key, options, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ValueError(
                f"{text!r} is unknown: beside run= stand {', '.join(list(options)[1:])}.{hint}"
            )
        options[key] = value
    if options["split"] not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {options['split']!r}.")
    return options


def _number(options: Mapping[str, str], key: str) -> int:
    low, high = _BOUNDS[key]
    text = options[key]
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ValueError(f"{key} must be a whole number from {low} to {high}, got {text!r}.")
    return int(text)


def _examples(options: Mapping[str, str], n_rows: int) -> int:
    n_examples = _number(options, "n_examples")
    if n_examples > n_rows:
        raise ValueError(
            f"n_examples must be at most {n_rows}, the rows of split {options['split']}, "
            f"got {n_examples}."
        )
    return n_examples


def _moved(config: Mapping[str, Any], data_dir: str) -> dict[str, Any]:
    """The run's config with its data folder elsewhere, if the user says so."""
    old = str(config["paths"]["data_dir"])
    if not data_dir:
        return dict(config)

    def place(value: Any) -> Any:
        inside = isinstance(value, str) and (value == old or value.startswith(f"{old}/"))
        return data_dir + value[len(old) :] if inside else value

    return {**config, "data": {key: place(value) for key, value in config["data"].items()}}


def _dataset(run: StoredRun, data_dir: str) -> Any:
    from concept_audit.pipeline.resume import dataset_of

    dataset = dataset_of(_moved(run.config, data_dir))
    if dataset.fingerprint() != run.manifest["dataset_fingerprint"]:
        raise RunNotReadyError(
            f"run {run.key} was trained on other data than {dataset.name} holds now: expected "
            f"fingerprint {run.manifest['dataset_fingerprint'][:16]}, found "
            f"{dataset.fingerprint()[:16]}. Name the folder of the old files with "
            "paths.data_dir=<folder>, or train again."
        )
    return dataset


def _title(what: str, run: StoredRun) -> str:
    """What is drawn, model, encoder, dataset and fold; the stand-in flag comes last."""
    from concept_audit.reporting.style import dataset_label

    identity = run.identity
    model = model_label(identity)
    if identity["encoder"] is not None:
        model += f" with {identity['encoder']}"
    if identity["lambda_concept"] is not None:
        model += f", λ = {identity['lambda_concept']:g}"
    dataset = dataset_label(str(identity["dataset"])).removesuffix(" [stand-in]")
    standin = ", STAND-IN" if identity["standin"] else ""
    return f"{what}: {model} on {dataset}, fold {identity['fold']}{standin}"


def _save(run: StoredRun, folder: Path, stem: str, figure: Any) -> None:
    from concept_audit.reporting.style import save

    written = save(figure, folder / stem)
    print(f"wrote {written[1]} (and {', '.join(path.suffix[1:] for path in written[::2])})")


def _draw_history(run: StoredRun, folder: Path, checkpoint: Mapping[str, Any]) -> None:
    from concept_audit.pipeline.run_pictures import loss_curves
    from concept_audit.reporting.pictures import draw_history

    config = run.config
    image_loss = config["model"]["spec"].get("objective") is not None
    curves = loss_curves(
        checkpoint["history"],
        checkpoint["best_epoch"],
        keeps=config["recipe"]["checkpoint"],
        unit="nats per image" if image_loss else "nats",
    )
    rule = {"best": "the least validation loss", "last": "the last epoch"}
    sentences = [
        f"Run {run.key}. Mean losses per epoch, the training loss over the epoch as the weights "
        f"moved. Kept by the recipe's rule: {rule[config['recipe']['checkpoint']]}."
    ]
    figure = draw_history(curves, title=_title("Training", run), sentences=sentences)
    _save(run, folder, "history", figure)


def _draw_images(run: StoredRun, folder: Path, options: Mapping[str, str]) -> None:
    from concept_audit.pipeline.predict import restore
    from concept_audit.pipeline.run_pictures import (
        largest_change,
        posteriors,
        reconstructions,
        traversals,
    )
    from concept_audit.reporting.pictures import draw_reconstructions, draw_traversals

    dataset = _dataset(run, options["paths.data_dir"])
    model: Any = restore(run)
    split = options["split"]
    n_examples = _examples(options, len(dataset.rows(split)))
    measured = posteriors(model, dataset, split)
    n = len(measured.rows)
    of = (
        f"{n} {split} images"
        if n == len(dataset.rows(split))
        else (f"{n} of {len(dataset.rows(split))} {split} images")
    )
    entropy, least = measured.cross_entropy.mean(), measured.least.mean()
    kl = "no KL term."
    if measured.kl is not None:
        per_image = measured.kl.sum(axis=1).mean()
        kl = f"KL {per_image:.2f} nats per image. Decoded from the posterior mean."
    sentences = [
        f"Run {run.key}. Means over {of}: cross-entropy {entropy:.1f} nats per image (a perfect "
        f"reconstruction: {least:.1f}), {kl}"
    ]
    shown = reconstructions(model, dataset, measured, n_examples)
    figure = draw_reconstructions(shown, title=_title("Reconstructions", run), sentences=sentences)
    _save(run, folder, "reconstructions", figure)
    moved = traversals(model, dataset, measured, _number(options, "n_steps"))
    n_latents = measured.mean.shape[1]
    order, codes = "mean KL", "posterior means"
    if measured.kl is None:
        order, codes = "variance", "codes"
    which = (
        f"The {len(moved.latents)} of {n_latents} latents with the largest"
        if (len(moved.latents) < n_latents)
        else "Latents in the order of their"
    )
    sentences = [
        f"Run {run.key}. {which} {order}. In each row one latent takes percentiles of its "
        f"{codes} over {of}, from low to high; the others keep the example's values. "
        "Framed: the example, and in each row the value nearest to its own."
    ]
    if largest_change(moved) < _VISIBLE:
        sentences.append(
            "No latent changes the picture by more than 2/255 on average over its pixels: trained "
            "too briefly, or collapsed."
        )
    figure = draw_traversals(moved, title=_title("Latent traversals", run), sentences=sentences)
    _save(run, folder, "traversals", figure)


def _draw_predictions(
    run: StoredRun, folder: Path, options: Mapping[str, str], *, is_image: bool
) -> None:
    from concept_audit.pipeline.run_pictures import predictions
    from concept_audit.reporting.pictures import draw_predictions

    split, arrays = options["split"], run.arrays(options["split"])
    n = len(arrays["y"])
    n_examples = _examples(options, n)
    names = run.concept_names
    shown = predictions(
        arrays,
        n_examples,
        concept_names=names,
        class_names=run.metadata["class_names"],
        dataset=_dataset(run, options["paths.data_dir"]) if is_image else None,
    )
    which = (
        "Concepts"
        if len(shown.concept_names) == len(names)
        else (f"The {len(shown.concept_names)} of {len(names)} concepts that are most often wrong")
    )
    sentences = [
        f"Run {run.key}. Accuracy of the class over {n} {split} rows: {shown.task_accuracy:.0%}. "
        f"{which}, each with its accuracy over them, the lowest first. Shade: predicted "
        "probability, white 0 to blue 1. Dot: annotated as present. Square: prediction and "
        "annotation fall on different sides of 0.5."
    ]
    figure = draw_predictions(shown, title=_title("Predictions", run), sentences=sentences)
    _save(run, folder, "predictions", figure)


def _show(options: Mapping[str, str]) -> None:
    run = find_run(options["run"], options["paths.output_dir"] or "outputs")
    from concept_audit.pipeline.predict import read_checkpoint

    root = Path(options["paths.output_dir"] or run.layout.root)
    folder = root / "figures" / "runs" / run.key
    checkpoint = read_checkpoint(run.layout.checkpoint_path(run.key))
    if not checkpoint["history"]:
        raise NothingToDrawError(
            f"run {run.key} ({run.identity['model']}) was not trained, and there is nothing to "
            "draw. show draws the history of trained models, predictions of concept models, "
            "and reconstructions and traversals of autoencoders and VAEs."
        )
    _draw_history(run, folder, checkpoint)
    if "c_hat" in run.array_names:
        # A model with a frozen encoder reads features; the images are those of the run's dataset.
        is_image = len(checkpoint["input_shape"]) == 3 or "feature_shift" in checkpoint
        _draw_predictions(run, folder, options, is_image=is_image)
    else:
        _draw_images(run, folder, options)


def show_run(argv: Sequence[str]) -> int:
    """Draw what a run has; 0 = written, 1 = it cannot be drawn, 2 = wrong argument."""
    try:
        options = _options(argv)
        for key in _BOUNDS:
            _number(options, key)
        _show(options)
    except (UnknownRunError, ValueError) as error:
        print(f"concept-audit show: {error}", file=sys.stderr)
        return 2
    except (RunNotReadyError, NothingToDrawError, OSError) as error:
        print(f"concept-audit show: {error}", file=sys.stderr)
        return 1
    return 0
