"""One self-contained HTML page for the scores of a file: escaped text, tables, inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concept_audit.pipeline.score import Score
    from concept_audit.pipeline.score_input import Predictions

__all__ = ["score_page"]

MAX_HEATMAP_LABELS = 30
MAX_BARS = 60
BLUE = (33, 102, 172)

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Scores of $title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; margin: 0 auto;
  max-width: 60rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0; } .quiet { color: #57606a; }
table { border-collapse: collapse; width: 100%; margin-top: 1rem; }
th, td { text-align: left; padding: .45rem .6rem; border-bottom: 1px solid #d0d7de;
  vertical-align: top; overflow-wrap: anywhere; }
td.value { text-align: right; font-variant-numeric: tabular-nums; font-weight: 600;
  white-space: nowrap; }
td.word, th.word { white-space: nowrap; }
svg { max-width: 100%; height: auto; display: block; margin: .6rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
</style></head><body>
<h1>Scores of $title</h1>
<p class="quiet">$facts</p>
<table><thead><tr><th>Score</th><th>Value</th><th class=word>Better</th><th>In words</th></tr>
</thead>
<tbody>
$rows
</tbody></table>
$sections
<h2>How to read this page</h2>
$legend
</body></html>
""")

LEGEND = {
    "ctl": "CTL compares what each learnt concept tells about the task with what its annotation "
    "tells, as shares of the task's entropy (0 to 1). 0 means nothing beyond the annotations.",
    "icl": "ICL compares the information two learnt concepts share with what their annotations "
    "share (0 to 1). For probabilities and logits its scale depends on the number of rows: compare "
    "models at equal n only, and not soft models with hard ones.",
    "ois": "OIS and NIS train small probes on the file's rows and vary a little with the seed.",
    "D": "D, C, I, E and S are defined for codes and factors; E belongs to the capacities on the "
    "axis of its curve.",
}


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def _shade(share: float) -> str:
    """White to blue."""
    share = min(max(share, 0.0), 1.0)
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in BLUE)


def _short(name: str, limit: int = 22) -> str:
    return escape(name if len(name) <= limit else name[: limit - 1] + "…")


def _bars(values: Mapping[str, float], title: str) -> str:
    """Horizontal bars from 0 to 1, or to the largest value if that is smaller than 0.25."""
    shown = list(values.items())[:MAX_BARS]
    finite = [value for _, value in shown if not math.isnan(value)]
    high = max([*finite, 0.0])
    low = min([*finite, 0.0])
    top = 1.0 if 0.25 <= high <= 1.0 else max(high, 1e-3)
    bottom = low if low < 0 else 0.0
    left, width, step = 170, 460, 24
    height = step * len(shown) + 30

    def x(value: float) -> float:
        return left + width * (value - bottom) / (top - bottom)

    parts = [
        f'<svg role="img" viewBox="0 0 720 {height}" width="720"><title>{escape(title)}</title>'
    ]
    for i, (name, value) in enumerate(shown):
        y = i * step
        parts.append(
            f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{_short(name)}'
            f"<title>{escape(name)}</title></text>"
        )
        if math.isnan(value):
            parts.append(f'<text x="{left + 6}" y="{y + 16}">undefined</text>')
            continue
        start, end = sorted((x(0.0), x(value)))
        parts.append(
            f'<rect x="{start:.1f}" y="{y + 4}" width="{max(end - start, 1):.1f}" height="16" '
            f'fill="{_shade(1.0)}"/>'
            f'<text x="{end + 6:.1f}" y="{y + 16}">{value:.3f}</text>'
        )
    axis = step * len(shown) + 4
    parts.append(
        f'<line x1="{left}" y1="{axis}" x2="{left + width}" y2="{axis}" stroke="#57606a"/>'
        f'<text x="{left}" y="{axis + 16}" text-anchor="middle">{bottom:.2g}</text>'
        f'<text x="{left + width}" y="{axis + 16}" text-anchor="middle">{top:.2g}</text></svg>'
    )
    if len(values) > MAX_BARS:
        parts.append(
            f'<p class="quiet">The first {MAX_BARS} of {len(values)}; all are in scores.csv.</p>'
        )
    return "".join(parts)


def _heatmap(matrix: Sequence[Sequence[float]], labels: Sequence[str], title: str) -> str:
    """Square of cells, white for 0 and blue for the largest entry."""
    k = len(labels)
    entries = [v for i, row in enumerate(matrix) for j, v in enumerate(row) if i != j]
    finite = [v for v in entries if not math.isnan(v)]
    top = max([*finite, 0.0]) or 1.0
    cell = max(6, min(56, 480 // k))
    named = k <= MAX_HEATMAP_LABELS
    left = 170 if named else 10
    under = 130 if named else 10
    width, height = left + k * cell + 150, k * cell + under
    parts = [
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}">'
        f"<title>{escape(title)}</title>"
    ]
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            x, y = left + j * cell, i * cell
            if i == j or math.isnan(value):
                fill, words = "#eaeef2", "itself" if i == j else "undefined"
            else:
                fill, words = _shade(value / top), f"{value:.3f}"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}" fill="{fill}" '
                f'stroke="#d0d7de" stroke-width="0.5"><title>{escape(labels[i])}, '
                f"{escape(labels[j])}: {words}</title></rect>"
            )
            if cell >= 38 and i != j and not math.isnan(value):
                ink = "#fff" if value / top > 0.55 else "#1b1f24"
                parts.append(
                    f'<text x="{x + cell / 2 - 0.5}" y="{y + cell / 2 + 4}" text-anchor="middle" '
                    f'style="fill:{ink}">{value:.2f}</text>'
                )
    if named:
        for i, name in enumerate(labels):
            middle = i * cell + cell / 2
            parts.append(
                f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{_short(name)}</text>'
                f'<text transform="translate({left + middle + 4},{k * cell + 10}) rotate(-45)" '
                f'text-anchor="end">{_short(name, 16)}</text>'
            )
    x = left + k * cell + 24
    for step in range(20):
        parts.append(
            f'<rect x="{x}" y="{step * 6}" width="16" height="6" fill="{_shade(1 - step / 19)}"/>'
        )
    parts.append(
        f'<text x="{x + 22}" y="10">{top:.3f}</text><text x="{x + 22}" y="120">0</text></svg>'
    )
    return "".join(parts)


