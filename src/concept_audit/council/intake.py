"""From submissions and tables of activations to the items that judges score."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from concept_audit.council.explanations import ExplanationMode
from concept_audit.council.importers import ActivationTable
from concept_audit.council.judges.base import JudgeImage, JudgeItem
from concept_audit.council.leaderboard import ModelEntry
from concept_audit.council.submission import check_submission, read_rows
from concept_audit.council.submission_schema import SubmissionCard
from concept_audit.council.subsets import SubsetManifest

__all__ = ["items_from_submission", "items_from_table", "model_entry"]


def items_from_submission(
    folder: str | Path,
    *,
    manifests: Mapping[str, SubsetManifest],
    image_root: str | Path | None = None,
    partial: bool = False,
    mode: ExplanationMode = "literal",
) -> list[JudgeItem]:
    """Items of a submission, after the whole check, in the order of the manifests.

    Parameters
    ----------
    folder : the submission
    manifests : the benchmark's images and annotated classes
    image_root : folder with `<dataset>/<image_id>`; without it judges see no image
    partial : accept missing images
    mode : of the explanations

    Raises
    ------
    ValueError  when the check finds errors, or an image differs from its manifest.
    FileNotFoundError  when `image_root` lacks an image.
    """
    report = check_submission(folder, manifests=manifests, partial=partial)
    if not report.accepted:
        raise ValueError(
            f"{folder} has {len(report.faults)} errors, first: {report.faults[0]} "
            "concept-audit submission check lists them all."
        )
    card = _card(folder)
    items = []
    for dataset, entry in card.datasets.items():
        rows = {row.image_id: row for row in read_rows(Path(folder) / entry.file)}
        for image in manifests[dataset].images:
            row = rows.get(image.image_id)
            if row is None:
                continue
            items.append(
                JudgeItem(
                    dataset=dataset,
                    image_id=image.image_id,
                    model=card.model_name,
                    gt_class=image.class_name,
                    pred_class=row.pred_class,
                    explanation=row.explanation(mode),
                    image=_image(image_root, dataset, image.image_id, image.sha256),
                )
            )
    return items


def items_from_table(
    table: ActivationTable,
    image_ids: Sequence[str],
    *,
    dataset: str,
    model: str,
    images: Mapping[str, JudgeImage] | None = None,
    mode: ExplanationMode = "literal",
) -> list[JudgeItem]:
    """Items of every row of a table with annotated classes, such as a model of this package."""
    if table.y is None:
        raise ValueError("table must hold y: judges are told the annotated class.")
    if len(image_ids) != table.n_samples:
        raise ValueError(
            f"image_ids must have one name per row: got {len(image_ids)} for {table.n_samples}."
        )
    return [
        JudgeItem(
            dataset=dataset,
            image_id=str(image),
            model=model,
            gt_class=table.class_names[table.y[row]],
            pred_class=table.class_names[table.predictions[row]],
            explanation=table.explain(row, mode=mode),
            image=(images or {}).get(str(image)),
        )
        for row, image in enumerate(image_ids)
    ]


def model_entry(folder: str | Path, *, flags: Sequence[str] = ()) -> ModelEntry:
    """What the board shows of a submission beside its score."""
    card = _card(folder)
    return ModelEntry(
        name=card.model_name,
        version=card.model_version,
        authors=", ".join(card.authors),
        code_url=card.code_url,
        accuracy={name: entry.full_test_accuracy for name, entry in card.datasets.items()},
        nec={name: e.nec for name, e in card.datasets.items() if e.nec is not None},
        ncc95={name: e.ncc95 for name, e in card.datasets.items() if e.ncc95 is not None},
        flags=tuple(flags),
    )


def _card(folder: str | Path) -> SubmissionCard:
    record = json.loads((Path(folder) / "submission.json").read_text(encoding="utf-8"))
    return SubmissionCard.model_validate_json(json.dumps(record))


def _image(
    image_root: str | Path | None, dataset: str, image_id: str, sha256: str | None
) -> JudgeImage | None:
    """Image file inside the root, checked against the manifest's hash where there is one."""
    if image_root is None:
        return None
    root = Path(image_root).resolve()
    path = (root / dataset / image_id).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"image {image_id!r} of {dataset} leads out of {root}.")
    if not path.is_file():
        raise FileNotFoundError(f"image {image_id!r} of {dataset} is missing: no file at {path}.")
    image = JudgeImage.from_file(path)
    if sha256 is not None and image.sha256 != sha256:
        raise ValueError(
            f"{path} is not the benchmark's image: it hashes to {image.sha256[:12]}, the manifest "
            f"states {sha256[:12]}. Fetch the images again."
        )
    return image
