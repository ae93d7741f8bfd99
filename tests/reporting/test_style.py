"""Names, colours and the isolation of the style."""

from __future__ import annotations

import matplotlib
import pytest

from concept_audit.reporting import style


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("tabulartoy_d025", "TabularToy (δ = 0.25)"),
        ("tabulartoy_d075", "TabularToy (δ = 0.75)"),
        ("tabulartoy_incomplete", "TabularToy (δ = 0.25), incomplete concepts"),
        ("tabulartoy_two_concepts", "TabularToy (δ = 0.25), two concepts"),
        ("dsprites_g0_standin", "dSprites (γ = 0) [stand-in]"),
        ("shapes3d_g5_nonlinear_standin", "3dshapes (γ = 5), nonlinear task [stand-in]"),
        ("cub", "CUB"),
        ("my_own_set", "my, own set"),
    ],
)
def test_dataset_labels(name, label):
    assert style.dataset_label(name) == label


def test_an_unknown_metric_is_shown_as_it_is():
    assert style.axis_label("ctl") == "CTL\n(MI / H(y), unitless)"
    assert style.axis_label("new_score") == "new score\n(unitless)"
    assert style.metric_label("icl") == "ICL"


def test_shades_run_from_light_to_dark():
    def brightness(colour: str) -> float:
        return sum(matplotlib.colors.to_rgb(colour))

    shades = [brightness(shade) for shade in style.ramp("#009e73", 4)]
    assert shades == sorted(shades, reverse=True)
    assert style.ramp("#009e73", 1) == ["#009e73"]


def test_the_style_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    with style.style_context():
        assert matplotlib.rcParams["svg.hashsalt"] == "concept_audit"
    assert dict(matplotlib.rcParams) == before
