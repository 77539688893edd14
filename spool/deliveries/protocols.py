"""
Protocol of deliveries: numbered requests of each route, with the route's progress through the log.

Every storage engine implements it and passes one contract suite (tests/spool/contract). Each method makes all
its changes in one transaction. When it returns, the changes survive a power cut, except in SQLite in memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Protocol

from spool.deliveries.values import (
    DeadLetter,
    Delivery,
    Landing,
    PartialRefusal,
    RouteSpec,
    RouteState,
    Settlement,
    UnknownDelivery,
    UnsettledDelivery,
)
from spool.record import Record
from spool.sql.small import SmallTable
from spool.statements import Statements


class Deliveries(Protocol):
    """
    Deliveries of all routes: numbered requests with their own progress.

    `due` and `probe` increase the fence of the delivery that they return. Calls of `settle`, `split`,
    `set_aside`, `retry` and `unknown` with an older fence change nothing, and are counted in `fenced`.
    """

    version: int  # increases with every change of a route or a delivery
    dead_version: int  # increases with every change of a rejected record
    fenced: int  # number of results that were ignored, because another worker had taken the delivery

    async def set_routes(self, routes: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        """
        Set the configured routes. New routes begin at the position that `start` names. Routes that are no
        longer configured become orphaned.

        `at_start`: this process has just started, so no delivery is being sent, and all waiting deliveries
        are due at once. A delivery that was being sent when the last process ended becomes ambiguous, unless
        it has a mark. If `at_start` is False, deliveries do not change.
        """
        ...

    async def take_due(
        self, route: str, *, now: float, max_records: int, below: int | None = None
    ) -> Delivery | None:
        """
        Return the next delivery to send, marked as being sent. Return None if none is due.

        The oldest waiting delivery of the route comes first. If none is due, a new delivery is made from
        closed records. With `below`, a new delivery only has numbers below it.
        """
        ...

    async def take_probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        """
        Return a delivery of a single record to try on a route whose destination rejects everything, or None.

        While fewer than `max_suspects` records have been rejected alone, it is a record that was never
        rejected alone. That record is split off from its delivery if needed. Otherwise it is the oldest
        rejected record that is due.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """Return the time at which the earliest waiting delivery may be sent again."""
        ...

    async def mark(self, delivery: Delivery, mark: str) -> None:
        """
        Store data with which a file destination can undo a half-written delivery. Call it before writing.

        Raises TakenOver if another worker has taken or settled the delivery. Then the delivery must not be sent.
        """
        ...

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        """
        Count the outcome of each record of a delivery, and delete the delivery. Raises ValueError if the
        counts do not add up.
        """
        ...

    async def split(
        self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False
    ) -> None:
        """
        Replace a delivery by its two halves, each with a new key. `at` is the first number of the second
        half; the default is the middle.

        `refused`: the destination rejected the delivery, and each of its records for the first time.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """Set the single record of a delivery aside as a rejected record, and settle the delivery."""
        ...

    async def retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        not_before: float,
        answer: str | None = None,
        ambiguous: bool = False,
        definite: bool = False,
        refused_at: float | None = None,
        server_error: bool = False,
    ) -> None:
        """
        Make a delivery due again at `not_before`. `transitions.retry` decides if it keeps its idempotency key.

        `answer`: the response, None if there was none. `ambiguous`: the destination may have accepted the
        delivery despite the failure. `definite`: the response proves that it was not accepted by this or
        an earlier attempt. `refused_at`: when its single record was rejected. `server_error`: the
        response was a 5xx.
        """
        ...

    async def give_back(self, delivery: Delivery, *, reason: str, not_before: float) -> None:
        """
        Make a delivery with unknown outcome due again at `not_before`. It becomes ambiguous.

        Does nothing if the outcome has been reported since.
        """
        ...

    async def reopen_restored(self, *, hold_back: str | None) -> None:
        """
        Reopen the deliveries of a restored backup, because the original installation may have sent them
        after the backup.

        Open deliveries become ambiguous, except deliveries with a mark, and keep their keys. With
        `hold_back`, which is a reason, every waiting record gets an unknown outcome instead, so that an
        operator decides what is sent. Only for storages whose routes do not run.
        """
        ...

    async def mark_unknown(self, delivery: Delivery, *, reason: str) -> None:
        """
        Mark a delivery whose outcome is unknown and that must not be sent twice. An operator settles it.
        """
        ...

    async def unknown_deliveries(self) -> Sequence[UnknownDelivery]:
        """
        Return the deliveries that an operator must settle, oldest first. Their entries are retained until then.
        """
        ...

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        """
        Settle a delivery as received, or make it due again. Raises NotThere if no delivery with this id waits
        for an operator.
        """
        ...

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        """
        Return every delivery that is not settled, by id, including replays and those with unknown outcome.
        """
        ...

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        """
        Store the state of a route for operators and the next start: one of ROUTE_STATES except ORPHANED.
        """
        ...

    async def routes(self) -> Sequence[RouteState]:
        """Return every route, by name."""
        ...

    async def delete_route(self, route: str) -> int:
        """
        Delete an orphaned route. Its waiting records are counted as discarded. Raises NotAllowed if the
        route is configured.
        """
        ...

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        """Return the rejected records of one or all routes, oldest first, including those of deleted routes."""
        ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """
        Return the items that destinations rejected while they accepted other items, newest first. Only the
        newest KEPT_REFUSALS rejections of a route are stored.
        """
        ...

    async def dead_retry(self, ids: Sequence[int]) -> int:
        """
        Make deliveries of rejected records, to send them again. Return the number of records that existed.
        Raises NotAllowed if the route of a record is deleted.
        """
        ...

    async def dead_edit(self, id: int, record: Record) -> None:
        """
        Make a delivery of a rejected record, with `record` as its new content. The log is not changed.

        Raises NotThere if there is no such rejected record, and NotAllowed if its route is deleted.
        """
        ...

    async def dead_discard(self, ids: Sequence[int]) -> int:
        """Delete rejected records and count them as discarded. Return the number of records that existed."""
        ...

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """
        Make new deliveries, with new keys, of settled records that were committed in [since, until). Return
        the number of records.
        """
        ...


class Landings(Protocol):
    """Files in data lakes. `Deliveries.settle` adds a row in its transaction."""

    async def find_or_begin_editions(self, route: str, first: int) -> Sequence[str]:
        """
        Return the editions of a route, beginning with the edition of the delivery that starts with `first`,
        then earlier ones.

        The first call for a route assigns the newest edition of the log to it.
        """
        ...

    async def begin_edition(self) -> str:
        """
        Begin a new edition, and return it. It covers all numbers that are in no delivery yet.

        For a copy of the data whose routes do not run, because the original installation may have
        sent these numbers.
        """
        ...

    async def landing_before(self, route: str, first: int) -> Landing | None:
        """Return the landed delivery that directly precedes a number on a route."""
        ...

    async def landings_after(self, route: str, *, after: int, most: int) -> Sequence[Landing]:
        """Return landed deliveries of a route that begin after a number, in order."""
        ...

    async def routes_with_counts(self) -> Sequence[tuple[str, int]]:
        """Return the routes with landed deliveries, by name, with their counts."""
        ...


LANDINGS = SmallTable[Landings]("lakes", kept_by=("lake", "SqlLandings"))


# -- records of AI telemetry that are stored only in a data lake ---------------------------------------------


class PastRecord(NamedTuple):
    number: int
    committed_at: float
    record: Record


class PastDates(NamedTuple):
    """
    First and last UTC day of a period, both included, such as 2026-11-20. A record belongs to the day in
    which the totals count it.
    """

    first: str
    last: str


class PastRecords(Protocol):
    def has_unstored(self, dimensions: Collection[str]) -> bool:
        """
        Return True if the lake does not store the values of one of these dimensions, so that all appear unknown.
        """
        ...

    def read(
        self, dates: PastDates, *, below: int, most: int | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Yield calls and counters of some days with numbers below `below`, in batches: one per
        delivery, newest first.

        Within a delivery, records are in number order. If there are more than `most` records, the oldest are
        left out. Raises SpoolUnavailable if the lake does not respond in time.
        """
        ...

    async def find(self, id: bytes, dates: PastDates, *, below: int) -> PastRecord | None:
        """Return the call or counter with an id within some days, or None. Raises what `read` raises."""
        ...


