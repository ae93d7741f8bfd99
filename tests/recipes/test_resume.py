"""Reuse and resume: what is done stays done, what was killed goes on to the same numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.resume import cell_key, key_of_evaluation
from concept_audit.store.bundle import read_bundle
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect

SMALL = ["profile=smoke", "trainer.jobs=1"]


def _cells(folder: Path, *overrides: str):
    return expand([*SMALL, f"paths.output_dir={folder}", *overrides])


def _trained(layout: OutputLayout) -> dict[str, int]:
    return {key: layout.checkpoint_path(key).stat().st_mtime_ns for key in layout.run_keys()}


def test_an_added_weight_trains_only_what_is_new(tmp_path):
    layout = OutputLayout(tmp_path)
    execute(_cells(tmp_path, "lambda_concept=0.1,1", "evaluation=[accuracy]"))
    before = _trained(layout)
    assert len(before) == 2
    execute(_cells(tmp_path, "lambda_concept=0.1,1,5", "evaluation=[accuracy]"))
    after = _trained(layout)
    assert len(after) == 3
    assert {key: after[key] for key in before} == before


def test_an_added_evaluation_trains_nothing(tmp_path):
    layout = OutputLayout(tmp_path)
    execute(_cells(tmp_path, "evaluation=[accuracy]"))
    before = _trained(layout)
    (result,) = execute(_cells(tmp_path, "evaluation=[accuracy,leakage]"))
    assert result.error is None
    assert _trained(layout) == before
    assert {"task_accuracy", "ctl"} <= set(collect(layout)["metric"])


def test_where_files_lie_and_what_is_drawn_do_not_move_a_key(tmp_path):
    (one,) = _cells(tmp_path)
    (other,) = _cells(tmp_path / "elsewhere", "evaluation=[accuracy]", "logger=wandb_offline")
    assert cell_key(one).key == cell_key(other).key


@pytest.mark.parametrize(
    "override",
    ["lambda_concept=2", "fold=1", "recipe.lr=0.01", "data.delta=0.5", "encoder.widths=[8]"],
)
def test_what_moves_numbers_moves_the_key(tmp_path, override):
    (one,) = _cells(tmp_path)
    (other,) = _cells(tmp_path, override)
    assert cell_key(one).key != cell_key(other).key


def test_trainings_share_their_setting_and_nothing_else_does(tmp_path):
    settings = {
        override: {cell_key(cell).setting for cell in _cells(tmp_path, override)}
        for override in ("fold=0,1,2", "recipe.lr=0.01", "encoder.widths=[8]", "data.delta=0.5")
    }
    assert all(len(found) == 1 for found in settings.values())
    assert len(set.union(*settings.values())) == len(settings)


def test_a_hard_model_is_one_run_for_all_weights(tmp_path):
    cells = _cells(tmp_path, "model=cbm_hard", "lambda_concept=0.1,1")
    assert len({cell_key(cell).key for cell in cells}) == 1


def test_an_edited_metric_moves_the_evaluation_and_not_the_run(tmp_path, monkeypatch):
    from concept_audit.pipeline import resume

    (cell,) = _cells(tmp_path)
    leakage = cell.config["evaluation"]["leakage"]
    run = cell_key(cell).key
    before = key_of_evaluation(run, {"test": "0"}, leakage)
    real = resume._digest

    def edited(modules):
        touched = any("evaluations.leakage" in module for module in modules)
        return real(modules) + ("edited" if touched else "")

    monkeypatch.setattr(resume, "_digest", edited)
    assert cell_key(cell).key == run
    assert key_of_evaluation(run, {"test": "0"}, leakage) != before
    accuracy = cell.config["evaluation"]["accuracy"]
    monkeypatch.setattr(resume, "_digest", real)
    plain = key_of_evaluation(run, {"test": "0"}, accuracy)
    monkeypatch.setattr(resume, "_digest", edited)
    assert key_of_evaluation(run, {"test": "0"}, accuracy) == plain


def test_a_failing_cell_leaves_the_others_and_says_why(tmp_path):
    cells = _cells(tmp_path, "recipe.lr=0.001,1.0e+30", "evaluation=[accuracy]")
    good, bad = execute(cells)
    assert good.error is None
    assert bad.error is not None
    assert "lambda" in bad.error
    assert "epoch" in bad.error or "step" in bad.error


def test_a_failing_evaluation_keeps_its_whole_error_until_it_works(tmp_path):
    (bad,) = execute(_cells(tmp_path, "evaluation=[leakage]", "evaluation.leakage.n_neighbors=0"))
    assert bad.error is not None
    assert "n_neighbors" in bad.error
    layout = OutputLayout(tmp_path)
    (kept,) = layout.metrics_dir(bad.key).glob("*.error.txt")
    assert "Traceback" in kept.read_text()
    (good,) = execute(_cells(tmp_path, "evaluation=[leakage]"))
    assert good.error is None


def test_an_unwritable_folder_is_refused_before_training(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(OSError, match=r"paths\.output_dir"):
        execute(_cells(blocked))


def _start(folder: Path, epochs: int) -> subprocess.Popen[str]:
    arguments = [
        *SMALL, f"paths.output_dir={folder}", f"recipe.epochs={epochs}", "evaluation=[accuracy]",
        "model=cbm_soft",
    ]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "concept_audit.pipeline", "run", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_a_killed_training_goes_on_to_the_same_numbers(tmp_path):
    epochs = 120
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert _start(whole, epochs).wait(timeout=300) == 0
    process = _start(broken, epochs)
    deadline = time.monotonic() + 240
    while not list(broken.glob("resume/*/state.ckpt")):
        assert time.monotonic() < deadline, "no state was saved"
        assert process.poll() is None, "training ended before it could be killed"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(broken.glob("runs/*/checkpoint.ckpt"))
    assert _start(broken, epochs).wait(timeout=300) == 0
    (key,) = OutputLayout(whole).run_keys()
    assert OutputLayout(broken).run_keys() == [key]
    for split in ("val", "test"):
        one = read_bundle(OutputLayout(whole).bundle_path(key, split)).arrays
        other = read_bundle(OutputLayout(broken).bundle_path(key, split)).arrays
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    assert not list(broken.glob("resume/*"))


def _children(pid: int) -> list[int]:
    """Processes in the session of a command, but for the command itself."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        number = int(path.parent.name)
        if int(fields[3]) == pid and number != pid and fields[0] != "Z":
            found.append(number)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc on this system")
