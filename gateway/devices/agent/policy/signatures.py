"""Ed25519 keys in PEM format: they sign the manifest of a policy bundle, and check its signature."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class BadKey(ValueError):
    """A text that is not the expected kind of key."""


class PublicKey:
    """A key that checks signatures."""

    def __init__(self, pem: bytes) -> None:
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadKey("it is not a public key in PEM format") from error
        if not isinstance(key, Ed25519PublicKey):
            raise BadKey("it is not an Ed25519 key")
        self._key = key

    def is_signed(self, signature: bytes, data: bytes) -> bool:
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key."""

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


def new_private_pem() -> bytes:
    """Create a private key."""
    return _pem(Ed25519PrivateKey.generate())


def private_pem_of(seed: bytes) -> bytes:
    """Return the private key with this seed of 32 bytes."""
    return _pem(Ed25519PrivateKey.from_private_bytes(seed))


def _pem(key: Ed25519PrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
