"""`concept-audit report`: figures, tables and the page of all papers, from stored results alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from concept_audit.pipeline import dci_es_claims
from concept_audit.pipeline.artefacts import draw_all, paper_values, rows_of
from concept_audit.pipeline.claims import check_claims
from concept_audit.pipeline.plan import config_dir, experiment_names
from concept_audit.pipeline.results_table import write_results_table
from concept_audit.pipeline.runs import StoredRun
from concept_audit.reporting.against_paper import VERDICT_RULES, judge_share
from concept_audit.reporting.document import (
    ArtefactSection,
    ClaimVerdict,
    FigureImage,
    PaperSection,
    Report,
    RunProvenance,
    comparison_rows,
)
from concept_audit.reporting.html import render_html
from concept_audit.reporting.markdown import render_markdown
from concept_audit.reporting.provenance import (
    environments_of,
    run_provenance,
    version_warnings,
)
from concept_audit.reporting.tables.unprinted import build as unprinted
from concept_audit.reporting.tables.unprinted import setting_label
from concept_audit.store.atomic import write_text
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock

__all__ = ["artefact_of", "main", "write"]

_PAPERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "leakage": (
        "Leakage and Interpretability in Concept-Based Models",
        "Parisini et al., arXiv 2504.14094",
        (
            "TabularToy is trained with two outputs of the concept encoder: linear, as the text "
            "reads, and LeakyReLU with dropout 0.2, as the authors' code does. Tables 1 and 2 are "
            "held against the latter: with linear outputs a logit model intervened on all concepts "
            "stays close to the reference head, so its S_int of 0.301 does not come out.",
            "S_int is the share of test rows whose concepts the intervened head misreads. Table 1 "
            "lists those configurations beside it: a logit model with LeakyReLU and dropout "
            "answers 'any concept' instead of 'at least two', so S_int equals the share of rows "
            "with exactly one active concept (0.315 in the population, 0.28 to 0.35 over test "
            "splits of 1000 rows).",
            "Where ours differ, as seen under the embedded profile. The paper's OIS (50 steps a "
            "probe) is noisy, so its correlation moves with the draw; Figure 4 shows it beside the "
            "trained one. With strong supervision soft models on TabularToy hardly leak, whatever "
            "the concept set or the head, so there claims 5 and 6 compare scores near zero. Claims "
            "7 and 9 say that interconcept information of CEM vectors grows with supervision; here "
            "it falls. The authors' neighbour search, inexact above 15 dimensions, lowers the "
            "values and keeps the fall: evaluation.cem_information.compat=reference shows it.",
        ),
    ),
    "dci_es": (
        "DCI-ES: An Extended Disentanglement Framework",
        "Eastwood et al., ICLR 2023, arXiv 2210.00364",
        (
            "E must be read together with I: a representation that holds nothing has E = 1, since "
            "no probe does better than the smallest. E belongs to the capacities shared by all "
            "representations of one data set and probe, so it moves when one is added. Capacity is "
            "log(1 + parameters beyond the linear probe) for MLPs, log m for random Fourier "
            "features, depth for forests. With 183 classes (Cars3D) narrow MLPs have fewer "
            "parameters than the linear probe; their capacity counts as 0.",
            "Intervals and bands here are over fits of the probes to one trained representation, "
            "not over trainings; two fits give no interval.",
            "Profiles embedded and smoke draw stand-ins of both data sets, few images, and train "
            "VAEs for a few epochs, so the learnt codes are poor. Ladders are short, codes are "
            "standardised for the neural probes (the authors' are not), forests are offered all "
            "codes of small representations at a split (the authors' sqrt(L)), and pixels are "
            "averaged to 16 x 16. Numbers and verdicts on claims show how labels, noise and mixing "
            "behave on the stand-ins; they are no evidence about networks on the original images.",
        ),
    ),
    "cbx": (
        "CBX-Bench",
        "Karadag et al., arXiv 2608.15404",
        (
            "The council here is an offline stand-in for the paper's five multimodal models: two "
            "judges compare the shown concepts with the data set's annotations of that image (by "
            "displayed weight, and every concept alike), three compare names by sentence "
            "embeddings (relevance and diversity together, relevance alone, diversity alone). No "
            "judge sees the image or was validated against people, and none knows an order, so "
            "Table 7 is zero by construction. Profile smoke has scripted judges, whose scores are "
            "invented.",
            "The explanations are those of our own linear concept bottleneck models, trained on "
            "drawn stand-ins of CUB and HAM10000. The paper's human labels are not published: "
            "Tables 2 to 5 run on synthetic labels, which prefer the model that gives the "
            "annotated class more probability. They show that the path works; their values are no "
            "evidence about judges or people.",
        ),
    ),
}


def artefact_of(name: str) -> dict[str, Any]:
    """The artefact block of an experiment file; it interpolates nothing, so it is read as it is."""
    config: Any = OmegaConf.load(config_dir() / "experiment" / f"{name}.yaml")
    artefact: Any = OmegaConf.to_container(config.artefact)
    return dict(artefact)


def _notes(rows: pd.DataFrame) -> tuple[str, ...]:
    found = rows["note"].dropna().unique()
    return tuple(note for note in found if note.startswith("undefined"))


def _section(layout: OutputLayout, name: str) -> ArtefactSection:
    """One figure or table with our numbers beside the paper's."""
    artefact = artefact_of(name)
    paper, stem = name.split("/")
    section = partial(ArtefactSection, stem=stem, name=artefact["name"], title=artefact["title"])
    try:
        rows = rows_of(layout, name)
    except FileNotFoundError:
        return section(not_run=f"concept-audit run experiment={name}")
    values = paper_values(paper)
    figure: FigureImage | None
    drawn = (
        layout.table_path(paper, stem, "csv")
        if "build" in artefact
        else layout.figure_path(paper, stem, "svg")
    )
    if not drawn.is_file():
        return section(error="its rows are stored but it was not drawn: concept-audit report")
    if "build" in artefact:
        table, figure = pd.read_csv(drawn), None
        beside = "linear output" if table["beside"].notna().any() else ""
    else:
        table, beside = unprinted(rows, values, stem), ""
        figure = FigureImage.from_file(
            drawn,
            caption=artefact["title"],
            relative_to=layout.report,
        )
    return section(
        figure=figure,
        table=comparison_rows(table),
        beside_label=beside,
        notes=_notes(rows),
        standin=bool(rows["standin"].fillna(False).any()),
        runs=tuple(layout.members(paper, stem)),
    )


