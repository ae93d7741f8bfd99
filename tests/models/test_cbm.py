from __future__ import annotations

import pytest
import torch
from torch import nn

from concept_audit.models.cbm import CBM, CBMSpec
from concept_audit.models.encoders import EncoderSpec, MLPSpec


def build(**options) -> CBM:
    torch.manual_seed(0)
    return CBMSpec(**options).build(input_shape=(7,), n_concepts=3, n_classes=4)


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("encoding", ["hard", "soft", "logit"])
def test_shapes_and_what_the_head_reads(encoding, head):
    model = build(encoding=encoding, head=head).eval()
    output = model(torch.randn(5, 7))
    assert output.c_logits.shape == output.c_hat.shape == output.bottleneck.shape == (5, 3)
    assert output.y_logits.shape == (5, 4)
    assert output.c_mix is None
    expected = {
        "logit": output.c_logits,
        "soft": torch.sigmoid(output.c_logits),
        "hard": (output.c_logits > 0).float(),
    }[encoding]
    assert torch.equal(output.c_hat, expected)
    assert torch.equal(output.y_logits, model.head(output.bottleneck))


def test_the_encoder_is_the_network_of_the_paper():
    sizes = [tuple(p.shape) for p in build().encoder.parameters()]
    assert sizes == [(64, 7), (64,), (64, 64), (64,), (3, 64), (3,)]
    code = MLPSpec(widths=(64, 64, 64), layer_norm=True).build((7,), 3)
    kinds = [type(layer).__name__ for layer in code]
    assert kinds == ["Linear", "LayerNorm", "LeakyReLU"] * 3 + ["Linear"]
    assert isinstance(MLPSpec().build((1, 8, 8), 3)[0], nn.Flatten)
    assert isinstance(MLPSpec(), EncoderSpec)


def test_leaky_output_shrinks_negative_logits_and_dropout_rests_in_evaluation():
    x = torch.randn(64, 7)
    plain, leaky = build(), build(concept_output="leaky_relu", concept_dropout=0.2)
    leaky.load_state_dict(plain.state_dict())
    raw = plain(x).c_logits
    expected = torch.where(raw > 0, raw, 0.01 * raw)
    assert torch.allclose(leaky.eval()(x).c_logits, expected)
    dropped = leaky.train()(x).c_logits
    share = (dropped == 0).float().mean()
    assert 0.1 < share < 0.3
    kept = dropped != 0
    assert torch.allclose(dropped[kept], expected[kept] / 0.8, rtol=1e-4)


def test_interventions_set_what_the_encoding_means_by_true_and_false():
    x, c = torch.randn(5, 7), torch.randint(0, 2, (5, 3))
    mask = torch.tensor([True, False, True])
    soft = build().eval()
    plain, changed = soft(x), soft(x, c, mask)
    assert torch.equal(changed.c_hat[:, mask], c[:, mask].float())
    assert torch.equal(changed.c_hat[:, ~mask], plain.c_hat[:, ~mask])
    assert torch.equal(changed.c_logits, plain.c_logits)

    logit = build(encoding="logit").eval()
    with pytest.raises(ValueError, match="concept_percentiles are not set"):
        logit(x, c, mask)
    logit.concept_percentiles.copy_(torch.tensor([[-1.0, -2, -3], [4, 5, 6]]))
    values = logit(x, c, torch.ones(3, dtype=torch.bool)).c_hat
    assert torch.equal(values, torch.where(c > 0, torch.tensor([4.0, 5, 6]), -torch.arange(1.0, 4)))
    with pytest.raises(ValueError, match="intervene needs the true concepts"):
        soft(x, None, mask)


def test_specs_are_hashable_and_choose_the_training():
    assert hash(CBMSpec()) == hash(CBMSpec(encoder=MLPSpec(widths=[64, 64])))
    assert (CBMSpec().training, CBMSpec(encoding="hard").training) == ("joint", "independent")
    assert CBMSpec(training="sequential").training == "sequential"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encoding": "fuzzy"},
            r"encoding must be one of \('hard', 'soft', 'logit'\), got 'fuzzy'",
        ),
        ({"head": "cnn"}, "head must be one of"),
        ({"concept_output": "relu"}, "concept_output must be one of"),
        ({"concept_dropout": 1.0}, r"concept_dropout must lie in \[0, 1\), got 1.0"),
        ({"training": "fast"}, "training must be one of"),
        ({"encoding": "hard", "training": "joint"}, "no gradient passes the threshold"),
    ],
)
def test_wrong_choices_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        CBMSpec(**options)
    with pytest.raises(ValueError, match="widths must be positive"):
        MLPSpec(widths=(0,))
