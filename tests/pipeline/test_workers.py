"""Worker processes leave with the command that started them, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from concept_audit.pipeline.workers import progress_channel, worker_pool
from concept_audit.store.atomic import process_start


def work(channel, number: int, seconds: float) -> int:
    channel.put(os.getpid())
    time.sleep(seconds)
    return number**2


def test_a_pool_gives_results_and_is_gone_afterwards():
    with progress_channel() as channel, worker_pool(2) as pool:
        futures = [pool.submit(work, channel, number, 0.0) for number in range(4)]
        assert [future.result() for future in futures] == [0, 1, 4, 9]
    assert not multiprocessing.active_children()


# The last child is the server of the queue; the tracker of the standard library leaves by itself.
COMMAND = """
import multiprocessing, time
from pathlib import Path
from tests.pipeline.test_workers import progress_channel, work, worker_pool
if __name__ == "__main__":
    with progress_channel() as channel, worker_pool(2) as pool:
        futures = [pool.submit(work, channel, 0, 600.0) for _ in range(2)]
        for _ in futures:
            channel.get()
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        futures[0].result()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_survives_its_command(how, tmp_path, request):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(request.config.rootpath)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    pids = [int(text) for text in process.stdout.readline().split()]
    assert len(pids) == 3
    assert all(process_start(pid) is not None for pid in pids)
    process.send_signal(how)
    assert process.wait(timeout=5) != 0
    process.stdout.close()
    deadline = time.monotonic() + 5
    while alive := [pid for pid in pids if process_start(pid) is not None]:
        assert time.monotonic() < deadline, f"{alive} of {pids} are still there"
        time.sleep(0.05)
