"""Judge that grades shown concepts against the data set's own concept annotations.

It sees neither image nor prose and stands in for no model of the paper: it gives an offline council
one voice that knows whether a named concept is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from concept_audit.arrays import as_binary_concepts
from concept_audit.council.judges.base import (
    JudgeError,
    JudgeIdentity,
    JudgeItem,
    JudgeRequest,
    Reply,
)

__all__ = ["AnnotationJudge"]


class AnnotationJudge:
    """Score the share of an explanation's weight that the image's annotations bear out.

    A shown concept counts with the absolute value of its weight when it is annotated as present, or
    as absent where the explanation negates it. The share, of all displayed weight on annotated
    concepts, is moved to 1..K and rounded half up. An empty explanation gets 1; one without any
    annotated concept gets no score.

    Parameters
    ----------
    dataset : data set that the annotations belong to
    image_ids : n names
    c : Int[ndarray, "n k"]   annotations, 0 or 1
    concept_names : k names, compared without case and outer blanks
    by_weight : False lets every shown concept count alike, whatever its displayed weight
    name : name of the judge
    """

    def __init__(
        self,
        dataset: str,
        image_ids: Sequence[str],
        c: ArrayLike,
        concept_names: Sequence[str],
        *,
        by_weight: bool = True,
        name: str = "annotation",
    ) -> None:
        table = as_binary_concepts("c", c, binary=True)
        if table.shape != (len(image_ids), len(concept_names)):
            raise ValueError(
                f"c must have one row per image and one column per concept: got {table.shape} for "
                f"{len(image_ids)} images and {len(concept_names)} concepts."
            )
        self._dataset = dataset
        self._by_weight = by_weight
        self._rows = {str(image): table[i] for i, image in enumerate(image_ids)}
        self._columns = {_plain(name): j for j, name in enumerate(concept_names)}
        self._identity = JudgeIdentity(
            name,
            f"{dataset}:{hashlib.sha256(table.tobytes()).hexdigest()[:16]}",
            "annotation",
            "1",
            reads_items=True,
            decoding={} if by_weight else {"by_weight": False},
        )

    @property
    def identity(self) -> JudgeIdentity:
        """Data set and hash of the annotations."""
        return self._identity

    @property
    def supports_constrained(self) -> bool:
        """Never: a second answer would be the same."""
        return False

    def check(self) -> None:
        """Annotations are always there."""

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield one JSON reply per request."""
        for position, request in enumerate(requests):
            if request.pairwise:
                yield position, Reply(self._compare(request))
            else:
                yield position, Reply(self._score(request.items[0], request.scale_max))

    def _share(self, item: JudgeItem) -> tuple[float | None, str]:
        if item.dataset != self._dataset or item.image_id not in self._rows:
            raise JudgeError(
                f"no annotations of image {item.image_id!r} of {item.dataset!r}; "
                f"this judge knows {len(self._rows)} images of {self._dataset!r}."
            )
        if not item.explanation.concepts:
            return 0.0, "no concept is shown"
        row = self._rows[item.image_id]
        total = right = 0.0
        wrong = []
        for concept in item.explanation.concepts:
            column = self._columns.get(_plain(concept.name))
            if column is None:
                continue
            weight = abs(concept.weight) if self._by_weight else 1.0
            total += weight
            if bool(row[column]) != (concept.negated or concept.weight < 0):
                right += weight
            else:
                wrong.append(concept.label())
        if total == 0:
            return None, "no shown concept is annotated in this data set"
        return right / total, f"not borne out: {', '.join(wrong)}" if wrong else "all borne out"

    def _score(self, item: JudgeItem, scale_max: int) -> str:
        share, reason = self._share(item)
        score = None if share is None else 1 + int(np.floor((scale_max - 1) * share + 0.5))
        return json.dumps({"reasoning": reason, "score": score}, ensure_ascii=False)

    def _compare(self, request: JudgeRequest) -> str:
        shares = [self._share(item)[0] for item in request.items]
        if None in shares:
            return json.dumps({"reasoning": "not annotated", "preferred_cbm": None})
        first, second = (share or 0.0 for share in shares)
        if abs(first - second) < 1e-9:
            label = "Equally_Good" if first >= 0.5 else "Equally_Bad"
        else:
            label = "CBM1" if first > second else "CBM2"
        return json.dumps(
            {"reasoning": f"{first:.2f} against {second:.2f} borne out", "preferred_cbm": label}
        )


def _plain(name: str) -> str:
    return " ".join(name.split()).casefold()
