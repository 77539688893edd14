"""
What an engine owes the ledger: its sums, in transactions. What is counted, priced and asked is decided above.

Sums are kept by hour and by day: `width` is HOUR_S or DAY_S, `start` the begin of such a period in epoch
seconds. A distinct set of dimensions has a number, so that its texts are kept once.
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
# Of a cost in billionths of a dollar: more than a double and the digits that are left out can make of it.
WRONG, WRONG_OF = 1000.0, 1e-9


class GroupSum(NamedTuple):
    """Measures of one group of a query that have one status and one cost source; `start` of the sum, if asked for."""

    group: tuple[str | None, ...]
    status: str
    cost_source: str
    measures: Measures
    start: int = 0


@dataclass(frozen=True, slots=True)
class MeterSum:
    """The quantity of one meter of a group, in millionths, of calls that have one status; `meter` if several."""

    group: tuple[str | None, ...]
    status: str
    quantity: int
    start: int = 0
    meter: str = ""


class LedgerRows(Protocol):
    """The rows within one transaction."""

    def state(self) -> Mapping[str, int]:
        """
        Return the numbers stored by `set_state`, by the names of `spool.ledger.counting.state_of`; only those set.
        """
        ...

    def set_state(self, **values: int) -> None: ...

    def number(self, dimensions: Dimensions) -> int:
        """The number of a set of dimensions, which has one from now on."""
        ...

    def find_number(self, dimensions: Dimensions) -> int | None:
        """The number of a set of dimensions; None if it has none."""
        ...

    def drop_unused_numbers(self) -> int:
        """Forget the dimensions that no sum has; how many. Their numbers may be given again."""
        ...

    def numbers(self, width: int, start: int) -> set[int]:
        """The numbers that have sums in a period."""
        ...

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        """Add measures to those of (start, number)."""
        ...

    def add_meters(self, width: int, sums: Iterable[tuple[int, int, MeterSums]]) -> None:
        """Add meters to those of (start, number), which has a sum; they go where it goes."""
        ...

    def meters(self, width: int, start: int) -> Mapping[int, MeterSums]:
        """Return the meters of a period, by the number of their sum."""
        ...

    def metered_sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, MeterSums]]:
        """Return the meters of a period, by the dimensions of their sum."""
        ...

    def meters_by_start(self, width: int) -> Mapping[int, MeterSums]:
        """Return the meters of each period that has some."""
        ...

    def meter_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterable[MeterSum]:
        """Return what `totals` does, of the meter of the query or of each."""
        ...

    def charge_totals(self, width: int, since: int, until: int, query: CostQuery) -> Iterable[MeterSum]:
        """Return what `totals` does, by period, of each limb of amounts in other currencies."""
        ...

    def remove(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        """Remove the sums of (start, number)."""
        ...

    def starts(self, width: int, since: int) -> Sequence[int]:
        """Return the begins of the periods with sums, from `since` on."""
        ...

    def priceable(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        """The sums of calls of one period, with their numbers."""
        ...

    def token_sums(self, width: int, start: int, *, dearest: int = 0) -> Sequence[tuple[int, Measures]]:
        """
        Return COUNTS and what they cost of the sums of calls whose input is known, of one period, by their
        numbers. If `dearest` is given, only so many that cost most, and those that may be among them.
        """
        ...

    def dimensions(self, numbers: Collection[int]) -> Mapping[int, Dimensions]:
        """Return the dimensions that have these numbers."""
        ...

    def sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        """All sums of one period."""
        ...

    def oldest(self, width: int, since: int) -> int | None:
        """The begin of the first period with sums from `since` on."""
        ...

    def sum_up_day(self, day: int) -> None:
        """Add the sums of a day's hours up as the sums of the day, which has none."""
        ...

    def drop_days(self, since: int) -> None:
        """Remove the sums of days from `since` on."""
        ...

    def drop_hours(self, before: int) -> int:
        """Remove the sums of hours before a midnight; how many. Their periods are joined to those of their days."""
        ...

    def note_periods(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        """Keep the lowest number of the log that was counted in (width, start)."""
        ...

    def forget_firsts(self) -> None:
        """Set every lowest number to 0, and freeze no period."""
        ...

    def freeze_periods(self, below: int) -> None:
        """Freeze the periods whose lowest number is below this, and no others."""
        ...

    def frozen_periods(self) -> set[tuple[int, int]]:
        """Their widths and starts."""
        ...

    def firsts(self) -> Mapping[tuple[int, int], int]:
        """Return the lowest counted number of the log for each period, by its width and start."""
        ...

    def calls(self, width: int) -> Mapping[int, int]:
        """Return the number of calls in each period."""
        ...

    def drop_open_periods(self) -> int:
        """Remove every period that is not frozen, with its sums; how many."""
        ...

    def count_rows(self) -> int: ...

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterable[GroupSum]:
        """
        Sum by group what the query's filters let through of the periods that begin in [since, until); with
        `by_start`, by each of these periods, too. Of the sums of a rollup if its number is given.
        """
        ...

    def largest(
        self, spans: Sequence[tuple[int, int, int, int]], query: CostQuery, most: int
    ) -> tuple[int, Sequence[tuple[Group, float]]]:
        """
        Return how many groups a question has, and `most` of them with about what each costs in billionths of a
        dollar, the largest first; without amounts in other currencies.

        Wrong by 1000 and a billionth of it at most. `spans` are (width, since, until, number of a rollup or 0).
        """
        ...

    def has_more_groups(self, query: CostQuery, most: int) -> bool:
        """True if there are dimensions of more than so many groups, whatever the question includes."""
        ...

    def passes_all(self, query: CostQuery) -> bool:
        """True if every known set of dimensions of calls passes what the query includes and excludes."""
        ...

    def rollups(self, since: int, until: int) -> Collection[tuple[int, int, int]]:
        """Return (number, width, start) of the marked rollups, of billed money too, that begin in [since, until)."""
        ...

    def make_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> None:
        """
        Make a rollup of the sums of its days by these dimensions, none: all, and mark it. One with a number of
        BILLED_ROLLUPS on is of billed money, and keeps charge and basis apart, too.
        """
        ...

    def differs_rollup(self, number: int, dimensions: Sequence[str], width: int, start: int) -> bool:
        """True if `make_rollup` would make other sums than are there."""
        ...

    def unmark_rollups(self, days: Collection[int] | None = None, *, billed: bool = False) -> None:
        """Remove the marks of the rollups that these days are in, by their begins; of all by default. Of one kind."""
        ...

    def put_billed(self, day: BilledDay, sums: Iterable[BilledSum]) -> None:
        """Replace a provider's billed money of a day, and what is known of that day."""
        ...

    def drop_billed(self, day: int, provider: str) -> None:
        """Forget a provider's billed money of a day."""
        ...

    def billed_days(self, since: int, until: int) -> Sequence[BilledDay]:
        """Return the made days that begin in [since, until), by day and provider."""
        ...

    def billed_starts(self, since: int, until: int) -> Sequence[int]:
        """Return the begins of the days in [since, until) that a bill is about."""
        ...

    def billed_sums(self, day: int, provider: str) -> Sequence[BilledSum]:
        """Return a provider's billed money of a day."""
        ...

    def billed_totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False, rollup: int = 0
    ) -> Iterable[GroupSum]:
        """Return what `totals` does, of billed money: it stands as reported money, and nothing else is counted."""
        ...

    def first_known(self, width: int, dimension: str) -> int | None:
        """Return the begin of the first period with a sum that knows a value of a dimension."""
        ...

    def tags(self) -> Sequence[tuple[str, str, bool, bool]]:
        """Return each name and value of a tag, whether calls have it, and whether rows of billing connections do."""
        ...

    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]:
        """The first known values of a dimension in order, of calls."""
        ...


class LedgerStore(Protocol):
    """
    The rows on whatever the engine keeps them.

    `shares_log`: they and the log are one database, which other processes use too. Neither is lost or restored
    without the other then, and somebody else may have counted further than this process sees the log.
    """

    shares_log: bool

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Run `work` in one transaction: all that it did is kept when this returns; when it raises, nothing is.

        SpoolUnavailable when it cannot be written now, LedgerLost when the sums were damaged and begin anew.
        """
        ...

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        """Run `work`, which changes nothing, on the rows of one moment."""
        ...

    async def close(self) -> None: ...
