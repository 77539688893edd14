"""The totals (ledger): reads the log, stores sums, and returns costs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from spool.clock import Clock, conservative_now_for_deletion
from spool.erasure import rename_person_in_tags
from spool.errors import Invalid, LedgerLost, NotAllowed, NotClosed, TotalsIncomplete
from spool.ledger import comparing, counting
from spool.ledger.checked_sums import PeriodStart
from spool.ledger.comparing import LedgerComparison, compare_log_with_totals, max_records_at_once
from spool.ledger.costs import query_costs
from spool.ledger.counting import DimensionNumbering, MissedNumbers, read_state
from spool.ledger.days import spans
from spool.ledger.days.usage import DaySum, UsageSum, day_sums_by_dimensions, day_usage, priceable_day_sums
from spool.ledger.dimensions import DIMENSIONS, TAG, DerivedDimension, DerivedDimensions
from spool.ledger.ledger_rows import LedgerRows, LedgerStore, Recalculation, new_data_version
from spool.ledger.queries import CostQuery, CostRow, check_dimension
from spool.ledger.recalculations import RecalculationPriceBooks, Recalculations
from spool.ledger.repricing import (
    Pricer,
    Repriced,
    RepricedSums,
    estimates_by_dimensions,
    reprice_period,
    reprice_sums,
)
from spool.ledger.sums import DAY_S, END_OF_TIME, HOUR_S, OTHER, Dimensions, HourlySums, tags_text
from spool.ledger.tag_lists import TAGGED, TagLists, read_tag_lists
from spool.ledger.work import (
    OF_PEOPLE,
    TREES,
    UNITS,
    UNLISTS,
    WORK_LIMITS,
    RunLineage,
    WorkLimits,
    WorkUnitHasher,
    unit_number_from_name_or_digest,
)
from spool.ledger.work_links import LINKS_MARK, WorkUnitLinks
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry
from spool.loops import repeat
from spool.packed.native import NativeFault, NativeModule
from spool.people import SECOND_NAME, USER, USER_EMAIL, People, is_hash_address_or_pseudonym
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import current_work, pause_for_others
from spool.turns.question_limit import limit_of_running_query
from spool.viewed_people import check_may_view_people, note_viewed_people

if TYPE_CHECKING:
    from spool.currencies import Rates
    from spool.ledger.billed import BilledDay, BilledSum
    from spool.ledger.days.cached_results import DataVersions, RememberedCosts
    from spool.ledger.usages import UsageByGroup

T = TypeVar("T")
CHUNK = 8192  # record numbers per transaction, a quarter of a second under full load
STEP = 512  # record numbers per read
PACKED_STEP = 4096  # record numbers per read if records stay packed
# seconds between transactions, so that an idle ledger writes once a second, not once per commit
PAUSE_S = 1.0
RETRY_S = 10.0
# Pause after a run, as a multiple of the run's duration, and the longest pause in seconds. The flush of each
# run delays commits.
REST, MOST_REST_S = 8.0, 0.03
# seconds without progress after which another process continues a rebuild
ABANDONED_S = 3.0
# Attempts, and seconds between them, to read records that other processes are about to close.
TRIES, RETRY_CLOSED_S = 5, 0.05
# seconds after the end of a day, when most late records have arrived
LATE_S = 6 * HOUR_S
ROLL_REST = 4  # pause between rollups, as a multiple of the last rollup's duration
ROLL_WAIT_S = 30.0  # seconds until the next check if no rollup is missing
# after this time, only the sum of the day stays
HOURS_KEPT_S = 62 * DAY_S
MOST_VALUES = 1000  # maximum values per dimension
# maximum units that one transaction unlists, which takes a few tenths of a second
MOST_UNLISTED = 5000
_PERSON = "(person)"  # internal derived dimension, which no query can use
_YES = "yes"  # value of a derived dimension that filters by both names of a person
MAX_ROWS = 5000  # maximum sets of dimensions per period; further calls are added to "(other)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """
    How far the log is counted, and how many records are not counted: missed (deleted), damaged, or absurd
    (implausibly large).
    """

    reach: int  # number of the next record to count
    rebuilding: int  # record number at which a running rebuild ends, or 0
    missed: int
    damaged: int
    absurd: int
    rows: int  # number of stored sums, 0 if they were not counted
    # older sums are by day; None if all hours are stored
    hourly_since: datetime | None
    whole_since: datetime | None  # hours before this may lack missed records; None if no record is missed


@dataclass(slots=True, kw_only=True)
class TagValues:
    """A tag to group costs by, with its values in calls and in billing rows."""

    name: str
    values: list[str] = field(default_factory=list)
    of_calls: bool = False
    of_rows: bool = False

    def add_value(self, value: str, *, in_calls: bool, in_billing_rows: bool) -> None:
        self.values.append(value)
        self.of_calls |= in_calls
        self.of_rows |= in_billing_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerComparisonState:
    """
    The state of the comparison with the log.

    `looked_for`: how many of the `missed` numbers were searched in the log without finding a record.
    `differing`: hours and days that differed in the last comparison.
    """

    missed: int
    looked_for: int
    differing: int
    compared_at: datetime | None

    @property
    def is_consistent_with_log(self) -> bool:
        """
        Return whether the totals are proven to agree with the log. Missed records that the log has deleted do
        not count.
        """
        return self.missed == self.looked_for and not self.differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """
    The result of starting a rebuild. `kept`: number of periods that stay, the last of them until `border`,
    because some of their records are deleted.
    """

    periods: int
    kept: int
    border: datetime | None
    first: int


class Ledger:
    """
    The totals. Call `load`, run `count_until_cancelled`, then query. `tags`: the tags that costs can be
    grouped by.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        tags: Sequence[str] = ("service",),
        max_rows: int = MAX_ROWS,
        chunk: int = CHUNK,
        native: NativeModule | None = None,
        work: WorkLimits = WORK_LIMITS,
    ) -> None:
        self.tags = tuple(tags)
        self.stored_tags = (*self.tags, USER_EMAIL)
        self._store = store
        self._clock = clock
        self._placement = DimensionNumbering(max_rows)
        self.rates: Rates | None = None
        self.books = RecalculationPriceBooks()
        self._recalculated = Recalculations()
        self._tag_lists = TagLists()
        self.digests = WorkUnitHasher(b"")  # placeholder until the storage is opened
        self.people: People | None = None  # known names of people, for filters
        # version of the names linked to people, and the dimension made from it
        self._person: tuple[int, DerivedDimension] | None = None
        self.shows_layers = False  # whether restricted people see LAYERS of billed costs
        self._derived: DerivedDimensions = {}
        self._chunk = chunk
        self._packed = native
        self._turn = asyncio.Lock()
        self._reach = 1
        # whether all closed records were counted since the load or a loss
        self._is_caught_up = False
        self._is_lost = False  # whether the totals were lost, and the log is not counted again yet
        self._work = work
        self._has_made_rollup = False
        self._unchecked_work = work.ids_per_month  # sums of units of work since their limit was last checked
        self._not_before = 0.0  # monotonic time until which a heavy user's queries wait
        # change mark ROW_TAGS when the tags of billing rows were read, and these tags
        self._row_tags: tuple[int | None, Sequence[str]] = (None, ())

    async def load(self) -> Ledger:
        """Load how far the log is counted. If that fails, close the store."""
        try:
            self._reach = (await self._read_state())["reach"]
        except BaseException:
            await self._store.close()
            raise
        return self

    @property
    def is_shared(self) -> bool:
        """Return whether several processes share the totals. Only one of them counts at a time."""
        return self._store.shares_log

    def lowest_needed_number(self, topic: str) -> int | None:
        """
        Return the lowest record number that the ledger still needs, so that retention (spool.log.retention)
        keeps it.
        """
        return self._reach if topic == AI_TELEMETRY else None

    async def count_until_cancelled(self, record_log: ReadableLog) -> None:
        """
        Count closed records as they appear, until cancelled. After an error such as a full disk, try again.
        """
        async for _ in record_log.watermark_changes(AI_TELEMETRY):
            # failed attempts are repeated even without a further commit
            while not await self._try_to_count(record_log):
                pass
            await asyncio.sleep(PAUSE_S)

    async def _try_to_count(self, record_log: ReadableLog) -> bool:
        try:
            await self.catch_up(record_log)
            await self.sum_up_and_delete_hours()
        except (NotClosed, TotalsIncomplete) as error:  # another process may have begun a rebuild
            _log.info("the totals wait: %s", error, extra={"action": "ledger_waits"})
            await asyncio.sleep(PAUSE_S)
        except Exception:  # noqa: BLE001 - the supervised loop
            _log.exception("the totals cannot be written", extra={"action": "ledger_waits"})
            await asyncio.sleep(RETRY_S)
        else:
            return True
        return False

    async def track_other_processes(self, record_log: ReadableLog) -> None:
        """
        Track how far other processes have counted, until cancelled. Continue a rebuild that no process counts
        anymore, because its process ended.
        """
        reach, moved_at = 0, time.monotonic()

        async def track() -> None:
            nonlocal reach, moved_at
            is_rebuilding = await self._refresh_reach(record_log)
            now = time.monotonic()
            if self._reach != reach:
                reach, moved_at = self._reach, now
            elif is_rebuilding and now - moved_at >= ABANDONED_S:
                await self._try_to_count(record_log)

        # other processes count and rebuild even while the log is idle
        await repeat(
            track, every_s=PAUSE_S, failed="the totals cannot be read", action="ledger_waits", retry_s=RETRY_S
        )

    async def _refresh_reach(self, record_log: ReadableLog) -> bool:
        """Read how far the log is counted, by any process. Return whether a rebuild runs."""
        async with self._turn:
            state = await self._read_state()
            self._reach = state["reach"]
            self._is_caught_up |= self._reach >= record_log.lowest_open_number(AI_TELEMETRY)
            return bool(state["rebuilding"])

    async def catch_up(self, record_log: ReadableLog) -> int:
        """
        Count all records that are closed when this call first gets its turn, and continue a rebuild. Return
        the reach (the next number to count).

        Later records wait, because under constant load this call would never end. A caller that used far more
        processor time than another active caller pauses first.
        """
        return await self._count_closed_records(record_log, continues_rebuild=True)

    async def require_complete_totals(self, record_log: ReadableLog) -> None:
        """
        Count all closed records before a query. Raises TotalsIncomplete while a rebuild runs, without waiting
        for it.
        """
        if self._turn.locked():  # perhaps by a transaction of a rebuild, which takes seconds
            counting.require_no_rebuild(await self._read_state())
        await self._count_closed_records(record_log, continues_rebuild=False)

    def require_caught_up(self) -> None:
        """
        Raise TotalsIncomplete after a start or a loss of the totals, until the log is counted. Background tasks
        that do not count records call this before they read.
        """
        if not self._is_caught_up:
            raise TotalsIncomplete(
                "The totals are counted after a start. Repeat the request when this is finished."
            )

    async def _count_closed_records(self, record_log: ReadableLog, *, continues_rebuild: bool) -> int:
        await self._yield_to_lighter_work()
        tries, limit, began = 0, 0, 0.0
        while True:
            # between two transactions of a rebuild, queries get their turn and are refused
            async with self._turn:
                state = await self._read_state()
                if not continues_rebuild:
                    counting.require_no_rebuild(state)
                if self.is_shared:  # other processes count and rebuild as well
                    self._reach = state["reach"]
                elif record_log.lowest_open_number(AI_TELEMETRY) < self._reach and not limit:
                    # sums and log are separate files, so the log was lost or restored
                    await self._restart_at_replaced_log(record_log.lowest_open_number(AI_TELEMETRY))
                if not limit:
                    limit, began = record_log.lowest_open_number(AI_TELEMETRY), time.monotonic()
                below = min(limit, record_log.lowest_open_number(AI_TELEMETRY))
                if self._reach >= below:
                    self._is_caught_up, self._is_lost = True, False
                    now = time.monotonic()
                    self._not_before = max(self._not_before, now + min(MOST_REST_S, REST * (now - began)))
                    return self._reach
                try:
                    await self._count_next_records(record_log, below)
                    continue
                except NotClosed:  # wait, because the watermark has fallen
                    if (tries := tries + 1) == TRIES:
                        raise
            await asyncio.sleep(RETRY_CLOSED_S)

    async def _yield_to_lighter_work(self) -> None:
        work = current_work()
        rest_s = self._not_before - time.monotonic()
        if rest_s > 0 and work is not None and work.has_party_with_far_less_use_submitted_lately():
            await asyncio.sleep(rest_s)

    async def _restart_at_replaced_log(self, below_number: int) -> None:
        _log.error(
            "the log ends before records that the totals already include, because it was lost or "
            "restored. The totals stay unchanged",
            extra={"action": "log_begun_anew", "reach": self._reach, "number": below_number},
        )
        seen = self._reach
        self._reach = await self._change_rows(
            lambda rows: counting.restart_counting_at_replaced_log(
                rows, seen_next_number=seen, next_number=below_number
            )
        )

    async def _count_next_records(self, record_log: ReadableLog, below_number: int) -> None:
        first = self._reach
        seen = state, frozen = await self._read_rows(
            lambda rows: (read_state(rows), rows.periods_frozen_for_rebuild())
        )
        if state["reach"] != first:  # another process counted these records, or counting was restarted
            self._reach = state["reach"]
            return
        rebuilding = state["rebuilding"]
        last = min(first + self._chunk, below_number, rebuilding if rebuilding > first else below_number) - 1

        def is_record_counted_in_frozen_period(record_number: int, hour: int) -> bool:
            return (
                record_number < rebuilding and counting.finest_stored_period(hour, state["hourly"]) in frozen
            )

        recalculated = await self._read_recalculations(state)
        lists = await self._stored_tag_lists(state)
        new_list = lists.tag_list_to_add(self.stored_tags, first_record_number=first)
        if new_list is not None:
            lists = lists.with_list(new_list)
        sums = HourlySums(
            self.stored_tags,
            unit_hasher=self.digests,
            skip=is_record_counted_in_frozen_period if frozen else None,
            restated=recalculated.recalculated_call if recalculated.mark else None,
            tags_of=lists.tags_at if len(lists.lists) > 1 else None,
        )
        needs_records = frozen or first < recalculated.reach
        packed = None if needs_records or self._packed is None or not self._packed.is_on else self._packed
        try:
            count, gaps, oldest = await self._add_up_log(record_log, sums, first, last, packed)
        except NativeFault:
            # The sums may contain a part of these records, so they are dropped. The next attempt works
            # without the compiled module if needed.
            return
        missed = MissedNumbers()
        if gaps:
            whole = counting.first_complete_hour(await self._arrival_of_oldest_record(record_log, oldest))
            missed = MissedNumbers(last - first + 1 - count, gaps[0][0], gaps[-1][1], whole)
        if gaps and not rebuilding:
            _log.error(
                "%d record numbers have no record that could be counted, because the records were "
                "deleted or lost earlier",
                missed.count,
                extra={"action": "numbers_missed", "first": first, "last": last},
            )

        def add_record_sums(ledger_rows: LedgerRows) -> int:
            if (
                read_state(ledger_rows),
                ledger_rows.periods_frozen_for_rebuild(),
            ) != seen:  # the count was restarted, so the read records may be outdated
                return read_state(ledger_rows)["reach"]
            return counting.add_counted_sums(
                ledger_rows,
                sums,
                self._placement,
                first_number=first,
                next_number=last + 1,
                missed_numbers=missed,
                tags=new_list,
            )

        self._reach = await self._change_rows(add_record_sums)
        if self._reach != last + 1:
            self._placement.forget_numbers()
        self._unchecked_work += sum(len(units) for hours in sums.work.values() for units in hours.values())

    async def _read_recalculations(self, state_values: Mapping[str, int]) -> Recalculations:
        if state_values[counting.RECALCULATED] != self._recalculated.mark:
            self._recalculated = await self._read_rows(self.books.recalculations)
        return self._recalculated

    async def _stored_tag_lists(self, state_values: Mapping[str, int]) -> TagLists:
        if state_values[TAGGED] != self._tag_lists.mark:
            self._tag_lists = await self._read_rows(read_tag_lists)
        return self._tag_lists

    async def _add_up_log(
        self,
        record_log: ReadableLog,
        sums: HourlySums,
        first_number: int,
        last_number: int,
        native: NativeModule | None,
    ) -> tuple[int, list[tuple[int, int]], LogEntry | None]:
        adding = None
        if native is not None:
            from spool.packed.sums import PackedSums  # imported only for the compiled module

            adding = PackedSums(native, sums)
        step = STEP if native is None else PACKED_STEP
        count, following = 0, first_number
        gaps: list[tuple[int, int]] = []
        oldest: LogEntry | None = None
        for number in range(first_number, last_number + 1, step):
            upto = min(number + step - 1, last_number)
            for entry in await record_log.read(
                AI_TELEMETRY, number, upto, must_be_closed=True, native=native
            ):
                oldest = oldest or entry
                count += len(entry.records)
                gaps += [(following, entry.first)] if entry.first > following else []
                following = entry.last + 1
                if adding is not None:
                    await adding.add_entry(entry)
                    continue
                for part in entry.split(max_records_at_once()):
                    sums.add_entries([part])
                    await pause_for_others()
        gaps += [(following, last_number + 1)] if following <= last_number else []
        if adding is not None:
            await adding.move_rows_to_sums()
        return count, gaps, oldest

    async def _arrival_of_oldest_record(
        self, record_log: ReadableLog, oldest_read_entry: LogEntry | None
    ) -> float:
        if oldest_read_entry is None:
            oldest = await _find_lowest_stored_record_number(record_log)
            # if the log is empty, no entry has this number
            oldest_read_entry = next(iter(await record_log.read(AI_TELEMETRY, oldest, oldest)), None)
        return oldest_read_entry.committed_at if oldest_read_entry else self._clock.now()

    async def make_rollups_until_cancelled(self) -> None:
        """
        Make missing rollups until cancelled, with at most a fifth of one core. After an error such as a full
        disk, try again.
        """
        wait_s = ROLL_WAIT_S

        async def wait_and_make_rollup() -> None:
            nonlocal wait_s
            await asyncio.sleep(wait_s)
            wait_s = ROLL_WAIT_S
            begun = time.monotonic()
            if await self.make_next_rollup():
                wait_s = ROLL_REST * (time.monotonic() - begun)

        await repeat(
            wait_and_make_rollup, every_s=0.0, failed="rollups cannot be written", action="ledger_waits"
        )

    async def make_next_rollup(self) -> bool:
        """Make the next rollup. Return False if none is missing, or while a rebuild runs."""
        from spool.ledger.days import rollups

        async with self._turn:
            state = await self._read_rows(read_state)
            if state["rebuilding"]:
                return False
            now = int(conservative_now_for_deletion(self._clock))
            # after a rollup was made, another is usually missing, so skip this search: the write searches as well
            if not self._has_made_rollup and not await self._read_rows(
                lambda rows: rollups.next_missing_rollup(rows, state["daily"], now)
            ):
                return False
            # no daily sum changes, so the numbers that other processes have in memory stay valid
            self._has_made_rollup = await self._write_rows(
                lambda rows: rollups.make_next_rollup(rows, read_state(rows)["daily"], now)
            )
            return self._has_made_rollup

    async def invalidate_differing_rollups(self, *, with_pauses: bool = False) -> int:
        """
        Make rollups that differ from their days invalid, so that they are made again. Return their number.
        `with_pauses`: pause between rollups.
        """
        if not (rollup_keys := await self._read_rows(lambda rows: rows.valid_rollup_keys(0, END_OF_TIME))):
            return 0
        from spool.ledger.days import rollups

        wrong = []
        for rollup_key in sorted(rollup_keys):
            begun = time.monotonic()
            if await self._read_rows(partial(rollups.is_valid_rollup_different, rollup_key=rollup_key)):
                wrong.append(rollup_key)
            await asyncio.sleep(ROLL_REST * (time.monotonic() - begun) if with_pauses else 0)
        if not wrong:
            return 0
        async with self._turn:
            return await self._change_rows(lambda rows: rollups.invalidate_differing_rollups(rows, wrong))

    async def sum_up_and_delete_hours(self) -> int:
        """
        Make the daily sums of finished days, and delete old hourly sums. Return the number of deleted sums.
        """
        async with self._turn:
            if (await self._read_state())["rebuilding"]:
                return 0
            now = int(conservative_now_for_deletion(self._clock))
            while await self._change_rows(lambda rows: counting.sum_up_next_unsummed_day(rows, now - LATE_S)):
                pass
            old = (now - HOURS_KEPT_S) // DAY_S * DAY_S
            removed = 0
            while (
                dropped := await self._change_rows(
                    lambda rows: counting.delete_hourly_sums_of_oldest_day(rows, old)
                )
            ) is not None:
                removed += dropped
            # only if hours were deleted, which happens about once a day
            if removed:
                from spool.ledger.days.rollups import drop_old_rollups

                self._placement.forget_numbers()
                await self._change_rows(lambda rows: counting.expire_units(rows, self._work, now))
                await self._change_rows(lambda rows: rows.delete_unused_dimension_sets())
                await self._change_rows(lambda rows: drop_old_rollups(rows, read_state(rows)["daily"]))
        await self._unlist_units_beyond_limit(now)
        return removed

    async def _unlist_units_beyond_limit(self, now: int) -> None:
        """
        Add calls of units of work beyond the monthly limit to the sum of unlisted units, which has no names.
        This takes several transactions, because one could block counting and queries for seconds.
        """
        if (unchecked := self._unchecked_work) <= self._work.ids_per_month // 10:
            return
        for month in counting.last_and_this_month(now):
            choose = partial(
                counting.unit_ids_to_merge_into_other,
                max_units_per_kind=self._work.ids_per_month,
                now=now,
                month=month,
            )
            for unit, ids in await self._read_totals(choose):
                for first in range(0, len(ids), MOST_UNLISTED):
                    unlist = partial(
                        _merge_units_into_other, unit_kind=unit, ids=ids[first : first + MOST_UNLISTED]
                    )
                    async with self._turn:
                        await self._change_rows(unlist)
        self._unchecked_work -= unchecked

    async def rename_people(
        self, new_name_of: Callable[[str], str], rename_records_below: Callable[[int], Awaitable[T]]
    ) -> tuple[int, T]:
        """
        Rename people in all sums and, by `rename_records_below`, in the log. It is called with a record number
        up to which it must rename at least, and a second time if another process has counted further meanwhile.
        Return the number of changed sets of dimensions and the last result.

        This process counts nothing meanwhile. Records that another process has read before are not counted.
        """

        def rename_sums(rows: LedgerRows) -> tuple[int, int]:
            _mark_records_as_renamed(rows)
            renamed = rows.rename_dimensions(partial(_rename_in_dimensions, renamed=new_name_of))
            return renamed, read_state(rows)["reach"]

        async with self._turn:
            result = await rename_records_below(self._reach)
            self._placement.forget_numbers()
            count, reach = await self._change_rows(rename_sums)
            self._remembered_costs.forget()
            if reach > self._reach:
                result = await rename_records_below(reach)
            return count, result

    async def devices_of_renamed(self, renamed: Callable[[str], str]) -> set[str]:
        devices = set[str]()

        def collect_device(dimensions: Dimensions) -> Dimensions:
            if _rename_in_dimensions(dimensions, renamed) != dimensions:
                devices.add(dimensions.device)
            return dimensions

        await self._read_rows(lambda rows: rows.rename_dimensions(collect_device))
        return devices

    async def overwrite_deleted_data(self) -> str:
        async with self._turn:
            return await self._store.overwrite_deleted_data()

    async def rebuild(self, record_log: ReadableLog) -> Rebuilt:
        """
        Reset every hour of which the log has all records, to be counted again. Other hours stay.

        This returns at once: `catch_up` counts, also after a restart. Until then, these hours show only what
        is counted again. Records that another process has read before are not counted. Raises NotAllowed while
        another rebuild runs.
        """
        async with self._turn:
            first = await _find_lowest_stored_record_number(record_log)

            def begin_rebuild(rows: LedgerRows) -> tuple[int, int, int]:
                if read_state(rows)["rebuilding"]:  # perhaps by another process
                    raise NotAllowed("a rebuild of the totals is still running")
                _mark_records_as_renamed(rows)
                return counting.begin_rebuild_and_count_periods(rows, first, self.stored_tags)

            periods, spans, border = await self._change_rows(begin_rebuild)
            self._placement.forget_numbers()
            self._reach = min(first, self._reach)
        return Rebuilt(periods=periods, kept=spans, border=_datetime_or_none(border), first=first)

    async def apply_links(self, unit_links: WorkUnitLinks) -> None:
        """
        Make all queries use these links between units of work. Does nothing if these links are already used.
        """
        if (await self._read_rows(lambda rows: rows.state_values())).get(
            LINKS_MARK, 0
        ) != unit_links.data_version:
            async with self._turn:
                await self._change_rows(lambda rows: rows.replace_links(unit_links))

    async def expiry_time_and_recent_pull_requests_and_tickets(
        self,
    ) -> tuple[int, Collection[tuple[str, int]]] | None:
        """
        Return the time (epoch seconds) before which pull requests and tickets expire, and kind and number of
        each with calls since. None if the sums do not reach back to that time or are incomplete.
        """
        since = int(conservative_now_for_deletion(self._clock) - self._work.retention_units_s)
        try:
            span = await self.stored_span()
            if span is None or span[0].timestamp() > since:
                return None
            return since, await self._read_totals(lambda rows: rows.pull_requests_and_tickets_since(since))
        except TotalsIncomplete:
            return None

    async def has_units_merged_into_other(self) -> bool:
        return bool(await self.count_of_merges_into_other())

    async def count_of_merges_into_other(self) -> int:
        """Return a number that increases whenever units of work are unlisted."""
        return (await self._read_rows(lambda rows: rows.state_values())).get(UNLISTS, 0)

    async def count_listed_and_unlisted_units(self, since: datetime) -> dict[str, tuple[int, int]]:
        """
        Return by kind how many units of work with calls since a time are listed, and how many other units
        exist.
        """
        start = int(since.timestamp())

        def count_units(ledger_rows: LedgerRows) -> dict[str, tuple[int, int]]:
            unlisted = ledger_rows.merged_unit_count_by_kind()
            return {
                unit: (listed, unlisted[unit])
                for unit, listed in ledger_rows.individual_unit_count_by_kind(start, END_OF_TIME).items()
            }

        return await self._read_totals(count_units)

    async def is_unit_merged_into_other(self, unit_kind: str, id: int) -> bool:
        return bool(await self._read_rows(lambda rows: rows.ids_merged_into_other(unit_kind, [id])))

    async def compare_and_note_differences(
        self, record_log: ReadableLog, *, with_pauses: bool = False
    ) -> LedgerComparison:
        """
        Compare the sums with the log in all periods whose counted records are all stored, and store the
        result. Reads the whole log.
        """
        comparison = await compare_log_with_totals(
            record_log,
            self._read_rows,
            oldest=lambda: _find_lowest_stored_record_number(record_log),
            recalculations=self._read_recalculations,
            tag_lists=self._stored_tag_lists,
            unit_hasher=self.digests,
            with_pauses=with_pauses,
        )
        differing = len(comparison.unexplained_differences())
        if comparison.is_done and differing != (await self._read_state())["differing"]:
            async with self._turn:
                await self._change_rows(lambda rows: rows.set_state(differing=differing))
        return replace(comparison, rollups=await self.invalidate_differing_rollups(with_pauses=with_pauses))

    async def is_comparison_due(self, now: float) -> bool:
        """
        Return whether the last comparison is old, or a record was missed or a difference found since then.
        """
        state = await self._read_state()
        if not self._is_caught_up or state["rebuilding"]:
            return False
        is_old = not state["compared"] <= now < state["compared"] + comparing.EVERY_S
        return is_old or state["missed"] > state["settled"] or state["differing"] != state["left"]

    async def replace_period(
        self, record_log: ReadableLog, compared: LedgerComparison, period_key: PeriodStart
    ) -> bool:
        """
        Replace a period's sums by a recount. Return False if records were deleted or others counted
        meanwhile.
        """
        lowest, highest = compared.numbers[period_key]
        recount = await self._recount_of(
            [period_key],
            record_numbers=(lowest, highest + 1),
            later=compared.ends.get(period_key, compared.end),
            hourly=compared.hourly,
        )
        if (
            not await recount.recount_range_and_check_complete(record_log)
            or recount.count_calls(period_key) != compared.calls[period_key]
            or not await recount.recount_records_until_and_check_complete(record_log, self._reach)
        ):
            return False
        return await self._replace_by_recount(record_log, recount, period_key)

    async def _recount_of(
        self,
        period_keys: Collection[PeriodStart],
        *,
        record_numbers: tuple[int, int],
        later: int,
        hourly: int,
    ) -> comparing.PeriodRecount:
        state = await self._read_state()
        return comparing.PeriodRecount(
            period_keys,
            record_numbers=record_numbers,
            later=later,
            hourly=hourly,
            tag_lists=await self._stored_tag_lists(state),
            unit_hasher=self.digests,
            recalculated=await self._read_recalculations(state),
        )

    async def _replace_by_recount(
        self,
        record_log: ReadableLog,
        recount: comparing.PeriodRecount,
        period_key: PeriodStart,
        *,
        keeps_calls: bool = False,
    ) -> bool:
        replace_sums = partial(
            comparing.replace_period,
            placement=self._placement,
            recount=recount,
            period_key=period_key,
            keeps_calls=keeps_calls,
        )
        async with self._turn:
            # another process may count between the reads
            for _ in range(TRIES):
                reach = (await self._read_state())["reach"]
                if (
                    reach < recount.end_record_number
                    or not await recount.recount_records_until_and_check_complete(record_log, reach)
                ):
                    return False
                if await self._change_rows(replace_sums):
                    return True
        return False

    async def sum_day_again_if_possible(self, day: int) -> bool:
        """Make a day's sums from its hours again. Return False if the hours are deleted."""
        async with self._turn:
            return await self._change_rows(lambda rows: comparing.sum_day_again_if_possible(rows, day))

    async def store_comparison_and_return_missed_count(
        self,
        compared: LedgerComparison,
        *,
        calls_added_by_repair: int,
        is_ledger_repaired: bool,
        remaining_differences: int,
        now: int,
    ) -> int:
        async with self._turn:
            return await self._change_rows(
                lambda rows: comparing.store_comparison_and_return_missed_count(
                    rows,
                    compared,
                    calls_added_by_repair=calls_added_by_repair,
                    is_ledger_repaired=is_ledger_repaired,
                    remaining_differences=remaining_differences,
                    now=now,
                )
            )

    async def count_differing_periods(self) -> int:
        return (await self._read_state())["differing"]

    async def comparison_state(self) -> LedgerComparisonState:
        state = await self._read_state()
        return LedgerComparisonState(
            missed=state["missed"],
            looked_for=min(state["missed"], state["settled"]),
            differing=state["differing"],
            compared_at=_datetime_or_none(state["compared"]),
        )

    async def recalculations(self) -> Sequence[Recalculation]:
        """Return the recalculations of estimates, the oldest first."""
        return await self._read_rows(lambda rows: rows.recalculations())

    async def reprice(
        self, record_log: ReadableLog, pricer: Pricer, *, since: datetime, began: float | None = None
    ) -> Repriced:
        """
        Compute the estimates of all calls since a time again. Periods whose sums do not suffice are then counted
        again from their records, one by one. If this is interrupted, the next comparison with the log repairs
        them. `began`: when the prices were read, if not now.

        Raises NotKept if `since` is within the hour or day of a stored sum.
        """
        start = since.timestamp()
        began_at = self._clock.now() if began is None else began
        lowest_stored_number = await _find_lowest_stored_record_number(record_log)

        def reprice_sums_and_store(ledger_rows: LedgerRows) -> RepricedSums:
            state = read_state(ledger_rows)
            counting.require_no_rebuild(state)
            spans.check_no_sum_is_split(ledger_rows, state["hourly"], [start])
            done = reprice_sums(ledger_rows, self._placement, pricer, int(start), lowest_stored_number)
            self.books.store_recalculation(ledger_rows, pricer, since_s=int(start), began=began_at)
            if done.places:
                ledger_rows.set_state(compared=0)
            return done

        async with self._turn:
            done = await self._change_rows(reprice_sums_and_store)
        groups = await self._read_rows(lambda rows: comparing.groups_of_periods(rows, done.places))
        for group in groups:
            await self._recount_repriced_periods(record_log, pricer, group, done)
        return done.result()

    async def _recount_repriced_periods(
        self,
        record_log: ReadableLog,
        pricer: Pricer,
        group: tuple[int, Sequence[PeriodStart]],
        repriced: RepricedSums,
    ) -> None:
        """Count periods again from their records. If some are unreadable, use what the sums suffice for."""
        first_number, period_keys = group
        state = await self._read_state()
        recount = await self._recount_of(
            period_keys,
            record_numbers=(first_number, state["reach"]),
            later=state["reach"],
            hourly=state["hourly"],
        )
        is_whole = await recount.recount_range_and_check_complete(record_log)
        for period_key in period_keys:
            read_estimates = partial(estimates_by_dimensions, period_key=period_key)
            before = await self._read_rows(read_estimates)
            if is_whole and await self._replace_by_recount(record_log, recount, period_key, keeps_calls=True):
                repriced.note_recount(before, await self._read_rows(read_estimates))
            else:
                reprice = partial(
                    reprice_period,
                    placement=self._placement,
                    pricer=pricer,
                    period_key=period_key,
                    repriced=repriced,
                )
                async with self._turn:
                    await self._change_rows(reprice)

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """
        Return the exact sums of a query.

        Raises ValueError for an unknown dimension, NotKept if a period splits a stored sum, and AskedTooMuch
        beyond the limit of the running request.
        """
        [result] = await self.costs_of_queries([query])
        return result

    async def costs_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        limit, now = limit_of_running_query(), self._clock.now()
        prepared = self._prepare_queries(queries, now)

        def answer_cost_query(ledger_rows: LedgerRows, query: CostQuery) -> Sequence[CostRow]:
            if self._has_only_cacheable_dimensions(query):
                return self._remembered_costs.costs(ledger_rows, query, limit, self.rates, now)
            return query_costs(ledger_rows, query, limit, self.rates)

        results = await self._read_totals(lambda rows: [answer_cost_query(rows, query) for query in prepared])
        _note_people_in_results(queries, results)
        return results

    async def run_lineage(
        self,
        unit_kind: str,
        names: Sequence[str],
        max_runs: int,
        *,
        includes_runs_below: bool,
        limiting_query: CostQuery | None = None,
    ) -> Sequence[RunLineage]:
        asked = [self.digests.to_digest(unit_kind, name) for name in names] if unit_kind in TREES else names
        return await self._read_totals(
            lambda rows: rows.run_lineage(
                unit_kind,
                asked,
                max_runs,
                includes_runs_below=includes_runs_below,
                limiting_query=limiting_query,
            )
        )

    async def usages_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[UsageByGroup]:
        """Return the groups' sums of queries that differ only in their times (see spool.ledger.usages)."""
        from spool.ledger.usages import usages_by_group

        limit, now = limit_of_running_query(), self._clock.now()
        prepared = self._prepare_queries(queries, now)
        if not all(map(self._has_only_cacheable_dimensions, prepared)):
            results = await self._read_totals(
                lambda rows: list(usages_by_group(rows, prepared, limit, self.rates))
            )
        else:
            results = await self._read_totals(
                lambda rows: self._remembered_costs.usages(rows, prepared, limit, self.rates, now)
            )
        _note_people_in_results(queries, results)
        return results

    def _has_only_cacheable_dimensions(self, query: CostQuery) -> bool:
        """
        Return whether every derived dimension of the query is the ledger's own or made by
        `cached_dimension`. Results by other dimensions are not cached, because their values may change.
        """
        own = {**self._derived, _PERSON: self.person_dimension}
        is_lasting = self._remembered_costs.has_dimension
        return all(each is own.get(name) or is_lasting(each) for name, each in query.derived.items())

    def cached_dimension(
        self, depends_on: object, define: Callable[[], DerivedDimension]
    ) -> DerivedDimension:
        """
        Return the same dimension object until `depends_on`, a link or a person's name changes, so that
        results by it can be cached. The dimension's values may depend on nothing else.
        """
        version = None if self.people is None else self.people.persons.version
        return self._remembered_costs.dimension((version, depends_on), define)

    def _prepare_queries(self, queries: Sequence[CostQuery], now: float) -> list[CostQuery]:
        prepared = []
        for query in queries:
            if not query.stated_names:  # read stated names only for files and rules, not for a page
                check_may_view_people(query.include)
            if self.people is not None and (query.include or query.exclude):
                matched = self.people.expand_filter
                query = replace(query, include=matched(query.include), exclude=matched(query.exclude))
            if query.has_unit_filters:
                digested = self.digests.filters_with_digests
                query = replace(query, include=digested(query.include), exclude=digested(query.exclude))
            if query.arranged:
                from spool.ledger.billed import extend_to_midnight

                query = extend_to_midnight(query, now)
            self.check_work_by_people_allowed(query.used_dimensions)
            query = self._group_by_person(query)
            derived = {**self._derived, **query.derived}
            known = {name: derived[name] for name in query.used_dimensions if name in derived}
            prepared.append(replace(query, derived=known))
        return prepared

    @property
    def person_dimension(self) -> DerivedDimension | None:
        """Return the dimension that shows linked names as one person, or None without links."""
        if self.people is None or not self.people.persons:
            return None
        version = self.people.persons.version
        if self._person is None or self._person[0] != version:
            self._person = version, _person_dimension(self.people)
        return self._person[1]

    def _group_by_person(self, query: CostQuery) -> CostQuery:
        query = _filter_by_user_or_email(query, str if self.people is None else self.people.shown_name)
        person = self.person_dimension
        if person is None or query.stated_names or USER not in query.group_by:
            return query
        group_by = [_PERSON if name == USER else name for name in query.group_by]
        return replace(query, group_by=group_by, derived={**query.derived, _PERSON: person})

    def check_work_by_people_allowed(self, dimension_names: Collection[str]) -> None:
        """
        Raise Invalid if the named dimensions combine sessions or runs with people or devices, and the
        settings forbid this.
        """
        if self._work.people or not any(name in TREES for name in dimension_names):
            return
        sources = {
            each for name in dimension_names if name in self._derived for each in self._derived[name].sources
        }
        if not sources.union(dimension_names).isdisjoint(OF_PEOPLE):
            raise Invalid(
                "costs by session or run cannot be combined with users or devices here ([work] people is false)"
            )

    @cached_property
    def _remembered_costs(self) -> RememberedCosts:
        from spool.ledger.days.cached_results import RememberedCosts

        return RememberedCosts()

    async def data_versions_of_period(self, since: datetime, until: datetime) -> DataVersions:
        """Return marks for a period. If any process changes a sum of the period, it gets other marks."""
        from spool.ledger.days.cached_results import data_versions_of_period

        return await self._read_rows(lambda rows: data_versions_of_period(rows.state_values(), since, until))

    async def sums_of_day(
        self, day: int, *, max_sums: int, chosen: Callable[[Dimensions], bool] | None = None
    ) -> Sequence[DaySum]:
        """
        Return the most expensive sums of a day (epoch seconds), at most `max_sums`, as `priceable_day_sums` does.
        """
        return await self._read_totals(lambda rows: priceable_day_sums(rows, day, max_sums, chosen))

    async def sums_of_days(
        self, days: Sequence[int], *, max_sums: int, chosen: Callable[[Dimensions], bool] | None = None
    ) -> Sequence[Sequence[DaySum]]:
        """
        Return the `max_sums` most expensive sums of each UTC day, one list per set of dimensions, all read at one
        moment.
        """
        return await self._read_totals(lambda rows: day_sums_by_dimensions(rows, days, max_sums, chosen))

    async def usage_of_day(self, day: int) -> Sequence[UsageSum]:
        """Return the calls of a day (epoch seconds) that a provider may have billed."""
        return await self._read_totals(lambda rows: day_usage(rows, day))

    async def detailed_usage_of_day(self, day: int) -> Sequence[UsageSum]:
        return await self._read_totals(lambda rows: day_usage(rows, day, whole=True))

    async def store_billed_days(self, billed_days: Sequence[tuple[BilledDay, Sequence[BilledSum]]]) -> int:
        """Replace the billed costs of days in one transaction. A day whose digest is unchanged stays."""

        def store_changed_days(ledger_rows: LedgerRows) -> int:
            return sum(_put_billed_if_changed(ledger_rows, day, sums) for day, sums in billed_days)

        async with self._turn:
            return await self._change_rows(store_changed_days)

    async def delete_billed_day(self, day: int, provider: str) -> None:
        async with self._turn:
            await self._change_rows(lambda rows: rows.delete_billed_day(day, provider))

    async def billed_days(self, since_s: int, until_s: int) -> Sequence[BilledDay]:
        return await self._read_rows(lambda rows: rows.billed_days(since_s, until_s))

    async def billed_corrections(self) -> Sequence[BilledDay]:
        """Return the corrections of closed months, by the day they are added to."""
        days = await self._read_rows(lambda rows: rows.billed_days(0, END_OF_TIME))
        return [day for day in days if day.corrected_day]

    async def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        return await self._read_rows(lambda rows: rows.billed_sums(day, provider))

    async def count_records_lost_before_counting(self) -> int:
        return (await self._read_state())["missed"]

    async def start_of_complete_hours(self) -> int:
        """Return the time (epoch seconds) from which on every hour includes all its records."""
        return (await self._read_state())["whole"]

    async def earliest_moment_with_hourly_sums(self, since: datetime) -> datetime:
        hourly = _datetime_or_none((await self._read_state())["hourly"])
        return since if hourly is None else max(since, hourly)

    async def hourly_sums_start(self) -> datetime:
        return datetime.fromtimestamp((await self._read_state())["hourly"], UTC)

    async def check_hours_stored(self, since: datetime) -> None:
        """Raise NotKept if some time after `since` has only daily sums."""
        spans.check_hourly_sums_exist((await self._read_state())["hourly"], since.timestamp())

    async def stored_span(self) -> tuple[datetime, datetime] | None:
        """Return the start of the first and of the last hour or day with sums."""

        def read_span_bounds(ledger_rows: LedgerRows) -> list[int]:
            return [start for width in (DAY_S, HOUR_S) for start in ledger_rows.first_and_last_start(width)]

        starts = await self._read_totals(read_span_bounds)
        if not starts:
            return None
        return datetime.fromtimestamp(min(starts), UTC), datetime.fromtimestamp(max(starts), UTC)

    async def first_period_with_dimension(self, dimension: str) -> datetime | None:
        """Return the start of the first hour or day in which the dimension has a value, or None."""
        check_dimension(dimension)

        def read_first_known(ledger_rows: LedgerRows) -> int | None:
            starts = (
                ledger_rows.first_period_start_with_dimension(width, dimension) for width in (DAY_S, HOUR_S)
            )
            return min((start for start in starts if start is not None), default=None)

        start = await self._read_totals(read_first_known)
        return None if start is None else datetime.fromtimestamp(start, UTC)

    async def values(self, dimension: str | DerivedDimension, max_values: int = MOST_VALUES) -> Sequence[str]:
        """Return a dimension's values. Raises ValueError if the dimension is unknown."""
        resolved: str | DerivedDimension = dimension
        if dimension == USER:
            resolved = self.person_dimension or USER
        elif not isinstance(dimension, DerivedDimension):
            resolved = self._derived.get(dimension, dimension)
        if isinstance(resolved, str):
            check_dimension(resolved)
        return await self._read_rows(lambda rows: rows.values(resolved, max_values))

    async def value_combinations(
        self, dimensions: Sequence[str], read: Callable[[Iterator[Sequence[tuple[str, ...]]]], T]
    ) -> T:
        """
        Return the result of `read`, which gets the combinations of these dimensions' values: many at a time,
        some repeatedly. `read` may run in any thread.
        """
        for dimension in dimensions:
            check_dimension(dimension)
        return await self._read_rows(lambda rows: read(rows.value_combinations(dimensions)))

    async def work_unit_names_containing(
        self, text: str, max_units: int, skipped_units: int
    ) -> Mapping[str, Sequence[str]]:
        """
        Return by kind at most `max_units` names of units of work that contain a text, the best matches first.
        Sessions and runs have no stored names.
        """
        names = await self._read_rows(
            lambda rows: rows.work_unit_names_containing(text, max_units, skipped_units)
        )
        named = [unit for unit in UNITS if UNITS[unit].is_named]
        return {
            unit: [name for id, name in names if id == unit_number_from_name_or_digest(unit, name)]
            for unit in named
        }

    async def tag_values(self) -> Sequence[TagValues]:
        values_by_tag = {name: TagValues(name=f"{TAG}{name}") for name in self.tags}
        for name, value, of_calls, of_rows in await self._read_rows(
            lambda rows: rows.tag_values_in_calls_and_billing_rows()
        ):
            if of_rows and name not in values_by_tag:
                values_by_tag[name] = TagValues(name=f"{TAG}{name}")
            if name in values_by_tag:
                values_by_tag[name].add_value(value, in_calls=of_calls, in_billing_rows=of_rows)
        return [values_by_tag[name] for name in (*self.tags, *sorted(values_by_tag.keys() - {*self.tags}))]

    async def billing_row_tags(self) -> Sequence[str]:
        """Return the tags, as dimensions, that billing rows have but calls do not."""

        def read_row_tags(ledger_rows: LedgerRows) -> tuple[int | None, Sequence[str]]:
            mark = ledger_rows.state_values().get(counting.ROW_TAGS)
            if mark in (None, self._row_tags[0]):
                return self._row_tags
            names = {
                name for name, _, _, of_rows in ledger_rows.tag_values_in_calls_and_billing_rows() if of_rows
            }
            return mark, sorted(f"{TAG}{name}" for name in names.difference(self.tags))

        self._row_tags = await self._read_rows(read_row_tags)
        return self._row_tags[1]

    async def has_values_merged_into_other(self) -> bool:
        """Return whether some sums join values that were too many to keep apart."""
        is_joint = DerivedDimension(
            name=OTHER,
            label=OTHER,
            sources=("user",),
            value=lambda sources: "yes" if OTHER in sources else "",
        )
        return bool(await self.values(is_joint))

    def set_derived_dimensions(self, dimensions: Sequence[DerivedDimension]) -> None:
        """Replace the derived dimensions that costs can be grouped and filtered by."""
        self._derived = {dimension.name: dimension for dimension in dimensions}

    def derived_dimensions(self) -> Sequence[DerivedDimension]:
        return tuple(self._derived.values())

    def dimension_label(self, dimension: str) -> str:
        derived = self._derived.get(dimension)
        return dimension if derived is None else derived.label

    def builtin_and_tag_dimensions(self) -> Sequence[str]:
        return (*DIMENSIONS, *(f"{TAG}{name}" for name in self.tags))

    def dimensions(self) -> Sequence[str]:
        return (*self.builtin_and_tag_dimensions(), *self._derived)

    async def state(self, *, counts_rows: bool = True) -> LedgerState:
        """
        Return the state. `counts_rows`: also count the stored sums, which takes a second for millions of
        sums.
        """
        state, rows = await self._read_rows(
            lambda rows: (read_state(rows), rows.count_rows() if counts_rows else 0)
        )
        return LedgerState(
            reach=state["reach"],
            rebuilding=state["rebuilding"],
            missed=state["missed"],
            damaged=state["damaged"],
            absurd=state["absurd"],
            rows=rows,
            hourly_since=_datetime_or_none(state["hourly"]),
            whole_since=_datetime_or_none(state["whole"]),
        )

    async def close(self) -> None:
        async with self._turn:
            await self._store.close()

    async def _read_state(self) -> dict[str, int]:
        return await self._read_rows(read_state)

    async def _change_rows(self, change: Callable[[LedgerRows], T]) -> T:
        def begin_write_and_change_rows(ledger_rows: LedgerRows) -> T:
            self._placement.begin_transaction(ledger_rows)
            return change(ledger_rows)

        return await self._write_rows(begin_write_and_change_rows)

    async def _write_rows(self, change: Callable[[LedgerRows], T]) -> T:
        try:
            return await self._store.change(change)
        except LedgerLost:
            self._restart_counting()
            raise
        except BaseException:
            self._placement.forget_numbers()
            raise

    async def _read_totals(self, read: Callable[[LedgerRows], T]) -> T:
        """
        Read complete totals. Raises TotalsIncomplete during a rebuild, and after a loss of the totals until the
        log is counted.
        """
        if self._is_lost:
            self.require_caught_up()

        def read_complete_totals(ledger_rows: LedgerRows) -> T:
            # in the transaction of the read, because another process may begin a rebuild at any time
            counting.require_no_rebuild(read_state(ledger_rows))
            return read(ledger_rows)

        return await self._read_rows(read_complete_totals)

    async def _read_rows(self, read: Callable[[LedgerRows], T]) -> T:
        try:
            return await self._store.read(read)
        except LedgerLost:
            self._restart_counting()
            raise

    def _restart_counting(self) -> None:
        self._placement.forget_numbers()
        self._reach = 1
        self._is_caught_up, self._is_lost = False, True


