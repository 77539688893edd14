"""
Messages between the server and a worker, in both directions over one socket. Each message is a head and a payload.

The result of a decoded body is sent in pieces, so that no step of the event loop takes long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.formats.engine.declaration import CallReport, Normalised
from gateway.normalise.outcome import Outcome, Reject, Window
from spool.identity import Identity
from spool.log.values import CounterPoint
from spool.record import AI_TELEMETRY, AiRecord

HEAD: Final = Struct("<IBI")  # head of a message: number of payload bytes, message kind, job number
# number of rows of each list per message; reading them takes a few milliseconds of the event loop
PIECE: Final = 4096


class MessageKind(IntEnum):
    # Messages to a worker, which does its jobs in the order of their arrival.
    OPTIONS = 1  # options of the normaliser for the following jobs
    READER = 2  # name of the reader for the following bodies: `SentBody.reader`
    DECODE = 3  # a body without any encoding around it, because copying 64 MiB would be expensive
    ENCODE = 4
    GO_ON = 5  # the memory that HOLD requested is available
    GIVE_UP = 6  # the memory that HOLD requested is not available
    # Messages from a worker.
    READY = 10
    HOLD = 11  # the job needs more memory; the worker waits for GO_ON or GIVE_UP
    TURN = 12  # the job is still running
    PART = 13  # some finished records, as packed bytes
    ROWS = 14  # a piece of the result's lists
    DONE = 15  # the rest of the result, after all pieces
    REFUSED = 16  # the job was refused, because the sender made a mistake
    FAILED = 17  # the job failed for any other reason, so the server does it itself
    GIVEN_UP = 18


class WorkerMessage(NamedTuple):
    kind: int
    job: int
    payload: bytes


class MessageReader:
    """Decodes messages from data that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[WorkerMessage]:
        """Return the messages that are complete after adding `data`."""
        rest = self._rest
        rest += data
        messages: list[WorkerMessage] = []
        at, end = 0, len(rest)
        with memoryview(rest) as view:
            while end - at >= HEAD.size:
                size, kind, job = HEAD.unpack_from(view, at)
                begin = at + HEAD.size
                if end - begin < size:
                    break
                at = begin + size
                messages.append(WorkerMessage(kind, job, bytes(view[begin:at])))
        del rest[:at]
        return messages


class _Rows(msgspec.Struct, array_like=True, gc=False):
    """A piece of the lists of an outcome, with at most PIECE rows of each."""

    records: list[AiRecord] = []
    identities: list[Identity] = []
    points: list[CounterPoint] = []
    rejects: list[Reject] = []
    unrecognised: list[tuple[str, ...]] = []
    sessions: list[tuple[Window, set[str | None]]] = []
    reports: list[CallReport] = []


class _Rest(msgspec.Struct, array_like=True, gc=False):
    """The fields of an outcome that are not lists. `held` is the memory that the last step needed."""

    held: int
    rows: _Rows
    topic: str = AI_TELEMETRY
    received: int = 0
    split: int = 0
    ignored: dict[str, int] = {}
    left_out: int = 0
    forwarded: set[int] = set()
    named: dict[int, str] = {}
    named_points: dict[int, str] = {}
    count: int = 0


_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(_Rows)
_rest = msgspec.msgpack.Decoder(_Rest)


def messages_of(normalised: Normalised, held_bytes: int) -> Iterator[tuple[MessageKind, bytes]]:
    """
    Yield the messages of a result. DONE is last. The memory of packed parts is released as they are sent.
    """
    outcome = normalised.outcome
    outcome.packed.reverse()
    while outcome.packed:
        yield MessageKind.PART, outcome.packed.pop()
    pieces = _pieces(normalised)
    rows = next(pieces)
    for following in pieces:
        yield MessageKind.ROWS, _encoder.encode(rows)
        rows = following
    rest = _Rest(
        held=held_bytes,
        rows=rows,
        topic=outcome.topic,
        received=outcome.received,
        split=outcome.split,
        ignored=dict(outcome.ignored),
        left_out=outcome.left_out,
        forwarded=outcome.forwarded,
        named=outcome.named,
        named_points=outcome.named_points,
        count=outcome.count,
    )
    yield MessageKind.DONE, _encoder.encode(rest)


def _pieces(normalised: Normalised) -> Iterator[_Rows]:
    """Split the rows into pieces. There is at least one piece, and the longest list decides their number."""
    outcome = normalised.outcome
    lists: tuple[Sequence[Any], ...] = (
        outcome.records,
        outcome.identities,
        outcome.points,
        outcome.rejects,
        outcome.unrecognised,
        list(outcome.sessions.items()),
        normalised.reports,
    )
    if max(map(len, lists)) <= PIECE:
        yield _Rows(*map(list, lists))
        return
    iterators = [iter(rows) for rows in lists]
    while any(piece := [list(islice(rows, PIECE)) for rows in iterators]):
        yield _Rows(*piece)


class ArrivingResult:
    """A result that is reassembled from its pieces."""

    def __init__(self) -> None:
        self._outcome = Outcome()
        self._reports: list[CallReport] = []

    def add_part(self, packed: bytes) -> None:
        self._outcome.packed.append(packed)

    def add_rows(self, payload: bytes) -> None:
        self._add(_rows.decode(payload))

    def finish(self, payload: bytes) -> tuple[int, Normalised]:
        """Return the memory that the last step needed, and the result."""
        rest = _rest.decode(payload)
        self._add(rest.rows)
        outcome = self._outcome
        outcome.topic = rest.topic
        outcome.received = rest.received
        outcome.split = rest.split
        outcome.ignored = Counter(rest.ignored)
        outcome.left_out = rest.left_out
        outcome.forwarded = rest.forwarded
        outcome.named = rest.named
        outcome.named_points = rest.named_points
        outcome.count = rest.count
        return rest.held, Normalised(outcome, self._reports)

    def _add(self, rows: _Rows) -> None:
        outcome = self._outcome
        if not outcome.records:
            outcome.records, outcome.identities = rows.records, rows.identities
        else:
            outcome.records += rows.records
            outcome.identities += rows.identities
        outcome.points += rows.points
        outcome.rejects += rows.rejects
        outcome.unrecognised += rows.unrecognised
        outcome.sessions.update(rows.sessions)
        self._reports += rows.reports
