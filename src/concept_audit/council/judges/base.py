"""What every judge takes and gives.

A judge receives requests and yields replies as they arrive, so that each is stored before the next
is waited for. It neither parses nor retries a reply it does not like: `council.judging` does.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from concept_audit.council.explanations import Explanation
from concept_audit.council.prompts import Prompt

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "Judge",
    "JudgeError",
    "JudgeIdentity",
    "JudgeImage",
    "JudgeItem",
    "JudgeRequest",
    "JudgeUnreachable",
    "Reply",
]


class JudgeError(RuntimeError):
    """A judge cannot do what is asked of it."""


class JudgeUnreachable(JudgeError):
    """A judge does not answer; nothing was scored in its place."""


@dataclass(frozen=True)
class JudgeImage:
    """Encoded image of an item."""

    data: bytes = field(repr=False)
    sha256: str

    @classmethod
    def from_bytes(cls, data: bytes) -> JudgeImage:
        """Image from the bytes of a JPEG or PNG file."""
        return cls(data, hashlib.sha256(data).hexdigest())

    @classmethod
    def from_file(cls, path: str | Path) -> JudgeImage:
        """Image from a file."""
        return cls.from_bytes(Path(path).read_bytes())

    def open(self, max_side: int | None = None) -> Image:
        """RGB image, turned as its EXIF data say, scaled down to `max_side` if it is larger."""
        from PIL import Image, ImageOps

        with Image.open(io.BytesIO(self.data)) as raw:
            image = ImageOps.exif_transpose(raw).convert("RGB")
        if max_side is not None and max(image.size) > max_side:
            image.thumbnail((max_side, max_side))
        return image


@dataclass(frozen=True)
class JudgeItem:
    """One explanation of one image by one model."""

    dataset: str
    image_id: str
    model: str
    gt_class: str
    pred_class: str
    explanation: Explanation
    image: JudgeImage | None = None


@dataclass(frozen=True)
class JudgeRequest:
    """One call: the rendered prompt, and the items behind it for judges that do not read prose."""

    prompt: Prompt
    items: tuple[JudgeItem, ...]  # one to score, or two to compare
    schema: dict[str, Any]  # JSON schema of the reply
    scale_max: int = 9
    constrained: bool = False  # decode within the schema
    max_new_tokens: int = 256
    attempt: int = 1

    @property
    def image(self) -> JudgeImage | None:
        """Image of the items."""
        return self.items[0].image

    @property
    def pairwise(self) -> bool:
        """Whether two explanations are compared."""
        return len(self.items) == 2


@dataclass(frozen=True)
class Reply:
    """Text of a judge, as it came."""

    text: str
    truncated: bool = False  # the token budget ended it
    seconds: float = 0.0


@dataclass(frozen=True)
class JudgeIdentity:
    """Everything about a judge that may change what it says."""

    name: str
    revision: str
    engine: str
    engine_version: str
    dtype: str = "none"
    batch_size: int = 1
    device: str = "cpu"
    reads_items: bool = False  # answers from names and identities, not from prompt and image
    decoding: dict[str, Any] = field(default_factory=dict)  # thinking, image size, ...

    def record(self) -> dict[str, Any]:
        """Plain dictionary for keys and headers."""
        return asdict(self)


@runtime_checkable
class Judge(Protocol):
    """Protocol of all judges."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name, revision and settings; part of every reply's key."""

    @property
    def supports_constrained(self) -> bool:
        """Whether a request with `constrained` can be honoured."""

    def check(self) -> None:
        """Raise JudgeUnreachable when the judge cannot answer now."""

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield the position of a request and its reply, in any order, as they arrive."""
