"""Batch norm over the whole of a batch that several GPUs share."""

from __future__ import annotations

import importlib.util

from pytorch_lightning.plugins.layer_sync import LayerSync
from torch import nn

__all__ = ["SharedNorms"]


class SharedNorms(LayerSync):
    """Lightning's conversion to SyncBatchNorm, right for networks of timm and done once.

    timm has batch norms that end in an activation; torch's own conversion makes plain ones of them,
    and the network trains without its activations. Converted layers stay: in evaluation they are
    ordinary batch norms, and names of weights do not change.
    """

    def apply(self, model: nn.Module) -> nn.Module:
        """Convert the batch norms of `model`, in place where it holds them."""
        if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            return model  # a second conversion would lose timm's activations after all
        if importlib.util.find_spec("timm") is None:
            return nn.SyncBatchNorm.convert_sync_batchnorm(model)
        from timm.layers import convert_sync_batchnorm

        converted: nn.Module = convert_sync_batchnorm(model)
        return converted

    def revert(self, model: nn.Module) -> nn.Module:
        """Leave the layers as they are."""
        return model
