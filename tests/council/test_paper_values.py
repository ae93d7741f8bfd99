from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pandas")

from concept_audit.council import chance_levels
from concept_audit.reporting.paper_values import read_paper_values


@pytest.fixture(scope="module")
def values():
    return read_paper_values(Path(__file__).parents[2] / "data" / "paper_values" / "cbx.csv")


def value(values, artefact, row, column):
    hit = values[(values.artefact == artefact) & (values.row == row) & (values.column == column)]
    assert len(hit) == 1, (artefact, row, column)
    return hit.value.iloc[0]


def test_every_table_of_the_paper_has_lines(values):
    stems = {stem.split("_")[0] for stem in values.artefact}
    assert stems == {"tab01", "tab02", "tab03", "tab04", "tab05", "tab06", "tab07", "claims"}
    lost = values[values.kind == "unknown"]
    assert lost.value.isna().all()
    assert lost.source.str.contains("not in the text at hand").all()


def test_counts_of_the_human_study_add_up(values):
    def count(name):
        return value(values, "tab02_consensus", "all data sets", f"{name}, items")

    assert count("clear preference") + count("tie") == count("consensus") == 791
    assert count("consensus") + count("none") == 900
    assert count("unanimous") + count("majority only") == count("consensus")
    for name in ("consensus", "unanimous", "majority only", "none", "clear preference", "tie"):
        share = value(values, "tab02_consensus", "all data sets", f"{name}, share")
        assert round(100 * count(name) / 900, 1) == share


def test_chance_levels_are_ours(values):
    levels = chance_levels(619, 172)
    strict = value(values, "tab03_strict_recovery", "chance", "overall")
    weak = value(values, "tab04_weak_recovery", "chance", "overall")
    assert (100 * levels.strict, round(100 * levels.weak, 1)) == (strict, weak)


def test_the_overall_recovery_is_weighted_by_counts(values):
    # No rounding of the three values has a mean of 70.7, so images of all data sets are pooled.
    row = "score-sum council, 1-9"
    names = ("CUB-200", "ImageNet-100", "Places365")
    parts = [value(values, "tab03_strict_recovery", row, name) for name in names]
    overall = value(values, "tab03_strict_recovery", row, "overall")
    assert sum(parts) / 3 - 0.05 > overall + 0.05
    assert min(parts) < overall < max(parts)
