"""Rate limits by name, such as an address, a key or an account."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from spool.clock import Clock
from spool.turns.fair_turns import TokenBucket

WHOLE = 1.0  # tokens of its bucket that a charge needs


class TokenBuckets:
    """
    A token bucket for each name, with `burst` tokens and a refill of `per_s` tokens per second. A charge
    needs one whole token, and may overdraw the bucket.

    So a limit of five allows five tries at once, and the sixth only after a refill. At most `size` names are
    stored; the least recently used one is deleted first.
    """

    def __init__(self, clock: Clock, *, burst: float, per_s: float, size: int = 10_000) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._size = size
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_s(self, name: str) -> int:
        return math.ceil(self._find_bucket(name).wait_s(WHOLE))

    def charge(self, name: str, amount: float = 1) -> None:
        bucket = self._find_bucket(name)
        bucket.remove_tokens(amount)
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)

    @contextmanager
    def charge_on_failure(self, name: str, failure: type[Exception]) -> Iterator[None]:
        """
        Charge `name` for work, and undo the charge unless the work raises `failure`.

        The charge comes first so that concurrent attempts also count.
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

    def _find_bucket(self, name: str) -> TokenBucket:
        return self._buckets.get(name) or TokenBucket(self._clock, per_s=self._per_s, burst=self._burst)

    def __len__(self) -> int:
        return len(self._buckets)


@lru_cache(maxsize=4096)  # cached, because every request calls this
def address_network(address: str) -> str:
    """
    Return the name of an address's bucket. All addresses of an IPv6 /64 share one, because one host owns
    them.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return parsed.packed[:8].hex()
