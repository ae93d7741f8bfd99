"""Information between concepts' vectors and labels, normalised by the entropy of the labels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_vectors
from concept_audit.metrics.information import plugin
from concept_audit.metrics.information.normalised import ratio
from concept_audit.metrics.information.ross import ross_vector, ross_vector_by_trees
from concept_audit.metrics.information.variables import Compat, jitter

__all__ = ["normalised_with_labels", "tie_free_vectors", "vector_information"]


def tie_free_vectors(
    name: str, value: ArrayLike, seed: int, compat: Compat | None
) -> tuple[Float[NDArray, "n k m"], NDArray]:
    """Vectors with their ties broken, concept by concept, and which of them are constant."""
    vectors = as_vectors(name, value)
    constant = np.all(vectors == vectors[:1], axis=(0, 2))
    rng = np.random.default_rng(seed)
    for i in range(vectors.shape[1]):
        vectors[:, i] = jitter(vectors[:, i], rng, compat)
    return vectors, constant


def vector_information(
    vector: Float[NDArray, "n m"],
    labels: Int[NDArray, "n t"],
    n_neighbors: int,
    compat: Compat | None,
    device: str | None,
) -> Float[NDArray, " t"]:
    """Information of one vector with each column of class indices in nats, at least 0."""
    if compat == "reference":
        return np.maximum(ross_vector_by_trees(vector, labels, n_neighbors=n_neighbors), 0.0)
    scores = ross_vector(vector, labels, n_neighbors=n_neighbors, device=device)
    return np.maximum(scores, 0.0)


def normalised_with_labels(
    vectors: Float[NDArray, "n k m"],
    constant: NDArray,
    labels: Int[NDArray, "n t"],
    n_neighbors: int,
    compat: Compat | None,
    device: str | None,
) -> Float[NDArray, "k t"]:
    """Information of every vector with every label column over its entropy; NaN where it is 0."""
    symbols = np.column_stack([plugin.as_symbols(column) for column in labels.T])
    entropies = plugin.entropies(symbols)
    defined = np.flatnonzero(entropies > 0)
    information = np.zeros((vectors.shape[1], labels.shape[1]))
    for i in range(vectors.shape[1]):
        if defined.size and not constant[i]:  # a constant vector carries no information
            information[i, defined] = vector_information(
                vectors[:, i], symbols[:, defined], n_neighbors, compat, device
            )
    return ratio(information, np.broadcast_to(entropies, information.shape))
