from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
import orjson

from spool.log.values import LogEntry
from spool.record import Correction, Record, record_to_json

# records per transaction, all in memory
MOST_RECORDS: Final = 10_000
AWS: Final = "aws-msk-iam"  # value of `sasl` for tokens signed with AWS keys
SCHEMA = b"1"  # version of the message format; later versions only add fields


class TopicMessage(NamedTuple):
    """
    A message for one record. `key`: the record's id. `value`: canonical JSON.

    A correction has the `partition_key` of the record that it corrects, so consumers read it after that
    record.
    """

    key: bytes
    partition_key: bytes
    value: bytes
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes]]


class TopicProgress(msgspec.Struct, frozen=True):
    first: int
    last: int
    digest: str


def encode_entry(entry: LogEntry, *, route: str, log_edition: str) -> list[TopicMessage]:
    shared = [
        ("tollhouse-route", route.encode()),
        ("tollhouse-edition", log_edition.encode()),
        ("tollhouse-schema", SCHEMA),
    ]
    return [
        _encode_record(record, number, entry.committed_at, shared)
        for number, record in enumerate(entry.records, entry.first)
        if record is not None
    ]


def ids_digest(messages: Iterable[TopicMessage]) -> str:
    proof = sha256()
    for message in messages:
        proof.update(message.key)
    return proof.hexdigest()


def progress_key(log_edition: str, route: str) -> bytes:
    return f"{log_edition} {route}".encode()


def log_edition_in_progress_key(key: bytes, route: str) -> str | None:
    """
    Return the edition (one life of the log) in the key of a route's progress message, or None for another
    route's key.
    """
    edition, _, its_route = key.decode("utf-8", "replace").partition(" ")
    return edition if its_route == route else None


def decode_progress(value: bytes) -> TopicProgress:
    """Decode a progress message. Raises ValueError."""
    return msgspec.json.decode(value, type=TopicProgress)


def encode_progress(progress: TopicProgress) -> bytes:
    return msgspec.json.encode(progress)


def _encode_record(
    record: Record, record_number: int, committed_at: float, shared: Sequence[tuple[str, bytes]]
) -> TopicMessage:
    key = record.id.hex().encode()
    corrects = record.corrects.hex().encode() if isinstance(record, Correction) else key
    return TopicMessage(
        key=key,
        partition_key=corrects,
        value=orjson.dumps(record_to_json(record)),
        timestamp_ms=int(committed_at * 1000),
        headers=[
            ("tollhouse-kind", record.kind.encode()),
            ("tollhouse-number", str(record_number).encode()),
            *shared,
        ],
    )
