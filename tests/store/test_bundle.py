"""Bundles go round unchanged; what does not fit the schema is refused by name."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from concept_audit.store.bundle import BundleError, read_bundle, write_bundle

N, K, M, CLASSES = 6, 3, 4, 2


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "c_hat": rng.random((N, K)).astype(np.float32),
        "c": rng.integers(0, 2, (N, K)),
        "y": rng.integers(0, CLASSES, N),
        "index": np.arange(N),
        "y_logits": rng.normal(size=(N, CLASSES)),
        "c_pos": rng.normal(size=(N, K, M)).astype(np.float16),
    }


METADATA = {"concept_names": ["a", "b", "ç"], "split": "test", "run_key": "k"}


def test_round_trip(tmp_path: Path, arrays):
    path = tmp_path / "bundle_test.safetensors"
    first = write_bundle(path, arrays, METADATA)
    bundle = read_bundle(path, required=["c_hat", "y"])
    assert set(bundle.arrays) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(bundle[name], array)
        assert bundle[name].dtype == array.dtype
    assert bundle.metadata == {**METADATA, "schema_version": 1}
    assert (bundle.n_samples, bundle.ignored) == (N, ())
    assert "c_pos" in bundle
    assert "codes" not in bundle
    # The order of the call does not move a byte.
    other = dict(reversed(METADATA.items()))
    again = write_bundle(tmp_path / "b.safetensors", dict(reversed(arrays.items())), other)
    assert again == first


def test_views_and_torch_like_layouts_keep_their_values(tmp_path: Path):
    codes = np.arange(12.0).reshape(3, 4).T  # not contiguous
    write_bundle(tmp_path / "b.safetensors", {"codes": codes}, {})
    np.testing.assert_array_equal(read_bundle(tmp_path / "b.safetensors")["codes"], codes)


def test_only_the_named_arrays_are_read(tmp_path: Path, arrays):
    write_bundle(tmp_path / "b.safetensors", arrays, {})
    assert set(read_bundle(tmp_path / "b.safetensors", names=["y", "c"]).arrays) == {"y", "c"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c_hatt": np.zeros((N, K))}, r"'c_hatt' \(did you mean 'c_hat'\?\)"),
        ({"c_hat": np.zeros((N, K, 1))}, r"c_hat must have shape \(n, k\), got \(6, 3, 1\)"),
        ({"c_hat": np.zeros((N, K + 1))}, "must agree on k, got"),
        ({"y": np.zeros(N - 1, dtype=int)}, "must agree on n, got"),
        ({"y": np.zeros(N)}, "y must hold integers, got dtype float64"),
    ],
)
def test_wrong_arrays_are_refused_on_writing(tmp_path: Path, arrays, change, message: str):
    with pytest.raises(BundleError, match=message):
        write_bundle(tmp_path / "b.safetensors", {**arrays, **change}, {})
    assert list(tmp_path.iterdir()) == []


def test_an_object_array_is_refused_on_writing(tmp_path: Path):
    with pytest.raises(TypeError, match="codes must hold numbers"):
        write_bundle(tmp_path / "b.safetensors", {"codes": np.array([["a"]], dtype=object)}, {})


def test_no_arrays_are_refused(tmp_path: Path):
    with pytest.raises(BundleError, match="got no arrays"):
        write_bundle(tmp_path / "b.safetensors", {}, {})


def test_missing_and_unknown_names_are_listed(tmp_path: Path, arrays):
    path = tmp_path / "p.npz"
    np.savez(path, c=arrays["c"], chat=arrays["c_hat"])
    with pytest.raises(BundleError, match=r"c_hat missing.*'chat' \(did you mean 'c_hat'\?\)"):
        read_bundle(path, required=["c_hat", "c"])
    with pytest.raises(BundleError, match=r"names must be among .*'c_hta'"):
        read_bundle(path, names=["c_hta"])
    np.savez(path, x=np.zeros(3))
    with pytest.raises(BundleError, match=r"looked for arrays named .* found 'x'"):
        read_bundle(path)


def test_a_users_npz_with_names_is_read(tmp_path: Path, arrays):
    path = tmp_path / "p.npz"
    np.savez(path, **arrays, concept_names=np.array(["a", "b", "ç"]), x=np.zeros((2, 2)))
    bundle = read_bundle(path)
    assert set(bundle.arrays) == set(arrays)
    assert bundle.metadata == {"concept_names": ["a", "b", "ç"]}
    assert bundle.ignored == ("x",)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_an_object_array_in_an_npz_is_never_opened(tmp_path: Path, arrays):
    trap = tmp_path / "trap"
    bomb = np.empty((), dtype=object)
    bomb[()] = Bomb(trap)
    np.savez(tmp_path / "extra.npz", **arrays, metadata=bomb)
    assert read_bundle(tmp_path / "extra.npz").ignored == ("metadata",)
    np.savez(tmp_path / "known.npz", y=arrays["y"], c_hat=bomb)
    with pytest.raises(BundleError, match="c_hat is an object array, which could hide code"):
        read_bundle(tmp_path / "known.npz")
    assert not trap.exists()
    pickle.loads(pickle.dumps(Bomb(trap)))
    assert trap.exists()  # the trap works where somebody steps on it


@pytest.mark.parametrize("name", ["b.safetensors", "b.npz"])
def test_a_damaged_file_is_reported(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"<html>not found</html>" * 10)
    with pytest.raises(BundleError, match="is no readable"):
        read_bundle(tmp_path / name)


def test_a_truncated_bundle_is_reported(tmp_path: Path, arrays):
    path = tmp_path / "b.safetensors"
    write_bundle(path, arrays, {})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BundleError, match=r"Delete .*b\.safetensors and run again"):
        read_bundle(path)


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no bundle at"):
        read_bundle(tmp_path / "none.npz")
    (tmp_path / "b.pkl").write_bytes(b"")
    with pytest.raises(BundleError, match=r"got suffix '\.pkl'"):
        read_bundle(tmp_path / "b.pkl")


def test_a_bundle_of_a_later_version_is_refused(tmp_path: Path):
    from safetensors.numpy import save_file

    text = json.dumps({"schema_version": 99})
    save_file({"y": np.zeros(2, dtype=int)}, tmp_path / "b.safetensors", {"concept_audit": text})
    with pytest.raises(BundleError, match=r"schema version 99.*Update concept-audit"):
        read_bundle(tmp_path / "b.safetensors")
