"""Arrays of a predictions file: .npz, .safetensors, .csv or .parquet, never unpickled."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.store.bundle import read_bundle

__all__ = ["Predictions", "ScoreInputError", "read_predictions"]

SUFFIXES = (".npz", ".safetensors", ".csv", ".parquet")
# Columns of a table: y, and one column per concept, code or factor under these prefixes.
PREFIXES = ("c_logits", "c_hat", "y_logits", "codes", "factors", "c")


class ScoreInputError(ValueError):
    """A file that cannot be scored, with what was looked for."""


@dataclass(frozen=True)
class Predictions:
    """Arrays of a file by name, and what they are called."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    concept_names: tuple[str, ...]
    ignored: tuple[str, ...] = field(default=())

    @property
    def n_samples(self) -> int:
        """Rows."""
        return int(next(iter(self.arrays.values())).shape[0])


def read_predictions(path: str | Path) -> Predictions:
    """Read the arrays that scores are computed from.

    Parameters
    ----------
    path : str or Path
        `.npz` and `.safetensors` hold arrays named c_hat, c, y, c_logits, c_pos, c_neg, c_mix,
        y_logits, codes, factors and, if wished, concept_names; `.csv` and `.parquet` hold columns
        `y`, `c_hat_<name>`, `c_<name>`, `c_logits_<name>`, `codes_<name>`, `factors_<name>`.

    Returns
    -------
    Predictions
        What was found under these names.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ScoreInputError
        On another suffix, names or shapes that do not fit, cells that are no numbers.
    ImportError
        For .parquet without pyarrow.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"no file at {source}. Give a {', '.join(SUFFIXES)} file.")
    if source.suffix not in SUFFIXES:
        raise ScoreInputError(
            f"{source.name}: expected one of {', '.join(SUFFIXES)}, got suffix {source.suffix!r}."
        )
    if source.suffix in (".npz", ".safetensors"):
        bundle = read_bundle(source)
        names = list(bundle.metadata.get("concept_names") or ())
        arrays, ignored = dict(bundle.arrays), list(bundle.ignored)
    else:
        header, table = _read_csv(source) if source.suffix == ".csv" else _read_parquet(source)
        arrays, names, ignored = _from_columns(source, header, table)
    return Predictions(source, arrays, _concept_names(source, arrays, names), tuple(ignored))


def _read_csv(source: Path) -> tuple[list[str], list[NDArray[Any]]]:
    """Header and one float column per name."""
    with source.open(newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.reader(stream))
    if len(rows) < 2:
        raise ScoreInputError(f"{source.name}: expected a header and rows, got {len(rows)} lines.")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ScoreInputError(
                f"{source.name}, line {number}: expected {len(header)} cells, got {len(row)}."
            )
    columns = []
    for index, name in enumerate(header):
        values = np.empty(len(rows) - 1)
        for line, row in enumerate(rows[1:], start=2):
            try:
                values[line - 2] = float(row[index])
            except ValueError:
                raise ScoreInputError(
                    f"{source.name}, line {line}, column {name!r}: expected a number, got "
                    f"{row[index][:40]!r}. Encode classes as 0, 1, 2, ..."
                ) from None
        columns.append(values)
    return header, columns


def _read_parquet(source: Path) -> tuple[list[str], list[NDArray[Any]]]:
    """Header and columns, through pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(
            f"{source.name}: reading .parquet needs pyarrow: pip install 'concept-audit[pipeline]'"
            " (or pyarrow alone). A .csv with the same columns needs nothing."
        ) from None
    try:
        table = pq.read_table(source)
    except pa.ArrowInvalid as error:
        raise ScoreInputError(f"{source.name}: not a readable Parquet file: {error}.") from None
    columns = []
    for name in table.column_names:
        values = table.column(name).to_numpy()
        if values.dtype.kind not in "biuf":
            raise ScoreInputError(
                f"{source.name}, column {name!r}: expected numbers, got type "
                f"{table.schema.field(name).type}."
            )
        columns.append(values)
    return list(table.column_names), columns


def _from_columns(
    source: Path, header: Sequence[str], columns: Sequence[NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], list[str], list[str]]:
    """Gather columns into arrays; concepts are matched by name, not by position."""
    if len(set(header)) < len(header):
        double = sorted({name for name in header if list(header).count(name) > 1})
        raise ScoreInputError(f"{source.name}: column names must differ, got {double} twice.")
    found: dict[str, dict[str, NDArray[Any]]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    ignored = []
    for name, values in zip(header, columns, strict=True):
        match = re.match(f"({'|'.join(PREFIXES)})_(.+)", name)
        if name == "y":
            arrays["y"] = values
        elif match:
            found.setdefault(match[1], {})[match[2]] = values
        else:
            ignored.append(name)
    names = list(found.get("c_hat", found.get("c_logits", found.get("c", {}))))
    for prefix, group in found.items():
        order = list(group)
        if prefix in ("c", "c_hat", "c_logits"):
            if set(group) != set(names):
                odd = sorted(set(group) ^ set(names))
                raise ScoreInputError(
                    f"{source.name}: the concept columns c_<name>, c_hat_<name> and "
                    f"c_logits_<name> must name the same concepts, got {odd} in one set only."
                )
            order = names
        arrays[prefix] = np.stack([group[name] for name in order], axis=1)
    if not arrays:
        raise ScoreInputError(
            f"{source.name}: looked for columns y, {', '.join(f'{p}_<name>' for p in PREFIXES)}, "
            f"found {', '.join(ignored[:12]) or 'none'}. Rename the columns accordingly."
        )
    return arrays, names, ignored


def _concept_names(
    source: Path, arrays: dict[str, NDArray[Any]], names: Sequence[Any]
) -> tuple[str, ...]:
    """Given names, or c1, c2, ...; checked against the number of concepts."""
    k = next((arrays[n].shape[1] for n in ("c_hat", "c_logits", "c", "c_mix") if n in arrays), 0)
    if not len(names):
        return tuple(f"c{i + 1}" for i in range(k))
    given = tuple(str(name) for name in names)
    if len(given) != k:
        raise ScoreInputError(
            f"{source.name}: concept_names must hold {k} names, one per concept, got {len(given)}."
        )
    return given
