"""
Tollhouse commands as processes that are copies (forks) of one process with all modules imported.

A copy has its own id, files, signals and exit code, like any other process. It skips the import of 900
modules, which takes most of a second of processor time, so a kill soon after the start hits real work.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import orjson

from tests.processes.loaded import COMMAND as COMMAND
from tests.processes.loaded import MESSAGE_BYTES

ROOT = Path(__file__).parents[2]
SEARCHED = {"PYTHONPATH": str(ROOT)}
# The loader or Python reads these variables at the start, so a copy cannot set them later.
READ_FIRST = ("LD_", "PYTHON")


class CopiedProcess:
    """The part of subprocess.Popen that tests need."""

    def __init__(
        self, args: Sequence[str], told: socket.socket, stdout: IO[str] | None, stderr: IO[str] | None
    ) -> None:
        self.args = args
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self.pid = int(told.recv(MESSAGE_BYTES))
        self._ended = threading.Event()
        threading.Thread(target=self._listen, args=(told,), daemon=True).start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal. Do nothing if the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _listen(self, told: socket.socket) -> None:
        with told:
            self.returncode = int(told.recv(MESSAGE_BYTES) or -signal.SIGKILL)
        self._ended.set()


Process = CopiedProcess | subprocess.Popen[str]


def start_process(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    is_read: bool = False,
    close_fds: bool = True,
    is_new: bool = False,
) -> Process:
    """
    Start a command in its own process group: a copy if it is a Tollhouse command, else a new process.

    With `is_read`, the output can be read from pipes. Without it, the output is discarded. Use `is_new` if a
    test measures start, memory or cores.
    """
    environment = {**SEARCHED, **(os.environ if env is None else env)}
    if not is_new and _is_copyable(command, environment):
        return _loaded().copy(command, cwd=cwd, env=environment, is_read=is_read)
    where = subprocess.PIPE if is_read else subprocess.DEVNULL
    return subprocess.Popen(
        command,
        stdout=where,
        stderr=where,
        text=True,
        errors="replace",
        cwd=cwd,
        env=environment,
        close_fds=close_fds,
        process_group=0,
    )


def run_process(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, and kill it after `timeout` seconds."""
    process = start_process(command, cwd=cwd, env=env, is_read=True)
    assert process.stdout is not None and process.stderr is not None
    late = threading.Timer(timeout, process.kill)
    late.start()
    with process.stdout as stdout, process.stderr as stderr, ThreadPoolExecutor(1) as other:
        complaints = other.submit(stderr.read)
        printed = stdout.read()
        code = process.wait()
        late.cancel()
        return subprocess.CompletedProcess(command, code, printed, complaints.result())


@cache
def copying_command() -> tuple[str, int]:
    """
    Return the path of a program that runs `tollhouse` or `python -m` as copies, and a file descriptor for it.

    Pass the descriptor in `pass_fds`. If the program is killed, its copy ends a moment later, so tests that
    kill must use `start_process`.
    """
    directory = Path(tempfile.mkdtemp(prefix="tollhouse-command-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return str(directory / COMMAND.name), command_in(directory)


def command_in(directory: Path) -> int:
    """
    Write such a program into a directory for the PATH of shells and return the file descriptor that it needs.
    """
    number = _loaded().number
    command = directory / COMMAND.name
    command.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.processes.asking import ask\nask({number}, {str(COMMAND)!r})\n"
    )
    command.chmod(0o755)
    return number


def _is_copyable(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    is_ours = command[0] == str(COMMAND) or tuple(command[:2]) == (sys.executable, "-m")
    return (
        sys.platform == "linux"
        and is_ours
        and _read_first(environment) == _read_first({**SEARCHED, **os.environ})
    )


def _read_first(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_FIRST)}


class _LoadedProcess:
    """The loaded process, as seen by the processes that request copies."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.loaded", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**SEARCHED, **os.environ},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    @property
    def number(self) -> int:
        """Return the file descriptor of the request socket."""
        return self._socket.fileno()

    def copy(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], is_read: bool
    ) -> CopiedProcess:
        told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe(), os.pipe()] if is_read else []
        request = orjson.dumps({"command": list(command), "cwd": str(cwd), "env": env})
        with theirs:
            socket.send_fds(self._socket, [request], [theirs.fileno(), *(writing for _, writing in pipes)])
        for _, writing in pipes:
            os.close(writing)
        stdout, stderr = [os.fdopen(reading, errors="replace") for reading, _ in pipes] or (None, None)
        return CopiedProcess(command, told, stdout, stderr)

    def _close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


_ONE_AT_A_TIME = threading.Lock()
_made = cache(_LoadedProcess)


def _loaded() -> _LoadedProcess:
    with _ONE_AT_A_TIME:
        return _made()
