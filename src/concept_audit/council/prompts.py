"""The paper's prompts, filled with one item.

CBX-Bench, appendix B. The words of `templates/*.txt` are the paper's; its line breaks are lost in
the text at hand, so the layout is ours, and typographic apostrophes are written in ASCII. Every
token is replaced in one pass over the template, so a name that looks like a token stays a name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from concept_audit.council.explanations import Explanation
from concept_audit.council.untrusted import escape_name

__all__ = [
    "SCALES",
    "TEMPLATE_VERSION",
    "Prompt",
    "dataset_context",
    "pairwise_prompt",
    "pairwise_schema",
    "protocol_id",
    "score_prompt",
    "score_schema",
]

SCALES = (5, 7, 9)
TEMPLATE_VERSION = "p1"  # part of the protocol id: raise it when any prompt text changes
NO_CONCEPT_LINE = "(no concept with normalized weight >= 0.010)"

_LINES = r"1\. \{{{0}concept 1\}} .*?\n\.\.\.\n5\. \{{{0}concept 5\}} \{{[^}}\n]*\}}"
_TOKEN = r"\{[A-Za-z][A-Za-z0-9 -]*\}"


@dataclass(frozen=True)
class Prompt:
    """Rendered texts of one call; the image goes before the user text."""

    system: str
    user: str

    @property
    def sha256(self) -> str:
        """Identity of the rendered prompt."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()


@cache
def _template(name: str) -> str:
    folder = resources.files("concept_audit.council") / "templates"
    return (folder / name).read_text(encoding="utf-8").removesuffix("\n")


def dataset_context(dataset: str, contexts: Mapping[str, str] | None = None) -> str:
    """One-line description of a dataset for the prompt: the paper's, or one given in `contexts`.

    Raises
    ------
    ValueError  when neither knows the dataset.
    """
    known = {**json.loads(_template("dataset_contexts.json")), **(contexts or {})}
    if dataset not in known:
        raise ValueError(
            f"dataset {dataset!r} has no context line for the prompt; known are "
            f"{', '.join(sorted(known))}. Give one, for example contexts={{{dataset!r}: '...'}}."
        )
    return str(known[dataset])


def protocol_id(
    scale_max: int, n_judges: int, *, aggregate: str = "sum", render_negation: bool = True
) -> str:
    """Name of a scoring protocol, such as `cbx-s9-sum5-p1`; rows of different ids never mix."""
    suffix = "" if render_negation else "-plain"
    return f"cbx-s{scale_max}-{aggregate}{n_judges}-{TEMPLATE_VERSION}{suffix}"


def score_prompt(
    explanation: Explanation,
    *,
    dataset: str,
    gt_class: str,
    pred_class: str,
    scale_max: int = 9,
    contexts: Mapping[str, str] | None = None,
    render_negation: bool = True,
) -> Prompt:
    """Fill the prompt that asks for the score of one explanation.

    Parameters
    ----------
    explanation : what is shown
    dataset : key of a context line, see `dataset_context`
    gt_class, pred_class : annotated and predicted class names, escaped like concept names
    scale_max : 5, 7 or 9
    contexts : context lines of further datasets
    render_negation : show a negated concept as `NOT name`

    Returns
    -------
    Prompt

    Raises
    ------
    ValueError  on another scale or a dataset without a context line.
    """
    _check_scale(scale_max)
    values = {
        "{dataset description}": escape_name(dataset_context(dataset, contexts)),
        "{ground-truth class}": escape_name(gt_class),
        "{CBM predicted class}": escape_name(pred_class),
        "{scale-specific rating block below}": _template(f"rating_{scale_max}.txt"),
        "{maximum score}": str(scale_max),
    }
    blocks = {"": _concept_lines(explanation, render_negation)}
    return Prompt(
        system=_fill(_template("score_system.txt"), values, {}),
        user=_fill(_template("score_user.txt"), values, blocks),
    )


def pairwise_prompt(
    first: Explanation,
    second: Explanation,
    *,
    dataset: str,
    gt_class: str,
    pred_classes: tuple[str, str],
    contexts: Mapping[str, str] | None = None,
    render_negation: bool = True,
) -> Prompt:
    """Fill the prompt that compares two explanations of one image, as `score_prompt` does one."""
    values = {
        "{dataset description}": escape_name(dataset_context(dataset, contexts)),
        "{ground-truth class}": escape_name(gt_class),
        "{CBM 1 predicted class}": escape_name(pred_classes[0]),
        "{CBM 2 predicted class}": escape_name(pred_classes[1]),
    }
    blocks = {
        "CBM 1 ": _concept_lines(first, render_negation),
        "CBM 2 ": _concept_lines(second, render_negation),
    }
    return Prompt(
        system=_template("pairwise_system.txt"),
        user=_fill(_template("pairwise_user.txt"), values, blocks),
    )


def score_schema(scale_max: int) -> dict[str, Any]:
    """JSON schema of a score reply; the reasoning stands first so that it comes first."""
    _check_scale(scale_max)
    score = {"type": "integer", "minimum": 1, "maximum": scale_max}
    return _schema({"score": score})


def pairwise_schema() -> dict[str, Any]:
    """JSON schema of a pairwise reply."""
    return _schema({"preferred_cbm": {"enum": ["CBM1", "CBM2", "Equally_Good", "Equally_Bad"]}})


def _schema(answer: dict[str, Any]) -> dict[str, Any]:
    # A plain string type would let raw control characters through constrained decoding.
    reasoning = {"type": "string", "pattern": "^[^\\u0000-\\u001f]{0,600}$"}
    properties = {"reasoning": reasoning, **answer}
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def _check_scale(scale_max: int) -> None:
    if scale_max not in SCALES:
        raise ValueError(f"scale_max must be one of {SCALES}, got {scale_max}: the paper's scales.")


def _concept_lines(explanation: Explanation, render_negation: bool) -> str:
    lines = [
        f"{rank}. {'NOT ' if concept.negated and render_negation else ''}"
        f"{escape_name(concept.name)} {concept.weight:.3f}"
        for rank, concept in enumerate(explanation.concepts, start=1)
    ]
    return "\n".join(lines) if lines else NO_CONCEPT_LINE


def _fill(template: str, values: Mapping[str, str], blocks: Mapping[str, str]) -> str:
    """Replace concept blocks and tokens in one pass; a token without a value is an error."""
    patterns = [f"(?P<block{i}>{_LINES.format(prefix)})" for i, prefix in enumerate(blocks)]
    texts = list(blocks.values())

    def replace(match: re.Match[str]) -> str:
        if match.lastgroup:
            return texts[int(match.lastgroup.removeprefix("block"))]
        return values[match.group()]

    return re.sub("|".join([*patterns, _TOKEN]), replace, template, flags=re.DOTALL)
