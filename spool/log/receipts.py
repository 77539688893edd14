"""
Receipt ids, and the view of a receipt for operators. An id is an encrypted position (commit number and
index).

The encryption uses a synthetic initialization vector: the tag is a keyed hash of the position, and the key
stream derives from the tag. Equal positions give equal ids, and ids reveal neither order nor volume. Ids of
other installations are rejected.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from spool.errors import EntryUnreadable, NotThere
from spool.installation import derive_secret
from spool.log.accounting import SubmissionCounts

_PLACE = struct.Struct(">QI")
TAG_SIZE = 8
# Base 32 by pairs of letters; `base64.b32encode` takes more than twice as long.
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = tuple([first + second for first in _LETTERS for second in _LETTERS])
_SHIFTS = tuple(range(8 * (TAG_SIZE + _PLACE.size) - 10, -1, -10))
NO_LONGER_KEPT = "the receipt is older than spool.retention, so only the totals in the accounting are left"

# states of a request by priority: a request in parts has the first state that one of its parts has
_STATES = ("removed", "open", "kept", "known")

# terms are None if the row is damaged
CommitTerms = tuple[float, Sequence[SubmissionCounts] | None]


class ReceiptIdCipher:
    """Encrypts and decrypts receipt positions (commit and index) with the installation's secret."""

    def __init__(self, secret: bytes) -> None:
        # copying is faster than creating a keyed hash
        self._tags = blake2b(key=derive_secret(secret, "receipt tag"), digest_size=TAG_SIZE)
        self._streams = blake2b(key=derive_secret(secret, "receipt stream"), digest_size=_PLACE.size)

    def encrypt_receipt_id(self, commit_id: int, submission_index: int) -> str:
        position = _PLACE.pack(commit_id, submission_index)
        tag = self._position_tag(position)
        sealed = int.from_bytes(tag + _xor_bytes(position, self._encryption_mask(tag)))
        return "".join([_PAIRS[sealed >> shift & 0x3FF] for shift in _SHIFTS])

    def decrypt_receipt_id(self, receipt_id: str) -> tuple[int, int]:
        """Return commit and index of a receipt id. Raises NotThere for the id of another installation."""
        try:
            sealed = base64.b32decode(receipt_id.strip().upper())
        except (binascii.Error, ValueError) as error:
            raise NotThere("there is no such receipt") from error
        tag = sealed[:TAG_SIZE]
        hidden = sealed[TAG_SIZE:]
        if len(hidden) != _PLACE.size:
            raise NotThere("there is no such receipt")
        position = _xor_bytes(hidden, self._encryption_mask(tag))
        if not hmac.compare_digest(tag, self._position_tag(position)):
            raise NotThere("there is no such receipt")
        commit, index = _PLACE.unpack(position)
        return commit, index

    def _position_tag(self, position: bytes) -> bytes:
        return _finish_hash(self._tags, position)

    def _encryption_mask(self, tag: bytes) -> bytes:
        return _finish_hash(self._streams, tag)


def _finish_hash(begun: blake2b, text: bytes) -> bytes:
    hash = begun.copy()
    hash.update(text)
    return hash.digest()


async def receipt_view(
    receipt_id: str,
    receipt_id_cipher: ReceiptIdCipher,
    *,
    find_counts_of_commit: Callable[[int], Awaitable[CommitTerms | None]],
    lowest_open_number: Callable[[str], int],
    read_lowest_stored_number: Callable[[str], Awaitable[int]],
) -> dict[str, Any]:
    """
    Return a receipt's view. `read_lowest_stored_number`: of a topic. Raises
    NotThere if the receipt is deleted or from another installation, and EntryUnreadable if its row is
    damaged.
    """
    commit, index = receipt_id_cipher.decrypt_receipt_id(receipt_id)
    terms_of_commit = await find_counts_of_commit(commit)
    if terms_of_commit is None:
        raise NotThere(NO_LONGER_KEPT)
    committed_at, submissions = terms_of_commit
    if submissions is None or index >= len(submissions):
        raise EntryUnreadable("the row of this receipt's commit is damaged")
    terms = submissions[index]
    view = _receipt_view(
        receipt_id,
        terms,
        committed_at=committed_at,
        lowest_open_number=lowest_open_number(terms.topic),
        lowest_stored_number=await read_lowest_stored_number(terms.topic),
    )
    parts = [
        await receipt_view(
            part,
            receipt_id_cipher,
            find_counts_of_commit=find_counts_of_commit,
            lowest_open_number=lowest_open_number,
            read_lowest_stored_number=read_lowest_stored_number,
        )
        for part in terms.before
    ]
    return _combine_receipt_parts(view, parts)


def _receipt_view(
    receipt_id: str,
    submission_counts: SubmissionCounts,
    *,
    committed_at: float,
    lowest_open_number: int,
    lowest_stored_number: int,
) -> dict[str, Any]:
    return {
        "id": receipt_id,
        "topic": submission_counts.topic,
        "at": committed_at,
        "received": submission_counts.received,
        "records": submission_counts.known_and_new_count,
        "new": submission_counts.accepted,
        "duplicates": submission_counts.duplicates,
        "amended": submission_counts.amended,
        "ignored": dict(submission_counts.ignored),
        "rejected": dict(submission_counts.rejected),
        "first_number": submission_counts.first if submission_counts.accepted else None,
        "last_number": submission_counts.last_number if submission_counts.accepted else None,
        "state": _receipt_state(
            submission_counts,
            lowest_open_number=lowest_open_number,
            lowest_stored_number=lowest_stored_number,
        ),
    }


def _combine_receipt_parts(
    last_part: Mapping[str, Any], earlier_parts: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """
    Combine the receipt views of a request that was stored in parts. The range of numbers may include records
    of other requests.
    """
    whole = dict(last_part)
    for part in earlier_parts:
        for term in ("received", "records", "new", "duplicates", "amended"):
            whole[term] += part[term]
        for term in ("ignored", "rejected"):
            whole[term] = dict(Counter(whole[term]) + Counter(part[term]))
        whole["first_number"] = min(filter(None, (whole["first_number"], part["first_number"])), default=None)
        whole["last_number"] = max(filter(None, (whole["last_number"], part["last_number"])), default=None)
        whole["state"] = min(whole["state"], part["state"], key=_STATES.index)
    return whole


def _receipt_state(
    submission_counts: SubmissionCounts, *, lowest_open_number: int, lowest_stored_number: int
) -> str:
    if not submission_counts.accepted:
        return "known"
    if submission_counts.last_number < lowest_stored_number:
        return "removed"
    return "kept" if submission_counts.last_number < lowest_open_number else "open"


def _xor_bytes(data: bytes, mask: bytes) -> bytes:
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(len(data))
