"""Training of VAEs: the losses of the family, and FactorVAE's critic, on the general loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models.vae import LatentDiscriminator, VAESpec
from concept_audit.models.vae_losses import discriminator_loss
from concept_audit.training.batches import Batch
from concept_audit.training.callbacks import cpu_copy
from concept_audit.training.concept_module import ConceptModule
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import FitResult, Member

__all__ = ["VAEModule", "fit_vae"]

_CRITIC_LR = 1e-4  # FactorVAE paper (Kim and Mnih, 2018), appendix A
_CRITIC_BETAS = (0.5, 0.9)  # the same


class VAEModule(ConceptModule):
    """One VAE, images channels-last.

    The history holds loss, reconstruction, KL and penalty per image, in nats, of the training and
    the validation split. FactorVAE's critic learns after each step of the VAE.

    Raises
    ------
    ValueError
        On several processes for an objective whose penalty is estimated from a whole batch.
    """

    loss_names = ("loss", "reconstruction", "kl", "penalty")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.model.to(memory_format=torch.channels_last)
        self.spec = cast(VAESpec, self.member.spec)
        self.critic: LatentDiscriminator | None = None
        self._critic_state: dict[str, Any] | None = None
        self._codes: list[torch.Tensor] = []
        if self.spec.objective == "autoencoder":  # no gradient reaches it, and DDP would wait
            self.model.get_submodule("log_variance_head").requires_grad_(False)
        if self.spec.objective == "factor":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.member.seed)
                self.critic = LatentDiscriminator(self.spec.n_latents)
            self._critic_optimiser = torch.optim.Adam(
                self.critic.parameters(), lr=_CRITIC_LR, betas=_CRITIC_BETAS
            )

    def on_fit_start(self) -> None:
        """Refuse what cannot be shared; give the critic its state where it now is."""
        super().on_fit_start()
        if self.trainer.world_size > 1 and self.spec.objective not in ("beta", "autoencoder"):
            raise ValueError(
                f"objective {self.spec.objective!r} estimates its penalty from a whole batch, "
                f"which {self.trainer.world_size} devices would share. Set trainer.devices=1."
            )
        if self._critic_state is not None:
            self._critic_optimiser.load_state_dict(self._critic_state)
            self._critic_state = None

    def losses(self, batch: Batch, intervene: torch.Tensor | None = None) -> torch.Tensor:
        """Loss, reconstruction, KL and penalty of a batch, averaged over its images (4,)."""
        x = batch.x.contiguous(memory_format=torch.channels_last)
        output = self.model(x)
        if self.critic is not None and self.training:
            self._codes.append(output.codes.detach())
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        n_train = len(datamodule.train_dataloader().rows)
        return torch.stack(self.spec.loss(output, x, n_train=n_train, discriminator=self.critic))

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """One step of FactorVAE's critic on the codes of the batch, once all its pieces are in."""
        if self.critic is None or (batch_idx + 1) % self.micro_batches:
            return
        self._critic_optimiser.zero_grad()
        discriminator_loss(self.critic, torch.cat(self._codes)).backward()
        self._critic_optimiser.step()
        self._codes.clear()

    def extra_state(self) -> dict[str, Any]:
        """Weights and optimiser of the critic."""
        if self.critic is None:
            return {}
        return {
            "critic": cpu_copy(self.critic.state_dict()),
            "critic_optimiser": self._critic_optimiser.state_dict(),
        }

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
            self._critic_state = state["critic_optimiser"]  # its tensors follow the critic


def fit_vae(member: Member, dataset: ConceptDataset, **options: Any) -> FitResult:
    """Train one VAE; arguments and result are those of `fit_single`.

    The images are read in [0, 1], without the dataset's normalisation: the reconstruction is a
    cross-entropy of pixels.
    """
    if dataset.mean is not None:
        dataset = replace(dataset, mean=None, std=None)
    trainer = {"channels_last": True, **(options.pop("trainer", None) or {})}
    return fit_single(member, dataset, module_type=VAEModule, trainer=trainer, **options)
