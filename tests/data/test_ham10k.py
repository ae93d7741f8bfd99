"""HAM10000: lesion split, the concept file's schema, official layouts, broken files."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest

from concept_audit.data.files import DatasetFileError, DatasetMissingError
from concept_audit.data.ham10k import CONCEPT_NAMES, _splits, ham10k, read_concepts, read_metadata
from concept_audit.data.standins import ham10k as standin
from concept_audit.data.standins.ham10k import write_miniature


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ham") / "raw" / "ham10k"
    folder.mkdir(parents=True)
    write_miniature(folder, n_lesions=30, size=(48, 36))
    return folder


@pytest.fixture
def copy(official, tmp_path):
    """A copy to break."""
    return shutil.copytree(official, tmp_path / "raw" / "ham10k")


def load(folder, **options):
    return ham10k(data_dir=folder.parent.parent, **{"image_size": 24, **options})


def rows_of(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def rewrite(path, change):
    rows = change(rows_of(path))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_eighteen_concepts_and_the_lesion_split(official):
    data = load(official)
    assert data.n_concepts == 18
    assert data.concept_names == CONCEPT_NAMES
    assert data.class_names == ("benign", "malignant")
    assert data.x.shape[1:] == (24, 24, 3)
    lesion = {
        row["image_id"]: row["lesion_id"] for row in rows_of(official / "HAM10000_metadata.csv")
    }
    order = [row["image_id"] for row in rows_of(official / "concepts.csv")]
    parts = [{lesion[order[i]] for i in rows} for rows in data.splits.values()]
    assert len(order) > len(set(lesion.values()))  # several images show one lesion
    assert not (parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2])
    assert sum(map(len, data.splits.values())) == data.n_samples


def test_a_split_by_image_lets_lesions_fall_apart():
    lesions = [f"L{i // 3}" for i in range(3000)]
    for by, overlap in (("lesion", False), ("image", True)):
        splits = _splits(lesions, by, 0)
        sizes = {name: len(rows) / 3000 for name, rows in splits.items()}
        assert sizes["test"] == pytest.approx(0.2, abs=0.01)
        assert sizes["val"] == pytest.approx(0.1, abs=0.01)
        train, test = ({lesions[i] for i in splits[name]} for name in ("train", "test"))
        assert bool(train & test) == overlap


def test_images_are_found_in_either_layout(copy):
    before = load(copy)
    (copy / "images").mkdir()
    for part in (1, 2):
        for path in (copy / f"HAM10000_images_part_{part}").iterdir():
            path.rename(copy / "images" / path.name)
        (copy / f"HAM10000_images_part_{part}").rmdir()
    np.testing.assert_array_equal(load(copy).x, before.x)


def test_without_concept_file_there_are_task_labels_only(copy):
    annotated = load(copy)
    (copy / "concepts.csv").unlink()
    data = load(copy)
    assert data.n_concepts == 0
    assert "task labels only" in data.notes[0]
    np.testing.assert_array_equal(data.y, annotated.y)
    with pytest.raises(
        DatasetFileError, match="expected a CSV of concept annotations, found no file"
    ):
        load(copy, concept_file=copy / "mine.csv")


def test_the_variant_without_dataset_column_is_read(copy):
    rewrite(
        copy / "HAM10000_metadata.csv",
        lambda rows: [{k: v for k, v in row.items() if k != "dataset"} for row in rows],
    )
    assert load(copy).n_concepts == 18


def test_other_concepts_and_subsets_are_chosen_by_name_and_number(official):
    named = load(official, concept_names=["GP", "TRBL"])
    assert named.concept_names == ("GP", "TRBL")
    fewer = load(official, n_concepts=7)
    assert fewer.n_concepts == 7
    assert fewer.name == "ham10k_incomplete"
    with pytest.raises(ValueError, match=r"n_concepts must be 1\.\.18"):
        load(official, n_concepts=19)
    with pytest.raises(ValueError, match="Did you mean 'lesion'"):
        load(official, split_by="lesions")
    assert load(official, max_samples=15).n_samples == 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: [{k: v for k, v in x.items() if k != "GP"} for x in r], r"missing \['GP'\]"),
        (
            lambda r: [{**r[0], "GP": ""}, *r[1:]],
            "expected 0 or 1 in column 'GP', found '' in line 2",
        ),
        (lambda r: [{**r[0], "GP": "nan"}, *r[1:]], "found 'nan' in line 2"),
        (lambda r: [{**r[0], "GP": "2"}, *r[1:]], "found '2' in line 2"),
        (lambda r: [{**r[0], "benign_malignant": "böse"}, *r[1:]], "found 'böse' in line 2"),
        (lambda r: [r[0], *r], "found 'ISIC_0024306' in line 3"),
        (lambda r: [{**r[0], "image_id": "../x"}, *r[1:]], r"found '\.\./x' in line 2"),
        (lambda r: [{**r[0], "image_id": "ISIC_9"}, *r[1:]], "1 others, for example 'ISIC_9'"),
    ],
)
def test_a_wrong_concept_file_is_named_with_line_and_schema(copy, change, message):
    rewrite(copy / "concepts.csv", change)
    with pytest.raises(DatasetFileError, match=message) as caught:
        load(copy)
    assert "concepts.csv" in str(caught.value)
    assert "one column of 0 and 1 per concept" in str(caught.value)


def test_numbers_may_be_written_as_floats_or_words(copy):
    expected = read_concepts(copy / "concepts.csv")
    words = {"0": "False", "1": "1.0"}
    rewrite(
        copy / "concepts.csv",
        lambda rows: [{k: words.get(v, v) for k, v in r.items()} for r in rows],
    )
    for ours, theirs in zip(read_concepts(copy / "concepts.csv"), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_wrong_metadata_and_missing_images_are_named(copy, tmp_path):
    metadata = copy / "HAM10000_metadata.csv"
    text = metadata.read_text()
    metadata.write_text(text.replace(",nv,", ",mole,", 1))
    with pytest.raises(DatasetFileError, match=r"expected dx among .*'mole' in line"):
        read_metadata(metadata)
    metadata.write_text(text.replace("lesion_id", "lesion"))
    with pytest.raises(DatasetFileError, match=r"missing \['lesion_id'\]"):
        read_metadata(metadata)
    metadata.write_text(text.splitlines()[0] + "\n")
    with pytest.raises(DatasetFileError, match="expected at least one row"):
        read_metadata(metadata)
    metadata.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetFileError, match="damage"):
        read_metadata(metadata)
    metadata.write_text(text)
    (copy / "HAM10000_images_part_2" / "ISIC_0024307.jpg").unlink()
    with pytest.raises(DatasetFileError, match=r"1 missing, for example ISIC_0024307\.jpg"):
        load(copy)
    with pytest.raises(DatasetMissingError, match="data=ham10k_standin"):
        ham10k(data_dir=tmp_path / "empty")


def test_stand_in_draws_itself_once(tmp_path, monkeypatch):
    tiny = {"n_lesions": 12, "size": (40, 30), "seed": 0}
    monkeypatch.setattr(standin.write_miniature, "__kwdefaults__", tiny)
    first = ham10k(data_dir=tmp_path, standin=True, image_size=24)
    assert first.standin
    assert first.name == "ham10k_standin"
    again = ham10k(data_dir=tmp_path, standin=True, image_size=24)
    assert first.fingerprint() == again.fingerprint()
    metadata = next(tmp_path.rglob("HAM10000_metadata.csv"))
    assert rows_of(metadata)[0]["age"] == ""
