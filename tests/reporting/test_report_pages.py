"""The report's two forms: complete, self-contained, and deaf to markup in names."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from concept_audit.reporting.against_paper import Verdict
from concept_audit.reporting.document import (
    ArtefactSection,
    ClaimVerdict,
    ComparisonRow,
    FigureImage,
    Number,
    PaperSection,
    Report,
    RunProvenance,
    comparison_rows,
    footnotes,
)
from concept_audit.reporting.html import render_html
from concept_audit.reporting.markdown import render_markdown
from concept_audit.reporting.numbers import interval_text, number_text, signed_text
from concept_audit.reporting.provenance import (
    environments_of,
    run_provenance,
    version_warnings,
)
from concept_audit.reporting.tables.matching import comparison_frame

ATTACK = "<script>alert('x')</script> | **b** [a](javascript:1)"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def report(text: str = "plain") -> Report:
    """A report that shows everything once, with `text` wherever a name may come from outside."""
    lines = (
        ComparisonRow(text, "c_acc", Number(0.991, 0.98, 0.999), 5, Number(0.993), -0.002,
                      Verdict.WITHIN_INTERVAL, text, Number(0.5), text),
        ComparisonRow(text, "S_int", Number(0.349), 5, Number(0.301, 0.3, 0.302), 0.048,
                      Verdict.SAME_ORDER, text, note=text),
        ComparisonRow("CUB", "S_int", paper=Number(0.1), source=text),
    )  # fmt: skip
    figure = FigureImage("image/svg+xml", SVG, text, "../figures/leakage/fig06_supervision.svg")
    papers = [
        PaperSection(
            "leakage",
            text,
            text,
            (text,),
            (
                ArtefactSection("tab01_pairs", "Table 1", text, table=lines, beside_label="Linear",
                                notes=(text,), runs=("00aa", "00bb")),
                ArtefactSection("fig06_supervision", "Figure 6", text, figure=figure,
                                standin=True),
                ArtefactSection("fig07_incomplete", "Figure 7", text, error=text),
                ArtefactSection("fig08_misspecified", "Figure 8", text, not_run=text),
            ),
            (ClaimVerdict("claim_01", text, "holds in part", 2, 3, text, text, text),
             ClaimVerdict("claim_02", text, "not run")),
        ),
        PaperSection("dci_es", "Second paper"),
        PaperSection("cbx", "Third paper"),
    ]  # fmt: skip
    return Report(
        title=f"Audit {text}",
        profile="smoke",
        created="2026-01-01",
        command=text,
        papers=tuple(papers),
        runs=(
            RunProvenance("00aa", text, "seed 0", "2026-01-01", 12.0, 800.0, text, text, 1,
                          ("leakage/tab01_pairs",), text),
            RunProvenance("00bb"),
        ),
        environments=(text,),
        warnings=(text,),
        departures=(text,),
    )  # fmt: skip


class Page(HTMLParser):
    """Collects what a page consists of and checks that its tags close."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src"):
                self.addresses.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_self_contained():
    page = Page(render_html(report()))
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    for address in page.addresses:
        assert address.startswith(("#", "data:image/svg+xml;base64,"))
        if address.startswith("#"):
            assert address[1:] in page.ids
    assert base64.b64encode(SVG).decode() in render_html(report())


def test_the_page_shows_everything():
    text = render_html(report())
    for part in ("Table 1", "Figure 6", "Figure 7", "Second paper", "Third paper", "0.991",
                 "[0.980, 0.999]", "+0.048", "\N{MINUS SIGN}0.002", "within interval",
                 "same order", "2 of 3 cases", "stand-in data", "00aa", "800", "12 s",
                 "1 numbers of the paper that no run here answers to", "failed",
                 "Not run yet"):  # fmt: skip
        assert part in text, part


def test_a_table_without_printed_numbers_says_so_once():
    line = ComparisonRow("r", "ctl", Number(0.3), 5, verdict=Verdict.UNKNOWN, source="Figure 6")
    part = ArtefactSection("fig06", "Figure 6", "t", table=(line, line))
    text = render_html(Report("t", papers=(PaperSection("leakage", "t", artefacts=(part,)),)))
    assert text.count("Paper: Figure 6.") == 1
    assert '<th class="num">Paper</th>' not in text


def test_names_cannot_bring_markup_into_the_page():
    text = render_html(report(ATTACK))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "script" not in Page(text).tags


def test_markdown_shows_everything():
    text = render_markdown(report())
    for part in ("# Audit plain", "## Second paper", "### Table 1: plain", "0.991 [0.980, 0.999]",
                 "**holds in part**, 2 of 3 cases", "(stand-in data)", "`00aa`",
                 "![plain](<../figures/leakage/fig06_supervision.svg>)", "> **Warning.** plain",
                 "S\\_int (1)", "(1) plain"):  # fmt: skip
        assert part in text, part
    assert text.endswith("|\n")


def test_names_cannot_bring_markup_into_markdown():
    text = render_markdown(report(ATTACK))
    # Literal parts, between backticks or indented, may hold anything.
    text = re.sub(r"`[^`\n]*`", "", re.sub(r"(?m)^    .*$", "", text))
    assert not re.search(r"(?<!\\)<script", text)
    assert not re.search(r"(?<!\\)\[a(?<!\\)\]", text)
    widths = {
        line.count("|") - line.count("\\|") for line in text.splitlines() if "c\\_acc" in line
    }
    assert widths == {10}  # nine cells: no name opened another


