"""`concept-audit score` on good and bad files."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from concept_audit import metrics
from concept_audit.pipeline import score as score_module
from concept_audit.pipeline.score import compute_scores, main, score
from concept_audit.pipeline.score_input import ScoreInputError, read_predictions

EXAMPLE = Path(__file__).parents[2] / "scripts" / "examples" / "predictions.npz"
SLOW = ("ois", "nis")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, (120, 3))
    y = (c.sum(1) >= 2).astype(np.int64)
    logits = 2.0 * (2 * c - 1) + y[:, None] + rng.normal(size=c.shape)
    return {"c": c, "c_hat": 1 / (1 + np.exp(-logits)), "c_logits": logits, "y": y}


@pytest.fixture
def as_table(arrays):
    header = [
        "y",
        *(f"{p}_{n}" for p in ("c", "c_hat", "c_logits") for n in ("wing", "hat", "eye")),
    ]
    columns = [arrays["y"], *arrays["c"].T, *arrays["c_hat"].T, *arrays["c_logits"].T]
    return header, columns


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)


def test_the_example_gives_the_numbers_of_the_functions(tmp_path, capsys):
    assert main([str(EXAMPLE), f"out={tmp_path}", "skip=ois,nis"]) == 0
    shown = capsys.readouterr().out
    assert "Concepts-task leakage (CTL)" in shown
    assert "lower is better" in shown
    with np.load(EXAMPLE) as data:
        ctl = metrics.concepts_task_leakage(data["c_hat"], data["c"], data["y"])
        icl = metrics.interconcept_leakage(data["c_hat"], data["c"])
    content = json.loads((tmp_path / "scores.json").read_text())
    found = {row["key"]: row for row in content["scores"]}
    assert found["ctl"]["value"] == pytest.approx(ctl.mean, abs=1e-12)
    assert found["ctl"]["per_item"]["has red wing"] == pytest.approx(ctl.per_concept[0], abs=1e-12)
    np.testing.assert_allclose(found["icl"]["matrix"], icl.matrix, atol=1e-12)
    assert {"ctl_on_logits", "icl_on_logits", "concept_auc", "task_accuracy"} <= set(found)
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    pair = next(r for r in rows if r["target"] == "has red wing|has hooked beak")
    assert float(pair["value"]) == pytest.approx(icl.matrix[0, 1], abs=1e-12)
    page = (tmp_path / "scores.html").read_text()
    assert page.count("<svg") >= 4
    assert not re.search(r'(src|href)="', page)  # nothing is fetched


def test_all_file_kinds_agree(arrays, as_table, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, tmp_path / "a.safetensors")
    header, columns = as_table
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(zip(*[[repr(v.item()) for v in col] for col in columns], strict=True))
    kinds = ["npz", "safetensors", "csv"]
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(zip(header, columns, strict=True))), tmp_path / "a.parquet")
    kinds.append("parquet")
    values = []
    for kind in kinds:
        data = read_predictions(tmp_path / f"a.{kind}")
        values.append({s.key: s.value for s in compute_scores(data, skip=SLOW)})
    for other in values[1:]:
        assert other == values[0]
    assert read_predictions(tmp_path / "a.csv").concept_names == ("wing", "hat", "eye")


def test_on_logits_scores_the_logits(arrays, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    data = read_predictions(tmp_path / "a.npz")
    found = {s.key: s.value for s in compute_scores(data, on="logits", skip=SLOW)}
    expected = metrics.concepts_task_leakage(arrays["c_logits"], arrays["c"], arrays["y"]).mean
    assert found["ctl_on_logits"] == expected
    assert "ctl" not in found
    del arrays["c_logits"]
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(ScoreInputError, match=r"on=logits looked for an array c_logits and found"):
        compute_scores(read_predictions(tmp_path / "b.npz"), on="logits")


def test_vectors_and_codes(arrays, tmp_path, capsys):
    rng = np.random.default_rng(1)
    c = arrays["c"]
    vectors = rng.normal(size=(120, 3, 2))
    content = {
        "c_mix": vectors + c[..., None], "c_pos": vectors, "c_neg": -vectors, "c": c,
        "y": arrays["y"], "codes": c + 0.2 * rng.normal(size=c.shape), "factors": c,
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **content)
    data = read_predictions(tmp_path / "a.npz")
    scores = {s.key: s for s in compute_scores(data, probe="random_forest", skip=SLOW)}
    assert set("DCIES") | {"alignment_leakage", "self_information"} <= set(scores)
    assert scores["self_information"].value == metrics.self_information(content["c_mix"], c).mean
    assert scores["E"].curve
    assert list(scores["D"].per_item) == ["code 1", "code 2", "code 3"]
    assert scores["I"].value > 0.9
    assert scores["D"].value > 0.8  # one code a factor, with noise of a fifth
    assert score(tmp_path / "a.npz", probe="random_forest", out=tmp_path / "o", skip=SLOW) == 0
    assert "<polyline" in (tmp_path / "o" / "scores.html").read_text()
    printed = capsys.readouterr().out
    assert "Each code serves one factor to" in printed  # its own words, not a remark on E
    assert printed.count("E belongs to this curve's own capacity range") == 1
    assert "D, C, I, E read by random forests of 100 trees" in printed


def test_without_torch_scores_are_listed_not_dropped(arrays, tmp_path, monkeypatch):
    real = score_module.find_spec
    monkeypatch.setattr(score_module, "find_spec", lambda n: None if n == "torch" else real(n))
    np.savez(tmp_path / "a.npz", codes=arrays["c_hat"], factors=arrays["c"], **arrays)
    data = read_predictions(tmp_path / "a.npz")
    by_key = {s.key: s for s in compute_scores(data, probe="mlp", skip=("nis",))}
    for key in ("ois", "D", "E"):
        assert by_key[key].value is None
        assert by_key[key].note == "needs concept-audit[torch]"
    assert score(tmp_path / "a.npz", probe="mlp", out=tmp_path / "o", skip=("nis",)) == 0
    assert "needs concept-audit[torch]" in (tmp_path / "o" / "scores.html").read_text()
    by_key = {s.key: s for s in compute_scores(data, probe="rff", skip=SLOW)}
    assert by_key["D"].value > 0.5  # Fourier features need scipy alone


def test_names_are_escaped(arrays, tmp_path):
    names = np.array(["<script>alert(1)</script>", "a & b", '"quoted"'])
    np.savez(tmp_path / "a.npz", concept_names=names, **arrays)
    assert score(tmp_path / "a.npz", out=tmp_path / "o", skip=SLOW) == 0
    page = (tmp_path / "o" / "scores.html").read_text()
    assert "script" not in Tags(page).seen
    assert "&lt;script&gt;" in page


def test_undefined_scores_say_why(arrays, tmp_path):
    np.savez(tmp_path / "a.npz", **{**arrays, "y": np.zeros(120, dtype=int)})
    scores = {s.key: s for s in compute_scores(read_predictions(tmp_path / "a.npz"), skip=SLOW)}
    assert scores["ctl"].value is None
    assert "at least two classes" in scores["ctl"].note
    assert scores["icl"].value is not None


def write_csv(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected a header and rows, got 0 lines"),
        ("a,b\n1,2\n", r"looked for columns y, c_logits_<name>, c_hat_<name>.*found a, b"),
        ("y,c_hat_a\n1,0.5\n1\n", r"line 3: expected 2 cells, got 1"),
        ("y,c_hat_a\n1,red\n", r"line 2, column 'c_hat_a': expected a number, got 'red'"),
        ("c_hat_a,c_b\n0.5,1\n", r"must name the same concepts, got \['a', 'b'\]"),
        ("y,y\n0,1\n", r"column names must differ, got \['y'\] twice"),
        ("y,c_a\n0,1\n", r"looked for at least one pair of \(c_hat, c\).*found c, y\. Rename"),
    ],
)
def test_bad_tables(tmp_path, capsys, text, message):
    assert score(write_csv(tmp_path / "bad.csv", text), out=tmp_path / "o") == 2
    assert re.search(message, capsys.readouterr().err)


def test_bad_files(tmp_path, capsys, arrays):
    assert main([str(tmp_path / "missing.npz")]) == 2
    assert "no file at" in capsys.readouterr().err
    np.savez(tmp_path / "other.npz", chat=arrays["c_hat"], c=arrays["c"])
    assert main([str(tmp_path / "other.npz")]) == 2
    assert "found c, chat. Rename the arrays" in capsys.readouterr().err
    (tmp_path / "a.pkl").write_bytes(b"x")
    assert main([str(tmp_path / "a.pkl")]) == 2
    assert "expected one of .npz, .safetensors, .csv, .parquet" in capsys.readouterr().err
    np.savez(tmp_path / "object.npz", c_hat=np.array([{"a": 1}], dtype=object))
    assert main([str(tmp_path / "object.npz")]) == 2
    assert "object array" in capsys.readouterr().err
    np.savez(tmp_path / "names.npz", concept_names=np.array(["one"]), **arrays)
    assert main([str(tmp_path / "names.npz")]) == 2
    assert "concept_names must hold 3 names, one per concept, got 1" in capsys.readouterr().err
    with pytest.raises(ScoreInputError, match=r"on must be as_given or logits, got 'probs'"):
        compute_scores(read_predictions(EXAMPLE), on="probs")
    with pytest.raises(ScoreInputError, match=r"probe must be one of random_forest, mlp, rff"):
        compute_scores(read_predictions(EXAMPLE), probe="svm")
    with pytest.raises(SystemExit):
        main([str(EXAMPLE), "colour=red"])
    assert "unknown option 'colour=red'; there are on=, probe=, out=, skip=" in (
        capsys.readouterr().err
    )
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    assert main([str(tmp_path / "a.parquet")]) == 2
    assert "not a readable Parquet file" in capsys.readouterr().err


def test_only_the_base_install_is_imported():
    code = (
        "import sys; from concept_audit.pipeline.score import main; "
        "heavy = ('torch', 'pandas', 'hydra', 'jinja2', 'matplotlib'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_example_file_is_what_its_script_writes(tmp_path):
    script = EXAMPLE.parent / "make_predictions.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "p.npz")], check=True)
    with np.load(EXAMPLE) as kept, np.load(tmp_path / "p.npz") as made:
        assert sorted(kept.files) == sorted(made.files)
        for name in kept.files:
            np.testing.assert_array_equal(kept[name], made[name])
