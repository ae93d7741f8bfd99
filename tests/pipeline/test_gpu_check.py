"""The check of a GPU, tried on the CPU; what only a GPU does is tested on hand-made events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from concept_audit.models.arithmetic import matrix_products  # noqa: E402
from concept_audit.models.cbm import CBMSpec  # noqa: E402
from concept_audit.models.encoders import MLPSpec  # noqa: E402
from concept_audit.models.vae import VAESpec  # noqa: E402
from concept_audit.pipeline import device_speed, gpu_check  # noqa: E402
from concept_audit.pipeline.device_agreement import (  # noqa: E402
    agreement_parts,
    compared,
)
from concept_audit.pipeline.device_profile import Profile, busy_time  # noqa: E402
from concept_audit.pipeline.device_speed import (  # noqa: E402
    NoTimeLeftError,
    Settings,
    SpeedCase,
    measure,
    speed_cases,
    speed_ratio,
    steps_per_repeat,
)
from concept_audit.pipeline.gpu_check import Check, exit_status, main, render  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"
SMALL = SpeedCase("small", CBMSpec(encoder=MLPSpec((8,))), side=16, batch_size=8)
AGREED = {"name": "c_hat", "agree": True}


def finished(**changes):
    check = Check(limit_seconds=60.0)
    check.agreement.append(AGREED)
    for name, value in changes.items():
        getattr(check, name).append(value)
    return check


@pytest.mark.slow
def test_script_prints_one_json_document(tmp_path):
    output = tmp_path / "deep" / "check.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--device", "cpu", "--quick", "--output", output],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert json.loads(output.read_text()) == found
    assert found["everything_ran_and_agreed"] is True
    assert found["errors"] == found["skipped"] == []
    assert found["versions"]["torch"] == torch.__version__
    assert found["device"]["kind"] == "cpu"
    (case,) = found["speed"]
    assert case["ratio"] == pytest.approx(case["images_per_s"] / case["bare_images_per_s"])
    assert case["reached"] == (case["ratio"] >= 0.9)
    assert (case["where_the_time_goes"] is None) == case["reached"]
    assert case["images_per_s"] == pytest.approx(1e3 * case["batch_size"] / case["step_ms"])
    assert len(case["images_per_s_of_repeats"]) == len(case["bare_images_per_s_of_repeats"]) == 3
    assert case["peak_memory_mib"] > 100
    assert "CPU" in case["peak_memory_of"]
    assert case["data"]["standin"] is True
    names = {row["name"] for row in found["agreement"]}
    assert {"S_int", "intervention curve", "alignment_leakage", "oracle_impurity_score"} <= names
    # The estimators compare two programs also on a CPU: compiled kernels and torch.
    estimates = [row for row in found["agreement"] if row["part"] == "vector_information"]
    assert len(estimates) == 5
    assert all(row["largest_difference"] <= 1e-9 for row in estimates)
    assert found["decoding"][0]["num_workers"] == 0
    assert all(row["images_per_s"] > 0 for row in found["decoding"])
    assert "speed: conv4, 32-true" in done.stderr


def test_ratio_and_its_verdict():
    assert speed_ratio(90.0, 100.0) == {"ratio": 0.9, "target": 0.9, "reached": True}
    assert speed_ratio(89.9, 100.0)["reached"] is False
    with pytest.raises(ValueError, match=r"above 0, got 0.0 and 10.0"):
        speed_ratio(0.0, 10.0)


def test_compared_finds_the_largest_difference():
    row = compared("x", [1.0, 2.0, np.nan], [1.25, 2.0, np.nan], 0.25)
    assert (row.largest_difference, row.agree, row.n_values) == (0.25, True, 3)
    assert not compared("x", [1.0], [1.5], 0.25).agree
    one_sided = compared("x", [1.0, np.nan], [1.0, 0.0], 0.25)
    assert one_sided.largest_difference == np.inf
    assert not one_sided.agree
    assert not compared("x", [np.inf], [np.inf], 0.25).agree
    with pytest.raises(ValueError, match=r"got \(2,\) on the CPU and \(1,\) on the other"):
        compared("x", [1.0, 2.0], [1.0], 0.25)


def test_status_follows_agreement_errors_and_skips_not_speed():
    assert exit_status(finished()) == 0
    assert exit_status(finished(speed={"ratio": 0.1, "reached": False})) == 0
    assert exit_status(finished(agreement={"name": "y", "agree": False})) == 1
    assert exit_status(finished(errors={"stage": "x"})) == 1
    assert exit_status(finished(skipped={"stage": "x"})) == 1
    assert exit_status(Check(limit_seconds=1.0)) == 1  # nothing was compared


def test_a_wrong_device_result_ends_in_status_1(monkeypatch, capsys, tmp_path):
    def parts(device, *, quick):
        right = compared("right", [1.0], [1.0], 0.1)
        wrong = compared("wrong", [1.0], [np.nan], 0.1)
        return {"good": lambda: [right], "bad": lambda: [wrong]}

    monkeypatch.setattr("concept_audit.pipeline.device_agreement.agreement_parts", parts)
    monkeypatch.setattr(device_speed, "speed_cases", lambda *_, **__: (SMALL,))
    monkeypatch.setattr(
        "concept_audit.pipeline.device_decoding.decoding_speed", lambda *_, **__: []
    )
    output = tmp_path / "check.json"
    assert main(["--device", "cpu", "--quick", "--output", str(output)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(output.read_text())
    assert [row["agree"] for row in found["agreement"]] == [True, False]
    assert found["agreement"][1]["largest_difference"] is None  # JSON has no infinity
    assert found["errors"] == []
    assert found["speed"][0]["name"] == "small"


def test_a_failed_stage_is_told_and_the_others_run(capsys):
    check = Check(limit_seconds=60.0)

    def out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    assert check.run("one", 0.0, out_of_memory, batch_size=512) is None
    assert check.run("two", 0.0, lambda: 7) == 7
    (error,) = check.errors
    assert (error["kind"], error["batch_size"]) == ("out_of_memory", 512)
    assert "Tried to allocate 2 GiB" in error["error"]
    assert "out_of_memory" in error["traceback"]
    assert check.run("three", 0.0, lambda: 1 / 0) is None
    assert check.errors[1]["kind"] == "error"
    assert "three failed" in capsys.readouterr().err
    assert list(check.stage_seconds) == ["one", "two", "three"]


def test_a_stage_without_time_is_skipped_and_listed(capsys):
    check = Check(limit_seconds=1.0)
    assert check.run("long", 5.0, lambda: pytest.fail("ran")) is None

    def slow():
        raise NoTimeLeftError("resnet takes 9 s a step here")

    assert check.run("slow", 0.0, slow) is None
    assert [row["stage"] for row in check.skipped] == ["long", "slow"]
    assert "9 s a step" in check.skipped[1]["reason"]
    assert check.errors == []
    assert exit_status(check) == 1


def test_render_has_no_number_that_json_lacks():
    text = render({"a": [np.inf, 1.5], "b": {"c": float("nan")}, "d": (1,)})
    assert json.loads(text) == {"a": [None, 1.5], "b": {"c": None}, "d": [1]}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--device", "tpu"], "invalid choice"),
        (["--device", "cpu", "--limit-seconds", "0"], "--limit-seconds must be above 0, got 0.0"),
        (["--device", "cpu", "--precision", "fp8"], "invalid choice"),
        (["--device", "cpu", "--num-workers", "0"], "--num-workers must be at least 1, got 0"),
        (["--device", "cpu", "--output", "."], "--output must name a file"),
        (["--dev", "cpu"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments(argv, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.out == ""


def test_without_a_gpu_the_default_names_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "--device cpu" in capsys.readouterr().err


def test_driver_is_read_or_its_absence_explained(monkeypatch, tmp_path):
    told = tmp_path / "version"
    told.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\nGCC version: 13\n")
    monkeypatch.setattr(gpu_check, "_DRIVER_FILE", told)
    assert gpu_check._driver() == {"driver": "NVIDIA UNIX x86_64 Kernel Module  580.65.06"}
    monkeypatch.setattr(gpu_check, "_DRIVER_FILE", tmp_path / "absent")
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = gpu_check._driver()
    assert missing["driver"] is None
    assert "nvidia-smi" in missing["driver_missing"]


def test_cases_cover_the_models_at_the_sizes_of_the_device():
    gpu = {case.name: case for case in speed_cases("cuda", quick=False)}
    cpu = {case.name: case for case in speed_cases("cpu", quick=False)}
    assert set(gpu) == {*cpu, "vae_big_paper_batch"}
    assert (gpu["resnet18_64px"].batch_size, cpu["resnet18_64px"].batch_size) == (512, 64)
    assert (gpu["resnet18_cub"].side, gpu["resnet18_cub"].batch_size) == (299, 64)
    assert len(speed_cases("cpu", quick=True)) == 1


def test_steps_fill_the_repeat_and_fit_the_time():
    settings = Settings("cpu", repeats=3, repeat_seconds=1.0, max_steps=50)
    assert steps_per_repeat(SMALL, settings, 0.1, 1e9) == 10
    assert steps_per_repeat(SMALL, settings, 1e-4, 1e9) == 50
    assert steps_per_repeat(SMALL, settings, 10.0, 1e9) == 2
    # 8 n + 2 steps of 0.1 s, a quarter more: n = 3 takes 3.25 s, n = 4 takes 4.25 s.
    assert steps_per_repeat(SMALL, settings, 0.1, 4.2) == 3
    assert steps_per_repeat(SMALL, settings, 0.1, 1e9, 4.2) == 3
    # More than its share, but there is time for one step each: 1.25 s.
    assert steps_per_repeat(SMALL, settings, 0.1, 1.3, 0.5) == 1
    with pytest.raises(NoTimeLeftError, match=r"small takes 0\.1 s a step .* 1 s that are left"):
        steps_per_repeat(SMALL, settings, 0.1, 1.2)
    big = SpeedCase("big", None, side=299, batch_size=64)
    # 64 x 299 x 299 x 3 bytes a step: 36 of them fill 600 MiB.
    assert steps_per_repeat(big, settings, 0.01, 1e9) == 36


@pytest.mark.parametrize(
    ("spec", "side", "mapped", "precision"),
    [
        (CBMSpec(encoder=MLPSpec((8,))), 16, True, "bf16-mixed"),
        (VAESpec(network="small"), 64, False, "32-true"),
    ],
)
def test_measure_times_both_loops_and_profiles_a_slow_one(
    spec, side, mapped, precision, tmp_path, monkeypatch
):
    monkeypatch.setattr(device_speed, "TARGET", 1e6)  # out of reach, so that it looks for reasons
    case = SpeedCase("tiny", spec, side, 8, mapped=mapped)
    settings = Settings("cpu", precision=precision, repeat_seconds=0.01, max_steps=3)
    found = measure(case, settings, tmp_path)
    n_steps = found["warmup_steps"]["training"]
    assert found["steps_timed"] == {"training": 3 * n_steps, "bare": 3 * n_steps}
    assert found["reached"] is False
    assert found["data"]["storage"] == ("memory-mapped file" if mapped else "memory")
    why = found["where_the_time_goes"]
    assert why["idle_share"] is None
    assert "CPU" in why["idle_share_missing"]
    assert 1 <= len(why["top_operations"]) <= 5
    times = [row["ms_per_step"] for row in why["top_operations"]]
    assert times == sorted(times, reverse=True)
    assert times[0] > 0


def test_a_loop_that_only_waits_has_the_ratio_of_the_wait(tmp_path, monkeypatch):
    """The measured training is the real one: what slows it down is seen in the ratio."""
    case = SpeedCase("waits", SMALL.spec, 16, 8)
    settings = Settings("cpu", repeat_seconds=0.01, max_steps=2)
    quick = measure(case, settings, tmp_path)

    class Waiting(device_speed.ConceptModule):
        def training_step(self, batch, batch_idx):
            device_speed.time.sleep(0.2)
            return super().training_step(batch, batch_idx)

    monkeypatch.setattr(device_speed, "ConceptModule", Waiting)
    slow = measure(case, settings, tmp_path)
    assert slow["step_ms"] > 200
    assert slow["ratio"] < quick["ratio"]
    assert slow["images_per_s"] < 8 / 0.2
    assert slow["reached"] is False


def test_measure_stops_in_time(tmp_path):
    with pytest.raises(NoTimeLeftError, match="Raise --limit-seconds"):
        measure(SMALL, Settings("cpu"), tmp_path, budget_seconds=0.0)


def test_a_failed_training_is_an_error(tmp_path, monkeypatch):
    failed = SimpleNamespace(failed="the training loss became nan at step 3")
    monkeypatch.setattr(device_speed, "fit_single", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match=r"training small failed: the training loss became nan"):
        measure(SMALL, Settings("cpu", repeat_seconds=0.01, max_steps=2), tmp_path)


def test_busy_time_counts_overlapping_kernels_once():
    assert busy_time([(0, 10), (5, 12), (6, 7), (20, 21)]) == 13
    assert busy_time([]) == 0


def event(name, kind, start, stop, *, annotation=False):
    return SimpleNamespace(
        key=name, count=2, device_type=kind, is_user_annotation=annotation,
        self_device_time_total=stop - start, self_cpu_time_total=0.0,
        time_range=SimpleNamespace(start=start, end=stop),
    )  # fmt: skip


def test_profile_of_a_gpu_finds_kernels_and_idle_share():
    cuda, cpu = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU
    events = [
        event("aten::conv2d", cpu, 0, 9000),
        event("step", cuda, 0, 9000, annotation=True),
        event("gemm", cuda, 1000, 3000),
        event("copy", cuda, 2000, 4000),  # on another stream, half of it beside the product
        event("adam", cuda, 5000, 6000),
    ]
    profile = Profile("cpu", n_steps=2)
    assert [profile.step(), profile.step()] == [False, True]
    profile.is_cuda = True
    profile._profile = SimpleNamespace(events=lambda: events, key_averages=lambda: events)
    found = profile.summary(step_ms=4.0)
    # Busy for 3 + 1 ms in two steps: 2 of the 4 ms of a step.
    assert found["busy_ms_per_step"] == pytest.approx(2.0)
    assert found["idle_share"] == pytest.approx(0.5)
    names = [row["name"] for row in found["top_operations"]]
    assert names == ["gemm", "copy", "adam"]
    assert found["top_operations"][0]["ms_per_step"] == pytest.approx(1.0)
    profile._profile = SimpleNamespace(events=lambda: events[:2], key_averages=lambda: events[:2])
    assert profile.summary(step_ms=4.0)["idle_share"] is None


def test_agreement_is_checked_in_full_precision():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with matrix_products(tf32=True):
        assert torch.get_float32_matmul_precision() == "high"
        with matrix_products():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_a_device_that_rounds_too_coarsely_disagrees(monkeypatch):
    from concept_audit.pipeline import device_agreement

    real = device_agreement.predict

    def coarse(model, dataset, split, *, device):
        arrays = real(model, dataset, split, device="cpu")
        if device == "elsewhere":
            arrays["c_logits"] = np.round(arrays["c_logits"], 2)
        return arrays

    monkeypatch.setattr(device_agreement, "predict", coarse)
    rows = {row.name: row for row in agreement_parts("elsewhere", quick=True)["outputs"]()}
    assert not rows["c_logits of one model"].agree
    assert rows["c_logits of one model"].largest_difference == pytest.approx(0.005, rel=0.5)
    assert rows["y_logits of one model"].agree
