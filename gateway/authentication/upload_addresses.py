"""
The last part of an address to which one file may be sent until a time: signed, in place of a key.

It shows neither order nor volume, and means nothing outside of this installation.
"""

from __future__ import annotations

import hmac
import re
from hashlib import blake2b

from gateway.errors import Refusal
from spool.installation import derived

_SIZE = 16
_TOKEN = re.compile(r"([0-9a-f]{32})-([0-9]{1,12})-([0-9a-f]{32})")


def derived_secret(secret: bytes) -> bytes:
    """What addresses are signed with, from the secret of the installation."""
    return derived(secret, "addresses of container files")


def signed(secret: bytes, id: str, expires_at: float) -> str:
    until = int(expires_at)
    return f"{id}-{until}-{_signature(secret, id, until)}"


def opened(secret: bytes, token: str, *, now: float) -> str:
    """The id of the file. Refusal 403 if the token is not from here, or its time is over."""
    found = _TOKEN.fullmatch(token)
    if found is None or not hmac.compare_digest(_signature(secret, found[1], int(found[2])), found[3]):
        raise Refusal(403, "invalid_address", "This address was not given out here: announce the file first.")
    if int(found[2]) < now:
        raise expired()
    return found[1]


def expired() -> Refusal:
    """The agent looks for these words, and announces the file again."""
    return Refusal(403, "expired", "Request has expired: announce the file again to get a new address.")


def _signature(secret: bytes, id: str, until: int) -> str:
    return blake2b(f"{id}-{until}".encode(), key=secret, digest_size=_SIZE).hexdigest()