def _filter_by_user_or_email(query: CostQuery, shown_name_of: Callable[[str], str]) -> CostQuery:
    """
    Return the query with filters by user that also match a call's second user name (an e-mail address in a
    tag). A filter without an address stays, because reading tags takes longer.
    """
    derived = dict(query.derived)
    filters: dict[str, Any] = {"include": query.include, "exclude": query.exclude}
    for side, wanted in filters.items():
        if not any(map(is_hash_address_or_pseudonym, wanted.get(USER, ()))):
            continue
        person = _person_match_dimension(f"(person to {side})", frozenset(wanted[USER]), shown_name_of)
        derived[person.name] = person
        others = {name: values for name, values in wanted.items() if name != USER}
        filters[side] = {**others, person.name: (_YES,)}
    return query if len(derived) == len(query.derived) else replace(query, derived=derived, **filters)


def _person_dimension(people: People) -> DerivedDimension:
    return DerivedDimension(
        name=_PERSON, label="", sources=(USER,), value=lambda names: people.shown_name(names[0])
    )


def _person_match_dimension(
    name: str, wanted_names: frozenset[str], shown_name_of: Callable[[str], str]
) -> DerivedDimension:
    def yes_if_person_wanted(names: tuple[str, ...]) -> str:
        user, second = names
        return (
            _YES
            if user in wanted_names
            or shown_name_of(user) in wanted_names
            or (second and second in wanted_names)
            else ""
        )

    return DerivedDimension(name=name, label="", sources=(USER, SECOND_NAME), value=yes_if_person_wanted)