# -- last verification of a lake, and last landing of a topic; stored with the states of pulls, by route -----


_KEPT_AS: Final = "lake of "  # prefix with a space, so a stored name never equals the name of a pull
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """
    Result of a lake's verification. `differences` counts differences by kind. It is empty if there are none.

    `words` describes the first difference.
    """

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


async def kept_verdict(table: Statements, route: str) -> LakeVerdict | None:
    """Return the last verdict, or None if the lake of the route was never verified."""
    stored = await table.pull_state(_KEPT_AS + route)
    return None if stored is None else LakeVerdict(route=route, **stored)


async def keep_verdict(table: Statements, verdict: LakeVerdict) -> None:
    """Store a verdict in place of the one before."""
    state = asdict(verdict)
    del state["route"]
    await table.keep_pull_state(_KEPT_AS + verdict.route, state)


async def stored_landing_time(table: Statements, route: str) -> float | None:
    """Return when a delivery of a topic or a table last landed, to the minute, or None."""
    stored = await table.pull_state(_LANDED_AS + route)
    return None if stored is None else float(stored["at"])


async def keep_landed(table: Statements, route: str, at: float) -> None:
    await table.keep_pull_state(_LANDED_AS + route, {"at": at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """Names of the files that were uploaded again. For each file whose upload failed, also the reason."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    Deliveries whose rows differ from the records in the log, by the names of their manifests.

    `compared` counts the deliveries whose records are in the log. `after` is where the next call continues,
    None at the end. `editions` has all editions of the route.
    """

    differs: Mapping[str, str]
    editions: Sequence[str]
    compared: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """
    State of a route's lake. A field is None if nothing has landed yet, or if the lake was never verified.
    """

    route: str
    landed_at: float | None
    verdict: LakeVerdict | None