def test_the_same_report_gives_the_same_bytes():
    assert render_html(report()) == render_html(report())
    assert render_markdown(report()) == render_markdown(report())


def test_equal_names_are_refused():
    part = ArtefactSection("fig06_supervision", "Figure 6", "")
    twice = Report("t", papers=(PaperSection("leakage", "t", artefacts=(part, part)),))
    message = "artefacts of leakage must have different names, got 'fig06_supervision' twice"
    with pytest.raises(ValueError, match=message):
        render_html(twice)
    with pytest.raises(ValueError, match="papers must have different names"):
        render_markdown(Report("t", papers=(PaperSection("a", "t"), PaperSection("a", "t"))))


def test_an_empty_report_is_a_page():
    Page(render_html(Report("Empty")))
    assert "0 runs." in render_markdown(Report("Empty"))


# Parts


def test_figures_from_files(tmp_path: Path):
    file = tmp_path / "figures" / "leakage" / "f.svg"
    file.parent.mkdir(parents=True)
    file.write_bytes(SVG)
    image = FigureImage.from_file(file, caption="c", relative_to=tmp_path / "report")
    assert (image.media_type, image.path) == ("image/svg+xml", "../figures/leakage/f.svg")
    with pytest.raises(ValueError, match=r"must be \.svg or \.png, got f\.pdf"):
        FigureImage.from_file(tmp_path / "f.pdf")


def test_lines_of_a_table_survive_its_csv(tmp_path: Path):
    table = comparison_frame(
        [
            {"row": "r", "column": "c", "ours": 0.5, "low": 0.4, "high": 0.6, "n": 5, "paper": 0.5,
             "difference": 0.0, "verdict": "within interval", "source": "s"},
            {"row": "r", "column": "d", "paper": 0.1, "verdict": "not run", "note": "why"},
        ]
    )  # fmt: skip
    table.to_csv(tmp_path / "t.csv", index=False)
    lines = comparison_rows(table)
    again = comparison_rows(pd.read_csv(tmp_path / "t.csv"))
    assert [line.verdict for line in again] == [Verdict.WITHIN_INTERVAL, Verdict.NOT_RUN]
    assert repr(again) == repr(lines)  # NaN is not equal to itself
    assert (lines[0].n, lines[0].ours.has_interval, lines[1].ours.known) == (5, True, False)
    assert footnotes(lines) == ["why"]


def test_numbers_as_text():
    minus = "\N{MINUS SIGN}"
    assert number_text(math.nan) == "\N{EN DASH}"
    assert [number_text(value) for value in (0.3005, -0.25, 3.4e-5, -1e-17, 43211.7)] == [
        "0.300",
        f"{minus}0.250",
        "3.4e-05",
        "0.000",
        "43212",
    ]
    assert [signed_text(value) for value in (0.01, -0.01, 1e-5, math.nan)] == [
        "+0.010",
        f"{minus}0.010",
        "0.000",
        "\N{EN DASH}",
    ]
    assert interval_text(Number(0.5)) == ""
    assert interval_text(Number(0.0, -0.1, 0.1)) == f"[{minus}0.100, 0.100]"


def manifest(numpy: str = "2.4.6", commit: str = "a" * 40, dirty: bool = False):
    return {
        "environment": {"python": "3.11.7", "libraries": {"numpy": numpy}},
        "git": {"commit": commit, "dirty": dirty},
        "seeds": {"seed": 0},
        "seconds": 3.0,
    }


def test_mixed_versions_warn():
    assert version_warnings({"a": manifest(), "b": manifest()}) == ()
    warnings = version_warnings(
        {"a": manifest(), "b": manifest("2.4.5", commit="b" * 40), "c": manifest(dirty=True)}
    )
    assert len(warnings) == 3
    assert "mix versions of numpy: 2.4.5 (1 runs), 2.4.6 (2 runs)" in warnings[0]
    assert "several commits: aaaaaaaaaaaa (2 runs), bbbbbbbbbbbb (1 runs)" in warnings[1]
    assert "1 of 3 runs were made with uncommitted changes" in warnings[2]


def test_provenance_of_a_run():
    manifests = {"a": manifest(), "b": manifest("2.4.5", dirty=True)}
    environments = environments_of(manifests)
    assert len(environments) == 2
    line = run_provenance("b", manifests["b"], environments=environments, used_by=("z", "y"))
    assert (line.environment, line.commit) == (2, "aaaaaaaaaaaa with local changes")
    assert (line.used_by, line.seeds, line.seconds) == (("y", "z"), "seed 0", 3.0)
    bare = run_provenance("c", {}, environments=environments_of({"c": {}}))
    assert (bare.commit, math.isnan(bare.seconds)) == ("no git checkout", True)


def test_a_page_beside_the_report_is_linked_from_its_paper():
    links = (("The <board>", "../leaderboard/index.html"),)
    report = Report("t", papers=(PaperSection("cbx", "CBX", links=links),))
    assert '<a href="../leaderboard/index.html">The &lt;board&gt;</a>' in render_html(report)
    assert "](../leaderboard/index.html)" in render_markdown(report)
