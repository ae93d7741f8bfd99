"""Variational autoencoders of the DCI-ES paper: two networks, one family of losses.

The weight of the KL term is the *effective* beta: reconstruction summed over pixels, both terms
averaged over images. VAE has 1, beta-VAE 4 (our choice; the paper does not say), an autoencoder 0.
The authors' training setting amounts to 0.25.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from concept_audit.models.vae_losses import OBJECTIVES, VAELoss, vae_loss

__all__ = ["PRESETS", "VAE", "LatentDiscriminator", "VAEOutput", "VAESpec"]

_SIDE = 64
_LEAKY_SLOPE = 0.01

# Effective beta of the presets; `reference` is the authors' KL weight of 16 at batch size 64.
PRESETS: dict[str, float] = {"vae": 1.0, "beta_vae": 4.0, "reference": 0.25, "autoencoder": 0.0}


class VAEOutput(NamedTuple):
    """Pixel logits (n, C, 64, 64), mean, log variance and sampled code (n, L)."""

    x_logits: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor
    codes: torch.Tensor


def _big_encoder(channels: int) -> tuple[nn.Module, int]:
    """Five strided convolutions, 64 pixels to 2 x 2 x 512."""
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise((channels, 32, 64, 128, 256, 512)):
        layers += [
            nn.Conv2d(narrow, wide, 3, stride=2, padding=1),
            nn.BatchNorm2d(wide),
            nn.LeakyReLU(_LEAKY_SLOPE),
        ]
    return nn.Sequential(*layers, nn.Flatten()), 2048


def _big_decoder(channels: int, n_latents: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(n_latents, 2048), nn.Unflatten(1, (512, 2, 2))]
    for wide, narrow in itertools.pairwise((512, 256, 128, 64, 32, 32)):
        layers += [
            nn.ConvTranspose2d(wide, narrow, 3, stride=2, padding=1, output_padding=1),
            nn.BatchNorm2d(narrow),
            nn.LeakyReLU(_LEAKY_SLOPE),
        ]
    return nn.Sequential(*layers, nn.Conv2d(32, channels, 3, padding=1))


def _small_encoder(channels: int) -> tuple[nn.Module, int]:
    """Four strided convolutions with padding 2, then 256 units."""
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise((channels, 32, 32, 64, 64)):
        layers += [nn.Conv2d(narrow, wide, 4, stride=2, padding=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1600, 256), nn.ReLU()), 256


def _small_decoder(channels: int, n_latents: int) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Linear(n_latents, 256), nn.ReLU(), nn.Linear(256, 1024), nn.ReLU(),
        nn.Unflatten(1, (64, 4, 4)),
    ]  # fmt: skip
    for wide, narrow in itertools.pairwise((64, 64, 32, 32)):
        layers += [nn.ConvTranspose2d(wide, narrow, 4, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, channels, 4, stride=2, padding=1))


class VAE(nn.Module):
    """Autoencoder with a Gaussian code; see `VAESpec` for the options.

    Parameters
    ----------
    network : {"big", "small"}
    channels, n_latents : of the images and of the code
    sampled : False for a plain autoencoder, whose code is the mean
    """

    def __init__(self, network: str, channels: int, n_latents: int, *, sampled: bool) -> None:
        super().__init__()
        big = network == "big"
        self.body, width = (_big_encoder if big else _small_encoder)(channels)
        self.mean_head = nn.Linear(width, n_latents)
        self.log_variance_head = nn.Linear(width, n_latents)
        self.decoder = (_big_decoder if big else _small_decoder)(channels, n_latents)
        self.n_latents = n_latents
        self.sampled = sampled

    def posterior(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log variance of the code (n, L)."""
        features = self.body(x)
        return self.mean_head(features), self.log_variance_head(features)

    def encode(
        self, x: torch.Tensor, *, code: str = "mean", generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """Code (n, L): the mean, or with ``code="sample"`` a draw, which the authors probed."""
        if code not in ("mean", "sample"):
            raise ValueError(f"code must be 'mean' or 'sample', got {code!r}.")
        mean, log_variance = self.posterior(x)
        return mean if code == "mean" else _draw(mean, log_variance, generator)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Images in [0, 1] of codes (n, L)."""
        return torch.sigmoid(self.decoder(codes))

    def forward(self, x: torch.Tensor, generator: torch.Generator | None = None) -> VAEOutput:
        """Pixel logits with the posterior and the code they were decoded from."""
        mean, log_variance = self.posterior(x)
        codes = _draw(mean, log_variance, generator) if self.sampled else mean
        return VAEOutput(self.decoder(codes), mean, log_variance, codes)

    def traversal(self, codes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Images (n, L, S, C, 64, 64) of codes (n, L), each latent in turn at its values (L, S)."""
        n_steps = values.shape[1]
        grid = codes[:, None, None, :].repeat(1, self.n_latents, n_steps, 1)
        for latent in range(self.n_latents):
            grid[:, latent, :, latent] = values[latent]
        images = self.decode(grid.flatten(0, 2))
        return images.unflatten(0, (len(codes), self.n_latents, n_steps))


def _draw(
    mean: torch.Tensor, log_variance: torch.Tensor, generator: torch.Generator | None
) -> torch.Tensor:
    # A given generator draws where it is: on the CPU, the same numbers for every device.
    place = mean.device if generator is None else generator.device
    noise = torch.randn(mean.shape, generator=generator, device=place, dtype=mean.dtype)
    return mean + torch.exp(0.5 * log_variance) * noise.to(mean.device)


class LatentDiscriminator(nn.Sequential):
    """FactorVAE's critic: two logits, code from the joint or from shuffled dimensions."""

    def __init__(self, n_latents: int, *, width: int = 1000, depth: int = 5) -> None:
        layers: list[nn.Module] = []
        for narrow in (n_latents, *[width] * (depth - 1)):
            layers += [nn.Linear(narrow, width), nn.LeakyReLU(0.2)]
        super().__init__(*layers, nn.Linear(width, 2))


@dataclass(frozen=True)
class VAESpec:
    """Description of an autoencoder in plain values.

    Parameters
    ----------
    network : {"big", "small"}
        The two networks of the DCI-ES code.
    n_latents : int
        Code size L; the paper uses 10.
    objective : {"beta", "tc", "factor", "dip_i", "dip_ii", "autoencoder"}
        `beta` is VAE and beta-VAE. The others are beta-TC-VAE, FactorVAE, the two DIP-VAEs, and the
        plain autoencoder, which draws no code and has no KL term.
    beta : float
        Effective weight: of the KL term (`beta`, `dip`), of the total correlation (`tc`, `factor`).
    dip_diagonal, dip_off_diagonal : float
        Weights of the two DIP penalties.
    code : {"mean", "sample"}
        What stands for an image afterwards: the mean, or a draw, which the authors probed.
    name : str
        Name in tables.

    Raises
    ------
    ValueError
        On an unknown network, objective or code, no latents, or a negative weight.
    """

    network: str = "big"
    n_latents: int = 10
    objective: str = "beta"
    beta: float = 1.0
    dip_diagonal: float = 100.0
    dip_off_diagonal: float = 10.0
    code: str = "mean"
    name: str = "vae"

    @property
    def family(self) -> str:
        """Kind of model."""
        return "vae"

    @property
    def encoding(self) -> str | None:
        """None: there are no concepts."""
        return None

    @property
    def training(self) -> str | None:
        """None: neither encoder nor head of a concept model."""
        return None

    def __post_init__(self) -> None:
        if self.code not in ("mean", "sample"):
            raise ValueError(f"code must be 'mean' or 'sample', got {self.code!r}.")
        if self.network not in ("big", "small"):
            raise ValueError(f"network must be 'big' or 'small', got {self.network!r}.")
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {OBJECTIVES}, got {self.objective!r}.")
        if self.n_latents < 1:
            raise ValueError(f"n_latents must be at least 1, got {self.n_latents}.")
        if min(self.beta, self.dip_diagonal, self.dip_off_diagonal) < 0:
            raise ValueError(
                f"beta and the DIP weights must not be negative, got {self.beta}, "
                f"{self.dip_diagonal} and {self.dip_off_diagonal}."
            )

    def build(self, input_shape: tuple[int, ...], n_concepts: int = 0, n_classes: int = 0) -> VAE:
        """Network for images (C, 64, 64) with fresh weights from torch's global generator.

        Concepts and classes play no part; they are there because every model is built alike.
        """
        if len(input_shape) != 3 or input_shape[1:] != (_SIDE, _SIDE):
            raise ValueError(
                f"input_shape must be (channels, {_SIDE}, {_SIDE}), got {input_shape}: the "
                "networks of the DCI-ES paper are made for 64 pixels. Use an image set of that "
                "size, for example data=shapes3d_standin, or data.image_size=64 where there is one."
            )
        sampled = self.objective != "autoencoder"
        return VAE(self.network, input_shape[0], self.n_latents, sampled=sampled)

    def loss(
        self,
        output: VAEOutput,
        x: torch.Tensor,
        *,
        n_train: int,
        discriminator: nn.Module | None = None,
    ) -> VAELoss:
        """Loss of a batch, averaged over images; see `vae_loss`."""
        return vae_loss(
            output.x_logits,
            output.mean,
            output.log_variance,
            output.codes,
            x,
            objective=self.objective,
            beta=self.beta,
            n_train=n_train,
            dip_diagonal=self.dip_diagonal,
            dip_off_diagonal=self.dip_off_diagonal,
            discriminator=discriminator,
        )
