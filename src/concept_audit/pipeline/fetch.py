"""`concept-audit fetch data=<name>`: official files into the data folder, checked and unpacked."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from concept_audit.data.archives import ArchiveError
from concept_audit.data.fetch import FetchError, fetch, load_sources

__all__ = ["main"]

_USAGE = """\
concept-audit fetch data=<name> [data_dir=data]

Downloads the official files of a dataset (or weights), compares size and hash, unpacks archives,
and prints licence and citation. A cut download goes on where it stopped.
"""
_DRAWN = ("tabulartoy",)  # made by the program, nothing to fetch


class _Bar:
    """One line of progress on standard error, a few times a second, only on a terminal."""

    def __init__(self) -> None:
        self._last = 0.0
        self._shown = False

    def __call__(self, name: str, received: int, total: int | None) -> None:
        now = time.monotonic()
        finished = total is not None and received >= total
        if not sys.stderr.isatty() or (now - self._last < 0.2 and not finished):
            return
        self._last, self._shown = now, True
        of = f" of {total / 1e6:.1f} MB ({100 * received / total:.0f} %)" if total else " MB"
        print(f"\r{name}  {received / 1e6:.1f}{of}   ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown:
            print(file=sys.stderr)


def _arguments(argv: Sequence[str]) -> dict[str, str]:
    values = {"data_dir": "data"}
    for argument in argv:
        name, equals, value = argument.partition("=")
        name = name.removeprefix("paths.")
        if not equals or name not in ("data", "data_dir") or not value:
            raise ValueError(
                f"Cannot read {argument!r}: write data=<name> and, if needed, data_dir=<folder>."
            )
        values[name] = value
    if "data" not in values:
        raise ValueError("Say what to fetch: data=<name>.")
    return values


def _source_key(name: str, known: Sequence[str]) -> str:
    """Source of a data config: `dsprites_g4` and `dsprites_full` read the files of dsprites."""
    matching = [key for key in known if name == key or name.startswith(f"{key}_")]
    return max(matching, key=len) if matching else name


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    argv : arguments after ``fetch``, for example ``["data=dsprites"]``

    Returns
    -------
    0 when everything is there, 1 when a file could not be had, 2 when the arguments make no sense.
    """
    sources = load_sources()
    if not argv or argv[0] in ("-h", "--help"):
        print(_USAGE)
        for key, source in sources.items():
            print(f"  {key:<10} {source.title}  [{source.licence}]")
        return 0 if argv else 2
    try:
        values = _arguments(argv)
        name = values["data"]
        if name.endswith("_standin") or name.startswith(_DRAWN):
            print(f"{name} is drawn by the program: there is nothing to fetch.")
            return 0
        key = _source_key(name, list(sources))
        if key in sources:
            source = sources[key]
            print(f"{source.title}\n  licence: {source.licence}\n  cite: {source.citation}")
        bar = _Bar()
        try:
            fetched = fetch(key, values["data_dir"], progress=bar)
        finally:
            bar.close()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, ArchiveError) else 2
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    for file in fetched:
        state = "was there" if file.was_there else "fetched"
        print(f"  {state}: {file.path}  {file.size} bytes  sha256 {file.sha256}")
    return 0
