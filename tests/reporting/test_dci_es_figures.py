"""Figures and tables of the DCI-ES paper, tested on the lines and words that they show."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from concept_audit.reporting import style
from concept_audit.reporting.figures.dci_es import fig01_loss_capacity, fig04_size
from concept_audit.reporting.paper_values import read_paper_values
from concept_audit.reporting.representations import (
    order_representations,
    probe_label,
    representation_label,
    representation_series,
)
from concept_audit.reporting.tables.dci_es import tab01_scores
from concept_audit.store.results import rows_frame
from reporting.fake_rows import Rows

PAPER = read_paper_values(Path(__file__).parents[2] / "data" / "paper_values" / "dci_es.csv")
LADDERS = {"mlp": (0, 2, 8), "rff": (16, 64), "random_forest": (1, 4, 8)}
MODELS = ("raw_pixels", "labels", "resnet18_random", "autoencoder_10")


def fake(datasets=("cars3d_standin", "mpi3d_standin"), models=MODELS, folds=(0,)):
    """Rows of curves and scores; losses fall from `start` as the ladder goes up."""
    rows = Rows(interval=0.02)
    for dataset in datasets:
        place = {"dataset": dataset, "standin": dataset.endswith("standin"), "scope": "run"}
        for m, model in enumerate(models):
            for fold in folds:
                kind = place | {"paper": "dci_es", "model": model, "fold": fold, "n_runs": 2}
                note = "the encoder is random; other" if model == "resnet18_random" else None
                for probe, ladder in LADDERS.items():
                    for t, size in enumerate(ladder):
                        # Cars3D: the narrow MLP has no more parameters than the linear probe.
                        axis = max(0, t - 1) if dataset.startswith("cars") else 1.5 * t
                        axis = axis if probe == "mlp" else float(size)
                        loss = 0.5 + m / 10 - t / 10 + fold
                        rows.add(f"loss_{probe}", loss, step=size, note=note, **kind)
                        rows.add(f"loss_{probe}", 9.0, step=size, target="shape", **kind)
                        rows.add(f"capacity_{probe}", axis, step=size, bounded=False, **kind)
                    for score in ("disentanglement", "completeness", "informativeness"):
                        rows.add(f"{score}_{probe}", 0.9 - m / 10, note=note, **kind)
                    rows.add(f"explicitness_{probe}", 0.7, note="E is odd", **kind)
                    rows.add(f"size_{probe}", 0.3, bounded=False, **kind)
    return rows_frame(rows.frame())


def drawn(axes):
    return {line.get_label(): line for line in axes.get_lines() if line.get_label()[0] != "_"}


def test_curves_of_every_representation_probe_and_data_set():
    figure = fig01_loss_capacity.draw(fake())
    assert len(figure.axes) == 6
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "MPI3D [stand-in]\nMLP probes"  # the paper's order
    assert titles[5] == "Cars3D [stand-in]\nrandom forests"
    labels = ["ground-truth labels", "AE-10", "ResNet-18, random weights", "raw pixels"]
    for axes in figure.axes:
        assert set(drawn(axes)) == set(labels)
        assert any(text.get_gid() == "standin" for text in axes.texts)
    pixels = drawn(figure.axes[0])["raw pixels"]
    assert pixels.get_xdata().tolist() == [0.0, 1.5, 3.0]
    assert pixels.get_ydata().tolist() == pytest.approx([0.5, 0.4, 0.3])
    # Sizes of one capacity keep their order.
    tied = drawn(figure.axes[3])["raw pixels"]
    assert tied.get_xdata().tolist() == [0.0, 0.0, 1.0]
    assert tied.get_ydata().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
    assert figure.axes[0].get_ylabel().startswith("test loss, mean over factors")
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == [
        "log(1 + parameters beyond linear probe)",
        "random features m (number, log scale)",
        "maximum depth (splits)",
    ]
    ticks = figure.axes[4].xaxis
    assert [label.get_text() for label in ticks.get_ticklabels()] == ["16", "64"]


def test_the_caption_says_what_was_done_to_whom():
    words = " ".join(fig01_loss_capacity.draw(fake()).get_supxlabel().split())
    assert "mean over fits of the probes (n = 2); bands: one standard deviation." in words
    assert "ResNet-18, random weights: other; the encoder is random." in words
    assert style.STANDIN_NOTE in words
    assert "outside the panels" not in words
    words = fig01_loss_capacity.draw(fake(datasets=("mpi3d",), folds=(1,))).get_supxlabel()
    assert "outside the panels" in " ".join(words.split())  # losses of fold 1 are above 1.25
    assert style.STANDIN_NOTE not in " ".join(words.split())


def test_single_panels_and_nothing_to_draw():
    rows = fake(datasets=("mpi3d",))
    one = rows[~rows["metric"].str.endswith(("mlp", "rff"))]
    assert len(fig01_loss_capacity.draw(one).axes) == 1
    with pytest.raises(ValueError, match="fig01_loss_capacity has nothing to draw"):
        fig01_loss_capacity.draw(rows[rows["metric"].str.startswith("dis")])


def test_the_table_sets_ours_beside_the_papers():
    table = tab01_scores.build(fake(), PAPER).set_index(["row", "column"])
    assert len(table) == 2 * 8 * 13
    line = table.loc[("MPI3D, ground-truth labels", "D, MLP")]
    assert (line["ours"], line["paper"], line["verdict"]) == (pytest.approx(0.8), 1.0, "stand-in")
    assert line["n"] == 2
    line = table.loc[("Cars3D, raw pixels", "E, RF")]
    assert (line["ours"], line["note"]) == (pytest.approx(0.7), "E is odd")
    assert math.isnan(line["paper"])
    # The random encoder stands in the place of the pretrained one, and its note says so.
    line = table.loc[("MPI3D, ResNet-18, ImageNet", "I, RFF")]
    assert line["ours"] == pytest.approx(0.7)
    assert "the encoder is random" in line["note"]
    assert table.loc[("MPI3D, VAE", "C, RF"), "verdict"] == "not run"


def test_several_trainings_are_preferred_to_one():
    rows = fake(datasets=("mpi3d",), models=("labels",))
    mean = rows[rows["metric"] == "disentanglement_mlp"]
    mean = mean.assign(scope="mean", value=0.25, low=0.2, high=0.3, n_runs=3)
    both = rows_frame([*rows.to_dict("records"), *mean.to_dict("records")])
    table = tab01_scores.build(both, PAPER).set_index(["row", "column"])
    line = table.loc[("MPI3D, ground-truth labels", "D, MLP")]
    assert (line["ours"], line["verdict"]) == (0.25, "differs")
    assert table.loc[("MPI3D, ground-truth labels", "C, MLP"), "ours"] == pytest.approx(0.9)


def test_what_the_text_states_is_all_that_is_filled_in():
    scores = PAPER[PAPER["artefact"] == "tab01_scores"]
    stated = scores[scores["kind"] == "text"]
    assert set(stated["model"]) == {"labels"}
    assert (stated["value"] == 1).all()
    assert scores.loc[scores["model"] != "labels", "value"].isna().all()
    downstream = PAPER[PAPER["artefact"] == "fig05_downstream"].set_index(["model", "metric"])
    assert downstream.loc[("explicitness_mlp", "pearson_r"), "value"] == 0.96
    assert downstream.loc[("explicitness_random_forest", "pearson_p"), "value"] == 2e-10


def test_names_and_marks_of_representations():
    names = ["raw_pixels", "autoencoder_50", "vae", "labels", "autoencoder_5", "mine", "vae"]
    assert order_representations(names) == [
        "labels", "vae", "autoencoder_5", "autoencoder_50", "raw_pixels", "mine",
    ]  # fmt: skip
    assert representation_label("autoencoder_5") == "AE-5"
    assert representation_label("my_codes") == "my codes"
    assert (probe_label("rff"), probe_label("other_probe")) == (
        "random Fourier features",
        "other probe",
    )
    known = ["labels", "noisy_labels", "mixed_labels", "vae", "beta_vae", "raw_pixels"]
    known += ["autoencoder_5", "autoencoder_10", "autoencoder_50"]
    marks = [representation_series(name).marker for name in known]
    assert len(set(marks)) == len(marks)
    assert np.array_equal([representation_series(n).line == "--" for n in known], [1] * 3 + [0] * 6)


def test_size_against_informativeness_and_explicitness():
    models = ("raw_pixels", "autoencoder_5", "autoencoder_50")
    rows = fake(datasets=("mpi3d_standin",), models=models)
    figure = fig04_size.draw(rows)
    assert len(figure.axes) == 2
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "log"]
    informed, explicit = (drawn(axes) for axes in figure.axes)
    assert list(informed) == ["AE-5", "AE-50", "raw pixels"]
    assert informed["AE-5"].get_xdata().tolist() == [pytest.approx(0.3)]
    assert informed["AE-5"].get_ydata().tolist() == [pytest.approx(0.8)]
    assert explicit["raw pixels"].get_ydata().tolist() == [pytest.approx(0.7)]
    assert style.STANDIN_NOTE in " ".join(figure.get_supxlabel().split())
    assert figure.axes[1].get_ylabel().startswith("explicitness E")
    with pytest.raises(ValueError, match="fig04_size has nothing to draw"):
        fig04_size.draw(rows[rows["metric"].str.startswith("loss")])
