"""Strict reading of judges' replies: a score or a preference, or nothing.

A reply is read from one JSON object, or from a bare integer that is the whole reply. Nothing is
clamped, guessed or drawn at random: what cannot be read stays missing, with the reason in `status`.
The paper is silent on this step; the rules are ours and part of the protocol id.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["PREFERENCES", "ParsedPreference", "ParsedScore", "parse_preference", "parse_score"]

PREFERENCES = ("CBM1", "CBM2", "Equally_Good", "Equally_Bad")

_REASONING_BLOCKS = re.compile(r"<think>.*?</think>|<\|channel>thought.*?<channel\|>", re.DOTALL)
_OPEN_BLOCK = re.compile(r"(?:<think>|<\|channel>thought).*\Z", re.DOTALL)  # cut off while thinking
_UNOPENED_BLOCK = re.compile(r"\A.*(?:</think>|<channel\|>)", re.DOTALL)  # the template opened it
_FENCE = re.compile(r"\A```[A-Za-z]*[ \t]*\n?(.*?)\n?```\Z", re.DOTALL)
_BARE_SCORE = re.compile(r"(?:score[ \t]*[:=][ \t]*)?([+-]?[0-9]{1,6})", re.IGNORECASE)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,6}(?:\.0{1,6})?")
_MAX_OBJECTS = 64


@dataclass(frozen=True)
class ParsedScore:
    """Score of one reply."""

    score: int | None  # 1..scale_max, or None when missing
    status: str  # "ok", "repaired" or "failed:<reason>"
    reasoning: str | None = None


@dataclass(frozen=True)
class ParsedPreference:
    """Preference of one pairwise reply."""

    label: str | None  # one of PREFERENCES, or None when missing
    status: str
    reasoning: str | None = None


@dataclass(frozen=True)
class _Found:
    """Value under the key, and whether the text had to be repaired to reach it."""

    value: Any
    repaired: bool
    reasoning: str | None


class _Repeated:
    """Marks a key that one object states twice with different values."""


def parse_score(text: str, *, scale_max: int = 9) -> ParsedScore:
    """Read the score of a judge's reply.

    Parameters
    ----------
    text : the reply as it came
    scale_max : K of the scale 1..K

    Returns
    -------
    ParsedScore with `score` an int in 1..K or None. `status` is `ok` for one clean JSON object,
    `repaired` when wrapping or form had to be undone, else `failed:` with `empty`, `missing`,
    `ambiguous`, `not_integer` or `out_of_range`.

    Raises
    ------
    ValueError  when scale_max is below 2.
    """
    if scale_max < 2:
        raise ValueError(f"scale_max must be at least 2, got {scale_max}.")
    body, stripped = _strip(text)
    if not body:
        return ParsedScore(None, "failed:empty")
    found = _find(body, "score")
    if not found and "{" not in body:
        bare = _BARE_SCORE.fullmatch(body)
        if bare:
            found = [_Found(int(bare.group(1)), True, None)]
    if not found:
        found = _patterns(body, r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(?=[,}\s]|\Z)", "score")
    readings = [(*_as_score(item.value, scale_max), item) for item in found]
    value, status, item = _agree(readings)
    if value is None or item is None:
        return ParsedScore(None, status)
    repaired = stripped or item.repaired or status == "repaired"
    return ParsedScore(int(value), "repaired" if repaired else "ok", item.reasoning)


def parse_preference(text: str) -> ParsedPreference:
    """Read the label of a pairwise reply: `CBM1`, `CBM2`, `Equally_Good`, `Equally_Bad` or None.

    Labels are compared without case, blanks and underscores; anything else is
    `failed:unknown_label`. Otherwise as `parse_score`.
    """
    body, stripped = _strip(text)
    if not body:
        return ParsedPreference(None, "failed:empty")
    found = _find(body, "preferred_cbm") or _patterns(
        body, r'"([^"{}<>\n]{1,40})"', "preferred_cbm"
    )
    readings = [(*_as_preference(item.value), item) for item in found]
    value, status, item = _agree(readings)
    if value is None or item is None:
        return ParsedPreference(None, status)
    repaired = stripped or item.repaired or status == "repaired"
    return ParsedPreference(str(value), "repaired" if repaired else "ok", item.reasoning)


def _strip(text: str) -> tuple[str, bool]:
    """Reply without reasoning, code fence and blanks, and whether more than blanks went."""
    start = text.strip()
    body = _REASONING_BLOCKS.sub("", start)
    body = _UNOPENED_BLOCK.sub("", body)
    body = _OPEN_BLOCK.sub("", body).strip()
    fence = _FENCE.match(body)
    if fence:
        body = fence.group(1).strip()
    return body, body != start


def _agree(readings: list[tuple[Any, str, _Found]]) -> tuple[Any, str, _Found | None]:
    """One value that all readings share, or the reason why there is none."""
    if not readings:
        return None, "failed:missing", None
    if len({(value, status if value is None else "") for value, status, _ in readings}) > 1:
        return None, "failed:ambiguous", None
    value, status, item = readings[0]
    if len(readings) > 1 and value is not None:
        status = "repaired"
    return value, status, item


def _as_score(value: Any, scale_max: int) -> tuple[int | None, str]:
    status = "ok"
    if isinstance(value, _Repeated):
        return None, "failed:ambiguous"
    if isinstance(value, str) and _INTEGER_TEXT.fullmatch(value.strip()):
        value, status = float(value), "repaired"
    if isinstance(value, float) and value.is_integer():
        value, status = int(value), "repaired"
    if isinstance(value, bool) or not isinstance(value, int):
        return None, "failed:not_integer"
    if not 1 <= value <= scale_max:
        return None, "failed:out_of_range"
    return value, status


def _as_preference(value: Any) -> tuple[str | None, str]:
    if isinstance(value, _Repeated):
        return None, "failed:ambiguous"
    if isinstance(value, str):
        plain = re.sub(r"[\s_]+", "", value).lower()
        for label in PREFERENCES:
            if plain == label.replace("_", "").lower():
                return label, "ok" if value == label else "repaired"
    return None, "failed:unknown_label"


def _find(body: str, key: str) -> list[_Found]:
    """JSON objects that state the key: the whole reply, else the objects within it."""
    whole = _load(body, key)
    if isinstance(whole, dict):
        found = _lookup(whole, key, repaired=False)
        return [found] if found else []
    results = []
    for part in _balanced(body):
        value = _load(part, key)
        if value is None:
            value = _load_tolerant(part, key)
        found = _lookup(value, key, repaired=True) if isinstance(value, dict) else None
        if found:
            results.append(found)
    return results


def _lookup(record: dict[str, Any], key: str, *, repaired: bool) -> _Found | None:
    reasoning = record.get("reasoning")
    text = reasoning if isinstance(reasoning, str) else None
    spellings = [name for name in record if name.strip().lower() == key]
    if not spellings:
        return None
    if len(spellings) > 1:
        return _Found(_Repeated(), True, text)
    return _Found(record[spellings[0]], repaired or spellings[0] != key, text)


def _load(text: str, key: str) -> Any:
    """Strict JSON value, or None; a key stated twice with different values is marked."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for name, value in items:
            if name == key and name in record and record[name] != value:
                value = _Repeated()
            record[name] = value
        return record

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (
        ValueError,
        RecursionError,
    ):  # ValueError: malformed, or an integer of thousands of digits
        return None


