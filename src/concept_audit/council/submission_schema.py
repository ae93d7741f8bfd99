"""Schema of a submission: what each field may hold."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from concept_audit.council.explanations import Explanation, ExplanationMode, explain_contributions
from concept_audit.council.untrusted import unsafe_reason

__all__ = [
    "SCHEMA_VERSION",
    "ConceptEntry",
    "DatasetEntry",
    "ExplanationRow",
    "SubmissionCard",
    "faults_of",
]

SCHEMA_VERSION = 1
MAX_CONCEPTS = 20_000

_Strict = ConfigDict(extra="forbid", strict=True, frozen=True)
_Short = Annotated[str, StringConstraints(min_length=1, max_length=300)]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,100}\.jsonl$")]
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]{0,40}$")]


def _safe(value: str) -> str:
    reason = unsafe_reason(value)
    if reason:
        raise PydanticCustomError("E12", "{reason}", {"reason": reason})
    return value


class ConceptEntry(BaseModel):
    """One concept of one image."""

    model_config = _Strict

    name: str
    contribution: float
    activation: float | None = None
    weight: float | None = None
    negated: bool = False

    _name = field_validator("name")(_safe)

    @field_validator("contribution", "activation", "weight", mode="before")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        if isinstance(value, bool) or (value is not None and not isinstance(value, int | float)):
            raise PydanticCustomError("E01", "must be a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise PydanticCustomError("E10", "must be finite")
        if isinstance(value, int) and abs(value) > 10**300:
            raise PydanticCustomError("E10", "must be finite")
        return value

    @model_validator(mode="after")
    def _product(self) -> ConceptEntry:
        if self.activation is None or self.weight is None:
            return self
        product = self.activation * self.weight
        if abs(product - self.contribution) > 1e-3 * max(abs(product), abs(self.contribution)):
            raise PydanticCustomError(
                "E13",
                "activation x weight is {product}, contribution is {contribution}",
                {"product": f"{product:.6g}", "contribution": f"{self.contribution:.6g}"},
            )
        return self


class ExplanationRow(BaseModel):
    """Prediction and contributions of one image."""

    model_config = _Strict

    dataset: _Key
    image_id: _Short
    gt_class: str | None = None
    pred_class: str
    concepts: tuple[ConceptEntry, ...] = Field(max_length=MAX_CONCEPTS)
    n_concepts: int | None = Field(default=None, ge=1)
    complete: bool = False
    pred_confidence: float | None = Field(default=None, ge=0, le=1)

    _classes = field_validator("pred_class", "gt_class")(
        lambda value: value if value is None else _safe(value)
    )

    @field_validator("image_id")
    @classmethod
    def _plain(cls, value: str) -> str:
        if ".." in value or value.startswith(("/", "\\", "~")) or not value.isprintable():
            raise PydanticCustomError(
                "E12",
                "must be a plain relative name without '..', leading '/' or control characters",
            )
        return value

    @field_validator("concepts")
    @classmethod
    def _different(cls, value: tuple[ConceptEntry, ...]) -> tuple[ConceptEntry, ...]:
        if not value:
            raise PydanticCustomError("E09", "must hold at least one concept")
        seen: set[str] = set()
        for concept in value:
            plain = " ".join(concept.name.split()).casefold()
            if plain in seen:
                raise PydanticCustomError(
                    "E11", "names concept {name} twice", {"name": repr(concept.name)}
                )
            seen.add(plain)
        return value

    def explanation(self, mode: ExplanationMode = "literal") -> Explanation:
        """Explanation as the benchmark shows it."""
        return explain_contributions(
            [concept.contribution for concept in self.concepts],
            [concept.name for concept in self.concepts],
            negated=[concept.negated for concept in self.concepts],
            mode=mode,
        )


class ConceptSet(BaseModel):
    """Vocabulary of a model."""

    model_config = _Strict

    name: _Short
    size: int = Field(ge=1)


class DatasetEntry(BaseModel):
    """File of one data set."""

    model_config = _Strict

    file: _FileName
    file_sha256: _Sha256
    manifest_sha256: _Sha256
    full_test_accuracy: float = Field(ge=0, le=100)
    nec: float | None = Field(default=None, ge=0)
    ncc95: float | None = Field(default=None, ge=0)
    trained_on: _Short | None = None


class SubmissionCard(BaseModel):
    """Who submits what, and how it was made."""

    model_config = _Strict

    schema_version: int
    model_name: _Short
    model_version: _Short
    authors: tuple[_Short, ...] = Field(min_length=1, max_length=100)
    contact: _Short
    code_url: _Short | None = None
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    licence: _Short
    backbone: _Short
    concept_set: ConceptSet
    contribution_method: _Short
    negation_rule: _Short
    datasets: dict[_Key, DatasetEntry] = Field(min_length=1, max_length=20)

    _texts = field_validator(
        "model_name", "model_version", "contact", "licence", "backbone", "contribution_method",
        "negation_rule",
    )(_safe)  # fmt: skip

    @field_validator("code_url")
    @classmethod
    def _web(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s<>\"']+", value):
            raise PydanticCustomError("E12", "must be a http or https address")
        return value


def faults_of(error: ValidationError) -> list[tuple[str, str]]:
    """Code and message of every fault that pydantic found; types of ours carry their code."""
    found = []
    for detail in error.errors(include_url=False, include_input=True):
        where = ".".join(str(part) for part in detail["loc"]) or "the record"
        code = detail["type"] if re.fullmatch(r"E\d\d", detail["type"]) else "E01"
        value = repr(detail.get("input"))
        shown = value if len(value) <= 60 else value[:59] + "…"
        silent = code in ("E09", "E11", "E13") or detail["type"] == "json_invalid"
        got = "" if silent else f", got {shown}"
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        found.append((code, f"{where}: {message}{got}."))
    return found
