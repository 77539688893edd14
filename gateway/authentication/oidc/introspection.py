"""Tokens that only the provider can read: what it said of one a moment ago, asked once at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256

from gateway.authentication.oidc.tokens import Claims
from spool.clock import Clock

KEEP_S = 30.0  # a token that the provider took back is good for so long at most
MAX_KEPT = 1000


class Introspection:
    """`ask` asks the provider; what it says of a token that is not active is None. No token is kept."""

    def __init__(self, ask: Callable[[str], Awaitable[Claims | None]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Claims | None]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[Claims | None]] = {}

    def knows(self, text: str) -> bool:
        """Return whether the provider said a moment ago that a token is active."""
        until, kept = self._kept.get(_hash_of(text), (0.0, None))
        return kept is not None and until > self._clock.monotonic()

    async def claims(self, text: str) -> Claims | None:
        """Return the claims of an active token, else None. ProviderDown if the provider does not answer."""
        digest = _hash_of(text)
        until, kept = self._kept.get(digest, (0.0, None))
        if until > self._clock.monotonic():
            return kept
        asked = self._asked.get(digest)
        if asked is None:
            asked = self._asked[digest] = asyncio.create_task(self._look(digest, text))
        return await asyncio.shield(asked)

    async def _look(self, digest: bytes, text: str) -> Claims | None:
        try:
            found = await self._ask(text)
        finally:
            del self._asked[digest]
        self._kept.pop(digest, None)
        self._kept[digest] = (self._clock.monotonic() + self._life(found), found)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found

    def _life(self, found: Claims | None) -> float:
        """Return how long an answer is kept: never past the end of the token."""
        ends = None if found is None else found.get("exp")
        return KEEP_S if not isinstance(ends, (int, float)) else min(KEEP_S, ends - self._clock.now())


def _hash_of(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
