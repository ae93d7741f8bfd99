"""Every fault of every dataset's files is told by file, expected, found and remedy; none passes."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from concept_audit.data import cars3d as cars3d_module
from concept_audit.data import dsprites as dsprites_module
from concept_audit.data import mpi3d as mpi3d_module
from concept_audit.data import shapes3d as shapes3d_module
from concept_audit.data.cub import cub
from concept_audit.data.factor_grids import FactorGrid
from concept_audit.data.files import DatasetFileError
from concept_audit.data.ham10k import ham10k
from concept_audit.data.standins import cars3d as drawn_cars
from concept_audit.data.standins import cub as drawn_cub
from concept_audit.data.standins import dsprites as drawn_dsprites
from concept_audit.data.standins import ham10k as drawn_ham
from concept_audit.data.standins import mpi3d as drawn_mpi3d
from concept_audit.data.standins import shapes3d as drawn_shapes

FILES = {
    "dsprites": f"raw/dsprites/{dsprites_module.FILE_NAME}",
    "shapes3d": f"raw/shapes3d/{shapes3d_module.FILE_NAME}",
    "mpi3d": "raw/mpi3d/mpi3d_real.npz",
    "cars3d": "raw/cars3d/data/cars/car_001_mesh.mat",
    "cub": "raw/cub/CUB_200_2011/images.txt",
    "ham10k": "raw/ham10k/HAM10000_metadata.csv",
}
DRAWN = {"dsprites": drawn_dsprites, "shapes3d": drawn_shapes, "mpi3d": drawn_mpi3d}
SIZES = {
    "dsprites": (3, 2, 3, 2, 2), "shapes3d": (2,) * 6, "mpi3d": (2, 2, 2, 1, 1, 2, 2),
    "cars3d": (4, 24, 1),
}  # fmt: skip
MODULES = {
    "dsprites": dsprites_module, "shapes3d": shapes3d_module, "mpi3d": mpi3d_module,
    "cars3d": cars3d_module,
}  # fmt: skip
TABLES = "raw/cub/CUB_200_2011"
ATTRIBUTES = f"{TABLES}/attributes/image_attribute_labels.txt"
CONCEPTS = "raw/ham10k/concepts.csv"
METADATA = FILES["ham10k"]


def grid_of(name: str) -> FactorGrid:
    module = drawn_cars if name == "cars3d" else DRAWN[name]
    return FactorGrid(module.GRID.names, SIZES[name], module.GRID.kinds)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """A small whole set of each kind, in the official layout."""
    folder = tmp_path_factory.mktemp("whole")
    for name, file in FILES.items():
        (folder / name / file).parent.mkdir(parents=True)
        if name in DRAWN:
            DRAWN[name].write_official(folder / name / file, grid=grid_of(name))
    drawn_cars.write_official((folder / "cars3d" / FILES["cars3d"]).parent, n_types=1)
    tiny = {"n_classes": 3, "images_per_class": 4, "size": (40, 32), "values_per_group": 2}
    drawn_cub.write_miniature(folder / "cub" / "raw" / "cub", **tiny)
    drawn_ham.write_miniature(folder / "ham10k" / "raw" / "ham10k", n_lesions=20, size=(40, 30))
    return folder


@pytest.fixture
def load(whole, tmp_path, monkeypatch):
    """Function that copies a set, breaks the copy, and loads it."""
    for name, module in MODULES.items():
        monkeypatch.setattr(module, "GRID", grid_of(name))
        reader = next(
            getattr(module, function)
            for function in ("read_images", "map_images", "read_folder")
            if hasattr(module, function)
        )
        sizes = {"n_types": 1} if name == "cars3d" else {"grid": grid_of(name)}
        monkeypatch.setattr(reader, "__kwdefaults__", sizes)

    def load(name: str, file: str, change) -> object:
        folder = shutil.copytree(whole / name, tmp_path / name, dirs_exist_ok=True)
        change(folder / file)
        if name == "cub":
            options = {"min_class_count": 1, "image_size": 24, "crop": "scaled"}
            return cub(data_dir=folder, **options)
        if name == "ham10k":
            return ham10k(data_dir=folder, image_size=24)
        options = {"gamma": None} if name in ("dsprites", "shapes3d") else {}
        return getattr(MODULES[name], name)(data_dir=folder, **options)

    return load


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1])


def page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>404 not found</body></html>")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def noise(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(4000))


def latin(path: Path) -> None:
    path.write_bytes(path.read_bytes() + "Säbelschnäbler\n".encode("latin-1"))


def replace(old: str, new: str):
    def change(path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def npz(**changes):
    """Arrays of an npz changed by functions; None takes one away."""

    def change(path: Path) -> None:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files if name != "metadata"}
        for name, function in changes.items():
            array = arrays.pop(name)
            if function is not None:
                arrays[name] = function(array)
        np.savez(path, **arrays)

    return change


def tampered_compressed(path: Path) -> None:
    """One byte of a compressed array differs, far from its header."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "metadata"}
    np.savez_compressed(path, **arrays)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def h5(name: str, function):
    def change(path: Path) -> None:
        with h5py.File(path, "r+") as opened:
            array = opened[name][()]
            del opened[name]
            made = function(array)
            if made is not None:
                opened[name] = made

    return change


