"""
The keys with which a provider signs: kept for an hour, asked for again when none of them signed a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gateway.authentication.oidc.tokens import SignedToken
from spool.clock import Clock

KEEP_S = 3600.0  # a key that the provider took back is trusted for so long at most
AGAIN_S = 30.0  # made-up tokens cause no more requests than one in so many seconds
MAX_KEYS = 100


class SigningKeys:
    """`fetch` asks the provider for its public keys."""

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._loaded_at: float | None = None
        self._asked_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def have_signed(self, token: SignedToken) -> bool:
        """
        True if one of the keys has signed a token. If not, the provider is asked again: a new key may have no
        id.
        """
        # Nobody whose key is known waits while the provider is asked for one that is not.
        if not self._are_old and token.is_signed_by(self._candidates(token)):
            return True
        async with self._one_at_a_time:
            if self._are_old:
                await self._load()
            is_signed = token.is_signed_by(self._candidates(token))
            if not is_signed and self._clock.monotonic() - self._asked_at > AGAIN_S:
                await self._load()
                is_signed = token.is_signed_by(self._candidates(token))
        return is_signed

    @property
    def _are_old(self) -> bool:
        return self._loaded_at is None or self._clock.monotonic() - self._loaded_at > KEEP_S

    async def _load(self) -> None:
        self._asked_at = self._clock.monotonic()
        self._keys = (await self._fetch())[:MAX_KEYS]
        self._loaded_at = self._clock.monotonic()

    def _candidates(self, token: SignedToken) -> Sequence[Mapping[str, Any]]:
        named = [key for key in self._keys if token.kid is None or key.get("kid") == token.kid]
        signing = [key for key in named if key.get("use", "sig") == "sig"]
        return [key for key in signing if key.get("alg", token.algorithm) == token.algorithm]
