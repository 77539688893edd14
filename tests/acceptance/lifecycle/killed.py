"""Commands that are killed in their work: when that is, is measured, because machines differ and so do versions."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.processes.copied import COMMAND, start_process


def seconds_of(*words: str) -> float:
    """How long a command takes that nobody kills."""
    # the first one waits for what it is a copy of
    start_process([str(COMMAND), "version"], cwd=Path.cwd()).wait()
    began = time.monotonic()
    assert 0 == start_process([str(COMMAND), *words], cwd=Path.cwd()).wait(300)
    return time.monotonic() - began


def killed(*words: str, delay_s: float) -> None:
    """Run a command for so long, then kill it if it has not ended."""
    process = start_process([str(COMMAND), *words], cwd=Path.cwd())
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    with suppress(ProcessLookupError):  # it ended, and nothing that it began is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
