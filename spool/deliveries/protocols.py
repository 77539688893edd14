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
    Deliveries of all routes.

    `take_due` and `take_probe` increase the fence of their delivery. Results with an older fence change
    nothing, and are counted in `fenced`.
    """

    version: int  # of routes and deliveries
    dead_version: int  # of rejected records
    fenced: int  # ignored results: another worker had taken the delivery

    async def set_routes(self, routes: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        """
        Set the configured routes. New ones begin where `start` says, missing ones become orphaned.

        `at_start`: this process has just started, so all waiting deliveries are due. One that was being sent
        becomes ambiguous, unless it has a mark.
        """
        ...

    async def take_due(
        self, route: str, *, now: float, max_records: int, below: int | None = None
    ) -> Delivery | None:
        """
        Return the next delivery, marked as being sent.

        The oldest waiting one comes first. If none is due, a new one is made of closed records, `below` a
        number.
        """
        ...

    async def take_probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        """
        Return a single record to try where the destination rejects everything, or None.

        Below `max_suspects` records rejected alone, it is one never rejected alone, split off if needed.
        Otherwise it is the oldest rejected one that is due.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """Return when the earliest waiting delivery may be sent again."""
        ...

    async def mark(self, delivery: Delivery, mark: str) -> None:
        """
        Store what a file destination needs to undo a half-written delivery, before writing.

        Raises TakenOver if another worker has the delivery or settled it. Then it must not be sent.
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
        Replace a delivery by halves with new keys, at the middle or at `at`.

        `refused`: each of its records was rejected for the first time.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """Set the delivery's single record aside as rejected, and settle it."""
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
        Make a delivery due again. `transitions.retry` decides whether it keeps its key.

        `answer`: the response. `ambiguous`: it may have been accepted despite the failure. `definite`: the
        response proves that no attempt was accepted. `refused_at`: when its single record was rejected.
        `server_error`: a 5xx.
        """
        ...

    async def give_back(self, delivery: Delivery, *, reason: str, not_before: float) -> None:
        """
        Make a delivery with unknown outcome due again, as ambiguous.

        Does nothing if the outcome was reported.
        """
        ...

    async def reopen_restored(self, *, hold_back: str | None) -> None:
        """
        Reopen the deliveries of a restored backup, which may have been sent after it.

        They become ambiguous, unless they have a mark, and keep their keys. With `hold_back`, a reason, every
        waiting record gets an unknown outcome for an operator. Only while routes do not run.
        """
        ...

    async def mark_unknown(self, delivery: Delivery, *, reason: str) -> None:
        """The outcome is unknown and it must not be sent twice: an operator settles it."""
        ...

    async def unknown_deliveries(self) -> Sequence[UnknownDelivery]:
        """Return the deliveries for an operator, oldest first. Their entries are retained."""
        ...

    async def settle_unknown(self, id: int, *, sent: bool) -> UnknownDelivery:
        """
        Settle the delivery as received, or make it due again. Raises NotThere if it does not wait for an
        operator.
        """
        ...

    async def unsettled_deliveries(self) -> Sequence[UnsettledDelivery]:
        """Return the deliveries by id, with replays and unknown outcomes."""
        ...

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        """Set one of ROUTE_STATES except ORPHANED, for operators and the next start."""
        ...

    async def routes(self) -> Sequence[RouteState]:
        """Return the routes by name."""
        ...

    async def delete_route(self, route: str) -> int:
        """
        Delete an orphaned route, and discard its waiting records. Raises NotAllowed if it is configured.
        """
        ...

    async def dead_letters(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        """Return the oldest first, including those of deleted routes."""
        ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """
        Return items rejected while others were accepted, newest first. A route stores only KEPT_REFUSALS.
        """
        ...

    async def dead_retry(self, ids: Sequence[int]) -> int:
        """
        Make deliveries of rejected records. Return how many existed. Raises NotAllowed if a route is deleted.
        """
        ...

    async def dead_edit(self, id: int, record: Record) -> None:
        """
        Deliver `record` in place of a rejected record. The log does not change.

        Raises NotThere, or NotAllowed if the route is deleted.
        """
        ...

    async def dead_discard(self, ids: Sequence[int]) -> int:
        """Return how many existed."""
        ...

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """Deliver settled records of [since, until) again, under new keys. Return their number."""
        ...


class Landings(Protocol):
    """Files in data lakes. `Deliveries.settle` adds a row."""

    async def find_or_begin_editions(self, route: str, first: int) -> Sequence[str]:
        """
        Return editions, from that of the delivery at `first` back.

        The first call for a route assigns the newest edition of the log.
        """
        ...

    async def begin_edition(self) -> str:
        """
        Begin an edition for all numbers in no delivery.

        For a copy whose routes do not run, because the original may have sent these numbers.
        """
        ...

    async def landing_before(self, route: str, first: int) -> Landing | None:
        """Return the landed delivery directly before a number."""
        ...

    async def landings_after(self, route: str, *, after: int, most: int) -> Sequence[Landing]:
        """Return landed deliveries of a route that begin after a number, in order."""
        ...

    async def routes_with_counts(self) -> Sequence[tuple[str, int]]:
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
    """UTC days such as 2026-11-20, both included. The totals decide a record's day."""

    first: str
    last: str


class PastRecords(Protocol):
    def has_unstored(self, dimensions: Collection[str]) -> bool:
        """Whether values of a dimension are not in the lake, so that all appear unknown."""
        ...

    def read(
        self, dates: PastDates, *, below: int, most: int | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Yield calls and counters below `below`, one batch per delivery, newest first.

        Within a delivery, in number order. Beyond `most`, the oldest are left out. Raises SpoolUnavailable if
        the lake does not respond in time.
        """
        ...

    async def find(self, id: bytes, dates: PastDates, *, below: int) -> PastRecord | None:
        """Raises what `read` raises."""
        ...


# -- last verification and landing of a lake, among the states of pulls
# ------------------------------------------


_KEPT_AS: Final = "lake of "  # its space keeps it apart from names of pulls
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """`differences` are counts by kind, `words` describes the first."""

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


async def kept_verdict(table: Statements, route: str) -> LakeVerdict | None:
    """Return None if the lake was never verified."""
    stored = await table.pull_state(_KEPT_AS + route)
    return None if stored is None else LakeVerdict(route=route, **stored)


async def keep_verdict(table: Statements, verdict: LakeVerdict) -> None:
    state = asdict(verdict)
    del state["route"]
    await table.keep_pull_state(_KEPT_AS + verdict.route, state)


async def stored_landing_time(table: Statements, route: str) -> float | None:
    """Return the time to the minute."""
    stored = await table.pull_state(_LANDED_AS + route)
    return None if stored is None else float(stored["at"])


async def keep_landed(table: Statements, route: str, at: float) -> None:
    await table.keep_pull_state(_LANDED_AS + route, {"at": at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """Files uploaded again, and reasons of failed uploads."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    Differing deliveries, by manifest.

    `compared`: deliveries with records in the log. `after`: where the next call continues, None at the end.
    `editions` are all of the route.
    """

    differs: Mapping[str, str]
    editions: Sequence[str]
    compared: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """The state of a data lake. A field is None if nothing landed, or if it was never verified."""

    route: str
    landed_at: float | None
    verdict: LakeVerdict | None
