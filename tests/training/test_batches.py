from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.training.batches import EpochLoader, Shard, order_of, to_inputs
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


@pytest.fixture
def photographs() -> ConceptDataset:
    """Forty noise images in colour, twenty-six of them for training."""
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 24, 3), dtype=np.uint8)
    return ConceptDataset(
        name="images",
        x=images,
        c=np.tile([[0, 1], [1, 0]], (20, 1)),
        y=np.tile([0, 1], 20),
        concept_names=("a", "b"),
        class_names=("n", "y"),
        splits={"train": np.arange(26), "val": np.arange(26, 40)},
        mean=(0.5, 0.4, 0.3),
        std=(0.1, 0.2, 0.3),
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_become_normalised_channels_first_batches(photographs, channels_last):
    expected = (photographs.x[[3, 1]] / 255 - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]
    inputs = to_inputs(photographs, np.array([3, 1]))
    assert inputs.shape == (2, 3, 16, 24)
    assert inputs.dtype == torch.float32
    np.testing.assert_allclose(inputs.numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    module = ConceptDataModule(photographs, batch_size=4, channels_last=channels_last)
    raw = next(iter(module.val_dataloader()))
    assert raw.x.dtype == torch.uint8  # a fourth of the bytes on the way to a device
    batch = module.on_after_batch_transfer(raw, 0)
    assert torch.equal(batch.x, to_inputs(photographs, np.arange(26, 30)))
    assert batch.x.is_contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )


def test_a_read_only_map_of_a_file_is_a_set_in_memory(photographs, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, photographs.x)
    mapped = replace(photographs, x=np.load(path, mmap_mode="r"))
    for ours, theirs in zip(
        EpochLoader(mapped, "train", batch_size=10, num_workers=2),
        EpochLoader(photographs, "train", batch_size=10),
        strict=True,
    ):
        assert torch.equal(ours.x, theirs.x)


class Files:
    """Images that are decoded on access, like a folder of photographs."""

    def __init__(self, images):
        self._images = images
        self.shape, self.dtype = images.shape, images.dtype

    def __len__(self):
        return len(self._images)

    def __getitem__(self, rows):
        return self._images[rows]


def test_workers_decode_in_the_order_of_the_epoch(photographs):
    files = replace(photographs, x=Files(photographs.x))
    loaders = [
        EpochLoader(data, "train", batch_size=8, seed=1, shuffle=True, num_workers=workers)
        for data, workers in ((photographs, 0), (files, 0), (files, 2))
    ]
    for epoch in (0, 3, 1):
        for loader in loaders:
            loader.set_epoch(epoch)
        for batches in zip(*loaders, strict=True):
            assert all(torch.equal(batches[0].x, batch.x) for batch in batches)
            assert all(torch.equal(batches[0].y, batch.y) for batch in batches)


def test_workers_take_nothing_from_the_models_noise(photographs):
    loader = EpochLoader(
        replace(photographs, x=Files(photographs.x)), "val", batch_size=8, num_workers=1
    )
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert len(list(loader)) == 2
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("world_size", "micro_batches"), [(2, 1), (1, 3), (3, 2), (4, 4)])
def test_shards_hold_every_row_once_and_add_up_to_the_batch(photographs, world_size, micro_batches):
    whole = EpochLoader(photographs, "train", batch_size=8, seed=4, shuffle=True)
    parts = [
        EpochLoader(
            photographs,
            "train",
            batch_size=8,
            seed=4,
            shuffle=True,
            shard=Shard(rank, world_size, micro_batches),
        )
        for rank in range(world_size)
    ]
    assert {len(loader) for loader in parts} == {4 * micro_batches}
    shards = [list(loader) for loader in parts]
    for step, batch in enumerate(whole):
        assert batch.n_counted == len(batch.y)
        assert batch.scale == 1
        mine = [
            piece
            for loader in shards
            for piece in loader[step * micro_batches : (step + 1) * micro_batches]
        ]
        counted = [piece for piece in mine if piece.n_counted]
        assert all(len(piece.y) == max(piece.n_counted, 1) for piece in mine)
        rows = torch.cat([piece.x for piece in counted]).flatten(1)
        wanted = batch.x.flatten(1)
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, wanted.tolist()))
        # The mean over processes and pieces of each one's scaled mean is the batch's mean.
        means = [float(piece.x.double().mean()) * piece.scale for piece in mine]
        assert np.mean(means) == pytest.approx(float(batch.x.double().mean()))


def test_augmented_images_do_not_depend_on_how_a_batch_is_shared(photographs):
    def images(shard):
        module = ConceptDataModule(
            photographs, batch_size=8, seed=2, augmentation="jitter_crop_flip", shard=shard
        )
        batches = [module.on_after_batch_transfer(b, 0) for b in module.train_dataloader()]
        return torch.cat([batch.x[: batch.n_counted] for batch in batches]).flatten(1)

    whole = images(None)
    halves = torch.cat([images(Shard(0, 2, 1)), images(Shard(1, 2, 1))])
    assert not torch.equal(whole[:8].view(8, 3, 16, 24), to_inputs(photographs, np.arange(8)))
    order = np.argsort(whole.numpy()[:, 0]), np.argsort(halves.numpy()[:, 0])
    torch.testing.assert_close(whole[order[0]], halves[order[1]])
