"""The report as one HTML file that needs nothing beside it: figures and styles are inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined

from concept_audit.reporting.against_paper import VERDICT_RULES, Verdict
from concept_audit.reporting.document import ComparisonRow, Report, footnotes
from concept_audit.reporting.numbers import interval_text, number_text, signed_text

__all__ = ["render_html"]

_LONG = 24  # tables with more lines start collapsed
_CLAIM_STYLES = {
    "holds": "good",
    "holds in part": "fair",
    "does not hold": "bad",
    "stand-in": "standin",
}
_VERDICT_STYLES = {
    Verdict.WITHIN_INTERVAL: "good",
    Verdict.SAME_ORDER: "fair",
    Verdict.DIFFERS: "bad",
    Verdict.NOT_RUN: "none",
    Verdict.STAND_IN: "standin",
    Verdict.UNKNOWN: "none",
}


@dataclass(frozen=True)
class _Group:
    """Lines of a table that share the name of their row."""

    name: str
    lines: tuple[ComparisonRow, ...]


def _grouped(lines: Iterable[ComparisonRow]) -> list[_Group]:
    return [_Group(name, tuple(part)) for name, part in groupby(lines, key=lambda line: line.row)]


def _was_run(lines: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    return [line for line in lines if line.verdict is not Verdict.NOT_RUN]


def _not_run(lines: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    return [line for line in lines if line.verdict is Verdict.NOT_RUN]


def _printed(lines: Iterable[ComparisonRow]) -> bool:
    """True if the paper prints any of the numbers."""
    return any(line.paper.known for line in lines)


def _duration(seconds: float) -> str:
    if seconds != seconds:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("concept_audit.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number_text,
        signed=signed_text,
        interval=interval_text,
        duration=_duration,
        grouped=_grouped,
        was_run=_was_run,
        not_run=_not_run,
        printed=_printed,
        footnotes=footnotes,
        verdict_style=lambda verdict: _VERDICT_STYLES[Verdict(verdict)],
        claim_style=lambda verdict: _CLAIM_STYLES.get(verdict, "none"),
    )
    return environment


def render_html(report: Report) -> str:
    """The report as a self-contained page.

    Parameters
    ----------
    report : filled by the pipeline

    Returns
    -------
    HTML text. Every text of the report is escaped; figures are inlined as `data:` addresses; there
    is no script and no address outside the page.

    Raises
    ------
    ValueError  if two papers or two artefacts of one share a name.
    """
    report.check()
    template = _environment().get_template("report.html.j2")
    rules = report.verdict_rules if report.verdict_rules is not None else VERDICT_RULES
    return template.render(report=report, rules=rules, long=_LONG)
