"""Provenance of a run: what was run, with which code, libraries and machine, and what came out."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from concept_audit.store.atomic import write_json

__all__ = [
    "environment",
    "finish_manifest",
    "git_state",
    "new_manifest",
    "read_manifest",
    "write_manifest",
]

MANIFEST_VERSION = 1
# Libraries whose version can move a number. The report warns when a table mixes them.
LIBRARIES = (
    "concept-audit",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "torch",
    "torchvision",
    "torchmetrics",
    "pytorch-lightning",
    "timm",
    "transformers",
    "sentence-transformers",
    "hydra-core",
    "safetensors",
    "pandas",
    "pyarrow",
)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: fall through to what Python knows
    return platform.processor() or platform.machine()


def _gpu_names() -> list[str]:
    """Names of the GPUs, if torch is loaded anyway."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    from concept_audit import __version__

    found = {"concept-audit": __version__}
    for library in LIBRARIES:
        try:
            found.setdefault(library, metadata.version(library))
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
    return found


def environment() -> dict[str, Any]:
    """Versions of Python and the libraries, and the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": dict(_versions()),
        "hardware": {
            "cpu": _cpu_name(),
            "cores": len(affinity(0)) if affinity else os.cpu_count(),
            "memory_gib": round(_memory_bytes() / 1024**3, 1),
            "gpus": _gpu_names(),
        },
    }


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@lru_cache(maxsize=8)
def git_state(folder: str | Path) -> dict[str, Any]:
    """Commit and whether tracked files differ from it; both None outside a git checkout."""
    outside = {"commit": None, "dirty": None}
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return outside  # no git, or no checkout
    return {"commit": commit.strip(), "dirty": bool(changes.strip())}


def _git(folder: str | Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout


def new_manifest(
    *,
    command: str | list[str],
    config: Mapping[str, Any],
    key_parts: Mapping[str, Any],
    seeds: Mapping[str, int],
    dataset_fingerprint: str,
    repository: str | Path | None = None,
) -> dict[str, Any]:
    """Start a manifest when a run starts.

    Parameters
    ----------
    command : what the user typed
    config : resolved config in plain containers
    key_parts : what the run key was computed from, the config aside
    seeds : name to seed
    dataset_fingerprint : of the data set's content
    repository : folder whose git commit is recorded; default: that of this package

    Returns
    -------
    dict to hand to `finish_manifest`.
    """
    folder = Path(__file__).parent if repository is None else Path(repository)
    return {
        "schema_version": MANIFEST_VERSION,
        "command": command if isinstance(command, str) else " ".join(command),
        "config": dict(config),
        "key_parts": {name: part for name, part in key_parts.items() if name != "config"},
        "seeds": dict(seeds),
        "dataset_fingerprint": dataset_fingerprint,
        "git": git_state(folder),
        "environment": environment(),
        "start": _now(),
    }


def finish_manifest(
    manifest: Mapping[str, Any],
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Close a manifest: end, seconds, peak memory, hashes.

    Parameters
    ----------
    manifest : from `new_manifest`
    inputs, outputs : file name to SHA-256
    extra : further entries, such as epochs run

    Notes
    -----
    The peak is that of the whole process since it started (`getrusage`), in MiB.
    """
    end = _now()
    started = datetime.fromisoformat(manifest["start"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **manifest,
        **extra,
        "end": end,
        "seconds": (datetime.fromisoformat(end) - started).total_seconds(),
        # bytes on macOS, KiB elsewhere
        "peak_memory_mib": round(peak / 1024 ** (2 if sys.platform == "darwin" else 1), 1),
        "inputs": dict(inputs or {}),
        "outputs": dict(outputs or {}),
    }


def write_manifest(path: str | Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest as JSON, atomically."""
    write_json(path, dict(manifest))


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Read a manifest.

    Raises
    ------
    FileNotFoundError  if there is none.
    ValueError  if the file is damaged.
    """
    source = Path(path)
    try:
        return dict(json.loads(source.read_text()))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{source} is no readable manifest ({error}). Delete the run's folder and run again."
        ) from error