def _claims(layout: OutputLayout, paper: str) -> tuple[ClaimVerdict, ...]:
    values = paper_values(paper)
    statements = values[values["metric"] == "claim"].set_index("row")
    check = {"leakage": check_claims, "dci_es": dci_es_claims.check_claims}.get(paper)
    found = [] if check is None else check(partial(rows_of, layout))
    return tuple(
        ClaimVerdict(
            name=claim.name,
            statement=str(statements.loc[claim.name, "column"]),
            verdict=judge_share(claim.holds, claim.total, standin=claim.standin),
            holds=claim.holds,
            total=claim.total,
            rule=claim.rule,
            evidence=claim.evidence,
            source=str(statements.loc[claim.name, "source"]),
        )
        for claim in found
    )


def _links(layout: OutputLayout, paper: str) -> tuple[tuple[str, str], ...]:
    """Pages beside the report: the leaderboard, where there is one."""
    if paper != "cbx" or not (layout.leaderboard / "index.html").is_file():
        return ()
    return (("Leaderboard, with every explanation and score", "../leaderboard/index.html"),)


def _departures() -> tuple[str, ...]:
    """Sentences marked `DEVIATION:` in the sources, each with its module."""
    package = Path(__file__).resolve().parents[1]
    found = []
    for path in sorted(package.rglob("*.py")):
        if path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(
            r"DEVIATION: (.+?)(?:\n\s*\n|\n\s*\"\"\"|\n(?!\s*#)(?=\s*\w+ ?[=(.:]))", text, re.S
        ):
            sentence = " ".join(line.strip().lstrip("#").strip() for line in match[1].splitlines())
            module = ".".join(path.relative_to(package).with_suffix("").parts)
            found.append(f"{module}: {sentence}")
    return tuple(found)


