"""
`python -m gateway.service.assembly.worker_process FD BYTES`: a worker process (`server.workers`), started
by the server.
"""

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

# option PR_SET_PDEATHSIG of prctl, which sends a signal to this process when its parent ends
_END_WITH_PARENT = 1
OUT_OF_MEMORY = 70


def main() -> None:
    """Run jobs for the server over the socket whose descriptor is FD. BYTES limits the memory for data."""
    number, most_bytes = map(int, sys.argv[1:3])
    connection = socket.socket(fileno=number)
    # Workers ignore these signals. Service managers send the signals to all processes, but the server stops
    # its workers itself.
    for ignored in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):
        signal.signal(ignored, signal.SIG_IGN)
    # Only Linux supports this option. On other systems, the worker ends after its running job, when its
    # socket is closed.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    # A service manager may forbid a process to set this limit. The manager then limits the memory of
    # all processes together.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    lower_priority()
    settle_after_start()
    try:
        serve(Link(connection), encode)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)  # exit at once, because the large body is still in memory


if __name__ == "__main__":
    main()
