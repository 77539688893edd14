"""
Records to the bytes of an entry and back: packed, compressed, with a checksum and a version of the form.

The checksum covers the stored bytes, so damage is found before anything is decompressed or decoded.
"""

from __future__ import annotations

import logging
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from spool.errors import EntryUnreadable
from spool.record import Record

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 1
# Measured on packed GenAI records: 3 saves nothing, 6 one byte in a hundred at three times the time.
LEVEL = 1
MAX_RECORDS = 4096
MAX_BYTES = 1 << 20  # packed, before compression
LARGEST = 64 << 20  # no entry inflates to more: a damaged length cannot exhaust the memory

# Of bytes that are no record: a text that is not UTF-8 raises another error than the rest.
# What is raised for bytes that are not what they should be; the last one for lists within lists without end.
NO_RECORD = msgspec.DecodeError, UnicodeDecodeError, RecursionError

_encoder = msgspec.msgpack.Encoder()
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_record = msgspec.msgpack.Decoder(Record)
_fields = msgspec.msgpack.Decoder(dict[str, Any])


class EntryBody(NamedTuple):
    """The stored form of some records."""

    version: int
    checksum: int
    data: bytes


def cut(records: list[Record]) -> Iterator[tuple[list[Record], bytes]]:
    """Slices of at most MAX_RECORDS records and about MAX_BYTES packed, each with its packed bytes."""
    step = MAX_RECORDS
    start = 0
    while start < len(records):
        part = records[start : start + step]
        packed = _encoder.encode(part)
        if len(packed) > MAX_BYTES and len(part) > 1:
            step = max(1, len(part) * MAX_BYTES // (len(packed) + len(packed) // 8))
            continue
        yield part, packed
        start += len(part)


def seal(packed: bytes, place: str) -> EntryBody:
    """Compress and sum packed records. `place` says where they belong: the same bytes elsewhere count as damage."""
    data = zstd.compress(packed, LEVEL)
    return EntryBody(VERSION, checksum(data, place), data)


def entry_place(topic: str, first: int, count: int) -> str:
    """Name the place of an entry, which its checksum covers together with its bytes."""
    return f"{topic}:{first}:{count}"


def amendment_place(topic: str, number: int) -> str:
    """Name the record that an amendment belongs to, which its checksum covers together with its bytes."""
    return f"{topic}:{number}"


def checksum(data: bytes, place: str) -> int:
    return zlib.crc32(data, zlib.crc32(place.encode()))


def check_entry(body: EntryBody, place: str) -> bytes:
    """The packed bytes of a stored entry; EntryUnreadable when a bit of them changed or the form is unknown."""
    if body.version != VERSION:
        raise EntryUnreadable(f"the entry has form {body.version}, this Tollhouse knows {VERSION}")
    if checksum(body.data, place) != body.checksum:
        raise EntryUnreadable("the checksum does not match")
    try:
        decompressor = zstd.ZstdDecompressor()
        packed = decompressor.decompress(body.data, LARGEST)
    except zstd.ZstdError as error:
        raise EntryUnreadable("the entry cannot be decompressed") from error
    if not decompressor.eof:
        raise EntryUnreadable("the entry ends early or is too large")
    return packed


def stored_raws(body: EntryBody, topic: str, first: int, count: int) -> tuple[list[msgspec.Raw], bytes]:
    """The records of a stored entry, undecoded: each, and all as they are packed. EntryUnreadable when damaged."""
    packed = check_entry(body, entry_place(topic, first, count))
    found = raws(packed)
    if len(found) != count:
        raise EntryUnreadable(f"the entry holds {len(found)} records in place of {count}")
    return found, packed


def raws(packed: bytes) -> list[msgspec.Raw]:
    """The records of `checked` bytes, undecoded: to look at one of four thousand costs little."""
    try:
        return _raws.decode(packed)
    except NO_RECORD as error:
        raise EntryUnreadable("the entry does not hold records") from error


def record(raw: msgspec.Raw | bytes) -> Record:
    """Decode one record of `raws`, or of the same bytes."""
    try:
        found: Record = _record.decode(raw)
    except NO_RECORD as error:
        raise EntryUnreadable("the record cannot be decoded") from error
    return found


def pack(records: list[Any]) -> bytes:
    """Records, decoded or not, as they stand in an entry."""
    return _encoder.encode(records)


def pack_fields(fields: Mapping[str, Any]) -> bytes:
    """Encode the fields that an amendment adds to its record."""
    return _encoder.encode(fields)


def check_fields(topic: str, number: int, checksum_kept: int, packed: object) -> dict[str, Any]:
    """An amendment's fields; EntryUnreadable when they changed on disk."""
    if not isinstance(packed, bytes) or checksum(packed, amendment_place(topic, number)) != checksum_kept:
        raise EntryUnreadable("the amendment's checksum does not match")
    return unpack_fields(packed)


def unpack_fields(packed: bytes) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = _fields.decode(packed)
    except NO_RECORD as error:
        raise EntryUnreadable("the amendment cannot be decoded") from error
    return fields


# -- damaged entries and amendments: what is remembered and logged of them -----------------------------------


_log = logging.getLogger(__name__)


class Damage(NamedTuple):
    """An entry that was found damaged just now."""

    first: int
    records: int
    reason: str


def log_damage(topic: str, damage: Iterable[Damage]) -> None:
    for one in damage:
        _log.error(
            "an entry is damaged and set aside",
            extra={
                "action": "entry_damaged",
                "topic": topic,
                "first": one.first,
                "records": one.records,
                "reason": one.reason,
            },
        )


def log_damaged_amendment(topic: str, number: int, error: EntryUnreadable) -> None:
    _log.warning(
        "an amendment is damaged, its record stays as it first came",
        extra={"action": "amendment_damaged", "topic": topic, "number": number, "reason": str(error)},
    )
