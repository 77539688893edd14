"""
Manifests: the files and rows that one delivery wrote into a data lake, so that anybody can count them again. Pure.

Each manifest contains the hash of the previous manifest of its route. So a removed or changed manifest is
detected, even by a reader who has only the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

VERSION: Final = 1


class DeliveryNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The results for a delivery's record numbers. Damaged numbers have no row."""

    rows: int
    shadow: int
    damaged: list[int] = []


class CountedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of the rows that count in the totals. `spend` is decimal text with all digits."""

    calls: int
    spend: str
    input_tokens: int
    output_tokens: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: the rows of a delivery for one date."""

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
    A part of an imported file. `known` counts ids that were already in the data lake. `left_out` counts
    corrections, and records without a time.
    """

    source: str  # name of the imported file
    sha256: str
    part: int
    known: int
    left_out: int


class LakeManifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    The manifest of a delivery. With `imported`, it is the manifest of an import, which has no record numbers:
    `first` > `last`.
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
    # The FOCUS version if the files contain charges. `numbers` counts records in this case as well.
    focus: str | None = None


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """
    The results for records that are in the data lake, but never were in this restored copy of the data.

    The records have the numbers `first` to `last` of an edition. `brought` records were added to the log
    again, `known` records were already in the log, and `left` records are only in the data lake.
    """

    adoption: int = VERSION
    route: str
    edition: str
    first: int
    last: int
    manifest: str  # name of the delivery's own manifest
    adopted_at: str
    brought: int
    known: int
    left: int
    damaged: int

    @property
    def uncounted_records(self) -> int:
        """Return the number of rows and damaged numbers that no delivery of this copy counts."""
        return self.known + self.left + self.damaged


_decoder = msgspec.json.Decoder(LakeManifest)
_adoptions = msgspec.json.Decoder(Adoption)


def encode_manifest(manifest: LakeManifest | Adoption) -> bytes:
    return msgspec.json.encode(manifest)


def decode_adoption(body: bytes) -> Adoption:
    """Parse an adoption. Raises ValueError if it is malformed or of another version."""
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
    """Parse a manifest. Raises ValueError if it is malformed or of another version."""
    try:
        decoded = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a manifest: {error}") from error
    if decoded.manifest != VERSION:
        raise ValueError(
            f"the manifest has version {decoded.manifest}, but this Tollhouse knows version {VERSION}"
        )
    return decoded


def hash_of(body: bytes) -> str:
    return sha256(body).hexdigest()