def _load_tolerant(text: str, key: str) -> Any:
    """JSON with trailing commas or single quotes, or None."""
    without_commas = _TRAILING_COMMA.sub(r"\1", text)
    value = _load(without_commas, key)
    if value is not None or len(text) > 20_000:
        return value
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return (
        literal if isinstance(literal, dict) and all(isinstance(k, str) for k in literal) else None
    )


def _balanced(text: str) -> list[str]:
    """Outermost `{...}` parts; braces inside double-quoted strings do not count."""
    parts: list[str] = []
    depth, start, quoted, escaped = 0, 0, False, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif depth and character == '"':
            quoted = not quoted
        elif not quoted and character == "{":
            start = position if depth == 0 else start
            depth += 1
        elif not quoted and character == "}" and depth:
            depth -= 1
            if depth == 0:
                parts.append(text[start : position + 1])
                if len(parts) == _MAX_OBJECTS:
                    break
    return parts


def _patterns(body: str, value: str, key: str) -> list[_Found]:
    """Last resort for broken JSON: quoted key, colon, value; prose does not match."""
    matches = re.findall(rf'"{key}"\s*:\s*{value}', body, re.IGNORECASE)
    if key == "score":
        return [_Found(_number(text), True, None) for text in matches]
    return [_Found(text, True, None) for text in matches]


def _number(text: str) -> int | float | str:
    """Number of a short digit text; a longer one stays text and so counts as no integer."""
    if len(text) > 8:
        return text
    return float(text) if "." in text else int(text)
