"""Free ports for servers that start to listen later or repeatedly."""

from __future__ import annotations

import random
import socket

# These ports are below the range that the system assigns by itself, from which other tests request ports
# all the time.
FIRST, LAST = 10_000, 31_999
_CHANCE = random.SystemRandom()


def free_port() -> int:
    while True:
        port = _CHANCE.randint(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
