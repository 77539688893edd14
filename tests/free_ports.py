"""Free ports for servers that start to listen later or repeatedly."""

from __future__ import annotations

import random
import socket

# Below the range of ports that the system assigns by itself. Other tests request such ports all the time.
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
