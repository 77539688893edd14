"""
Protocols of a storage engine for the totals: sums in transactions, without counting and pricing.

`width` of a sum is HOUR_S or DAY_S, `start` its begin in epoch seconds. Each set of dimensions has a number,
so that its texts are stored once.
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
# Sums of the periods that begin in [since, until): width, since, until, rollup or 0.
Span = tuple[int, int, int, int]
WorkSum = tuple[int, Units, int, Measures]  # start, units of work, number of the dimensions
Found = tuple[Sequence[int], int | None]  # some numbers, and the last one that was searched, None at the end
# Error of an approximate cost: in billionths of a dollar, and relative to the cost.
WRONG, WRONG_OF = 1000.0, 1e-9


class GroupSum(NamedTuple):
    """Measures of a group's calls with one status and cost source. `start` is set for sums by start."""

    group: tuple[str | None, ...]
    status: str
    cost_source: str
    measures: Measures
    start: int = 0


@dataclass(frozen=True, slots=True)
class MeterSum:
    """
    Quantity of a meter in a group's calls with one status, in millionths. `meter` is set if the query is for
    several meters.
    """

    group: tuple[str | None, ...]
    status: str
    quantity: int
    start: int = 0
    meter: str = ""


class Recalculation(NamedTuple):
    """
    A recalculation of sums from `since` on, and of records below `reach`.

    Sums before `hourly` were those of days. Times are epoch seconds. `list` is the digest of a price list,
    and `own` are the prices on top of it.
    """

    since: int
    reach: int
    hourly: int
    list: str
    own: bytes


class TagList(NamedTuple):
    """
    The tags by which record numbers from `first` on are counted, in hours from `since` on (epoch seconds).
    """

    first: int
    since: int
    tags: tuple[str, ...]


def new_change_mark() -> int:
    """Return a random number that shows other processes that rows have changed."""
    return randbits(62)


