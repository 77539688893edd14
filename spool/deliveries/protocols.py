"""
Storage protocols of deliveries: numbered requests of each route, with its progress through the log.

Every engine passes the contract tests (tests/spool/contract). A method makes its changes in one transaction.
When it returns, the changes survive a power cut, except in SQLite in memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Protocol

from spool.deliveries.values import (
    DeadLetter,
    Delivery,
    LakeDelivery,
    PartialRefusal,
    RouteSpec,
    RouteState,
    Settlement,
    UnknownDelivery,
    UnsettledDelivery,
)
from spool.record import Record
from spool.sql.small import SmallTable


class Deliveries(Protocol):
    """
    The deliveries of all routes.

    `take_due_delivery` and `take_test_delivery` increase the fence (a counter) of the delivery that they
    return. A result reported with an older fence changes nothing, and is counted in `fenced`.
    """

    version: int  # version of the tables of routes and deliveries
    dead_version: int  # version of the table of rejected records
    fenced: int  # results ignored because another worker had taken the delivery

    async def set_routes(self, routes: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        """
        Store the configured routes. A new route begins where its `start` says. A stored route that is no
        longer configured becomes orphaned.

        `at_start`: this process has just started, so all waiting deliveries become due. A delivery that was
        being sent becomes ambiguous (perhaps accepted), unless it has a mark that lets the next attempt undo
        it.
        """
        ...

    async def take_due_delivery(
        self, route: str, *, now: float, max_records: int, below_number: int | None = None
    ) -> Delivery | None:
        """
        Return the next delivery of a route, marked as being sent, or None.

        The oldest due delivery is returned. If none waits, a new delivery is made of at most `max_records`
        closed records with numbers below `below_number`.
        """
        ...

    async def take_test_delivery(
        self, route: str, *, now: float, max_rejected_records: int
    ) -> Delivery | None:
        """
        Return a delivery of one record, to test whether a destination that rejects everything accepts it, or
        None.

        While fewer than `max_rejected_records` records were rejected in a delivery of their own, the test is another
        record, split off if needed. Otherwise it is the oldest of the rejected records that are due.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """Return when the earliest waiting delivery of the route is due, or None."""
        ...

    async def store_delivery_mark(self, delivery: Delivery, mark: str) -> None:
        """
        Store, before writing, what a file destination needs to undo a half-written delivery.

        Raises TakenOver if another worker has taken or settled the delivery. Then this worker must not send
        it.
        """
        ...

    async def store_settlement(self, delivery: Delivery, settlement: Settlement) -> None:
        """
        Count the outcome of each record, and delete the delivery. Raises ValueError if the counts do not add
        up.
        """
        ...

    async def split_delivery(
        self,
        delivery: Delivery,
        *,
        reason: str,
        second_first_number: int | None = None,
        refused: bool = False,
    ) -> None:
        """
        Replace a delivery by two with new idempotency keys, split in the middle or before the number
        `second_first_number`.

        `refused`: the destination rejected all its records for the first time.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """
        Store the single record of a delivery as a rejected record (dead letter), and settle the delivery.
        """
        ...

    async def schedule_retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        not_before: float,
        answer: str | None = None,
        may_be_accepted: bool = False,
        proves_no_acceptance: bool = False,
        refused_at: float | None = None,
        server_error: bool = False,
    ) -> None:
        """
        Make a delivery due again after a failure. `retry_later` decides whether it keeps its idempotency key.

        `answer`: the response. `may_be_accepted`: the delivery may have been accepted despite the failure.
        `proves_no_acceptance`: the response proves that no attempt was accepted. `refused_at`: when its
        single record was rejected. `server_error`: the response was a 5xx.
        """
        ...

    async def requeue_as_possibly_received(
        self, delivery: Delivery, *, reason: str, not_before: float
    ) -> None:
        """
        Make a delivery due again whose outcome is unknown, and mark it as ambiguous.

        Does nothing if another call has already stored the outcome.
        """
        ...

    async def reopen_after_restore(self, *, unknown_outcome_reason: str | None) -> None:
        """
        Reopen the deliveries of a restored backup. The destination may have received them after the backup
        was made.

        They keep their idempotency keys and become ambiguous, unless their destination stored a mark to
        recognize a repeat. With `unknown_outcome_reason`, every waiting record instead gets an unknown outcome
        for an operator to settle. Call this only while no route runs.
        """
        ...

    async def mark_outcome_unknown(self, delivery: Delivery, *, reason: str) -> None:
        """
        Mark a delivery that may have been accepted and must not be sent twice, so that an operator settles
        it.
        """
        ...

    async def deliveries_with_unknown_outcome(self) -> Sequence[UnknownDelivery]:
        """
        Return the deliveries that an operator must settle, the oldest first. Their records are retained.
        """
        ...

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        """
        Settle a delivery with unknown outcome as received (`sent`), or make it due again. Raises NotThere if
        it does not wait for an operator.
        """
        ...

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        """Return all stored deliveries by id, including replays and deliveries with unknown outcome."""
        ...

    async def set_route_state(self, route: str, state: str, reason: str | None) -> None:
        """
        Set a route's state, with a reason, to one of ROUTE_STATES except ORPHANED. The state survives a
        restart.
        """
        ...

    async def route_states(self) -> Sequence[RouteState]: ...

    async def delete_route_and_count_discarded(self, route: str) -> int:
        """
        Delete an orphaned route. Return the number of waiting records discarded. Raises NotAllowed if it is
        configured.
        """
        ...

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        """Return the rejected records (dead letters), oldest first, including those of deleted routes."""
        ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """
        Return the partial rejections (records rejected while others of their delivery were accepted), newest
        first. A route keeps only the last KEPT_REFUSALS.
        """
        ...

    async def retry_dead_letters(self, ids: Sequence[int]) -> int:
        """
        Send rejected records again in new deliveries. Return how many of the ids exist. Raises NotAllowed if
        the route of a record is deleted.
        """
        ...

    async def edit_and_retry_dead_letter(self, id: int, record: Record) -> None:
        """
        Deliver `record` in place of a rejected record. The log keeps the original.

        Raises NotThere, or NotAllowed if the route is deleted.
        """
        ...

    async def discard_dead_letters(self, ids: Sequence[int]) -> int:
        """Delete rejected records without sending them. Return how many of the ids exist."""
        ...

    async def replay_records(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """
        Deliver the records committed in [since, until) that the route has settled once more, under new
        idempotency keys. Return their number. With `dry_run`, only count them.
        """
        ...


class LakeDeliveries(Protocol):
    """The files written to data lakes (landings). `Deliveries.store_settlement` adds a row for each."""

    async def find_or_begin_log_editions(self, route: str, first_number: int) -> Sequence[str]:
        """
        Return the editions of a route, from the edition of the delivery at `first_number` back. An edition is a span
        of numbers that one log assigned.

        The first call for a route assigns the newest edition of the log to it.
        """
        ...

    async def begin_log_edition(self) -> str:
        """
        Begin and return a new edition (one life of the log) for all numbers that are in no delivery.

        A copied storage needs this before its routes run, because the original may have sent the same
        numbers.
        """
        ...

    async def lake_delivery_before(self, route: str, first_number: int) -> LakeDelivery | None:
        """Return the delivery written to the lake directly before the number `first_number`."""
        ...

    async def lake_deliveries_after(
        self, route: str, *, after_number: int, max_deliveries: int
    ) -> Sequence[LakeDelivery]:
        """Return at most `max_deliveries` deliveries written to the lake that begin after a number, in order."""
        ...

    async def landed_counts_by_route(self) -> Sequence[tuple[str, int]]: ...


LANDINGS = SmallTable[LakeDeliveries]("lakes", kept_by=("lake", "SqlLakeDeliveries"))


# -- records of AI telemetry only in a data lake
# ---------------------------------------------------------------


class PastRecord(NamedTuple):
    number: int
    committed_at: float
    record: Record


class PastDates(NamedTuple):
    """
    A span of UTC days such as 2026-11-20, both included. A record's day is the one under which the totals
    count it.
    """

    first: str
    last: str


class PastRecords(Protocol):
    def has_dimension_missing_in_lake(self, dimensions: Collection[str]) -> bool:
        """
        Return whether the lake does not store the values of one of these dimensions, so that all of them
        appear as unknown.
        """
        ...

    def read_records(
        self,
        dates: PastDates,
        *,
        below_number: int,
        max_records: int | None = None,
        oldest_first: bool = False,
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Yield calls and counters with record numbers below `below_number`: one batch per delivery, the newest
        delivery first.

        Within a batch, records are in number order. Beyond `max_records` records, the oldest are left out. Raises
        SpoolUnavailable if the lake does not respond in time.
        """
        ...

    async def find_record(self, id: bytes, dates: PastDates, *, below_number: int) -> PastRecord | None:
        """Find a record by its id. Raises SpoolUnavailable if the lake does not respond in time."""
        ...


