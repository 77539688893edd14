"""The ledger itself: it reads the log, keeps its sums in an engine's rows, and answers what they cost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from spool.clock import Clock, settled_now
from spool.errors import LedgerLost, NotAllowed, NotClosed, SpoolUnavailable
from spool.ledger import comparing, counting
from spool.ledger.comparing import LedgerComparison, Place, at_once, compare
from spool.ledger.costs import costs
from spool.ledger.counting import Missed, Placement, state_of
from spool.ledger.days import spans
from spool.ledger.days.usage import DaySum, UsageSum, sums_of_day, sums_of_days, usage_of_day
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from spool.ledger.queries import (
    DIMENSIONS,
    TAG,
    CostQuery,
    CostRow,
    Derived,
    DerivedDimensions,
    check_dimension,
    limit_of_question,
)
from spool.ledger.repricing import Pricer, Repriced, reprice
from spool.ledger.sums import DAY_S, HOUR_S, OTHER, Dimensions, HourlySums
from spool.log.protocols import ReadableLog
from spool.log.values import Entry
from spool.packed.native import Native, NativeFault
from spool.people import People
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import current_work, pause

if TYPE_CHECKING:
    from spool.currencies import Rates
    from spool.ledger.billed import BilledDay, BilledSum
    from spool.ledger.days.remembered import RememberedCosts

T = TypeVar("T")
CHUNK = 8192  # numbers in one transaction: a quarter of a second of full ingest
STEP = 512  # numbers that are read at once
PACKED_STEP = 4096  # if they stay packed
PAUSE_S = 1.0  # between transactions: at rest the ledger costs the disk one write a second, not one a commit
RETRY_S = 10.0
REST, MOST_REST_S = 8.0, 0.03  # times as long as it took: each time is a flush beside those of who commits
TRIES, RETRY_CLOSED_S = 5, 0.05  # of what others are about to close
LATE_S = 6 * HOUR_S  # a day is summed up when most of what comes late is there
END_OF_TIME = 1 << 62
ROLL_REST = 4  # times as long as making a rollup took
ROLL_WAIT_S = 30.0  # if none is missing
HOURS_KEPT_S = 62 * DAY_S  # then the day alone stays
MOST_VALUES = 1000  # of one dimension
MAX_ROWS = 5000  # distinct sets of dimensions in one period; further ones are "(other)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """How far the sums reach, and the numbers they could not count: removed before, damaged, or absurd."""

    reach: int  # the next number to count
    rebuilding: int  # 0, or the number at which a rebuild will be done
    missed: int
    damaged: int
    absurd: int
    rows: int  # 0 if they were not counted
    hourly_since: datetime | None  # before it, sums are kept by day; None: all hours are kept
    whole_since: datetime | None  # hours before it may lack the missed numbers; None: nothing is missed


@dataclass(slots=True, kw_only=True)
class TagValues:
    """A tag as a dimension, and its values in calls and in rows of billing connections."""

    name: str
    values: list[str] = field(default_factory=list)
    of_calls: bool = False
    of_rows: bool = False

    def add(self, value: str, *, of_calls: bool, of_rows: bool) -> None:
        self.values.append(value)
        self.of_calls |= of_calls
        self.of_rows |= of_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Soundness:
    """
    `missed` numbers were passed over, of which `looked_for` are gone for good; `differing` hours and days
    were not what the log keeps of them when they were compared last.
    """

    missed: int
    looked_for: int
    differing: int
    compared_at: datetime | None

    @property
    def is_sound(self) -> bool:
        """True if nothing is in doubt; records that are gone stay missing."""
        return self.missed == self.looked_for and not self.differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """
    Periods that are counted anew, periods that stay because some of their records are gone, and where these end.
    """

    periods: int
    kept: int
    border: datetime | None
    first: int


class Ledger:
    """`load` it, let `follow` run, ask it. `tags` are the tags that costs can be grouped by."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        tags: Sequence[str] = ("service",),
        max_rows: int = MAX_ROWS,
        chunk: int = CHUNK,
        packed: Native | None = None,
    ) -> None:
        self.tags = tuple(tags)
        self._store = store
        self._clock = clock
        self._placement = Placement(max_rows)
        self.rates: Rates | None = None  # by which amounts in other currencies are converted
        self.people: People | None = None  # who is meant by the values of filters
        self.shows_layers = False  # of billed money, to who sees a part of the calls
        self._derived: DerivedDimensions = {}
        self._chunk = chunk
        self._packed = packed
        self._turn = asyncio.Lock()
        self._reach = 1
        self._is_caught_up = False  # since it was opened, or begun anew
        self._not_before = 0.0  # of who rests
        self._row_tags: tuple[int | None, Sequence[str]] = (None, ())  # with the mark that they had

    async def load(self) -> Ledger:
        """Read how far it reaches, and return it; the store is closed when that fails."""
        try:
            self._reach = (await self._state())["reach"]
        except BaseException:
            await self._store.close()
            raise
        return self

    @property
    def is_shared(self) -> bool:
        """True if other processes count, too, one at a time."""
        return self._store.shares_log

    def needs(self, topic: str) -> int | None:
        """The lowest number of a topic that the log must keep for the ledger (see spool.log.retention)."""
        return self._reach if topic == AI_TELEMETRY else None

    async def follow(self, log: ReadableLog) -> None:
        """Count what is closed, for as long as the log lives. Runs until cancelled; a full disk only delays it."""
        async for _ in log.changes(AI_TELEMETRY):
            while not await self._has_counted(log):  # also if nothing more is committed
                pass
            await asyncio.sleep(PAUSE_S)

    async def _has_counted(self, log: ReadableLog) -> bool:
        """Count what is closed, unless that fails, which takes a while."""
        try:
            await self.catch_up(log)
            await self.tidy()
        except NotClosed as error:
            _log.info("the ledger counts on later: %s", error, extra={"action": "ledger_waits"})
            await asyncio.sleep(PAUSE_S)
        except SpoolUnavailable:
            _log.exception("the ledger cannot write", extra={"action": "ledger_waits"})
            await asyncio.sleep(RETRY_S)
        else:
            return True
        return False

    async def watch(self, log: ReadableLog) -> None:
        """Know how far others have counted, for as long as the log lives. Runs until cancelled."""
        async for _ in log.changes(AI_TELEMETRY):
            is_behind = True
            while is_behind:  # they go on counting while the log is at rest
                try:
                    is_behind = await self._look(log)
                except SpoolUnavailable as error:
                    _log.warning("the ledger cannot be read: %s", error, extra={"action": "ledger_waits"})
                    await asyncio.sleep(RETRY_S)
                await asyncio.sleep(PAUSE_S)

    async def _look(self, log: ReadableLog) -> bool:
        """Read the state again; True if there are records that no process has counted."""
        async with self._turn:
            self._reach = (await self._state())["reach"]
            is_behind = self._reach < log.closed_below(AI_TELEMETRY)
            self._is_caught_up |= not is_behind
            return is_behind

    async def catch_up(self, log: ReadableLog) -> int:
        """
        Count every record that is closed when its turn comes; returns the reach.

        What is closed meanwhile is not waited for: where senders never pause, nobody else would have a turn. A
        party that used far more than one that commits lately rests behind the last time.
        """
        await self._rest()
        async with self._turn:
            if (below := log.closed_below(AI_TELEMETRY)) < self._reach:
                # the sums are as old as the log: a database that lost both, or others saw further
                if self.is_shared:
                    self._reach = (await self._state())["reach"]
                else:
                    await self._begin_anew(below)
            tries, most, began = 0, log.closed_below(AI_TELEMETRY), time.monotonic()
            while self._reach < (below := min(most, log.closed_below(AI_TELEMETRY))):
                try:
                    await self._count(log, below)
                except NotClosed:  # what is closed is asked again
                    if (tries := tries + 1) == TRIES:
                        raise
                    await asyncio.sleep(RETRY_CLOSED_S)
            self._is_caught_up = True
            now = time.monotonic()
            self._not_before = max(self._not_before, now + min(MOST_REST_S, REST * (now - began)))
            return self._reach

    async def _rest(self) -> None:
        work = current_work()
        rest_s = self._not_before - time.monotonic()
        if rest_s > 0 and work is not None and work.expects_lighter():
            await asyncio.sleep(rest_s)

    async def _begin_anew(self, below: int) -> None:
        _log.error(
            "the log ends before what was counted of it: it was lost or restored, and the sums stay as they "
            "are",
            extra={"action": "log_begun_anew", "reach": self._reach, "number": below},
        )
        seen = self._reach
        self._reach = await self._change(lambda rows: counting.begin_anew(rows, seen=seen, reach=below))

    async def _count(self, log: ReadableLog, below: int) -> None:
        first = self._reach
        seen = state, frozen = await self._read(lambda rows: (state_of(rows), rows.frozen_periods()))
        if state["reach"] != first:  # another process counted, or began to count anew
            self._reach = state["reach"]
            return
        rebuilding = state["rebuilding"]
        last = min(first + self._chunk, below, rebuilding if rebuilding > first else below) - 1

        def is_counted(number: int, hour: int) -> bool:
            return number < rebuilding and counting.period(hour, state["hourly"]) in frozen

        sums = HourlySums(self.tags, skip=is_counted if frozen else None)
        packed = None if frozen or self._packed is None or not self._packed.is_on else self._packed
        try:
            count, gaps, oldest = await self._add_up(log, sums, first, last, packed)
        except NativeFault:
            return  # some of it may be added: counted anew, in the end without the module
        missed = Missed()
        if gaps:
            whole = counting.whole_since(await self._oldest_arrival(log, oldest))
            missed = Missed(last - first + 1 - count, gaps[0][0], gaps[-1][1], whole)
        if gaps and not rebuilding:
            _log.error(
                "%d numbers have no record that could be counted: they were removed or lost before",
                missed.count,
                extra={"action": "numbers_missed", "first": first, "last": last},
            )

        def work(rows: LedgerRows) -> int:
            if (
                state_of(rows),
                rows.frozen_periods(),
            ) != seen:  # begun anew meanwhile: what is counted is another
                return state_of(rows)["reach"]
            return counting.add(rows, sums, self._placement, first=first, reach=last + 1, missed=missed)

        self._reach = await self._change(work)
        if self._reach != last + 1:
            self._placement.forget()

    async def _add_up(
        self, log: ReadableLog, sums: HourlySums, first: int, last: int, packed: Native | None
    ) -> tuple[int, list[tuple[int, int]], Entry | None]:
        """Add these numbers to the sums: how many have a record, the gaps between them, and the first entry."""
        adding = None
        if packed is not None:
            from spool.packed.sums import PackedSums  # only where the compiled module is

            adding = PackedSums(packed, sums)
        step = STEP if packed is None else PACKED_STEP
        count, following = 0, first
        gaps: list[tuple[int, int]] = []
        oldest: Entry | None = None
        for number in range(first, last + 1, step):
            upto = min(number + step - 1, last)
            for entry in await log.read(AI_TELEMETRY, number, upto, whole=True, packed=packed):
                oldest = oldest or entry
                count += len(entry.records)
                gaps += [(following, entry.first)] if entry.first > following else []
                following = entry.last + 1
                if adding is not None:
                    await adding.add(entry)
                    continue
                for part in entry.parts(at_once()):
                    sums.add([part])
                    await pause()
        gaps += [(following, last + 1)] if following <= last else []
        if adding is not None:
            await adding.hand_over()
        return count, gaps, oldest

    async def _oldest_arrival(self, log: ReadableLog, read: Entry | None) -> float:
        """
        Return when the oldest stored entry arrived, at best the one that was read; what is missed
        arrived before it.
        """
        if read is None:
            oldest = await _oldest(log)
            read = next(
                iter(await log.read(AI_TELEMETRY, oldest, oldest)), None
            )  # none, if it is the next number
        return read.committed_at if read else self._clock.now()

    async def roll_up(self) -> None:
        """
        Make the rollups that are missing, one at a time and at a fifth of one core. Runs until cancelled; a full
        disk only delays it.
        """
        has_made, took = False, 0.0
        while True:
            await asyncio.sleep(ROLL_REST * took if has_made else ROLL_WAIT_S)
            begun, has_made = time.monotonic(), False
            try:
                has_made = await self.make_rollup()
            except SpoolUnavailable as error:
                _log.warning("rollups cannot be written: %s", error, extra={"action": "ledger_waits"})
            took = time.monotonic() - begun

    async def make_rollup(self) -> bool:
        """Make the newest rollup that is missing; False if there is none, or while records are counted anew."""
        from spool.ledger.days import rollups  # not before the first is made

        async with self._turn:
            state = await self._read(state_of)
            if state["rebuilding"]:
                return False
            now = int(settled_now(self._clock))
            if await self._read(lambda rows: rollups.missing(rows, state["daily"], now)) is None:
                return False
            # No sum of a day changes: what others know of dimensions stays right.
            return await self._written(lambda rows: rollups.make_next(rows, state_of(rows)["daily"], now))

    async def differing_rollups(self, *, at_ease: bool = False) -> int:
        """Compare every rollup with its days and have those that differ made again; how many."""
        if not (places := await self._read(lambda rows: rows.rollups(0, END_OF_TIME))):
            return 0
        from spool.ledger.days import rollups  # not before there is one

        wrong = []
        for place in sorted(places):
            begun = time.monotonic()
            if await self._read(partial(rollups.differs, place=place)):
                wrong.append(place)
            await asyncio.sleep(ROLL_REST * (time.monotonic() - begun) if at_ease else 0)
        if not wrong:
            return 0
        async with self._turn:
            return await self._change(lambda rows: rollups.unmark_differing(rows, wrong))

    async def tidy(self) -> int:
        """Sum up days that are over and remove hours that are old; how many sums were removed."""
        async with self._turn:
            if (await self._state())["rebuilding"]:
                return 0
            now = int(settled_now(self._clock))
            while await self._change(lambda rows: counting.sum_up(rows, now - LATE_S)):
                pass
            old = (now - HOURS_KEPT_S) // DAY_S * DAY_S
            removed = 0
            while (dropped := await self._change(lambda rows: counting.drop_hours(rows, old))) is not None:
                removed += dropped
            if removed:  # once a day: a rebuild may have emptied what was numbered
                self._placement.forget()
                await self._change(lambda rows: rows.drop_unused_numbers())
            return removed

    async def rebuild(self, log: ReadableLog) -> Rebuilt:
        """
        Count anew every hour whose records are all kept; the rest stays as it is.

        Returns at once: the counting goes on with `follow` or `catch_up`, over restarts too, and until then
        the hours concerned show what was counted so far. NotAllowed while another rebuild goes on.
        """
        async with self._turn:
            if (await self._state())["rebuilding"]:
                raise NotAllowed("a rebuild of the ledger is still going on")
            first = await _oldest(log)
            periods, spans, border = await self._change(lambda rows: counting.begin_rebuild(rows, first))
            self._reach = min(first, self._reach)
        return Rebuilt(periods=periods, kept=spans, border=_moment(border), first=first)

    async def compare(self, log: ReadableLog, *, at_ease: bool = False) -> LedgerComparison:
        """Compare the log with the sums, as far as both are stored. Reads the whole log."""
        found = await compare(log, self._read, oldest=lambda: _oldest(log), at_ease=at_ease)
        differing = len(found.told())
        if found.is_done and differing != (await self._state())["differing"]:
            async with self._turn:
                await self._change(lambda rows: rows.set_state(differing=differing))
        return replace(found, rollups=await self.differing_rollups(at_ease=at_ease))

    async def comparison_is_due(self, now: float) -> bool:
        """True if the last comparison was long ago, or a record was missed or found wrong since."""
        state = await self._state()
        if not self._is_caught_up or state["rebuilding"]:
            return False
        is_old = not state["compared"] <= now < state["compared"] + comparing.EVERY_S
        return is_old or state["missed"] > state["settled"] or state["differing"] != state["left"]

    async def replace(self, log: ReadableLog, compared: LedgerComparison, place: Place) -> bool:
        """Have the sums of a period be what the log keeps of it; False if that is not there as it was compared."""
        recount = comparing.PeriodRecount(compared, place, self.tags)
        if not await recount.read(log) or not await recount.read_until(log, self._reach):
            return False
        async with self._turn:
            for _ in range(TRIES):  # others may count meanwhile
                reach = (await self._state())["reach"]
                if reach < recount.reach or not await recount.read_until(log, reach):
                    return False
                if await self._change(lambda rows: comparing.replace(rows, self._placement, recount)):
                    return True
        return False

    async def settle(
        self, compared: LedgerComparison, *, gained: int, is_mended: bool, left: int, now: int
    ) -> int:
        """Keep what a comparison came to; returns how many numbers are missed."""
        async with self._turn:
            return await self._change(
                lambda rows: comparing.settle(
                    rows, compared, gained=gained, is_mended=is_mended, left=left, now=now
                )
            )

    async def differing(self) -> int:
        """Return the number of hours and days that differed from the log in the last comparison."""
        return (await self._state())["differing"]

    async def soundness(self) -> Soundness:
        """Return what the ledger lacks, as far as that is known."""
        state = await self._state()
        return Soundness(
            missed=state["missed"],
            looked_for=min(state["missed"], state["settled"]),
            differing=state["differing"],
            compared_at=_moment(state["compared"]),
        )

    async def reprice(self, pricer: Pricer, *, since: datetime) -> Repriced:
        """Estimate again what happened since then, all of it or nothing. NotKept if `since` divides a sum."""
        start = since.timestamp()

        def work(rows: LedgerRows) -> Repriced:
            spans.check(rows, state_of(rows)["hourly"], [start])
            return reprice(rows, self._placement, pricer, int(start))

        async with self._turn:
            return await self._change(work)

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """
        Exact sums. ValueError for a dimension that does not exist, NotKept if a period divides a sum,
        AskedTooMuch beyond the limit of the question that this is asked for.
        """
        [found] = await self.costs_of([query])
        return found

    async def costs_of(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        """The sums of several questions at one moment, as `costs` has those of one."""
        asked = []
        limit, now = limit_of_question(), self._clock.now()
        for query in queries:
            if self.people is not None and (query.include or query.exclude):
                matched = self.people.matched
                query = replace(query, include=matched(query.include), exclude=matched(query.exclude))
            if query.arranged:
                from spool.ledger.billed import with_running_day  # not before bills are asked for

                query = with_running_day(query, now)
            derived = {**self._derived, **query.derived}
            known = {name: derived[name] for name in query.named if name in derived}
            asked.append(replace(query, derived=known))

        def answer(rows: LedgerRows, query: CostQuery) -> Sequence[CostRow]:
            if all(each is self._derived.get(name) for name, each in query.derived.items()):
                return self._remembered.costs(rows, query, limit, self.rates, now)
            return costs(rows, query, limit, self.rates)  # with a dimension of this question alone

        return await self._read(lambda rows: [answer(rows, each) for each in asked])

    @cached_property
    def _remembered(self) -> RememberedCosts:
        from spool.ledger.days.remembered import RememberedCosts  # not before costs are asked for

        return RememberedCosts()

    async def sums_of_day(
        self, day: int, *, most: int, chosen: Callable[[Dimensions], bool] | None = None
    ) -> Sequence[DaySum]:
        """The priceable sums of a day that begins at `day` (epoch seconds), the most costly first."""
        return await self._read(lambda rows: sums_of_day(rows, day, most, chosen))

    async def sums_of_days(
        self, days: Sequence[int], *, most: int, chosen: Callable[[Dimensions], bool] | None = None
    ) -> Sequence[Sequence[DaySum]]:
        """Return the sums of several days at one moment, by dimensions and in no order."""
        return await self._read(lambda rows: sums_of_days(rows, days, most, chosen))

    async def usage_of_day(self, day: int) -> Sequence[UsageSum]:
        """All sums of a day that begins at `day` (epoch seconds) that a provider may have billed."""
        return await self._read(lambda rows: usage_of_day(rows, day))

    async def whole_sums_of_day(self, day: int) -> Sequence[UsageSum]:
        """All sums of a day that a provider may have billed, also by users, devices and tags."""
        return await self._read(lambda rows: usage_of_day(rows, day, whole=True))

    async def put_billed(self, made: Sequence[tuple[BilledDay, Sequence[BilledSum]]]) -> int:
        """Replace the billed money of days whose mark differs from the stored one, at once; how many days."""

        def work(rows: LedgerRows) -> int:
            return sum(_has_put_billed(rows, day, sums) for day, sums in made)

        async with self._turn:
            return await self._change(work)

    async def drop_billed(self, day: int, provider: str) -> None:
        """Forget a provider's billed money of a day."""
        async with self._turn:
            await self._change(lambda rows: rows.drop_billed(day, provider))

    async def billed_days(self, since: int, until: int) -> Sequence[BilledDay]:
        """Return the days with billed money that begin in [since, until), in epoch seconds."""
        return await self._read(lambda rows: rows.billed_days(since, until))

    async def billed_corrections(self) -> Sequence[BilledDay]:
        """Return what corrects days of closed months, in the order of the days on which it counts."""
        days = await self._read(lambda rows: rows.billed_days(0, END_OF_TIME))
        return [day for day in days if day.corrects]

    async def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        """Return a provider's billed money of a day, in a fixed order."""
        return await self._read(lambda rows: rows.billed_sums(day, provider))

    async def is_complete(self) -> bool:
        """
        False while sums show only a part of what they did: during a rebuild, and from when the ledger was opened
        or begun anew until it has caught up with the log. What was sent of them must not be replaced then.
        """
        return self._is_caught_up and not (await self._state())["rebuilding"]

    async def missed(self) -> int:
        """Return how many numbers were passed over because their records were gone."""
        return (await self._state())["missed"]

    async def whole_since(self) -> int:
        """Hours that begin before this (epoch seconds) may lack records that were gone before they were counted."""
        return (await self._state())["whole"]

    async def since_hours(self, since: datetime) -> datetime:
        """`since`, or the border if that is later: from here on the sums of hours are kept."""
        hourly = _moment((await self._state())["hourly"])
        return since if hourly is None else max(since, hourly)

    async def check_hours(self, since: datetime) -> None:
        """NotKept if hours from `since` on are kept no more, but only their days."""
        spans.check_hours((await self._state())["hourly"], since.timestamp())

    async def known_span(self) -> tuple[datetime, datetime] | None:
        """Return the begin of the first and of the last hour or day with sums; None without any."""

        def work(rows: LedgerRows) -> list[int]:
            return [start for width in (DAY_S, HOUR_S) for start in rows.starts(width, 0)]

        starts = await self._read(work)
        if not starts:
            return None
        return datetime.fromtimestamp(min(starts), UTC), datetime.fromtimestamp(max(starts), UTC)

    async def known_since(self, dimension: str) -> datetime | None:
        """Return the begin of the first hour or day with a known value of a dimension; None if there is none."""
        check_dimension(dimension)

        def work(rows: LedgerRows) -> int | None:
            starts = (rows.first_known(width, dimension) for width in (DAY_S, HOUR_S))
            return min((start for start in starts if start is not None), default=None)

        start = await self._read(work)
        return None if start is None else datetime.fromtimestamp(start, UTC)

    async def values(self, dimension: str | Derived) -> Sequence[str]:
        """The known values of a dimension, the first thousand; ValueError when there is none of that name."""
        if isinstance(dimension, Derived):
            asked: str | Derived = dimension
        elif (asked := self._derived.get(dimension, dimension)) is dimension:
            check_dimension(dimension)
        return await self._read(lambda rows: rows.values(asked, MOST_VALUES))

    async def tag_values(self) -> Sequence[TagValues]:
        """The tags that costs can be grouped by, with their values: those of calls, and others of billing rows."""
        found = {name: TagValues(name=f"{TAG}{name}") for name in self.tags}
        for name, value, of_calls, of_rows in await self._read(lambda rows: rows.tags()):
            if of_rows and name not in found:
                found[name] = TagValues(name=f"{TAG}{name}")
            if name in found:
                found[name].add(value, of_calls=of_calls, of_rows=of_rows)
        return [found[name] for name in (*self.tags, *sorted(found.keys() - {*self.tags}))]

    async def row_tags(self) -> Sequence[str]:
        """The tags that rows of billing connections have, and calls have not, as dimensions."""

        def work(rows: LedgerRows) -> tuple[int | None, Sequence[str]]:
            mark = rows.state().get(counting.ROW_TAGS)
            if mark in (None, self._row_tags[0]):
                return self._row_tags
            names = {name for name, _, _, of_rows in rows.tags() if of_rows}
            return mark, sorted(f"{TAG}{name}" for name in names.difference(self.tags))

        self._row_tags = await self._read(work)
        return self._row_tags[1]

    async def has_joint_sums(self) -> bool:
        """True if there are sums of several values together, because there were too many to keep them apart."""
        is_joint = Derived(
            name=OTHER, label=OTHER, sources=("user",), value=lambda each: "yes" if OTHER in each else ""
        )
        return bool(await self.values(is_joint))

    def derive(self, dimensions: Sequence[Derived]) -> None:
        """Replace the derived dimensions by which costs can be grouped and filtered."""
        self._derived = {each.name: each for each in dimensions}

    def derived(self) -> Sequence[Derived]:
        return tuple(self._derived.values())

    def label(self, dimension: str) -> str:
        """
        Return the name that people read: the label of one of the organization's own dimensions, else
        the name itself.
        """
        derived = self._derived.get(dimension)
        return dimension if derived is None else derived.label

    def own_dimensions(self) -> Sequence[str]:
        """The dimensions that sums are kept by."""
        return (*DIMENSIONS, *(f"{TAG}{name}" for name in self.tags))

    def dimensions(self) -> Sequence[str]:
        """Return the dimensions to group and filter by: the ledger's own, and those derived from them."""
        return (*self.own_dimensions(), *self._derived)

    async def state(self, *, counts_rows: bool = True) -> LedgerState:
        """To count millions of sums takes a second: leave it out where nobody asks how many there are."""
        state, rows = await self._read(lambda rows: (state_of(rows), rows.count_rows() if counts_rows else 0))
        return LedgerState(
            reach=state["reach"],
            rebuilding=state["rebuilding"],
            missed=state["missed"],
            damaged=state["damaged"],
            absurd=state["absurd"],
            rows=rows,
            hourly_since=_moment(state["hourly"]),
            whole_since=_moment(state["whole"]),
        )

    async def close(self) -> None:
        """Close the store after a running count has ended."""
        async with self._turn:
            await self._store.close()

    async def _state(self) -> dict[str, int]:
        return await self._read(state_of)

    async def _change(self, work: Callable[[LedgerRows], T]) -> T:
        def begun(rows: LedgerRows) -> T:
            self._placement.begin(rows)
            return work(rows)

        return await self._written(begun)

    async def _written(self, work: Callable[[LedgerRows], T]) -> T:
        try:
            return await self._store.change(work)
        except LedgerLost:
            self._begin_again()
            raise
        except BaseException:
            self._placement.forget()
            raise

    async def _read(self, work: Callable[[LedgerRows], T]) -> T:
        try:
            return await self._store.read(work)
        except LedgerLost:
            self._begin_again()
            raise

    def _begin_again(self) -> None:
        """Count the log again from its beginning."""
        self._placement.forget()
        self._reach = 1
        self._is_caught_up = False


def _has_put_billed(rows: LedgerRows, day: BilledDay, sums: Sequence[BilledSum]) -> bool:
    """Write a day unless it is already as it was made; True if it was written."""
    before = next((e for e in rows.billed_days(day.day, day.day + 1) if e.provider == day.provider), None)
    if before is not None and before.mark == day.mark:
        return False
    rows.put_billed(day if before is None else replace(day, revision=before.revision + 1), sums)
    return True


async def _oldest(log: ReadableLog) -> int:
    """The lowest number that the log keeps; removal is from the low end, so halving finds it."""
    low, high = 1, log.closed_below(AI_TELEMETRY)
    while low < high:
        middle = (low + high) // 2
        if await log.read(AI_TELEMETRY, middle, middle, whole=True):
            high = middle
        else:
            low = middle + 1
    return low


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
