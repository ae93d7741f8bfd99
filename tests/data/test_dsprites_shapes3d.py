"""dSprites(gamma) and 3dshapes(gamma): sizes, dependences, tasks, and the official files."""

from __future__ import annotations

import os
import pickle

import h5py
import numpy as np
import pytest

from concept_audit.data import dsprites as dsprites_module
from concept_audit.data import shapes3d as shapes3d_module
from concept_audit.data.dsprites import dsprites
from concept_audit.data.factor_grids import FactorGrid
from concept_audit.data.files import DatasetFileError, DatasetMissingError
from concept_audit.data.shapes3d import shapes3d
from concept_audit.data.standins import dsprites as standin_dsprites
from concept_audit.data.standins import shapes3d as standin_shapes3d
from concept_audit.store import array_cache

FACTORY = {"dsprites": dsprites, "shapes3d": shapes3d}
MODULE = {"dsprites": dsprites_module, "shapes3d": shapes3d_module}
TINY_DSPRITES = FactorGrid(
    standin_dsprites.GRID.names, (3, 2, 3, 2, 2), standin_dsprites.GRID.kinds
)
TINY_SHAPES3D = FactorGrid(
    standin_shapes3d.GRID.names, (2, 2, 2, 2, 2, 2), standin_shapes3d.GRID.kinds
)


@pytest.fixture
def undrawn(monkeypatch):
    """Factories without pictures: concepts and labels of all rows in a moment."""
    for module in MODULE.values():
        monkeypatch.setattr(
            module,
            "_images",
            lambda data_dir, rows, standin: np.zeros((len(rows), 1, 1, 1), np.uint8),
        )


def best_accuracy(c: np.ndarray, y: np.ndarray) -> float:
    """Share that the best rule on the concepts gets right."""
    code = c @ (1 << np.arange(c.shape[1]))
    return sum(np.bincount(y[code == value]).max() for value in np.unique(code)) / len(y)


def mean_normalised_information(c: np.ndarray) -> float:
    """Mean plug-in mutual information of concept pairs over the mean of their entropies."""
    values = []
    for i in range(c.shape[1]):
        for j in range(i):
            joint = np.zeros((2, 2))
            np.add.at(joint, (c[:, i], c[:, j]), 1 / len(c))
            rows, columns = joint.sum(axis=1), joint.sum(axis=0)
            expected = np.outer(rows, columns)
            seen = joint > 0
            information = (joint[seen] * np.log(joint[seen] / expected[seen])).sum()
            entropies = [-(p * np.log(p)).sum() for p in (rows, columns)]
            values.append(information / np.sqrt(np.prod(entropies)))
    return float(np.mean(values))


@pytest.mark.parametrize(
    ("name", "gamma", "n", "low", "high"),
    [
        ("dsprites", 0, (23040, 23040), 0.0, 1e-9),
        ("dsprites", 1, (22500, 24600), 0.015, 0.04),
        ("dsprites", 2, (22500, 24600), 0.025, 0.05),
        ("dsprites", 3, (22500, 24600), 0.055, 0.09),
        ("dsprites", 4, (22500, 24600), 0.09, 0.12),
        ("shapes3d", 0, (16000, 16000), 0.0, 1e-9),
        ("shapes3d", 1, (14000, 16700), 0.005, 0.02),
        ("shapes3d", 3, (14000, 16700), 0.015, 0.03),
        ("shapes3d", 5, (14000, 16700), 0.04, 0.06),
    ],
)
def test_gamma_sets_size_and_dependence(undrawn, name, gamma, n, low, high):
    data = FACTORY[name](gamma=gamma, standin=True)
    assert n[0] <= data.n_samples <= n[1]
    assert low - 1e-9 <= mean_normalised_information(data.c) <= high
    assert best_accuracy(data.c, data.y) == 1.0
    assert set(np.unique(data.c)) == {0, 1}
    assert (data.c.min(axis=0) == 0).all()
    assert (data.c.max(axis=0) == 1).all()


