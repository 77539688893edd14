"""
Protocols that a storage engine implements for the totals: storage of sums, in transactions. Counting and
pricing are not part of it.

Sums are stored by hour and by day. `width` is HOUR_S or DAY_S, and `start` is the start of such a period in
epoch seconds. Each distinct set of dimensions has a number, so that its texts are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from spool.ledger.queries import CostQuery, Derived, Group
from spool.ledger.sums import END_OF_TIME, Dimensions, DimensionValues, Measures, MeterSums
from spool.ledger.work import Lineage, RunTree, Units
from spool.ledger.work_links import UnitLinks

if TYPE_CHECKING:
    from spool.ledger.billed import BilledDay, BilledSum

T = TypeVar("T")
# Sums of one width, for the periods that begin in [since, until): width, since, until, and the number of a
# rollup, or 0.
Span = tuple[int, int, int, int]
WorkSum = tuple[int, Units, int, Measures]  # start of the period, units of work, number of the dimensions
Found = tuple[
    Sequence[int], int | None
]  # some numbers, and the last one that was searched, or None at the end
# Maximum error of an approximate cost: an absolute part in billionths of a dollar, and a part relative
# to the cost.
WRONG, WRONG_OF = 1000.0, 1e-9


class GroupSum(NamedTuple):
    """
    Measures of one group of a query, for calls with one status and one cost source. `start` is set if sums
    are grouped by start as well.
    """

    group: tuple[str | None, ...]
    status: str
    cost_source: str
    measures: Measures
    start: int = 0


@dataclass(frozen=True, slots=True)
class MeterSum:
    """
    Quantity of one meter in one group, in millionths, for calls with one status. `meter` has the name if the
    query returns several meters.
    """

    group: tuple[str | None, ...]
    status: str
    quantity: int
    start: int = 0
    meter: str = ""


class Recalculation(NamedTuple):
    """
    A recalculation, as it is stored.

    It covers the sums that begin at or after `since`, and calls whose records have a number below `reach`. The sums
    before `hourly` were those of days. Times are in epoch seconds. `list` is the digest of a price list, and `own` are
    the prices on top of it.
    """

    since: int
    reach: int
    hourly: int
    list: str
    own: bytes


class TagList(NamedTuple):
    """
    The tags by which calls are counted, as they are stored. They apply to record numbers from `first` on, in the hours
    from `since` on (epoch seconds).
    """

    first: int
    since: int
    tags: tuple[str, ...]


def new_mark() -> int:
    """Return a random number for the state, which shows other processes that rows have changed."""
    return randbits(62)


class LedgerRows(Protocol):
    """The stored rows within one transaction."""

    def state_values(self) -> Mapping[str, int]:
        """
        Return the state values that `set_state` stored. `spool.ledger.counting.state_of` lists the names.
        """
        ...

    def set_state(self, **values: int) -> None: ...

    def find_or_assign_numbers(self, dimensions: Sequence[DimensionValues]) -> Sequence[int]:
        """Return the numbers of sets of dimensions. Assign numbers to the sets that have none."""
        ...

    def drop_unused_numbers(self) -> int:
        """
        Delete the sets of dimensions that no sum has. Return the number of deleted sets. Their numbers may
        be assigned again.
        """
        ...

    def rename_dimensions(self, renamed: Callable[[Dimensions], Dimensions]) -> int:
        """Replace sets of dimensions, under their numbers. Return how many changed. No two may become equal."""
        ...

    def numbers_in_period(self, width: int, start: int) -> set[int]:
        """Return the numbers of the sets of dimensions that have sums in a period."""
        ...

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        """Add measures to the sums. A sum is identified by start and number of its dimensions."""
        ...

    def add_meters(self, width: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        """
        Add meters to existing sums, identified by start and number of their dimensions. Deleting a sum
        deletes its meters.
        """
        ...

    def add_work(
        self, sums: Iterable[WorkSum], names: Mapping[int, str], edges: Collection[Units] = ()
    ) -> None:
        """
        Add measures to the sums of units of work (see `spool.ledger.work`), and store the names of units. `edges` are
        further sets, without sums, of runs above the runs of the sums.

        A unit that is no longer listed is counted as REST.
        """
        ...

    def work_sums(self, start: int) -> Sequence[tuple[int, int, Dimensions, Measures]]:
        """
        Return the sums of units of work in a period that may be priced: number of the set of units, number and set of
        dimensions, measures.
        """
        ...

    def work_page(self, start: int, after: tuple[int, int], most: int) -> Sequence[tuple[int, int, Measures]]:
        """
        Return at most `most` sums of units of work in a period, after a place: numbers of the set of units and of the
        dimensions, measures. They are ordered by these numbers.
        """
        ...

    def listed_sets(self, sets: Collection[Units]) -> Mapping[Units, int]:
        """Return the numbers of the sets under which calls with these sets of units are counted."""
        ...

    def units_of_set(self, number: int) -> Mapping[str, str]:
        """Return the units of a stored set by kind, for people. Return nothing if the set is not stored."""
        ...

    def wrong_sets(self, after: int, most: int) -> Found:
        """
        Return the numbers of stored sets of units that do not match their units, among the first `most` above a number.
        """
        ...

    def wrong_names(self, after: int, most: int) -> Found:
        """Return the numbers of stored names of units that do not match their names, as `wrong_sets` does."""
        ...

    def wrong_dimensions(self, after: int, most: int) -> Found:
        """Return the numbers of damaged sets of dimensions, as far as an engine can tell, as `wrong_sets` does."""
        ...

    def drop_wrong(self) -> None:
        """Delete damaged names of units, and damaged sets of units and of dimensions that no sum has."""
        ...

    def replace_work(
        self, start: int, gone: Iterable[tuple[int, int]], new: Iterable[tuple[int, int, Measures]]
    ) -> None:
        """Delete sums of units of work in a period, and add others, by the numbers of set of units and dimensions."""
        ...

    def drop_work(self, start: int) -> None:
        """Delete the sums of units of work in a period."""
        ...

    def names_containing(self, text: str, most: int) -> Sequence[tuple[int, str]]:
        """
        Return numbers and names of units whose name contains a text: first those that end with "#" and the text, then
        those that begin with it.
        """
        ...

    def count_work(self, since: int, until: int) -> Mapping[str, int]:
        """Return the number of listed units in [since, until), by kind."""
        ...

    def cheapest_work(
        self, unit: str, listed: tuple[int, int], counted: tuple[int, int], most: int
    ) -> Sequence[tuple[int, int]]:
        """
        Return at most `most` units of a kind that are listed in a time range, each with the start of its last period.
        The first ones cost least in the time range `counted`.
        """
        ...

    def unlist_work(self, unit: str, ids: Collection[int]) -> None:
        """Count these units as REST, with their further calls."""
        ...

    def expire_work(self, unit: str, before: int) -> None:
        """Count all units of a kind that had no calls since a time as REST, with their further calls."""
        ...

    def forget_unlisted(self, unit: str, before: int) -> None:
        """List units of a kind again that are counted as REST and had no calls since a time."""
        ...

    def unlisted_ids(self, unit: str, ids: Collection[int]) -> Collection[int]:
        """Return the units of a kind, among some of them, that are counted as REST."""
        ...

    def count_unlisted(self) -> Mapping[str, int]:
        """Return the number of units that are counted as REST, by kind."""
        ...

    def linked_targets(self, since: int) -> Collection[tuple[str, int]]:
        """Return the pull requests and tickets of calls since a time, linked calls included: kind and number."""
        ...

    def replace_links(self, links: UnitLinks) -> None:
        """
        Count all calls under these links, past calls included, and store their mark. A linked unit stays listed, also
        without calls, because its link would not find its calls otherwise.
        """
        ...

    def run_tree(self, query: CostQuery, since: int, until: int) -> RunTree:
        """Return the runs above those with calls in a time range, for a query with `aggregated`."""
        ...

    def lineage(
        self, unit: str, names: Sequence[str], most: int, *, has_below: bool, of: CostQuery | None = None
    ) -> Sequence[Lineage]:
        """
        Return the runs of some sessions or runs and all runs above them, at most `most`. With `has_below`, the result
        also has the runs that they started. If `of` has `trees_of`, they are as its calls state them.
        """
        ...

    def drop_unused_units(self) -> None:
        """Delete the sets of units and the names of units that have no sums."""
        ...

    def read_meters(self, width: int, start: int) -> Mapping[int, MeterSums]:
        """Return the meters of a period, by number of the set of dimensions."""
        ...

    def metered_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]:
        """Return the meters of a period, by set of dimensions."""
        ...

    def drop_meters(self, width: int, start: int) -> None:
        """Delete the meters of a period."""
        ...

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterable[MeterSum]:
        """Return the sums that `totals` returns, but of meters: the meter of the query, or every meter."""
        ...

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterable[MeterSum]:
        """Return the limbs of amounts in other currencies, by period and group."""
        ...

    def remove(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        """Delete sums, identified by start and number of their dimensions."""
        ...

    def first_and_last_start(self, width: int) -> Sequence[int]:
        """Return the start of the first and of the last period with sums, or nothing."""
        ...

    def period_starts(self, width: int, since: int, until: int = END_OF_TIME) -> Sequence[int]:
        """Return the starts of the periods with sums in [since, until)."""
        ...

    def call_sums(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        """Return the sums of the calls of one period, each with the number and the set of its dimensions."""
        ...

    def token_sums(self, width: int, start: int, *, dearest: int = 0) -> Sequence[tuple[int, Measures]]:
        """
        Return COUNTS and cost of the sums of one period, by number of the dimensions. Only calls with a known
        input are included.

        If `dearest` is not 0, only that many of the most expensive sums are returned, plus sums that may
        be among them.
        """
        ...

    def dimensions_by_number(self, numbers: Collection[int]) -> Mapping[int, Dimensions]:
        """Return the sets of dimensions by their numbers."""
        ...

    def read_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        """Return all sums of one period."""
        ...

    def sums_by_key(self, width: int, start: int) -> Sequence[tuple[int, Measures]]:
        """Return all sums of one period, by number of the dimensions."""
        ...

    def joint_dimensions(self) -> Mapping[int, Dimensions]:
        """Return the sets of dimensions of calls that were too many to keep apart, by their numbers."""
        ...

    def first_start_since(self, width: int, since: int) -> int | None:
        """Return the start of the first period at or after `since` that has sums."""
        ...

    def sum_up_day(self, day: int) -> None:
        """Add up the hours of a day. The day must have no sums yet."""
        ...

    def drop_days(self, since: int) -> None:
        """Delete the sums of days from `since` on."""
        ...

    def drop_hours(self, before: int) -> int:
        """
        Delete the hourly sums before a midnight, and merge the stored periods of these hours into the periods
        of their days. Return the number of deleted sums.
        """
        ...

    def note_periods(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        """Store the lowest record number that was counted in each (width, start)."""
        ...

    def forget_firsts(self) -> None:
        """Set the lowest record number of every period to 0, and unfreeze all periods."""
        ...

    def freeze_periods(self, below: int) -> None:
        """Freeze the periods whose lowest record number is below `below`, and unfreeze all others."""
        ...

    def frozen_periods(self) -> set[tuple[int, int]]:
        """Return width and start of the frozen periods."""
        ...

    def lowest_number_by_period(self) -> Mapping[tuple[int, int], int]:
        """Return the lowest counted record number of each period, by width and start."""
        ...

    def drop_open_periods(self) -> int:
        """Delete every period that is not frozen, with its sums. Return the number of deleted periods."""
        ...

    def recalculations(self) -> Sequence[Recalculation]:
        """Return the stored recalculations, oldest first."""
        ...

    def add_recalculation(self, made: Recalculation) -> None: ...

    def limit_recalculations(self, reach: int) -> None:
        """Apply the stored recalculations only to records with numbers below `reach`."""
        ...

    def price_lists(self) -> Mapping[str, bytes]:
        """Return the compressed price lists of recalculations, by digest."""
        ...

    def add_price_list(self, digest: str, content: bytes) -> None:
        """Store a compressed price list, unless it is stored."""
        ...

    def tag_lists(self) -> Sequence[TagList]:
        """Return the stored lists of tags, oldest first."""
        ...

    def replace_tag_lists(self, lists: Sequence[TagList]) -> None:
        """Store these lists of tags, oldest first, in place of all stored ones."""
        ...

    def count_rows(self) -> int: ...

    def totals(
        self, spans: Sequence[Span], query: CostQuery, *, by_start: bool = False
    ) -> Iterable[GroupSum]:
        """
        Add up by group the sums of these spans that pass the query's filters. `by_start` groups by period
        as well; then there is one span. If the query has `aggregated`, the unit of a group is a place in the trees of
        runs (see `spool.ledger.run_trees`), and filters by it do not apply.
        """
        ...

    def sums_by_number(self, spans: Sequence[Span], query: CostQuery) -> Iterable[Sequence[int]]:
        """
        Add up the sums of these spans that pass the query's filters by number of their dimensions: number, the
        first five of COUNTS, reported and estimated cost.
        """
        ...

    def groups_of(self, numbers: Sequence[int], query: CostQuery) -> Iterable[tuple[int, str, str, Group]]:
        """Return status, cost source and group of sets of dimensions, by their numbers."""
        ...

    def largest_groups(
        self, spans: Sequence[Span], query: CostQuery, most: int | None
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """
        Return the number of groups of a query, and the `most` largest groups with their approximate
        cost, largest first. None returns all groups.

        Costs are in billionths of a dollar, without amounts in other currencies. The error is at most 1,000
        billionths plus a billionth of the cost.
        """
        ...

    def has_more_groups(self, query: CostQuery, most: int) -> bool:
        """
        Return True if all stored sets of dimensions form more than `most` groups. The filters of the
        query are ignored.
        """
        ...

    def passes_all(self, query: CostQuery) -> bool:
        """Return True if every stored set of dimensions of calls passes the query's filters."""
        ...

    def marked_rollups(self, since: int, until: int) -> Collection[tuple[int, int, int]]:
        """
        Return (number, width, start) of the marked rollups that begin in [since, until), including those
        of billed costs.
        """
        ...

    def make_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> None:
        """
        Make a rollup from the sums of its days, by these dimensions, and mark it. Without dimensions,
        all are kept.

        Numbers from BILLED_ROLLUPS on are rollups of billed costs, which also keep the dimensions
        charge and basis.
        """
        ...

    def differs_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> bool:
        """Return True if `make_rollup` would make sums that differ from the stored ones."""
        ...

    def drop_rollups(self, number: int, width: int, before: int) -> None:
        """Delete the rollups of a number and a width that begin before a time, with their marks."""
        ...

    def unmark_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        """
        Remove the marks of all rollups, or of those that include these days. `billed` selects the kind of rollups.
        """
        ...

    def put_billed(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        """Replace a provider's billed costs of a day, and the row that describes that day."""
        ...

    def drop_billed(self, day: int, provider: str) -> None:
        """Delete a provider's billed costs of a day."""
        ...

    def billed_days(self, since: int, until: int) -> Sequence[BilledDay]:
        """Return the stored days that begin in [since, until), by day and provider."""
        ...

    def billed_starts(self, since: int, until: int) -> Sequence[int]:
        """Return the starts of the days in [since, until) that a bill covers."""
        ...

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        """Return a provider's billed costs of a day."""
        ...

    def billed_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterable[GroupSum]:
        """
        Return the sums that `totals` returns, but of billed costs. The amount is in the measure `reported`.
        All other measures are 0.
        """
        ...

    def first_known(self, width: int, dimension: str) -> int | None:
        """Return the start of the first period with a sum in which a dimension has a value."""
        ...

    def tag_uses(self) -> Sequence[tuple[str, str, bool, bool]]:
        """
        Return name and value of each tag, with two flags: calls have it, and rows of billing connections have it.
        """
        ...

    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]:
        """Return at most `limit` known values of a dimension of calls, sorted."""
        ...

    def combinations(self, dimensions: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
        """Yield the combinations of values that calls have of these dimensions, many at a time, some repeatedly."""
        ...


class LedgerStore(Protocol):
    """
    The storage of the rows.

    `shares_log`: the rows and the log are in one database, which other processes use as well. So neither
    is lost or restored without the other. Another process may have counted records that this process does
    not see yet.
    """

    shares_log: bool

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in one transaction. If it raises, nothing is stored. When this method returns, all
        changes are stored.

        Raises SpoolUnavailable if the rows cannot be written now, and LedgerLost if the sums were damaged and
        start empty again.
        """
        ...

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        """Run `work` on the rows as they are at one moment. `work` must change nothing."""
        ...

    async def overwrite(self) -> str:
        """Remove what deleted and replaced rows left behind. Return why some may be left, or ""."""
        ...

    async def close(self) -> None: ...
