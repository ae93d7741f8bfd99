from __future__ import annotations

import json

import numpy as np
import pytest

from concept_audit.council import (
    ActivationTable,
    load_cbm_suite,
    load_labo,
    load_lf_cbm,
    load_vlg_cbm,
    read_decision_csv,
    table_from_linear_cbm,
)

torch = pytest.importorskip("torch")

D, K, L, N = 6, 5, 3, 8
NAMES = [f"concept {j}" for j in range(K)]
CLASSES = ["a", "b", "c"]


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def features(rng):
    return torch.randn(N, D, generator=rng)


def save(folder, **tensors):
    for name, value in tensors.items():
        torch.save(value, folder / f"{name}.pt")
    (folder / "concepts.txt").write_text("\n".join(NAMES))  # no final newline, as the authors write
    (folder / "args.txt").write_text(json.dumps({"lam": 7e-4}))


def adds_up(table, logits):
    table.check_logits(logits)
    logits = logits.detach()
    for row in range(table.n_samples):
        p = table.predictions[row]
        total = table.contributions(row).sum() + table.bias[p]
        assert total == pytest.approx(float(logits[row, p]), rel=1e-4, abs=1e-5)  # float32 sums


def test_lf_cbm_uses_z_scores(tmp_path, rng, features):
    w_c, w_g = torch.randn(K, D, generator=rng), torch.randn(L, K, generator=rng)
    mean, std = torch.randn(1, K, generator=rng), torch.rand(1, K, generator=rng) + 0.5
    bias = torch.randn(L, generator=rng)
    save(tmp_path, W_c=w_c, proj_mean=mean, proj_std=std, W_g=w_g, b_g=bias)
    model = load_lf_cbm(tmp_path)
    logits = ((features @ w_c.T - mean) / std) @ w_g.T + bias
    table = model.table(features, CLASSES, y=[0] * N)
    adds_up(table, logits)
    assert model.settings == {"lam": 7e-4}
    assert 0 <= table.accuracy <= 100
    assert len(table.explain(0).concepts) <= 5


def test_vlg_cbm_takes_the_bias_of_the_cut_head(tmp_path, rng, features):
    layers = torch.nn.Sequential(torch.nn.Linear(D, 7), torch.nn.ReLU(), torch.nn.Linear(7, K))
    state = {f"model.{k}": v for k, v in layers.state_dict().items()}
    mean, std = torch.randn(K, generator=rng), torch.rand(K, generator=rng) + 0.5
    final = {"weight": torch.randn(L, K, generator=rng), "bias": torch.zeros(L) + 9}
    cut, cut_bias = torch.randn(L, K, generator=rng), torch.randn(L, generator=rng)
    save(tmp_path, cbl=state, final=final)
    torch.save(mean, tmp_path / "train_concept_features_mean.pt")
    torch.save(std, tmp_path / "train_concept_features_std.pt")
    torch.save(cut, tmp_path / "W_g@NEC=5.pt")
    torch.save(cut_bias, tmp_path / "b_g@NEC=5.pt")
    with torch.no_grad():
        z = (layers(features) - mean) / std
    adds_up(load_vlg_cbm(tmp_path).table(features, CLASSES), z @ final["weight"].T + final["bias"])
    cut_table = load_vlg_cbm(tmp_path, nec=5).table(features, CLASSES)
    adds_up(cut_table, z @ cut.T + cut_bias)
    with pytest.raises(ValueError, match="off by"):
        cut_table.check_logits(z @ cut.T + final["bias"])  # the trap


@pytest.mark.parametrize("hidden", [True, False])
def test_cbm_suite_feeds_the_raw_projection(tmp_path, rng, features, hidden):
    layers = torch.nn.Sequential(
        torch.nn.Linear(D, 2 * D), torch.nn.ReLU(), torch.nn.Linear(2 * D, K)
    )
    if not hidden:
        layers = torch.nn.Sequential(torch.nn.Linear(D, K))
    w_g, bias = torch.randn(L, K, generator=rng), torch.randn(L, generator=rng)
    save(
        tmp_path,
        W_c=layers.state_dict(),
        proj_mean=torch.tensor(0.3),
        proj_std=torch.tensor(2.0),
        W_g=w_g,
        b_g=bias,
    )
    with torch.no_grad():
        x = layers(features)
    table = load_cbm_suite(tmp_path).table(features, CLASSES)
    adds_up(table, x @ w_g.T + bias)
    with pytest.raises(ValueError, match="must add up to the model's logits"):
        table.check_logits(((x - 0.3) / 2.0) @ w_g.T + bias)  # the trap


def test_labo_takes_the_softmax_over_concepts(tmp_path, rng, features):
    matrix, text = torch.randn(L, K, generator=rng), torch.randn(9, D, generator=rng)
    select = torch.tensor([1, 3, 4, 7, 8])
    torch.save({"state_dict": {"asso_mat": matrix}}, tmp_path / "last.ckpt")
    torch.save(text, tmp_path / "concepts_feat_ViT.pth")
    torch.save(select, tmp_path / "select_idx.pth")
    np.save(tmp_path / "concepts_raw_selected.npy", np.array(NAMES))
    paths = [
        tmp_path / n for n in ("last.ckpt", "concepts_feat_ViT.pth", "concepts_raw_selected.npy")
    ]
    model = load_labo(*paths, select=tmp_path / "select_idx.pth")
    logits = (features @ text[select].T * 100) @ matrix.softmax(dim=-1).T
    adds_up(model.table(features, CLASSES), logits)
    with pytest.raises(ValueError, match="needs 5 concept features, got 9"):
        load_labo(*paths)
    with pytest.raises(ValueError, match="association must be"):
        load_labo(*paths, select=tmp_path / "select_idx.pth", association="gelu")


