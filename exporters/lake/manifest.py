"""
Manifests describe what one delivery wrote, so that any reader of the store can count again. Pure.

Each manifest has the hash of its route's previous one, so that even a reader of only the store detects a
removed or changed manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

VERSION: Final = 1


class DeliveryNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The record numbers of a delivery. Damaged records have no row."""

    rows: int
    shadow: int
    damaged: list[int] = []


class CountedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the rows that the totals count. `spend`: decimal text."""

    calls: int
    spend: str
    input_tokens: int
    output_tokens: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the store, with the rows of a delivery for one date."""

    key: str
    date: str
    bytes: int
    sha256: str
    rows: int
    calls: int
    spend: str
    input_tokens: int
    output_tokens: int
    first_at: str
    last_at: str


class ImportedPart(msgspec.Struct, frozen=True, kw_only=True):
    """
    A part of an import from files. `known`: records with ids that the lake already had. `left_out`:
    corrections, and records without a time.
    """

    source: str  # imported file
    sha256: str
    part: int
    known: int
    left_out: int


class LakeManifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    The manifest of a delivery. `imported`: the part of an import, which has no record numbers (`first` >
    `last`).
    """

    manifest: int = VERSION
    route: str
    edition: str
    first: int
    last: int
    writer: int
    schema: int
    digest: str
    landed_at: str
    numbers: DeliveryNumbers
    kinds: Mapping[str, int]
    counted: CountedRows
    files: list[LakeFile]
    before: str | None = None
    imported: ImportedPart | None = None
    # FOCUS version if the files contain charges; `numbers` still counts records
    focus: str | None = None


class AdoptionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    The result of an adoption: a log that was restored from a backup takes over later records from its data
    lake.

    Of the original's records `first` to `last`, `brought` were added to the log, `known` were already there,
    and `left` stay only in the lake.
    """

    adoption: int = VERSION
    route: str
    edition: str
    first: int
    last: int
    manifest: str  # name of the delivery's manifest
    adopted_at: str
    brought: int
    known: int
    left: int
    damaged: int

    @property
    def uncounted_records(self) -> int:
        return self.known + self.left + self.damaged


_decoder = msgspec.json.Decoder(LakeManifest)
_adoptions = msgspec.json.Decoder(AdoptionManifest)


def encode_manifest(manifest: LakeManifest | AdoptionManifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode_adoption_manifest(body: bytes) -> AdoptionManifest:
    """Raises ValueError if the body is no adoption of this version."""
    try:
        adoption = _adoptions.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not an adoption: {error}") from error
    if adoption.adoption != VERSION:
        raise ValueError(
            f"the adoption has version {adoption.adoption}, but this Tollhouse knows version {VERSION}"
        )
    return adoption


def decode_manifest(body: bytes) -> LakeManifest:
    """Decode a manifest. Raises ValueError."""
    try:
        decoded = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a manifest: {error}") from error
    if decoded.manifest != VERSION:
        raise ValueError(
            f"the manifest has version {decoded.manifest}, but this Tollhouse knows version {VERSION}"
        )
    return decoded


def sha256_hex(body: bytes) -> str:
    return sha256(body).hexdigest()
