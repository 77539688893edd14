"""
Protocols that a storage engine implements for the totals: sums, in transactions. The code above it
counts and prices.

Sums are stored by hour and by day. `width` is HOUR_S or DAY_S, and `start` is the start of such a period in
epoch seconds. Each distinct set of dimensions has a number, so that its texts are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from spool.ledger.queries import CostQuery, Derived, Group
from spool.ledger.sums import Dimensions, Measures, MeterSums

if TYPE_CHECKING:
    from spool.ledger.billed import BilledDay, BilledSum

T = TypeVar("T")
# Largest error of an approximate cost in billionths of a dollar: an absolute and a relative part.
WRONG, WRONG_OF = 1000.0, 1e-9


class GroupSum(NamedTuple):
    """
    Measures of one group of a query with one status and one cost source. `start` is set for sums by start.
    """

    group: tuple[str | None, ...]
    status: str
    cost_source: str
    measures: Measures
    start: int = 0


@dataclass(frozen=True, slots=True)
class MeterSum:
    """
    Quantity of one meter in one group, in millionths, for calls with one status. `meter` is set if
    there are several.
    """

    group: tuple[str | None, ...]
    status: str
    quantity: int
    start: int = 0
    meter: str = ""


class LedgerRows(Protocol):
    """The rows within one transaction."""

    def state(self) -> Mapping[str, int]:
        """Return the numbers that `set_state` stored. `spool.ledger.counting.state_of` lists the names."""
        ...

    def set_state(self, **values: int) -> None: ...

    def number(self, dimensions: Dimensions) -> int:
        """Return the number of a set of dimensions, and assign one if it has none."""
        ...

    def find_number(self, dimensions: Dimensions) -> int | None:
        """Return the number of a set of dimensions, or None if it has none."""
        ...

    def drop_unused_numbers(self) -> int:
        """Delete the dimensions that no sum has. Return how many. Their numbers may be assigned again."""
        ...

    def numbers(self, width: int, start: int) -> set[int]:
        """Return the numbers that have sums in a period."""
        ...

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        """Add measures to the sums of (start, number)."""
        ...

    def add_meters(self, width: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        """Add meters to the sums of (start, number), which must exist. Deleting a sum deletes its meters."""
        ...

    def meters(self, width: int, start: int) -> Mapping[int, MeterSums]:
        """Return the meters of a period by number."""
        ...

    def metered_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]:
        """Return the meters of a period by dimensions."""
        ...

    def meters_by_start(self, width: int) -> Mapping[int, MeterSums]:
        """Return the meters of each period that has some."""
        ...

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterable[MeterSum]:
        """Return what `totals` returns, for the meter of the query or for every meter."""
        ...

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterable[MeterSum]:
        """Return the limbs of amounts in other currencies, by period and group."""
        ...

    def remove(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        """Delete the sums of (start, number)."""
        ...

    def starts(self, width: int, since: int) -> Sequence[int]:
        """Return the starts of the periods with sums, from `since` on."""
        ...

    def priceable(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        """Return the sums of the calls of one period, with their numbers."""
        ...

    def token_sums(self, width: int, start: int, *, dearest: int = 0) -> Sequence[tuple[int, Measures]]:
        """
        Return COUNTS and cost of the sums of one period, by number. Only calls with a known input are included.

        If `dearest` is not 0, only that many of the most expensive sums are returned, and sums that may
        be among them.
        """
        ...

    def dimensions(self, numbers: Collection[int]) -> Mapping[int, Dimensions]:
        """Return the dimensions that have these numbers."""
        ...

    def sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        """Return all sums of one period."""
        ...

    def oldest(self, width: int, since: int) -> int | None:
        """Return the start of the first period with sums from `since` on."""
        ...

    def sum_up_day(self, day: int) -> None:
        """Add up the hours of a day. The day must have no sums yet."""
        ...

    def drop_days(self, since: int) -> None:
        """Delete the sums of days from `since` on."""
        ...

    def drop_hours(self, before: int) -> int:
        """
        Delete the hourly sums before a midnight and merge their periods into those of the days. Return
        the number deleted.
        """
        ...

    def note_periods(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        """Store the lowest record number that was counted in each (width, start)."""
        ...

    def forget_firsts(self) -> None:
        """Set every lowest number to 0 and unfreeze all periods."""
        ...

    def freeze_periods(self, below: int) -> None:
        """Freeze exactly the periods with a lowest number below `below`."""
        ...

    def frozen_periods(self) -> set[tuple[int, int]]:
        """Return width and start of the frozen periods."""
        ...

    def firsts(self) -> Mapping[tuple[int, int], int]:
        """Return the lowest counted record number of each period, by width and start."""
        ...

    def calls(self, width: int) -> Mapping[int, int]:
        """Return the number of calls in each period."""
        ...

    def drop_open_periods(self) -> int:
        """Delete every period that is not frozen, with its sums. Return how many."""
        ...

    def count_rows(self) -> int: ...

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterable[GroupSum]:
        """
        Sum by group what passes the query's filters, for the periods that begin in [since, until).

        `by_start` keeps these periods apart. `rollup` selects the sums of a rollup instead.
        """
        ...

    def largest(
        self, spans: Sequence[tuple[int, int, int, int]], query: CostQuery, most: int
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """
        Return the number of groups of a query, and the `most` largest with their approximate cost, largest first.

        Costs are in billionths of a dollar, without amounts in other currencies. The error is at most 1,000
        plus a billionth of the cost. `spans` are (width, since, until, number of a rollup or 0).
        """
        ...

    def has_more_groups(self, query: CostQuery, most: int) -> bool:
        """Return True if the known dimensions form more than `most` groups, whatever the query includes."""
        ...

    def passes_all(self, query: CostQuery) -> bool:
        """Return True if every known set of dimensions of calls passes the query's filters."""
        ...

    def rollups(self, since: int, until: int) -> Collection[tuple[int, int, int]]:
        """
        Return (number, width, start) of the marked rollups that begin in [since, until), including those
        of billed costs.
        """
        ...

    def make_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> None:
        """
        Make a rollup from the sums of its days by these dimensions (none means all), and mark it.

        Numbers from BILLED_ROLLUPS on are rollups of billed costs, which also keep charge and basis apart.
        """
        ...

    def differs_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> bool:
        """Return True if `make_rollup` would make other sums than the stored ones."""
        ...

    def unmark_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        """
        Remove the marks of all rollups, or of those that include these days. `billed` selects the kind of rollups.
        """
        ...

    def put_billed(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        """Replace a provider's billed costs of a day, and the information about that day."""
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
        Return what `totals` returns, for billed costs. The amount is in the measure `reported`; all other
        measures are 0.
        """
        ...

    def first_known(self, width: int, dimension: str) -> int | None:
        """Return the start of the first period with a sum that has a value of a dimension."""
        ...

    def tags(self) -> Sequence[tuple[str, str, bool, bool]]:
        """
        Return name and value of each tag, and whether calls have it and whether rows of billing
        connections have it.
        """
        ...

    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]:
        """Return the first known values of a dimension of calls, sorted."""
        ...


class LedgerStore(Protocol):
    """
    The storage of the rows.

    `shares_log`: the rows and the log are one database that other processes use as well. So neither is lost or
    restored without the other, and another process may have counted further than this process sees the log.
    """

    shares_log: bool

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in one transaction. If it raises, nothing is stored; when this method returns, everything is.

        Raises SpoolUnavailable if the rows cannot be written now, LedgerLost if the sums were damaged and
        start again empty.
        """
        ...

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        """Run `work`, which must change nothing, on the rows of one moment."""
        ...

    async def close(self) -> None: ...
