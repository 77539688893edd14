"""Processes that end with the test run, even if the run is killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

WATCH = 'read -r line; kill -"$1" "$2"; kill -CONT "$2"'  # a frozen process cannot end


class DependentProcess(subprocess.Popen[bytes]):
    """
    A process in its own session that gets `end_signal` when the test run ends.

    A shell waits for the end of a pipe, which the system closes with the run. The signal of Linux for a dead parent
    would end the process with the thread that started it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        end_signal: signal.Signals = signal.SIGKILL,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[Any] = subprocess.DEVNULL,
    ) -> None:
        super().__init__(
            command, user=user, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=stdout, stderr=stdout,
            start_new_session=True,
        )  # fmt: skip
        self._watch = subprocess.Popen(
            ["sh", "-c", WATCH, "sh", str(int(end_signal)), str(self.pid)],
            user=user, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send the signal, and wait until the process and its watch have ended."""
        self.send_signal(how)
        self.wait()
        self._watch.kill()
        self._watch.communicate()
