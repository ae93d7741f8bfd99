"""Task heads: linear, or the two-layer ReLU network of the leakage paper."""

from __future__ import annotations

import itertools

from torch import nn

__all__ = ["HEADS", "build_head"]

HEADS = ("linear", "mlp")
HIDDEN = (64, 64)  # leakage paper, appendix: MLP {k, 64, 64, L}


def build_head(kind: str, n_inputs: int, n_classes: int) -> nn.Module:
    """Head from the bottleneck to class logits.

    Parameters
    ----------
    kind : {"linear", "mlp"}
        ``mlp`` is {n_inputs, 64, 64, n_classes} with ReLU. The authors' code leaves out the
        activations for hard models; the paper does not, and we follow the paper.
    n_inputs, n_classes : int
        Width of the bottleneck and number of classes.

    Returns
    -------
    nn.Module from ``(n, n_inputs)`` to ``(n, n_classes)``.

    Raises
    ------
    ValueError
        On an unknown kind.
    """
    if kind not in HEADS:
        raise ValueError(f"head must be one of {HEADS}, got {kind!r}.")
    if kind == "linear":
        return nn.Linear(n_inputs, n_classes)
    widths = (n_inputs, *HIDDEN)
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(widths):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_classes))
