"""Losses of the VAE family, averaged over images and summed within an image."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

__all__ = [
    "OBJECTIVES",
    "VAELoss",
    "discriminator_loss",
    "gaussian_kl",
    "total_correlation",
    "vae_loss",
]

OBJECTIVES = ("beta", "tc", "factor", "dip_i", "dip_ii", "autoencoder")


class VAELoss(NamedTuple):
    """What to minimise, and its parts per image: cross-entropy and KL in nats, and the penalty."""

    total: torch.Tensor
    reconstruction: torch.Tensor
    kl: torch.Tensor
    penalty: torch.Tensor


def gaussian_kl(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL of each image's posterior from the unit Gaussian (n,), in nats."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1)


def total_correlation(
    codes: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor, n_train: int
) -> torch.Tensor:
    """Total correlation of the codes by minibatch-weighted sampling (Chen et al., 2018), in nats.

    `n_train` is the size of the training set that the batch was drawn from.
    """
    n = len(codes)
    deviation = codes[:, None, :] - mean[None, :, :]
    log_density = -0.5 * (
        deviation**2 * torch.exp(-log_variance)[None] + log_variance[None] + math.log(2 * math.pi)
    )  # (n, n, L): code i under posterior j
    shift = math.log(n * n_train)
    joint = torch.logsumexp(log_density.sum(dim=2), dim=1) - shift
    product = (torch.logsumexp(log_density, dim=1) - shift).sum(dim=1)
    return (joint - product).mean()


def _dip_penalty(
    mean: torch.Tensor, log_variance: torch.Tensor, objective: str, diagonal: float, off: float
) -> torch.Tensor:
    """Distance of the codes' covariance from the identity (Kumar et al., 2018), weighted."""
    mean, log_variance = mean.float(), log_variance.float()
    centred = mean - mean.mean(dim=0)
    with torch.autocast(mean.device.type, enabled=False):  # a covariance in bf16 has 3 digits
        return _dip_of(centred, log_variance, objective, diagonal, off)


def _dip_of(
    centred: torch.Tensor, log_variance: torch.Tensor, objective: str, diagonal: float, off: float
) -> torch.Tensor:
    covariance = centred.T @ centred / len(centred)
    if objective == "dip_ii":
        covariance = covariance + torch.diag(log_variance.exp().mean(dim=0))
    on_diagonal = covariance.diagonal()
    off_diagonal = covariance - torch.diag(on_diagonal)
    return off * (off_diagonal**2).sum() + diagonal * ((on_diagonal - 1) ** 2).sum()


def discriminator_loss(
    discriminator: nn.Module, codes: torch.Tensor, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Loss of FactorVAE's critic: codes against codes whose dimensions were shuffled apart."""
    fixed = codes.detach()
    columns = [
        fixed[torch.randperm(len(fixed), generator=generator).to(fixed.device), latent]
        for latent in range(fixed.shape[1])
    ]
    shuffled = torch.stack(columns, dim=1)
    logits = discriminator(torch.cat([fixed, shuffled]))
    labels = torch.arange(2, device=fixed.device).repeat_interleave(len(fixed))
    return functional.cross_entropy(logits, labels)


def vae_loss(
    x_logits: torch.Tensor,
    mean: torch.Tensor,
    log_variance: torch.Tensor,
    codes: torch.Tensor,
    x: torch.Tensor,
    *,
    objective: str = "beta",
    beta: float = 1.0,
    n_train: int = 1,
    dip_diagonal: float = 100.0,
    dip_off_diagonal: float = 10.0,
    discriminator: nn.Module | None = None,
) -> VAELoss:
    """Loss of a batch of images.

    Parameters
    ----------
    x_logits, x : Float[Tensor, "n C H W"]
        Decoded pixels before the sigmoid, and the images in [0, 1].
    mean, log_variance, codes : Float[Tensor, "n L"]
        Posterior and the codes decoded.
    objective, beta, dip_diagonal, dip_off_diagonal
        As in `VAESpec`.
    n_train : int
        Size of the training set, for the total correlation.
    discriminator : nn.Module, optional
        Critic of FactorVAE, needed by ``objective="factor"``.

    Returns
    -------
    VAELoss
        ``beta``: reconstruction + beta KL. ``tc`` and ``factor``: reconstruction + KL + (beta - 1)
        total correlation, estimated from the batch or by the critic. ``dip``: reconstruction +
        beta KL + penalty. ``autoencoder``: reconstruction.

    Raises
    ------
    ValueError
        On an unknown objective, or ``factor`` without a discriminator.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}.")
    reconstruction = functional.binary_cross_entropy_with_logits(
        x_logits, x, reduction="sum"
    ) / len(x)
    kl = gaussian_kl(mean, log_variance).mean()
    penalty = torch.zeros((), device=x.device, dtype=reconstruction.dtype)
    if objective == "autoencoder":
        return VAELoss(reconstruction, reconstruction, torch.zeros_like(kl), penalty)
    if objective == "beta":
        return VAELoss(reconstruction + beta * kl, reconstruction, kl, penalty)
    if objective == "tc":
        penalty = total_correlation(codes, mean, log_variance, n_train)
        return VAELoss(reconstruction + kl + (beta - 1) * penalty, reconstruction, kl, penalty)
    if objective == "factor":
        if discriminator is None:
            raise ValueError(
                "objective='factor' needs a discriminator: pass LatentDiscriminator(n_latents)."
            )
        logits = discriminator(codes)
        penalty = (logits[:, 0] - logits[:, 1]).mean()
        return VAELoss(reconstruction + kl + (beta - 1) * penalty, reconstruction, kl, penalty)
    penalty = _dip_penalty(mean, log_variance, objective, dip_diagonal, dip_off_diagonal)
    return VAELoss(reconstruction + beta * kl + penalty, reconstruction, kl, penalty)