def test_a_pickle_is_never_run(tmp_path):
    marker = tmp_path / "ran"

    class Writes:
        def __reduce__(self):
            return (type(marker).touch, (marker,))

    save(tmp_path, W_c=Writes())
    with pytest.raises(ValueError, match="holds more than tensors, or is damaged"):
        load_lf_cbm(tmp_path)
    np.save(tmp_path / "names.npy", np.array([Writes()], dtype=object), allow_pickle=True)
    torch.save({"asso_mat": torch.ones(1, 1)}, tmp_path / "m.ckpt")
    torch.save(torch.ones(1, 2), tmp_path / "f.pth")
    with pytest.raises(ValueError, match="holds Python objects, which could run code"):
        load_labo(tmp_path / "m.ckpt", tmp_path / "f.pth", tmp_path / "names.npy")
    assert not marker.exists()


def test_damaged_and_missing_files_are_named(tmp_path, rng):
    with pytest.raises(FileNotFoundError, match=r"lacks W_c\.pt"):
        load_lf_cbm(tmp_path)
    (tmp_path / "W_c.pt").write_bytes(b"PK not really")
    with pytest.raises(ValueError, match="is damaged"):
        load_lf_cbm(tmp_path)
    save(tmp_path, W_c=torch.ones(2, 2))
    with pytest.raises(ValueError, match="must hold a state dict, got Tensor"):
        load_cbm_suite(tmp_path)
    save(tmp_path, W_c={"x": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"no linear layer 0\.weight"):
        load_cbm_suite(tmp_path)


def test_names_must_fit(tmp_path, rng, features):
    w = torch.ones(K, D)
    save(tmp_path, W_c=w, proj_mean=torch.zeros(K), proj_std=torch.ones(K), W_g=torch.ones(L, K))
    torch.save(torch.zeros(L), tmp_path / "b_g.pt")
    with pytest.raises(ValueError, match="features do not fit the lf_cbm model"):
        load_lf_cbm(tmp_path).table(features[:, :2], CLASSES)
    with pytest.raises(ValueError, match="class_names must have 3 names, got 1"):
        load_lf_cbm(tmp_path).table(features, ["a"])
    (tmp_path / "concepts.txt").write_text("one\n")
    with pytest.raises(ValueError, match="must have 5 names, one per concept, got 1"):
        load_lf_cbm(tmp_path)
    (tmp_path / "concepts.txt").write_text("\n".join(NAMES))
    (tmp_path / "args.txt").write_text("{")
    with pytest.raises(ValueError, match="must hold JSON"):
        load_lf_cbm(tmp_path)


def test_our_own_linear_head(rng):
    head = torch.nn.Linear(K, L)
    c = torch.rand(N, K, generator=rng)
    table = table_from_linear_cbm(c, head, NAMES, CLASSES, y=[0] * N)
    adds_up(table, head(c))
    wrapped = torch.nn.Sequential(torch.nn.Identity(), head)
    adds_up(table_from_linear_cbm(c, wrapped, NAMES, CLASSES), head(c))


def test_other_heads_are_refused_with_the_reason(rng):
    c = torch.rand(N, K, generator=rng)
    mlp = torch.nn.Sequential(torch.nn.Linear(K, 4), torch.nn.ReLU(), torch.nn.Linear(4, L))
    with pytest.raises(ValueError, match="one linear layer, got 2 of them: behind hidden layers"):
        table_from_linear_cbm(c, mlp, NAMES, CLASSES)
    for shape in ((N, K, 4), (N, K * 4)):
        with pytest.raises(
            ValueError, match=r"concept embeddings \(CEM\) have no single contribution"
        ):
            table_from_linear_cbm(torch.rand(shape), torch.nn.Linear(K * 4, L), NAMES, CLASSES)


def test_decision_tables(tmp_path):
    path = tmp_path / "decisions.csv"
    path.write_text(
        "ground_truth,prediction,concept_1,contrib_1,concept_2,contrib_2,image_idx,remain_contrib\n"
        "cat,dog,NOT whiskers,0.5,a tail,0.2,17,0.1\n"
    )
    row = read_decision_csv(path)[0]
    assert row.concept_names == ("whiskers", "a tail")
    assert row.negated == (True, False)
    assert (row.image_index, row.gt_class, row.pred_class) == (17, "cat", "dog")
    path.write_text("ground_truth,prediction,image_idx\n")
    with pytest.raises(ValueError, match="lacks the columns concept_1, contrib_1"):
        read_decision_csv(path)
    path.write_text("ground_truth,prediction,concept_1,contrib_1,image_idx\na,b,c,nan,1\n")
    with pytest.raises(ValueError, match="line 2: contributions must be finite"):
        read_decision_csv(path)
    path.write_text("ground_truth,prediction,concept_1,contrib_1,image_idx\na,b,c,x,1\n")
    with pytest.raises(ValueError, match="line 2: could not convert"):
        read_decision_csv(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activations": np.ones((2, 3))}, r"must have shape \(n, 2\)"),
        ({"bias": np.ones(3)}, r"bias must have shape \(2,\)"),
        ({"concept_names": ("a",)}, "concept_names must have 2 names"),
        ({"y": np.zeros(3, dtype=int)}, r"y must have shape \(2,\)"),
    ],
)
def test_tables_check_their_parts(change, message):
    parts = {
        "activations": np.ones((2, 2)),
        "weights": np.ones((2, 2)),
        "bias": np.zeros(2),
        "concept_names": ("a", "b"),
        "class_names": ("x", "y"),
    }
    with pytest.raises(ValueError, match=message):
        ActivationTable(**{**parts, **change})
    with pytest.raises(ValueError, match="logits must have shape"):
        ActivationTable(**parts).check_logits([[1.0]])
