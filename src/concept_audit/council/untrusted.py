"""Text written by strangers: what a concept or class name may hold, and how it is made harmless.

A submission is refused when `unsafe_reason` answers; a prompt shows every name through
`escape_name`, whatever its way into the program, so no name can open a section of the prompt, close
a JSON object or speak as a chat role.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MAX_NAME_LENGTH", "escape_name", "unsafe_reason"]

MAX_NAME_LENGTH = 120

_CHAT_TOKEN = re.compile(
    r"<\|?[^<>\s]{1,40}\|?>|\[/?INST\]|\|\s*(?:im_start|im_end|eot_id|channel|turn)\b",
    re.IGNORECASE,
)
_SECTION = re.compile(r"\[[^\[\]]*\]")
_JSON = re.compile(r"[{}]|[\"']\s*(?:score|preferred_cbm|reasoning)\s*[\"']?\s*[:=]", re.IGNORECASE)
# Characters that carry structure in a prompt, a chat template or JSON, and their inert look-alikes.
_INERT = str.maketrans(
    {
        "<": "‹",
        ">": "›",
        "[": "(",
        "]": ")",
        "{": "(",
        "}": ")",
        '"': "'",
        "|": "/",
        "\\": "/",
        "`": "'",
    }
)


def _hidden(character: str) -> bool:
    """Control, format, surrogate and separator characters: invisible, or able to break a line."""
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def unsafe_reason(name: str) -> str | None:
    """Why a name must be refused, or None when it may stand in a prompt and on a page."""
    if not name.strip():
        return "it is blank"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    for position, character in enumerate("" if name.isprintable() else name):
        if _hidden(character):
            return (
                f"it holds the control or invisible character U+{ord(character):04X} at {position}"
            )
    if _SECTION.search(name):
        return "it holds a bracketed section header"
    if _JSON.search(name):
        return "it holds JSON or a score key"
    if _CHAT_TOKEN.search(name):
        return "it holds a token of a chat template or markup"
    return None


def escape_name(name: str) -> str:
    """Return the name on one line, at most 120 characters, without structure characters.

    Quotes, brackets, braces, angle brackets and bars become inert look-alikes; control and
    invisible characters become blanks; runs of blanks become one.
    """
    visible = "".join(" " if _hidden(character) else character for character in name)
    plain = " ".join(visible.translate(_INERT).split())
    return plain if len(plain) <= MAX_NAME_LENGTH else plain[: MAX_NAME_LENGTH - 1] + "…"