def _curve(points: Sequence[tuple[float, float]], title: str) -> str:
    """Mean loss of the probes over their capacity."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    left, top, width, height = 60, 14, 520, 200
    span = (max(xs) - min(xs)) or 1.0
    high = max([*ys, 1e-9])

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * (x - min(xs)) / span, top + height * (1 - max(y, 0.0) / high)

    spots = [place(x, y) for x, y in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    dots = "".join(
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{_shade(1)}"><title>capacity {x:.3g}: '
        f"loss {y:.3f}</title></circle>"
        for (px, py), (x, y) in zip(spots, points, strict=True)
    )
    base = top + height
    return (
        f'<svg role="img" viewBox="0 0 640 {base + 44}" width="640"><title>{escape(title)}</title>'
        f'<path d="M{left},{top}V{base}H{left + width}" fill="none" stroke="#57606a"/>'
        f'<polyline points="{line}" fill="none" stroke="{_shade(1)}" stroke-width="2"/>{dots}'
        f'<text x="{left - 8}" y="{top + 10}" text-anchor="end">{high:.2f}</text>'
        f'<text x="{left - 8}" y="{base}" text-anchor="end">0</text>'
        f'<text x="{left}" y="{base + 18}" text-anchor="middle">{min(xs):.3g}</text>'
        f'<text x="{left + width}" y="{base + 18}" text-anchor="middle">{max(xs):.3g}</text>'
        f'<text x="{left + width / 2}" y="{base + 34}" text-anchor="middle">capacity of the probe'
        f' (loss of the best probe upwards)</text></svg>'
    )  # fmt: skip


def _section(score: Score) -> str:
    """Heading, words and pictures of one score; empty when there is nothing to draw."""
    pictures = []
    if score.per_item:
        kind = "each concept" if not score.key.startswith(("D", "C", "I", "E")) else "each one"
        pictures.append(_bars(score.per_item, f"{score.name} of {kind}"))
    if score.matrix is not None and len(score.labels) > 1:
        pictures.append('<p class="quiet">Pair by pair; the scale ends at the largest pair.</p>')
        pictures.append(_heatmap(score.matrix, score.labels, f"{score.name}, pair by pair"))
    if score.curve:
        pictures.append(_curve(score.curve, f"{score.name}: loss by capacity"))
    if not pictures:
        return ""
    options = ", ".join(f"{name} = {value}" for name, value in score.options.items())
    return (
        f"<section><h2>{escape(score.name)}: {_number(score.value)}</h2>"
        f"<p>{escape(score.reading)}</p>{''.join(pictures)}"
        + (f'<p class="quiet">{escape(score.note)}</p>' if score.note else "")
        + (f'<p class="quiet">Computed with {escape(options)}.</p>' if options else "")
        + "</section>"
    )


def score_page(data: Predictions, scores: Sequence[Score]) -> str:
    """Page of all scores.

    Parameters
    ----------
    data : Predictions
        The file, for its name and size.
    scores : sequence of Score
        In the order of the page.

    Returns
    -------
    str
        HTML that needs nothing beside it; every text from the file is escaped.
    """
    rows = []
    for score in scores:
        remark = f' <span class="quiet">({escape(score.note)})</span>' if score.note else ""
        rows.append(
            f"<tr><td>{escape(score.name)}</td><td class=value>{_number(score.value)}</td>"
            f"<td class=word>{escape(score.better) or '–'}</td>"
            f"<td>{escape(score.reading)}{remark}</td></tr>"
        )
    facts = [f"{data.n_samples} rows"]
    if data.concept_names:
        facts.append(f"{len(data.concept_names)} concepts")
    facts.append("arrays " + ", ".join(sorted(data.arrays)))
    if data.ignored:
        facts.append("not read: " + ", ".join(data.ignored))
    keys = {score.key for score in scores}
    legend = [
        text
        for key, text in LEGEND.items()
        if any(k == key or k.startswith(f"{key}_") for k in keys)
    ]
    return PAGE.substitute(
        title=escape(data.path.name),
        facts=escape("; ".join(facts)) + ".",
        rows="\n".join(rows),
        sections="\n".join(filter(None, map(_section, scores))),
        legend="\n".join(f"<p>{escape(text)}</p>" for text in legend)
        or "<p>Values are shares between 0 and 1 unless the words say otherwise.</p>",
    )
