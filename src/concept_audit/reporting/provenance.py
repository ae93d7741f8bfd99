"""From manifests to the report's footer, and the warnings that they give rise to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from concept_audit.reporting.document import RunProvenance

__all__ = ["environments_of", "run_provenance", "version_warnings"]


def _environment_text(environment: Mapping[str, Any]) -> str:
    hardware = environment.get("hardware", {})
    libraries = environment.get("libraries", {})
    gpus = ", ".join(hardware.get("gpus", [])) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(libraries.items()))
    return (
        f"Python {environment.get('python', '?')} on {environment.get('platform', '?')}; "
        f"{hardware.get('cpu', '?')}, {hardware.get('cores', '?')} cores, "
        f"{hardware.get('memory_gib', '?')} GiB, {gpus}; {versions}"
    )


def environments_of(manifests: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Different environments among the manifests, in words, in order of first appearance."""
    texts = [_environment_text(manifest.get("environment", {})) for manifest in manifests.values()]
    return tuple(dict.fromkeys(texts))


def run_provenance(
    run_key: str,
    manifest: Mapping[str, Any],
    *,
    environments: tuple[str, ...],
    label: str = "",
    used_by: Iterable[str] = (),
    note: str = "",
) -> RunProvenance:
    """Footer line of one run.

    Parameters
    ----------
    run_key, manifest : of the run
    environments : from `environments_of` over all runs of the report
    label : data set and model in words
    used_by : stems of the artefacts that used it
    note : such as "code digest ignored"
    """
    git = manifest.get("git") or {}
    return RunProvenance(
        run_key=run_key,
        label=label,
        seeds=", ".join(f"{name} {seed}" for name, seed in manifest.get("seeds", {}).items()),
        started=manifest.get("start", ""),
        seconds=float(manifest.get("seconds", math.nan)),
        peak_memory_mib=float(manifest.get("peak_memory_mib", math.nan)),
        commit=_commit(git) + (" with local changes" if git.get("dirty") else ""),
        dataset_fingerprint=str(manifest.get("dataset_fingerprint", ""))[:12],
        environment=environments.index(_environment_text(manifest.get("environment", {}))) + 1,
        used_by=tuple(sorted(used_by)),
        note=note,
    )


def version_warnings(manifests: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Warnings when runs shown together were made with different libraries or code.

    Parameters
    ----------
    manifests : run key to manifest

    Returns
    -------
    Sentences, one a library that differs, one for several commits, one for uncommitted changes.
    """
    versions: dict[str, dict[str, int]] = {}
    commits: dict[str, int] = {}
    dirty = 0
    for manifest in manifests.values():
        environment = manifest.get("environment", {})
        found = {"python": environment.get("python", "?"), **environment.get("libraries", {})}
        for library, version in found.items():
            counts = versions.setdefault(library, {})
            counts[version] = counts.get(version, 0) + 1
        git = manifest.get("git") or {}
        commit = _commit(git)
        commits[commit] = commits.get(commit, 0) + 1
        dirty += bool(git.get("dirty"))
    warnings = [
        f"The runs below mix versions of {library}: {_counted(counts)}. Their numbers may differ "
        "for that reason; delete the older runs and repeat the command to make them alike."
        for library, counts in sorted(versions.items())
        if len(counts) > 1
    ]
    if len(commits) > 1:
        warnings.append(
            f"The runs below come from several commits: {_counted(commits)}. The code that each "
            "run reaches is the same by its digest."
        )
    if dirty:
        warnings.append(
            f"{dirty} of {len(manifests)} runs were made with uncommitted changes in the checkout."
        )
    return tuple(warnings)


def _commit(git: Mapping[str, Any]) -> str:
    commit = git.get("commit")
    return str(commit)[:12] if commit else "no git checkout"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count} runs)" for name, count in sorted(counts.items()))
