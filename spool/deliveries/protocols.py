"""
Deliveries: numbered requests of each route, with its progress through the log.

Every engine passes one contract suite (tests/spool/contract). A method makes its changes in one transaction.
Once it returns, they survive a power cut, except in SQLite in memory.
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
    The deliveries of all routes.

    `take_due_delivery` and `take_probe_delivery` increase the fence (a counter) of the delivery that they
    return. A result with an older fence changes nothing, and is counted in `fenced`.
    """

    version: int  # version of the tables of routes and deliveries
    dead_version: int  # version of the table of rejected records
    fenced: int  # results ignored because another worker had taken the delivery

    async def set_routes(self, routes: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        """
        Set the configured routes. A new route begins where its `start` says. A stored route that is not
        configured becomes orphaned.

        `at_start`: this process has just started, so all waiting deliveries are due. A delivery that was
        being sent becomes ambiguous (perhaps accepted), unless it has a mark.
        """
        ...

    async def take_due_delivery(
        self, route: str, *, now: float, max_records: int, below: int | None = None
    ) -> Delivery | None:
        """
        Return the next delivery, marked as being sent.

        The oldest waiting one comes first. If none is due, a new delivery is made of closed records with
        numbers below `below`.
        """
        ...

    async def take_probe_delivery(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        """
        Return a single record as a test while the destination rejects everything, or None.

        While fewer than `max_suspects` records were rejected alone, the test is a record that was never
        rejected alone, split off if needed. Otherwise it is the oldest rejected record that is due.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """Return when the earliest waiting delivery may be sent again."""
        ...

    async def store_mark(self, delivery: Delivery, mark: str) -> None:
        """
        Store what a file destination needs to undo a half-written delivery, before writing.

        Raises TakenOver if another worker has taken or settled the delivery. Then this worker must not send
        it.
        """
        ...

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        """
        Count each record's outcome, and delete the delivery. Raises ValueError if the counts do not add up.
        """
        ...

    async def split(
        self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False
    ) -> None:
        """
        Split a delivery into two with new keys, in the middle or at `at`.

        `refused`: each of its records was rejected for the first time.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """Set the single record of a delivery aside as rejected, and settle the delivery."""
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
        Make a delivery due again. `retry_later` decides whether it keeps its key.

        `answer`: the response. `ambiguous`: the delivery may have been accepted despite the failure.
        `definite`: the response proves that no attempt was accepted. `refused_at`: when its single record was
        rejected. `server_error`: a 5xx.
        """
        ...

    async def requeue_as_ambiguous(self, delivery: Delivery, *, reason: str, not_before: float) -> None:
        """
        Make a delivery with unknown outcome due again, as ambiguous.

        Does nothing if the outcome was reported.
        """
        ...

    async def reopen_after_restore(self, *, hold_back: str | None) -> None:
        """
        Reopen the deliveries of a restored backup, which may have been sent after it.

        They become ambiguous, unless they have a mark, and keep their keys. With `hold_back`, a reason, every
        waiting record gets an unknown outcome for an operator. Call this only while no route runs.
        """
        ...

    async def mark_unknown(self, delivery: Delivery, *, reason: str) -> None:
        """Mark a delivery that may have been accepted and must not be sent twice. An operator settles it."""
        ...

    async def unknown_deliveries(self) -> Sequence[UnknownDelivery]:
        """Return the deliveries that wait for an operator, oldest first. Their records are retained."""
        ...

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        """
        Settle the delivery as received, or make it due again. Raises NotThere if it does not wait for an
        operator.
        """
        ...

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        """Return the deliveries by id, including replays and those with unknown outcome."""
        ...

    async def set_route_state(self, route: str, state: str, reason: str | None) -> None:
        """Set a route's state to one of ROUTE_STATES except ORPHANED, for operators and the next start."""
        ...

    async def routes(self) -> Sequence[RouteState]: ...

    async def delete_route(self, route: str) -> int:
        """
        Delete an orphaned route, and discard its waiting records. Raises NotAllowed if it is configured.
        """
        ...

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        """Return the rejected records (dead letters), oldest first, including those of deleted routes."""
        ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """
        Return the items rejected while others of their delivery were accepted, newest first. A
        route keeps only KEPT_REFUSALS of them.
        """
        ...

    async def retry_dead_letters(self, ids: Sequence[int]) -> int:
        """
        Send rejected records again in new deliveries. Return how many of the ids existed. Raises NotAllowed
        if a route is deleted.
        """
        ...

    async def edit_and_retry_dead_letter(self, id: int, record: Record) -> None:
        """
        Deliver `record` in place of a rejected record. The log does not change.

        Raises NotThere, or NotAllowed if the route is deleted.
        """
        ...

    async def discard_dead_letters(self, ids: Sequence[int]) -> int:
        """Give up rejected records. Return how many of the ids existed."""
        ...

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """Deliver settled records of [since, until) again, under new keys. Return their number."""
        ...


class Landings(Protocol):
    """The files written to data lakes. `Deliveries.settle` adds a row for each."""

    async def find_or_begin_editions(self, route: str, first: int) -> Sequence[str]:
        """
        Return the editions of a route (spans of numbers that one log assigned), from the edition of the
        delivery at `first` back.

        The first call for a route assigns the newest edition of the log.
        """
        ...

    async def begin_edition(self) -> str:
        """
        Begin a new edition for all numbers that are in no delivery.

        A copy whose routes do not run needs this, because the original may have sent these numbers.
        """
        ...

    async def landing_before(self, route: str, first: int) -> Landing | None:
        """Return the landed delivery directly before the number `first`."""
        ...

    async def landings_after(self, route: str, *, after: int, most: int) -> Sequence[Landing]:
        """Return the landed deliveries of a route that begin after a number, in order."""
        ...

    async def landed_counts_by_route(self) -> Sequence[tuple[str, int]]:
        """Return the routes by name, with the number of landed deliveries."""
        ...


LANDINGS = SmallTable[Landings]("lakes", kept_by=("lake", "SqlLandings"))


# -- records of AI telemetry only in a data lake
# ---------------------------------------------------------------


class PastRecord(NamedTuple):
    number: int
    committed_at: float
    record: Record


class PastDates(NamedTuple):
    """
    UTC days such as 2026-11-20, both included. The day of a record is the day under which the totals count
    it.
    """

    first: str
    last: str


class PastRecords(Protocol):
    def has_unstored(self, dimensions: Collection[str]) -> bool:
        """Return whether the lake lacks the values of a dimension, so that all appear as unknown."""
        ...

    def read(
        self, dates: PastDates, *, below: int, most: int | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Yield calls and counters with numbers below `below`, one batch per delivery, the newest first.

        Within a delivery, in number order. Beyond `most` records, the oldest are left out. Raises
        SpoolUnavailable if the lake does not respond in time.
        """
        ...

    async def find(self, id: bytes, dates: PastDates, *, below: int) -> PastRecord | None:
        """Find a record by its id. Raises what `read` raises."""
        ...


# -- last verification and landing of a lake, among the states of pulls
# ------------------------------------------


_KEPT_AS: Final = "lake of "  # the space keeps the name apart from the names of pulls
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """The result of the last verification. `differences` are counts by kind, `words` describes the first."""

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


async def read_lake_verdict(table: Statements, route: str) -> LakeVerdict | None:
    """Return the last result, or None if the lake was never verified."""
    stored = await table.read_pull_state(_KEPT_AS + route)
    return None if stored is None else LakeVerdict(route=route, **stored)


async def store_lake_verdict(table: Statements, verdict: LakeVerdict) -> None:
    state = asdict(verdict)
    del state["route"]
    await table.store_pull_state(_KEPT_AS + verdict.route, state)


async def read_landing_time(table: Statements, route: str) -> float | None:
    """Return when a file was last written, to the minute."""
    stored = await table.read_pull_state(_LANDED_AS + route)
    return None if stored is None else float(stored["at"])


async def store_landing_time(table: Statements, route: str, at: float) -> None:
    await table.store_pull_state(_LANDED_AS + route, {"at": at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """The files that were uploaded again, and the reasons of failed uploads."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    The deliveries that differ, by manifest.

    `compared`: number of deliveries whose records are in the log. `after`: where the next call continues,
    None at the end. `editions` are all editions of the route.
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
