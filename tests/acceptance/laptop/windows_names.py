"""
Start `tollhouse` as if our modules ran on Windows: `sys.platform` is "win32", and names that it lacks are missing.

The libraries and the event loop stay those of this machine. So this shows that our own code needs no such name. It does
not show that Python's event loop of Windows works. At the end it writes the imported modules to a file.

Usage: windows_names.py MODULES-FILE ARGUMENT...
"""

from __future__ import annotations

import builtins
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = ("gateway", "spool", "exporters")
_OS = """
    fchmod chown fchown getuid geteuid getgid posix_fallocate pread pwrite fdatasync statvfs getpriority setpriority
    sched_getscheduler O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_CLOEXEC SCHED_OTHER
"""
MISSING: Mapping[str, Collection[str]] = {
    "os": _OS.split(),
    "socket": ("AF_UNIX", "send_fds", "recv_fds", "SOCK_NONBLOCK"),
    "signal": ("SIGHUP", "SIGKILL", "SIGUSR1"),
    "time": ("clock_gettime", "clock_gettime_ns", "CLOCK_MONOTONIC", "CLOCK_BOOTTIME"),
}
ABSENT = ("fcntl", "resource", "pwd", "grp", "termios")


class Changed(ModuleType):
    """A copy of a module without some of its names, and with other names added."""

    def __init__(self, real: ModuleType, without: Collection[str], **others: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update({name: value for name, value in vars(real).items() if name not in without})
        self.__dict__.update(others)


def _locking(descriptor: int, mode: int, size: int) -> None:
    assert size == 1
    fcntl.flock(descriptor, mode)


msvcrt = ModuleType("msvcrt")
msvcrt.__dict__.update(locking=_locking, LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB)
STAND_INS = {
    "sys": Changed(sys, (), platform="win32"),
    "os": Changed(os, MISSING["os"]),
    "socket": Changed(socket, MISSING["socket"]),
    "signal": Changed(signal, MISSING["signal"], SIGBREAK=signal.SIGUSR2),
    "time": Changed(time, MISSING["time"]),
    "msvcrt": msvcrt,
}

real_import = builtins.__import__


def ours_differ(
    name: str,
    names: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    of: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    if names and str(names.get("__name__")).partition(".")[0] in OURS:
        if name in ABSENT:
            raise ModuleNotFoundError(f"Windows has no module {name}", name=name)
        if name in STAND_INS:
            return STAND_INS[name]
    return real_import(name, names, local, of, level)


def main() -> None:
    modules, *sys.argv[1:] = sys.argv[1:]
    builtins.__dict__["__import__"] = ours_differ
    from gateway.cli import main as command

    try:
        command(prog_name="tollhouse")
    finally:
        Path(modules).write_text("\n".join(sorted(sys.modules)))


if __name__ == "__main__":
    main()
