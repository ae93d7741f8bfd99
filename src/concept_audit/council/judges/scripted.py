"""Judges with fixed answers: for tests, rehearsals and simulated experts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from concept_audit.council.judges.base import JudgeError, JudgeIdentity, JudgeRequest, Reply

__all__ = ["ScriptedJudge", "noisy_expert", "rehearsal_judge"]

_Answer = str | int | Sequence[str | int]


class ScriptedJudge:
    """Judge that answers from a table or a function.

    Parameters
    ----------
    answers : per (dataset, image, model) - for comparisons (dataset, image, first, second) - a
        score, a reply text, or a list of them, one per attempt; or a function of the request
    name : name of the judge
    revision : changes when the script does, since it is part of every reply's key
    supports_constrained : whether a second, constrained attempt is made
    """

    def __init__(
        self,
        answers: Mapping[tuple[str, ...], _Answer] | Callable[[JudgeRequest], str | int],
        *,
        name: str = "scripted",
        revision: str = "1",
        supports_constrained: bool = True,
    ) -> None:
        self._answers = answers
        self._supports_constrained = supports_constrained
        self._identity = JudgeIdentity(name, revision, "scripted", "1", reads_items=True)

    @property
    def identity(self) -> JudgeIdentity:
        """Name and revision of the script."""
        return self._identity

    @property
    def supports_constrained(self) -> bool:
        """As given."""
        return self._supports_constrained

    def check(self) -> None:
        """Scripts are always there."""

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield the scripted replies in order."""
        for position, request in enumerate(requests):
            yield position, Reply(self._text(request))

    def _text(self, request: JudgeRequest) -> str:
        if callable(self._answers):
            answer: _Answer = self._answers(request)
        else:
            first = request.items[0]
            key = (first.dataset, first.image_id, *(item.model for item in request.items))
            if key not in self._answers:
                raise JudgeError(
                    f"the script of judge {self._identity.name!r} has no answer for {key}. "
                    "Add one, or leave the item out."
                )
            answer = self._answers[key]
        if not isinstance(answer, str | int):
            answer = answer[min(request.attempt, len(answer)) - 1]
        if isinstance(answer, int):
            return json.dumps({"reasoning": "scripted", "score": answer})
        return answer


def noisy_expert(
    quality: Mapping[tuple[str, str, str], float],
    *,
    noise: float,
    seed: int,
    name: str,
    scale_max: int = 9,
) -> ScriptedJudge:
    """Judge that sees a latent quality in [0, 1] with normal noise and rounds it to the scale.

    Parameters
    ----------
    quality : per (dataset, image, model)
    noise : standard deviation, in units of the quality
    seed : of the noise
    name : name of the judge
    scale_max : K of the scale 1..K
    """
    rng = np.random.default_rng(seed)
    seen = np.array(list(quality.values())) + rng.normal(0, noise, len(quality))
    scores = np.clip(np.rint(1 + (scale_max - 1) * seen), 1, scale_max).astype(int)
    table: dict[tuple[str, ...], _Answer] = {
        key: int(score) for key, score in zip(quality, scores, strict=True)
    }
    return ScriptedJudge(table, name=name, revision=f"noise={noise:g},seed={seed},K={scale_max}")


def rehearsal_judge(
    quality: Mapping[tuple[str, str, str], float] | None = None,
    *,
    noise: float = 0.2,
    seed: int = 0,
    name: str = "scripted",
) -> ScriptedJudge:
    """Judge that scores and compares anything, by invented qualities and noise of its own.

    Unlike `noisy_expert` it answers any item, on any scale and in pairs; the noise of an item
    depends on seed and names alone, and a comparison adds more of it, so that some answers change
    when the explanations swap places.

    Parameters
    ----------
    quality : per (dataset, image, model), in [0, 1]; 0.5 where it is not given
    noise : standard deviation, in units of the quality
    seed : of the noise
    name : name of the judge
    """
    known = quality or {}

    def draw(*words: str) -> NDArray[np.float64]:
        digest = hashlib.sha256("\0".join((str(seed), *words)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(0, noise, 2)

    def answer(request: JudgeRequest) -> str | int:
        keys = [(item.dataset, item.image_id, item.model) for item in request.items]
        seen = [float(known.get(key, 0.5) + draw(*key)[0]) for key in keys]
        if not request.pairwise:
            steps = request.scale_max - 1
            return 1 + int(np.clip(np.rint(steps * seen[0]), 0, steps))
        first, second = np.array(seen) + draw(*keys[0], *keys[1]) / 4
        if abs(first - second) < 0.1:
            label = "Equally_Good" if first + second >= 1 else "Equally_Bad"
        else:
            label = "CBM1" if first > second else "CBM2"
        return json.dumps({"reasoning": "scripted", "preferred_cbm": label})

    content = json.dumps([[list(key), value] for key, value in sorted(known.items())])
    revision = hashlib.sha256(f"{noise}|{seed}|{content}".encode()).hexdigest()[:16]
    return ScriptedJudge(answer, name=name, revision=revision)