def _mark_records_as_renamed(ledger_rows: LedgerRows) -> None:
    """Refuse the sums of records that another process has read before they were renamed."""
    ledger_rows.set_state(**{counting.RENAMED: new_data_version()})


def _rename_in_dimensions(dimensions: Dimensions, renamed: Callable[[str], str]) -> Dimensions:
    tags = json.loads(dimensions.tags) if dimensions.tags else {}
    renamed_tags = rename_person_in_tags(tags, renamed)
    team, api_key = (
        renamed(name) if is_hash_address_or_pseudonym(name) else name
        for name in (dimensions.team, dimensions.api_key)
    )
    return dimensions._replace(
        user=renamed(dimensions.user),
        team=team,
        api_key=api_key,
        tags=dimensions.tags if renamed_tags == tags else tags_text(renamed_tags),
    )


def _merge_units_into_other(ledger_rows: LedgerRows, unit_kind: str, ids: Sequence[int]) -> None:
    ledger_rows.merge_units_into_other(unit_kind, ids)


def _put_billed_if_changed(ledger_rows: LedgerRows, day: BilledDay, sums: Sequence[BilledSum]) -> bool:
    before = next(
        (e for e in ledger_rows.billed_days(day.day, day.day + 1) if e.provider == day.provider), None
    )
    if before is not None and before.mark == day.mark:
        return False
    ledger_rows.store_billed_day(day if before is None else replace(day, revision=before.revision + 1), sums)
    return True


def _note_people_in_results(queries: Sequence[CostQuery], results: Sequence[Sized]) -> None:
    """Record who is seen. An empty result shows nobody, also if the query names a person."""
    for query, result in zip(queries, results, strict=True):
        if len(result) and not query.stated_names:
            note_viewed_people(query.include, query.group_by)


async def _find_lowest_stored_record_number(record_log: ReadableLog) -> int:
    """
    Return the lowest stored record number. Binary search works because records are deleted from the low end.
    """
    low, high = 1, record_log.lowest_open_number(AI_TELEMETRY)
    while low < high:
        middle = (low + high) // 2
        if await record_log.read(AI_TELEMETRY, middle, middle, must_be_closed=True):
            high = middle
        else:
            low = middle + 1
    return low


def _datetime_or_none(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
