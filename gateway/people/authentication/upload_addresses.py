"""
The last part of an address to which one file may be sent until a time: signed, in place of a key.

It names the key to which it was given out, and ends with it. Beside that it shows neither order nor volume,
and means nothing outside of this installation.
"""

from __future__ import annotations

import hmac
import re
from hashlib import blake2b
from typing import NamedTuple

from gateway.service.errors import Refusal
from spool.installation import derived

_SIZE = 16
_TOKEN = re.compile(r"([0-9a-f]{32}-([0-9]{1,12})(?:-([0-9]{1,18}))?)-([0-9a-f]{32})")


class OpenAddress(NamedTuple):
    """`key`: the number of the key that it was given to; None where that was no key of the list."""

    file: str
    key: int | None


def derived_secret(secret: bytes) -> bytes:
    """Derive the secret that signs addresses from the secret of the installation."""
    return derived(secret, "addresses of container files")


def signed(secret: bytes, id: str, expires_at: float, *, key: int | None) -> str:
    text = f"{id}-{int(expires_at)}" if key is None else f"{id}-{int(expires_at)}-{key}"
    return f"{text}-{_signature(secret, text)}"


def opened(secret: bytes, token: str, *, now: float) -> OpenAddress:
    """Check a token and return what it opens. Refusal 403 if it was not made here, or its time is over."""
    found = _TOKEN.fullmatch(token)
    if found is None or not hmac.compare_digest(_signature(secret, found[1]), found[4]):
        raise Refusal(403, "invalid_address", "This address was not given out here: announce the file first.")
    if int(found[2]) < now:
        raise expired()
    return OpenAddress(found[1].partition("-")[0], None if found[3] is None else int(found[3]))


def expired() -> Refusal:
    """The agent looks for these words, and announces the file again."""
    return Refusal(403, "expired", "Request has expired: announce the file again to get a new address.")


def _signature(secret: bytes, text: str) -> str:
    return blake2b(text.encode(), key=secret, digest_size=_SIZE).hexdigest()
