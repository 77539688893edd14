"""Entries as bytes: split, sealed and checked."""

from __future__ import annotations

import random

import pytest

from spool.errors import EntryUnreadable
from spool.log.entries import codec
from spool.record import Inference, Record


def records(count: int, size: int = 10) -> list[Record]:
    noise = random.Random(1)
    return [
        Inference(id=bytes(16), source="x", tags={"n": noise.randbytes(size).hex()}) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "size"), [(1, 10), (4096, 10), (4097, 10), (10_000, 1), (2000, 2000), (3, 2_000_000)]
)
def test_slices_are_bounded_and_whole(count: int, size: int) -> None:
    """
    A slice has at most 4,096 records and one packed mebibyte, unless a single record is larger. All records
    keep their order.
    """
    given = records(count, size)
    slices = list(codec.pack_in_slices(given))
    assert given == [record for part, _ in slices for record in part]
    for part, packed in slices:
        assert len(part) <= codec.MAX_RECORDS
        assert len(packed) <= codec.MAX_BYTES or len(part) == 1
    assert len(slices) <= 2 + 2 * sum(len(packed) for _, packed in slices) // codec.MAX_BYTES + count // 4096


def test_sealed_slice_is_read_back_unchanged() -> None:
    given = records(100)
    ((_, packed),) = codec.pack_in_slices(given)
    raws = codec.split_records(codec.decompress_entry(codec.compress_entry(packed, "here"), "here"))
    assert given == [codec.decode_record(raw) for raw in raws]


def test_every_flipped_bit_is_found() -> None:
    """
    A changed bit is found even in the checksum, the version or the place. Damaged bytes are never decoded.
    """
    ((_, packed),) = codec.pack_in_slices(records(3))
    body = codec.compress_entry(packed, "here")
    for at in range(len(body.data)):
        data = bytearray(body.data)
        data[at] ^= 16
        with pytest.raises(EntryUnreadable):
            codec.decompress_entry(body._replace(data=bytes(data)), "here")
    for wrong in (
        body._replace(checksum=body.checksum ^ 1),
        body._replace(version=2),
        body._replace(data=b""),
    ):
        with pytest.raises(EntryUnreadable):
            codec.decompress_entry(wrong, "here")
    with pytest.raises(EntryUnreadable):
        codec.decompress_entry(body, "there")


def test_what_passes_the_checksum_and_is_no_entry_is_unreadable() -> None:
    """Content that passes the checksum but is malformed counts as damage and raises no other error."""
    nested = b"\x91" * 10_000
    for nonsense in (b"\x01", b"\x91\x92\x01\xc4", b"\x91\x93\x01\xc4\x00\xa1\xff", nested, nested + b"\xc0"):
        body = codec.compress_entry(nonsense, "here")
        with pytest.raises(EntryUnreadable):
            [codec.decode_record(raw) for raw in codec.split_records(codec.decompress_entry(body, "here"))]
