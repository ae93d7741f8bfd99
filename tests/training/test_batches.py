from __future__ import annotations

import numpy as np
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.training.batches import EpochLoader, order_of, to_inputs
from concept_audit.training.datamodule import ConceptDataModule


def test_two_seeds_and_two_epochs_shuffle_differently_and_repeat():
    orders = {
        (seed, epoch): tuple(order_of(100, seed, "joint", epoch, True))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    assert orders[0, 1] == tuple(order_of(100, 0, "joint", 1, True))
    assert orders[0, 0] != tuple(order_of(100, 0, "head", 0, True))
    assert all(sorted(order) == list(range(100)) for order in orders.values())
    assert order_of(5, 0, "joint", 3, False).tolist() == [0, 1, 2, 3, 4]


def test_a_loader_yields_every_row_once_in_the_order_of_its_epoch(toy):
    loader = EpochLoader(toy, "train", batch_size=100, seed=2, shuffle=True)
    rows = toy.rows("train")
    for epoch in (0, 5):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(loader) == 5
        assert [len(batch.y) for batch in batches] == [100, 100, 100, 100, 27]
        order = rows[order_of(len(rows), 2, "joint", epoch, True)]
        x = torch.cat([batch.x for batch in batches]).numpy()
        np.testing.assert_array_equal(x, toy.x[order])
        np.testing.assert_array_equal(torch.cat([b.y for b in batches]).numpy(), toy.y[order])
        np.testing.assert_array_equal(torch.cat([b.c for b in batches]).numpy(), toy.c[order])


def test_validation_keeps_the_order_of_the_split(toy):
    module = ConceptDataModule(toy, batch_size=64, seed=3)
    x = torch.cat([batch.x for batch in module.val_dataloader()]).numpy()
    np.testing.assert_array_equal(x, toy.x[toy.rows("val")])


def test_images_become_normalised_channels_first_batches():
    images = np.random.default_rng(0).integers(0, 256, (12, 4, 6, 3), dtype=np.uint8)
    dataset = ConceptDataset(
        name="images",
        x=images,
        c=np.tile([[0, 1], [1, 0]], (6, 1)),
        y=np.tile([0, 1], 6),
        concept_names=("a", "b"),
        class_names=("n", "y"),
        splits={"train": np.arange(8), "val": np.arange(8, 12)},
        mean=(0.5, 0.4, 0.3),
        std=(0.1, 0.2, 0.3),
    )
    expected = (images[[3, 1]] / 255 - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]
    inputs = to_inputs(dataset, np.array([3, 1]))
    assert inputs.shape == (2, 3, 4, 6)
    assert inputs.dtype == torch.float32
    np.testing.assert_allclose(inputs.numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    batch = next(iter(EpochLoader(dataset, "val", batch_size=4)))
    np.testing.assert_array_equal(batch.x.numpy(), to_inputs(dataset, np.arange(8, 12)).numpy())
