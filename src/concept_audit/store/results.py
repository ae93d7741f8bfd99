"""The one table everything is drawn from: a row for each number.

Each evaluation of each run writes its own small parquet file, so parallel jobs never share one;
`collect` reads them into one tidy table. The only module of this room that loads pandas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from concept_audit.store.atomic import atomic_path, file_sha256, write_text
from concept_audit.store.layout import OutputLayout

__all__ = [
    "RESULT_COLUMNS",
    "RESULT_DTYPES",
    "SCOPES",
    "ResultRowsError",
    "collect",
    "read_rows",
    "rows_frame",
    "rows_valid",
    "write_results",
    "write_rows",
]

SCOPES = ("run", "mean", "comparison")

# Column -> pandas dtype. Missing texts and counts are NA, missing numbers NaN.
RESULT_DTYPES: dict[str, str] = {
    "run_key": "string",
    "paper": "string",
    "scope": "string",  # run: of one run; mean: over runs, with interval; comparison: across runs
    "dataset": "string",
    "standin": "boolean",
    "model": "string",
    "encoding": "string",  # hard, soft, logit, embedding
    "lambda_concept": "float64",
    "p_int": "float64",
    "head": "string",  # linear, mlp
    "concept_output": "string",  # linear, leaky_relu
    "encoder": "string",  # mlp_64_64, conv4, resnet18, resnet18_frozen, ...
    "setting": "string",  # hash of the whole config but the seeds: what may be averaged over
    "fold": "Int64",
    "repeat": "Int64",
    "split": "string",
    "metric": "string",
    "target": "string",  # concept, factor, pair "a|b", or mean
    "step": "float64",  # interventions made, capacity, bin centre, sample number
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "unit": "string",
    "n_samples": "Int64",
    "n_runs": "Int64",
    "note": "string",
}
RESULT_COLUMNS: tuple[str, ...] = tuple(RESULT_DTYPES)

_REQUIRED = ("scope", "dataset", "metric")
_METRIC = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_EVALUATION_KEY = b"concept_audit"


class ResultRowsError(ValueError):
    """Rows do not follow the schema of the results table."""


def rows_frame(rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Rows as a table with the schema's columns, order and dtypes.

    Parameters
    ----------
    rows : dictionaries or a table; columns that are left out are missing values

    Returns
    -------
    DataFrame with the columns `RESULT_COLUMNS`.

    Raises
    ------
    ResultRowsError  on an unknown column, a scope outside `SCOPES`, a metric that is not lower case
        words joined by underscores, a missing scope, dataset or metric, or a wrong kind of value.
    """
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if unknown := sorted(set(map(str, frame.columns)) - set(RESULT_COLUMNS)):
        raise ResultRowsError(
            f"rows have unknown columns {unknown}; the results table has {list(RESULT_COLUMNS)}. "
            "Put free text into note."
        )
    columns = {}
    for name, dtype in RESULT_DTYPES.items():
        if name not in frame.columns:
            columns[name] = pd.Series(pd.NA, index=frame.index, dtype="object")
        else:
            columns[name] = frame[name]
        try:
            columns[name] = _convert(columns[name], dtype)
        except (TypeError, ValueError) as error:
            raise ResultRowsError(
                f"column {name!r} must hold {dtype} values, got {_example(frame[name])}: {error}"
            ) from error
    table = pd.DataFrame(columns, columns=list(RESULT_COLUMNS)).reset_index(drop=True)
    for name in _REQUIRED:
        if table[name].isna().any():
            raise ResultRowsError(
                f"every row needs {name!r}, got {int(table[name].isna().sum())} of {len(table)} "
                "without it."
            )
    if bad := sorted(set(table["scope"]) - set(SCOPES)):
        raise ResultRowsError(f"scope must be one of {list(SCOPES)}, got {bad}.")
    if bad := sorted(name for name in set(table["metric"]) if not _METRIC.fullmatch(name)):
        raise ResultRowsError(
            f"metric must be lower case words joined by '_', got {bad}. "
            "Put the concept or pair into target and the setting into its own column."
        )
    return table


def _convert(column: pd.Series, dtype: str) -> pd.Series:
    if dtype == "float64":
        if column.dtype == object or not pd.api.types.is_numeric_dtype(column.dtype):
            column = column.where(column.notna(), None)
            if any(isinstance(item, str) for item in column):
                raise ValueError("texts are not turned into numbers")
        return pd.to_numeric(column).astype("float64")
    if dtype == "string" and column.dtype == object:
        if not all(isinstance(item, str) for item in column.dropna()):
            raise ValueError("not a text")
    elif dtype == "string" and column.dtype.kind in "biuf" and column.notna().any():
        raise ValueError("not a text")
    converter: Any = column.astype
    return converter(dtype)


def _example(column: pd.Series) -> str:
    kinds = sorted({type(item).__name__ for item in column.dropna()})
    return f"{', '.join(kinds) or 'nothing'} such as {column.dropna().head(1).tolist()}"


