"""`concept-audit show data=<name>`: one picture by which a person can judge a dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

_USAGE = """\
concept-audit show data=<name> [any override, for example data.max_samples=500 paths.output_dir=out]
    Writes outputs/figures/data/<name>.png: examples with class and concepts, class balance per
    split, and the correlation of the concepts.
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
        contact_sheet(dataset).savefig(temporary, metadata={"Software": None})
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
    argv : what stands after ``show``, for example ``["data=dsprites_standin"]``

    Returns
    -------
    0 when the picture is written, 1 when a data file is missing or wrong, 2 on a wrong argument.
    """
    if not argv or {"-h", "--help"} & set(argv):
        print(_USAGE, end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    return _show_data(list(argv))
