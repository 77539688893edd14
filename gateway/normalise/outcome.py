"""
`ReadOptions` holds the few settings that change how a payload is read. An `ReadOutcome` is the result for one
payload, and the only input of the intake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gateway.normalise.payload.body_limits import MAX_ITEMS
from spool.identity import RecordIdentity
from spool.log.pending_spans import SpanStep
from spool.log.values import CounterPoint
from spool.record import AI_TELEMETRY, AiRecord, Inference

MALFORMED = "malformed"  # reason for a rejection: the item cannot be read as what it claims to be
# Reason: negative or impossibly large counts, or a cache count above the input. Such counts are never billed.
IMPLAUSIBLE = "implausible"
NOT_AI = "not_ai"  # reason: the item was understood, but is not an AI call
UNRECOGNISED_AI = "unrecognised_ai"  # reason: the item has names of models or tokens that no rule reads
MERGED = "merged"  # reason: another item of the payload describes the same call
DUPLICATE = "duplicate"
GUARD = "guard"  # reason: a guardrail without a model; if it calls a model, that call has its own span
TEST_SPAN = "test_span"  # reason: a product sent the span only to test its export
NO_ITEMS = (
    "no_items"  # reason: the body has none of the members that the address reads; it counts as one item
)
CHECK = "check"  # reason: the marked test call of the command `check` of another Tollhouse

MOST_NAMES = 32  # maximum names that are listed for an unrecognized item
LONGEST_NAME = 128
LONGEST_VERSION = 32  # maximum characters of a sender version
LONGEST_PROGRAM = 48  # maximum characters of the name of the program to which a version belongs
_END_OF_PROGRAM = "\n"
PART = 4096  # records or points of a large payload that are packed together


class RejectedPayloadItem(NamedTuple):
    """A rejected item. `message` names a field and an offset, never a value."""

    item: int  # index in the payload, from 0
    reason: str
    message: str


class _OutcomePart(msgspec.Struct, array_like=True, gc=False):
    """Finished records and points of a large payload, with the fields of an `ReadOutcome` that belong to them."""

    records: list[AiRecord] = []
    identities: list[RecordIdentity] = []
    forwarded: set[int] = set()
    named: dict[int, str] = {}
    points: list[CounterPoint] = []
    named_points: dict[int, str] = {}


class DroppedDuplicate(NamedTuple):
    """An item that is not counted, because another item describes the same call. `why` is the reason."""

    item: str
    why: str


# What a call states: source, sender version, provider, operation, whether it succeeded without usage, whether
# it succeeded, and for each of STATED_FIELDS whether it is missing.
Stated: TypeAlias = tuple[str | bool | None, ...]
STATED_FIELDS = ("model", "input", "output", "cache", "cost", "user", "session", "team", "id")


def join_program_and_version(program: str, version: str) -> str:
    """Return a sender version that belongs to a program. `program` is "" if the source is the program."""
    if not program or not version:
        return version[:LONGEST_VERSION]
    return f"{program[:LONGEST_PROGRAM]}{_END_OF_PROGRAM}{version[:LONGEST_VERSION]}"


def split_program_and_version(sender_version: str) -> tuple[str, str]:
    program, _, version = sender_version.rpartition(_END_OF_PROGRAM)
    return program, version


def source_and_stated_fields(call: Inference, sender_version: str) -> Stated:
    """
    Return which fields a call states, for counts by source and sender version. It is one expression, because
    it runs for each call.
    """
    is_ok = call.status == "ok"
    return (
        call.source,
        sender_version,
        call.provider,
        call.operation,
        is_ok and call.input_tokens is None and call.output_tokens is None and not call.meters,
        is_ok,
        call.request_model is None and call.response_model is None,
        call.input_tokens is None,
        call.output_tokens is None,
        call.cache_read_tokens is None and call.cache_write_tokens is None,
        call.cost is None and not call.charges,
        call.user is None,
        call.session is None,
        call.team is None,
        call.request_id is None,
    )


_encoder = msgspec.msgpack.Encoder()
_part = msgspec.msgpack.Decoder(_OutcomePart)

Window: TypeAlias = tuple[str, str | None, str]  # window of an application: source, service and session


def _new_counter() -> Counter[str]:
    """Return a new counter without calling its constructor, which takes ten times as long."""
    return Counter.__new__(Counter)


class ReadOutcome(msgspec.Struct):
    """
    Records, points, and an account of every item: received + split = records + points + ignored + rejected.

    If an item becomes several records, `split` counts all records after the first. Items that wait as partial
    reports are counted in `BatchMerge.pending` instead. One normaliser builds the outcome for one payload.
    The intake reads it and discards it.
    """

    topic: str = AI_TELEMETRY
    received: int = 0
    split: int = 0
    records: list[AiRecord] = []
    identities: list[RecordIdentity] = []
    points: list[CounterPoint] = []
    ignored: Counter[str] = msgspec.field(default_factory=_new_counter)
    rejects: list[RejectedPayloadItem] = []
    unrecognised: list[tuple[str, ...]] = []
    left_out: int = 0  # number of tags above a limit, or with a name that may mean content
    forwarded: set[int] = set()  # indexes in `records` of records that another Tollhouse sent
    named: dict[int, str] = {}  # index in `records` -> device that the resource names
    named_points: dict[int, str] = {}  # index in `points` -> device that the resource names
    sessions: dict[Window, set[str | None]] = {}  # window -> sessions (see `note_resource_session`)
    # explanation of each record: field -> the attribute and the rule behind its value
    why: list[dict[str, Any]] | None = None
    dropped: list[DroppedDuplicate] = []  # dropped items with the reason, only if `why` is filled
    packed: list[bytes] = []  # finished records and points, until `yield_parts` unpacks them
    # number of items that are or were in `packed`; `yield_parts` removes them
    count: int = 0
    is_last: bool = True  # whether this is the last part of a payload
    meter_too_large: int = 0  # number of meters that the intake dropped because they are too large
    steps: list[SpanStep] = []  # spans that may link calls of other payloads to the runs of agents
    # copy of `ReadOptions.keep_tags`, for code that reads single items
    keep_tags: frozenset[str] = frozenset()
    stated: dict[Stated, int] = {}  # what calls state -> their number, before any record is changed
    agent: str = ""  # product of the User-Agent header, used as the version of senders that state none
    warnings: list[str] = []  # sentences for the sender about items that are stored or ignored
    # Stored items whose start time shows a wrong clock: (source, year, whether it is ahead) -> their number. The intake
    # counts them, because it has a clock.
    misdated: dict[tuple[str, int, bool], int] = {}

    def add_record(
        self,
        record: AiRecord,
        identity: RecordIdentity,
        why: dict[str, Any] | None = None,
        *,
        device: str | None = None,
        version: str | None = "",
    ) -> None:
        """
        Add a record under its dedup key. `device` is the device that the resource names. `version` is "" if
        the sender states none, and None if another Tollhouse has already counted the stated fields.
        """
        record.id = identity.id
        if device is not None:
            self.named[len(self.records)] = device
        self.records.append(record)
        self.identities.append(identity)
        if version is not None and type(record) is Inference:
            stated = source_and_stated_fields(record, version)
            self.stated[stated] = self.stated.get(stated, 0) + 1
        if self.why is not None:
            self.why.append(why or {})

    def set_sending_program(self, user_agent: str | None) -> None:
        self.agent = (user_agent or "").partition(" ")[0][:LONGEST_VERSION]

    def add_point(self, point: CounterPoint, *, device: str | None = None) -> None:
        if device is not None:
            self.named_points[len(self.points)] = device
        self.points.append(point)

    def note_resource_session(
        self, record: AiRecord, session: str | None, *, device: str | None = None
    ) -> None:
        """
        Note the session and the device that a resource names, if the record of its item names another
        session.

        One Copilot Chat window has many conversations. Its calls name a conversation, but its counters name
        only the window.
        """
        if session is not None and session != record.session:
            self.sessions.setdefault((record.source, record.tags.get("service"), session), set()).add(device)

    @property
    def has_records_or_points(self) -> bool:
        return bool(self.records or self.points or self.packed)

    def note_body_without_items(self, warning: str) -> None:
        self.received = self.ignored[NO_ITEMS] = 1
        self.warnings.append(warning)

    def reject_item(self, item: int, reason: str, message: str) -> None:
        self.rejects.append(RejectedPayloadItem(item, reason, message))

    def note_dropped_duplicate(self, item: str, because: str) -> None:
        if self.why is not None:
            self.dropped.append(DroppedDuplicate(item, f"dropped: {because}"))

    def note_unrecognised_names(self, names: Iterable[str], *, leading_names: Iterable[str] = ()) -> None:
        """
        Note names of an unrecognized item to show to an operator: those in `leading_names` first, then `names`. Values
        are never noted.
        """
        shown = (*leading_names, *sorted(names)[:MOST_NAMES])
        self.unrecognised.append(tuple(name[:LONGEST_NAME] for name in shown))

    def pack_finished_part_if_full(self) -> None:
        """
        Pack a full part of finished records and points, because packed data needs a tenth of the memory.

        A record whose identity is uncertain is not packed. If a later part fails, the sender repeats the
        whole payload, and the repeated record would not be recognized as a duplicate.
        """
        if (len(self.records) < PART and len(self.points) < PART) or self.why is not None:
            return
        certain, stays = self._split_by_identity_certainty()
        for name, value in msgspec.structs.asdict(stays).items():
            setattr(self, name, value)
        if certain.records or certain.points:
            self.packed.append(_encoder.encode(certain))
            self.count += len(certain.records) + len(certain.points)

    def _split_by_identity_certainty(self) -> tuple[_OutcomePart, _OutcomePart]:
        certain, stays = _OutcomePart(points=self.points, named_points=self.named_points), _OutcomePart()
        for index, (record, identity) in enumerate(zip(self.records, self.identities, strict=True)):
            part = certain if identity.certain else stays
            if index in self.forwarded:
                part.forwarded.add(len(part.records))
            if index in self.named:
                part.named[len(part.records)] = self.named[index]
            part.records.append(record)
            part.identities.append(identity)
        return certain, stays

    def yield_parts(self, max_records: int = PART) -> Iterator[ReadOutcome]:
        """
        Yield parts of at most `max_records` records, in order.

        Parts are unpacked one at a time. The last part holds everything that must not be stored while a later
        part may still fail (see `pack_finished_part_if_full`). A small payload has only one part, the outcome itself.
        """
        self.packed.reverse()
        while self.packed:
            for piece in _split_part(_part.decode(self.packed.pop()), max_records):
                yield self._outcome_of_part(piece)
        for piece in self._take_parts_with_certain_identity(max_records):
            yield self._outcome_of_part(piece)
        yield msgspec.structs.replace(self, received=self.received - self.count) if self.count else self

    def _outcome_of_part(self, piece: _OutcomePart) -> ReadOutcome:
        received = len(piece.records) + len(piece.points)
        return ReadOutcome(
            topic=self.topic, received=received, is_last=False, **msgspec.structs.asdict(piece)
        )

    def _take_parts_with_certain_identity(self, max_items: int) -> Iterator[_OutcomePart]:
        if max(len(self.records), len(self.points)) <= max_items or self.why is not None:
            return
        certain, stays = self._split_by_identity_certainty()
        pieces = list(_split_part(certain, max_items))
        last = pieces.pop() if pieces and not stays.records else stays
        for name, value in msgspec.structs.asdict(last).items():
            setattr(self, name, value)
        self.count += sum(len(piece.records) + len(piece.points) for piece in pieces)
        yield from pieces


def _split_part(part: _OutcomePart, max_items: int) -> Iterator[_OutcomePart]:
    if len(part.records) + len(part.points) <= max_items:
        yield part
        return
    for begin in range(0, len(part.records), max_items):
        end = begin + max_items
        yield _OutcomePart(
            records=part.records[begin:end],
            identities=part.identities[begin:end],
            forwarded={index - begin for index in part.forwarded if begin <= index < end},
            named={index - begin: device for index, device in part.named.items() if begin <= index < end},
        )
    for begin in range(0, len(part.points), max_items):
        end = begin + max_items
        yield _OutcomePart(
            points=part.points[begin:end],
            named_points={
                index - begin: name for index, name in part.named_points.items() if begin <= index < end
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    # names that privacy.keep_attributes lists, which are stored as tags
    keep_attributes: frozenset[str] = frozenset()
    # names from privacy.keep_tags and ledger.tags, whose text is unrestricted up to the length limit of a tag
    keep_tags: frozenset[str] = frozenset()
    # sources with `count = true` in [sources.NAME], whose server counters are counted
    counted: frozenset[str] = frozenset()
    # devices.host_id: whether the resource attribute host.id may name a device
    host_id: bool = False
    max_items: int = MAX_ITEMS
    explain: bool = False  # fill Outcome.why
