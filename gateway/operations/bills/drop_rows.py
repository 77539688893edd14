"""
A month's rows of a billing connection in pages, sorted by hour, then by file, then in the order in which
they were sent.

All pages show the month as it was at the first page. Rows that are added later are omitted. If rows of the
first state are replaced, the next page is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import msgspec
import orjson

from gateway.core.errors import Refusal
from gateway.core.schemas import TEXT, open_object_schema, schema_with_description
from gateway.http.lists import Filter, ListDefinition, PageQuery, Sort, one_page_envelope
from spool.billing import HourRows
from spool.listing import DESCENDING, ListPage, Position, empty_page

ROOT = "billing_drop"
PAGE = 10_000
TIME = "time/usage_start"
FILTERS = ("resource/account", "resource/service", "lineitem/type")


@dataclass(frozen=True, slots=True)
class SentBillingRow:
    """
    A billing row as it was sent. `position` is its place in the list, and the version of the month's rows
    that the page shows.
    """

    text: bytes
    position: str


# a row has the columns of its file, such as a column for each tag
DROP_ROW = open_object_schema(
    {
        "time/usage_start": schema_with_description(TEXT, "The start of the hour."),
        "cost/cost": schema_with_description(TEXT, "The cost of the hour."),
        "resource/id": schema_with_description(TEXT, "The id of the resource."),
        "resource/tag:team": schema_with_description(
            TEXT, "The tag `team` of the resource. Each tag has such a column."
        ),
    }
)
# list of a month's rows, which are shown as the received bytes, without decoding them
MONTH_ROWS: ListDefinition[SentBillingRow] = ListDefinition(
    root=ROOT,
    show=lambda row: cast(Any, orjson.Fragment(row.text)),
    identity=Sort(value=lambda row: row.position),
    sorts={TIME: Sort(value=lambda row: row.position)},
    default_sort=(TIME, "asc"),
    filters={name: Filter(is_open=True) for name in FILTERS},
    default_limit=PAGE,
    max_limit=PAGE,
)

_rows = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, Any])


class MonthBillingRows:
    """The rows of a connection's month, as pages."""

    def __init__(self, hours: Sequence[HourRows]) -> None:
        self._hours = hours

    async def page(
        self, list_definition: ListDefinition[SentBillingRow], page_query: PageQuery
    ) -> ListPage[SentBillingRow]:
        return await asyncio.to_thread(self._read_page_of_rows, page_query)

    def _read_page_of_rows(self, page_query: PageQuery) -> ListPage[SentBillingRow]:
        hours, walk, at = self._hours_state_name_and_position(page_query.position)
        chosen = (
            list(_matching_indexes(hours, page_query))
            if page_query.filters
            else range(sum(hour.rows for hour in hours))
        )
        is_falling = page_query.sort_order == DESCENDING
        is_backward = at is not None and at[1].backward
        places: Sequence[int] = chosen[::-1] if is_falling else chosen
        start, end = _page_bounds(
            places, at, page_query.limit, is_falling=is_falling, is_backward=is_backward
        )
        cut = places[start:end]
        texts = _rows_by_index(hours, set(cut))
        rows = [SentBillingRow(texts[index], f"{index} {walk}") for index in cut]
        return ListPage(
            rows=rows,
            keys=[(None, row.position) for row in rows],
            before=start > 0,
            after=end < len(places),
            total=len(places),
        )

    def _hours_state_name_and_position(
        self, position: Position | None
    ) -> tuple[Sequence[HourRows], str, tuple[int, Position] | None]:
        """
        Return the hours of the month in the state that the first page showed, the name of this state, and the
        position. Raises Refusal 410 if rows of that state were replaced.
        """
        if position is None:
            last = max(hour.drop for hour in self._hours)
            return self._hours, f"{last} {_files_digest(self._hours)}", None
        index_text, last_drop, digest = str(position.identity).split(" ")
        hours = [hour for hour in self._hours if hour.drop <= int(last_drop)]
        if _files_digest(hours) != digest:
            message = "rows of this month were replaced since the first page; start again without cursor"
            raise Refusal(410, "changed", message)
        return hours, f"{last_drop} {digest}", (int(index_text), position)


def closing_json_of_month_answer(row_count: int) -> bytes:
    return (
        b"," + orjson.dumps(one_page_envelope(MONTH_ROWS, empty_page(total=row_count), limit=row_count))[1:]
    )


def _page_bounds(
    row_indexes: Sequence[int],
    at: tuple[int, Position] | None,
    limit: int,
    *,
    is_falling: bool,
    is_backward: bool,
) -> tuple[int, int]:
    if at is None:
        return 0, min(limit, len(row_indexes))
    row_index, position = at
    is_before: Callable[[int], bool] = (
        (lambda index: index > row_index) if is_falling else (lambda index: index < row_index)
    )
    low, high = 0, len(row_indexes)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_before(row_indexes[middle]) else (low, middle)
    offset = 1 if low < len(row_indexes) and row_indexes[low] == row_index else 0
    if is_backward:
        end = low + offset if position.inclusive else low
        return max(0, end - limit), end
    start = low if position.inclusive else low + offset
    return start, min(len(row_indexes), start + limit)


def _matching_indexes(hours: Sequence[HourRows], page_query: PageQuery) -> Iterator[int]:
    for index, text in enumerate(_json_rows_of_all_hours(hours)):
        fields = _fields.decode(text)
        if all(str(fields.get(name, "")) in values for name, values in page_query.filters.items()):
            yield index


def _rows_by_index(hours: Sequence[HourRows], row_indexes: set[int]) -> dict[int, bytes]:
    """Return the JSON of these rows by their index in the month. Hours without such a row stay compressed."""
    text_by_index: dict[int, bytes] = {}
    first = 0
    for hour in hours:
        indexes = [index for index in range(first, first + hour.rows) if index in row_indexes]
        if indexes:
            rows = _rows.decode(b"[" + hour.json_rows + b"]")
            text_by_index.update((index, bytes(rows[index - first])) for index in indexes)
        first += hour.rows
    return text_by_index


def _json_rows_of_all_hours(hours: Sequence[HourRows]) -> Iterator[bytes]:
    for hour in hours:
        yield from map(bytes, _rows.decode(b"[" + hour.json_rows + b"]"))


def _files_digest(hours: Sequence[HourRows]) -> str:
    """
    Return a digest of the files and of the hours in which they have rows. A file never changes, and its rows
    of an hour are removed together.
    """
    names = [(hour.hour, hour.drop, hour.rows) for hour in hours]
    return blake2b(orjson.dumps(names), digest_size=12).hexdigest()
