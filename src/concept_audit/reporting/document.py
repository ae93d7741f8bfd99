"""What a report consists of: plain data that the pipeline fills and two writers turn into pages."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from concept_audit.reporting.against_paper import Verdict, count_verdicts

__all__ = [
    "ArtefactSection",
    "ClaimVerdict",
    "ComparisonRow",
    "FigureImage",
    "Number",
    "PaperSection",
    "Report",
    "RunProvenance",
    "comparison_rows",
    "footnotes",
]

_MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Number:
    """A value with its interval; NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        """False for a missing value."""
        return not math.isnan(self.value)

    @property
    def has_interval(self) -> bool:
        """True if both ends are there."""
        return not (math.isnan(self.low) or math.isnan(self.high))


_NOTHING = Number(math.nan)


@dataclass(frozen=True)
class ComparisonRow:
    """One line of a table: ours beside the paper's.

    Attributes
    ----------
    row, column : names as in the paper's table
    ours, paper : numbers; `beside` is ours under another setting, shown without a verdict
    n : runs behind our number
    difference : ours less the paper's
    verdict : of `against_paper.judge`
    source : where the paper's number stands
    note : a sentence for the reader
    """

    row: str
    column: str
    ours: Number = _NOTHING
    n: int | None = None
    paper: Number = _NOTHING
    difference: float = math.nan
    verdict: Verdict = Verdict.NOT_RUN
    source: str = ""
    beside: Number = _NOTHING
    note: str = ""


def comparison_rows(table: pd.DataFrame) -> tuple[ComparisonRow, ...]:
    """Lines of a table built by `reporting.tables` (or read back from its CSV)."""

    def text(value: Any) -> str:
        return "" if pd.isna(value) else str(value)

    def number(record: Mapping[Any, Any], value: str, low: str, high: str) -> Number:
        return Number(*(float(record[name]) for name in (value, low, high)))

    return tuple(
        ComparisonRow(
            row=text(record["row"]),
            column=text(record["column"]),
            ours=number(record, "ours", "low", "high"),
            n=None if pd.isna(record["n"]) else int(record["n"]),
            paper=number(record, "paper", "paper_low", "paper_high"),
            difference=float(record["difference"]),
            verdict=Verdict(record["verdict"]),
            source=text(record["source"]),
            beside=number(record, "beside", "beside_low", "beside_high"),
            note=text(record["note"]),
        )
        for record in table.to_dict("records")
    )


def footnotes(lines: Iterable[ComparisonRow]) -> list[str]:
    """Different notes of some lines, in order of first appearance; a note's number is its place."""
    return list(dict.fromkeys(line.note for line in lines if line.note))


