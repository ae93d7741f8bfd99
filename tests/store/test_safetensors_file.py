"""Bundles larger than memory: the library's bytes, written by blocks and mapped."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from concept_audit.store import bundle as bundle_module
from concept_audit.store.array_blocks import ArrayBlocks
from concept_audit.store.bundle import BundleError, read_bundle, write_bundle
from concept_audit.store.safetensors_file import write_safetensors

KINDS = ["b1", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"]


def blocks_of(array: np.ndarray, rows: int = 3) -> ArrayBlocks:
    return ArrayBlocks(
        array.shape,
        array.dtype,
        lambda: (array[start : start + rows] for start in range(0, len(array), rows)),
    )


@pytest.mark.parametrize("text", ["{}", '{"a": "é \\u00e9 / \\" \x01", "b": [1, 2]}'])
def test_the_bytes_are_those_of_the_library(tmp_path: Path, text: str):
    rng = np.random.default_rng(0)
    arrays = {
        f"{letter}_{kind}": rng.integers(0, 2, (7, columns)).astype(kind)
        for columns, letter in enumerate("abc")  # one without columns
        for kind in KINDS
    }
    write_safetensors(tmp_path / "ours", arrays, {"key": text})
    assert (tmp_path / "ours").read_bytes() == save(arrays, metadata={"key": text})
    lazy = {name: blocks_of(array) for name, array in reversed(arrays.items())}
    write_safetensors(tmp_path / "lazy", lazy, {"key": text})
    assert (tmp_path / "lazy").read_bytes() == (tmp_path / "ours").read_bytes()


def test_layout_and_byte_order_do_not_matter(tmp_path: Path):
    codes = np.arange(24.0).reshape(4, 6)
    odd = {"codes": codes.astype(">f8"), "c_hat": np.asfortranarray(codes), "c_mix": codes[::-1]}
    write_safetensors(tmp_path / "odd", odd, {})
    read = load_file(tmp_path / "odd")
    np.testing.assert_array_equal(read["codes"], codes)
    np.testing.assert_array_equal(read["c_hat"], codes)
    np.testing.assert_array_equal(read["c_mix"], codes[::-1])


def test_a_kind_that_the_format_lacks_is_named(tmp_path: Path):
    with pytest.raises(TypeError, match=r"codes has dtype complex128.*astype"):
        write_safetensors(tmp_path / "b", {"codes": np.zeros((2, 2), complex)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_of_blocks_equals_that_of_arrays(tmp_path: Path):
    codes = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    index = np.arange(10)
    one = write_bundle(tmp_path / "a.safetensors", {"index": index, "codes": codes}, {"s": "val"})
    lazy = {"index": index, "codes": blocks_of(codes)}
    assert write_bundle(tmp_path / "b.safetensors", lazy, {"s": "val"}) == one
    np.testing.assert_array_equal(np.asarray(blocks_of(codes)), codes)


GOOD = np.ones((6, 2), np.float32)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([GOOD[:4]], r"b: codes: the blocks must add up to 6 rows, got 4"),
        ([GOOD, GOOD[:1]], r"block from row 6: the blocks must add up to 6 rows, got 7"),
        ([GOOD[:3], GOOD[3:, :1]], r"block from row 3: must hold rows of shape \(2,\).*\(1,\)"),
        ([GOOD.astype(float)], "dtype float32, got .* float64"),
        ([GOOD[:3], GOOD[3:] * np.nan], "from row 3 must be finite, got 6 NaN"),
    ],
)
def test_blocks_that_break_their_promise_leave_no_file(tmp_path: Path, blocks, message: str):
    source = ArrayBlocks((6, 2), np.dtype(np.float32), lambda: iter(blocks))
    with pytest.raises(BundleError, match=message.replace("b:", r"b\.safetensors:")):
        write_bundle(tmp_path / "b.safetensors", {"codes": source}, {})
    assert list(tmp_path.iterdir()) == []


def test_blocks_must_agree_with_the_other_arrays(tmp_path: Path):
    with pytest.raises(BundleError, match="must agree on n, got"):
        write_bundle(tmp_path / "b.safetensors", {"y": np.arange(5), "codes": blocks_of(GOOD)}, {})


def test_an_error_while_a_block_is_made_keeps_the_old_file(tmp_path: Path):
    path = tmp_path / "b.safetensors"
    before = write_bundle(path, {"codes": GOOD}, {})

    def broken():
        yield GOOD[:3]
        raise OSError("the image file is gone")

    with pytest.raises(OSError, match="image file is gone"):
        write_bundle(path, {"codes": ArrayBlocks((6, 2), GOOD.dtype, broken)}, {})
    assert [item.name for item in tmp_path.iterdir()] == ["b.safetensors"]
    assert write_bundle(tmp_path / "again.safetensors", {"codes": GOOD}, {}) == before


def test_memory_is_that_of_a_block_not_of_the_array(tmp_path: Path, monkeypatch):
    n, width, rows = 4096, 4096, 256  # 64 MiB in blocks of 4 MiB
    source = ArrayBlocks(
        (n, width),
        np.dtype(np.float32),
        lambda: (np.full((rows, width), start, np.float32) for start in range(0, n, rows)),
    )
    path = tmp_path / "b.safetensors"
    tracemalloc.start()
    write_bundle(path, {"index": np.arange(n), "codes": source}, {})
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    monkeypatch.setattr(bundle_module, "_MEMORY_BYTES", 1 << 20)
    bundle = read_bundle(path)
    last = bundle["codes"][-1].copy()
    read = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written < 4 * rows * width * 4  # a block, its mask of finite values, the next block
    assert read < 1 << 20
    assert isinstance(bundle["codes"], np.memmap)
    assert not bundle["codes"].flags.writeable
    assert not isinstance(bundle["index"], np.memmap)
    np.testing.assert_array_equal(last, np.full(width, n - rows))
    np.testing.assert_array_equal(load_file(path)["codes"], bundle["codes"])
