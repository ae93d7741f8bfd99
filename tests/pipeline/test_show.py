"""The contact sheet: what it draws, from which rows, and what the command says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from concept_audit.data.base import ConceptDataset
from concept_audit.pipeline.contact_sheet import (
    concept_correlations,
    contact_sheet,
    example_rows,
)
from concept_audit.pipeline.show import main


def small(n_concepts=3, n_classes=3, channels=3, standin=True):
    rng = np.random.default_rng(0)
    n = 60
    return ConceptDataset(
        name="small",
        x=rng.integers(0, 256, size=(n, 8, 8, channels)).astype(np.uint8),
        c=rng.integers(0, 2, size=(n, n_concepts)),
        y=np.arange(n) % n_classes,
        concept_names=tuple(f"has_part::value $_{i}" for i in range(n_concepts)),
        class_names=tuple(f"Vögel_{i}" for i in range(n_classes)),
        splits={"train": np.arange(30), "val": np.arange(30, 40), "test": np.arange(40, 60)},
        standin=standin,
        notes=("A note.",),
    )


def texts(figure):
    return [text.get_text() for text in figure.findobj(match=lambda a: hasattr(a, "get_text"))]


def test_the_sheet_shows_images_classes_concepts_and_the_stand_in_flag():
    dataset = small()
    figure = contact_sheet(dataset)
    axes = [a for part in figure.subfigs for a in part.axes]
    pictures = [a for a in axes if a.images and a.images[0].get_array().shape[:2] == (8, 8)]
    assert len(pictures) == 24
    row = example_rows(dataset, 24)[0]
    np.testing.assert_array_equal(pictures[0].images[0].get_array(), dataset.x[row])
    heatmap = next(a for a in axes if a.get_title() == "Correlation of the 3 concepts").images[0]
    np.testing.assert_allclose(heatmap.get_array(), np.corrcoef(dataset.c.T))
    written = texts(figure)
    assert any("STAND-IN" in text and "A note." in text for text in written)
    assert any(text.startswith("Vögel 0\n") for text in written)
    shares = [
        patch.get_height()
        for a in axes
        if a.get_title() == "Share of each class"
        for patch in a.patches
    ]
    assert sum(shares) == pytest.approx(3.0)  # one for each split


@pytest.mark.parametrize(("n_concepts", "n_classes", "channels"), [(0, 2, 1), (70, 45, 3)])
def test_sheets_without_concepts_or_with_many(n_concepts, n_classes, channels, tmp_path):
    figure = contact_sheet(small(n_concepts, n_classes, channels, standin=False))
    figure.savefig(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 1000
    assert not any("STAND-IN" in text for text in texts(figure))


def axes_of(figure):
    return [axes for part in figure.subfigs for axes in part.axes]


def titled(figure, title):
    return next(axes for axes in axes_of(figure) if axes.get_title() == title)


def test_long_concept_names_are_whole_or_end_in_an_ellipsis():
    names = ("azimuth_first_half", "azimuth_first_or_third_quarter", "third")
    both = replace(small(), concept_names=names, c=np.tile([1, 1, 0], (60, 1)))
    title = axes_of(contact_sheet(both))[0].get_title()
    assert title == "Vögel 0\nazimuth first half, azimuth\nfirst or third quarter"
    long = replace(both, concept_names=("word_" * 20, *names[1:]), c=np.ones((60, 3), dtype=int))
    title = axes_of(contact_sheet(long))[0].get_title()
    assert title.endswith("… +1")
    assert all(len(line) <= 30 for line in title.removesuffix(" +1").split("\n"))


def test_images_have_a_frame_and_empty_panels_none():
    few = small()
    few = replace(few, splits={"train": np.arange(6), "test": np.arange(6, 9)})
    panels = axes_of(contact_sheet(few))[:24]
    assert [axes.axison for axes in panels] == [True] * 9 + [False] * 15
    assert panels[0].spines["left"].get_edgecolor()[:3] == pytest.approx((0.733,) * 3, abs=1e-3)


def test_few_concepts_have_numbers_and_many_an_index():
    dataset = small(3)
    axes = titled(contact_sheet(dataset), "Correlation of the 3 concepts")
    values = np.corrcoef(dataset.c.T)
    written = [text.get_text().replace("−", "-") for text in axes.texts]
    assert [float(text) for text in written] == pytest.approx(values.ravel(), abs=0.0051)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["part: value $ 0", "part: value $ 1", "part: value $ 2"]
    assert not axes.get_xticklabels()
    assert "order of the rows" in axes.get_xlabel()
    axes = titled(contact_sheet(small(9)), "Correlation of the 9 concepts")
    assert not axes.texts
    axes = titled(contact_sheet(small(61)), "Correlation of the 61 concepts")
    assert axes.get_xlabel() == axes.get_ylabel() == "index of the concept"


@pytest.mark.parametrize(("n_classes", "rotation"), [(3, 0), (4, 90)])
def test_names_of_few_classes_lie_flat(n_classes, rotation):
    labels = titled(contact_sheet(small(n_classes=n_classes)), "Share of each class")
    labels = labels.get_xticklabels()
    assert [label.get_text() for label in labels] == [f"Vögel {i}" for i in range(n_classes)]
    assert {label.get_rotation() for label in labels} == {rotation}


def test_features_have_one_legend_above_them():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    table = replace(small(), x=rows)
    figure = contact_sheet(table)
    first = axes_of(figure)[0]
    assert first.get_ylabel() == "training rows, stacked"
    assert first.get_legend() is None
    (legend,) = figure.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["Vögel 0", "Vögel 1", "Vögel 2"]
    figure.canvas.draw()
    assert legend.get_window_extent().y0 >= first.get_window_extent().y1


def test_the_heading_names_what_was_asked_for():
    asked = contact_sheet(small(), name="smallest").get_suptitle()
    assert asked.startswith("smallest (small): 60 rows")
    assert contact_sheet(small(), name="small").get_suptitle().startswith("small: 60 rows")


def test_examples_cover_as_many_classes_as_fit():
    dataset = small(n_classes=20)
    rows = example_rows(dataset, 24)
    assert len(set(rows.tolist())) == 24
    assert set(dataset.y[rows]) == set(range(20))
    np.testing.assert_array_equal(rows, example_rows(dataset, 24))
    assert len(example_rows(dataset, 100)) == 60


def test_a_constant_concept_has_no_correlation():
    c = np.array([[0, 1], [1, 1], [1, 1], [0, 1]])
    values = concept_correlations(c)
    assert values[0, 0] == pytest.approx(1.0)
    assert np.isnan(values[0, 1])


def test_the_command_writes_the_picture(tmp_path, capsys):
    arguments = ["data=tabulartoy_d025", "data.n_samples=300", f"paths.output_dir={tmp_path}"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    path = tmp_path / "figures" / "data" / "tabulartoy_d025.png"
    assert f"wrote {path}" in out
    assert "300 rows, 3 concepts, 2 classes, splits train 210, val 60, test 30" in out
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_wrong_arguments_name_what_exists(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "concept-audit show data=" in capsys.readouterr().out
    assert main(["data=dsprite_standin"]) == 2
    assert "dsprites_standin" in capsys.readouterr().err


def test_a_missing_or_wrong_dataset_is_said_in_one_sentence(tmp_path, capsys):
    arguments = ["data=cub", f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}"]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "CUB_200_2011/images.txt is missing" in err
    assert "Run: concept-audit fetch data=cub" in err
    assert "Traceback" not in err
    assert main(["data=dsprites_standin", "data.gamma=9"]) == 2
    assert "gamma must be 0..4" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
