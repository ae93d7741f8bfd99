"""The console command: quick help, clear errors, exit statuses."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from concept_audit.pipeline.entry import main


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_loads_neither_torch_nor_hydra_and_is_quick():
    started = time.monotonic()
    done = _run(
        "import sys; from concept_audit.pipeline.entry import main; main(['--help']); "
        "assert not {'torch', 'hydra', 'pandas', 'numpy'} & set(sys.modules)"
    )
    assert done.returncode == 0, done.stderr
    assert "concept-audit VERB" in done.stdout
    assert time.monotonic() - started < 2.0


def test_an_unknown_verb_names_the_nearest(capsys):
    assert main(["scroe"]) == 2
    assert "Did you mean `score`?" in capsys.readouterr().err


def test_list_names_what_exists(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in ("leakage/fig06_supervision", "tabulartoy_d025", "cbm_logit", "embedded"):
        assert name in printed


def test_list_of_one_group(capsys):
    assert main(["list", "data"]) == 0
    assert "experiments" not in capsys.readouterr().out
    assert main(["list", "datums"]) == 2


def test_run_refuses_a_misspelt_key_before_training(capsys):
    assert main(["run", "lambda_concpt=1"]) == 2
    assert "Nearest: lambda_concept" in capsys.readouterr().err


def test_reproduce_refuses_an_unknown_paper(capsys):
    assert main(["reproduce", "paper=leekage"]) == 2
    assert "known: leakage" in capsys.readouterr().err


def test_a_missing_package_names_its_extra(monkeypatch, capsys):
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'hydra'", name="hydra")

    monkeypatch.setattr("importlib.import_module", missing)
    assert main(["run"]) == 2
    assert "pip install 'concept-audit[pipeline]'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "reproduce", "report", "score", "fetch", "judge"])
def test_every_script_is_the_verb_of_the_same_name(verb):
    from concept_audit.pipeline.plan import config_dir

    text = (config_dir().parent / "scripts" / f"{verb}.py").read_text()
    assert f'main(["{verb}", *sys.argv[1:]])' in text