def write_rows(
    path: str | Path,
    rows: Iterable[Mapping[str, Any]] | pd.DataFrame,
    *,
    evaluation: str,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Write the rows of one evaluation of one run, atomically.

    Parameters
    ----------
    path : from `OutputLayout.metrics_path`; its hash is written beside it, as `<name>.sha256`
    rows : anything that `rows_frame` takes
    evaluation : its name, such as leakage; `collect` takes the newest file of each name
    options : settings the numbers were computed with, kept in the file

    Returns
    -------
    SHA-256 of the file.
    """
    table = pa.Table.from_pandas(rows_frame(rows), preserve_index=False)
    note = json.dumps({"evaluation": evaluation, "options": dict(options or {})}, sort_keys=True)
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), _EVALUATION_KEY: note.encode()}
    )
    target = Path(path)
    with atomic_path(target) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    digest = file_sha256(target)
    # Second, so that a kill between the two leaves rows that count as not written.
    write_text(_hash_path(target), f"{digest}  {target.name}\n")
    return digest


def _hash_path(path: Path) -> Path:
    """File with the hash of a row file, in the form that `sha256sum -c` reads."""
    return path.with_suffix(".sha256")


def _hash_matches(path: Path) -> bool:
    return _hash_path(path).read_text().split()[:1] == [file_sha256(path)]


def _read(path: Path) -> pa.Table:
    if not path.is_file():
        raise FileNotFoundError(f"no rows at {path}. Run the evaluation first.")
    remedy = "Delete it and run again: only that evaluation is repeated."
    if _hash_path(path).is_file() and not _hash_matches(path):
        raise ResultRowsError(f"{path} has changed since it was written. {remedy}")
    try:
        # A plain open file: the path form would look for partitions in the folder names.
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise ResultRowsError(f"{path} is damaged ({error}). {remedy}") from error


def read_rows(path: str | Path) -> pd.DataFrame:
    """Read rows written by `write_rows` or `write_results`.

    Raises
    ------
    FileNotFoundError  if there is no such file.
    ResultRowsError  if it is damaged, has changed since it was written, or has other columns.
    """
    return rows_frame(_read(Path(path)).to_pandas())


def rows_valid(path: str | Path) -> bool:
    """True if `write_rows` finished the file and it is unchanged: the evaluation can be skipped."""
    source = Path(path)
    return source.is_file() and _hash_path(source).is_file() and _hash_matches(source)


def _evaluation_name(table: pa.Table, path: Path) -> str:
    note = (table.schema.metadata or {}).get(_EVALUATION_KEY)
    return json.loads(note)["evaluation"] if note else path.stem


def _files(
    layout: OutputLayout,
    run_key: str,
    evaluation_keys: Mapping[str, Collection[str]] | None,
) -> list[Path]:
    """Row files of a run, oldest first."""
    if evaluation_keys is not None:
        return [layout.metrics_path(run_key, key) for key in evaluation_keys.get(run_key, ())]
    files = [
        path
        for path in layout.metrics_dir(run_key).glob("*.parquet")
        if not path.name.startswith(".")
    ]
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def collect(
    layout: OutputLayout,
    run_keys: Sequence[str] | None = None,
    *,
    evaluation_keys: Mapping[str, Collection[str]] | None = None,
) -> pd.DataFrame:
    """Rows of many runs in one table.

    Parameters
    ----------
    layout : the outputs folder
    run_keys : runs to read, each once; default: those in `evaluation_keys`, else all there are
    evaluation_keys : run key to the evaluations to read; default: of each evaluation of a run the
        newest file, so that numbers of an earlier version of a metric are left out

    Returns
    -------
    DataFrame with `RESULT_COLUMNS`, ordered by run key and evaluation; empty if there is nothing.

    Raises
    ------
    FileNotFoundError  if a named evaluation has no file.
    ResultRowsError  if a file is damaged.
    """
    if run_keys is None:
        run_keys = layout.run_keys() if evaluation_keys is None else list(evaluation_keys)
    tables: list[pa.Table] = []
    for run_key in sorted(set(run_keys)):
        newest: dict[str, pa.Table] = {}
        for path in _files(layout, run_key, evaluation_keys):
            table = _read(path)
            name = path.stem if evaluation_keys is not None else _evaluation_name(table, path)
            newest[name] = table
        tables.extend(newest[name].replace_schema_metadata(None) for name in sorted(newest))
    if not tables:
        return rows_frame([])
    return rows_frame(pa.concat_tables(tables, promote_options="permissive").to_pandas())


def write_results(layout: OutputLayout, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> None:
    """Write the collected table as `results.parquet` and, with the same rows, `results.csv`."""
    frame = rows_frame(rows)
    with atomic_path(layout.results_parquet) as temporary:
        pq.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), temporary, compression="zstd"
        )
    with atomic_path(layout.results_csv) as temporary:
        frame.to_csv(temporary, index=False)
