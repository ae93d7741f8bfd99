"""`concept-audit show`: pictures by which a person can judge a dataset or a trained model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

_USAGE = """\
concept-audit show data=<name> [any override, for example data.max_samples=500 paths.output_dir=out]
    Writes outputs/figures/data/<name>.png: examples with class and concepts, class balance per
    split, and the correlation of the concepts.

concept-audit show run=<run key, its beginning, or the run's folder> [split=test] [n_examples=8]
                   [n_steps=9] [paths.output_dir=outputs] [paths.data_dir=data]
    Writes outputs/figures/runs/<run key>/ as PDF, PNG and SVG:
      history          losses per epoch and the epoch that was kept, of every trained model
      predictions      samples with annotated and predicted class and concepts, of concept models
      reconstructions  images of the split beside their reconstructions, of autoencoders and VAEs
      traversals       what each latent changes, of autoencoders and VAEs; n_steps values each
    n_examples samples are chosen by a fixed seed.
"""


def _show_data(argv: list[str]) -> int:
    from concept_audit.data.files import DatasetFileError, DatasetMissingError
    from concept_audit.pipeline.contact_sheet import contact_sheet
    from concept_audit.pipeline.plan import check_overrides, expand
    from concept_audit.pipeline.schema import build
    from concept_audit.store.atomic import atomic_path

    try:
        check_overrides(argv)
        (cell,) = expand(argv)
        dataset = build(cell.config["data"])
    except (DatasetFileError, DatasetMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    name = next((text.partition("=")[2] for text in argv if text.startswith("data=")), dataset.name)
    path = Path(cell.config["paths"]["output_dir"]) / "figures" / "data" / f"{name}.png"
    with atomic_path(path) as temporary:
        contact_sheet(dataset, name=name).savefig(temporary, metadata={"Software": None})
    kind = " (stand-in)" if dataset.standin else ""
    splits = ", ".join(f"{split} {len(rows)}" for split, rows in dataset.splits.items())
    print(
        f"{dataset.name}{kind}: {dataset.n_samples} rows, {dataset.n_concepts} concepts, "
        f"{dataset.n_classes} classes, splits {splits}"
    )
    print(f"wrote {path}")
    return 0


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    argv : what stands after ``show``, for example ``["data=dsprites_standin"]`` or ``["run=56b2"]``

    Returns
    -------
    0 when the pictures are written; 1 when a data file is missing or wrong, or the run is not
    finished or has nothing to draw; 2 on a wrong argument, such as an unknown run.
    """
    if not argv or {"-h", "--help"} & set(argv):
        print(_USAGE, end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if any(text.startswith("run=") for text in argv):
        from concept_audit.pipeline.show_run import show_run

        return show_run(argv)
    return _show_data(list(argv))
