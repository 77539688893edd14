"""`python -m gateway.service.assembly.worker_process FD BYTES`: one of `server.workers`, which the server starts."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress

from exporters.otlp.encoding import encode
from gateway.intake.workers.serving import Link, serve
from gateway.service.monitoring.memory import settle_after_start
from spool.turns.threads import lower_priority

_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
OUT_OF_MEMORY = 70


def main() -> None:
    """Serve the socket with the number FD, with at most so many BYTES of memory for data."""
    number, most_bytes = map(int, sys.argv[1:3])
    connection = socket.socket(fileno=number)
    for ignored in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # sent to all of a service: the server says when
        signal.signal(ignored, signal.SIG_IGN)
    # only Linux can; elsewhere the socket's end ends it, after its job
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    with suppress(OSError, ValueError):  # a service manager may forbid it, and then bounds the memory of all
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    lower_priority()
    settle_after_start()
    try:
        serve(Link(connection), encode)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # the body that needs so much is still held


if __name__ == "__main__":
    main()