def test_dsprites_zero_has_the_papers_splits_and_class_frequencies(undrawn):
    data = dsprites(gamma=0, standin=True)
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 16128, "val": 2304, "test": 4608,
    }  # fmt: skip
    frequencies = np.bincount(data.y) / data.n_samples
    np.testing.assert_allclose(frequencies, [1 / 9, 1 / 9, 2 / 9, 2 / 9] + [1 / 12] * 4)


def test_shapes3d_zero_has_the_stated_concept_frequencies(undrawn):
    data = shapes3d(gamma=0, standin=True)
    np.testing.assert_allclose(data.c.mean(axis=0), [0.6, 0.6, 0.6, 0.5, 0.5, 0.5])
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 11200, "val": 1600, "test": 3200,
    }  # fmt: skip
    assert data.n_classes == 12


@pytest.mark.parametrize(("name", "best"), [("dsprites", 0.750), ("shapes3d", 0.650)])
def test_incomplete_sets_limit_the_best_accuracy_as_in_table_3(undrawn, name, best):
    data = FACTORY[name](variant="incomplete", standin=True)
    assert best_accuracy(data.c, data.y) == pytest.approx(best, abs=0.002)
    assert data.name == f"{name}_g0_incomplete_standin"


@pytest.mark.parametrize("name", ["dsprites", "shapes3d"])
def test_nonlinear_labels_differ_but_remain_a_function_of_the_concepts(undrawn, name):
    plain = FACTORY[name](standin=True)
    nonlinear = FACTORY[name](variant="nonlinear", standin=True)
    assert best_accuracy(nonlinear.c, nonlinear.y) == 1.0
    assert (plain.y != nonlinear.y).any()
    assert len(np.unique(nonlinear.y)) == plain.n_classes


def test_published_dsprites_keeps_hearts_as_a_block_and_breaks_the_label(undrawn):
    data = dsprites(gamma=1, scheme="published", standin=True)
    heart = data.factors[:, 0] == data.factors[:, 0].max()
    assert heart.mean() in (0.0, 0.5)
    assert 0.97 <= best_accuracy(*_c_y(dsprites(gamma=3, scheme="published", standin=True))) < 0.99
    assert 0.94 <= best_accuracy(*_c_y(dsprites(gamma=4, scheme="published", standin=True))) < 0.97


def _c_y(data):
    return data.c, data.y


@pytest.mark.parametrize("name", ["dsprites", "shapes3d"])
def test_the_whole_grid_is_in_official_order(undrawn, name):
    grid = MODULE[name].GRID
    data = FACTORY[name](gamma=None, standin=True)
    assert data.n_samples == grid.n_rows
    assert data.factor_sizes == grid.sizes
    assert data.factors[1].tolist() == [0] * (len(grid.sizes) - 1) + [1]


@pytest.mark.parametrize("name", ["dsprites", "shapes3d"])
def test_a_stand_in_is_flagged_cached_and_repeatable(tmp_path, name):
    first = FACTORY[name](data_dir=tmp_path, gamma=2, standin=True, max_samples=60)
    assert first.standin
    assert first.notes
    assert first.n_samples == 60
    assert first.x.dtype == np.uint8
    assert first.x.shape == (60, 64, 64, 1 if name == "dsprites" else 3)
    (cached,) = (tmp_path / "processed" / f"{name}_standin").glob("*.npy")
    again = FACTORY[name](data_dir=tmp_path, gamma=2, standin=True, max_samples=60)
    assert first.fingerprint() == again.fingerprint()
    cached.write_bytes(b"broken")
    redrawn = FACTORY[name](data_dir=tmp_path, gamma=2, standin=True, max_samples=60)
    assert redrawn.fingerprint() == first.fingerprint()
    if name == "dsprites":
        assert set(np.unique(first.x)) == {0, 255}


