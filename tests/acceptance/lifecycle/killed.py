"""Commands that are killed in their work: when that is, is measured, because machines differ and so do versions."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

from tests.acceptance.conftest import COMMAND


def seconds_of(*words: str) -> float:
    """How long a command takes that nobody kills."""
    began = time.monotonic()
    subprocess.run([str(COMMAND), *words], check=True, timeout=60, capture_output=True)
    return time.monotonic() - began


def killed(*words: str, delay_s: float) -> None:
    """Run a command for so long, then kill it if it has not ended."""
    process = subprocess.Popen(
        [str(COMMAND), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    with suppress(ProcessLookupError):  # it ended, and nothing that it began is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
