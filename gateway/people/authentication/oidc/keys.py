"""The keys with which a provider signs: kept for an hour, asked for again when none of them signed a token."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from gateway.people.authentication.oidc.tokens import SignedToken
from spool.clock import Clock

KEEP_S = 3600.0  # a key that the provider took back is trusted for so long at most
AGAIN_S = 30.0  # made-up tokens cause no more requests than one in so many seconds
MAX_KEYS = 100
MAX_TRIES = 4  # keys that a token without a key id is tried against; providers with several keys state the id
MAX_VERIFIED = 1000
_TYPE_OF = {"RS256": "RSA", "ES256": "EC"}


class SigningKeys:
    """
    `fetch` asks the provider for its public keys. Signatures are verified on a thread, and a token that is
    good is known by its hash until the keys are fetched again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._loaded_at: float | None = None
        self._asked_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    def know(self, text: str) -> bool:
        """Return whether a token was verified before, with the keys that are trusted now."""
        return not self._are_old and _hash_of(text) in self._verified

    async def have_signed(self, token: SignedToken) -> bool:
        """
        True if one of the keys has signed a token. If not, the provider is asked again: a new key may have no id.
        """
        tried = None
        # Nobody whose key is known waits while the provider is asked for one that is not.
        if not self._are_old:
            tried = self._loaded_at
            if self.know(token.text) or await self._verify(token):
                return True
        async with self._one_at_a_time:
            is_due = self._loaded_at == tried and self._clock.monotonic() - self._asked_at > AGAIN_S
            if self._are_old or is_due:
                await self._load()
            return self._loaded_at != tried and await self._verify(token)

    async def _verify(self, token: SignedToken) -> bool:
        keys = self._candidates(token)
        is_signed = bool(keys) and await asyncio.to_thread(token.is_signed_by, keys)
        if is_signed and keys == self._candidates(token):
            self._verified[_hash_of(token.text)] = None
            if len(self._verified) > MAX_VERIFIED:
                self._verified.popitem(last=False)
        return is_signed

    @property
    def _are_old(self) -> bool:
        return self._loaded_at is None or self._clock.monotonic() - self._loaded_at > KEEP_S

    async def _load(self) -> None:
        self._asked_at = self._clock.monotonic()
        self._keys = (await self._fetch())[:MAX_KEYS]
        self._verified.clear()
        self._loaded_at = self._clock.monotonic()

    def _candidates(self, token: SignedToken) -> Sequence[Mapping[str, Any]]:
        fitting = [
            key
            for key in self._keys
            if token.kid in (None, key.get("kid"))
            and key.get("kty") == _TYPE_OF[token.algorithm]
            and key.get("use", "sig") == "sig"
            and key.get("alg", token.algorithm) == token.algorithm
        ]
        return fitting[:MAX_TRIES]


def _hash_of(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
