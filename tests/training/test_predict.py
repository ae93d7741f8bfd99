from __future__ import annotations

import numpy as np
import pytest
import torch

from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.reference_head import ReferenceHeadSpec
from concept_audit.training.bank import train_bank
from concept_audit.training.predict import (
    build_model,
    head_callable,
    load_state,
    predict,
    training_percentiles,
)
from concept_audit.training.recipe import Member


@pytest.mark.parametrize(
    "spec",
    [CBMSpec(), CBMSpec(encoding="hard"), CBMSpec(encoding="logit"), CEMSpec(),
     ReferenceHeadSpec()],
    ids=str,
)  # fmt: skip
def test_arrays_carry_the_names_of_the_bundle(toy, short, spec, tmp_path):
    result = train_bank([Member(spec)], toy, recipe=short)[0]
    torch.save({"state_dict": result.state_dict, "hparams": result.member.describe()},
               tmp_path / "checkpoint.ckpt")  # fmt: skip
    stored = torch.load(tmp_path / "checkpoint.ckpt", weights_only=True)
    assert stored["hparams"]["seed"] == 0
    model = load_state(build_model(spec, toy), stored["state_dict"])
    arrays = predict(model, toy, "test", batch_size=17)
    rows = toy.rows("test")
    np.testing.assert_array_equal(arrays["index"], rows)
    np.testing.assert_array_equal(arrays["y"], toy.y[rows])
    np.testing.assert_array_equal(arrays["c"], toy.c[rows])
    names = {"index", "y", "c", "y_logits", "c_logits", "c_hat"}
    if spec.family == "cem":
        names |= {"c_pos", "c_neg", "c_mix"}
        assert arrays["c_mix"].shape == (61, 3, 16)
    assert arrays.keys() == names
    probability = 1 / (1 + np.exp(-arrays["c_logits"]))
    expected = {
        "soft": probability,
        "embedding": probability,
        "hard": arrays["c_logits"] > 0,
        "logit": arrays["c_logits"],
        None: toy.c[rows],
    }[spec.encoding]
    np.testing.assert_allclose(arrays["c_hat"], expected, atol=1e-6)
    bottleneck = arrays.get("c_mix", arrays["c_hat"]).reshape(61, -1)
    np.testing.assert_allclose(head_callable(model)(bottleneck), arrays["y_logits"], atol=1e-5)


def test_percentiles_are_those_of_the_training_logits_and_travel_with_the_weights(toy, short):
    spec = CBMSpec(encoding="logit", concept_output="leaky_relu", concept_dropout=0.2)
    result = train_bank([Member(spec)], toy, recipe=short)[0]
    model = load_state(build_model(spec, toy), result.state_dict)
    c_logits = predict(model, toy, "train")["c_logits"]
    expected = np.percentile(c_logits, [5, 95], axis=0)
    np.testing.assert_allclose(result.concept_percentiles, expected, rtol=1e-5)
    np.testing.assert_allclose(result.state_dict["concept_percentiles"], expected, rtol=1e-5)
    np.testing.assert_allclose(training_percentiles(model, toy), expected, rtol=1e-5)
    values = model.intervention_values(torch.tensor([[0, 1, 0]]))
    np.testing.assert_allclose(values[0], expected[[0, 1, 0], [0, 1, 2]], rtol=1e-5)


def test_a_state_of_another_model_is_refused(toy):
    state = build_model(CBMSpec(), toy).state_dict()
    with pytest.raises(RuntimeError, match="Missing key"):
        load_state(build_model(CEMSpec(), toy), state)


def test_a_bundle_is_of_full_precision_whatever_torch_would_do(toy):
    model = build_model(CBMSpec(), toy)
    seen = []
    model.encoder.register_forward_hook(
        lambda *_: seen.append((torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32))
    )
    predict(model, toy, "test")
    assert set(seen) == {(True, False)}
