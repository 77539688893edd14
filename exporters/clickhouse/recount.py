"""
Counts a table's rows, and compares them with the record numbers and the accounting of its route.

The server adds up ranges of numbers, so memory does not depend on the table. Equal rows count once, as in the
views.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from exporters.clickhouse.server import ClickHouseServer
from exporters.clickhouse.table import MOST_RECORDS, TableSums
from exporters.lake.verification import ALL_DATES, FOREIGN, HOLE, OVERLAP, DateRange, LakeDifference
from spool import money

PAGE: Final = 200_000  # numbers per query
STEP: Final = 10_000  # record numbers that are summed up in one row
_FIRST_DAY, _LAST_DAY = "1970-01-01", "2299-12-31"


@dataclass(frozen=True, kw_only=True)
class VerifiedTable:
    """
    The result of a table recount. `stored`: rows including equal ones, which ClickHouse may not have merged
    yet. `settled` and `absent`: how many of the delivered record numbers the table has and lacks. `editions`:
    sums by edition (life of the log).
    """

    stored: int
    rows: int
    calls: int
    spend: str
    input_tokens: int
    output_tokens: int
    settled: int
    absent: int
    editions: Sequence[TableSums]
    differences: Sequence[LakeDifference]


async def recount_table(
    server: ClickHouseServer, table: str, *, below_number: int | None = None, dates: DateRange = ALL_DATES
) -> VerifiedTable:
    """
    Count the rows of the table in a range of dates. With all dates, also find missing and repeated numbers.

    Only numbers below `below_number` are settled; without it, all are. Raises the server's errors.
    """
    first, last, stored = await server.fetch_bounds_and_count()
    end = last + 1 if below_number is None else min(below_number, last + 1)
    settled = [part async for part in _fetch_range_sums(server, first, end - 1, dates)]
    later = [part async for part in _fetch_range_sums(server, max(end, first), last, dates)]
    differences: list[LakeDifference] = []
    if dates == ALL_DATES:
        differences += [*_overlap_differences(table, [*settled, *later]), *_hole_differences(table, settled)]
        if below_number is not None:
            differences += _differences_beyond_sent_numbers(table, later, below_number)
    editions = [_total_sums(parts) for parts in _group_by_edition([*settled, *later])]
    total = _total_sums(editions)
    return VerifiedTable(
        stored=stored,
        rows=total.rows,
        calls=total.calls,
        spend=total.spend,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        settled=sum(part.rows for part in settled),
        absent=sum(_count_missing_numbers(parts) for parts in _group_by_edition(settled)),
        editions=editions,
        differences=differences,
    )


async def _fetch_range_sums(
    server: ClickHouseServer, first_number: int, last_number: int, dates: DateRange
) -> AsyncIterator[TableSums]:
    since = dates.first or _FIRST_DAY
    until = dates.last or _LAST_DAY
    for start in range(first_number, last_number + 1, PAGE):
        end = min(start + PAGE - 1, last_number)
        for part in await server.fetch_sums(
            start, end, numbers_per_sum=STEP, since_day=since, until_day=until
        ):
            yield part


def _group_by_edition(parts: Sequence[TableSums]) -> list[list[TableSums]]:
    ordered = sorted(parts, key=lambda part: (part.edition, part.first))
    return [list(group) for _, group in groupby(ordered, lambda part: part.edition)]


def _total_sums(parts: Sequence[TableSums]) -> TableSums:
    return TableSums(
        edition=parts[0].edition if parts else "",
        first=min((part.first for part in parts), default=0),
        last=max((part.last for part in parts), default=0),
        rows=sum(part.rows for part in parts),
        numbers=sum(part.numbers for part in parts),
        calls=sum(part.calls for part in parts),
        spend=money.units_to_text(sum(money.text_to_units(part.spend) for part in parts)),
        input_tokens=sum(part.input_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
    )


def _overlap_differences(table: str, parts: Sequence[TableSums]) -> Iterator[LakeDifference]:
    for part in parts:
        if part.rows != part.numbers:
            description = (
                f"{part.rows} records share {part.numbers} numbers between {part.first} and {part.last}"
            )
            yield LakeDifference(OVERLAP, f"{table} {part.edition}", description)
    editions = sorted(
        (_total_sums(edition_parts) for edition_parts in _group_by_edition(parts)),
        key=lambda edition: edition.first,
    )
    for earlier, later in pairwise(editions):
        if later.first <= earlier.last:
            description = (
                f"it begins at number {later.first}, but the edition {earlier.edition} ends at {earlier.last}"
            )
            yield LakeDifference(OVERLAP, f"{table} {later.edition}", description)


def _hole_differences(table: str, parts: Sequence[TableSums]) -> Iterator[LakeDifference]:
    """Yield ranges with missing numbers: the records are damaged, or the rows were deleted."""
    for edition_parts in _group_by_edition(parts):
        first = edition_parts[0].first
        for part in edition_parts:
            absent = part.last - first + 1 - part.numbers
            if absent:
                description = f"{absent} of the numbers {first} to {part.last} have no row"
                yield LakeDifference(HOLE, f"{table} {part.edition}", description)
            first = part.last + 1


def _count_missing_numbers(parts: Sequence[TableSums]) -> int:
    total = _total_sums(parts)
    return total.last - total.first + 1 - total.numbers


def _differences_beyond_sent_numbers(
    table: str, parts: Sequence[TableSums], sent_below: int
) -> Iterator[LakeDifference]:
    """Yield rows that no settled delivery sent, except for one delivery that may be in progress."""
    last = max((part.last for part in parts), default=0)
    if last >= sent_below + MOST_RECORDS:
        description = f"it has numbers up to {last}, but the route has sent only those below {sent_below}"
        yield LakeDifference(FOREIGN, table, description)
