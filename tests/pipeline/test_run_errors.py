"""Data that cannot be built end a run, a sweep and an experiment with their own message, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from concept_audit.pipeline.entry import main
from concept_audit.pipeline.execute import CannotBuildError, keyed_cells
from concept_audit.pipeline.plan import expand

MISSING = "HAM10000_metadata.csv is missing"
ADVICE = "Run: concept-audit fetch data=ham10k data_dir={folder}."


def _said(arguments: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    status = main(
        ["run", *arguments, f"paths.data_dir={folder}", f"paths.output_dir={folder / 'out'}"]
    )
    printed = capfd.readouterr()
    assert status == 1
    assert printed.out == ""
    assert not list((folder / "out").glob("runs/*"))
    return printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["data=ham10k"],
        ["-m", "data=ham10k", "lambda_concept=0.1,1"],
        ["-m", "data=ham10k", "lambda_concept=0.1,1", "hydra/launcher=basic"],
        ["-m", "data=ham10k", "lambda_concept=0.1,1", "hydra/launcher=joblib"],
        [
            "experiment=leakage/fig06_supervision", "profile=smoke", "data=ham10k",
            "model=cbm_soft", "lambda_concept=1", "fold=0",
        ],
    ],
    ids=["run", "bank", "basic", "joblib", "experiment"],
)  # fmt: skip
def test_missing_files_are_named_once_with_the_command_that_fetches_them(
    arguments, tmp_path, capfd
):
    said = _said(arguments, tmp_path, capfd)
    assert said.startswith("concept-audit run: ")
    assert said.count(MISSING) == said.count(ADVICE.format(folder=tmp_path)) == 1
    assert said.count("\n") == 1


def test_every_faulty_dataset_of_a_sweep_is_named(tmp_path, capfd):
    folder = tmp_path / "raw" / "dsprites"
    folder.mkdir(parents=True)
    (folder / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz").write_bytes(b"<html>gone</html>")
    said = _said(["-m", "data=ham10k,dsprites,tabulartoy_d025"], tmp_path, capfd)
    assert said.count("\n") == 2
    assert MISSING in said
    assert ".npz: expected" in said
    assert "concept-audit fetch data=dsprites" in said


def test_an_option_out_of_range_is_named(tmp_path, capfd):
    said = _said(["-m", "data.n_samples=3,200"], tmp_path, capfd)
    assert said == "concept-audit run: n_samples must be at least 10 to be split in three, got 3.\n"


def test_a_stack_trace_is_there_for_who_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(CannotBuildError, match=MISSING):
        main(["run", "data=ham10k", f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}"])


def test_a_faulty_dataset_is_tried_once(tmp_path, monkeypatch):
    from concept_audit.pipeline import execute

    cells = expand(["data=ham10k", f"paths.data_dir={tmp_path}", "lambda_concept=0.1,1,2"])
    calls = []
    real = execute.cell_key
    monkeypatch.setattr(execute, "cell_key", lambda cell: calls.append(cell) or real(cell))
    with pytest.raises(CannotBuildError, match=MISSING):
        keyed_cells(cells)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.spec.objective=beta,betta", r"model\.spec: objective must be one of .* 'betta'"),
        ("recipe.checkpoint=nope", r"recipe: checkpoint must be one of .* got 'nope'"),
        ("trainer.micro_batches=0", r"trainer\.micro_batches must be .* at least 1, got 0"),
        ("trainer.precision=fp8", r"trainer\.precision must be one of 32-true, bf16-mixed"),
    ],
)
def test_a_value_out_of_range_is_named_before_any_cell_is_trained(override, said, tmp_path):
    cells = expand(
        [
            "data=tabulartoy_d025",
            "profile=smoke",
            "model=vae",
            f"paths.output_dir={tmp_path}",
            override,
        ]
    )
    with pytest.raises(CannotBuildError, match=said):
        keyed_cells(cells)
