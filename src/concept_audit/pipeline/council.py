"""The council over our own concept bottleneck models: explanations, judgements, rows, leaderboard.

All tables of CBX-Bench read the same judgement of the same runs. It is made once, under a key of
its runs, the council and the code; replies are kept apart, so that a new judgement asks only what
was never asked.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from concept_audit.council.prompts import SCALES
from concept_audit.pipeline.council_answers import COUNCILS, ask_all
from concept_audit.pipeline.council_sets import judged_set, model_name
from concept_audit.pipeline.council_tables import table_rows, write_board
from concept_audit.pipeline.runs import StoredRun
from concept_audit.store.atomic import file_sha256, write_json
from concept_audit.store.keys import canonical_json, code_digest
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock
from concept_audit.store.results import read_rows, rows_frame, rows_valid, write_rows

__all__ = ["council_rows", "judge_runs"]

_IMAGES = {"offline": 100, "scripted": 20}  # at most, of each data set; the paper has 100


def _study_models(models: Sequence[str]) -> list[str]:
    """Three models for pairs, as in the paper's study: the last of each kind of concepts."""
    kinds = {model.split("_")[1]: model for model in models}
    chosen = list(kinds.values())
    return [*chosen, *(model for model in models if model not in chosen)][:3]


def judge_runs(layout: OutputLayout, run_keys: Sequence[str], council: str) -> str:
    """Judge the explanations of some runs; returns the key of the judgement.

    Parameters
    ----------
    layout : the outputs folder
    run_keys : linear concept bottleneck models, one training of each setting, on data sets that all
        of them share
    council : a name of `COUNCILS`

    Raises
    ------
    ValueError  on an unknown council, or where a model is missing on a data set.
    """
    if council not in COUNCILS:
        raise ValueError(f"council must be one of {', '.join(COUNCILS)}, got {council!r}.")
    parts = {
        "runs": {key: file_sha256(layout.bundle_path(key, "test")) for key in sorted(run_keys)},
        "council": [council, COUNCILS[council]],
        "code": code_digest([__name__]),
    }
    key = hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:16]
    folder = layout.judgement_dir(f"council-{key}")
    with held_lock(folder / ".lock", wait_s=None):
        if rows_valid(folder / "rows.parquet"):
            return key
        started = time.monotonic()
        by_set: dict[str, list[StoredRun]] = {}
        for run_key in run_keys:
            run = StoredRun(layout, run_key)
            by_set.setdefault(run.identity["dataset"], []).append(run)
        sets = []
        for name in sorted(by_set):
            runs = sorted(by_set[name], key=model_name)
            names = [model_name(run) for run in runs]
            if len(set(names)) != len(names):
                raise ValueError(f"{name} must have one run of each model, got {names}.")
            sets.append(judged_set(name, runs, _IMAGES[council]))
        if any(list(data.tables) != list(sets[0].tables) for data in sets):
            found = {data.name: list(data.tables) for data in sets}
            raise ValueError(f"every data set must have the same models, got {found}.")
        study = _study_models(list(sets[0].tables))
        judged = ask_all(layout, council, sets, study)
        rows = table_rows(judged, sets, study, council)
        for data in sets:
            data.manifest.write(folder / "manifests" / f"{data.name}.json")
        scores = [row for scale in SCALES for row in judged.scores[scale]]
        pd.DataFrame(scores).to_parquet(folder / "scores.parquet", index=False)
        write_board(layout, judged, sets, council)
        write_json(
            folder / "manifest.json",
            {
                **parts,
                "study_models": study,
                "calls": judged.n_calls,
                "from_store": judged.n_stored,
                "warnings": list(judged.warnings),
                "subsets": {
                    data.name: [len(data.image_ids), data.manifest.tolerance_points]
                    for data in sets
                },
            },
        )
        write_rows(folder / "rows.parquet", rows_frame(rows), evaluation="council")
        for text in judged.warnings:
            print(f"warning: {text}", file=sys.stderr)
        print(
            f"council {council}: {len(scores)} scores of {len(COUNCILS[council])} judges, "
            f"{judged.n_calls} calls, {judged.n_stored} answers from the store, "
            f"{time.monotonic() - started:.0f} s",
            file=sys.stderr,
        )
    return key


def council_rows(
    layout: OutputLayout, members: Mapping[str, Mapping[str, Any]], councils: Mapping[str, str]
) -> pd.DataFrame:
    """Rows of the judgement of an artefact's runs; judged where that was not done.

    Parameters
    ----------
    layout : the outputs folder
    members : runs of the artefact, with the profile they were noted under
    councils : council of each profile, as the experiment file names it
    """
    profiles = sorted({str(info["profile"]) for info in members.values()})
    named = {councils[profile] for profile in profiles if profile in councils}
    if len(named) != 1:
        raise ValueError(
            f"the runs of profiles {', '.join(profiles)} must lead to one council, got "
            f"{json.dumps(sorted(named))}. Name a council for each profile in artefact.council."
        )
    key = judge_runs(layout, list(members), named.pop())
    return read_rows(layout.judgement_dir(f"council-{key}") / "rows.parquet")