def test_a_killed_sweep_leaves_no_worker_and_goes_on_to_the_same_numbers(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    overrides = ["data.delta=0.25,0.5", "recipe.epochs=40", "evaluation=[accuracy]"]
    command = [sys.executable, "-m", "concept_audit.pipeline", "run", "-m", *overrides]
    process = subprocess.Popen(
        [*command, "profile=smoke", "trainer.jobs=2", f"paths.output_dir={broken}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 240
    while not list(broken.glob("resume/*/state.ckpt")):
        assert time.monotonic() < deadline, "no state was saved"
        assert process.poll() is None, "training ended before it could be killed"
        time.sleep(0.005)
    assert len(_children(process.pid)) >= 3  # two workers and the server of their queue
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while left := _children(process.pid):
        assert time.monotonic() < deadline, f"processes {left} outlived their command"
        time.sleep(0.05)
    resumed = execute(_cells(broken, *overrides))
    untouched = execute(_cells(whole, *overrides))
    assert [result.error for result in (*resumed, *untouched)] == [None] * 4
    for one, other in zip(resumed, untouched, strict=True):
        assert one.key == other.key
        mine = read_bundle(OutputLayout(broken).bundle_path(one.key, "test")).arrays
        theirs = read_bundle(OutputLayout(whole).bundle_path(one.key, "test")).arrays
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert not list(broken.glob("resume/*"))


def test_two_processes_share_a_folder_and_train_once(tmp_path):
    processes = [_start(tmp_path, 20) for _ in range(2)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    layout = OutputLayout(tmp_path)
    assert len(layout.run_keys()) == 1
    rows = collect(layout)
    assert (rows["metric"] == "task_accuracy").sum() == 1


def test_a_failing_run_ends_with_status_one_and_one_table(tmp_path):
    wrong = [f"paths.output_dir={tmp_path}", "recipe.lr=1.0e+30", "evaluation=[accuracy]"]
    done = subprocess.run(
        [sys.executable, "-m", "concept_audit.pipeline", "run", *SMALL, *wrong],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "1 of 1 runs failed" in done.stderr
    assert "Traceback" not in done.stderr
