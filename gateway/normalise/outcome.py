"""
What a normaliser is told and what it yields, whatever its dialect or format.

Options are the little of the configuration that changes what is read. An outcome is what normalising one payload
yields: the intake takes nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gateway.normalise.payload.body_limits import MAX_ITEMS
from spool.identity import Identity
from spool.log.values import CounterPoint
from spool.record import AI_TELEMETRY, AiRecord

MALFORMED = "malformed"  # not readable as the item it claims to be
IMPLAUSIBLE = "implausible"  # cache above input, negative or absurd counts: never billed
NOT_AI = "not_ai"  # understood, and no AI call
UNRECOGNISED_AI = "unrecognised_ai"  # model- or token-like names that no dialect took
MERGED = "merged"  # one call described twice within the payload
DUPLICATE = "duplicate"
CHECK = "check"  # the marked call of another Tollhouse's `check`

MOST_NAMES = 32  # of an item that was not understood
LONGEST_NAME = 128
PART = 4096  # records or points of a large payload that are kept together


class Reject(NamedTuple):
    """One bad item. `message` names a field and an offset, never a value."""

    item: int  # its place in the payload, from 0
    reason: str
    message: str


class _Part(msgspec.Struct, array_like=True, gc=False):
    """Finished records and points of a large payload; its fields are those of an Outcome."""

    records: list[AiRecord] = []
    identities: list[Identity] = []
    forwarded: set[int] = set()
    named: dict[int, str] = {}
    points: list[CounterPoint] = []
    named_points: dict[int, str] = {}


class Dropped(NamedTuple):
    """An item that gave no record of its own, because another one tells the same."""

    item: str
    why: str


_encoder = msgspec.msgpack.Encoder()
_part = msgspec.msgpack.Decoder(_Part)

Window: TypeAlias = tuple[str, str | None, str]  # source, service, session


class Outcome(msgspec.Struct):
    """
    Records, points, and an account of every item: received + split = records + points + ignored + rejected.

    A batch with partial reports has also received those that wait, which are counted beside its outcome.
    Built by one normaliser for one payload, read by the intake, then thrown away.
    """

    topic: str = AI_TELEMETRY
    received: int = 0
    split: int = 0
    records: list[AiRecord] = []
    identities: list[Identity] = []
    points: list[CounterPoint] = []
    ignored: Counter[str] = msgspec.field(default_factory=Counter)
    rejects: list[Reject] = []
    unrecognised: list[tuple[str, ...]] = []
    left_out: int = 0  # tags that were over a bound or under a content name
    forwarded: set[int] = set()  # places in `records` of those from another Tollhouse
    named: dict[int, str] = {}  # place in `records` -> device named by its resource
    named_points: dict[int, str] = {}  # the same for `points`
    sessions: dict[Window, set[str | None]] = {}  # see `note_session`
    why: list[dict[str, Any]] | None = None  # per record: field -> the rule and the attribute behind it
    dropped: list[Dropped] = []  # beside `why`
    packed: list[bytes] = []  # finished records and points, until `parts`
    count: int = 0  # of those that are in `packed`, or were taken out by `parts`
    is_last: bool = True  # of the parts of its payload
    meter_too_large: int = 0  # meters that the intake left out, because they do not fit
    keep_tags: frozenset[str] = frozenset()  # Options.keep_tags, for those who read an item

    def add(
        self,
        record: AiRecord,
        identity: Identity,
        why: dict[str, Any] | None = None,
        *,
        device: str | None = None,
    ) -> None:
        """Add a record; `device` is the one that its resource names."""
        record.id = identity.id
        if device is not None:
            self.named[len(self.records)] = device
        self.records.append(record)
        self.identities.append(identity)
        if self.why is not None:
            self.why.append(why or {})

    def add_point(self, point: CounterPoint, *, device: str | None = None) -> None:
        if device is not None:
            self.named_points[len(self.points)] = device
        self.points.append(point)

    def note_session(self, record: AiRecord, session: str | None, *, device: str | None = None) -> None:
        """
        Record the session of a resource, and its device, if a record of the resource names another session.

        One Copilot Chat window has many conversations: its calls name a conversation, its counters only the window.
        """
        if session is not None and session != record.session:
            self.sessions.setdefault((record.source, record.tags.get("service"), session), set()).add(device)

    def reject(self, item: int, reason: str, message: str) -> None:
        self.rejects.append(Reject(item, reason, message))

    def drop(self, item: str, because: str) -> None:
        """Record why an ignored item produced no record. Does nothing unless the caller requested reasons."""
        if self.why is not None:
            self.dropped.append(Dropped(item, f"dropped: {because}"))

    def show_shape(self, names: Iterable[str], *, of: Iterable[str] = ()) -> None:
        """Record the attribute names of an unrecognised item, after `of`, for operators. Values are never recorded."""
        shown = (*of, *sorted(names)[:MOST_NAMES])
        self.unrecognised.append(tuple(name[:LONGEST_NAME] for name in shown))

    def pack(self) -> None:
        """
        Pack a full part of finished records and points: packed they take a tenth of the memory.

        A record without a certain identity stays: it must not be kept while a later part may still fail,
        because it would not be recognised when the whole payload is repeated.
        """
        if max(len(self.records), len(self.points)) < PART or self.why is not None:
            return
        done, stays = self._divided()
        for name, value in msgspec.structs.asdict(stays).items():
            setattr(self, name, value)
        if done.records or done.points:
            self.packed.append(_encoder.encode(done))
            self.count += len(done.records) + len(done.points)

    def _divided(self) -> tuple[_Part, _Part]:
        """Split the outcome into records whose identity is certain, and all others."""
        done, stays = _Part(points=self.points, named_points=self.named_points), _Part()
        for place, (record, identity) in enumerate(zip(self.records, self.identities, strict=True)):
            part = done if identity.certain else stays
            if place in self.forwarded:
                part.forwarded.add(len(part.records))
            if place in self.named:
                part.named[len(part.records)] = self.named[place]
            part.records.append(record)
            part.identities.append(identity)
        return done, stays

    def parts(self, most: int = PART) -> Iterator[Outcome]:
        """
        Yield parts of at most `most` records, in order; the books of the parts add up to this outcome's.

        Parts are unpacked one at a time. The last holds everything that was not packed and may not be kept
        while a later part may still fail (see `pack`); a small payload is its own only part.
        """
        self.packed.reverse()
        while self.packed:
            for piece in _pieces(_part.decode(self.packed.pop()), most):
                yield self._before_last(piece)
        for piece in self._take_certain(most):
            yield self._before_last(piece)
        yield msgspec.structs.replace(self, received=self.received - self.count) if self.count else self

    def _before_last(self, piece: _Part) -> Outcome:
        received = len(piece.records) + len(piece.points)
        return Outcome(topic=self.topic, received=received, is_last=False, **msgspec.structs.asdict(piece))

    def _take_certain(self, most: int) -> Iterator[_Part]:
        """Take out what may be kept before the rest, as far as there is more than so many."""
        if max(len(self.records), len(self.points)) <= most or self.why is not None:
            return
        done, stays = self._divided()
        pieces = list(_pieces(done, most))
        last = pieces.pop() if pieces and not stays.records else stays
        for name, value in msgspec.structs.asdict(last).items():
            setattr(self, name, value)
        self.count += sum(len(piece.records) + len(piece.points) for piece in pieces)
        yield from pieces


def _pieces(part: _Part, most: int) -> Iterator[_Part]:
    """The same records, then the points, in parts of at most so many."""
    if len(part.records) + len(part.points) <= most:
        yield part
        return
    for begin in range(0, len(part.records), most):
        end = begin + most
        yield _Part(
            records=part.records[begin:end],
            identities=part.identities[begin:end],
            forwarded={place - begin for place in part.forwarded if begin <= place < end},
            named={place - begin: device for place, device in part.named.items() if begin <= place < end},
        )
    for begin in range(0, len(part.points), most):
        end = begin + most
        yield _Part(
            points=part.points[begin:end],
            named_points={
                place - begin: name for place, name in part.named_points.items() if begin <= place < end
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    keep_attributes: frozenset[str] = frozenset()  # privacy.keep_attributes: kept as tags
    keep_tags: frozenset[str] = (
        frozenset()
    )  # these and ledger.tags: tags that may have any text of a tag's length
    counted: frozenset[str] = (
        frozenset()
    )  # [sources.NAME] count = true is written down: whose servers' counters count
    host_id: bool = False  # devices.host_id: resource host.id may name a device
    max_items: int = MAX_ITEMS  # server.max_items: of one body
    explain: bool = False  # fill Outcome.why
