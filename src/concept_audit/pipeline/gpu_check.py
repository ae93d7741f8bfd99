"""`python scripts/gpu_check.py`: speed of training, memory and agreement with the CPU, as JSON."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from concept_audit.store.atomic import write_text
from concept_audit.store.manifest import environment

__all__ = ["Check", "exit_status", "main", "render"]

_PRECISIONS = ("32-true", "bf16-mixed")
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_MOST_WORKERS = 8
_DESCRIPTION = """\
Measures, on one GPU (or, to try it, on the CPU), images per second of our training loop beside a
bare loop on one constant batch, peak memory, reading of photographs, and whether models and scores
agree with the CPU. Prints one JSON document; what it is doing goes to standard error.

Exit status: 0 when everything ran and agreed, whatever the speed; 1 when something failed, differed
or was left out for lack of time; 2 for arguments that make no sense.
"""


@dataclass
class Check:
    """What has been found so far, and the time that is left.

    `speed`, `agreement` and `decoding` hold one dictionary per case, `errors` one per stage that
    failed, `skipped` the stages that would have gone beyond the limit.
    """

    limit_seconds: float
    start: float = field(default_factory=time.monotonic)
    speed: list[dict[str, Any]] = field(default_factory=list)
    agreement: list[dict[str, Any]] = field(default_factory=list)
    decoding: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds to the limit."""
        return self.limit_seconds - self.elapsed

    def _skip(self, stage: str, reason: str) -> None:
        print(f"gpu_check: {stage} skipped: {reason}", file=sys.stderr)
        self.skipped.append({"stage": stage, "reason": reason})

    @property
    def elapsed(self) -> float:
        """Seconds since the check began."""
        return time.monotonic() - self.start

    def run(
        self, stage: str, needs_seconds: float, task: Callable[[], Any], **about: Any
    ) -> Any | None:
        """Result of a stage; None if it failed, which is noted, or if there is no time for it.

        Parameters
        ----------
        stage : str
            Its name.
        needs_seconds : float
            Time it is expected to take.
        task : callable
            The work.
        about : Any
            What an error must be read with, such as the batch size.
        """
        if needs_seconds > self.left:
            self._skip(stage, "it would go beyond the limit")
            return None
        print(f"gpu_check: {stage} ({self.elapsed:.0f} s)", file=sys.stderr)
        began = time.monotonic()
        try:
            return task()
        except Exception as error:  # noted with its place; the other stages still run
            from concept_audit.pipeline.device_speed import NoTimeLeftError

            if isinstance(error, NoTimeLeftError):
                self._skip(stage, str(error))
                return None
            print(f"gpu_check: {stage} failed: {error}", file=sys.stderr)
            self.errors.append(
                {
                    "stage": stage,
                    "kind": _kind_of(error),
                    "error": f"{type(error).__name__}: {error}",
                    "traceback": "".join(traceback.format_exception(error, limit=-6)),
                    **about,
                }
            )
            return None
        finally:
            self.stage_seconds[stage] = time.monotonic() - began


def _kind_of(error: BaseException) -> str:
    import torch

    return "out_of_memory" if isinstance(error, torch.OutOfMemoryError) else "error"


def exit_status(check: Check) -> int:
    """0 if everything ran and agreed, else 1; speed does not count."""
    disagree = any(not row["agree"] for row in check.agreement)
    return int(bool(check.errors or check.skipped or disagree or not check.agreement))


def render(document: Mapping[str, Any]) -> str:
    """JSON text; numbers that JSON does not know (NaN, infinite) become null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check.py",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="fewer models, rows and steps")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there too")
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=_PRECISIONS,
        metavar="PRECISION",
        help=f"any of {', '.join(_PRECISIONS)}; default: both on a GPU, 32-true on a CPU",
    )
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=False, help="use torch.compile"
    )
    parser.add_argument(
        "--tf32",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="products of 32-true in TF32 on a GPU (agreement is checked without)",
    )
    parser.add_argument("--num-workers", type=int, metavar="N", help="processes that decode")
    parser.add_argument("--limit-seconds", type=float, default=270.0, metavar="S")
    return parser


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Checked arguments; exits with 2 and says what is wrong."""
    parser = _parser()
    options = parser.parse_args(list(argv))
    if not options.limit_seconds > 0:
        parser.error(f"--limit-seconds must be above 0, got {options.limit_seconds}.")
    if options.num_workers is None:
        options.num_workers = min(_MOST_WORKERS, max(1, (os.cpu_count() or 2) - 1))
    if options.num_workers < 1:
        parser.error(f"--num-workers must be at least 1, got {options.num_workers}.")
    if options.output is not None and options.output.is_dir():
        parser.error(f"--output must name a file, got the folder {options.output}.")
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "--device cuda needs a GPU that torch can use, and there is none "
            f"(torch {torch.__version__}, built for CUDA {torch.version.cuda}). "
            "To try the check without one: --device cpu."
        )
    if options.precision is None:
        options.precision = list(_PRECISIONS if options.device == "cuda" else _PRECISIONS[:1])
    options.precision = list(dict.fromkeys(options.precision))
    options.tf32 = options.tf32 and options.device == "cuda"
    return options


