"""
What one group commit does: submissions to entries, amendments, series and terms. Pure but for what it reads.

A plan changes nothing. An engine writes it in one transaction, and only then does `Planner.apply` add it to the memory:
a commit that fails leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

from spool.errors import KeyEnded, KeyReused, Stale
from spool.identity import Identity
from spool.log import books, duplicates
from spool.log.amendments import PRICED_BY, amended, disagree, missing
from spool.log.books import Terms
from spool.log.conflicts import Conflicts
from spool.log.counters import SeriesState, advance, as_record
from spool.log.duplicates import HOUR_NS, IN_A_RUN, DuplicateIndex, hours_of
from spool.log.event_types import EventSum, types_of
from spool.log.expectations import stale
from spool.log.partial_reports import PartialReport
from spool.log.values import CounterPoint, Receipt, Submission
from spool.record import (
    AI_TELEMETRY,
    NS,
    TOPICS,
    USAGE_EVENTS,
    Inference,
    KeyedRecord,
    Record,
    request_names_of,
)
from spool.registry.shared.bearers import ended

MOST_NAMES = 64  # that are kept with a record

Answer = Receipt | Stale  # what becomes of a submission

_STALE = "what this was made from was changed meanwhile: nothing of it was kept"
_ENDED = "the key of this submission was deleted, disabled or replaced meanwhile: nothing of it was kept"
_REUSED = "the idempotency key of this submission stands for another body: nothing of it was kept"
_source = attrgetter("source")


class PlanReader(Protocol):
    """What a plan reads of what is already kept."""

    def record(self, topic: str, number: int) -> Record | None:
        """A kept record with its amendments; None when it is gone or damaged."""
        ...

    def series(self, series: bytes) -> SeriesState | None: ...

    def partial_report(self, key: bytes) -> int:
        """The version of what waits under a key (spool.log.expectations); 0 when nothing does."""
        ...


@dataclass(kw_only=True)
class Plan:
    """Everything that one commit writes."""

    at: float
    first: dict[str, int]  # by topic: the first number that this commit gives
    records: dict[str, list[Record]] = field(default_factory=dict)
    amendments: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    series: dict[bytes, SeriesState] = field(default_factory=dict)
    partial_reports: dict[bytes, PartialReport | None] = field(default_factory=dict)  # None: it waits no more
    conflicts: Conflicts = field(default_factory=Conflicts)
    unrecognised: Counter[tuple[str, ...]] = field(default_factory=Counter)
    event_types: dict[str, EventSum] = field(default_factory=dict)
    heard: set[bytes] = field(default_factory=set)  # who told calls
    stale: set[int] = field(default_factory=set)  # places in the group of those that nothing is kept of
    ended: set[int] = field(default_factory=set)  # those among them whose key has ended
    reused: set[int] = field(default_factory=set)  # those among them whose idempotency key stands for another body
    submissions: list[Terms] = field(default_factory=list)  # of the others, in their order
    observed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ids: dict[int, int] = field(default_factory=dict)  # new ids and their places
    hours: list[int] = field(default_factory=list)  # of the new ids, in their order

    def next_numbers(self) -> dict[str, int]:
        return {topic: self.first[topic] + len(records) for topic, records in self.records.items() if records}

    def sums(self) -> Counter[tuple[str, str]]:
        return books.totals(self.submissions)

    def answers(self, receipts: Sequence[Receipt]) -> Sequence[Answer]:
        """The receipts of `submissions` in the order of the group, with an error in the place of what was stale."""
        rest = iter(receipts)
        places = range(len(receipts) + len(self.stale))
        return [self._refusal(place) if place in self.stale else next(rest) for place in places]

    def _refusal(self, place: int) -> Stale:
        if place in self.reused:
            return KeyReused(_REUSED)
        return KeyEnded(_ENDED) if place in self.ended else Stale(_STALE)


def check(submission: Submission) -> None:
    """ValueError when the caller handed over what no log can keep."""
    if len(submission.records) != len(submission.identities):
        raise ValueError("a submission needs one identity per record")
    if submission.topic not in TOPICS:
        raise ValueError(f"there is no topic {submission.topic!r}")


class Planner:
    """The memory of the log: numbers given and ids known. Every engine plans with it."""

    def __init__(self, index: DuplicateIndex, *, hold_s: float) -> None:
        self.index = index
        self._amends = hold_s > 0
        self._next: dict[str, int] = {}

    @property
    def next_numbers(self) -> Mapping[str, int]:
        """By topic, the number that the next new record gets."""
        return dict(self._next)

    def begin(self, next_numbers: Mapping[str, int]) -> None:
        """Numbers as the disk has them."""
        self._next = dict(next_numbers)

    def known_places(self, group: Iterable[Submission]) -> set[int]:
        """The places of kept records that a plan of the group may read."""
        index = self.index
        return {
            place
            for submission in group
            for identity in submission.identities
            for name in (identity.id, *identity.lookups, *identity.names, *[other for _, other in identity.links])
            if (place := index.newest_place(index.id_of(name))) is not None
        }

    def plan(
        self, group: Sequence[Submission], reader: PlanReader, closed_below: Mapping[str, int], now: float
    ) -> Plan:
        """What the group becomes. `closed_below` is the horizon as it was frozen for this commit."""
        failed = stale(group, reader.partial_report)
        gone = ended(group, reader.partial_report) if failed else set()
        plan = Plan(at=now, first=dict(self._next), stale=failed, ended=gone)
        for place, submission in enumerate(group):
            if place in plan.stale:
                continue
            is_known = self._is_known(plan, place, submission)
            if place not in plan.stale:
                work = _Work(self.index, plan, reader, closed_below, submission, amends=self._amends)
                work.run(is_known=is_known)
        return plan

    def _is_known(self, plan: Plan, place: int, submission: Submission) -> bool:
        """Whether the whole request was kept before. One whose key stands for another body is refused."""
        request = submission.request
        if request is None:
            return False
        if self._knows(plan, request.body):
            return True
        if self._knows(plan, request.key):
            plan.reused.add(place)
            plan.stale.add(place)
        elif submission.is_repeat:
            plan.stale.add(place)
        return False

    def _knows(self, plan: Plan, name: bytes) -> bool:
        return self.index.id_of(name) in plan.ids or self.index.knows_request(name, plan.at)

    def apply(self, plan: Plan) -> None:
        """The plan is on disk."""
        self._next.update(plan.next_numbers())
        self.index.add(plan.ids, plan.hours, plan.at)


class _Work:
    """One submission's share of a plan."""

    def __init__(
        self,
        index: DuplicateIndex,
        plan: Plan,
        reader: PlanReader,
        closed_below: Mapping[str, int],
        submission: Submission,
        *,
        amends: bool,
    ) -> None:
        topic = submission.topic
        self._index = index
        self._plan = plan
        self._reader = reader
        self._submission = submission
        self._amends = amends
        self._open_from = closed_below.get(topic, 1)
        self._records = plan.records.setdefault(topic, [])
        self._first = plan.first.setdefault(topic, 1)
        self._now_ns = int(plan.at * NS)
        self._ignored = dict(submission.ignored)
        self._terms = Terms(
            topic=topic,
            received=submission.received,
            split=submission.split,
            pending=submission.pending,
            rejected=dict(submission.rejected),
            first=self._first + len(self._records),
            before=list(submission.before),
            left_out=submission.left_out,
        )

    def run(self, *, is_known: bool) -> None:
        """`is_known`: the whole request was kept before."""
        begin = len(self._records)
        if is_known:
            self._repeat()
        else:
            self._take(zip(self._submission.records, self._submission.identities, strict=True))
        if self._submission.points:
            self._take(self._deltas())
        if self._terms.topic != AI_TELEMETRY:
            self._remember_requests(begin)
        self._terms.accepted = len(self._records) - begin
        self._terms.ignored = self._ignored
        self._plan.submissions.append(self._terms)
        self._plan.partial_reports.update(dict.fromkeys(self._submission.forget))
        self._plan.partial_reports.update({report.key: report for report in self._submission.keep})
        self._plan.heard.update(self._submission.heard)
        self._plan.unrecognised.update(self._submission.unrecognised)
        if self._terms.topic == USAGE_EVENTS:
            for type, new in types_of(self._records[begin:], self._submission.amount_of).items():
                before = self._plan.event_types.get(type)
                self._plan.event_types[type] = before.plus(new) if before else new
        self._observe(self._records[begin:])

    def _take(self, items: Iterator[tuple[Record, Identity]]) -> None:
        """Keep what is new. The one loop that every record goes through, so names are local."""
        index, ids, hours, records = self._index, self._plan.ids, self._plan.hours, self._records
        now, now_ns, topic, first = self._plan.at, self._now_ns, self._terms.topic, self._first
        of_topic, step = duplicates.place(topic, 0), duplicates.place(topic, 1) - duplicates.place(topic, 0)
        for record, identity in items:
            known_as, lookups, certain, also, links, joins = identity
            if not certain:
                self._terms.unidentified += 1
                records.append(record)
                continue
            id = index.id_of(known_as)
            hour, near = hours_of(record, now_ns)
            place = ids.get(id)
            if place is None:
                place = index.find(identity, id, near, now)
            if place is None and (lookups or also):
                place = self._near(identity)
            if place is None and links:
                place = self._other_side(links, near)
            if place is None and joins:
                record, place = self._joined(record, joins)
            if place is None:
                place = of_topic + step * (first + len(records))  # `duplicates.place`, without a call
                ids[id] = place
                hours.append(hour)
                records.append(record)
                if (also or links or joins) and isinstance(record, Inference):
                    record.also = b"".join(identity.names)
            else:
                self._known(record, place)
            if (also or links or joins) and place != IN_A_RUN:
                self._remember_names(record, identity, place, hour)

    def _repeat(self) -> None:
        """Everything in it is here."""
        self._terms.duplicates += len(self._submission.records)
        for source, n in Counter(map(_source, self._submission.records)).items():
            self._plan.observed[self._terms.topic, books.DUPLICATES, source] += n

    def _remember_requests(self, begin: int) -> None:
        """The names of requests stand with the first record that is new; a start finds them there."""
        request, hour = self._submission.request, self._now_ns // HOUR_NS
        new = self._records[begin:]
        if request is not None and new and isinstance(new[0], KeyedRecord):
            new[0].request = request.key + request.body
        for number, record in enumerate(new, self._first + begin):
            for name in request_names_of(record):
                id = self._index.id_of(name)
                if id not in self._plan.ids and not self._index.knows(id):
                    self._plan.ids[id] = duplicates.place(self._terms.topic, number)
                    self._plan.hours.append(hour)

    def _remember_names(self, record: Record, identity: Identity, place: int, hour: int) -> None:
        """Further names of the call at a place. A name that is known is that of another report of it."""
        more = []
        for name in (identity.id, *identity.names):
            id = self._index.id_of(name)
            if id not in self._plan.ids and not self._index.knows(id):
                self._plan.ids[id] = place
                self._plan.hours.append(hour)
                more.append(name)
        topic, number = duplicates.place_of(place)
        if more and self._may_amend(topic, number):  # a start finds them with the record
            known = self._record(topic, number)
            if isinstance(known, Inference) and known is not record:
                names = (known.also or b"") + b"".join(more)
                self._amend(topic, number, known, {"also": names[: 16 * MOST_NAMES]})

    def _near(self, identity: Identity) -> int | None:
        """The place of the same call in this commit, by another of its names."""
        for lookup in (*identity.lookups, *identity.also):
            place = self._plan.ids.get(self._index.id_of(lookup))
            if place is not None:
                return place
        return None

    def _other_side(self, links: Iterable[tuple[bytes, bytes]], hours: Iterable[int]) -> int | None:
        """The place of a call that its other side told, where nobody on this side has told it."""
        for own, other in links:
            if self._place(own, hours) is None and (place := self._place(other, hours)) is not None:
                return place
        return None

    def _joined(self, record: Record, names: Iterable[bytes]) -> tuple[Record, int | None]:
        """The record and the place of the open one that it joins; with what a closed one tells of it, and no place."""
        for name in names:
            id = self._index.id_of(name)
            place = self._plan.ids.get(id, self._index.newest_place(id))
            if place is None:
                continue
            topic, number = duplicates.place_of(place)
            if self._may_amend(topic, number):
                return record, place
            known = self._record(topic, number)
            if isinstance(record, Inference) and isinstance(known, Inference):
                record = amended(record, missing(record, known))
        return record, None

    def _place(self, name: bytes, hours: Iterable[int]) -> int | None:
        id = self._index.id_of(name)
        place = self._plan.ids.get(id)
        return self._index.find(Identity(name), id, hours, self._plan.at) if place is None else place

    def _known(self, record: Record, place: int) -> None:
        """A duplicate: see what it adds to the first report, and whether the two agree."""
        self._terms.duplicates += 1
        self._plan.observed[self._terms.topic, books.DUPLICATES, record.source] += 1
        if place == IN_A_RUN or not isinstance(record, Inference):
            return
        topic, number = duplicates.place_of(place)
        known = self._record(topic, number)
        if known == record or not isinstance(known, Inference):  # most are the same request, sent again
            return
        if disagree(known, record):
            self._terms.conflict += 1
            self._plan.conflicts.add(topic, known, record)
            self._plan.observed[topic, books.CONFLICT, f"{known.source}/{record.source}"] += 1
        fields = missing(known, record)
        if not fields:
            return
        self._estimate_anew(known, fields)
        if self._may_amend(topic, number):
            self._amend(topic, number, known, fields)
            self._terms.amended += 1
            self._plan.observed[topic, books.AMENDED, record.source] += 1
        else:
            self._terms.amended_late += 1
            self._plan.observed[topic, books.AMENDED_LATE, record.source] += 1

    def _estimate_anew(self, known: Inference, fields: dict[str, Any]) -> None:
        """Two reports may each know a part of what a call is priced by. The estimate of another Tollhouse stays."""
        price = self._submission.price
        if price is None or PRICED_BY.isdisjoint(fields):
            return
        as_it_was, as_it_is = amended(known, {}), amended(known, fields)
        price(as_it_was)
        if (as_it_was.estimated_cost, as_it_was.price_book) == (known.estimated_cost, known.price_book):
            price(as_it_is)
            fields |= {name: getattr(as_it_is, name) for name in ("estimated_cost", "price_book", "cost_source")}

    def _may_amend(self, topic: str, number: int) -> bool:
        return self._amends and topic == self._terms.topic and number >= self._open_from

    def _record(self, topic: str, number: int) -> Record | None:
        begin = self._plan.first.get(topic, 1)
        if number >= begin:
            return self._plan.records[topic][number - begin]
        known = self._reader.record(topic, number)
        fields = self._plan.amendments.get((topic, number))
        return amended(known, fields) if fields and isinstance(known, Inference) else known

    def _amend(self, topic: str, number: int, known: Inference, fields: dict[str, Any]) -> None:
        begin = self._plan.first.get(topic, 1)
        if number >= begin:  # not written yet: a copy, because the caller may send its own again
            self._plan.records[topic][number - begin] = amended(known, fields)
        else:
            self._plan.amendments.setdefault((topic, number), {}).update(fields)

    def _deltas(self) -> Iterator[tuple[Record, Identity]]:
        """Counter points to records; those that add nothing are ignored with the reason."""
        for point in self._submission.points:
            state, delta = advance(self._state(point), point)
            if state is not None:
                self._plan.series[point.series] = state
            if isinstance(delta, str):
                self._ignored[delta] = self._ignored.get(delta, 0) + 1
                self._plan.observed[self._terms.topic, "ignored", delta] += 1
            else:
                yield as_record(point, delta)

    def _state(self, point: CounterPoint) -> SeriesState | None:
        return self._plan.series.get(point.series) or self._reader.series(point.series)

    def _observe(self, kept: Sequence[Record]) -> None:
        """Terms by source, for metrics."""
        topic, observed = self._terms.topic, self._plan.observed
        observed[topic, books.RECEIVED, ""] += self._submission.received
        if self._submission.left_out:
            observed[topic, books.LEFT_OUT, ""] += self._submission.left_out
        sources = list(map(_source, kept))
        for source in set(sources):
            observed[topic, books.ACCEPTED, source] += sources.count(source)
        for reason, n in self._submission.ignored.items():
            observed[topic, "ignored", reason] += n
        for reason, n in self._submission.rejected.items():
            observed[topic, "rejected", reason] += n
        if self._terms.unidentified:
            pairs = zip(self._submission.records, self._submission.identities, strict=True)
            sources = [record.source for record, identity in pairs if not identity.certain]
            for source, n in Counter(sources).items():
                observed[topic, books.UNIDENTIFIED, source] += n
