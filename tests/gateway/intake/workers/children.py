"""Test workers: a worker's loop on a thread of the test process, and workers that fail."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from exporters.otlp.encoding import encode
from gateway.intake.workers.serving import Link, ServerGone, serve

Serve = Callable[[Link], None]


class ThreadChild:
    """A worker on a thread instead of a process. It starts quickly and ends when its socket is closed."""

    def __init__(self, theirs: socket.socket, work: Serve) -> None:
        self.pid = os.getpid()
        self._socket = theirs.dup()
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True)
        self._thread.start()

    def _run(self, work: Serve) -> None:
        with self._socket, suppress(ServerGone):
            work(Link(self._socket))

    def poll(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def kill(self) -> None:
        """Close the socket, which is how the server notices a kill."""
        with suppress(OSError):  # the thread has already ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        return 0


def on_a_thread(theirs: socket.socket) -> ThreadChild:
    return ThreadChild(theirs, lambda link: serve(link, encode))
