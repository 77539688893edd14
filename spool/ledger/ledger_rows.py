"""
Protocols of a storage engine for the totals: it stores sums in transactions, but neither counts nor prices.

A sum has a `width` (HOUR_S or DAY_S) and a `start` in epoch seconds. Each set of dimensions has a number, so
that its texts are stored once. A unit of work has a number as well, and so has each set of units.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from spool.ledger.dimensions import DerivedDimension, Group
from spool.ledger.queries import CostQuery
from spool.ledger.sums import END_OF_TIME, Dimensions, DimensionValues, Measures, MeterSums
from spool.ledger.work import RunLineage, RunTree, Units
from spool.ledger.work_links import WorkUnitLinks

if TYPE_CHECKING:
    from spool.ledger.billed import BilledDay, BilledSum

T = TypeVar("T")
# Sums of the periods that begin in [since, until): width, since, until, rollup or 0.
Span = tuple[int, int, int, int]
WorkSum = tuple[int, Units, int, Measures]  # start, units of work, number of the dimensions
# numbers found by one step, and the last number searched; None after the last step
FoundNumbers = tuple[Sequence[int], int | None]
# Error of an approximate cost: in billionths of a dollar, and relative to the cost.
WRONG, WRONG_OF = 1000.0, 1e-9


class GroupSum(NamedTuple):
    """
    The measures of a group's calls with one status and cost source. `start`: the sum's start, if the query is
    by start.
    """

    group: tuple[str | None, ...]
    status: str
    cost_source: str
    measures: Measures
    start: int = 0


@dataclass(frozen=True, slots=True)
class MeterSum:
    """
    The quantity, in millionths, of a meter in a group's calls with one status. `meter`: its name, if the
    query is for several meters.
    """

    group: tuple[str | None, ...]
    status: str
    quantity: int
    start: int = 0
    meter: str = ""


class Recalculation(NamedTuple):
    """
    A recalculation of the estimates in sums from `since` on (epoch seconds), and of records with numbers
    below `reach`. `began`: when its prices were read (epoch seconds).

    Daily sums were recalculated before `hourly` (epoch seconds), and hourly sums from then on. `list`:
    digest of the price list. `own`: the prices that override it.
    """

    began: float
    since: int
    reach: int
    hourly: int
    list: str
    own: bytes


class TagList(NamedTuple):
    """
    The tags that the totals keep as dimensions. The list applies to records with numbers from `first` on, in
    hours from `since` on (epoch seconds).
    """

    first: int
    since: int
    tags: tuple[str, ...]


def new_data_version() -> int:
    """
    Return a random number to store whenever rows change. A process that knows another number reads the rows
    again.
    """
    return randbits(62)


class LedgerRows(Protocol):
    def state_values(self) -> Mapping[str, int]:
        """Return all values stored by `set_state`. `spool.ledger.counting.read_state` lists the names."""
        ...

    def set_state(self, **values: int) -> None: ...

    def find_or_assign_dimension_set_numbers(
        self, dimensions: Sequence[DimensionValues]
    ) -> Sequence[int]: ...

    def delete_unused_dimension_sets(self) -> int:
        """Delete sets of dimensions that no sum uses. Return their number. Their numbers may be reused."""
        ...

    def rename_dimensions(self, renamed: Callable[[Dimensions], Dimensions]) -> int:
        """
        Replace sets of dimensions under their numbers. Return how many changed. No two sets may become equal.
        """
        ...

    def dimension_set_numbers_in_period(self, period_s: int, start: int) -> set[int]: ...

    def add_sums(self, period_s: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        """Add measures to sums. Each tuple: start, number of the set of dimensions, measures."""
        ...

    def add_meters(self, period_s: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        """
        Add meters to existing sums. Each tuple: start, number of the set of dimensions, meters. Deleting a
        sum deletes its meters.
        """
        ...

    def add_unit_sums(
        self, sums: Iterable[WorkSum], names: Mapping[int, str], run_start_sets: Collection[Units] = ()
    ) -> None:
        """
        Add sums of calls by their units of work (see `spool.ledger.work`), and the units' names by number.
        `run_start_sets`: sets without calls that state who started a run.

        Calls of an unlisted unit are added to the sum of all unlisted units (REST).
        """
        ...

    def unit_sums_of_calls(self, start: int) -> Sequence[tuple[int, int, Dimensions, Measures]]:
        """
        Return a period's sums of units of work that may be priced: number of the set of units, number of the
        set of dimensions, dimensions, measures.
        """
        ...

    def unit_sums_page(
        self, start: int, after: tuple[int, int], max_sums: int
    ) -> Sequence[tuple[int, int, Measures]]:
        """
        Return at most `max_sums` sums of a period, ordered by number of the set of units and number of the
        dimensions, which are greater than `after`. Each tuple: these numbers and the measures.
        """
        ...

    def numbers_of_counted_unit_sets(self, unit_sets: Collection[Units]) -> Mapping[Units, int]:
        """
        Map each set of units to the number under which its calls count. Units that are no longer listed are
        replaced by REST.
        """
        ...

    def units_of_set_number(self, set_number: int) -> Mapping[str, str]:
        """Return the units of a set by kind, as names to show. Empty if the set is not stored."""
        ...

    def unit_sets_with_wrong_hash(self, after_number: int, most: int) -> FoundNumbers:
        """
        Read at most `most` sets of units of work with numbers above `after_number`. Return those whose stored
        number is not the hash of their units.
        """
        ...

    def unit_names_with_wrong_hash(self, after_number: int, most: int) -> FoundNumbers:
        """
        Read at most `most` names of units of work with numbers above `after_number`. Return those whose
        stored number is not the hash of the name.
        """
        ...

    def damaged_dimension_sets(self, after_number: int, max_sets: int) -> FoundNumbers:
        """
        Read at most `max_sets` combinations of dimension values with numbers above `after_number`. Return
        those in which the engine detects damage.
        """
        ...

    def delete_damaged_rows(self) -> None: ...

    def replace_unit_sums(
        self,
        start: int,
        removed_keys: Iterable[tuple[int, int]],
        added_sums: Iterable[tuple[int, int, Measures]],
    ) -> None:
        """
        Delete and add a period's sums of units, by numbers of the set of units and of the set of dimensions.
        """
        ...

    def delete_unit_sums(self, start: int) -> None: ...

    def work_unit_names_containing(
        self, text: str, max_units: int, skipped_units: int
    ) -> Sequence[tuple[int, str]]:
        """
        Return numbers and names of units of work whose names contain the text: first names that end with "#"
        and the text, such as an issue's number, then names that begin with the text.
        """
        ...

    def individual_unit_count_by_kind(self, since_s: int, until_s: int) -> Mapping[str, int]: ...

    def cheapest_unit_ids_and_last_use(
        self, unit_kind: str, called_period: tuple[int, int], cost_period: tuple[int, int], most: int
    ) -> Sequence[tuple[int, int]]:
        """
        Return at most `most` units of a kind that had calls in the period `called_period`, the cheapest in the
        period `cost_period` first. Each has the start of its newest sum.
        """
        ...

    def merge_units_into_other(self, unit_kind: str, ids: Collection[int]) -> None:
        """
        Add the calls of these units, also future ones, to the sum of all unlisted units (REST). The units are
        no longer found by name.
        """
        ...

    def merge_idle_units_into_other(self, unit_kind: str, before_s: int) -> None:
        """Count units without calls since `before_s` as REST, including their future calls."""
        ...

    def forget_merges_of_idle_units(self, unit_kind: str, before_s: int) -> None:
        """Forget that units without calls since `before_s` were unlisted, so that new calls list them again."""
        ...

    def ids_merged_into_other(self, unit_kind: str, ids: Collection[int]) -> Collection[int]: ...

    def merged_unit_count_by_kind(self) -> Mapping[str, int]: ...

    def pull_requests_and_tickets_since(self, since_s: int) -> Collection[tuple[str, int]]:
        """
        Return kind and number of pull requests and tickets with calls since a time. Calls of linked units
        count as well.
        """
        ...

    def replace_links(self, unit_links: WorkUnitLinks) -> None:
        """
        Make all queries use these links between units, also for past calls, and store the version of the
        links. A linked unit stays listed even without calls, because otherwise its link could not find them.
        """
        ...

    def run_tree(self, query: CostQuery, since_s: int, until_s: int) -> RunTree:
        """Return the runs above the runs with calls in a time range, for aggregated costs."""
        ...

    def run_lineage(
        self,
        unit_kind: str,
        names: Sequence[str],
        max_runs: int,
        *,
        includes_runs_below: bool,
        limiting_query: CostQuery | None = None,
    ) -> Sequence[RunLineage]:
        """
        Return at most `max_runs` of the named runs and all runs above them; with `includes_runs_below`, also the
        runs that they started. If `limiting_query` has a dimension `trees_of`, only calls for which it has a
        value decide which run started another.
        """
        ...

    def drop_unused_units(self) -> None:
        """Delete sets and names of units that no sum uses."""
        ...

    def read_meters(self, period_s: int, start: int) -> Mapping[int, MeterSums]: ...

    def metered_sums(self, period_s: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]: ...

    def drop_meters(self, period_s: int, start: int) -> None: ...

    def meter_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterable[MeterSum]:
        """Add up the quantity of the query's meter, or of every meter, by the query's groups."""
        ...

    def charge_totals(
        self, period_s: int, since_s: int, until_s: int, query: CostQuery
    ) -> Iterable[MeterSum]:
        """
        Return the amounts in other currencies by period and group, each as three integers (see
        `spool.money`).
        """
        ...

    def delete_sums(self, period_s: int, places: Iterable[tuple[int, int]]) -> None:
        """Delete sums with their meters. Each place: start and number of the set of dimensions."""
        ...

    def first_and_last_start(self, period_s: int) -> Sequence[int]: ...

    def period_starts(self, period_s: int, since_s: int, until_s: int = END_OF_TIME) -> Sequence[int]: ...

    def call_sums(self, period_s: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]: ...

    def token_sums_by_dimension_set(
        self, period_s: int, start: int, *, most_expensive_count: int = 0
    ) -> Sequence[tuple[int, Measures]]:
        """
        Return COUNTS and cost, by number of the set of dimensions, of calls with known input tokens.

        If `most_expensive_count` is not 0, return only that number of most expensive sums, and others that may be among
        them.
        """
        ...

    def dimensions_by_number(self, numbers: Collection[int]) -> Mapping[int, Dimensions]: ...

    def read_sums(self, period_s: int, start: int) -> Sequence[tuple[Dimensions, Measures]]: ...

    def measures_by_dimension_set_number(
        self, period_s: int, start: int
    ) -> Sequence[tuple[int, Measures]]: ...

    def dimension_sets_merged_into_other(self) -> Mapping[int, Dimensions]:
        """
        Return by number the sets of dimensions in which values are joined, because they were too many to keep
        apart.
        """
        ...

    def first_start_since(self, period_s: int, since_s: int) -> int | None: ...

    def make_daily_sums_from_hours(self, day: int) -> None:
        """Make the daily sums of a day from its hours. The day must have no daily sums."""
        ...

    def drop_days(self, since_s: int) -> None: ...

    def drop_hours(self, before_s: int) -> int:
        """
        Delete hourly sums before a midnight (epoch seconds). Each day takes over the lowest record number of
        its hours. Return the number of deleted sums.
        """
        ...

    def store_lowest_record_numbers(self, widths_starts_and_numbers: Iterable[tuple[int, int, int]]) -> None:
        """Store the lowest counted record number of each period. Each tuple: width, start, number."""
        ...

    def reset_lowest_record_numbers_and_unfreeze_periods(self) -> None:
        """
        Set the lowest record number of every period to 0, and mark no period as frozen (kept by a rebuild).
        """
        ...

    def freeze_periods_for_rebuild(self, below_record_number: int) -> None:
        """
        Freeze the periods with a lowest record number below `below_record_number`, so that a rebuild does not
        empty them. Unfreeze all others.
        """
        ...

    def periods_frozen_for_rebuild(self) -> set[tuple[int, int]]: ...  # width and start of each

    def lowest_number_by_period(self) -> Mapping[tuple[int, int], int]: ...

    def delete_sums_of_unfrozen_periods(self) -> int:
        """
        Delete the sums of every period that is not frozen (kept by a rebuild). Return the number of periods.
        """
        ...

    def recalculations(self) -> Sequence[Recalculation]: ...  # oldest first

    def add_recalculation(self, recalculation: Recalculation) -> None: ...

    def lower_recalculation_ends(self, end_record_number: int) -> None: ...

    def price_lists(self) -> Mapping[str, bytes]: ...  # price lists, compressed, by digest

    def add_price_list(self, digest: str, content: bytes) -> None: ...

    def tag_lists(self) -> Sequence[TagList]: ...  # oldest first

    def replace_tag_lists(self, lists: Sequence[TagList]) -> None:
        """Replace all stored tag lists. `lists` begins with the oldest."""
        ...

    def count_rows(self) -> int: ...

    def totals_by_group(
        self, spans: Sequence[Span], query: CostQuery, *, groups_by_start: bool = False
    ) -> Iterable[GroupSum]:
        """
        Add up the sums that pass the query's filters, by group. With `groups_by_start`, also by period; there must
        be one span. With `aggregated`, the unit of a group is a place in the trees of runs (see
        `spool.ledger.run_trees`), and filters by unit are not applied.
        """
        ...

    def sums_by_dimension_set(self, spans: Sequence[Span], query: CostQuery) -> Iterable[Sequence[int]]:
        """
        Add up the sums that pass the filters. Each row: number of the set of dimensions, calls, tokens of
        input, output, cache reads and cache writes, reported and estimated cost.
        """
        ...

    def groups_of_dimension_sets(
        self, dimension_set_numbers: Sequence[int], query: CostQuery
    ) -> Iterable[tuple[int, str, str, Group]]:
        """Return number, status, cost source and group of each set of dimensions."""
        ...

    def group_count_and_largest_groups(
        self, spans: Sequence[Span], query: CostQuery, most: int | None
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """
        Return the number of groups, and the `most` largest groups (None: all) with their approximate cost.

        Costs are in billionths of a dollar, without other currencies. The error is at most WRONG plus
        WRONG_OF of the cost.
        """
        ...

    def has_more_groups(self, query: CostQuery, max_groups: int) -> bool:
        """
        Return whether all stored sets of dimensions, without the query's filters, form more than `max_groups`
        groups.
        """
        ...

    def has_filters_excluding_nothing(self, query: CostQuery) -> bool: ...

    def valid_rollup_keys(self, since_s: int, until_s: int) -> Collection[tuple[int, int, int]]:
        """
        Return (number, width, start) of the rollups in [since, until) that are stored and valid, including
        those of billed costs.
        """
        ...

    def make_rollup(self, rollup_number: int, dimensions: Sequence[str], period_s: int, start: int) -> None:
        """
        Add up the days from `start` by these dimensions (empty: all) as a rollup, and mark it as valid.

        From the number BILLED_ROLLUPS on, a rollup adds up billed costs, also by charge and basis.
        """
        ...

    def is_rollup_different(
        self, rollup_number: int, dimensions: Sequence[str], period_s: int, start: int
    ) -> bool:
        """Return whether `make_rollup` would store other sums than those stored."""
        ...

    def drop_rollups(self, rollup_number: int, period_s: int, before_s: int) -> None:
        """
        Delete rollups of a number and width that begin before a time, and the marks that they are valid.
        """
        ...

    def invalidate_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        """
        Make all rollups invalid, or those that contain one of these days. `billed`: rollups of billed costs.
        """
        ...

    def store_billed_day(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        """Replace the billed costs of one provider's day."""
        ...

    def delete_billed_day(self, day: int, provider: str) -> None: ...

    # billed days, sorted by day and provider
    def billed_days(self, since_s: int, until_s: int) -> Sequence[BilledDay]: ...

    def starts_of_billed_days(self, since_s: int, until_s: int) -> Sequence[int]: ...

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]: ...

    def billed_totals(
        self,
        period_s: int,
        since_s: int,
        until_s: int,
        query: CostQuery,
        *,
        groups_by_start: bool = False,
        rollup: int = 0,
    ) -> Iterable[GroupSum]:
        """
        Add up billed costs by the query's groups, with `groups_by_start` also by day. The amount is in `reported`;
        other measures are 0. `rollup`: number of the rollup to read, or 0.
        """
        ...

    def first_period_start_with_dimension(self, period_s: int, dimension: str) -> int | None: ...

    def tag_values_in_calls_and_billing_rows(self) -> Sequence[tuple[str, str, bool, bool]]:
        """Return, for each tag: name, value, whether calls have it, and whether billing rows have it."""
        ...

    # sorted values of a dimension of calls
    def values(self, dimension: str | DerivedDimension, max_values: int) -> Sequence[str]: ...

    def value_combinations(self, dimensions: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
        """Yield combinations of values in calls, many at a time, some repeatedly."""
        ...


class LedgerStore(Protocol):
    """
    Access to the rows of the totals in transactions.

    `shares_log`: rows and log are in one database, so neither is lost or restored without the other, but
    other processes may have counted records that this process does not see yet.
    """

    shares_log: bool

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in one transaction. If it raises, nothing is changed.

        Raises SpoolUnavailable if the rows cannot be written now, and LedgerLost if the sums were damaged and
        are empty again.
        """
        ...

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        """Run `work`, which must not change the rows, on one consistent snapshot."""
        ...

    async def overwrite_deleted_data(self) -> str: ...

    async def close(self) -> None: ...
