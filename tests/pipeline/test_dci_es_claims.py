"""The claims of the DCI-ES paper on rows made to hold them, and to break them."""

from __future__ import annotations

import pytest

from concept_audit.pipeline.artefacts import paper_values
from concept_audit.pipeline.dci_es_claims import CLAIMS, check_claims
from concept_audit.store.results import rows_frame

SCORES = ("disentanglement", "completeness", "informativeness", "explicitness", "size")


def _row(metric, model, value, *, step=None):
    return {
        "scope": "run", "dataset": "mpi3d", "model": model, "fold": 0, "metric": metric,
        "target": "mean", "value": value, "step": step,
    }  # fmt: skip


def _curve(probe, model, first, last):
    return [_row(f"loss_{probe}", model, loss, step=i) for i, loss in enumerate((first, last))]


def _scores(probe, model, values):
    return [
        _row(f"{score}_{probe}", model, value) for score, value in zip(SCORES, values, strict=True)
    ]


def _figure(noisy=(0.2, 0.15), mixed=(0.01, 0.0)):
    rows = [*_curve("mlp", "noisy_labels", *noisy), *_curve("mlp", "vae", 0.8, 0.1)]
    return rows_frame(rows + _curve("mlp", "mixed_labels", *mixed))


def _table(labels=(1, 1, 1, 0.99, 1), mixed=(0.1, 0.1, 1, 0.97, 1), pixels=0.9, beta=0.6):
    rows = [*_scores("mlp", "labels", labels), *_scores("mlp", "mixed_labels", mixed)]
    rows += _scores("mlp", "vae", (0.4, 0.4, 0.7, 0.6, 0.7))
    rows += _scores("mlp", "beta_vae", (beta, 0.5, 0.6, 0.65, 0.7))
    rows += _scores("mlp", "raw_pixels", (0.1, 0.1, 0.9, pixels, 0.001))
    return rows_frame(rows)


def _outcome(figure, table):
    artefacts = {"dci_es/fig01_loss_capacity": figure, "dci_es/tab01_scores": table}

    def rows(name):
        if artefacts[name] is None:
            raise FileNotFoundError(name)
        return artefacts[name]

    return {claim.name: claim for claim in check_claims(rows)}


def test_every_claim_holds_on_rows_made_for_it():
    found = _outcome(_figure(), _table())
    assert {(claim.holds, claim.total) for claim in found.values()} == {(1, 1)}
    assert "mpi3d mlp" in found["claim_04"].evidence


@pytest.mark.parametrize(
    ("claim", "figure", "table"),
    [
        ("claim_01", {"noisy": (0.2, 0.05)}, {}),  # never surpassed
        ("claim_01", {"noisy": (0.9, 0.15)}, {}),  # no better at low capacity
        ("claim_02", {"mixed": (0.2, 0.0)}, {}),
        ("claim_03", {}, {"labels": (1, 1, 1, 0.9, 1)}),
        ("claim_04", {}, {"mixed": (0.4, 0.1, 1, 0.97, 1)}),
        ("claim_05", {}, {"pixels": 0.62}),
        ("claim_06", {}, {"beta": 0.3}),
    ],
)
def test_a_claim_fails_on_rows_that_break_it(claim, figure, table):
    found = _outcome(_figure(**figure), _table(**table))
    assert (found.pop(claim).holds, {other.holds for other in found.values()}) == (0, {1})


def test_other_probes_must_not_read_mixed_labels_at_once():
    rows = rows_frame(_curve("rff", "mixed_labels", 0.4, 0.1))
    assert _outcome(rows, None)["claim_02"].holds == 1
    rows = rows_frame(_curve("rff", "mixed_labels", 0.01, 0.0))
    assert _outcome(rows, None)["claim_02"].holds == 0


def test_claims_on_drawn_images_say_so():
    found = _outcome(_figure(), _table().assign(standin=True))
    assert {name for name, claim in found.items() if claim.standin} == {
        f"claim_0{number}" for number in (3, 4, 5, 6)
    }


def test_what_was_not_run_is_not_judged():
    found = _outcome(None, None)
    assert {(claim.total, claim.evidence) for claim in found.values()} == {(0, "not run")}


def test_every_claim_has_its_statement():
    values = paper_values("dci_es")
    assert set(values.loc[values["metric"] == "claim", "row"]) == set(CLAIMS)