def _provenance(
    layout: OutputLayout, used_by: Mapping[str, list[str]]
) -> tuple[tuple[RunProvenance, ...], tuple[str, ...], tuple[str, ...]]:
    stored = {key: StoredRun(layout, key) for key in sorted(used_by)}
    manifests = {key: run.manifest for key, run in stored.items()}
    environments = environments_of(manifests)
    lines = []
    for key, run in stored.items():
        mode = run.config["resume"]["code"]
        columns = ("model", "encoding", "lambda_concept", "p_int", "head", "concept_output")
        identity = {**dict.fromkeys(columns), **run.identity}
        lines.append(
            run_provenance(
                key,
                manifests[key],
                environments=environments,
                label=setting_label(identity),
                used_by=used_by[key],
                note="" if mode == "digest" else f"resume.code={mode}: code changes ignored",
            )
        )
    return tuple(lines), environments, version_warnings(manifests)


def write(layout: OutputLayout) -> None:
    """Write `report/index.html` and `report/report.md`."""
    papers, used_by = [], dict[str, list[str]]()
    for paper, (title, citation, introduction) in _PAPERS.items():
        names = experiment_names(paper)
        if not any(layout.members(*name.split("/")) for name in names):
            continue
        sections = tuple(_section(layout, name) for name in names)
        for section in sections:
            for key in section.runs:
                used_by.setdefault(key, []).append(section.stem)
        papers.append(
            PaperSection(
                paper,
                title,
                citation,
                introduction,
                sections,
                _claims(layout, paper),
                _links(layout, paper),
            )
        )
    runs, environments, warnings = _provenance(layout, used_by)
    profiles = sorted({StoredRun(layout, key).config["profile"]["name"] for key in used_by})
    if profiles == ["smoke"]:
        warnings = ("profile smoke: few rows and epochs; the numbers mean nothing", *warnings)
    document = Report(
        title="Concept Audit: the papers beside our runs",
        profile=", ".join(profiles),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command="make reproduce",
        papers=tuple(papers),
        runs=runs,
        environments=environments,
        warnings=warnings,
        departures=_departures(),
        verdict_rules=VERDICT_RULES,
    )
    layout.report.mkdir(parents=True, exist_ok=True)
    with held_lock(layout.report_lock, wait_s=None):
        write_text(layout.report_html, render_html(document))
        write_text(layout.report_markdown, render_markdown(document))


def main(argv: Sequence[str]) -> int:
    """Redraw what changed, write the report; with sync_wandb=true mirror all runs to W&B again."""
    usage = (
        "usage: concept-audit report [paths.output_dir=outputs] [logger=wandb_offline] "
        "[sync_wandb=true]"
    )
    known = {"paths.output_dir": "outputs", "logger": "wandb_offline", "sync_wandb": "false"}
    options = dict(known)
    for text in argv:
        key, _, value = text.partition("=")
        if key not in known:
            asked = text in ("-h", "--help")
            print(usage, file=sys.stdout if asked else sys.stderr)
            return 0 if asked else 2
        options[key] = value
    layout = OutputLayout(options["paths.output_dir"])
    layout.check_writable()
    names = [name for name in experiment_names() if layout.members(*name.split("/"))]
    rows = write_results_table(layout)
    if not names and not rows.empty:
        print(f"{rows['run_key'].nunique()} runs of no figure or table: {layout.results_csv}")
        return 0
    if not names:
        print(
            f"concept-audit report: nothing is stored under {layout.root}. "
            "Run make reproduce, or concept-audit run experiment=<name>.",
            file=sys.stderr,
        )
        return 1
    good = True
    for drawn in draw_all(layout, {name: artefact_of(name) for name in names}, jobs=2):
        if drawn.error is not None:
            print(f"{drawn.name} was not drawn: {drawn.error}", file=sys.stderr)
            good = False
    write(layout)
    print(f"report: {layout.report_html}")
    if options["sync_wandb"].lower() == "true":
        from concept_audit.pipeline import tracking

        tracking.sync(layout, options["logger"], rebuild=True)
    return 0 if good else 1
