"""DCI-ES from a config to the report: two representations, all probes, a figure and a table."""

from __future__ import annotations

import pandas as pd
import pytest

from concept_audit.pipeline import report
from concept_audit.pipeline.artefacts import draw_artefact
from concept_audit.pipeline.plan import load_experiment
from concept_audit.pipeline.run import run_cells
from concept_audit.store.layout import OutputLayout

pytestmark = pytest.mark.slow

STEMS = ("fig01_loss_capacity", "tab01_scores")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dci_es")
    small = [
        "profile=smoke", "trainer.jobs=1", "data=mpi3d_standin", "model=labels,noisy_labels",
        "data.max_samples=150", f"paths.output_dir={folder}/outputs",
        f"paths.data_dir={folder}/data",
    ]  # fmt: skip
    layout = OutputLayout(folder / "outputs")
    experiments = [load_experiment(f"dci_es/{stem}", small) for stem in STEMS]
    results = run_cells([cell for item in experiments for cell in item.cells])
    assert [result.error for result in results] == [None] * 4
    for item in experiments:
        outcome = draw_artefact(layout, item.name, item.artefact)
        assert outcome.state == "drawn", outcome.error
    report.write(layout)
    return layout


def test_the_figure_and_the_table_come_out(drawn):
    for suffix in ("pdf", "png", "svg"):
        assert drawn.figure_path("dci_es", STEMS[0], suffix).stat().st_size > 1000
    table = pd.read_csv(drawn.table_path("dci_es", STEMS[1])).set_index(["row", "column"])
    truth = table.loc["MPI3D, ground-truth labels"]
    assert truth.loc["I, RF", "ours"] > 0.99
    assert truth.loc["S", "ours"] == 1
    assert truth["ours"].notna().all()
    assert set(truth["verdict"]) == {"stand-in"}
    assert set(table.loc["Cars3D, VAE", "verdict"]) == {"not run"}


def test_the_report_shows_scores_claims_and_the_stand_in(drawn):
    page = drawn.report_html.read_text(encoding="utf-8")
    for words in (*STEMS, "E must be read together with I", "MPI3D, noisy labels", "stand-in"):
        assert words in page
    assert "Ground-truth labels score 1 in D, C, I, E and S." in page
