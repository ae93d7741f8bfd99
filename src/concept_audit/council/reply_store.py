"""Every reply of every judge, kept for good: a rerun makes no call, a killed run repeats none.

One append-only file of JSON lines. A line is written by a single system call, so killing the
process loses none; the file is flushed to the disk about once a second, so a power cut loses
little. A line cut off by a crash is skipped when the file is read and closed before the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from concept_audit.council.judges.base import JudgeIdentity, JudgeRequest, Reply

__all__ = ["ReplyStore", "reply_key"]

_FLUSH_SECONDS = 1.0


def reply_key(identity: JudgeIdentity, request: JudgeRequest) -> str:
    """Hash of all that may change a reply: judge, revision, settings, prompt and image."""
    content: dict[str, Any] = {
        "judge": identity.record(),
        "prompt": request.prompt.sha256,
        "image": request.image.sha256 if request.image else None,
        "constrained": request.constrained,
        "max_new_tokens": request.max_new_tokens,
        "scale_max": request.scale_max,
    }
    if identity.reads_items:
        content["items"] = [[item.dataset, item.image_id, item.model] for item in request.items]
        content["attempt"] = request.attempt
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class ReplyStore:
    """Append-only file of replies.

    Parameters
    ----------
    path : the file; its folder is made. It may be read while another process appends to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.n_damaged = 0
        self._records: dict[str, dict[str, Any]] = {}
        self._descriptor: int | None = None
        self._flushed = time.monotonic()
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        for line in self.path.read_bytes().split(b"\n"):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                self._records[record["key"]] = record
            except (ValueError, KeyError, TypeError):
                self.n_damaged += 1  # cut off by a crash: its call is made again

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._records.values())

    def get(self, key: str) -> tuple[Reply, dict[str, Any]] | None:
        """Reply under a key with its whole record, or None."""
        record = self._records.get(key)
        if record is None:
            return None
        return Reply(record["text"], record["truncated"], record["seconds"]), record

    def put(self, key: str, reply: Reply, **record: Any) -> dict[str, Any]:
        """Append a reply; returns the record."""
        full = {
            "key": key,
            "text": reply.text,
            "truncated": reply.truncated,
            "seconds": round(reply.seconds, 6),
            **record,
        }
        # ASCII, so that lone surrogates and line separators of a model's text survive.
        line = json.dumps(full, sort_keys=True, ensure_ascii=True).encode() + b"\n"
        descriptor = self._open()
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"{self.path}: wrote {written} of {len(line)} bytes; is the disk full?")
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()
        self._records[key] = full
        return full

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")  # close a line that a crash cut off
        return self._descriptor

    def _flush(self) -> None:
        if self._descriptor is not None:
            os.fsync(self._descriptor)
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close the file."""
        if self._descriptor is not None:
            self._flush()
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> ReplyStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
