"""Pictures decoded once and kept: until one is replaced, whole or not at all, for two at once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from concept_audit.data.image_files import ImageFiles, decoded_images


@pytest.fixture
def pictures(tmp_path) -> tuple[ImageFiles, Path]:
    draw = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.jpg" for number in range(6)]
    for path in paths:
        Image.fromarray(draw.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    return ImageFiles(paths, size=16, remedy="Fetch again."), tmp_path / "kept"


def test_decoded_pictures_are_kept_until_one_is_replaced(pictures, monkeypatch):
    files, folder = pictures
    first = decoded_images(files, folder, keep=True)
    np.testing.assert_array_equal(first, files[np.arange(len(files))])
    with monkeypatch.context() as patched:
        patched.setattr(ImageFiles, "_read", lambda self, path: pytest.fail("decoded again"))
        np.testing.assert_array_equal(decoded_images(files, folder, keep=True), first)
    content = files.paths[1].read_bytes()
    shutil.copy(files.paths[0], files.paths[1])  # another picture, padded to the same size
    longer = max(len(content), files.paths[1].stat().st_size)
    files.paths[1].write_bytes(files.paths[1].read_bytes().ljust(longer, b"\0"))
    np.testing.assert_array_equal(decoded_images(files, folder, keep=True)[1], first[0])


def test_a_damaged_array_of_decoded_pictures_is_made_again(pictures):
    files, folder = pictures
    first = decoded_images(files, folder, keep=True).copy()
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    np.testing.assert_array_equal(decoded_images(files, folder, keep=True), first)


def test_an_interrupted_decoding_leaves_nothing(pictures, monkeypatch):
    files, folder = pictures
    real, seen = ImageFiles._read, []

    def interrupted(self, path):
        seen.append(path)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return real(self, path)

    monkeypatch.setattr(ImageFiles, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decoded_images(files, folder, keep=True)
    assert not list(folder.iterdir())


def test_two_at_once_decode_without_harm(pictures, monkeypatch):
    files, folder = pictures
    both = threading.Barrier(2)
    real = ImageFiles._read

    def together(self, path):
        if path == files.paths[0]:
            both.wait(timeout=30)  # neither has written anything yet
        return real(self, path)

    monkeypatch.setattr(ImageFiles, "_read", together)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(decoded_images(files, folder, keep=True)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(*found)
    assert len(list(folder.iterdir())) == 1
