"""
A manifest: what one delivery brought into a lake, for whoever counts it again. Pure.

Each one names the hash of the one before of its route, so that a removed or changed one shows, also to somebody
who has only the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

VERSION: Final = 1


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the numbers of a delivery; those that are damaged have no row."""

    rows: int
    shadow: int
    damaged: list[int] = []


class CountedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over rows that the ledger counts; `spend` is decimal text with all digits."""

    calls: int
    spend: str
    input_tokens: int
    output_tokens: int


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: the rows of a delivery that belong to a date."""

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
    A part of a file that was brought in beside the deliveries. `known` ids were in the lake already; `left_out` are
    corrections, and records without a time.
    """

    source: str  # the name of the file
    sha256: str
    part: int
    known: int
    left_out: int


class LakeManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Of a delivery; with `imported` of an import, which has no numbers: `first` is above `last`."""

    manifest: int = VERSION
    route: str
    edition: str
    first: int
    last: int
    writer: int
    schema: int
    digest: str
    landed_at: str
    numbers: Numbers
    kinds: Mapping[str, int]
    counted: CountedRows
    files: list[LakeFile]
    before: str | None = None
    imported: ImportedPart | None = None
    focus: str | None = (
        None  # the version of FOCUS: the rows of its files are charges, and `numbers` are of records
    )


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """
    What became of records that a lake has and a restored copy of the data never had: the numbers `first` to `last` of
    an edition. `brought` are in the log again, `known` were there already, `left` are in the lake alone.
    """

    adoption: int = VERSION
    route: str
    edition: str
    first: int
    last: int
    manifest: str  # the name of the delivery's own
    adopted_at: str
    brought: int
    known: int
    left: int
    damaged: int

    @property
    def without_number(self) -> int:
        """Rows and damaged numbers that no delivery of the copy counts."""
        return self.known + self.left + self.damaged


_decoder = msgspec.json.Decoder(LakeManifest)
_adoptions = msgspec.json.Decoder(Adoption)


def written(manifest: LakeManifest | Adoption) -> bytes:
    return msgspec.json.encode(manifest)


def read_adoption(body: bytes) -> Adoption:
    """ValueError if the bytes are none of this version."""
    try:
        found = _adoptions.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no adoption: {error}") from error
    if found.adoption != VERSION:
        raise ValueError(f"the adoption has version {found.adoption}, this Tollhouse knows {VERSION}")
    return found


def read(body: bytes) -> LakeManifest:
    """ValueError if the bytes are no manifest of this version."""
    try:
        found = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no manifest: {error}") from error
    if found.manifest != VERSION:
        raise ValueError(f"the manifest has version {found.manifest}, this Tollhouse knows {VERSION}")
    return found


def hash_of(body: bytes) -> str:
    return sha256(body).hexdigest()