def _driver() -> dict[str, Any]:
    """Version of the GPU driver, or why it is not known."""
    try:
        line = _DRIVER_FILE.read_text().splitlines()[0]
        return {"driver": line.partition(":")[2].strip()}
    except (OSError, IndexError):
        pass  # not Linux, or a container without it: ask the tool
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        return {"driver": done.stdout.splitlines()[0].strip()}
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        return {"driver": None, "driver_missing": f"{type(error).__name__}: {error}"}


def _versions(device: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    for package in ("pytorch-lightning", "torchvision", "numpy", "concept-audit"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None  # run from its source folder
    reason = {"driver": None, "driver_missing": "not asked for on a CPU"}
    return {**found, **(_driver() if device == "cuda" else reason)}


def _device(device: str) -> dict[str, Any]:
    import torch

    machine = environment()["hardware"]
    if device == "cpu":
        return {"kind": "cpu", "name": machine["cpu"], "memory_gib": machine["memory_gib"],
                "cores": machine["cores"], "threads": torch.get_num_threads()}  # fmt: skip
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "kind": "cuda",
        "name": properties.name,
        "memory_gib": total / 2**30,
        "free_memory_gib": free / 2**30,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "cores": machine["cores"],
    }


def _measure_all(check: Check, options: argparse.Namespace, folder: Path) -> None:
    """Run every stage: agreement first, for it decides the status."""
    from concept_audit.pipeline.device_agreement import agreement_parts
    from concept_audit.pipeline.device_decoding import decoding_speed
    from concept_audit.pipeline.device_speed import Settings, measure, speed_cases

    gpu, quick = options.device == "cuda", options.quick
    for name, part in agreement_parts(options.device, quick=quick).items():
        rows = check.run(f"agreement: {name}", 5.0, part)
        check.agreement += [{"part": name, **row.describe()} for row in rows or ()]
    rows = check.run(
        "decoding",
        10.0,
        lambda: decoding_speed(
            folder,
            options.device,
            num_workers=options.num_workers,
            side=96 if quick else 299,
            n_images=40 if quick else 400 if gpu else 200,
        ),
    )
    check.decoding += rows or []
    # `measure` looks at the time itself, from its second step on; the first one may compile.
    first_step = 40.0 if options.compile else 5.0
    cases = speed_cases(options.device, quick=quick)
    todo = list(itertools.product(options.precision, cases))
    for position, (precision, case) in enumerate(todo):
        settings = Settings(
            options.device,
            precision=precision,
            tf32=options.tf32 and precision == "32-true",
            compile=options.compile,
            channels_last=True,
            repeat_seconds=0.3 if quick else 1.5,
            max_steps=4 if quick and not gpu else 100,
        )
        found = check.run(
            f"speed: {case.name}, {precision}",
            first_step,
            partial(
                measure,
                case,
                settings,
                folder,
                budget_seconds=check.left,
                share_seconds=check.left / (len(todo) - position),
            ),
            batch_size=case.batch_size,
        )
        if found is not None:
            check.speed.append(found)


def main(argv: Sequence[str]) -> int:
    """Run the check and print its JSON.

    Parameters
    ----------
    argv : sequence of str
        Arguments, see ``--help``.

    Returns
    -------
    int
        0 if everything ran and agreed, 1 if not; wrong arguments leave with 2.
    """
    options = _arguments(argv)
    check = Check(options.limit_seconds)
    # Read before anything can fail: after some errors a GPU answers no question any more.
    machine = {"versions": _versions(options.device), "device": _device(options.device)}
    # Whatever else prints (a compiler, Lightning) must not get between us and the reader's parser.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory(prefix="gpu_check_") as folder,
    ):
        _measure_all(check, options, Path(folder))
    status = exit_status(check)
    document = {
        "schema_version": 1,
        "everything_ran_and_agreed": status == 0,
        "seconds": check.elapsed,
        **machine,
        "settings": {
            **{name: value for name, value in vars(options).items() if name != "output"},
            "agreement_compares": f"cpu with {options.device}",
        },
        "speed": check.speed,
        "agreement": check.agreement,
        "decoding": check.decoding,
        "skipped": check.skipped,
        "errors": check.errors,
        "stage_seconds": check.stage_seconds,
    }
    text = render(document)
    if options.output is not None:
        write_text(options.output, text)
    sys.stdout.write(text)
    return status
