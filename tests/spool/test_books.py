"""The terms of a commit, which must be readable in rows of earlier releases, and the ids of receipts."""

from __future__ import annotations

import base64
import zlib

import msgspec
import pytest

from spool.errors import NotThere
from spool.log.accounting import (
    METER_TOO_LARGE,
    SubmissionCounts,
    check_accounting,
    is_counter_name,
    pack_submission_counts,
    sum_submission_counts,
    unpack_submission_counts,
    unpack_submission_counts_if_intact,
)
from spool.log.commits.following import (
    NewIds,
    pack_ids_added_to_earlier_records,
    pack_new_ids,
    unpack_ids_added_to_earlier_records,
    unpack_new_ids,
)
from spool.log.receipts import ReceiptIdCipher

BEFORE_LEFT_OUT = ["ai-telemetry", 5, 0, 3, 1, 0, 0, 0, 0, 0, {"not_ai": 1}, {}, 7, []]


def test_a_row_without_the_newest_term_is_read() -> None:
    """Terms are only ever added at the end, so a row of an earlier release ends before the newest terms."""
    (terms,) = unpack_submission_counts(msgspec.msgpack.encode([BEFORE_LEFT_OUT]))
    assert terms.received == 5
    assert terms.accepted == 3
    assert terms.first == 7
    assert terms.left_out == 0
    assert "left_out" not in dict(terms.nonzero_counts())


def test_tags_left_out_are_a_term_of_the_row() -> None:
    """The number of left-out tags is added over submissions like every other term."""
    rows = [
        SubmissionCounts(topic="ai-telemetry", left_out=2),
        SubmissionCounts(topic="ai-telemetry", left_out=5),
    ]
    assert (
        7
        == sum_submission_counts(unpack_submission_counts(pack_submission_counts(rows)))[
            "ai-telemetry", "left_out"
        ]
    )


def test_no_term_is_new_to_the_release_before() -> None:
    """
    A release must not add a term that the release before does not know, because that release would treat the row as
    damaged. So large meters are counted only in metrics.
    """
    assert not is_counter_name(METER_TOO_LARGE)
    assert METER_TOO_LARGE not in SubmissionCounts.__struct_fields__


NESTED = b"\x91" * 10_000 + b"\xc0"


def test_lists_within_lists_are_a_damaged_row() -> None:
    """
    A row with nested lists is damaged. This holds even after the last known term, where a later release may
    have more values, because skipped values are parsed as well.
    """
    row = pack_submission_counts([SubmissionCounts(topic="ai-telemetry")])
    assert row[:3] == b"\x91\xdc\x00"  # the row is one msgpack list of more than 15 items
    row = row[:3] + bytes([row[3] + 1]) + row[4:] + NESTED
    for packed in (NESTED, row):
        assert unpack_submission_counts_if_intact(packed, zlib.crc32(packed)) is None


def test_lists_within_lists_are_damaged_ids_and_names() -> None:
    """Packed ids and packed names with nested lists are damaged."""
    ids, names = pack_new_ids(NewIds((5,), (1,), (7,))), pack_ids_added_to_earlier_records(1.0, [(5, 1, 7)])
    for unpack, packed in ((unpack_new_ids, ids), (unpack_ids_added_to_earlier_records, names)):
        assert packed[0] & 0xF0 == 0x90
        with pytest.raises(ValueError, match="damaged"):
            unpack(bytes([packed[0] + 1]) + packed[1:] + NESTED)


@pytest.mark.parametrize("place", [(0, 0), (1, 0), (1, 1), (2**64 - 1, 2**32 - 1)])
def test_the_id_of_a_receipt_is_base_32_and_opens(place: tuple[int, int]) -> None:
    """A place always has the same receipt id, and another installation cannot open it."""
    sealer = ReceiptIdCipher(b"one")
    sealed = sealer.encrypt_receipt_id(*place)
    assert sealed == base64.b32encode(base64.b32decode(sealed.upper())).decode().lower()
    assert place == sealer.decrypt_receipt_id(sealed)
    assert sealed == ReceiptIdCipher(b"one").encrypt_receipt_id(*place)
    with pytest.raises(NotThere):
        ReceiptIdCipher(b"other").decrypt_receipt_id(sealed)


TOPIC = {"received": 5, "split": 1, "accepted": 3, "duplicates": 1, "pending": 1, "ignored.not_ai": 1,
         "kept": 1, "expired": 1, "retired": 1}  # fmt: skip
ROUTE = {"before_start": 1, "queued": 1, "delivered": 1}


@pytest.mark.parametrize(
    ("topic", "route", "expected"),
    [
        (TOPIC, ROUTE, []),
        ({}, {}, []),
        (TOPIC | {"split": 0}, ROUTE, ["ai-telemetry: received + split = 5"]),
        (TOPIC | {"rejected.malformed": 1}, ROUTE, ["ai-telemetry: received + split = 6"]),
        (TOPIC | {"retired": 0}, ROUTE, ["ai-telemetry: accepted = 3"]),
        (TOPIC, ROUTE | {"queued": 2}, ["archive/ai-telemetry: accepted = 3"]),
        ({}, {"queued": 1}, ["archive/ai-telemetry: accepted = 0"]),
    ],
)
def test_imbalances_of_topics_and_routes_are_found(
    topic: dict[str, int], route: dict[str, int], expected: list[str]
) -> None:
    found = check_accounting({"ai-telemetry": topic}, {"archive/ai-telemetry": route}).imbalances
    assert expected == [sentence.partition(",")[0] for sentence in found]
