"""What is compared: a folder with `items.jsonl` and its images, checked in one pass.

Each line of `items.jsonl` is one item, an image and an unordered pair of models:

    {"dataset": "cub200", "image_id": "cub-0001", "image": "images/0001.png",
     "class_name": "Indigo Bunting",
     "a": {"model": "lf_cbm", "predicted_class": "Indigo Bunting",
           "concepts": [{"name": "blue plumage", "weight": 0.41, "negated": false}]},
     "b": {"model": "vlg_cbm", "predicted_class": "Blue Grosbeak", "concepts": []}}

`a` and `b` fix the canonical order of the exported answers; which one stands on the left is decided
per person. An optional `study.json` carries title, contact and the consent text of an institution.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from PIL import Image, UnidentifiedImageError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from concept_audit.council.explanations import Explanation
from concept_audit.store.atomic import file_sha256, write_text

__all__ = [
    "ConceptBar",
    "ItemFault",
    "ItemSet",
    "ItemSetError",
    "LoadedItem",
    "ShownExplanation",
    "StoredImage",
    "StudyItem",
    "StudyText",
    "items_of_image",
    "load_items",
    "write_items",
]

MAX_FILE_BYTES = 50_000_000
MAX_LINE_BYTES = 100_000
MAX_IMAGE_BYTES = 20_000_000
MAX_IMAGE_PIXELS = 50_000_000
MAX_CONCEPTS = 20
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


def _readable(value: str) -> str:
    """Refuse characters that no reader can see or that change the direction of the line."""
    if not value.strip():
        raise ValueError("must not be blank")
    if not value.isprintable():
        hidden = next(character for character in value if not character.isprintable())
        raise ValueError(f"must hold visible characters only, got U+{ord(hidden):04X}")
    return value


_Name = Annotated[str, StringConstraints(min_length=1, max_length=120), AfterValidator(_readable)]
_Paragraph = Annotated[
    str, StringConstraints(min_length=1, max_length=3000), AfterValidator(_readable)
]
_Strict = ConfigDict(extra="forbid", strict=True, frozen=True)


class ConceptBar(BaseModel):
    """One concept as a person sees it: a name and a bar."""

    model_config = _Strict

    name: _Name
    weight: float = Field(ge=-1, le=1, allow_inf_nan=False)
    negated: bool = False

    @property
    def label(self) -> str:
        """Name as displayed, `NOT name` for a concept that counts by its absence."""
        return f"NOT {self.name}" if self.negated else self.name


class ShownExplanation(BaseModel):
    """Explanation of one model for one image; the model's name is never shown."""

    model_config = _Strict

    model: _Name
    predicted_class: _Name
    concepts: Annotated[list[ConceptBar], Field(max_length=MAX_CONCEPTS)]


class StudyItem(BaseModel):
    """One comparison: an image and two explanations."""

    model_config = _Strict

    dataset: _Name
    image_id: _Name
    image: _Name
    class_name: _Name
    a: ShownExplanation
    b: ShownExplanation

    @model_validator(mode="after")
    def _two_models(self) -> StudyItem:
        if self.a.model == self.b.model:
            raise ValueError(f"a and b must be two models, both are {self.a.model!r}")
        return self


class StudyText(BaseModel):
    """What an institution wants to say to participants (`study.json`)."""

    model_config = _Strict

    title: _Name = "Which explanation is better?"
    organiser: _Name | None = None
    contact: _Name | None = None
    consent: Annotated[list[_Paragraph], Field(max_length=20)] = Field(default_factory=list)
    thanks: _Paragraph | None = None
    completion_code: _Name | None = None


@dataclass(frozen=True)
class StoredImage:
    """A file that may be shown; the content is compared with the digest at every delivery."""

    path: Path
    sha256: str
    media_type: str
    width: int
    height: int

    @property
    def key(self) -> str:
        """Name of the image in addresses: its content, not its place."""
        return self.sha256[:32]


@dataclass(frozen=True)
class LoadedItem:
    """An item with its key (a digest of all that is shown) and its image."""

    key: str
    item: StudyItem
    image: StoredImage


@dataclass(frozen=True)
class ItemFault:
    """One thing that is wrong, with the line where it stands (0: the whole file)."""

    line: int
    message: str
    file: str = "items.jsonl"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class ItemSetError(ValueError):
    """An item folder that cannot be shown; `faults` holds every reason."""

    def __init__(self, folder: Path, faults: Sequence[ItemFault]) -> None:
        self.faults = tuple(faults)
        lines = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(
            f"faults in the items of {folder}, {len(faults)} in all; correct them:\n{lines}"
        )


@dataclass(frozen=True)
class ItemSet:
    """Everything a study shows."""

    folder: Path
    items: Mapping[str, LoadedItem]  # by key, in the order of the file
    images: Mapping[str, StoredImage]  # by key of the image
    text: StudyText

    def __len__(self) -> int:
        return len(self.items)


