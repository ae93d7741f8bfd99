from __future__ import annotations

import numpy as np
import torch

from concept_audit.models.losses import (
    concept_loss,
    constant_concepts,
    positive_weights,
    task_loss,
)


def test_losses_by_hand():
    logits, c = torch.tensor([[0.0, 2.0]]), torch.tensor([[1, 0]])
    expected = (np.log(2) + np.log(1 + np.exp(2))) / 2
    assert abs(concept_loss(logits, c).item() - expected) < 1e-6
    weighted = (3 * np.log(2) + np.log(1 + np.exp(2))) / 2
    assert abs(concept_loss(logits, c, torch.tensor([3.0, 5.0])).item() - weighted) < 1e-6
    assert abs(task_loss(torch.zeros(2, 4), torch.tensor([0, 3])).item() - np.log(4)) < 1e-6


def test_constant_concepts_get_finite_weights_and_a_name():
    c = np.zeros((50, 3), dtype=int)
    c[:, 1] = 1
    c[:10, 2] = 1
    weights = positive_weights(c)
    np.testing.assert_allclose(weights, [100, 0.01, 4], rtol=1e-6)
    assert constant_concepts(c, ("a", "b", "c")) == ("a", "b")
    loss = concept_loss(torch.randn(50, 3), torch.from_numpy(c), torch.from_numpy(weights))
    assert torch.isfinite(loss)
