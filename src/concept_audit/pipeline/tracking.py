"""W&B as a mirror of the store: written after training, never read, and rebuilt at any time."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from concept_audit.pipeline.plan import config_dir
from concept_audit.pipeline.progress import Progress
from concept_audit.pipeline.runs import StoredRun
from concept_audit.store.atomic import write_json
from concept_audit.store.keys import canonical_json
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect
from concept_audit.store.status import is_done

__all__ = ["default_logger", "sync"]


def default_logger(profile: str) -> str:
    """`wandb_offline` where the package is installed and the numbers are worth keeping."""
    installed = importlib.util.find_spec("wandb") is not None
    return "wandb_offline" if installed and profile != "smoke" else "none"


def _logger(name: str) -> dict[str, Any]:
    base: Any = OmegaConf.load(config_dir() / "logger" / f"{name}.yaml")
    merged: Any = {}
    for parent in base.pop("defaults", []):
        if parent != "_self_":
            merged.update(_logger(parent))
    merged.update(OmegaConf.to_container(base))
    return dict(merged)


def _summary(layout: OutputLayout, key: str) -> dict[str, float]:
    """Scores of one run: means over evaluations, one key for each metric, target and step."""
    rows = collect(layout, [key])
    rows = rows[
        rows["repeat"].isna()
        & ~rows["metric"].isin(["projection_1", "projection_2", "concept_density"])
    ]
    summary = {}
    for row in rows.to_dict("records"):
        step = "" if row["step"] != row["step"] else f"/{row['step']:g}"
        summary[f"{row['metric']}/{row['target']}{step}"] = float(row["value"])
    return summary


def _init(layout: OutputLayout, logger: Mapping[str, Any], **kwargs: Any) -> Any:
    import wandb

    return wandb.init(
        project=logger["project"],
        entity=logger["entity"],
        mode=logger["mode"],
        dir=str(layout.root),
        resume="allow" if logger["mode"] == "online" else None,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        **kwargs,
    )


def _sync_run(layout: OutputLayout, key: str, logger: Mapping[str, Any]) -> None:
    import wandb

    stored = StoredRun(layout, key)
    identity = {name: value for name, value in stored.identity.items() if value is not None}
    label = " ".join(
        str(identity[name])
        for name in ("dataset", "model", "encoding", "lambda_concept", "p_int", "fold")
        if name in identity
    )
    run = _init(layout, logger, id=key, name=label, config={**stored.config, "identity": identity})
    try:
        run.summary.update(_summary(layout, key))
    finally:
        wandb.finish()


def _sync_artefacts(layout: OutputLayout, logger: Mapping[str, Any]) -> None:
    import wandb

    run = _init(layout, logger, id="report", name="rows, figures, tables and report")
    try:
        for name, folder in (
            ("figures", layout.figures),
            ("tables", layout.tables),
            ("report", layout.report),
            ("results", layout.results),
        ):
            if folder.is_dir() and any(folder.rglob("*.*")):
                artifact = wandb.Artifact(name=name, type=name)
                artifact.add_dir(str(folder))
                run.log_artifact(artifact)
    finally:
        wandb.finish()


def sync(layout: OutputLayout, name: str, *, rebuild: bool = False) -> int:
    """Mirror finished runs that are new or newly evaluated; returns how many were written.

    Parameters
    ----------
    layout : the outputs folder
    name : a file of `configs/logger`
    rebuild : write all runs again, for example into a new project
    """
    logger = _logger(name)
    if logger["kind"] == "none":
        return 0
    if importlib.util.find_spec("wandb") is None:
        print(
            "W&B mirror skipped: the package is missing (pip install 'concept-audit[wandb]'). "
            "The store under outputs/ is complete.",
            file=sys.stderr,
        )
        return 0
    marks = layout.logs / "wandb"
    todo = []
    for key in layout.run_keys():
        if not is_done(layout.run_dir(key)):
            continue
        files = sorted(path.name for path in layout.metrics_dir(key).glob("*.parquet"))
        state = {"files": files, "mode": logger["mode"], "project": logger["project"]}
        mark = marks / f"{key}.json"
        if (
            rebuild
            or not mark.is_file()
            or canonical_json(json.loads(mark.read_text())) != canonical_json(state)
        ):
            todo.append((key, mark, state))
    with Progress("W&B mirror", len(todo)) as progress:
        for key, mark, state in todo:
            _sync_run(layout, key, logger)
            write_json(mark, state)
            progress.finish("done")
    if todo:
        _sync_artefacts(layout, logger)
    return len(todo)
