from __future__ import annotations

import pytest
import torch

from concept_audit.models.cem import CEM, CEMSpec
from concept_audit.models.reference_head import ReferenceHeadSpec


def build(**options) -> CEM:
    torch.manual_seed(0)
    return CEMSpec(**options).build(input_shape=(7,), n_concepts=3, n_classes=2).eval()


def test_vectors_are_mixed_by_the_probability():
    output = build()(torch.randn(5, 7))
    assert output.c_pos.shape == output.c_neg.shape == output.c_mix.shape == (5, 3, 16)
    weight = torch.sigmoid(output.c_logits)[:, :, None]
    assert torch.equal(output.c_hat, weight[:, :, 0])
    assert torch.allclose(output.c_mix, weight * output.c_pos + (1 - weight) * output.c_neg)
    assert torch.equal(output.bottleneck.reshape(5, 3, 16), output.c_mix)
    assert output.y_logits.shape == (5, 2)


def test_one_scorer_serves_all_concepts():
    model = build()
    names = dict(model.named_parameters())
    assert names["scorer.weight"].shape == (1, 32)
    assert names["context.weight"].shape == (96, 64)
    output = model(torch.randn(5, 7))
    both = torch.cat([output.c_pos, output.c_neg], dim=2)
    assert torch.allclose(model.scorer(both)[..., 0], output.c_logits, atol=1e-6)


def test_an_intervened_concept_shows_its_own_vector():
    x, c = torch.randn(6, 7), torch.tensor([[0, 1, 0]] * 3 + [[1, 0, 1]] * 3)
    model = build()
    plain, changed = model(x), model(x, c, torch.tensor([True, False, True]))
    assert torch.equal(changed.c_mix[3:, 0], plain.c_pos[3:, 0])
    assert torch.equal(changed.c_mix[:3, 2], plain.c_neg[:3, 2])
    assert torch.equal(changed.c_mix[:, 1], plain.c_mix[:, 1])
    assert torch.equal(changed.c_logits, plain.c_logits)
    with pytest.raises(ValueError, match="intervene needs the true concepts"):
        model(x, None, torch.ones(3, dtype=torch.bool))


def test_a_reference_head_reads_true_concepts():
    model = ReferenceHeadSpec().build(input_shape=(7,), n_concepts=3, n_classes=2)
    c = torch.tensor([[0, 1, 1]])
    output = model(None, c)
    assert output.c_hat.tolist() == [[0, 1, 1]]
    assert output.c_logits.tolist() == [[-1, 1, 1]]
    assert torch.equal(output.y_logits, model.head(c.float()))
    with pytest.raises(ValueError, match="reads the true concepts"):
        model(None)


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="embedding_size must be at least 1, got 0"):
        CEMSpec(embedding_size=0)
    with pytest.raises(ValueError, match="head must be one of"):
        CEMSpec(head="tree")
    with pytest.raises(ValueError, match="head must be one of"):
        ReferenceHeadSpec(head="tree")
