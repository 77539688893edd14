"""Signatures of JSON Web Tokens. The only place that knows a library of cryptography."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

RSA_BITS = range(2048, 8193)  # shorter ones can be broken, longer ones keep the event loop busy
_COORDINATE_BYTES = 32


def is_signed(algorithm: str, key: Mapping[str, Any], message: bytes, signature: bytes) -> bool:
    """
    Whether `signature` is that of a public key (JWK) over `message`.

    The algorithm must be the one of the key's type. So a public key is never taken for a shared secret.
    """
    try:
        if algorithm == "RS256" and key.get("kty") == "RSA":
            _check_rsa(key, message, signature)
        elif algorithm == "ES256" and (key.get("kty"), key.get("crv")) == ("EC", "P-256"):
            _check_p256(key, message, signature)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, KeyError, TypeError):
        return False
    return True


def _check_rsa(key: Mapping[str, Any], message: bytes, signature: bytes) -> None:
    modulus, exponent = _number(key["n"]), _number(key["e"])
    if modulus.bit_length() not in RSA_BITS or exponent.bit_length() > 32:
        raise ValueError("not a usable RSA key")
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    public.verify(signature, message, padding.PKCS1v15(), SHA256())


def _check_p256(key: Mapping[str, Any], message: bytes, signature: bytes) -> None:
    if len(signature) != 2 * _COORDINATE_BYTES:
        raise ValueError("not a signature of P-256")
    point = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
    parts = (signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:])
    r, s = (int.from_bytes(part, "big") for part in parts)
    point.public_key().verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))


def _number(text: str) -> int:
    return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
