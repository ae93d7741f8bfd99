"""VAEs: shapes of both networks, losses against closed forms, and that they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from concept_audit.models.vae import PRESETS, LatentDiscriminator, VAESpec
from concept_audit.models.vae_losses import (
    OBJECTIVES,
    discriminator_loss,
    gaussian_kl,
    total_correlation,
    vae_loss,
)


@pytest.mark.parametrize(("network", "features"), [("big", 2048), ("small", 256)])
@pytest.mark.parametrize("channels", [1, 3])
def test_both_networks_give_back_images_of_their_size(network, features, channels):
    torch.manual_seed(0)
    model = VAESpec(network=network, n_latents=6).build((channels, 64, 64))
    x = torch.rand(2, channels, 64, 64)
    output = model(x)
    assert output.x_logits.shape == x.shape
    assert output.mean.shape == output.codes.shape == output.log_variance.shape == (2, 6)
    assert model.mean_head.in_features == features
    images = model.decode(output.codes)
    assert images.min() >= 0
    assert images.max() <= 1


def test_the_code_is_the_mean_unless_a_sample_is_asked_for():
    torch.manual_seed(0)
    model = VAESpec(network="small").build((1, 64, 64)).eval()
    x = torch.rand(3, 1, 64, 64)
    mean, log_variance = model.posterior(x)
    torch.testing.assert_close(model.encode(x), mean)
    first, second = (
        model.encode(x, code="sample", generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    torch.testing.assert_close(first, second)
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(first, mean + torch.exp(0.5 * log_variance) * noise)
    with pytest.raises(ValueError, match="code must be 'mean' or 'sample', got 'mode'"):
        model.encode(x, code="mode")
    autoencoder = VAESpec(network="small", objective="autoencoder").build((1, 64, 64)).eval()
    output = autoencoder(x)
    torch.testing.assert_close(output.codes, output.mean)


def test_a_traversal_changes_one_latent_at_a_time():
    torch.manual_seed(0)
    model = VAESpec(network="small", n_latents=3).build((1, 64, 64)).eval()
    codes = torch.tensor([[0.3, -0.2, 0.5]])
    with torch.no_grad():
        values = torch.linspace(-1.0, 1.0, 5).repeat(3, 1)
        images = model.traversal(codes, values)
        assert images.shape == (1, 3, 5, 1, 64, 64)
        moved = codes.clone()
        moved[0, 1] = -0.5
        torch.testing.assert_close(images[0, 1, 1], model.decode(moved)[0])


def test_kl_is_that_of_two_gaussians():
    mean, log_variance = torch.randn(4, 3), torch.randn(4, 3)
    exact = kl_divergence(Normal(mean, torch.exp(0.5 * log_variance)), Normal(0.0, 1.0)).sum(dim=1)
    torch.testing.assert_close(gaussian_kl(mean, log_variance), exact)


def batch(n=8, n_latents=3):
    torch.manual_seed(0)
    x = torch.rand(n, 1, 4, 4)
    mean, log_variance = torch.randn(n, n_latents), 0.1 * torch.randn(n, n_latents)
    return torch.randn(n, 1, 4, 4), mean, log_variance, mean + 0.1, x


def test_losses_are_sums_over_an_image_averaged_over_images():
    x_logits, mean, log_variance, codes, x = batch()
    p = torch.sigmoid(x_logits)
    entropy = -(x * p.log() + (1 - x) * (1 - p).log()).sum() / 8
    kl = gaussian_kl(mean, log_variance).mean()
    for beta in PRESETS.values():
        loss = vae_loss(x_logits, mean, log_variance, codes, x, beta=beta)
        torch.testing.assert_close(loss.total, entropy + beta * kl)
        torch.testing.assert_close(loss.reconstruction, entropy)
        torch.testing.assert_close(loss.kl, kl)
    plain = vae_loss(x_logits, mean, log_variance, codes, x, objective="autoencoder", beta=9.0)
    torch.testing.assert_close(plain.total, entropy)


@pytest.mark.parametrize("objective", ["tc", "factor"])
def test_at_beta_one_the_others_are_the_plain_vae(objective):
    parts = batch()
    critic = LatentDiscriminator(3, width=8, depth=2)
    plain = vae_loss(*parts, objective="beta", beta=1.0)
    other = vae_loss(*parts, objective=objective, beta=1.0, n_train=100, discriminator=critic)
    torch.testing.assert_close(other.total, plain.total)
    assert other.penalty != 0


def test_total_correlation_grows_with_dependence():
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(500, 1, generator=generator)
    values = {}
    for rho in (0.0, 0.9):
        own = torch.randn(500, 2, generator=generator)
        mean = math.sqrt(rho) * shared + math.sqrt(1 - rho) * own
        log_variance = torch.full((500, 2), math.log(0.05))
        codes = mean + math.sqrt(0.05) * torch.randn(500, 2, generator=generator)
        values[rho] = total_correlation(codes, mean, log_variance, n_train=500).item()
    # Gaussian total correlation is -ln(1 - r^2) / 2 with r = rho / (1 + 0.05); the estimate shares
    # the constant ln(n n_train) between joint and product, so differences are what it gives.
    exact = -0.5 * math.log(1 - (0.9 / 1.05) ** 2)
    assert values[0.9] - values[0.0] == pytest.approx(exact, abs=0.12)


@pytest.mark.parametrize(("objective", "extra"), [("dip_i", 0.0), ("dip_ii", 1.0)])
def test_dip_penalty_by_hand(objective, extra):
    x_logits, _, _, _, x = batch(n=2, n_latents=2)
    mean = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # covariance: all ones
    loss = vae_loss(
        x_logits, mean, torch.zeros(2, 2), mean, x,
        objective=objective, beta=0.0, dip_diagonal=3.0, dip_off_diagonal=5.0,
    )  # fmt: skip
    # Off the diagonal twice 1; on it (1 + extra - 1) squared, twice.
    assert loss.penalty.item() == pytest.approx(5.0 * 2 + 3.0 * 2 * extra**2)


def test_the_critic_learns_to_tell_dependent_codes_from_shuffled_ones():
    torch.manual_seed(0)
    critic = LatentDiscriminator(2, width=32, depth=3)
    optimiser = torch.optim.Adam(critic.parameters(), lr=0.01)
    common = torch.randn(256, 1)
    codes = torch.cat([common, common], dim=1)
    for _ in range(60):
        optimiser.zero_grad()
        loss = discriminator_loss(critic, codes)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.4  # guessing gives ln 2 = 0.69
    logits = critic(codes)
    assert (logits[:, 0] - logits[:, 1]).mean() > 0.5


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_few_steps_lower_every_loss(objective):
    torch.manual_seed(0)
    spec = VAESpec(network="small", n_latents=4, objective=objective, beta=2.0)
    model = spec.build((1, 64, 64))
    critic = LatentDiscriminator(4, width=16, depth=2)
    x = (torch.rand(8, 1, 1, 1) > 0.5).float().expand(8, 1, 64, 64)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(6):
        optimiser.zero_grad()
        loss = spec.loss(model(x), x, n_train=8, discriminator=critic)
        loss.total.backward()
        optimiser.step()
        losses.append(loss.reconstruction.item())
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "medium"}, "network must be 'big' or 'small', got 'medium'"),
        ({"objective": "wae"}, "objective must be one of .* got 'wae'"),
        ({"n_latents": 0}, "n_latents must be at least 1, got 0"),
        ({"beta": -1.0}, "must not be negative, got -1.0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        VAESpec(**options)


def test_wrong_inputs_are_named():
    with pytest.raises(
        ValueError, match=r"input_shape must be \(channels, 64, 64\), got \(3, 32, 32\)"
    ):
        VAESpec().build((3, 32, 32))
    with pytest.raises(ValueError, match="needs a discriminator"):
        vae_loss(*batch(), objective="factor")
    with pytest.raises(ValueError, match="objective must be one of"):
        vae_loss(*batch(), objective="none")
    assert isinstance(LatentDiscriminator(3), nn.Module)
