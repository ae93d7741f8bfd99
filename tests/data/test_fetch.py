"""Fetching against a server on this machine: redirects, cuts, lies and hostile archives."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from concept_audit.data.archives import ArchiveError, unpack
from concept_audit.data.fetch import (
    FetchError,
    RemoteFile,
    Source,
    fetch,
    fetch_file,
    file_hashes,
    load_sources,
)
from concept_audit.pipeline import fetch as command
from concept_audit.store.locks import held_lock

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Behaves by path; `cuts` counts the connections that still end half-way."""

    def log_message(self, *args):
        pass

    def _send(self, body, status=200, *, announced=None, etag='"one"', extra=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        if etag:
            self.send_header("ETag", etag)
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        state = self.server.state
        state["requests"].append((self.path, self.headers.get("Range")))
        if self.path == "/redirect":
            self._send(b"", 302, extra=[("Location", "/file")])
        elif self.path == "/redirect-ftp":
            self._send(b"", 302, extra=[("Location", "ftp://127.0.0.1/file")])
        elif self.path == "/loop":
            self._send(b"", 302, extra=[("Location", "/loop")])
        elif self.path == "/missing":
            self._send(b"no such page", 404)
        elif self.path == "/broken":
            self._send(b"", 503)
        elif self.path == "/html":
            self._send(b"\n<!DOCTYPE html><html><body>We have moved</body></html>")
        elif self.path == "/wrong":
            self._send(CONTENT[:-1] + b"x")
        elif self.path == "/endless":
            self._send(CONTENT * 2, announced=None)
        elif self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
            self.wfile.flush()
            state["release"].wait(5)
        elif self.path == "/archive":
            self._send(state["archive"])
        elif self.path in ("/file", "/cut", "/changed", "/no-range"):
            self._ranged(state)

    def _ranged(self, state):
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        etag = '"two"' if self.path == "/changed" and asked else '"one"'
        if asked and self.headers.get("If-Range") not in (None, etag):
            start, asked = 0, None  # the file changed: all of it again
        if self.path == "/no-range":
            start, asked = 0, None
        body = CONTENT[start:]
        announced = len(body)
        if self.path != "/file" and state["cuts"] > 0:
            state["cuts"] -= 1
            body = body[: len(body) // 3]
        extra = (
            [("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")] if asked else []
        )
        self._send(body, 206 if asked else 200, announced=announced, etag=etag, extra=extra)


@pytest.fixture
def server():
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.state = {"cuts": 0, "requests": [], "release": threading.Event(), "archive": b""}
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    httpd.base = f"http://127.0.0.1:{httpd.server_address[1]}"
    yield httpd
    httpd.state["release"].set()
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def remote(server, *paths, **options):
    urls = tuple(server.base + path for path in paths)
    return RemoteFile(name="data.bin", urls=urls, **{"md5": MD5, "size": len(CONTENT), **options})


def test_a_file_is_fetched_checked_and_not_fetched_again(server, tmp_path):
    seen = []
    progress = lambda *args: seen.append(args)  # noqa: E731
    first = fetch_file(remote(server, "/file"), tmp_path, progress=progress)
    assert first.path.read_bytes() == CONTENT
    assert first.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert not first.was_there
    assert seen[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    assert fetch_file(remote(server, "/file"), tmp_path).was_there
    assert len(server.state["requests"]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_redirects_are_followed_on_http_only(server, tmp_path):
    assert fetch_file(remote(server, "/redirect"), tmp_path).path.read_bytes() == CONTENT
    with pytest.raises(FetchError, match="redirect to another protocol"):
        fetch_file(remote(server, "/redirect-ftp"), tmp_path / "b")
    with pytest.raises(FetchError, match="redirect"):
        fetch_file(remote(server, "/loop"), tmp_path / "c")
    with pytest.raises(ValueError, match="urls must be http or https, got 'file:///etc/passwd'"):
        fetch_file(RemoteFile("x", urls=("file:///etc/passwd",)), tmp_path)


def test_mirrors_are_tried_in_order_and_404_is_not_repeated(server, tmp_path):
    paths = ("/missing", "/broken", "/html", "/wrong", "/file")
    assert fetch_file(remote(server, *paths, size=None), tmp_path).path.read_bytes() == CONTENT
    asked = [path for path, _ in server.state["requests"]]
    assert asked == ["/missing", "/broken", "/broken", "/broken", "/html", "/wrong", "/file"]


def test_a_cut_connection_is_resumed(server, tmp_path):
    server.state["cuts"] = 2
    done = fetch_file(remote(server, "/cut"), tmp_path)
    assert done.path.read_bytes() == CONTENT
    ranges = [span for _, span in server.state["requests"]]
    assert ranges[0] is None
    assert ranges[1] == f"bytes={len(CONTENT) // 3}-"
    assert len(ranges) == 3


def test_a_later_call_goes_on_where_the_last_one_stopped(server, tmp_path):
    server.state["cuts"] = 1
    with pytest.raises(FetchError, match="the connection was cut after 170666 bytes"):
        fetch_file(remote(server, "/cut"), tmp_path, attempts=1)
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin.part"]
    assert fetch_file(remote(server, "/cut"), tmp_path).path.read_bytes() == CONTENT
    assert server.state["requests"][-1][1] == "bytes=170666-"


@pytest.mark.parametrize("path", ["/changed", "/no-range"])
def test_a_changed_file_or_a_server_without_ranges_starts_again(server, tmp_path, path):
    server.state["cuts"] = 1
    assert fetch_file(remote(server, path), tmp_path).path.read_bytes() == CONTENT


def test_a_stale_longer_part_does_not_block(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    assert fetch_file(remote(server, "/file"), tmp_path).path.read_bytes() == CONTENT


def test_a_silent_server_times_out(server, tmp_path):
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"(?i)timed? ?out"):
        fetch_file(remote(server, "/slow"), tmp_path, timeout_s=0.3, attempts=2)
    assert time.monotonic() - started < 4
    assert not (tmp_path / "data.bin").exists()


def test_a_dead_server_is_reported(tmp_path):
    with pytest.raises(FetchError, match="refused"):
        fetch_file(RemoteFile("x", urls=("http://127.0.0.1:9/x",)), tmp_path, attempts=1)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("/wrong", {}, f"expected MD5 {MD5}, found"),
        ("/wrong", {"md5": None, "sha256": "0" * 64}, "expected SHA-256 0000"),
        ("/file", {"md5": None, "sha256_start": "abcd"}, "beginning with abcd"),
        ("/html", {"size": None}, "found a web page"),
        ("/file", {"size": 100}, "expected at most 100 bytes, the server announces 512000"),
        ("/file", {"size": None, "max_size": 100}, "expected at most 100 bytes"),
        ("/file", {"size": 600000, "md5": None}, "expected bytes 600000, found 512000"),
        ("/missing", {}, "HTTP 404"),
    ],
)
def test_a_wrong_file_never_takes_the_final_name(server, tmp_path, path, options, message):
    with pytest.raises(FetchError, match=message):
        fetch_file(remote(server, path, **options), tmp_path)
    assert not (tmp_path / "data.bin").exists()


def test_a_tampered_file_is_named_and_replaced_only_by_a_right_one(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"tampered")
    with pytest.raises(
        FetchError, match="lies there is another one: expected bytes 512000, found 8"
    ):
        fetch_file(remote(server, "/missing"), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"tampered"
    assert not fetch_file(remote(server, "/file"), tmp_path).was_there


def zip_bytes(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_bytes(members, *, links=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, kind, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("zip", zip_bytes([("../evil", b"x")]), r"'\.\./evil' points outside"),
        ("zip", zip_bytes([("a/../../evil", b"x")]), "points outside"),
        ("zip", zip_bytes([("/etc/evil", b"x")]), "points outside"),
        ("zip", zip_bytes([("C:\\evil", b"x")]), "points outside"),
        ("zip", zip_bytes([("bomb", b"\0" * 5_000_000)]), "unpacks to more than 1000000 bytes"),
        ("zip", b"PK\x03\x04 not a zip", "it is damaged"),
        ("zip", zip_bytes([("other", b"x")]), r"expected 'in/proof' inside, found \['other'\]"),
        ("tar.gz", tar_bytes([("../evil", b"x")]), "points outside"),
        (
            "tar.gz",
            tar_bytes([], links=[("l", tarfile.SYMTYPE, "/etc")]),
            "'l' is a link or a device",
        ),
        ("tar.gz", tar_bytes([], links=[("l", tarfile.LNKTYPE, "x")]), "is a link or a device"),
        ("tar.gz", tar_bytes([], links=[("d", tarfile.CHRTYPE, "")]), "is a link or a device"),
        ("tar.gz", tar_bytes([("a", b"1"), ("a", b"2")]), "'a' occurs twice"),
        ("tar.gz", tar_bytes([("a", b"1" * 100000)])[:120], "it is damaged"),
        ("tar.gz", b"<html>", "it is damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",  # its bytes hold the time
)
def test_hostile_and_broken_archives_leave_nothing(tmp_path, kind, content, message):
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    target = tmp_path / "inner" / "target"
    target.mkdir(parents=True)
    (target / "kept").write_text("old")
    with pytest.raises(ArchiveError, match=message) as caught:
        unpack(archive, target, kind=kind, max_bytes=1_000_000, proof="in/proof")
    assert "Nothing was unpacked" in str(caught.value)
    assert sorted(p.name for p in target.iterdir()) == ["kept"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["archive", "inner"]
    assert sorted(p.name for p in (tmp_path / "inner").iterdir()) == ["target"]


def test_a_zip_with_a_symbolic_link_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    path = tmp_path / "a.zip"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ArchiveError, match="'link' is a link or a device"):
        unpack(path, tmp_path / "t", kind="zip", max_bytes=100)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_good_archive_replaces_what_was_there(tmp_path, kind):
    members = [("in/proof", b"yes"), ("in/deep/er", b"1"), ("Übung.txt", b"2")]
    path = tmp_path / "archive"
    path.write_bytes(zip_bytes(members) if kind == "zip" else tar_bytes(members))
    (tmp_path / "t" / "in").mkdir(parents=True)
    (tmp_path / "t" / "in" / "stale").write_text("old")
    unpack(path, tmp_path / "t", kind=kind, max_bytes=100, proof="in/proof")
    found = sorted(
        str(p.relative_to(tmp_path / "t")) for p in (tmp_path / "t").rglob("*") if p.is_file()
    )
    assert found == ["in/deep/er", "in/proof", "Übung.txt"]


def source_of(server, archive, **options):
    server.state["archive"] = archive
    file = RemoteFile(
        "data.tar.gz",
        urls=(server.base + "/archive",),
        unpack="tar.gz",
        proof="in/proof",
        **options,
    )
    return {"toy": Source("toy", "Toy", "toy", "CC0", "Nobody, 2026.", "Write to us.", (file,))}


def test_fetch_unpacks_once_and_again_when_something_is_missing(server, tmp_path):
    sources = source_of(server, tar_bytes([("in/proof", b"yes")]))
    fetch("toy", tmp_path, sources=sources)
    proof = tmp_path / "raw" / "toy" / "in" / "proof"
    assert proof.read_text() == "yes"
    proof.write_text("edited")
    fetch("toy", tmp_path, sources=sources)
    assert proof.read_text() == "edited"  # not unpacked again
    proof.unlink()
    fetch("toy", tmp_path, sources=sources)
    assert proof.read_text() == "yes"
    assert len(server.state["requests"]) == 1


def test_fetch_explains_what_to_do_by_hand(server, tmp_path):
    sources = source_of(server, b"", md5="0" * 32)
    with pytest.raises(FetchError, match=r"By hand: Write to us\. Put the file into .*raw/toy"):
        fetch("toy", tmp_path, sources=sources)
    with pytest.raises(ValueError, match="Did you mean 'toy'"):
        fetch("toyy", tmp_path, sources=sources)
    with (
        held_lock(tmp_path / "raw" / "toy" / ".fetch.lock"),
        pytest.raises(FetchError, match="Another process is fetching toy"),
    ):
        fetch("toy", tmp_path, sources=sources)


def test_the_known_sources_are_complete():
    sources = load_sources()
    assert set(sources) == {
        "dsprites", "shapes3d", "mpi3d", "cars3d", "cub", "ham10k", "resnet18", "vit_b_16",
    }  # fmt: skip
    for source in sources.values():
        assert source.licence
        assert source.citation
        assert source.manual
        for file in source.files:
            assert file.md5 or file.sha256 or file.sha256_start
            assert Path(file.name).name == file.name
            assert all(url.startswith("http") for url in file.urls)


def test_hashes_are_those_of_the_content(tmp_path):
    (tmp_path / "f").write_bytes(CONTENT)
    assert file_hashes(tmp_path / "f") == {
        "md5": MD5, "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }  # fmt: skip


def test_the_command_prints_licence_hash_and_faults(server, tmp_path, monkeypatch, capsys):
    sources = source_of(server, tar_bytes([("in/proof", b"yes")]))
    monkeypatch.setattr(command, "load_sources", lambda: sources)
    monkeypatch.setattr(
        command, "fetch", lambda key, folder, progress: fetch(key, folder, sources=sources)
    )
    assert command.main(["data=toy_incomplete", f"paths.data_dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "licence: CC0" in out
    assert "cite: Nobody, 2026." in out
    assert "sha256 " in out
    assert command.main(["data=dsprites_g1_standin"]) == 0
    assert "nothing to fetch" in capsys.readouterr().out
    assert command.main(["data=nothing"]) == 2
    assert "data must be one of ['toy'], got 'nothing'" in capsys.readouterr().err
    assert command.main(["dsprites"]) == 2
    assert "write data=<name>" in capsys.readouterr().err
    assert command.main(["data_dir=x"]) == 2
    assert command.main([]) == 2
    assert command.main(["--help"]) == 0
    assert "toy" in capsys.readouterr().out


def test_the_command_sends_to_the_licence_page_where_a_click_is_needed(tmp_path, capsys):
    assert command.main(["data=ham10k", f"data_dir={tmp_path}"]) == 1
    err = capsys.readouterr().err
    assert "HAM10000_metadata.csv cannot be downloaded by a program" in err
    assert "accept the terms" in err
    (tmp_path / "raw" / "ham10k" / "HAM10000_metadata.csv").write_text("tampered")
    assert command.main(["data=ham10k", f"data_dir={tmp_path}"]) == 1
    assert "expected bytes 690218, found 8" in capsys.readouterr().err
