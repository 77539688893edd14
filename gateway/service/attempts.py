"""Token buckets by name, bounded: how often an address, a key or an account may still try."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from spool.clock import Clock
from spool.turns.fair_turns import TokenBucket

WHOLE = 1.0  # token: less of one is not a try


class Buckets:
    """
    One bucket per name, `burst` deep and refilled at `per_s`. A charge may overdraw a bucket that holds
    a whole token.

    So a limit of five lets five through at once and no sixth before it is due, and one amount above `burst`
    passes and is paid off before the next. At most `size` names are kept; the least recently used goes first.
    """

    def __init__(self, clock: Clock, *, burst: float, per_s: float, size: int = 10_000) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._size = size
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_s(self, name: str) -> int:
        """Whole seconds until `name` may charge again; 0 now."""
        return math.ceil(self._bucket_of(name).wait_s(WHOLE))

    def charge(self, name: str, amount: float = 1) -> None:
        bucket = self._bucket_of(name)
        bucket.charge(amount)
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)

    @contextmanager
    def paid_by(self, name: str, failure: type[Exception]) -> Iterator[None]:
        """
        Charge `name` for work that is about to begin, and give the charge back unless `failure` is raised.

        So attempts that are judged at the same moment count as well.
        """
        self.charge(name)
        try:
            yield
        except failure:
            raise
        except BaseException:
            self.charge(name, -1)
            raise
        self.charge(name, -1)

    def _bucket_of(self, name: str) -> TokenBucket:
        return self._buckets.get(name) or TokenBucket(self._clock, per_s=self._per_s, burst=self._burst)

    def __len__(self) -> int:
        return len(self._buckets)


@lru_cache(maxsize=4096)  # asked for each request
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