# -- last verification and landing of a lake, among the states of pulls
# ------------------------------------------


_KEPT_AS: Final = "lake of "  # the space keeps the name apart from the names of pulls
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """
    The result of the last verification of a lake. `differences`: counts by kind. `words`: describes the first
    difference.
    """

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


class StateStore(Protocol):
    """Stores the state of regular work by name."""

    async def read_pull_state(self, name: str) -> Mapping[str, Any] | None: ...

    async def store_pull_state(self, name: str, state: Mapping[str, Any]) -> None: ...


async def read_lake_verdict(table: StateStore, route: str) -> LakeVerdict | None:
    """Return the result of the last verification, or None if the lake was never verified."""
    stored = await table.read_pull_state(_KEPT_AS + route)
    return None if stored is None else LakeVerdict(route=route, **stored)


async def store_lake_verdict(table: StateStore, verdict: LakeVerdict) -> None:
    state = asdict(verdict)
    del state["route"]
    await table.store_pull_state(_KEPT_AS + verdict.route, state)


async def read_last_lake_write_at(table: StateStore, route: str) -> float | None:
    """Return when a file was last written to the lake, rounded to minutes. Return None if there was none."""
    stored = await table.read_pull_state(_LANDED_AS + route)
    return None if stored is None else float(stored["at"])


async def store_last_lake_write_at(table: StateStore, route: str, landed_at: float) -> None:
    await table.store_pull_state(_LANDED_AS + route, {"at": landed_at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """The result of repairing a lake: the files uploaded again, and why other uploads failed."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    The result of comparing a lake with the log: the deliveries that differ, by manifest.

    `compared`: the number of deliveries compared, namely those with records in the log. `after`: where the
    next call continues, None at the end. `editions`: all lives of the log in which the route delivered.
    """

    differs: Mapping[str, str]
    editions: Sequence[str]
    compared: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """The state of a data lake. A field is None if nothing was written, or if the lake was never verified."""

    route: str
    landed_at: float | None
    verdict: LakeVerdict | None
