"""The report as Markdown: the same content, readable in a terminal or on a code host."""

from __future__ import annotations

import re
from collections.abc import Iterable

from concept_audit.reporting.against_paper import VERDICT_RULES, Verdict
from concept_audit.reporting.document import (
    ArtefactSection,
    ClaimVerdict,
    ComparisonRow,
    Number,
    PaperSection,
    Report,
    RunProvenance,
    footnotes,
)
from concept_audit.reporting.numbers import interval_text, number_text, signed_text

__all__ = ["render_markdown"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def _escape(text: str) -> str:
    """Text without power over the page: no markup, no HTML, one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Literal text that can close neither its own marks nor a table's cell."""
    plain = " ".join(text.replace("`", "").split()).replace("|", "\\|")
    return f"`{plain}`"


def _number(number: Number) -> str:
    return f"{number_text(number.value)} {interval_text(number)}".strip()


def _table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *rows, ""]


def _comparison(table: Iterable[ComparisonRow], beside_label: str) -> list[str]:
    head = ["Setting", "Quantity", "Ours [95 %]", "n", "Paper", "Difference", "Verdict"]
    lines = []
    rows = list(table)
    notes = footnotes(rows)
    for line in rows:
        mark = f" ({notes.index(line.note) + 1})" if line.note else ""
        column = _escape(line.column) + mark
        cells = [
            _escape(line.row),
            column,
            _number(line.ours),
            "" if line.n is None else str(line.n),
            _number(line.paper),
            signed_text(line.difference),
            str(line.verdict),
        ]
        if beside_label:
            cells.append(_number(line.beside))
        lines.append([*cells, _escape(line.source)])
    if beside_label:
        head.append(_escape(beside_label))
    text = [f"({number}) {_escape(note)}  " for number, note in enumerate(notes, start=1)]
    return [*_table([*head, "Source"], lines), *text, *([""] if text else [])]


def _artefact(part: ArtefactSection) -> list[str]:
    mark = " (stand-in data)" if part.standin else ""
    text = [f"### {_escape(part.name)}: {_escape(part.title)}{mark}", ""]
    text += [f"- {_escape(note)}" for note in part.notes]
    text += [""] if part.notes else []
    if part.not_run:
        text += [f"Not run yet: {_code(part.not_run)}", ""]
    if part.error:
        text += ["Could not be made:", "", *(f"    {line}" for line in part.error.splitlines()), ""]
    if part.figure is not None:
        caption = _escape(part.figure.caption or part.title)
        text += [f"![{caption}](<{part.figure.path}>)" if part.figure.path else caption, ""]
    if part.table:
        text += _comparison(part.table, part.beside_label)
    if part.runs:
        text += [f"{len(part.runs)} runs: {', '.join(map(_code, part.runs))}", ""]
    return text


def _claims(claims: Iterable[ClaimVerdict]) -> list[str]:
    lines = [
        [
            _escape(claim.statement),
            f"**{_escape(claim.verdict)}**"
            + (f", {claim.holds} of {claim.total} cases" if claim.total else ""),
            _escape(claim.rule),
            _escape(claim.evidence),
            _escape(claim.source),
        ]
        for claim in claims
    ]
    return ["### Claims", "", *_table(["Claim", "Verdict", "Tested", "Cases", "Source"], lines)]


def _paper(paper: PaperSection) -> list[str]:
    text = [f"## {_escape(paper.title)}", ""]
    if paper.citation:
        text += [_escape(paper.citation), ""]
    for paragraph in paper.introduction:
        text += [_escape(paragraph), ""]
    for words, address in paper.links:
        text += [f"[{_escape(words)}]({address})", ""]
    if paper.verdicts:
        text += [", ".join(f"{count} {name}" for name, count in paper.verdicts.items()) + ".", ""]
    if paper.claims:
        text += _claims(paper.claims)
    for part in paper.artefacts:
        text += _artefact(part)
    return text


def _run(run: RunProvenance) -> list[str]:
    return [
        _code(run.run_key),
        _escape(run.label) + (f" ({_escape(run.note)})" if run.note else ""),
        _escape(run.seeds),
        _escape(run.started),
        "" if run.seconds != run.seconds else f"{run.seconds:.0f} s",
        "" if run.peak_memory_mib != run.peak_memory_mib else f"{run.peak_memory_mib:.0f}",
        _code(run.commit) if run.commit else "",
        _code(run.dataset_fingerprint) if run.dataset_fingerprint else "",
        str(run.environment or ""),
        _escape(", ".join(run.used_by)),
    ]


def render_markdown(report: Report) -> str:
    """The report as Markdown, with links to the figures' files.

    Parameters
    ----------
    report : filled by the pipeline

    Returns
    -------
    Text that ends in a line break. Every text of the report is escaped.

    Raises
    ------
    ValueError  if two papers or two artefacts of one share a name.
    """
    report.check()
    head = [f"{len(report.runs)} runs."]
    if report.created:
        head.insert(0, f"Written {_escape(report.created)}.")
    if report.profile:
        head.insert(0, f"Profile {_escape(report.profile)}.")
    if report.command:
        head.append(f"Made by {_code(report.command)}.")
    text = [f"# {_escape(report.title)}", "", " ".join(head), ""]
    for warning in report.warnings:
        text += [f"> **Warning.** {_escape(warning)}", ""]
    for paper in report.papers:
        text += _paper(paper)
    rules = report.verdict_rules if report.verdict_rules is not None else VERDICT_RULES
    text += ["## How verdicts are reached", ""]
    text += [f"- **{Verdict(name)}**: {_escape(rule)}" for name, rule in rules.items()]
    text += [""]
    if report.departures:
        text += ["## Departures from the papers", ""]
        text += [f"- {_escape(departure)}" for departure in report.departures]
        text += [""]
    text += ["## Provenance", ""]
    for number, environment in enumerate(report.environments, start=1):
        text += [f"Environment {number}: {_escape(environment)}", ""]
    names = ["Run", "What", "Seeds", "Started", "Time", "Peak MiB", "Commit", "Data", "Env."]
    text += _table([*names, "Used by"], map(_run, report.runs))
    return "\n".join(text).rstrip() + "\n"
