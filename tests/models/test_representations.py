"""Representations without training: noise level, mixing, pixels, and codes of a frozen network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from concept_audit.models.representations import (
    frozen_codes,
    label_codes,
    mixed_label_codes,
    mixing_matrix,
    module_codes,
    noisy_label_codes,
    pixel_codes,
)

SIZES = (6, 6, 2, 3, 3, 40, 40)


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, size, 20000) for size in SIZES], axis=1)


def test_labels_are_normalised_indices(factors):
    codes = label_codes(factors, SIZES)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes[:, 2], factors[:, 2])
    np.testing.assert_allclose(codes[:, 5], factors[:, 5] / 39, rtol=1e-6)
    assert label_codes([[0], [0]], (1,)).tolist() == [[0.0], [0.0]]  # a constant factor


def test_noisy_labels_have_the_papers_accuracy(factors):
    codes = noisy_label_codes(factors, SIZES, seed=1)
    noise = codes - label_codes(factors, SIZES)
    assert noise.std() == pytest.approx(0.1, rel=0.01)
    # Nearest level: 0.735 for six values, 0.992 for three (closed form of the Gaussian noise).
    for column, exact in ((0, 0.735), (3, 0.992)):
        levels = SIZES[column] - 1
        guess = np.clip(np.rint(codes[:, column] * levels), 0, levels)
        assert (guess == factors[:, column]).mean() == pytest.approx(exact, abs=0.01)
    np.testing.assert_array_equal(codes, noisy_label_codes(factors, SIZES, seed=1))
    assert (codes != noisy_label_codes(factors, SIZES, seed=2)).any()


def test_mixed_labels_can_be_undone_but_not_seen_through(factors):
    condition = np.median([np.linalg.cond(mixing_matrix(7, 7, seed=s)) for s in range(200)])
    assert 15 < condition < 45  # about 26; as a standard deviation it would be near 490
    codes = mixed_label_codes(factors, SIZES, seed=0).astype(float)
    labels = label_codes(factors, SIZES)
    back = codes @ np.linalg.inv(mixing_matrix(7, 7, seed=0)).T
    np.testing.assert_allclose(back, labels, atol=1e-3)
    assert mixed_label_codes(factors, SIZES, n_codes=10).shape == (20000, 10)


def test_pixels_are_flattened_channels_first():
    images = np.random.default_rng(0).integers(0, 256, size=(5, 4, 4, 3)).astype(np.uint8)
    codes = np.asarray(pixel_codes(images))
    assert codes.shape == (5, 48)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes[:, :16], images[..., 0].reshape(5, 16) / 255, rtol=1e-6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.norm(self.conv(x)).mean(dim=(2, 3))


def test_codes_of_a_network_do_not_depend_on_the_batch_and_are_kept(tmp_path):
    torch.manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, size=(11, 8, 8, 3)).astype(np.uint8)
    net = Net().train()
    whole = module_codes(images, net, batch_size=64)
    np.testing.assert_allclose(module_codes(images, net, batch_size=3), whole, rtol=1e-4, atol=1e-6)
    assert net.training
    np.testing.assert_array_equal(module_codes(images, net.forward, batch_size=64), whole)
    shifted = module_codes(images, net, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    assert np.abs(shifted - whole).max() > 1e-3
    before = net.calls
    kept = frozen_codes(images, net, tmp_path, key={"dataset": "a", "encoder": "net"})
    again = frozen_codes(images, net, tmp_path, key={"dataset": "a", "encoder": "net"})
    np.testing.assert_array_equal(kept, again)
    assert net.calls == before + 1


def test_wrong_inputs_are_named(factors):
    with pytest.raises(ValueError, match="factor_sizes must hold the number of values"):
        label_codes(factors, SIZES[:3])
    with pytest.raises(ValueError, match="factor_sizes must hold"):
        label_codes(factors, (2,) * 7)
    with pytest.raises(ValueError, match="std must not be negative"):
        noisy_label_codes(factors, SIZES, std=-1)
    with pytest.raises(ValueError, match="variance above 0"):
        mixing_matrix(3, 0)
    with pytest.raises(ValueError, match=r"images must be uint8 of shape \(n, H, W, C\)"):
        pixel_codes(np.zeros((3, 4)))


def test_codes_are_of_full_precision_with_the_devices_own_kernels():
    """TF32 is torch's default for convolutions; switching cuDNN off is no way to avoid it."""
    seen = []

    def encode(x):
        cudnn = torch.backends.cudnn
        seen.append((cudnn.enabled, cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return x.flatten(1)

    before = torch.backends.cudnn.allow_tf32
    module_codes(np.zeros((2, 4, 4, 3), np.uint8), encode)
    assert seen == [(True, False, "highest")]
    assert torch.backends.cudnn.allow_tf32 == before
