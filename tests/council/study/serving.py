"""Runs `study serve` as a process of its own, as a research group would."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

START = "from concept_audit.pipeline.study import main; import sys; sys.exit(main(sys.argv[1:]))"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A served study; `kill` ends it without a farewell."""

    def __init__(self, items: Path, database: Path, log: Path, **options: object) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        arguments = [f"items={items}", f"db=sqlite:///{database}", f"port={self.port}"]
        arguments += [f"{name}={value}" for name, value in options.items()]
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, "serve", *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._wait(log)

    def _wait(self, log: Path) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended at once:\n{log.read_text()}")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the server did not answer within 60 s:\n{log.read_text()}")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is closed."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def stop(self) -> None:
        """SIGTERM, as an operator would."""
        self._process.terminate()
        self._process.wait(timeout=30)
        self._log.close()
