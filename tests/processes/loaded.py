"""
The loaded process: it has imported everything that commands need, and each copy of it runs one command.

`python -m tests.processes.loaded SOCKET` reads requests from the socket with that file descriptor. A request
has a command, its directory and its environment, with descriptors for output and input and a socket. The
socket reports the copy's id and later its exit code. Closing the socket ends the copy.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import orjson

from gateway.configuration.sections import Config, all_settings
from gateway.console.pages import load_console
from gateway.intake.rate_cards.card import packaged_card

COMMAND = Path(sys.executable).with_name("tollhouse")
PRELOADED = (
    "gateway.cli.serve",
    "gateway.cli.agent",
    "gateway.cli.agent_run",
    "gateway.cli.operator.client",
    "gateway.cli.send.command",
    "gateway.service.app",
    "gateway.service.offline",
    "exporters.device_reporter",
    "exporters.service.upstream_client",
    "gateway.service.addresses.table",  # imports all handlers, which a server imports at their first request
    "gateway.service.assembly.statements",
    "gateway.normalise.any_format",
    "gateway.normalise.otlp",
    "spool.sqlite.storage",
    "spool.sql.billing",
    "exporters.destinations.ndjson",
    "exporters.destinations.upstream",
    "exporters.probe",
    "exporters.service.container_metrics",
    "exporters.service.device_sync",
    "spool.postgres.storage",
)
MESSAGE_BYTES = 1 << 18
MOST_NUMBERS = 4


class Request(NamedTuple):
    command: Sequence[str]
    cwd: str
    env: Mapping[str, str]


class Copies:
    """Running copies, each with the socket that reports its end."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._woken, self._wake = socket.socketpair()
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> Request | None:
        """
        Return the request to run, once in each copy. Return None when no process is left that could request copies.
        """
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # ignore Ctrl-C, because the requesting process ends the copies
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([self._requests, self._woken, *self._running.values()], [], [])
            for pid in [pid for pid, told in self._running.items() if told in ready]:
                self._end(pid)
            if self._woken in ready:
                self._woken.recv(MESSAGE_BYTES)
                self._tell_ends()
            if self._requests in ready:
                asked, numbers, _, _ = socket.recv_fds(self._requests, MESSAGE_BYTES, MOST_NUMBERS)
                if not asked:
                    return None
                told, *files = numbers
                pid = os.fork()
                if pid == 0:
                    os.close(told)
                    self._leave()
                    _use(files)
                    return Request(**orjson.loads(asked))
                self._tell_start(pid, socket.socket(fileno=told))
                for number in files:
                    os.close(number)

    def _tell_start(self, pid: int, told: socket.socket) -> None:
        os.setpgid(pid, pid)
        self._running[pid] = told
        with suppress(OSError):  # the requesting process may have ended already
            told.send(b"%d" % pid)

    def _end(self, pid: int) -> None:
        """Kill a copy whose requesting process has ended."""
        self._running.pop(pid).close()
        os.killpg(pid, signal.SIGKILL)

    def _tell_ends(self) -> None:
        with suppress(ChildProcessError):  # there is no child process
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if told := self._running.pop(pid, None):
                    with told, suppress(OSError):
                        told.send(b"%d" % os.waitstatus_to_exitcode(status))

    def _leave(self) -> None:
        """Close the parent's sockets and restore signal handlers in a new copy."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for one in (self._requests, self._woken, self._wake, *self._running.values()):
            one.close()


def _use(numbers: Sequence[int]) -> None:
    """
    Use these descriptors as standard output, error and input. Without an input descriptor, the input is empty.
    """
    numbers = numbers or [os.open(os.devnull, os.O_WRONLY) for _ in range(2)]
    for place, number in zip((1, 2, 0), numbers, strict=False):
        os.dup2(number, place)
        os.close(number)


def become(request: Request) -> None:
    os.environ.clear()
    os.environ.update(request.env)
    time.tzset()
    os.chdir(request.cwd)
    program, *words = request.command
    if program == str(COMMAND):
        sys.argv = [program, *words]
        import_module("gateway.cli").main(prog_name=COMMAND.name)
    else:
        _, module, *sys.argv[1:] = words  # MODULE of `python -m MODULE`, with its arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def become_and_end(request: Request) -> None:
    """
    Run the command and end as Python does, but without freeing memory.

    Freeing 900 modules would copy each of their memory pages, which costs a sixth of a start.
    """
    code: object = None
    try:
        become(request)
    except SystemExit as ended:
        code = ended.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def read_what_each_reads() -> None:
    """Read the types of all settings, the rate card and the console, which are the same in every process."""
    assert list(all_settings(Config()))
    assert packaged_card()
    assert load_console().assets


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    read_what_each_reads()
    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a copy would be without the other threads"
    if request := Copies(socket.socket(fileno=int(sys.argv[1]))).serve():
        become_and_end(request)
