"""Token buckets by name, bounded: how often an address, a key or an account may still try."""

from __future__ import annotations

import math
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from spool.clock import Clock

WHOLE = 1.0  # token: less of one is no try
NEARLY = 1e-6  # what rounding may leave of it


class Buckets:
    """
    One bucket per name, `burst` deep and refilled at `per_s`. A charge may overdraw a bucket that holds a
    whole token.

    So a limit of five lets five through at once and no sixth before it is due, and one amount above `burst`
    passes and is paid off before the next. At most `size` names are kept; the least recently used goes first.
    """

    def __init__(self, clock: Clock, *, burst: float, per_s: float, size: int = 10_000) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._size = size
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name -> level, when

    def wait_s(self, name: str) -> int:
        """Whole seconds until `name` may charge again; 0 now."""
        level = self._level(name, self._clock.monotonic())
        missing = WHOLE - level
        return 0 if missing <= NEARLY else max(1, math.ceil(missing / self._per_s))

    def charge(self, name: str, amount: float = 1) -> None:
        now = self._clock.monotonic()
        self._levels[name] = (self._level(name, now) - amount, now)
        self._levels.move_to_end(name)
        if len(self._levels) > self._size:
            self._levels.popitem(last=False)

    def _level(self, name: str, now: float) -> float:
        level, since = self._levels.get(name, (self._burst, now))
        return min(self._burst, level + (now - since) * self._per_s)

    def __len__(self) -> int:
        return len(self._levels)


def neighbourhood(address: str) -> str:
    """The name of the bucket of an address: an IPv6 host owns its whole /64."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return parsed.packed[:8].hex()