class LedgerRows(Protocol):
    def state_values(self) -> Mapping[str, int]:
        """Return what `set_state` stored. `spool.ledger.counting.read_state` lists the names."""
        ...

    def set_state(self, **values: int) -> None: ...

    def find_or_assign_numbers(self, dimensions: Sequence[DimensionValues]) -> Sequence[int]: ...

    def drop_unused_numbers(self) -> int:
        """Delete sets of dimensions without sums, whose numbers may be reused. Return how many."""
        ...

    def rename_dimensions(self, renamed: Callable[[Dimensions], Dimensions]) -> int:
        """Replace sets under their numbers. Return how many changed. No two may become equal."""
        ...

    def numbers_in_period(self, width: int, start: int) -> set[int]: ...

    def add_sums(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        """Add measures to sums, by start and number of the dimensions."""
        ...

    def add_meters(self, width: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        """
        Add meters to existing sums, by start and number of the dimensions. Deleting a sum deletes its meters.
        """
        ...

    def add_unit_sums(
        self, sums: Iterable[WorkSum], names: Mapping[int, str], edges: Collection[Units] = ()
    ) -> None:
        """
        Add sums of units of work (see `spool.ledger.work`) and the names of units. `edges`: sets without
        sums, of runs above the runs of the sums.

        An unlisted unit is counted as REST.
        """
        ...

    def priceable_unit_sums(self, start: int) -> Sequence[tuple[int, int, Dimensions, Measures]]:
        """
        Return the sums of a period that may be priced: number of the set of units, number and set of
        dimensions, measures.
        """
        ...

    def unit_sums_page(
        self, start: int, after: tuple[int, int], most: int
    ) -> Sequence[tuple[int, int, Measures]]:
        """
        Return at most `most` sums of a period after a place: numbers of the set of units and of the
        dimensions, measures. They are ordered by these numbers.
        """
        ...

    def numbers_of_listed_sets(self, sets: Collection[Units]) -> Mapping[Units, int]:
        """Return the numbers of the sets under which calls with these units are counted."""
        ...

    def units_of_set(self, number: int) -> Mapping[str, str]:
        """Return the units of a set by kind, for people. Empty if the set is not stored."""
        ...

    def wrong_sets(self, after: int, most: int) -> Found:
        """Return the stored sets that do not match their units, among the first `most` above a number."""
        ...

    def wrong_names(self, after: int, most: int) -> Found:
        """Return the names of units that do not match their numbers, in the way of `wrong_sets`."""
        ...

    def wrong_dimensions(self, after: int, most: int) -> Found:
        """Return the damaged dimensions, as far as an engine can tell, in the way of `wrong_sets`."""
        ...

    def delete_damaged(self) -> None:
        """Delete damaged names, and damaged sets without sums."""
        ...

    def replace_unit_sums(
        self, start: int, gone: Iterable[tuple[int, int]], new: Iterable[tuple[int, int, Measures]]
    ) -> None:
        """Delete and add sums of a period, by numbers of set of units and dimensions."""
        ...

    def delete_unit_sums(self, start: int) -> None: ...

    def unit_names_containing(self, text: str, most: int) -> Sequence[tuple[int, str]]:
        """
        Return numbers and names: first those that end with "#" and the text, then those that begin with it.
        """
        ...

    def count_listed_units(self, since: int, until: int) -> Mapping[str, int]:
        """Return the number of listed units in [since, until), by kind."""
        ...

    def cheapest_units(
        self, unit: str, listed: tuple[int, int], counted: tuple[int, int], most: int
    ) -> Sequence[tuple[int, int]]:
        """
        Return at most `most` units of a kind in `listed`, each with the start of its last period, cheapest in
        `counted` first.
        """
        ...

    def unlist_units(self, unit: str, ids: Collection[int]) -> None:
        """Count these units as REST, with their further calls."""
        ...

    def unlist_idle_units(self, unit: str, before: int) -> None:
        """Count units without calls since `before` as REST, with their further calls."""
        ...

    def relist_idle_units(self, unit: str, before: int) -> None:
        """List units again that had no calls since a time."""
        ...

    def unlisted_ids(self, unit: str, ids: Collection[int]) -> Collection[int]:
        """Return those of some units counted as REST."""
        ...

    def count_unlisted_units(self) -> Mapping[str, int]: ...

    def linked_targets(self, since: int) -> Collection[tuple[str, int]]:
        """
        Return kind and number of pull requests and tickets with calls since a time, linked calls included.
        """
        ...

    def replace_links(self, links: UnitLinks) -> None:
        """
        Count all calls, past ones too, under these links, and store their mark. A linked unit stays listed
        without calls, because its link would not find them otherwise.
        """
        ...

    def run_tree(self, query: CostQuery, since: int, until: int) -> RunTree:
        """Return the runs above those with calls in a time range, for `aggregated`."""
        ...

    def lineage(
        self, unit: str, names: Sequence[str], most: int, *, has_below: bool, of: CostQuery | None = None
    ) -> Sequence[Lineage]:
        """
        Return at most `most` of the runs and all runs above them, or with `has_below` also those they
        started. If `of` has `trees_of`, the runs are as the calls of this query state them.
        """
        ...

    def drop_unused_units(self) -> None:
        """Delete sets and names of units without sums."""
        ...

    def read_meters(self, width: int, start: int) -> Mapping[int, MeterSums]: ...

    def metered_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]: ...

    def drop_meters(self, width: int, start: int) -> None: ...

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterable[MeterSum]:
        """Add up the query's meter, or every meter, in the way of `totals_by_group`."""
        ...

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterable[MeterSum]:
        """Return the limbs of amounts in other currencies, by period and group."""
        ...

    def delete_sums(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        """Delete sums, by start and number of the dimensions."""
        ...

    def first_and_last_start(self, width: int) -> Sequence[int]: ...

    def period_starts(self, width: int, since: int, until: int = END_OF_TIME) -> Sequence[int]: ...

    def call_sums(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]: ...

    def token_sums(self, width: int, start: int, *, dearest: int = 0) -> Sequence[tuple[int, Measures]]:
        """
        Return COUNTS and cost by number of the dimensions, of calls with a known input.

        If `dearest` is not 0, return only that many most expensive sums, and others that may be among them.
        """
        ...

    def dimensions_by_number(self, numbers: Collection[int]) -> Mapping[int, Dimensions]: ...

    def read_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]: ...

    def measures_by_number(self, width: int, start: int) -> Sequence[tuple[int, Measures]]: ...

    def joint_dimensions(self) -> Mapping[int, Dimensions]:
        """Return the sets, by number, of calls that were too many to keep apart."""
        ...

    def first_start_since(self, width: int, since: int) -> int | None: ...

    def sum_up_day(self, day: int) -> None:
        """Add up the hours of a day without sums."""
        ...

    def drop_days(self, since: int) -> None: ...

    def drop_hours(self, before: int) -> int:
        """
        Delete hourly sums before a midnight, and merge their stored periods into those of their days. Return
        the number of deleted sums.
        """
        ...

    def store_first_numbers(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        """Store the lowest counted record number of each (width, start)."""
        ...

    def reset_first_numbers(self) -> None:
        """Set the lowest record number of every period to 0, and unfreeze all."""
        ...

    def freeze_periods(self, below: int) -> None:
        """Freeze the periods whose lowest record number is below `below`, and unfreeze all others."""
        ...

    def frozen_periods(self) -> set[tuple[int, int]]: ...

    def lowest_number_by_period(self) -> Mapping[tuple[int, int], int]: ...

    def drop_open_periods(self) -> int:
        """Delete every period that is not frozen. Return their number."""
        ...

    def recalculations(self) -> Sequence[Recalculation]: ...  # oldest first

    def add_recalculation(self, made: Recalculation) -> None: ...

    def limit_recalculations(self, reach: int) -> None:
        """Apply the recalculations only to records below `reach`."""
        ...

    def price_lists(self) -> Mapping[str, bytes]: ...  # price lists, compressed, by digest

    def add_price_list(self, digest: str, content: bytes) -> None: ...

    def tag_lists(self) -> Sequence[TagList]: ...  # oldest first

    def replace_tag_lists(self, lists: Sequence[TagList]) -> None:
        """Replace all stored tag lists by `lists`, which are in order from the oldest on."""
        ...

    def count_rows(self) -> int: ...

    def totals_by_group(
        self, spans: Sequence[Span], query: CostQuery, *, by_start: bool = False
    ) -> Iterable[GroupSum]:
        """
        Add up the sums that pass the query's filters, by group. With `by_start`, also by period of the one
        span. With `aggregated`, the unit of a group is a place in the trees of runs (see
        `spool.ledger.run_trees`), and filters by it do not apply.
        """
        ...

    def sums_by_number(self, spans: Sequence[Span], query: CostQuery) -> Iterable[Sequence[int]]:
        """
        Add up the sums that pass the filters: number of the dimensions, the first five of COUNTS, reported
        and estimated cost.
        """
        ...

    def groups_of_numbers(
        self, numbers: Sequence[int], query: CostQuery
    ) -> Iterable[tuple[int, str, str, Group]]:
        """Return number, status, cost source and group of each set of dimensions."""
        ...

    def largest_groups(
        self, spans: Sequence[Span], query: CostQuery, most: int | None
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """
        Return the number of groups, and the `most` largest with their approximate cost, or all.

        Costs are in billionths of a dollar, without other currencies. The error is at most WRONG plus
        WRONG_OF of the cost.
        """
        ...

    def has_more_groups(self, query: CostQuery, most: int) -> bool:
        """Return True if all stored sets form more than `most` groups, without the query's filters."""
        ...

    def has_needless_filters(self, query: CostQuery) -> bool: ...

    def marked_rollups(self, since: int, until: int) -> Collection[tuple[int, int, int]]:
        """
        Return (number, width, start) of the marked rollups in [since, until), including those of billed
        costs.
        """
        ...

    def make_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> None:
        """
        Make and mark a rollup of its days, by these dimensions or by all.

        From BILLED_ROLLUPS on, they are rollups of billed costs, which also keep charge and basis.
        """
        ...

    def is_rollup_different(self, number: int, dimensions: Sequence[str], width: int, start: int) -> bool:
        """Return True if `make_rollup` would store other sums."""
        ...

    def drop_rollups(self, number: int, width: int, before: int) -> None:
        """Delete rollups that begin before a time, with their marks."""
        ...

    def unmark_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        """Unmark all rollups, or those with these days, of calls or of billed costs."""
        ...

    def store_billed_day(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        """Replace a provider's day and its sums."""
        ...

    def delete_billed_day(self, day: int, provider: str) -> None: ...

    # billed days, sorted by day and provider
    def billed_days(self, since: int, until: int) -> Sequence[BilledDay]: ...

    def billed_starts(self, since: int, until: int) -> Sequence[int]: ...

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]: ...

    def billed_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterable[GroupSum]:
        """Add up billed costs, as `totals_by_group` does. The amount is in `reported`; other measures are 0."""
        ...

    def first_known_start(self, width: int, dimension: str) -> int | None: ...

    def tag_uses(self) -> Sequence[tuple[str, str, bool, bool]]:
        """Return name and value of each tag, and whether calls and billing rows have it."""
        ...

    # sorted values of a dimension of calls
    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]: ...

    def combinations(self, dimensions: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
        """Yield combinations of values in calls, many at a time, some repeatedly."""
        ...


class LedgerStore(Protocol):
    """
    Storage of the rows.

    `shares_log`: rows and log are in one database, so neither is lost or restored without the other, but
    other processes may have counted records that this one does not see yet.
    """

    shares_log: bool

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in one transaction: all is stored, or nothing if it raises.

        Raises SpoolUnavailable if the rows cannot be written now, and LedgerLost if the sums were damaged and
        start empty again.
        """
        ...

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        """Run `work`, which must change nothing, on the rows at one moment."""
        ...

    async def overwrite(self) -> str: ...

    async def close(self) -> None: ...