@pytest.mark.parametrize("name", ["dsprites", "shapes3d"])
def test_without_the_official_file_the_message_names_command_and_stand_in(tmp_path, name):
    with pytest.raises(DatasetMissingError) as caught:
        FACTORY[name](data_dir=tmp_path)
    assert f"concept-audit fetch data={name}" in str(caught.value)
    assert f"data={name}_standin" in str(caught.value)


def test_unknown_choices_list_what_exists():
    with pytest.raises(ValueError, match=r"gamma must be 0\.\.4.*got 7"):
        dsprites(gamma=7, standin=True)
    with pytest.raises(ValueError, match="Did you mean 'published'"):
        shapes3d(scheme="publishd", standin=True)
    with pytest.raises(ValueError, match="variant must be one of"):
        dsprites(variant="half", standin=True)
    with pytest.raises(ValueError, match="max_samples must be at least 10"):
        dsprites(max_samples=3, standin=True)


class Burglar:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickled_metadata_is_never_run(tmp_path):
    path, trace = tmp_path / "d.npz", tmp_path / "trace"
    standin_dsprites.write_official(path, grid=TINY_DSPRITES)
    with np.load(path) as arrays:
        plain = dict(arrays)
    metadata = np.empty((), dtype=object)
    metadata[()] = Burglar(trace)
    np.savez(path, metadata=metadata, **plain)
    rows = np.array([0, 5, 71])
    images = dsprites_module.read_images(path, rows, grid=TINY_DSPRITES)
    np.testing.assert_array_equal(images, standin_dsprites.render(TINY_DSPRITES.factors_of(rows)))
    assert not trace.exists()
    pickle.dumps(Burglar(trace))  # the trap itself is sound: only loading it would fire


def test_an_object_array_in_place_of_images_is_refused(tmp_path):
    path, trace = tmp_path / "d.npz", tmp_path / "trace"
    standin_dsprites.write_official(path, grid=TINY_DSPRITES)
    with np.load(path) as arrays:
        plain = dict(arrays)
    images = np.empty(72, dtype=object)
    images[:] = [Burglar(trace)] * 72
    np.savez(path, **{**plain, "imgs": images})
    with pytest.raises(DatasetFileError, match="never unpickled"):
        dsprites_module.read_images(path, np.arange(72), grid=TINY_DSPRITES)
    assert not trace.exists()


def _dsprites_fault(path, change):
    standin_dsprites.write_official(path, grid=TINY_DSPRITES)
    with np.load(path) as arrays:
        plain = dict(arrays)
    np.savez(path, **change(plain))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {k: v for k, v in a.items() if k != "imgs"}, "expected an array 'imgs'"),
        (lambda a: {**a, "imgs": a["imgs"][:, :32]}, r"found shape \(72, 32, 64\)"),
        (lambda a: {**a, "imgs": a["imgs"].astype(float)}, "dtype float64"),
        (lambda a: {**a, "imgs": a["imgs"] * 255}, "expected pixels 0 and 1"),
        (lambda a: {**a, "latents_classes": a["latents_classes"][::-1]}, "72 of 72 rows differ"),
    ],
)
def test_a_wrong_npz_names_expected_found_and_command(tmp_path, change, message):
    path = tmp_path / "d.npz"
    _dsprites_fault(path, change)
    with pytest.raises(DatasetFileError, match=message) as caught:
        dsprites_module.read_images(path, np.arange(72), grid=TINY_DSPRITES)
    assert str(path) in str(caught.value)
    assert "concept-audit fetch data=dsprites" in str(caught.value)


def test_damaged_npz_files_are_recognised(tmp_path):
    path = tmp_path / "d.npz"
    standin_dsprites.write_official(path, grid=TINY_DSPRITES)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetFileError, match="damage"):
        dsprites_module.read_images(path, np.arange(72), grid=TINY_DSPRITES)
    tampered = bytearray(whole)
    tampered[200] ^= 0xFF
    path.write_bytes(bytes(tampered))
    with pytest.raises(DatasetFileError, match="damage"):
        dsprites_module.read_images(path, np.arange(72), grid=TINY_DSPRITES)
    path.write_text("<!DOCTYPE html><html>not found</html>")
    with pytest.raises(DatasetFileError, match="damage"):
        dsprites_module.read_images(path, np.arange(72), grid=TINY_DSPRITES)


