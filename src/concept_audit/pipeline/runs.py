"""A trained run as it lies on disk: what evaluations read and every row repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from concept_audit.store.bundle import read_bundle
from concept_audit.store.layout import OutputLayout
from concept_audit.store.manifest import read_manifest

__all__ = ["SPLITS", "StoredRun"]

SPLITS = ("train", "val", "test")


class StoredRun:
    """One run folder, read lazily.

    Parameters
    ----------
    layout : the outputs folder
    key : the run's name
    shared : results that runs on the same data may share; given by the stage
    """

    def __init__(
        self, layout: OutputLayout, key: str, shared: dict[str, Any] | None = None
    ) -> None:
        self.layout = layout
        self.key = key
        self.shared = {} if shared is None else shared
        self._arrays: dict[str, Mapping[str, NDArray[Any]]] = {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Provenance of the run, with its resolved config."""
        return read_manifest(self.layout.manifest_path(self.key))

    @property
    def config(self) -> dict[str, Any]:
        """Resolved config of the run."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Names and kinds that travel with the test bundle."""
        return read_bundle(self.layout.bundle_path(self.key, "test"), names=("y",)).metadata

    @property
    def concept_names(self) -> tuple[str, ...]:
        """Names of the concepts, in the order of the columns."""
        return tuple(self.metadata["concept_names"])

    @property
    def encoding(self) -> str:
        """`hard`, `soft`, `logit` or `embedding`; a head on true concepts counts as `hard`.

        `None` for a representation.
        """
        return str(self.metadata["encoding"])

    @property
    def identity(self) -> dict[str, Any]:
        """Columns that every row of this run repeats."""
        return dict(self.metadata["identity"])

    @property
    def array_names(self) -> frozenset[str]:
        """Names of the arrays in the run's bundles."""
        return frozenset(self.metadata["arrays"])

    @property
    def kept_epoch(self) -> dict[str, Any]:
        """Losses of the epoch whose weights were kept; empty for what is never trained."""
        from concept_audit.pipeline.predict import read_checkpoint

        checkpoint = read_checkpoint(self.layout.checkpoint_path(self.key))
        rows = checkpoint["history"]
        last_phase = [row for row in rows if row["phase"] == rows[-1]["phase"]]
        return next((row for row in last_phase if row["epoch"] == checkpoint["best_epoch"]), {})

    def arrays(self, split: str) -> Mapping[str, NDArray[Any]]:
        """Arrays of one split's bundle."""
        if split not in self._arrays:
            self._arrays[split] = read_bundle(self.layout.bundle_path(self.key, split)).arrays
        return self._arrays[split]

    @cached_property
    def _model(self) -> Any:
        from concept_audit.pipeline.predict import restore

        return restore(self)

    def head(self) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The task head: bottleneck `(n, k)` or `(n, k*m)` to task logits `(n, l)`."""
        from concept_audit.training.predict import head_callable

        return head_callable(self._model)

    def percentiles(self) -> NDArray[Any] | None:
        """5th and 95th percentile of each training logit, shape (2, k); None without logits."""
        stored = getattr(self._model, "concept_percentiles", None)
        return None if stored is None else stored.numpy()
