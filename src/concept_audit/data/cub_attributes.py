"""Names of the 312 CUB attributes, and the 112 that concept bottleneck papers use.

Facts read from public sources: the names are those of the dataset's ``attributes.txt``; the 112
zero-based positions are the list that Koh et al. (2020) published and that the CEM code (Espinosa
Zarlenga et al., 2022, ``cem/data/CUB200/cub_loader.py``, MIT) repeats. The rule behind them: an
attribute stays if it is the majority label of at least 10 of the 200 classes on the training
images.
"""

from __future__ import annotations

__all__ = ["ATTRIBUTE_NAMES", "SELECTED_NAMES", "SELECTED_POSITIONS", "group_of"]

_COLOURS = (
    "blue brown iridescent purple rufous grey yellow olive green pink orange black white red buff"
)
_EYE_COLOURS = _COLOURS.replace("iridescent ", "")
_PATTERNS = "solid spotted striped multi-colored"
_GROUPS = {
    "bill_shape": (
        "curved_(up_or_down) dagger hooked needle hooked_seabird spatulate all-purpose cone "
        "specialized"
    ),
    "wing_color": _COLOURS,
    "upperparts_color": _COLOURS,
    "underparts_color": _COLOURS,
    "breast_pattern": _PATTERNS,
    "back_color": _COLOURS,
    "tail_shape": (
        "forked_tail rounded_tail notched_tail fan-shaped_tail pointed_tail squared_tail"
    ),
    "upper_tail_color": _COLOURS,
    "head_pattern": (
        "spotted malar crested masked unique_pattern eyebrow eyering plain eyeline striped capped"
    ),
    "breast_color": _COLOURS,
    "throat_color": _COLOURS,
    "eye_color": _EYE_COLOURS,
    "bill_length": "about_the_same_as_head longer_than_head shorter_than_head",
    "forehead_color": _COLOURS,
    "under_tail_color": _COLOURS,
    "nape_color": _COLOURS,
    "belly_color": _COLOURS,
    "wing_shape": "rounded-wings pointed-wings broad-wings tapered-wings long-wings",
    "size": (
        "large_(16_-_32_in) small_(5_-_9_in) very_large_(32_-_72_in) medium_(9_-_16_in) "
        "very_small_(3_-_5_in)"
    ),
    "shape": (
        "upright-perching_water-like chicken-like-marsh long-legged-like duck-like owl-like "
        "gull-like hummingbird-like pigeon-like tree-clinging-like hawk-like sandpiper-like "
        "upland-ground-like swallow-like perching-like"
    ),
    "back_pattern": _PATTERNS,
    "tail_pattern": _PATTERNS,
    "belly_pattern": _PATTERNS,
    "primary_color": _COLOURS,
    "leg_color": _COLOURS,
    "bill_color": _COLOURS,
    "crown_color": _COLOURS,
    "wing_pattern": _PATTERNS,
}

ATTRIBUTE_NAMES: tuple[str, ...] = tuple(
    f"has_{group}::{value}" for group, values in _GROUPS.items() for value in values.split()
)

SELECTED_POSITIONS: tuple[int, ...] = (
    1, 4, 6, 7, 10, 14, 15, 20, 21, 23, 25, 29, 30, 35, 36, 38, 40, 44, 45, 50, 51, 53, 54, 56, 57,
    59, 63, 64, 69, 70, 72, 75, 80, 84, 90, 91, 93, 99, 101, 106, 110, 111, 116, 117, 119, 125, 126,
    131, 132, 134, 145, 149, 151, 152, 153, 157, 158, 163, 164, 168, 172, 178, 179, 181, 183, 187,
    188, 193, 194, 196, 198, 202, 203, 208, 209, 211, 212, 213, 218, 220, 221, 225, 235, 236, 238,
    239, 240, 242, 243, 244, 249, 253, 254, 259, 260, 262, 268, 274, 277, 283, 289, 292, 293, 294,
    298, 299, 304, 305, 308, 309, 310, 311,
)  # fmt: skip

SELECTED_NAMES: tuple[str, ...] = tuple(ATTRIBUTE_NAMES[i] for i in SELECTED_POSITIONS)


def group_of(name: str) -> str:
    """Group of an attribute: the part before the double colon."""
    return name.partition("::")[0]
