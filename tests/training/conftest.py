from __future__ import annotations

import pytest
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.data.tabulartoy import tabulartoy
from concept_audit.training.recipe import Recipe


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    """Networks this small only lose by a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def toy() -> ConceptDataset:
    """610 rows: 427 for training, so that the last batch of 128 is a small, odd one."""
    return tabulartoy(n_samples=610)


@pytest.fixture
def short() -> Recipe:
    """Four epochs, three for a head, with steps large enough to get somewhere."""
    return Recipe(epochs=4, batch_size=128, lr=5e-3, head_epochs=3)