@dataclass(frozen=True)
class FigureImage:
    """A figure to inline.

    Attributes
    ----------
    media_type : image/svg+xml or image/png
    content : bytes of the file
    caption : what is to be seen
    path : where the report finds the file, relative to itself; for the Markdown form and for links
    """

    media_type: str
    content: bytes
    caption: str = ""
    path: str = ""

    @classmethod
    def from_file(
        cls, file: str | Path, *, caption: str = "", relative_to: str | Path | None = None
    ) -> FigureImage:
        """Read an SVG or PNG file.

        Parameters
        ----------
        file : the image
        caption : what is to be seen
        relative_to : folder of the report; its path to the image is kept

        Raises
        ------
        ValueError  for another kind of file.
        """
        source = Path(file)
        if source.suffix not in _MEDIA_TYPES:
            raise ValueError(
                f"a figure of the report must be .svg or .png, got {source.name}. "
                "Save the figure in one of these forms too."
            )
        path = ""
        if relative_to is not None:
            path = Path(os.path.relpath(source.resolve(), Path(relative_to).resolve())).as_posix()
        return cls(_MEDIA_TYPES[source.suffix], source.read_bytes(), caption, path)

    @property
    def data_uri(self) -> str:
        """The image as a `data:` address; scripts in an SVG do not run when shown as an image."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.content).decode('ascii')}"


@dataclass(frozen=True)
class ArtefactSection:
    """One figure or table of a paper.

    Attributes
    ----------
    stem : name of its files, such as fig06_supervision; unique within the paper
    name, title : Figure 6, and what it shows
    figure : image, None for a table or where it was not drawn
    table : our numbers beside the paper's
    beside_label : heading of the column with our other setting; "" leaves it out
    notes : sentences shown under the title: departures, which runs
    standin : True if any number comes from stand-in data
    error : why it could not be made; "" if it could
    not_run : what to type to run it; "" if it was run
    runs : keys of the runs behind it
    """

    stem: str
    name: str
    title: str
    figure: FigureImage | None = None
    table: tuple[ComparisonRow, ...] = ()
    beside_label: str = ""
    notes: tuple[str, ...] = ()
    standin: bool = False
    error: str = ""
    not_run: str = ""
    runs: tuple[str, ...] = ()

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How often each verdict occurs."""
        return count_verdicts(line.verdict for line in self.table)


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim of a paper in words, and what our runs say about it.

    Attributes
    ----------
    name : claim_01, ...
    statement : the claim
    verdict : of `against_paper.judge_share`
    holds, total : cases in which it holds, cases tested
    rule : what was tested
    evidence : the cases, in short
    source : where the paper says it
    """

    name: str
    statement: str
    verdict: str
    holds: int = 0
    total: int = 0
    rule: str = ""
    evidence: str = ""
    source: str = ""


@dataclass(frozen=True)
class PaperSection:
    """All artefacts and claims of one paper.

    Attributes
    ----------
    key : leakage, dci_es or cbx
    title, citation : of the paper
    introduction : paragraphs before the artefacts
    links : text and address, relative to the report, of pages beside it
    artefacts, claims : in the paper's order
    """

    key: str
    title: str
    citation: str = ""
    introduction: tuple[str, ...] = ()
    artefacts: tuple[ArtefactSection, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How often each verdict occurs in the paper's tables."""
        return count_verdicts(line.verdict for part in self.artefacts for line in part.table)


@dataclass(frozen=True)
class RunProvenance:
    """Where a run's numbers come from, in one line.

    Attributes
    ----------
    run_key, label : key, and data set and model in words
    seeds, started, seconds, peak_memory_mib : of the training
    commit : git commit, with a mark if files differed from it
    dataset_fingerprint : of the data
    environment : number of the environment in `Report.environments`
    used_by : stems of the artefacts that used the run
    note : such as "code digest ignored"
    """

    run_key: str
    label: str = ""
    seeds: str = ""
    started: str = ""
    seconds: float = math.nan
    peak_memory_mib: float = math.nan
    commit: str = ""
    dataset_fingerprint: str = ""
    environment: int = 0
    used_by: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes
    ----------
    title, profile, created : heading; the profile decides sizes
    command : what was typed
    papers : one section a paper
    runs : provenance of every run used
    environments : what each environment consists of, in words
    warnings : shown at the top, such as mixed library versions
    departures : deviations from the papers that hold throughout
    verdict_rules : verdict to the rule behind it
    """

    title: str
    profile: str = ""
    created: str = ""
    command: str = ""
    papers: tuple[PaperSection, ...] = ()
    runs: tuple[RunProvenance, ...] = ()
    environments: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    departures: tuple[str, ...] = ()
    verdict_rules: Mapping[Verdict, str] | None = None

    def check(self) -> None:
        """Raise ValueError if two papers, or two artefacts of one, share a name."""
        _unique("papers", (paper.key for paper in self.papers))
        for paper in self.papers:
            _unique(f"artefacts of {paper.key}", (part.stem for part in paper.artefacts))


def _unique(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} must have different names, got {name!r} twice.")
        seen.add(name)
