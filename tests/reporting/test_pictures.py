"""Pictures of a trained model: what stands where, and what the words say."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from concept_audit.reporting.pictures import (
    LossCurve,
    Predictions,
    Reconstructions,
    Traversals,
    draw_history,
    draw_predictions,
    draw_reconstructions,
    draw_traversals,
)
from concept_audit.reporting.style import save


def by_gid(figure):
    return {axes.get_gid(): axes for axes in figure.axes}


def words(figure):
    return [text.get_text() for text in figure.texts]


def drawn(axes):
    return np.asarray(axes.images[0].get_array())


def is_marked(axes):
    return axes.spines["left"].get_linewidth() > 1


def some_reconstructions(n=3, channels=3, kl=True):
    rng = np.random.default_rng(0)
    images, copies = rng.random((2, n, 6, 6, channels))
    return Reconstructions(
        images=images,
        reconstructions=copies,
        differences=np.abs(images - copies).mean(axis=-1),
        cross_entropy=np.arange(n) + 100.04,
        excess=np.arange(n) + 7.0,
        kl=np.arange(n) + 0.5 if kl else None,
    )


def some_traversals(n_latents=2, n_steps=3, channels=1):
    rng = np.random.default_rng(1)
    values = np.sort(rng.normal(size=(n_latents, n_steps)), axis=1)
    values[-1] = -0.001
    return Traversals(
        example=rng.random((6, 6, channels)),
        reconstruction=rng.random((6, 6, channels)),
        images=rng.random((n_latents, n_steps, 6, 6, channels)),
        values=values,
        percentiles=np.linspace(2.5, 97.5, n_steps),
        latents=np.arange(n_latents)[::-1],
        importance=np.linspace(3.0, 0.0, n_latents),
        importance_label="KL {:.2f} nats",
        nearest=np.full(n_latents, 1),
    )


def some_predictions(n=3, k=2, images=True):
    rng = np.random.default_rng(2)
    annotated = rng.integers(0, 2, size=(n, k))
    wrong = np.zeros((n, k), dtype=bool)
    wrong[1, 0] = True
    return Predictions(
        images=rng.random((n, 6, 6, 3)) if images else None,
        classes=("A_rather_long_class_name_$_of_birds",) + ("b",) * (n - 1),
        predicted_classes=("b",) * n,
        task_accuracy=0.5,
        concept_names=tuple(f"has_wing::colour_{i}" for i in range(k)),
        concept_accuracy=np.full(k, 0.87),
        annotated=annotated,
        probabilities=rng.random((n, k)),
        wrong=wrong,
    )


@pytest.mark.parametrize("images", [True, False])
def test_predictions_mark_what_is_annotated_and_what_is_wrong(images):
    shown = some_predictions(images=images)
    figure = draw_predictions(shown, title="t")
    axes = by_gid(figure)
    assert set(axes) == {"concepts"} | ({f"sample {i}" for i in range(3)} if images else set())
    table = axes["concepts"]
    np.testing.assert_array_equal(drawn(table), shown.probabilities.T)
    labels = [label.get_text() for label in table.get_yticklabels()]
    assert labels == ["wing: colour 0  87%", "wing: colour 1  87%"]
    marks = {line.get_label(): line for line in table.get_lines()}
    present = list(zip(marks["annotated"].get_xdata(), marks["annotated"].get_ydata(), strict=True))
    assert present == list(zip(*np.nonzero(shown.annotated), strict=True))
    assert (list(marks["wrong"].get_xdata()), list(marks["wrong"].get_ydata())) == ([1], [0])
    colours = [text.get_color() for text in figure.texts if text.get_text() == "b"]
    assert sorted(colours) == ["#d55e00", "black", "black", "black", "black"]
    if images:
        np.testing.assert_array_equal(drawn(axes["sample 2"]), shown.images[2])
        left, right = axes["sample 1"].get_position(), table.get_position()
        assert left.y0 > right.y1
        assert left.x0 + left.x1 == pytest.approx(right.x0 + right.x1)  # the second of three


@pytest.mark.parametrize("channels", [1, 3])
def test_each_image_stands_over_its_reconstruction_and_losses(channels):
    shown = some_reconstructions(channels=channels)
    figure = draw_reconstructions(shown, title="Title, STAND-IN", sentences=["A sentence."])
    axes = by_gid(figure)
    assert len(axes) == len(figure.axes) == 9
    for column in range(3):
        expected = shown.images[column]
        original = axes[f"original {column}"]
        np.testing.assert_array_equal(
            drawn(original), expected[..., 0] if channels == 1 else expected
        )
        np.testing.assert_array_equal(
            drawn(axes[f"|difference| {column}"]), shown.differences[column]
        )
        assert original.images[0].get_clim() == (0.0, 1.0)
        places = [axes[f"{row} {column}"].get_position() for row in
                  ("original", "reconstruction", "|difference|")]  # fmt: skip
        assert len({round(place.x0, 9) for place in places}) == 1
        assert places[0].y0 > places[1].y1 > places[1].y0 > places[2].y1
    assert {"Title, STAND-IN", "A sentence.", "102.0", "9.0", "2.5"} <= set(words(figure))


def test_an_autoencoder_has_no_line_for_kl():
    assert "KL (nats)" in words(draw_reconstructions(some_reconstructions(), title="t"))
    assert "KL (nats)" not in words(draw_reconstructions(some_reconstructions(kl=False), title="t"))


@pytest.mark.parametrize(("n_latents", "channels"), [(1, 3), (2, 1), (10, 3)])
def test_a_traversal_has_a_row_per_latent_beside_the_example(n_latents, channels):
    shown = some_traversals(n_latents, channels=channels)
    figure = draw_traversals(shown, title="t")
    axes = by_gid(figure)
    assert len(figure.axes) == 2 + 3 * n_latents
    first = n_latents - 1  # the latent of the uppermost row
    plain = shown.images[0, 2]
    np.testing.assert_array_equal(
        drawn(axes[f"latent {first} step 2"]), plain[..., 0] if channels == 1 else plain
    )
    assert axes["example"].get_position().x1 < axes[f"latent {first} step 0"].get_position().x0
    assert is_marked(axes["example"])
    assert not is_marked(axes["reconstructed"])
    marks = [is_marked(axes[f"latent {first} step {step}"]) for step in range(3)]
    assert marks == [False, True, False]
    for upper, lower in zip(shown.latents, shown.latents[1:], strict=False):
        above, below = (axes[f"latent {i} step 0"].get_position() for i in (upper, lower))
        assert above.y0 > below.y1
    assert {"2.5 %", "50 %", "97.5 %"} <= set(words(figure))
    assert "latent 0\nKL 0.00 nats\nstays at 0.00" in words(figure) or n_latents == 1


def test_nothing_overlaps_and_nothing_is_cut_off():
    figures = [
        draw_predictions(some_predictions(4, 30), title="t", sentences=["word " * 90]),
        draw_reconstructions(some_reconstructions(1), title="t " * 60, sentences=["word " * 90]),
        draw_traversals(some_traversals(1), title="t " * 60, sentences=["word " * 90]),
        draw_traversals(some_traversals(10), title="t", sentences=["word " * 90]),
    ]
    for figure in figures:
        renderer = FigureCanvasAgg(figure).get_renderer()
        whole = figure.bbox
        texts = [text.get_window_extent(renderer) for text in figure.texts]
        panels = [axes.get_window_extent(renderer) for axes in figure.axes]
        assert all(axes.get_tightbbox(renderer).x0 >= 0 for axes in figure.axes)  # with its labels
        for position, box in enumerate(texts):
            corners = [box.x0, whole.x1 - box.x1, box.y0, whole.y1 - box.y1]
            assert min(corners) >= 0
            assert not any(box.overlaps(other) for other in panels + texts[position + 1 :])


def curve(phase, name, train, val, kept):
    epochs = np.arange(1, len(train) + 1)
    return LossCurve(phase, name, "nats", epochs, np.array(train), np.array(val), kept)


def test_history_names_phases_and_marks_the_kept_epoch():
    curves = [
        curve("encoder", "concept loss", [3.0, 2.0, 1.0], [3.0, 1.0, 2.0], 2),
        curve("head", "task loss", [100.0, 1.0], [90.0, 2.0], 1),
    ]
    figure = draw_history(curves, title="t")
    first, second = figure.axes
    assert first.get_position().x1 < second.get_position().x0
    assert first.get_title(loc="left") == "encoder: concept loss"
    assert first.get_title(loc="right") == "epoch 2 kept"
    train, val, kept = first.get_lines()
    np.testing.assert_array_equal(train.get_ydata(), [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(val.get_ydata(), [3.0, 1.0, 2.0])
    assert list(kept.get_xdata()) == [2, 2]
    assert (first.get_ylabel(), second.get_ylabel()) == ("nats", "nats, log scale")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["training", "validation", "kept epoch"]


@pytest.mark.parametrize(
    ("n_epochs", "ticks"),
    [(1, [1]), (4, [1, 2, 3, 4]), (20, [1, 4, 8, 12, 16, 20]), (35, [1, 6, 12, 18, 24, 30])],
)
def test_ticks_of_the_history_start_at_the_first_epoch(n_epochs, ticks):
    losses = [1.0] * n_epochs
    (axes,) = draw_history([curve("joint", "loss", losses, losses, 1)], title="t").axes
    assert axes.get_xticks().tolist() == ticks


def test_phases_with_many_losses_stand_below_each_other():
    curves = [curve(phase, name, [2.0, 1.0], [2.0, 1.0], 2) for phase in "ab" for name in "xyz"]
    places = [axes.get_position() for axes in draw_history(curves, title="t").axes]
    assert len(places) == 6
    assert places[0].y0 == places[2].y0 > places[3].y1
    assert places[0].x0 == places[3].x0


def test_a_single_phase_needs_no_name_and_a_single_epoch_no_line(tmp_path):
    figure = draw_history([curve("joint", "loss", [3.0], [2.0], 1)], title="t")
    assert figure.axes[0].get_title(loc="left") == "loss"
    assert figure.axes[0].get_xlim() == (0.5, 1.5)
    first = [path.read_bytes() for path in save(figure, tmp_path / "a")]
    again = draw_history([curve("joint", "loss", [3.0], [2.0], 1)], title="t")
    assert [path.read_bytes() for path in save(again, tmp_path / "b")] == first
