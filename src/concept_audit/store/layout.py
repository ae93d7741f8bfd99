"""Where everything lies under the outputs folder.

The only place that spells a path below `outputs/`; everybody else asks `OutputLayout`.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from concept_audit.store.atomic import write_json

__all__ = ["OutputLayout", "OutputNotWritableError"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class OutputNotWritableError(OSError):
    """The outputs folder cannot take new files."""


def _checked(kind: str, name: str) -> str:
    """`name` if it is one plain path component, so that no key or stem can leave the folder."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{kind} must be letters, digits, '_', '-' or '.', starting with a letter or digit, "
            f"got {name!r}. Take it from run_key(...) or from the name of an experiment file."
        )
    return name


class OutputLayout:
    """Paths of one outputs folder.

    Parameters
    ----------
    root : the outputs folder; it need not exist yet

    Notes
    -----
    Nothing is created by asking for a path. Keys and stems are checked to be single path
    components.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.runs = self.root / "runs"
        self.experiments = self.root / "experiments"
        self.judgements = self.root / "judgements"
        self.results = self.root / "results"
        self.figures = self.root / "figures"
        self.tables = self.root / "tables"
        self.leaderboard = self.root / "leaderboard"
        self.report = self.root / "report"
        self.logs = self.root / "logs"
        self.results_parquet = self.results / "results.parquet"
        self.results_csv = self.results / "results.csv"
        self.report_html = self.report / "index.html"
        self.report_markdown = self.report / "report.md"
        self.report_lock = self.report / ".lock"

    def __repr__(self) -> str:
        return f"OutputLayout({str(self.root)!r})"

    # One run
    def run_dir(self, run_key: str) -> Path:
        """Folder of one run."""
        return self.runs / _checked("run_key", run_key)

    def config_path(self, run_key: str) -> Path:
        """Resolved config of a run."""
        return self.run_dir(run_key) / "config.yaml"

    def manifest_path(self, run_key: str) -> Path:
        """Provenance of a run."""
        return self.run_dir(run_key) / "manifest.json"

    def checkpoint_path(self, run_key: str) -> Path:
        """Weights that the bundles were computed with."""
        return self.run_dir(run_key) / "checkpoint.ckpt"

    def bundle_path(self, run_key: str, split: str) -> Path:
        """Arrays of a run on one split (train, val or test)."""
        return self.run_dir(run_key) / f"bundle_{_checked('split', split)}.safetensors"

    def metrics_dir(self, run_key: str) -> Path:
        """Folder with one row file an evaluation."""
        return self.run_dir(run_key) / "metrics"

    def metrics_path(self, run_key: str, evaluation_key: str) -> Path:
        """Rows of one evaluation of one run."""
        return self.metrics_dir(run_key) / f"{_checked('evaluation_key', evaluation_key)}.parquet"

    def status_path(self, run_key: str) -> Path:
        """State of a run and the hashes of its files."""
        return self.run_dir(run_key) / "status.json"

    def lock_path(self, run_key: str) -> Path:
        """Lock held while a run is trained or evaluated."""
        return self.run_dir(run_key) / ".lock"

    def run_keys(self) -> list[str]:
        """Keys of the runs that have a folder, sorted."""
        if not self.runs.is_dir():
            return []
        return sorted(folder.name for folder in self.runs.iterdir() if folder.is_dir())

    # Which runs an artefact used
    def membership_path(self, paper: str, stem: str, run_key: str) -> Path:
        """Note that the artefact `paper/stem` used this run."""
        folder = self.experiments / _checked("paper", paper) / _checked("stem", stem)
        return folder / f"{_checked('run_key', run_key)}.json"

    def add_member(self, paper: str, stem: str, run_key: str, info: Mapping[str, Any]) -> None:
        """Write the membership note of a run; `info` is any JSON content, such as the grid cell."""
        write_json(self.membership_path(paper, stem, run_key), dict(info))

    def members(self, paper: str, stem: str) -> list[str]:
        """Keys of the runs that the artefact used, sorted."""
        folder = self.membership_path(paper, stem, "x").parent
        return sorted(note.stem for note in folder.glob("*.json") if not note.name.startswith("."))

    # What people read
    def figure_path(self, paper: str, stem: str, suffix: str = "svg") -> Path:
        """One form of a figure."""
        return self.figures / _checked("paper", paper) / f"{_checked('stem', stem)}.{suffix}"

    def table_path(self, paper: str, stem: str, suffix: str = "csv") -> Path:
        """One form of a table."""
        return self.tables / _checked("paper", paper) / f"{_checked('stem', stem)}.{suffix}"

    def judgement_dir(self, judge_key: str) -> Path:
        """Folder of one judge's answers to one set of explanations."""
        return self.judgements / _checked("judge_key", judge_key)

    def check_writable(self, *, min_free_bytes: int = 256 * 1024**2) -> None:
        """Raise before hours of training when the folder cannot take the results.

        Parameters
        ----------
        min_free_bytes : free space asked for on the disk of the folder

        Raises
        ------
        OutputNotWritableError  if the folder cannot be made, is no folder, refuses a small file, or
            its disk has less than `min_free_bytes` left.
        """
        remedy = "Choose another folder with paths.output_dir=<folder>."
        probe = self.root / f".write_check.{secrets.token_hex(4)}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"concept_audit\n")
            probe.unlink()
        except OSError as error:
            raise OutputNotWritableError(
                f"the outputs folder {self.root} cannot be written: "
                f"{error.strerror or error}. {remedy}"
            ) from error
        free = shutil.disk_usage(self.root).free
        if free < min_free_bytes:
            raise OutputNotWritableError(
                f"the outputs folder {self.root} needs {min_free_bytes / 1024**2:.0f} MiB of free "
                f"space, its disk has {free / 1024**2:.0f} MiB left. Free some space. {remedy}"
            )
