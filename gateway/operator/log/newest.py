"""Records as lists of the operator API show them, closed and open: no content, because none is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from gateway.http.lists import Filter, List, Sort
from gateway.http.requests import Result
from gateway.operator.log import dates
from gateway.operator.money.visible import usable_view_of, visible_to
from gateway.operator.requests import OperatorRequest
from gateway.schemas import COUNT, closed
from spool.ledger.counting import bounded
from spool.ledger.own_records import OwnRecord
from spool.ledger.queries import TAG
from spool.ledger.sums import outcome_of
from spool.log.protocols import Log
from spool.log.values import Entry
from spool.record import AI_TELEMETRY, TOPICS, Inference, Record, UsageMetric, as_json, moment

LOOKED_THROUGH = 10_000  # the newest records: further back, costs are known by sums, and a record by its id
STATES = OPEN, CLOSED = "open", "closed"
_MOMENT = {"type": ["string", "null"]}
LOOKED_THROUGH_SCHEMA = {
    "looked_through": closed({"records": COUNT, "most": COUNT, "since": _MOMENT, "until": _MOMENT})
}
RATE_S = 60.0
MOST_SOURCES = 50


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record with its place in the log."""

    topic: str
    number: int
    committed_at: float
    is_open: bool
    record: Record
    is_number_shown: bool = True

    @property
    def state(self) -> str:
        return OPEN if self.is_open else CLOSED

    @property
    def place(self) -> str:
        """Rises in the order of commits. Cursors have it: what is not shown is not in it."""
        last = f"{self.number:020}" if self.is_number_shown else self.record.id.hex()
        return f"{self.committed_at:017.6f} {self.topic} {last}"

    def value(self, name: str) -> str:
        """
        What a filter sees: the value of a field or tag under the name that costs have for it; "" is unknown.
        """
        record = self.record
        if name.startswith(TAG):
            tags: dict[str, str] = getattr(record, "tags", {})
            return tags.get(name.removeprefix(TAG), "")
        if name == "model" and isinstance(record, Inference):
            return record.response_model or record.request_model or ""
        return getattr(record, name, None) or ""

    def counted(self, name: str) -> str:
        """The value under which the ledger counts it."""
        if isinstance(self.record, UsageMetric) and name in ("status", "cost_source"):
            return outcome_of(self.record)[name == "cost_source"]
        return str(bounded(self.value(name)))


def shown(kept: KeptRecord) -> dict[str, object]:
    row = as_json(kept.record)
    row.pop("body", None)  # of a billing drop: as large as a request
    return {**shown_place(kept), **row}


def shown_place(kept: KeptRecord) -> dict[str, object]:
    return {
        "topic": kept.topic,
        "number": kept.number if kept.is_number_shown else None,
        "committed_at": moment(kept.committed_at),
        "state": kept.state,
    }


def _filter(name: str) -> Filter[KeptRecord]:
    return Filter(values=lambda kept: (kept.value(name),))


FIELDS = (
    "model", "request_model", "provider", "team", "user", "device", "source", "api_key", "status", "session", "kind",
    "cost_source", "region",
)  # fmt: skip

RECORDS: List[KeptRecord] = List(
    root="records",
    show=shown,
    identity=Sort(value=lambda kept: kept.place),
    sorts={
        "number": Sort(value=lambda kept: kept.place),
        "start_time": Sort(value=lambda kept: kept.record.start_time),
    },
    default_sort=("number", "desc"),
    filters={
        **{name: _filter(name) for name in FIELDS},
        "topic": Filter(values=lambda kept: (kept.topic,), valid_values=TOPICS),
        "state": Filter(values=lambda kept: (kept.state,), valid_values=STATES),
        dates.FIELD: Filter(
            values=lambda kept: dates.day_and_month(kept.record.start_time, kept.committed_at)
        ),
        "view": Filter(),  # see `records_in_views`
    },
    max_limit=200,  # an answer stays small enough for a page
    beside=LOOKED_THROUGH_SCHEMA,
)


async def records_in_views(request: OperatorRequest[None]) -> List[KeptRecord]:
    """
    RECORDS, whose views are those of now. Refusal 400 if one that is asked for is unknown or broken, or a
    date is none.
    """
    for word in request.http.query.getall(dates.FIELD, ()):
        dates.start_of(word)
    visible = await visible_to(request)
    view = cache(lambda word: usable_view_of(request, visible, word))
    for word in request.http.query.getall("view", ()):
        view(word)
    derived = {each.name: each for each in request.services.money.ledger.derived()}

    def value(kept: KeptRecord, name: str) -> str:
        found = derived.get(name)
        return kept.counted(name) if found is None else found.value(tuple(map(kept.counted, found.sources)))

    holds: Filter[KeptRecord] = Filter(holds=lambda kept, word: view(word).holds(partial(value, kept)))
    return replace(RECORDS, filters={**RECORDS.filters, "view": holds})


