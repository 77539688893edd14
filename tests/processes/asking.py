"""
A command that a copy of a loaded process runs in place of this process. This process ends as the copy ends.

The module imports as little as possible, because scripts run it repeatedly.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def pass_on(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # the copy has already ended
        return


def ask(requests: int, command: str) -> None:
    """
    Request a copy on the socket with this file descriptor. The copy uses this process's inputs and outputs.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    where = os.getcwd()  # noqa: PTH109 (to import pathlib takes longer than all the rest)
    command = sys.executable if sys.argv[1:2] == ["-m"] else command
    request = {"command": [command, *sys.argv[1:]], "cwd": where, "env": dict(os.environ)}
    with socket.socket(fileno=requests) as asked, theirs:
        socket.send_fds(asked, [json.dumps(request).encode()], [theirs.fileno(), 1, 2, 0])
    pid = int(told.recv(100))
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: pass_on(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = int(told.recv(100) or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
