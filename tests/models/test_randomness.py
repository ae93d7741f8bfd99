from __future__ import annotations

import numpy as np
import pytest
import torch

from concept_audit.models.randomness import SeededDropout, dropout_words, stream, words_for


def test_a_stream_is_a_function_of_its_address():
    addresses = [(0, "order", 0), (1, "order", 0), (0, "dropout", 0), (0, "order", 1)]
    draws = [tuple(stream(*address).random(3)) for address in addresses]
    assert len(set(draws)) == 4
    assert draws[0] == tuple(stream(0, "order", 0).random(3))


def test_words_drawn_in_parts_are_the_words_drawn_at_once():
    whole = dropout_words(stream(3, "d", 0), 4 * words_for(10) + 7)
    parts = stream(3, "d", 0)
    joined = np.concatenate([dropout_words(parts, 10), dropout_words(parts, 7)])
    np.testing.assert_array_equal(joined[:10], whole[:10])
    np.testing.assert_array_equal(joined[10:], whole[12:])


def test_the_mask_keeps_its_rate_and_repeats():
    layer = SeededDropout(0.2)
    ones = torch.ones(20_000, 3)
    layer.start_epoch(stream(0, "dropout", 4))
    first = layer(ones)
    layer.start_epoch(stream(0, "dropout", 4))
    assert torch.equal(first, layer(ones))
    assert not torch.equal(first, layer(ones))
    kept = (first > 0).float().mean().item()
    assert abs(kept - 0.8) < 5 * np.sqrt(0.16 / 60_000)  # five standard errors
    assert torch.allclose(first[first > 0], torch.tensor(1.25), rtol=1e-5)
    assert layer.eval()(ones) is ones


def test_without_a_stream_it_is_torchs_dropout():
    torch.manual_seed(0)
    dropped = SeededDropout(0.5)(torch.ones(1000))
    assert set(dropped.tolist()) == {0.0, 2.0}
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.0"):
        SeededDropout(1.0)