def looked_through(found: Sequence[KeptRecord]) -> dict[str, object]:
    """What a list of the newest says beside its page."""
    since = min((kept.committed_at for kept in found), default=None)
    return how_far(records=len(found), most=LOOKED_THROUGH, since=since)


def how_far(*, records: int, most: int, since: float | None, until: float | None = None) -> dict[str, object]:
    """
    How many records were looked through, at most how many, and when they were committed; `until` None: up to
    now.
    """
    first, last = (None if each is None else moment(each) for each in (since, until))
    return {"looked_through": {"records": records, "most": most, "since": first, "until": last}}


async def show_rates(request: OperatorRequest[None]) -> Result:
    """
    How many records of each source were committed in the last minute, or in as much of it as was looked
    through.
    """
    found, until = await newest(request), _until(request)
    seconds = RATE_S
    if len(found) == LOOKED_THROUGH:
        seconds = min(RATE_S, max(1.0, until - found[-1].committed_at))
    counts = Counter(
        (kept.topic, kept.record.source) for kept in found if until - seconds < kept.committed_at <= until
    )
    sources = [
        {"topic": topic, "source": source, "records": count, "per_s": round(count / seconds, 3)}
        for (topic, source), count in counts.most_common(MOST_SOURCES)
    ]
    return {"rates": {"seconds": seconds, "records": counts.total(), "sources": sources}}


async def newest(request: OperatorRequest[Any], topics: Sequence[str] = TOPICS) -> Sequence[KeptRecord]:
    """
    The newest records of some topics that the person may see, the newest commit first.

    At most LOOKED_THROUGH: of everybody's, or of the own ones of `own_records.LOOK_BACK_S`.
    """
    if not request.is_limited:
        return await _newest(request, topics)
    if not request.rights.slice.parts:
        return []
    found = await request.services.spool.own_records.newest(
        request.rights.slice,
        own_to(request),
        dimensions=request.services.money.ledger.derived(),
        most=LOOKED_THROUGH,
    )
    return list(map(own_record, found))


def own_record(row: OwnRecord) -> KeptRecord:
    """As it is shown to who may see some calls alone."""
    return KeptRecord(AI_TELEMETRY, row.number, row.committed_at, False, row.record(), is_number_shown=False)


def own_to(request: OperatorRequest[Any]) -> Callable[[Record], bool]:
    """Whether a closed call is one that the person may see."""
    ledger = request.ledger
    return lambda record: ledger.holds(KeptRecord(AI_TELEMETRY, 0, 0.0, False, record).counted)


def seen(request: OperatorRequest[Any], found: Iterable[KeptRecord]) -> Iterator[KeptRecord]:
    """
    Those that the person may see, as they are shown to this person.

    Who may see some calls alone sees no record of anything else; no open one, because a later report of the
    call may say whose it is; and no numbers: those between two of them would be the count of everybody
    else's.
    """
    if not request.is_limited:
        yield from found
        return
    is_own = own_to(request)
    for kept in found:
        if kept.topic == AI_TELEMETRY and not kept.is_open and is_own(kept.record):
            yield replace(kept, is_number_shown=False)


def _until(request: OperatorRequest[Any]) -> float:
    """Up to when records are counted: now, or what is closed by now, because no open one is shown to some."""
    now = request.services.installation.clock.now()
    return now - request.services.spool.hold_s() if request.is_limited else now


async def _newest(request: OperatorRequest[Any], topics: Sequence[str]) -> Sequence[KeptRecord]:
    log = request.services.spool.log
    entries: list[Entry] = []
    for topic in topics:
        below = log.next_number(topic)
        entries += await log.read(topic, max(1, below - LOOKED_THROUGH), below - 1, with_open=True)
    entries.sort(key=lambda entry: entry.committed_at, reverse=True)
    found: list[KeptRecord] = []
    for entry in entries:
        found += reversed(list(kept_records(log, [entry])))
        if len(found) >= LOOKED_THROUGH:
            break
    return found[:LOOKED_THROUGH]


def kept_records(log: Log, entries: Iterable[Entry]) -> Iterator[KeptRecord]:
    """The records of entries, in order, without damaged ones."""
    for entry in entries:
        below = log.closed_below(entry.topic)
        for number, record in enumerate(entry.records, entry.first):
            if record is not None:
                yield KeptRecord(entry.topic, number, entry.committed_at, number >= below, record)
