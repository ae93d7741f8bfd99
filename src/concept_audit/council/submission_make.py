"""Writing a submission from activations and a linear head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from concept_audit.council.importers import ActivationTable
from concept_audit.council.submission_schema import SCHEMA_VERSION, SubmissionCard, faults_of
from concept_audit.council.subsets import SubsetManifest
from concept_audit.council.untrusted import unsafe_reason
from concept_audit.store.atomic import write_json, write_text

__all__ = ["make_submission"]


def make_submission(
    folder: str | Path,
    card: Mapping[str, Any],
    tables: Mapping[str, tuple[ActivationTable, Sequence[str]]],
    *,
    full_test_accuracy: Mapping[str, float],
    manifests: Mapping[str, SubsetManifest] | None = None,
    n_largest: int = 20,
) -> Path:
    """Write a submission from activations and a linear head.

    Parameters
    ----------
    folder : where to write; made if missing
    card : fields of `submission.json` but `schema_version` and `datasets`
    tables : per data set the table and its image names
    full_test_accuracy : per data set, in points (0 to 100)
    manifests : per data set; where given, only its images are written, in its order
    n_largest : contributions written per image, the largest by absolute value; all others are zero
        or left out, which `complete` tells

    Returns
    -------
    The folder.

    Raises
    ------
    ValueError  when a name or a number would be refused by `check_submission`.
    """
    root = Path(folder)
    names = {dataset: f"{dataset}.jsonl" for dataset in tables}
    entries: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for dataset, (table, image_ids) in tables.items():
        manifest = (manifests or {}).get(dataset)
        lines = list(_made_lines(dataset, table, image_ids, manifest, n_largest))
        texts[dataset] = "".join(lines)
        entries[dataset] = {
            "file": names[dataset],
            "file_sha256": hashlib.sha256(texts[dataset].encode()).hexdigest(),
            "manifest_sha256": manifest.sha256 if manifest else "0" * 64,
            "full_test_accuracy": float(full_test_accuracy[dataset]),
        }
    record = {**card, "schema_version": SCHEMA_VERSION, "datasets": entries}
    try:
        SubmissionCard.model_validate_json(json.dumps(record))
    except ValidationError as error:
        listed = "; ".join(message for _, message in faults_of(error))
        raise ValueError(f"card is incomplete or wrong: {listed}") from None
    for dataset, text in texts.items():
        write_text(root / names[dataset], text)
    write_json(root / "submission.json", record)
    return root


def _made_lines(
    dataset: str,
    table: ActivationTable,
    image_ids: Sequence[str],
    manifest: SubsetManifest | None,
    n_largest: int,
) -> Iterable[str]:
    if len(image_ids) != table.n_samples:
        raise ValueError(
            f"image_ids of {dataset} must have one name per row: got {len(image_ids)} "
            f"for {table.n_samples}."
        )
    for name in (*table.concept_names, *table.class_names):
        reason = unsafe_reason(name)
        if reason:
            raise ValueError(f"name {name[:60]!r} of {dataset} cannot be submitted: {reason}.")
    rows = {str(image): i for i, image in enumerate(image_ids)}
    wanted = [image.image_id for image in manifest.images] if manifest else list(rows)
    absent = [image for image in wanted if image not in rows]
    if absent:
        raise ValueError(
            f"{dataset} lacks {len(absent)} images of the manifest, first {absent[0]!r}."
        )
    for image in wanted:
        i = rows[image]
        contributions, p = table.contributions(i), int(table.predictions[i])
        order = sorted(range(contributions.size), key=lambda j: (-abs(contributions[j]), j))
        kept = [j for j in order[:n_largest] if contributions[j] != 0] or order[:1]
        record: dict[str, Any] = {"dataset": dataset, "image_id": image}
        if table.y is not None:
            record["gt_class"] = table.class_names[table.y[i]]
        record["pred_class"] = table.class_names[p]
        record["concepts"] = [
            {
                "name": table.concept_names[j],
                "contribution": float(contributions[j]),
                "activation": float(table.activations[i, j]),
                "weight": float(table.weights[p, j]),
                "negated": bool(table.activations[i, j] < 0 and table.weights[p, j] < 0),
            }
            for j in sorted(kept)
        ]
        record["n_concepts"] = len(table.concept_names)
        record["complete"] = bool((contributions != 0).sum() <= n_largest)
        yield json.dumps(record, ensure_ascii=False) + "\n"
