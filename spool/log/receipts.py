"""
Receipts: the place of a submission (its commit, its index there), sealed.

A synthetic initialisation vector: the tag is a keyed hash of the place and the key stream a keyed hash of the tag, so
equal places give equal ids, ids show neither order nor volume, and an id that was not sealed here does not open.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from hashlib import blake2b

from spool.errors import NotThere
from spool.installation import derived

_PLACE = struct.Struct(">QI")
TAG_SIZE = 8


class Sealer:
    """Opens what it sealed; the ids of another installation are nothing to it."""

    def __init__(self, secret: bytes) -> None:
        self._tag_key = derived(secret, "receipt tag")
        self._stream_key = derived(secret, "receipt stream")

    def seal(self, commit: int, index: int) -> str:
        place = _PLACE.pack(commit, index)
        tag = self._tag(place)
        return base64.b32encode(tag + _mixed(place, self._stream(tag))).decode().lower()

    def open(self, receipt_id: str) -> tuple[int, int]:
        """The place behind an id; NotThere when this installation did not seal it."""
        try:
            sealed = base64.b32decode(receipt_id.strip().upper())
        except (binascii.Error, ValueError) as error:
            raise NotThere("there is no such receipt") from error
        tag, hidden = sealed[:TAG_SIZE], sealed[TAG_SIZE:]
        if len(hidden) != _PLACE.size:
            raise NotThere("there is no such receipt")
        place = _mixed(hidden, self._stream(tag))
        if not hmac.compare_digest(tag, self._tag(place)):
            raise NotThere("there is no such receipt")
        commit, index = _PLACE.unpack(place)
        return commit, index

    def _tag(self, place: bytes) -> bytes:
        return blake2b(place, key=self._tag_key, digest_size=TAG_SIZE).digest()

    def _stream(self, tag: bytes) -> bytes:
        return blake2b(tag, key=self._stream_key, digest_size=_PLACE.size).digest()


def _mixed(one: bytes, other: bytes) -> bytes:
    """Exclusive or of two texts of one length."""
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