def mat(**arrays):
    return lambda path: savemat(path, arrays)


class Trap:
    """Unpickling this makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("trap_was_sprung",)


def objects(array: np.ndarray) -> np.ndarray:
    made = np.empty(len(array), dtype=object)
    made[:] = [Trap()] * len(array)
    return made


def with_nan(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(array.size).reshape(array.shape) == 7, np.nan, array)


def line(number: int, new: str | None):
    """Line of a text file, from 1, replaced or, with None, repeated."""

    def change(path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[number - 1 : number] = [lines[number - 1]] * 2 if new is None else [new]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return change


def column(name: str, value: str):
    """Cell of the first row of a CSV."""

    def change(path: Path) -> None:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        rows[0][name] = value
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return change


def absent(path: Path) -> None:
    path.unlink()


MATLAB_73 = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384)

FAULTS = [
    *(
        (name, FILES[name], change, "expected")
        for name in FILES
        for change in (cut, page, empty, noise)
    ),
    # dSprites
    ("dsprites", FILES["dsprites"], tampered_compressed, "damage"),
    ("dsprites", FILES["dsprites"], npz(imgs=objects), "never unpickled"),
    ("dsprites", FILES["dsprites"], npz(imgs=None), r"expected an array 'imgs', found arrays"),
    ("dsprites", FILES["dsprites"], npz(imgs=lambda a: a[:-1]), r"found shape \(71, 64, 64\)"),
    ("dsprites", FILES["dsprites"], npz(latents_classes=with_nan), "dtype float64"),
    ("dsprites", FILES["dsprites"], npz(latents_classes=lambda a: a[::-1]), "72 of 72 rows"),
    # 3dshapes
    ("shapes3d", FILES["shapes3d"], h5("images", lambda a: None), "expected a dataset 'images'"),
    ("shapes3d", FILES["shapes3d"], h5("images", lambda a: a[..., :1]), r"64, 64, 1\)"),
    ("shapes3d", FILES["shapes3d"], h5("labels", with_nan), "found 1 NaN"),
    ("shapes3d", FILES["shapes3d"], h5("labels", lambda a: a.astype("S9")), r"dtype \|S9"),
    ("shapes3d", FILES["shapes3d"], h5("labels", lambda a: a[::-1]), "rows differ"),
    # MPI3D
    ("mpi3d", FILES["mpi3d"], tampered_compressed, "damage"),
    ("mpi3d", FILES["mpi3d"], npz(images=objects), "never unpickled"),
    ("mpi3d", FILES["mpi3d"], npz(images=lambda a: a[:, :32]), r"found shape \(\d+, 32, 64, 3\)"),
    ("mpi3d", FILES["mpi3d"], npz(images=lambda a: a.astype(float)), "dtype float64"),
    # Cars3D
    ("cars3d", FILES["cars3d"], mat(im=np.zeros((3, 4, 4), np.uint8)), "found shape"),
    ("cars3d", FILES["cars3d"], mat(im=np.array([Trap.__name__, 1], dtype=object)), "dtype object"),
    ("cars3d", FILES["cars3d"], mat(mask=np.zeros((2, 2))), "found no 'im'"),
    ("cars3d", FILES["cars3d"], lambda p: p.write_bytes(MATLAB_73), "damage"),
    ("cars3d", "raw/cars3d/data/cars/list.txt", latin, "UTF-8"),
    ("cars3d", "raw/cars3d/data/cars/list.txt", line(1, None), "2 names, 1 different"),
    ("cars3d", "raw/cars3d/data/cars/list.txt", line(1, "../car"), r"\.\./car"),
    # CUB
    *(
        ("cub", f"{TABLES}/{file}", change, file)
        for file in ("classes.txt", "image_class_labels.txt", "train_test_split.txt")
        for change in (page, empty, noise, absent, latin)
    ),
    ("cub", f"{TABLES}/classes.txt", cut, r"numbers from 1 to 2 \(as classes\.txt has\)"),
    ("cub", f"{TABLES}/image_class_labels.txt", cut, "as entry 7"),
    ("cub", f"{TABLES}/train_test_split.txt", cut, "as entry 7"),
    *(("cub", ATTRIBUTES, change, "expected") for change in (cut, page, empty, noise, absent)),
    *(
        ("cub", "raw/cub/attributes.txt", change, "expected")
        for change in (cut, page, empty, absent)
    ),
    ("cub", ATTRIBUTES, line(1, "1 1 nan 3 1.0"), "nan"),
    ("cub", ATTRIBUTES, line(1, "1 1 2 3 1.0"), "label from 0 to 1, found 2 in line 1"),
    ("cub", ATTRIBUTES, line(1, "1 999 1 3 1.0"), "attribute from 1 to 312, found 999"),
    ("cub", ATTRIBUTES, line(1, None), "0 missing and 1 repeated"),
    ("cub", f"{TABLES}/image_class_labels.txt", line(1, "1 9"), "from 1 to 3.*'9' in entry 1"),
    ("cub", f"{TABLES}/image_class_labels.txt", line(1, "1 ²"), "'²' in entry 1"),
    ("cub", f"{TABLES}/image_class_labels.txt", line(1, "1 --1"), "'--1' in entry 1"),
    ("cub", f"{TABLES}/image_class_labels.txt", line(1, "1 nan"), "'nan' in entry 1"),
    ("cub", f"{TABLES}/classes.txt", line(2, "2 002.Drawn_Bird_01"), "'Drawn_Bird_01' twice"),
    ("cub", f"{TABLES}/images.txt", line(2, "2 ../../etc/passwd"), "passwd"),
    ("cub", f"{TABLES}/images.txt", line(2, "2 001.Bird/none.jpg"), "found no file"),
    # HAM10000
    ("ham10k", METADATA, latin, "UTF-8"),
    ("ham10k", METADATA, line(2, None), "different plain image_id"),
    ("ham10k", METADATA, column("dx", "nan"), "dx among .*'nan' in line 2"),
    ("ham10k", METADATA, column("lesion_id", " "), "lesion_id in every line.* none in line 2"),
    ("ham10k", METADATA, line(3, "HAM_1,ISIC_1,nv"), "values in every line, found fewer in line 3"),
    ("ham10k", METADATA, line(3, "1,2,nv,4,5,6,7,8,9"), "found more in line 3"),
    *(("ham10k", CONCEPTS, change, r"concepts\.csv") for change in (cut, page, empty, noise)),
    ("ham10k", CONCEPTS, line(2, None), "different plain image_id"),
    ("ham10k", CONCEPTS, column("GP", "nan"), "0 or 1 in column 'GP', found 'nan' in line 2"),
    ("ham10k", CONCEPTS, column("benign_malignant", "both"), "found 'both' in line 2"),
    ("ham10k", CONCEPTS, column("image_id", "ISIC_ü"), "for example 'ISIC_ü'"),
]


@pytest.mark.parametrize(("name", "file", "change", "message"), FAULTS)
def test_a_fault_is_named_and_leaves_nothing(load, tmp_path, name, file, change, message):
    with pytest.raises(DatasetFileError, match=message) as caught:
        load(name, file, change)
    error = caught.value
    assert str(tmp_path / name / "raw" / name) in str(error.path)
    assert error.expected
    assert error.found
    assert f"concept-audit fetch data={name}" in error.remedy or "concepts.csv" in str(error.path)
    assert not list((tmp_path / name).rglob("processed/**/*.np*"))
    assert not Path("trap_was_sprung").exists()


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_whole_before_they_are_broken(load, name):
    assert load(name, FILES[name], lambda path: None).n_samples > 8


@pytest.mark.parametrize("name", ["cub", "ham10k"])
@pytest.mark.parametrize("change", [cut, page, empty, noise])
def test_a_bad_picture_is_named_and_no_array_is_kept(load, tmp_path, name, change):
    def break_one(folder: Path) -> None:
        change(sorted(folder.rglob("*.jpg"))[-1])

    with pytest.raises(DatasetFileError, match=r"\.jpg: expected a whole image") as caught:
        load(name, f"raw/{name}", break_one)
    assert f"concept-audit fetch data={name}" in str(caught.value)
    assert not [path for path in (tmp_path / name / "processed").rglob("*") if path.is_file()]


def test_unicode_names_go_through(load):
    def rename(folder: Path) -> None:
        base = folder / "CUB_200_2011"
        replace("001.Drawn_Bird_01", "001.Säbelschnäbler_鳥")(base / "classes.txt")
        old = (base / "images.txt").read_text().split("\n")[0].removeprefix("1 ")
        new = str(Path(old).with_name("Löffler_ø.jpg"))
        line(1, f"1 {new}")(base / "images.txt")
        (base / "images" / old).rename(base / "images" / new)

    assert load("cub", "raw/cub", rename).class_names[0] == "Säbelschnäbler_鳥"


def test_two_pictures_of_one_name_are_refused(load):
    def add(folder: Path) -> None:
        picture = sorted((folder / "HAM10000_images_part_1").iterdir())[0]
        (folder / "images").mkdir(exist_ok=True)
        shutil.copy(picture, folder / "images")  # the same once more does no harm

    def add_other(folder: Path) -> None:
        add(folder)
        with next((folder / "images").iterdir()).open("ab") as stream:
            stream.write(b"more")

    assert load("ham10k", "raw/ham10k", add).n_samples > 8
    with pytest.raises(DatasetFileError, match=r"expected one picture of each name, found another"):
        load("ham10k", "raw/ham10k", add_other)


def test_an_unpacked_mpi3d_that_was_damaged_is_unpacked_again(load, tmp_path):
    def compress(path: Path) -> None:
        with np.load(path) as stored:
            np.savez_compressed(path, images=stored["images"])

    first = np.array(load("mpi3d", FILES["mpi3d"], compress).x)
    (note,) = (tmp_path / "mpi3d" / "processed").rglob("*.json")
    (unpacked,) = (tmp_path / "mpi3d" / "processed").rglob("*.npy")
    note.write_text("{")
    np.testing.assert_array_equal(mpi3d_module.mpi3d(data_dir=tmp_path / "mpi3d").x, first)
    unpacked.write_bytes(unpacked.read_bytes()[:-10])
    np.testing.assert_array_equal(mpi3d_module.mpi3d(data_dir=tmp_path / "mpi3d").x, first)
