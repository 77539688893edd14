"""
Keys in PEM format: Ed25519 keys sign documents, such as the manifest of a policy bundle, and check their signatures.
A P-256 key signs tokens for programs that accept no Ed25519.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import cached_property
from hashlib import sha256

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_P256_ORDER = int("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)


class BadKey(ValueError):
    """Raised for a text that is not the expected kind of key."""


class PublicKey:
    """A public key that checks the signatures of policy bundles."""

    def __init__(self, pem: bytes) -> None:
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadKey("it is not a public key in PEM format") from error
        if not isinstance(key, Ed25519PublicKey):
            raise BadKey("it is not an Ed25519 key")
        self._key = key

    def is_valid_signature(self, signature: bytes, data: bytes) -> bool:
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key that signs policy bundles."""

    def __init__(self, pem: bytes) -> None:
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadKey("it is not a private key in PEM format without a password") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("it is not an Ed25519 key")
        self._key = key

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    @property
    def public_pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form)


class WebTokenSigningKey:
    """A P-256 key, derived from a secret. Its signatures have no random part (RFC 6979)."""

    def __init__(self, secret: bytes) -> None:
        number = int.from_bytes(sha256(secret).digest())
        self._key = ec.derive_private_key(number % (_P256_ORDER - 1) + 1, ec.SECP256R1())

    @cached_property
    def public_pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def sign_web_token(self, payload: bytes, key_id: str) -> str:
        signed = (
            _encode_base64(orjson.dumps({"alg": "ES256", "kid": key_id})) + b"." + _encode_base64(payload)
        )
        algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        r, s = decode_dss_signature(self._key.sign(signed, algorithm))
        return (signed + b"." + _encode_base64(r.to_bytes(32) + s.to_bytes(32))).decode()


def _encode_base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def new_private_pem() -> bytes:
    return _private_pem(Ed25519PrivateKey.generate())


def private_pem_from_seed(seed: bytes) -> bytes:
    return _private_pem(Ed25519PrivateKey.from_private_bytes(seed))


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
