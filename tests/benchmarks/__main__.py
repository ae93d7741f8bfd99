"""Run every `bench_*.py` here and rewrite the table: `python tests/benchmarks [--quick]`.

Each file offers `run(quick) -> list[dict]` with the keys work, peer, must, aim, ratio, ours_ms,
peer_ms, sizes, equal, and where a row stays below its must a note that says why. Only ratios inside
one run mean anything. `--only NAME` runs one file and leaves the table alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any numerical library is loaded

FOLDER = Path(__file__).parent


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def verdict(row: dict[str, Any]) -> str:
    if row["must"] is None:
        return ""
    if row["ratio"] < row["must"]:
        return "below must"
    return (
        "aim reached" if row["aim"] is not None and row["ratio"] >= row["aim"] else "must reached"
    )


def as_table(rows: list[dict[str, Any]]) -> str:
    head = [
        "work",
        "sizes",
        "peer",
        "ours_ms",
        "peer_ms",
        "ratio",
        "must",
        "aim",
        "equal_values",
        "reached",
        "note",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append(
            f"| {row['work']} | {row['sizes']} | {row['peer']} | {number(row['ours_ms'])} "
            f"| {number(row['peer_ms'])} | {number(row['ratio'])}x | {number(row['must'])} "
            f"| {number(row['aim'])} | {row['equal']} | {verdict(row)} "
            f"| {row.get('note', '')} |"
        )
    return "\n".join(lines)


def processor() -> str:
    """Model name of the processor where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, no table written")
    parser.add_argument("--only", help="name of one file, without bench_")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for path in sorted(FOLDER.glob("bench_*.py")):
        if options.only in (None, path.stem.removeprefix("bench_")):
            print(f"{path.stem} ...", file=sys.stderr, flush=True)
            rows += load(path).run(options.quick)
    if not rows:
        print(f"no bench_{options.only}.py in {FOLDER}", file=sys.stderr)
        return 2
    table = as_table(rows)
    print(table)
    if not options.quick and options.only is None:
        (FOLDER / "README.md").write_text(
            "# Measured against the named peers\n\n"
            "Rewritten by `make bench` (`python tests/benchmarks`). One thread, medians of at "
            "least five where not stated, both sides in the same run: quote ratios, not times. "
            "Information estimators by processor time, two cores by the clock on the wall.\n\n"
            f"{table}\n\n"
            f"{processor()}, Python {platform.python_version()}, "
            f"{time.strftime('%Y-%m-%d')}, {time.perf_counter() - start:.0f} s.\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
