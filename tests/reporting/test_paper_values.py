"""The papers' numbers: complete, sourced, and refused when they break the schema."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from concept_audit.reporting.paper_values import (
    PAPER_VALUE_COLUMNS,
    PaperValuesError,
    read_paper_values,
)

LEAKAGE = Path(__file__).parents[2] / "data" / "paper_values" / "leakage.csv"
HEAD = ",".join(PAPER_VALUE_COLUMNS)
GOOD = "leakage,tab01_pairs,r,c_acc,concept_accuracy,d,m,0.990,0.98,1.00,1,Table 1,table"


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "values.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_numbers_and_their_resolution(tmp_path: Path):
    p_value = "leakage,tab02_correlations,r,CTL p,pearson_p,d,m,3.4e-3,,,1,Table 2,table"
    unknown = "leakage,fig06_supervision,r,ctl,ctl,,,,,,1,Figure 6,unknown"
    frame = read_paper_values(write(tmp_path, HEAD, GOOD, p_value, unknown))
    assert frame["value"].tolist()[:2] == [0.990, 0.0034]
    assert frame["resolution"].tolist()[:2] == pytest.approx([0.0005, 0.00005])
    assert math.isnan(frame["value"][2])
    assert frame["low"].tolist()[0] == 0.98


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["paper,value"], r"must start with the columns paper, .* got paper, value"),
        ([], "got an empty file"),
        ([HEAD, "a,b"], "line 2: expected 13 cells, got 2"),
        ([HEAD, GOOD.replace("0.990", "about 1")], "line 2: value must be a number"),
        ([HEAD, GOOD.replace("0.990", "nan")], "line 2: value must be finite"),
        ([HEAD, GOOD.replace("0.990", "0.97")], "low <= value <= high must hold"),
        ([HEAD, GOOD.replace(",table", ",guess")], "kind must be one of .* got 'guess'"),
        ([HEAD, GOOD.replace(",table", ",unknown")], "kind unknown must have no value"),
        ([HEAD, GOOD.replace("0.990,0.98,1.00", ",,")], "kind table needs a value"),
        ([HEAD, GOOD.replace("Table 1", "")], "source must not be empty"),
        ([HEAD, GOOD, GOOD], "line 3 repeats line 2"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, lines: list[str], message: str):
    path = write(tmp_path, *lines) if lines else tmp_path / "values.csv"
    if not lines:
        path.write_text("")
    with pytest.raises(PaperValuesError, match=message):
        read_paper_values(path)


def test_a_missing_file_is_reported(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no paper values at"):
        read_paper_values(tmp_path / "none.csv")


# The committed file


@pytest.fixture(scope="module")
def leakage():
    return read_paper_values(LEAKAGE)


def test_every_table_is_complete(leakage):
    counts = leakage.groupby("artefact").size()
    assert counts["tab01_pairs"] == 6 * 7
    assert counts["tab02_correlations"] == 8 * 3 * 2
    assert counts["tab03_reference_accuracies"] == 5 * 4 - 2  # the paper leaves two cells out
    assert counts["claims"] == 10
    assert set(leakage["paper"]) == {"leakage"}


@pytest.mark.parametrize(
    ("artefact", "row", "column", "value"),
    [
        ("tab01_pairs", "TabularToy(0.25), logit, lambda 5", "S_int", 0.301),
        ("tab01_pairs", "3dshapes(0), soft, lambda 0.01", "y_AUC", 0.207),
        ("tab02_correlations", "TabularToy(0.75)", "ICL p", 0.11),
        ("tab02_correlations", "HAM10K", "OIS r", -0.06),
        ("tab03_reference_accuracies", "3dshapes(0)", "misspecified", 0.859),
    ],
)
def test_spot_checks(leakage, artefact: str, row: str, column: str, value: float):
    cell = leakage[
        (leakage["artefact"] == artefact) & (leakage["row"] == row) & (leakage["column"] == column)
    ]
    assert cell["value"].tolist() == [value]


def test_numbers_of_plots_are_unknown(leakage):
    figures = leakage[leakage["artefact"].str.startswith("fig")]
    assert set(figures["kind"]) == {"unknown"}
    assert figures["artefact"].nunique() == 24  # Figures 2 to 25


def test_every_artefact_has_its_experiment(leakage):
    folder = LEAKAGE.parents[2] / "configs" / "experiment" / "leakage"
    stems = {path.stem for path in folder.glob("*.yaml")}
    assert set(leakage["artefact"]) - {"claims"} <= stems
