"""Kill commands while they work. The moment is measured, because machines and versions differ in speed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.processes.copied import COMMAND, start_process


def seconds_of(*words: str) -> float:
    """Return the duration of a command that is not killed."""
    # Run a short command first, because the first start also starts the process from which all commands are copied.
    start_process([str(COMMAND), "version"], cwd=Path.cwd()).wait()
    began = time.monotonic()
    assert 0 == start_process([str(COMMAND), *words], cwd=Path.cwd()).wait()
    return time.monotonic() - began


def killed(*words: str, delay_s: float) -> None:
    """Run a command, and kill it if it has not ended after `delay_s`."""
    process = start_process([str(COMMAND), *words], cwd=Path.cwd())
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    with suppress(
        ProcessLookupError
    ):  # killpg raises this if the command and its children have already ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
