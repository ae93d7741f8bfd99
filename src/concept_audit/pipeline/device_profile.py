"""Where the time of a training step goes: the dearest operations, and how long the GPU waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

__all__ = ["Profile", "busy_time"]

_TOP = 5


def busy_time(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: kernels of several streams overlap."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


class Profile:
    """A profile of a few training steps.

    Parameters
    ----------
    device : str
        Torch device whose operations are listed.
    n_steps : int
        Steps that are enough.
    """

    def __init__(self, device: str, *, n_steps: int) -> None:
        self.is_cuda = device.startswith("cuda")
        activities = [ProfilerActivity.CPU]
        if self.is_cuda:
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)
        self._n_wanted = n_steps
        self._n_steps = 0

    def start(self) -> None:
        """Begin to record."""
        self._profile.start()

    def step(self) -> bool:
        """Count a step; True when there are enough."""
        self._n_steps += 1
        return self._n_steps >= self._n_wanted

    def stop(self) -> None:
        """End the record; the device must have finished."""
        self._profile.stop()

    def summary(self, step_ms: float) -> dict[str, Any]:
        """What took the time.

        Parameters
        ----------
        step_ms : float
            Milliseconds of a step without the profiler, which slows the CPU down but not the
            kernels: the GPU's idle share is what their time leaves of it.

        Returns
        -------
        dict
            ``top_operations`` by their own time on the device, in milliseconds per step, and
            ``idle_share`` of the GPU in [0, 1], None on a CPU.
        """
        events = self._profile.events()
        if events is None:
            raise RuntimeError("the profile holds no events: start and stop it around some steps.")
        kernels = [
            (event.time_range.start, event.time_range.end)
            for event in events
            if event.device_type == DeviceType.CUDA and not event.is_user_annotation
        ]
        kind = DeviceType.CUDA if self.is_cuda else DeviceType.CPU
        field = "self_device_time_total" if self.is_cuda else "self_cpu_time_total"
        averages = [
            average
            for average in self._profile.key_averages()
            if average.device_type == kind and not average.is_user_annotation
        ]
        averages.sort(key=lambda average: getattr(average, field), reverse=True)
        per_step = 1e-3 / self._n_steps  # microseconds of all steps to milliseconds of one
        top = [
            {
                "name": average.key[:120],
                "ms_per_step": getattr(average, field) * per_step,
                "calls_per_step": average.count / self._n_steps,
            }
            for average in averages[:_TOP]
        ]
        found: dict[str, Any] = {"steps_profiled": self._n_steps, "top_operations": top}
        if not self.is_cuda:
            reason = "a CPU has no idle share: it runs the program itself"
            return {**found, "idle_share": None, "idle_share_missing": reason}
        if not kernels:
            reason = "the profiler recorded no kernels (CUPTI may be missing or in use)"
            return {**found, "idle_share": None, "idle_share_missing": reason}
        busy_ms = busy_time(kernels) * per_step
        share = min(1.0, max(0.0, 1 - busy_ms / step_ms))
        return {**found, "busy_ms_per_step": busy_ms, "idle_share": share}
