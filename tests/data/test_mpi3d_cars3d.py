"""MPI3D and Cars3D: drawn cars and arms, official layouts, splits of DCI-ES, wrong files."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from concept_audit.data import cars3d as cars3d_module
from concept_audit.data import mpi3d as mpi3d_module
from concept_audit.data.cars3d import cars3d, read_folder
from concept_audit.data.factor_grids import FactorGrid
from concept_audit.data.files import DatasetFileError, DatasetMissingError
from concept_audit.data.mpi3d import map_images, mpi3d
from concept_audit.data.standins import cars3d as standin_cars3d
from concept_audit.data.standins import mpi3d as standin_mpi3d
from concept_audit.data.standins.polytopes import Camera, Sphere, block, cast, empty_surface, prism

TINY_MPI3D = FactorGrid(standin_mpi3d.GRID.names, (2, 2, 2, 1, 3, 1, 2), standin_mpi3d.GRID.kinds)


@pytest.fixture(scope="module")
def cars_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cars")
    standin_cars3d.write_official(folder, n_types=2)
    return folder


def test_a_block_and_a_ball_are_hit_where_geometry_says():
    camera = Camera(np.array([0.0, -5.0, 0.0]), np.zeros(3), 1.0, 65)
    rays = camera.rays()
    surface = empty_surface(65)
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
    cast(camera, rays, [block(corners, part=3)], surface)
    assert surface.distance[32, 32] == pytest.approx(4.0)
    np.testing.assert_allclose(surface.normal[32, 32], [0, -1, 0], atol=1e-9)
    cast(camera, rays, [Sphere(np.array([0.0, -2.0, 0.0]), 0.5, 4)], surface)
    assert surface.distance[32, 32] == pytest.approx(2.5)
    assert set(np.unique(surface.part)) == {-1, 3, 4}
    # A square face of side 2 at distance 4 covers (65 * 2 / 4)^2 pixels.
    assert abs((surface.part >= 3).sum() - 32.5**2) < 2 * 65


def test_a_prism_has_its_corners_on_its_faces():
    solid = prism(np.array([0.1, 0.2, 0.3]), np.array([1.0, 1.0, 0.0]), 0.7, 5, 0.4, 0.1, part=0)
    inside = solid.corners @ solid.normals.T - solid.offsets
    assert inside.max() < 1e-9
    assert (np.abs(inside) < 1e-9).sum(axis=1).min() >= 3


def test_mpi3d_stand_in_has_the_light_of_real_images(samples_dir):
    sheet = np.asarray(Image.open(samples_dir / "mpi3d_real_140.png").convert("RGB"))
    rows = np.random.default_rng(0).choice(standin_mpi3d.GRID.n_rows, size=120, replace=False)
    drawn = standin_mpi3d.render(standin_mpi3d.GRID.factors_of(rows))
    difference = drawn.reshape(-1, 3).mean(axis=0) - sheet.reshape(-1, 3).mean(axis=0)
    assert np.abs(difference).max() < 6  # of 255
    assert abs(drawn.std() - sheet.std()) < 6


def test_the_mpi3d_object_stays_in_the_frame_at_every_position_and_height():
    positions = [(turn, lift) for turn in range(40) for lift in range(40)]
    for radius in standin_mpi3d._OBJECT_RADII:
        outer = radius / np.cos(np.pi / 16)  # around the cylinder, which holds all other shapes
        corners = []
        for turn, lift in positions:
            axis = standin_mpi3d._axis(turn, lift)
            tip = standin_mpi3d._POLE_TOP + standin_mpi3d._ARM_LENGTH * axis
            corners.append(prism(tip, axis, 2 * radius, 16, outer, outer, part=0).corners)
        for height in range(3):
            camera = standin_mpi3d._camera(height)
            seen = (np.array(corners) - camera.position) @ camera.axes.T
            places = seen[..., :2] / seen[..., 2:] * camera.focal + 0.5  # the frame is 0..1
            inside = ((places >= 0) & (places <= 1)).all(axis=(1, 2))
            assert inside.mean() >= 0.995


@pytest.mark.parametrize("module", [standin_mpi3d, standin_cars3d])
def test_drawing_does_not_depend_on_order_or_company(module):
    rows = np.random.default_rng(0).choice(module.GRID.n_rows, size=8, replace=False)
    factors = module.GRID.factors_of(rows)
    together = module.render(factors)
    np.testing.assert_array_equal(module.render(factors[::-1])[::-1], together)
    np.testing.assert_array_equal(module.render(factors[3:4])[0], together[3])
    assert together.shape == (8, 64, 64, 3)
    with pytest.raises(ValueError, match="must hold indices"):
        module.render(factors + 200)


@pytest.mark.parametrize(
    ("module", "base"),
    [(standin_mpi3d, [2, 1, 1, 1, 0, 5, 30]), (standin_cars3d, [1, 4, 7])],
)
def test_every_factor_changes_the_picture(module, base):
    factors = np.array([base] * (len(base) + 1))
    for position, size in enumerate(module.GRID.sizes):
        factors[position + 1, position] = (base[position] + size // 2) % size
    images = module.render(factors)
    for changed in images[1:]:
        assert (changed != images[0]).any(axis=-1).sum() >= 8


def test_mpi3d_stand_in_and_splits(tmp_path, monkeypatch):
    data = mpi3d(data_dir=tmp_path, standin=True, max_samples=40, test=0.5)
    assert data.standin
    assert data.x.shape == (40, 64, 64, 3)
    assert data.factor_sizes == (6, 6, 2, 3, 3, 40, 40)
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 19, "val": 1, "test": 20,
    }  # fmt: skip
    assert {name: len(rows) for name, rows in mpi3d_module._splits(1036800, 0.7, 42).items()} == {
        "train": 295488, "val": 15552, "test": 725760,
    }  # fmt: skip
    with pytest.raises(ValueError, match="test must be a share"):
        mpi3d(data_dir=tmp_path, standin=True, max_samples=40, test=1.0)


@pytest.mark.parametrize("compressed", [False, True])
def test_mpi3d_npz_is_mapped_by_rows(tmp_path, compressed, monkeypatch):
    path = tmp_path / "raw" / "mpi3d" / "mpi3d_real.npz"
    standin_mpi3d.write_official(path, grid=TINY_MPI3D)
    expected = standin_mpi3d.render(TINY_MPI3D.factors_of(np.arange(TINY_MPI3D.n_rows)))
    with np.load(path, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["images"], expected)
    if compressed:
        np.savez_compressed(path, images=expected)
    monkeypatch.setattr(mpi3d_module, "GRID", TINY_MPI3D)
    monkeypatch.setattr(map_images, "__kwdefaults__", {"grid": TINY_MPI3D})
    data = mpi3d(data_dir=tmp_path)
    assert isinstance(data.x, np.memmap)
    np.testing.assert_array_equal(data.x[np.array([5, 3])], expected[[5, 3]])
    assert not data.standin
    assert data.fingerprint() == mpi3d(data_dir=tmp_path).fingerprint()


def test_wrong_mpi3d_files_are_named(tmp_path):
    with pytest.raises(DatasetMissingError, match="concept-audit fetch data=mpi3d"):
        mpi3d(data_dir=tmp_path)
    path = tmp_path / "m.npz"
    np.savez(path, images=np.zeros((4, 64, 64, 3), np.uint8))
    with pytest.raises(DatasetFileError, match=r"expected 'images' of shape \(1036800"):
        map_images(path, tmp_path)
    np.savez(path, imgs=np.zeros(3))
    with pytest.raises(DatasetFileError, match="expected an array 'images'"):
        map_images(path, tmp_path)
    images = np.zeros((TINY_MPI3D.n_rows, 64, 64, 3), np.uint8)
    np.savez_compressed(path, images=images)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DatasetFileError, match="damage"):
        map_images(path, tmp_path, grid=TINY_MPI3D)
    assert not list(tmp_path.glob("*.npy"))


def test_cars3d_folder_is_read_in_the_order_of_the_list(cars_folder, tmp_path):
    images = read_folder(cars_folder, n_types=2)
    assert images.shape == (4 * 24 * 2, 64, 64, 3)
    grid = FactorGrid(standin_cars3d.GRID.names, (4, 24, 2), standin_cars3d.GRID.kinds)
    rows = np.array([0, 1, 55, 190])
    drawn = standin_cars3d.render(grid.factors_of(rows))
    # 128 pixels reduced by Lanczos against 64 pixels drawn with 2x2 sub-pixels.
    assert np.abs(images[rows].astype(int) - drawn).mean() < 4
    for other in np.setdiff1d(np.arange(0, 192, 13), rows):
        assert np.abs(images[other].astype(int) - drawn[2]).mean() > 4
    for path in cars_folder.glob("*.mat"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    np.testing.assert_array_equal(read_folder(tmp_path, n_types=2), images)  # sorted names
    (tmp_path / "list.txt").write_text("car_002_mesh\ncar_001_mesh\n")
    np.testing.assert_array_equal(read_folder(tmp_path, n_types=2)[0::2], images[1::2])


def test_wrong_cars3d_files_are_named(cars_folder, tmp_path):
    for path in cars_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DatasetFileError, match="expected 183 different car types"):
        read_folder(tmp_path)
    (tmp_path / "list.txt").write_text("car_001_mesh\n../../secret\n")
    with pytest.raises(DatasetFileError, match="secret"):
        read_folder(tmp_path, n_types=2)
    (tmp_path / "list.txt").write_text("car_001_mesh\ncar_009_mesh\n")
    with pytest.raises(DatasetFileError, match=r"car_009_mesh\.mat: .*found no file"):
        read_folder(tmp_path, n_types=2)
    (tmp_path / "list.txt").unlink()
    bad = tmp_path / "car_002_mesh.mat"
    savemat(bad, {"im": np.zeros((3, 128, 128, 24, 4), np.uint8)})
    with pytest.raises(DatasetFileError, match=r"found shape \(3, 128, 128, 24, 4\)"):
        read_folder(tmp_path, n_types=2)
    savemat(bad, {"mask": np.zeros((2, 2))})
    with pytest.raises(DatasetFileError, match="found no 'im'"):
        read_folder(tmp_path, n_types=2)
    bad.write_bytes((tmp_path / "car_001_mesh.mat").read_bytes()[:5000])
    with pytest.raises(DatasetFileError, match=r"damage.*concept-audit fetch data=cars3d"):
        read_folder(tmp_path, n_types=2)
    bad.write_text("<html>moved</html>")
    with pytest.raises(DatasetFileError, match="damage"):
        read_folder(tmp_path, n_types=2)


def test_cars3d_dataset_from_folder_npz_and_stand_in(cars_folder, tmp_path, monkeypatch):
    with pytest.raises(DatasetMissingError, match="data=cars3d_standin"):
        cars3d(data_dir=tmp_path)
    grid = FactorGrid(standin_cars3d.GRID.names, (4, 24, 2), standin_cars3d.GRID.kinds)
    monkeypatch.setattr(cars3d_module, "GRID", grid)
    monkeypatch.setattr(read_folder, "__kwdefaults__", {"n_types": 2})
    official = tmp_path / "raw" / "cars3d" / "data" / "cars"
    official.parent.mkdir(parents=True)
    official.symlink_to(cars_folder)
    folder = cars3d(data_dir=tmp_path)
    assert folder.n_samples == 192
    assert folder.factors[1].tolist() == [0, 0, 1]
    np.savez(tmp_path / "raw" / "cars3d" / "cars3d.npz", imgs=folder.x)
    packed = cars3d(data_dir=tmp_path)
    assert packed.fingerprint() == folder.fingerprint()
    standin = cars3d(data_dir=tmp_path, standin=True, max_samples=20)
    assert standin.standin
    assert standin.x.shape == (20, 64, 64, 3)


def test_cars3d_has_the_splits_of_dci_es(tmp_path, monkeypatch):
    monkeypatch.setattr(
        cars3d_module, "_images", lambda folder, rows: np.zeros((len(rows), 1, 1, 1), np.uint8)
    )
    data = cars3d(data_dir=tmp_path)
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 12648, "val": 1406, "test": 3514,
    }  # fmt: skip