def test_shapes3d_h5_is_read_by_rows(tmp_path):
    path = tmp_path / "3dshapes.h5"
    standin_shapes3d.write_official(path, grid=TINY_SHAPES3D, block=10)
    rows = np.array([0, 1, 17, 63])
    images = shapes3d_module.read_images(path, rows, grid=TINY_SHAPES3D)
    np.testing.assert_array_equal(images, standin_shapes3d.render(TINY_SHAPES3D.factors_of(rows)))


def test_a_wrong_h5_names_expected_found_and_command(tmp_path):
    path = tmp_path / "3dshapes.h5"
    standin_shapes3d.write_official(path, grid=TINY_SHAPES3D)
    with h5py.File(path, "r+") as file:
        file["labels"][...] = file["labels"][()][::-1]
    with pytest.raises(DatasetFileError, match="rows differ"):
        shapes3d_module.read_images(path, np.arange(64), grid=TINY_SHAPES3D)
    with h5py.File(path, "r+") as file:
        labels = file["labels"][()]
        labels[3, 2] = np.nan
        file["labels"][...] = labels
    with pytest.raises(DatasetFileError, match="found 1 NaN"):
        shapes3d_module.read_images(path, np.arange(64), grid=TINY_SHAPES3D)
    with h5py.File(path, "r+") as file:
        del file["labels"]
    with pytest.raises(DatasetFileError, match="expected a dataset 'labels'"):
        shapes3d_module.read_images(path, np.arange(64), grid=TINY_SHAPES3D)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DatasetFileError, match="concept-audit fetch data=shapes3d"):
        shapes3d_module.read_images(path, np.arange(64), grid=TINY_SHAPES3D)
    standin_shapes3d.write_official(path, grid=TINY_SHAPES3D)
    with pytest.raises(DatasetFileError, match=r"shape \(64, 6\)"):
        shapes3d_module.read_images(path, np.arange(64))


def test_the_official_file_is_found_under_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(shapes3d_module, "GRID", TINY_SHAPES3D)
    monkeypatch.setattr(shapes3d_module.read_images, "__kwdefaults__", {"grid": TINY_SHAPES3D})
    path = tmp_path / "raw" / "shapes3d" / shapes3d_module.FILE_NAME
    standin_shapes3d.write_official(path, grid=TINY_SHAPES3D)
    data = shapes3d(data_dir=tmp_path, gamma=None)
    assert not data.standin
    assert data.name == "shapes3d_full"
    np.testing.assert_array_equal(
        data.x, standin_shapes3d.render(TINY_SHAPES3D.factors_of(np.arange(64)))
    )


@pytest.mark.parametrize("name", ["dsprites", "shapes3d"])
def test_many_images_are_drawn_by_blocks_and_mapped(tmp_path, monkeypatch, name):
    small = FACTORY[name](data_dir=tmp_path / "a", standin=True, max_samples=25)
    monkeypatch.setattr(array_cache, "_ROWS_PER_BLOCK", 7)
    monkeypatch.setattr(array_cache, "_MEMORY_BYTES", 0)
    large = FACTORY[name](data_dir=tmp_path / "b", standin=True, max_samples=25)
    assert isinstance(large.x, np.memmap)
    np.testing.assert_array_equal(large.x, small.x)
    again = FACTORY[name](data_dir=tmp_path / "b", standin=True, max_samples=25)
    assert large.fingerprint() == again.fingerprint()
    other = FACTORY[name](data_dir=tmp_path / "b", standin=True, max_samples=26)
    assert other.fingerprint() != large.fingerprint()
