"""A stored run by its key, the beginning of its key, or its folder; and what to say if not."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from concept_audit.pipeline.runs import StoredRun
from concept_audit.store.layout import OutputLayout
from concept_audit.store.status import read_status, verify_files

__all__ = ["RunNotReadyError", "UnknownRunError", "find_run", "model_label"]

_MOST_LISTED = 8


class UnknownRunError(ValueError):
    """No run, or more than one, goes by this name."""


class RunNotReadyError(RuntimeError):
    """The run is known, and its files are not complete."""


def model_label(identity: Mapping[str, Any]) -> str:
    """Model of a run, with its encoding where the name does not say it: "cbm (soft)"."""
    model, encoding = str(identity["model"]), identity["encoding"]
    if encoding in ("hard", "soft", "logit") and encoding not in model:
        return f"{model} ({encoding})"
    return model


@dataclass(frozen=True)
class _Known:
    """A run as a person would tell it from others."""

    key: str
    dataset: str
    model: str
    state: str
    time: str

    def line(self) -> str:
        parts = [self.key, self.dataset, self.model, f"{self.state} {self.time}"]
        return f"  {'  '.join(part for part in parts if part)}".rstrip()

    def words(self) -> set[str]:
        """What a person may call it by."""
        return set(f"{self.dataset} {self.model}".translate(_TO_SPACES).split())


_TO_SPACES = str.maketrans("_()", "   ")
# A run gets its name with its results.
_UNNAMED = {"failed": "failed before it was named", "running": "running, not named yet"}


def _known(layout: OutputLayout, key: str) -> _Known:
    status = read_status(layout.run_dir(key))
    state, time = ("without a status", "") if status is None else (status.state, status.time)
    if layout.bundle_path(key, "test").is_file():
        identity = StoredRun(layout, key).identity
        return _Known(key, identity["dataset"], model_label(identity), state, time)
    if layout.config_path(key).is_file():
        return _Known(key, *_named(OmegaConf.load(layout.config_path(key))), state, time)
    return _Known(key, "", "", _UNNAMED.get(state, state), time)


def _named(config: Any) -> tuple[str, str]:
    """Dataset and model as far as a config says them; their full names come with the results."""
    data, spec = config["data"], config["model"]["spec"]
    dataset = str(data["_target_"]).rpartition(".")[2].lower()
    dataset += "_standin" if data.get("standin") else ""
    model = str(spec.get("name") or str(spec["_target_"]).rpartition(".")[2].removesuffix("Spec"))
    return dataset, model_label({"model": model.lower(), "encoding": spec.get("encoding")})


def _nearest(layout: OutputLayout, name: str) -> str:
    """Lines on the runs that resemble `name` most, the latest first among equals."""
    runs = sorted(
        (_known(layout, key) for key in layout.run_keys()), key=lambda run: run.time, reverse=True
    )

    def likeness(run: _Known) -> float:
        if set(name.lower().split("_")) <= run.words():
            return 2.0
        return difflib.SequenceMatcher(None, name.lower(), run.key).ratio()

    runs.sort(key=likeness, reverse=True)
    lines = [run.line() for run in runs[:_MOST_LISTED]]
    more = len(runs) - len(lines)
    return "\n".join([*lines, f"  and {more} more under {layout.runs}"] if more > 0 else lines)


def _place(name: str, output_dir: str | Path) -> tuple[OutputLayout, str]:
    """Outputs folder and key that a name or a path stands for."""
    path = Path(name)
    is_path = os.sep in name or (path / "status.json").is_file()
    if not is_path:
        return OutputLayout(output_dir), name
    folder = path.absolute()
    if folder.parent.name != "runs":
        raise UnknownRunError(
            f"run must be a key or the folder <outputs>/runs/<key>, got {name!r}, which is no "
            "folder right below one named runs."
        )
    # Parents of the path as typed, so that messages stay as short as what was typed.
    root = path.parent.parent if len(path.parts) > 2 else folder.parent.parent
    return OutputLayout(root), folder.name


def find_run(name: str, output_dir: str | Path) -> StoredRun:
    """The finished run that `name` stands for.

    Parameters
    ----------
    name : a run key, enough of its beginning to be unique, or the run's folder
    output_dir : the outputs folder, for a name that is no path

    Returns
    -------
    StoredRun, all files of which match their hashes.

    Raises
    ------
    UnknownRunError
        If no run or more than one fits; the message lists the nearest with dataset and model.
    RunNotReadyError
        If the run is not finished, failed, or its files have changed since.
    """
    layout, name = _place(name, output_dir)
    keys = layout.run_keys()
    if not keys:
        raise UnknownRunError(
            f"run={name} cannot be found: there are no runs under {layout.runs}. Train one with "
            "concept-audit run, or name the outputs folder with paths.output_dir=<folder>."
        )
    fitting = [name] if name in keys else [key for key in keys if name and key.startswith(name)]
    if len(fitting) > 1:
        some = "\n".join(_known(layout, key).line() for key in fitting[:_MOST_LISTED])
        raise UnknownRunError(
            f"run={name} fits {len(fitting)} runs under {layout.runs}. Give more of the key:\n"
            f"{some}"
        )
    if not fitting:
        raise UnknownRunError(
            f"run={name} is unknown: no key under {layout.runs} starts like this. Nearest:\n"
            f"{_nearest(layout, name)}"
        )
    (key,) = fitting
    _check_ready(layout, key)
    return StoredRun(layout, key)


def _check_ready(layout: OutputLayout, key: str) -> None:
    folder = layout.run_dir(key)
    status = read_status(folder)
    again = "Start its `concept-audit run` command again: it goes on from the last saved epoch."
    if status is None:
        raise RunNotReadyError(
            f"run {key} was never finished: {folder} has no status.json. {again}"
        )
    if status.state == "running":
        host, pid = status.info.get("host", "?"), status.info.get("pid", "?")
        raise RunNotReadyError(
            f"run {key} is not finished: training since {status.time} by process {pid} on {host}. "
            f"Wait for it; if that process is gone: {again}"
        )
    if status.state == "failed":
        last = (status.error or "").strip().splitlines()[-1:]
        raise RunNotReadyError(
            f"run {key} failed at {status.time}: {''.join(last) or 'no reason was kept'}. The "
            f"whole error stands in {layout.status_path(key)}."
        )
    faults = verify_files(folder)
    if faults:
        raise RunNotReadyError(
            f"run {key} cannot be shown: {'; '.join(faults)}. Delete {folder} and run it again."
        )
