"""Figures of the leakage paper, tested on the lines, bars and words that they draw."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import concept_audit.reporting.figures.leakage as leakage
from concept_audit.reporting import style
from reporting.fake_rows import fake_rows

STEMS = sorted(m.name for m in pkgutil.iter_modules(leakage.__path__) if m.name.startswith("fig"))
NEEDED = {  # a metric whose absence leaves each figure without data, and the scope it needs
    "fig02_histograms": ("concept_density", "run"),
    "fig03_interventions": ("intervention_accuracy", "run"),
    "fig04_pairs": ("ctl", "run"),
    "fig05_hard_models": ("icl", "mean"),
    "fig06_supervision": ("ctl", "mean"),
    "fig07_incomplete": ("ctl", "mean"),
    "fig08_misspecified": ("icl", "mean"),
    "fig09_projection_by_task": ("projection_1", "run"),
    "fig10_cem_task_information": ("concepts_task_information", "mean"),
    "fig11_projection_by_concepts": ("projection_2", "run"),
    "fig12_cem_self_interconcept": ("self_information", "mean"),
    "fig13_cem_probabilities": ("ctl", "mean"),
    "fig14_alignment": ("alignment_leakage", "mean"),
    "fig15_true_interconcept": ("interconcept_information_true", "run"),
    "fig16_niche": ("nis", "mean"),
    "fig17_concept_wise": ("icl", "run"),
    "fig18_scatter": ("intervention_score", "mean"),
    "fig19_lambda_range": ("task_accuracy", "mean"),
    "fig20_supervision": ("ctl", "mean"),
    "fig21_accuracies_incomplete": ("task_accuracy", "mean"),
    "fig22_accuracies_misspecified": ("concept_accuracy", "mean"),
    "fig23_projection_by_task_interventions": ("projection_1", "run"),
    "fig24_projection_by_concepts_interventions": ("projection_1", "run"),
    "fig25_cem_interventions": ("intervention_accuracy", "mean"),
}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return fake_rows((("tabulartoy_d025", "linear"), ("dsprites_g0_standin", "linear")))


def draw(stem: str, rows: pd.DataFrame) -> Figure:
    return importlib.import_module(f"{leakage.__name__}.{stem}").draw(rows)


def panels(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def words(figure: Figure) -> str:
    texts = [figure.get_supxlabel()]
    for axes in figure.axes:
        texts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
    for legend in figure.legends:
        texts += [text.get_text() for text in legend.get_texts()]
    return "\n".join(texts)


def bars(axes) -> dict[str, list[float]]:
    found = {}
    for container in axes.containers:
        if hasattr(container, "patches"):
            found[container.get_label()] = [patch.get_height() for patch in container.patches]
    return found


def lines(axes) -> dict[str, list[float]]:
    return {
        line.get_label(): list(np.asarray(line.get_ydata(), dtype=float))
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def value(rows: pd.DataFrame, **where) -> float:
    found = rows[rows["scope"].eq(where.pop("scope", "mean")) & rows["repeat"].isna()]
    where = {"target": "mean"} | where
    for column, wanted in where.items():
        found = found[found[column].eq(wanted).fillna(False).astype(bool)]
    assert len(found) == 1, where
    return float(found["value"].iloc[0])


def test_every_figure_of_the_paper_has_a_drawing_function():
    assert sorted(NEEDED) == STEMS


@pytest.mark.parametrize("stem", STEMS)
def test_axes_have_labels_and_data_and_the_caption_says_what_is_shown(stem, rows):
    figure = draw(stem, rows)
    assert isinstance(figure, Figure)
    for axes in panels(figure):
        shared_x = axes.get_shared_x_axes().get_siblings(axes)
        shared_y = axes.get_shared_y_axes().get_siblings(axes)
        column = [
            a
            for a in panels(figure)
            if a.get_subplotspec().colspan == axes.get_subplotspec().colspan
        ]
        assert any(a.get_xlabel() for a in [*shared_x, *column]), stem
        assert any(a.get_ylabel() for a in shared_y), stem
        assert axes.has_data(), stem
    caption = figure.get_supxlabel()
    assert "One model per panel" in caption or "n = 5" in caption or "training sets" in caption
    if "tabulartoy_two" not in stem and stem not in ("fig02_histograms", "fig03_interventions"):
        assert "dSprites (γ = 0)" in words(figure) or stem in ("fig05_hard_models", "fig16_niche")
        assert style.STANDIN_NOTE in caption.replace("\n", " ")


@pytest.mark.parametrize("stem", STEMS)
def test_missing_rows_are_named(stem, rows):
    metric, scope = NEEDED[stem]
    with pytest.raises(ValueError, match=rf"{stem} has nothing to draw.*scope '{scope}'") as error:
        draw(stem, rows[rows["metric"] == "no_such_metric"])
    assert repr(metric) in str(error.value)
    assert "metrics in the rows given: none" in str(error.value)


def test_a_missing_metric_has_no_panel():
    few = fake_rows((("tabulartoy_d025", "linear"),), ois=False)
    many = fake_rows((("tabulartoy_d025", "linear"),), ois=True)
    assert len(panels(draw("fig05_hard_models", few))) == 2
    assert len(panels(draw("fig05_hard_models", many))) == 4
    with pytest.raises(ValueError, match="'nis' or 'nis_reference'"):
        draw("fig16_niche", few)


def test_standins_are_marked_in_title_background_and_caption(rows):
    figure = draw("fig06_supervision", rows)
    plain, standin = panels(figure)[:2]
    assert plain.get_title() == "TabularToy (δ = 0.25)"
    assert standin.get_title() == "dSprites (γ = 0) [stand-in]"
    assert [t.get_text() for t in standin.texts] == ["STAND-IN"]
    assert not plain.texts
    real = draw("fig06_supervision", rows[rows["dataset"] == "tabulartoy_d025"])
    assert "Stand-in" not in real.get_supxlabel()


def test_bars_of_figure_6_are_the_means_of_the_rows(rows):
    axes = panels(draw("fig06_supervision", rows))[0]
    found = bars(axes)
    for encoding in ("soft", "logit"):
        expected = [
            value(
                rows,
                metric="ctl",
                dataset="tabulartoy_d025",
                model="cbm",
                encoding=encoding,
                lambda_concept=level,
            )
            for level in (0.1, 1.0, 5.0)
        ]
        assert found[f"{encoding} concepts"] == pytest.approx(expected)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0.1", "1", "5"]


def test_whiskers_are_the_intervals_of_the_rows(rows):
    axes = panels(draw("fig06_supervision", rows))[0]
    own = rows[
        (rows["metric"] == "ctl")
        & (rows["scope"] == "mean")
        & (rows["dataset"] == "tabulartoy_d025")
        & (rows["encoding"] == "soft")
        & (rows["lambda_concept"] == 0.1)
    ].iloc[0]
    ends = axes.collections[0].get_segments()[0][:, 1]
    assert sorted(ends) == pytest.approx([own["low"], own["high"]])


def test_levels_fall_back_to_all_that_are_there(rows):
    odd = rows[rows["lambda_concept"].isin([0.5, 10.0])]
    axes = panels(draw("fig06_supervision", odd))[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0.5", "10"]


def test_figure_20_stops_at_10_and_figure_19_does_not(rows):
    axes = panels(draw("fig20_supervision", rows))[0]
    assert [t.get_text() for t in axes.get_xticklabels()][-1] == "10"
    axes = panels(draw("fig19_lambda_range", rows))[0]
    curve = next(line for line in axes.get_lines() if line.get_label() == "soft concepts")
    assert list(curve.get_xdata()) == [0.01, 0.1, 0.5, 1, 5, 10, 20, 50, 100]


def test_single_models_are_the_lowest_fold_averaged_over_repeats(rows):
    figure = draw("fig04_pairs", rows)
    titles = [axes.get_title() for axes in panels(figure)]
    assert titles[::2] == ["TabularToy (δ = 0.25)", "dSprites (γ = 0) [stand-in]"]
    found = bars(panels(figure)[1])
    assert list(found) == ["soft, λ = 5", "logit, λ = 5"]
    where = {"scope": "run", "dataset": "tabulartoy_d025", "encoding": "logit", "fold": 0}
    expected = value(rows, metric="ctl", lambda_concept=5.0, **where)
    assert found["logit, λ = 5"][0] == pytest.approx(expected)
    legend = [t.get_text() for t in panels(figure)[3].get_legend().get_texts()]
    assert legend[:2] == ["logit, λ = 5", "logit, λ = 0.5"]


def test_intervention_curves_have_a_point_for_each_number_of_concepts(rows):
    axes = panels(draw("fig04_pairs", rows))[0]
    curve = lines(axes)["logit, λ = 5"]
    own = rows[
        (rows["metric"] == "intervention_accuracy")
        & (rows["scope"] == "run")
        & (rows["dataset"] == "tabulartoy_d025")
        & (rows["encoding"] == "logit")
        & (rows["lambda_concept"] == 5.0)
        & (rows["fold"] == 0)
    ].sort_values("step")
    assert curve == pytest.approx(list(own["value"]))
    assert lines(axes)["head trained on true concepts"] == [1.0, 1.0]


def test_histogram_bars_stack_to_one(rows):
    for axes in panels(draw("fig02_histograms", rows)):
        heights = bars(axes)
        assert sum(map(sum, heights.values())) == pytest.approx(1.0)
        assert "c2 = 0, y = 0" in heights


def test_variants_stand_beside_their_plain_data_set(rows):
    axes = panels(draw("fig07_incomplete", rows))[0]
    where = {"metric": "ctl", "lambda_concept": 0.1, "encoding": "soft"}
    complete = value(rows, dataset="tabulartoy_d025", **where)
    incomplete = value(rows, dataset="tabulartoy_d025_incomplete", **where)
    found = bars(axes)
    assert found["complete concepts"][0] == pytest.approx(complete)
    assert found["incomplete concepts"][0] == pytest.approx(incomplete)
    plain = rows[~rows["dataset"].str.contains("incomplete")]
    with pytest.raises(ValueError, match="together with its 'incomplete' variant"):
        draw("fig07_incomplete", plain)


def test_misspecified_heads_are_compared_with_linear_heads_only(rows):
    figure = draw("fig08_misspecified", rows)
    found = bars(panels(figure)[1])
    where = {"metric": "ctl", "lambda_concept": 1.0, "encoding": "soft", "head": "linear"}
    expected = value(rows, dataset="dsprites_g0_standin", **where)
    assert found["well-specified linear head"][1] == pytest.approx(expected)


def test_both_concept_outputs_get_their_panels():
    both = fake_rows((("tabulartoy_d025", "linear"), ("tabulartoy_d025", "leaky_relu")))
    titles = [axes.get_title() for axes in panels(draw("fig06_supervision", both))[:2]]
    assert titles == [
        "TabularToy (δ = 0.25)\nlinear logits",
        "TabularToy (δ = 0.25)\nLeakyReLU + dropout on logits",
    ]


def test_many_settings_are_tiled():
    names = ("tabulartoy_d025", "tabulartoy_d075", "dsprites_g0", "dsprites_g4", "shapes3d_g0")
    many = fake_rows(tuple((name, "linear") for name in names), variants=False)
    figure = draw("fig06_supervision", many)
    assert len(panels(figure)) == 10
    titles = [axes.get_title() for axes in panels(figure)[::2]]
    assert titles == [  # weakly dependent concepts first, as in the paper
        "TabularToy (δ = 0.25)",
        "dSprites (γ = 0)",
        "3dshapes (γ = 0)",
        "TabularToy (δ = 0.75)",
        "dSprites (γ = 4)",
    ]


def test_cem_lines_are_the_means_by_chance_of_intervention(rows):
    axes = panels(draw("fig14_alignment", rows))[0]
    where = {"metric": "alignment_leakage", "dataset": "tabulartoy_d025", "p_int": 0.25}
    expected = [value(rows, lambda_concept=level, **where) for level in (0.1, 1.0, 10.0)]
    assert lines(axes)["p_int = 0.25"] == pytest.approx(expected)


def test_projections_are_split_by_p_int_and_coloured_by_label(rows):
    without = draw("fig09_projection_by_task", rows)
    assert all("p_int = 0\n" in a.get_title() + "\n" for a in panels(without))
    assert len(panels(without)) == 4  # two data sets, smallest and largest lambda
    with_interventions = draw("fig24_projection_by_concepts_interventions", rows)
    assert len(panels(with_interventions)) == 8
    classes = [c.get_label() for c in panels(with_interventions)[0].collections]
    assert classes == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]
    points = sum(len(c.get_offsets()) for c in panels(without)[0].collections)
    assert points == 150


def test_a_note_without_labels_is_refused(rows):
    with pytest.raises(ValueError, match="reads the labels of each sample from the column note"):
        draw("fig09_projection_by_task", rows.assign(note="nothing"))


def test_heatmap_is_symmetric_with_an_empty_diagonal(rows):
    image = panels(draw("fig15_true_interconcept", rows))[0].images[0]
    matrix = np.ma.filled(image.get_array(), np.nan)
    assert np.isnan(np.diag(matrix)).all()
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(0.02)
    assert image.get_clim() == (0.0, 0.5)


def test_correlations_of_comparison_rows_stand_in_the_title(rows):
    assert "r = 0.75, p = 0.003" in panels(draw("fig18_scatter", rows))[0].get_title()
    assert "r = " not in panels(draw("fig18_scatter", rows[rows["scope"] == "mean"]))[0].get_title()


def test_two_values_for_one_spot_are_refused(rows):
    twice = pd.concat([rows, rows.assign(value=rows["value"] + 1, head="other")])
    with pytest.raises(ValueError, match=r"2 different values stand for one spot.*'head'"):
        draw("fig14_alignment", twice)


def test_values_without_interval_are_drawn_without_whisker(rows):
    bare = rows.assign(low=np.nan, high=np.nan)
    for stem in ("fig06_supervision", "fig14_alignment", "fig18_scatter"):
        figure = draw(stem, bare)
        assert "interval" not in figure.get_supxlabel()
    assert not panels(draw("fig06_supervision", bare))[0].collections


@pytest.mark.parametrize("stem", ["fig06_supervision", "fig09_projection_by_task"])
def test_equal_rows_give_equal_bytes(stem, rows, tmp_path):
    first = style.save(draw(stem, rows), tmp_path / "a" / stem)
    second = style.save(draw(stem, rows), tmp_path / "b" / stem)
    assert [path.suffix for path in first] == [".pdf", ".png", ".svg"]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.suffix
        assert a.stat().st_size > 2000


def test_saving_empties_the_figure_and_refuses_a_suffix(rows, tmp_path):
    figure = draw("fig14_alignment", rows)
    with pytest.raises(ValueError, match=r"Leave '\.png' out"):
        style.save(figure, tmp_path / "fig.png")
    style.save(figure, tmp_path / "fig")
    assert not figure.axes
