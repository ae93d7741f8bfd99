"""CUB: official text files parsed, the 112 concepts, the rule behind them, and broken archives."""

from __future__ import annotations

import shutil
from hashlib import sha256

import numpy as np
import pytest
from PIL import Image

from concept_audit.data.cub import CubTables, class_majority, cub, frequent_attributes, read_tables
from concept_audit.data.cub_attributes import (
    ATTRIBUTE_NAMES,
    SELECTED_NAMES,
    SELECTED_POSITIONS,
    group_of,
)
from concept_audit.data.files import DatasetFileError, DatasetMissingError
from concept_audit.data.standins import cub as standin_cub
from concept_audit.data.standins.cub import write_miniature

LABELS = "CUB_200_2011/attributes/image_attribute_labels.txt"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Four species with six pictures each, in the official layout, under raw/cub."""
    folder = tmp_path_factory.mktemp("cub") / "raw" / "cub"
    folder.mkdir(parents=True)
    write_miniature(folder, n_classes=4, images_per_class=6, size=(64, 48), values_per_group=2)
    return folder


@pytest.fixture
def copy(archive, tmp_path):
    """A copy to break."""
    return shutil.copytree(archive, tmp_path / "raw" / "cub")


def test_the_112_names_come_out_in_the_published_order():
    assert len(ATTRIBUTE_NAMES) == 312
    assert len(set(ATTRIBUTE_NAMES)) == 312
    assert len({group_of(name) for name in ATTRIBUTE_NAMES}) == 28
    assert len(SELECTED_NAMES) == 112
    assert list(SELECTED_POSITIONS) == sorted(SELECTED_POSITIONS)
    assert len({group_of(name) for name in SELECTED_NAMES}) == 28  # every group keeps at least one
    assert SELECTED_NAMES[:3] == (
        "has_bill_shape::dagger",
        "has_bill_shape::hooked_seabird",
        "has_bill_shape::all-purpose",
    )
    assert SELECTED_NAMES[-1] == "has_wing_pattern::multi-colored"
    assert sha256("\n".join(SELECTED_NAMES).encode()).hexdigest()[:16] == "9ad6c34bc9810f13"


def synthetic_tables(extra: int = 0) -> CubTables:
    """Tables of 200 classes in which the rule must give the 112, and `extra` more attributes."""
    n_classes, repeats = 200, 3
    majority = np.zeros((n_classes, 312), dtype=np.int8)
    rng = np.random.default_rng(0)
    chosen = set(SELECTED_POSITIONS)
    spare = [i for i in range(312) if i not in chosen]
    for position in range(312):
        frequent = position in chosen or position in spare[:extra]
        count = 10 if frequent else 9
        majority[rng.choice(n_classes, size=count, replace=False), position] = 1
    present = np.repeat(majority, repeats, axis=0)
    certainty = np.full(present.shape, 4, dtype=np.int8)
    present[::repeats] ^= 1  # one image of each class disagrees and is outvoted
    return CubTables(
        paths=tuple(f"{i}.jpg" for i in range(len(present))),
        labels=np.repeat(np.arange(n_classes), repeats),
        is_train=np.ones(len(present), dtype=bool),
        class_names=tuple(f"class_{i}" for i in range(n_classes)),
        attribute_names=ATTRIBUTE_NAMES,
        present=present,
        certainty=certainty,
    )


def test_the_rule_gives_the_112_by_class_majority():
    positions = frequent_attributes(class_majority(synthetic_tables()))
    assert tuple(positions) == SELECTED_POSITIONS
    assert len(frequent_attributes(class_majority(synthetic_tables(extra=3)))) == 115


def test_majority_skips_invisible_absences_and_counts_ties_as_present():
    tables = CubTables(
        paths=("a", "b", "c", "d"),
        labels=np.zeros(4, dtype=np.int64),
        is_train=np.array([True, True, True, False]),
        class_names=("bird",),
        attribute_names=("tie", "invisible", "absent", "test_only", "never"),
        present=np.array(
            [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=np.int8
        ),
        certainty=np.array(
            [[4, 4, 4, 4, 1], [4, 1, 4, 4, 1], [1, 1, 2, 3, 1], [4, 4, 4, 4, 4]], dtype=np.int8
        ),
    )
    assert class_majority(tables).tolist() == [[1, 1, 0, 0, 1]]


def test_tables_hold_the_official_files(archive):
    tables = read_tables(archive)
    assert len(tables.paths) == 24
    assert tables.attribute_names == ATTRIBUTE_NAMES
    assert tables.class_names[0] == "Drawn_Bird_01"
    assert tables.is_train.sum() == 12
    assert tables.present.shape == (24, 312)
    lines = (archive / LABELS).read_text().splitlines()
    assert len(lines[2].split()) == 6  # the line with extra columns is read all the same
    image, attribute, label, certainty = map(int, lines[1000].split()[:4])
    assert tables.present[image - 1, attribute - 1] == label
    assert tables.certainty[image - 1, attribute - 1] == certainty


@pytest.mark.parametrize("bill", ["shorter_than_head", "longer_than_head"])
@pytest.mark.parametrize("tail", ["pointed_tail", "fan-shaped_tail"])
def test_the_largest_drawn_birds_lie_inside_the_middle_square(monkeypatch, bill, tail):
    grey = (1, 2, 3)
    monkeypatch.setattr(
        standin_cub, "soft_background", lambda size, low, high, draw: Image.new("RGB", size, grey)
    )
    values = standin_cub._values({name: ids[0] for name, ids in standin_cub._MEMBERS.items()})
    values |= {"size": "very_large_(32_-_72_in)", "bill_length": bill, "tail_shape": tail,
               "head_pattern": "crested"}  # fmt: skip
    for seed in range(12):
        bird = standin_cub._draw_bird(values, (160, 128), np.random.default_rng(seed))
        lines, columns = np.nonzero((np.asarray(bird) != grey).any(axis=2))
        assert 1 <= lines.min() <= lines.max() <= 126
        assert 17 <= columns.min() <= columns.max() <= 142  # the middle square: 16..143
        assert np.ptp(columns) > 0.6 * 128


def load(archive, **options):
    defaults = {"selection": "rule", "min_class_count": 1, "image_size": 32, "crop": "scaled"}
    return cub(data_dir=archive.parent.parent, **{**defaults, **options})


def test_dataset_carries_names_groups_and_official_split(archive):
    data = load(archive)
    assert data.name == "cub"
    assert not data.standin
    assert data.x.shape == (24, 32, 32, 3)
    assert set(data.concept_names) <= set(ATTRIBUTE_NAMES)
    assert all(
        group_of(data.concept_names[i]) == g for g, m in data.concept_groups.items() for i in m
    )
    assert {name: len(rows) for name, rows in data.splits.items()} == {
        "train": 10, "val": 2, "test": 12,
    }  # fmt: skip
    for species in range(4):
        assert len(np.unique(data.c[data.y == species], axis=0)) == 1
    per_image = load(archive, labels="image")
    assert any(len(np.unique(per_image.c[per_image.y == s], axis=0)) > 1 for s in range(4))


def test_published_selection_gives_112_and_notes_the_difference(archive):
    data = load(archive, selection="published")
    assert data.concept_names == SELECTED_NAMES
    assert "Published selection used" in data.notes[0]
    with pytest.raises(DatasetFileError, match=r"the rule .* lacks has_.*more of") as caught:
        load(archive, selection="checked")
    assert "and adds" in str(caught.value)
    assert str(caught.value).count("has_") <= 10  # of dozens, five each


def test_incomplete_sets_keep_whole_groups(archive):
    data = load(archive, selection="published", n_groups=5)
    assert len(data.concept_groups) == 5
    assert data.name == "cub_incomplete"
    with pytest.raises(ValueError, match=r"n_groups must be 1\.\.28"):
        load(archive, selection="published", n_groups=29)
    with pytest.raises(ValueError, match="leaves no attribute"):
        load(archive, min_class_count=5)


def test_images_are_decoded_once_or_on_access(archive):
    kept = load(archive)
    lazy = load(archive, keep_decoded=False)
    rows = np.array([3, 0])
    np.testing.assert_array_equal(kept.x[rows], lazy.x[rows])
    assert lazy.x.shape == kept.x.shape
    assert len(lazy.x) == 24
    assert lazy.x[rows[:0]].shape == (0, 32, 32, 3)
    centre = load(archive, crop="centre", image_size=64, keep_decoded=False).x[rows[:1]][0]
    assert (centre[:8] == 0).all()  # 64 x 48 pictures leave black bands
    with pytest.raises(ValueError, match="image_size must be at least 8"):
        load(archive, image_size=4)


def test_stand_in_draws_itself_once(tmp_path, monkeypatch):
    from concept_audit.data.standins import cub as standin

    tiny = {"n_classes": 3, "images_per_class": 4, "size": (40, 32), "values_per_group": 2}
    monkeypatch.setattr(standin.write_miniature, "__kwdefaults__", {**tiny, "seed": 0})
    options = {"selection": "rule", "min_class_count": 1, "image_size": 32, "crop": "scaled"}
    first = cub(data_dir=tmp_path, standin=True, **options)
    assert first.standin
    assert first.name == "cub_standin"
    assert first.n_samples == 12
    assert first.fingerprint() == cub(data_dir=tmp_path, standin=True, **options).fingerprint()
    with pytest.raises(ValueError, match="selection=checked is for the official files"):
        cub(data_dir=tmp_path, standin=True, **{**options, "selection": "checked"})


def test_a_missing_archive_names_command_and_stand_in(tmp_path):
    with pytest.raises(DatasetMissingError, match="concept-audit fetch data=cub") as caught:
        cub(data_dir=tmp_path)
    assert "data=cub_standin" in str(caught.value)


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("CUB_200_2011/images.txt", "2 001", "3 001", "expected '2 <value>' as entry 2"),
        ("CUB_200_2011/images.txt", "1 001.Drawn", "1 ../../001.Drawn", r"found '\.\./\.\./001"),
        ("CUB_200_2011/images.txt", "_0002.jpg", "_0001.jpg", "expected different paths"),
        ("CUB_200_2011/image_class_labels.txt", "1 1", "1 9", "'9' in entry 1"),
        ("CUB_200_2011/image_class_labels.txt", "1 1", "1 nan", "'nan' in entry 1"),
        ("CUB_200_2011/train_test_split.txt", "24 0\n", "", "found 23 entries"),
        (LABELS, "1 1 ", "1 313 ", "attribute from 1 to 312.*found 313"),
        (LABELS, "1 2 ", "1 1 ", "1 missing and 1 repeated, first image 1, attribute 1"),
        (LABELS, "1 1 ", "one 1 ", "could not convert"),
        ("attributes.txt", "has_bill_shape::hooked\n", "has_bill_shape::dagger\n", "1 repeated"),
        ("attributes.txt", "has_bill_shape::dagger", "has_bill_shape::Säbel", "Säbel"),
    ],
)
def test_a_broken_text_file_is_named(copy, file, old, new, message):
    edit(copy / file, old, new)
    with pytest.raises(DatasetFileError, match=message) as caught:
        load(copy, selection="published")
    assert file.rpartition("/")[2] in str(caught.value)
    assert "concept-audit fetch data=cub" in str(caught.value)


def test_absent_attribute_files_are_named(copy):
    (copy / LABELS).unlink()
    with pytest.raises(DatasetFileError, match=r"image_attribute_labels\.txt.*found no file"):
        load(copy)
    (copy / "attributes.txt").unlink()
    with pytest.raises(DatasetFileError, match=r"attributes\.txt beside CUB_200_2011/"):
        load(copy)


def test_attribute_names_may_lie_in_any_of_the_usual_places(copy):
    (copy / "attributes.txt").rename(copy / "CUB_200_2011" / "attributes" / "attributes.txt")
    assert read_tables(copy).attribute_names == ATTRIBUTE_NAMES


def test_bad_pictures_are_named(copy):
    picture = next((copy / "CUB_200_2011" / "images").rglob("*.jpg"))
    whole = picture.read_bytes()
    picture.write_bytes(whole[:200])
    with pytest.raises(DatasetFileError, match="expected a whole image") as caught:
        load(copy)
    assert picture.name in str(caught.value)
    assert not list((copy.parent.parent / "processed").rglob("*.npy"))
    picture.write_text("<html>")
    with pytest.raises(DatasetFileError, match="expected a whole image"):
        load(copy)
    Image.new("L", (9000, 8000)).save(picture)
    with pytest.raises(DatasetFileError, match="found 9000 x 8000"):
        load(copy)
    picture.unlink()
    with pytest.raises(
        DatasetFileError, match="expected an image that the index lists, found no file"
    ):
        load(copy)