def load_items(folder: str | Path) -> ItemSet:
    """Read and check a folder of items.

    Parameters
    ----------
    folder : holds `items.jsonl`, the images it names and perhaps `study.json`

    Returns
    -------
    ItemSet

    Raises
    ------
    FileNotFoundError  without `items.jsonl`.
    ItemSetError  with every fault of every line: unreadable JSON, unknown or missing fields, a
        comparison listed twice, an image that is absent, outside the folder or no image.
    """
    root = Path(folder).resolve()
    source = root / "items.jsonl"
    if not source.is_file():
        raise FileNotFoundError(
            f"items must be a folder with items.jsonl, found none in {folder}. "
            "`concept-audit study demo items=FOLDER` makes an example."
        )
    if source.stat().st_size > MAX_FILE_BYTES:
        raise ItemSetError(root, [ItemFault(0, f"holds more than {MAX_FILE_BYTES} bytes")])
    reader = _Reader(root)
    text = reader.study_text()
    with source.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                reader.read(number, line)
    if not reader.items and not reader.faults:
        reader.faults.append(ItemFault(0, "holds no item"))
    if reader.faults:
        raise ItemSetError(root, reader.faults)
    images = {loaded.image.key: loaded.image for loaded in reader.items.values()}
    return ItemSet(root, reader.items, images, text)


class _Reader:
    """State of the one pass: items so far, faults so far, images already opened."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.items: dict[str, LoadedItem] = {}
        self.faults: list[ItemFault] = []
        self._images: dict[str, StoredImage | str] = {}
        self._lines: dict[tuple[str, str, frozenset[str]], int] = {}

    def study_text(self) -> StudyText:
        path = self.root / "study.json"
        if not path.is_file():
            return StudyText()
        try:
            return StudyText.model_validate_json(path.read_bytes())
        except ValidationError as error:
            self.faults += [ItemFault(0, reason, "study.json") for reason in _reasons(error)]
            return StudyText()

    def read(self, number: int, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES:
            self.faults.append(ItemFault(number, f"is longer than {MAX_LINE_BYTES} bytes"))
            return
        try:
            item = StudyItem.model_validate_json(line)
        except ValidationError as error:
            self.faults += [ItemFault(number, reason) for reason in _reasons(error)]
            return
        comparison = (item.dataset, item.image_id, frozenset((item.a.model, item.b.model)))
        first = self._lines.setdefault(comparison, number)
        if first != number:
            self.faults.append(
                ItemFault(number, f"repeats the comparison of line {first}: each may stand once")
            )
            return
        image = self._image(item.image)
        if isinstance(image, str):
            self.faults.append(ItemFault(number, f"image: {image}"))
            return
        content = json.dumps(item.model_dump(), sort_keys=True) + image.sha256
        key = hashlib.sha256(content.encode()).hexdigest()[:32]
        self.items[key] = LoadedItem(key, item, image)

    def _image(self, name: str) -> StoredImage | str:
        """Open an image once; a string tells why it cannot be shown."""
        if name not in self._images:
            self._images[name] = _open_image(self.root, name)
        return self._images[name]


def _reasons(error: ValidationError) -> Iterable[str]:
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        yield f"{place}: {message}" if place else message


def _open_image(root: Path, name: str) -> StoredImage | str:
    parts = PurePosixPath(name).parts
    if name.startswith("/") or "\\" in name or ":" in name or ".." in parts:
        return f"{name!r} must be a path inside the item folder, such as images/0001.png"
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        return f"{name!r} leads out of the item folder"
    if not path.is_file():
        return f"{name!r} does not exist"
    if path.stat().st_size > MAX_IMAGE_BYTES:
        return f"{name!r} holds more than {MAX_IMAGE_BYTES} bytes"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                kind, (width, height) = picture.format or "", picture.size
                picture.verify()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        return f"{name!r} cannot be read as an image ({type(error).__name__})"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return f"{name!r} has more than {MAX_IMAGE_PIXELS} pixels"
    if kind not in _MEDIA_TYPES:
        return f"{name!r} is {kind}, allowed are {', '.join(_MEDIA_TYPES)}"
    if width * height > MAX_IMAGE_PIXELS:
        return f"{name!r} has more than {MAX_IMAGE_PIXELS} pixels"
    return StoredImage(path, file_sha256(path), _MEDIA_TYPES[kind], width, height)


def items_of_image(
    *,
    dataset: str,
    image_id: str,
    image: str,
    class_name: str,
    explanations: Mapping[str, tuple[str, Explanation]],
) -> list[StudyItem]:
    """Items of one image: every pair of models, as explained by `council.explain`.

    Parameters
    ----------
    dataset, image_id : identify the image in the exported labels
    image : path of the file inside the item folder
    class_name : annotated class, shown to people
    explanations : model -> (predicted class, explanation)

    Returns
    -------
    One item per unordered pair, models in alphabetical order.
    """
    if len(explanations) < 2:
        raise ValueError(
            f"explanations must come from at least 2 models, got {len(explanations)}: "
            "an item compares two."
        )
    shown = {
        model: ShownExplanation(
            model=model,
            predicted_class=predicted,
            concepts=[
                ConceptBar(name=bar.name, weight=bar.weight, negated=bar.negated)
                for bar in explanation.concepts
            ],
        )
        for model, (predicted, explanation) in sorted(explanations.items())
    }
    return [
        StudyItem(dataset=dataset, image_id=image_id, image=image, class_name=class_name, a=a, b=b)
        for a, b in combinations(shown.values(), 2)
    ]


def write_items(
    folder: str | Path, items: Iterable[StudyItem], *, text: StudyText | None = None
) -> Path:
    """Write `items.jsonl` (and `study.json`); the images are the caller's to put in place."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [item.model_dump() for item in items]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(root / "items.jsonl", lines)
    if text is not None:
        write_text(root / "study.json", text.model_dump_json(indent=2, exclude_none=True) + "\n")
    return root / "items.jsonl"
