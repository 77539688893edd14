"""
The routes' side of the log as a protocol: numbered requests with their own progress.

Every engine implements it under one contract suite (tests/spool/contract). Whatever a verb changes, it changes
in one transaction; when it returns, a power cut takes nothing of it away (SQLite in memory excepted).
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
    The routes' side of the log: numbered requests with their own progress.

    Each time a delivery is taken (`due`, `probe`) its fence grows. What `settle`, `split`, `set_aside`,
    `retry` and `unknown` say under an older fence changes nothing and is counted in `fenced`.
    """

    version: int  # grows with every change of a route or a delivery
    dead_version: int  # grows with every change of the dead letters
    fenced: int  # how often what somebody said of a delivery came after another one had taken it

    async def declare(self, routes: Sequence[RouteSpec], *, at_start: bool = True) -> None:
        """
        The configuration's routes: new ones begin where `start` says, missing ones become orphaned.

        At a start nothing is being sent afterwards, and everything that waited is due. What was being sent may have
        been taken: it is ambiguous, unless it has a mark. Later, deliveries stay as they are.
        """
        ...

    async def due(
        self, route: str, *, now: float, max_records: int, below: int | None = None
    ) -> Delivery | None:
        """
        The oldest delivery of a route that may be sent now and is not being sent, else a new one; None: nothing due.

        A new one is cut of what is closed; with `below`, of lower numbers only.
        """
        ...

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        """
        Choose a single record for a route that refuses: one that was never refused alone while fewer than
        `max_suspects` were, cut from the backlog if needed; else the oldest refused one that is due. None if
        there is neither.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """Return the time at which the earliest waiting delivery may be sent again."""
        ...

    async def mark(self, delivery: Delivery, mark: str) -> None:
        """
        Keep what a file destination needs to undo a half-written delivery, before it writes.

        TakenOver when somebody else has the delivery by now, or has settled it: it must not be sent.
        """
        ...

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        """Count every number of it where it went. ValueError when the settlement does not add up to its count."""
        ...

    async def split(
        self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False
    ) -> None:
        """
        The parent goes, two children with new keys come; `at` is the first number of the second (default: half).

        `refused`: the destination refused the parent, which is the first refusal of every record in it.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """Copy the single record to the dead letters and settle its delivery."""
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
        Make a delivery due again at `not_before`, under a new idempotency key or the same one:
        `transitions.retry` decides which.

        `answer`: what was answered, None if nothing was. `ambiguous`: it may have been taken all the same.
        `definite`: the answer says that it was not, now or before. `refused_at`: the single record in it was
        refused then. `server_error`: the answer was a 5xx.
        """
        ...

    async def give_back(self, delivery: Delivery, *, reason: str, not_before: float) -> None:
        """
        Make a delivery due again at `not_before` whose outcome is unknown: it may have been taken.

        Nothing when something was said of it already.
        """
        ...

    async def reopen_restored(self, *, hold_back: str | None) -> None:
        """
        The data is a copy from a backup: what waits may have been sent since, by the installation that it is of.

        Open deliveries become ambiguous and keep their keys. With `hold_back`, a reason, everything that
        waits is of unknown outcome instead, and sent only when it was settled by hand. For a storage whose
        routes do not run.
        """
        ...

    async def unknown(self, delivery: Delivery, *, reason: str) -> None:
        """Its outcome is unknown and it must not be sent twice: it is settled by hand."""
        ...

    async def unknowns(self) -> Sequence[UnknownDelivery]:
        """Return the deliveries that wait to be settled by hand, oldest first; their entries are kept until then."""
        ...

    async def resolve(self, id: int, *, sent: bool) -> UnknownDelivery:
        """An operator knows: it arrived, or it is to be sent again. NotThere when no such delivery waits."""
        ...

    async def unsettled(self) -> Sequence[UnsettledDelivery]:
        """Every delivery that is not settled, replays and those of unknown outcome among them, by id."""
        ...

    async def set_state(self, route: str, state: str, reason: str | None) -> None:
        """Keep the state of a route for the operator and for the next start; one of ROUTE_STATES but ORPHANED."""
        ...

    async def routes(self) -> Sequence[RouteState]:
        """Every route, by name."""
        ...

    async def drop(self, route: str) -> int:
        """Forget an orphaned route; its queue is counted as discarded. NotAllowed while it is configured."""
        ...

    async def dead(self, *, route: str | None = None) -> Sequence[DeadLetter]:
        """The dead letters of a route or of all, oldest first, also of routes that were dropped."""
        ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """
        Return the items that upstreams named in partial successes, newest first; the newest of each route are kept.
        """
        ...

    async def dead_retry(self, ids: Sequence[int]) -> int:
        """Make deliveries of dead letters; returns how many were there. NotAllowed when the route of one is gone."""
        ...

    async def dead_edit(self, id: int, record: Record) -> None:
        """
        Make a delivery of a dead letter with `record` in place of its own; the log keeps that.

        NotThere when there is no such letter, NotAllowed when its route is gone.
        """
        ...

    async def dead_discard(self, ids: Sequence[int]) -> int:
        """Delete dead letters and count them as discarded; returns how many were there."""
        ...

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """New deliveries with new keys for settled numbers committed in [since, until); returns the records."""
        ...


class Landings(Protocol):
    """What is in lakes; a row is added by `Deliveries.settle`, in its transaction."""

    async def editions(self, route: str, first: int) -> Sequence[str]:
        """
        The edition of the delivery that begins with a number, then the earlier ones of the route.

        The first question for a route gives it the newest edition of the log.
        """
        ...

    async def begin_edition(self) -> str:
        """
        Give all numbers that no delivery was cut for another edition. For a copy of the data whose routes do
        not run: the original may have sent them.
        """
        ...

    async def before(self, route: str, first: int) -> Landing | None:
        """The newest delivery of a route whose numbers are lower."""
        ...

    async def landed(self, route: str, *, after: int, most: int) -> Sequence[Landing]:
        """Deliveries of a route that begin behind a number, in order."""
        ...

    async def routes(self) -> Sequence[tuple[str, int]]:
        """The routes that have deliveries in a lake, by name, and how many."""
        ...


LANDINGS = SmallTable[Landings]("lakes", kept_by=("lake", "SqlLandings"))


# -- records of AI telemetry that the log keeps no more, as a lake has them ----------------------------------


class PastRecord(NamedTuple):
    number: int
    committed_at: float
    record: Record


class PastDates(NamedTuple):
    """Days (UTC) by the rule of the ledger, such as 2026-11-20; both are part of it."""

    first: str
    last: str


class PastRecords(Protocol):
    def lacks(self, dimensions: Collection[str]) -> bool:
        """True if the values of one of these dimensions are not kept there, so that all look unknown."""
        ...

    def read(
        self, dates: PastDates, *, below: int, most: int | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        """
        Calls and counters of some days with numbers below one, delivery after delivery, the newest first; within
        a delivery in the order of their numbers. `most`: of what is over, the oldest are left out.

        SpoolUnavailable if the lake does not answer, or not within a bounded time.
        """
        ...

    async def find(self, id: bytes, dates: PastDates, *, below: int) -> PastRecord | None:
        """Return the call or counter of some days that has an id; None if there is none. Raises as `read`."""
        ...


# -- what the newest look at a lake found, and when a topic got a delivery: beside the states of pulls, by route


_KEPT_AS: Final = "lake of "  # no pull has a name with a blank
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """`differences`: how many of each kind there are, none of a sound lake; `words` are those of the first."""

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


async def kept_verdict(table: Statements, route: str) -> LakeVerdict | None:
    """None if nobody looked at the lake of the route yet."""
    kept = await table.pull_state(_KEPT_AS + route)
    return None if kept is None else LakeVerdict(route=route, **kept)


async def keep_verdict(table: Statements, verdict: LakeVerdict) -> None:
    """Keep it in place of the one before."""
    state = asdict(verdict)
    del state["route"]
    await table.keep_pull_state(_KEPT_AS + verdict.route, state)


async def kept_landed(table: Statements, route: str) -> float | None:
    """When a delivery of a topic or a table landed last, to the minute; None if none did."""
    kept = await table.pull_state(_LANDED_AS + route)
    return None if kept is None else float(kept["at"])


async def keep_landed(table: Statements, route: str, at: float) -> None:
    await table.keep_pull_state(_LANDED_AS + route, {"at": at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """Names of files that were put again, and of those that could not be, with the reason."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    Deliveries whose rows the log gives otherwise now, by the names of their manifests; `compared` are those that it
    has the records of. `after` is where the next answer begins, None if there is nothing more. `editions` are all that
    the route had.
    """

    differs: Mapping[str, str]
    editions: Sequence[str]
    compared: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """What is known of the lake of a route; None: nothing landed yet, or nobody looked."""

    route: str
    landed_at: float | None
    verdict: LakeVerdict | None
