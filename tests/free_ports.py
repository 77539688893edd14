"""Ports for servers that begin to listen later, or again and again."""

from __future__ import annotations

import random
import socket

# Below those that a system gives to whoever asks for any port, which the tests beside this one do all the
# time.
FIRST, LAST = 10_000, 31_999
_CHANCE = random.SystemRandom()


def free_port() -> int:
    """One on which nobody listens."""
    while True:
        port = _CHANCE.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
