"""Signed JSON Web Tokens: their parts and signatures. The only place that knows a library for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt

RSA_BITS = range(2048, 8193)  # shorter ones can be broken, longer ones keep the event loop busy
_PUBLIC = ("kty", "crv", "n", "e", "x", "y")  # a private key is not read, whoever publishes it
_LIBRARY = jwt.PyJWS()


def parts_of(text: str) -> tuple[Mapping[str, Any], bytes]:
    """Returns header and payload, whose signature is not checked. ValueError if it is not a signed token."""
    try:
        token = _LIBRARY.decode_complete(text, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise ValueError("not a signed token") from error
    return token["header"], token["payload"]


def is_signed(text: str, algorithm: str, key: Mapping[str, Any]) -> bool:
    """
    True if a token is signed with a public key (JWK).

    The algorithm must be the one of the key's type. So a public key is never taken for a shared secret.
    """
    if algorithm == "ES256" and key.get("crv") != "P-256":
        return False
    public = {name: key[name] for name in _PUBLIC if name in key}
    try:
        read = jwt.PyJWK(public, algorithm)
        if algorithm == "RS256" and read.key.key_size not in RSA_BITS:
            return False
        _LIBRARY.decode(text, read, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True
