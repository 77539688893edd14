"""
The common form of list responses (published interface, parts 2.3 and 4.2): rows, pagination and filters.

Rows are in memory or in storage, which handles a `ListQuery` (spool.listing). A cursor contains the filters,
order and limit of its request.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from gateway.configuration.values import parse_quantity
from gateway.core.errors import Refusal
from gateway.core.schemas import Schema
from spool.listing import (
    ASCENDING,
    DESCENDING,
    MOST_KNOWN,
    ListPage,
    ListQuery,
    Position,
    SortField,
    SortValue,
    cut_page,
    limited_choices,
)
from spool.people import People
from spool.settings import Duration
from spool.turns.fair_turns import pause_if_step_was_long
from spool.viewed_people import check_may_view_people, note_viewed_people

Row = TypeVar("Row")
DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
BESIDE_ROWS = 100  # number of rows of a list above which a thread filters and sorts them
ORDERS = (ASCENDING, DESCENDING)
_RESERVED = ("cursor", "limit", "sort_key", "sort_order")
_SIGNATURE = 16
# A new collation needs a new number, because an old cursor would skip rows.
_SORTED = b"list cursor 2"


@dataclass(frozen=True, kw_only=True)
class Sort(Generic[Row]):
    """A sort key: `value` reads it from a row in memory, and `field` is its field in stored rows."""

    value: Callable[[Row], SortValue] | None = None
    field: SortField | None = None


class SearchableObject(NamedTuple):
    """What a search knows of an object: its id and its names. The first name that is not empty is shown."""

    id: str
    names: Sequence[str]


YES_NO = ("true", "false")
AGE = "age"


@dataclass(frozen=True, kw_only=True)
class Filter(Generic[Row]):
    """
    A filter of a list. A row passes if one of its values was requested. Without `valid_values`, the answer
    lists the values that exist, unless `is_open`. Then requests may name any text, because the values may
    change between two pages.

    `holds` tests a row that cannot list its values. With `excludes`, a row passes if none of its values was
    requested. With `names_people`, a value may be a person, and every form of the person's name matches
    (spool.people).
    """

    values: Callable[[Row], Sequence[str]] | None = None
    holds: Callable[[Row, str], bool] | None = None
    field: str = ""  # name of the field in a stored row
    valid_values: tuple[str, ...] = ()
    type: str = "string"
    excludes: bool = False  # whether `!=` is possible; only for lists in memory
    names_people: bool = False
    is_open: bool = False
    is_single: bool = False

    @property
    def has_listed_values(self) -> bool:
        return not (self.valid_values or self.is_open or self.holds) and self.type == "string"


def yes_no_filter(is_so: Callable[[Row], object]) -> Filter[Row]:
    return Filter(
        values=lambda row: ("true" if is_so(row) else "false",), valid_values=YES_NO, type="boolean"
    )


def age_filter(newest: Callable[[Row], float]) -> Filter[Row]:
    """Return a filter by an age such as "3d". A row passes if its time `newest` is at least that long ago."""
    return Filter(holds=lambda row, time: newest(row) <= float(time), type=AGE)


@dataclass(frozen=True, kw_only=True)
class ListDefinition(Generic[Row]):
    """
    The declaration of a list. `identity` breaks ties in the order, so its values are unique and of one type.
    The response always has the root keys `beside`. Those in `at_times` only appear where they apply. With
    `shows_people`, rows have figures of people, so the viewer is recorded.
    """

    root: str
    show: Callable[[Row], Mapping[str, object]]
    identity: Sort[Row]
    sorts: Mapping[str, Sort[Row]]
    default_sort: tuple[str, str]
    filters: Mapping[str, Filter[Row]] = field(default_factory=dict)
    default_limit: int = DEFAULT_LIMIT
    max_limit: int = MAX_LIMIT
    beside: Mapping[str, type | Schema] = field(default_factory=dict)
    at_times: Mapping[str, Schema] = field(default_factory=dict)
    shows_people: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    sort_key: str
    sort_order: str
    filters: Mapping[str, tuple[str, ...]]
    limit: int
    position: Position | None = None


class Rows(Protocol[Row]):
    """The source of a list's rows. Each page is a consistent snapshot."""

    async def page(self, list_definition: ListDefinition[Row], page_query: PageQuery) -> ListPage[Row]: ...


async def list_envelope(
    list_definition: ListDefinition[Row],
    rows: Rows[Row],
    query: Sequence[tuple[str, str]],
    *,
    secret: bytes,
    people: People,
    now: float,
) -> dict[str, Any]:
    """
    Return a page of a list. `secret` signs cursors, and ages count from `now`.

    Raises Refusal 400 with the allowed values.
    """
    page_query = _parse_page_query(list_definition, query, secret)
    filters = _ages_to_times(
        list_definition, _expand_people(list_definition, page_query.filters, people), now
    )
    page = await rows.page(list_definition, replace(page_query, filters=filters))
    if list_definition.shows_people and page.rows:
        note_viewed_people(page_query.filters, list_definition.filters)
    elif list_definition.shows_people:
        check_may_view_people(page_query.filters)
    return {
        list_definition.root: await _show_rows(list_definition, page.rows),
        **_envelope_fields(
            list_definition, page_query, page, _page_cursors(list_definition, page_query, page, secret)
        ),
    }


async def _show_rows(list_definition: ListDefinition[Row], rows: Sequence[Row]) -> list[Mapping[str, object]]:
    if len(rows) > MAX_LIMIT:
        return await asyncio.to_thread(lambda: list(map(list_definition.show, rows)))
    objects = []
    for row in rows:
        objects.append(list_definition.show(row))
        await pause_if_step_was_long()
    return objects


def one_page_envelope(
    list_definition: ListDefinition[Row], page: ListPage[Row], *, limit: int
) -> dict[str, Any]:
    key, order = list_definition.default_sort
    page_query = PageQuery(sort_key=key, sort_order=order, filters={}, limit=max(1, limit))
    beside = _envelope_fields(
        list_definition, page_query, page, _page_cursors(list_definition, page_query, page, b"")
    )
    beside["pagination"]["item_count"] = page.total
    return beside


def _envelope_fields(
    list_definition: ListDefinition[Row],
    page_query: PageQuery,
    page: ListPage[Row],
    cursors: Mapping[str, object],
) -> dict[str, Any]:
    return {
        "pagination": {
            "page_count": math.ceil(page.total / page_query.limit),
            "item_count": len(page.rows),
            "total_count": page.total,
            "cursor": cursors,
        },
        "filtering": {
            "available": [
                {
                    "field": name,
                    "valid_values": list(listed_filter.valid_values or page.known.get(name, ())),
                    "valid_types": [listed_filter.type],
                }
                for name, listed_filter in list_definition.filters.items()
                if not listed_filter.excludes
            ],
            "current": {name: list(values) for name, values in page_query.filters.items()},
        },
        "sorting": {
            "available": list(list_definition.sorts),
            "current": [{"sort_key": page_query.sort_key, "sort_order": page_query.sort_order}],
            "ordering": list(ORDERS),
        },
    }


class MemoryRows(Generic[Row]):
    """
    Rows in memory. If there are many, they are filtered and sorted on a thread. `known` are the values of
    filters.
    """

    def __init__(self, rows: Sequence[Row], *, known: Mapping[str, Sequence[str]] | None = None) -> None:
        self._rows = rows
        self._known = known

    async def page(self, list_definition: ListDefinition[Row], page_query: PageQuery) -> ListPage[Row]:
        if len(self._rows) > BESIDE_ROWS:
            return await asyncio.to_thread(self._cut_page, list_definition, page_query)
        return self._cut_page(list_definition, page_query)

    def _cut_page(self, list_definition: ListDefinition[Row], query: PageQuery) -> ListPage[Row]:
        value, identity = list_definition.sorts[query.sort_key].value, list_definition.identity.value
        if value is None or identity is None:
            raise TypeError(
                f"the list {list_definition.root} has rows in memory, but no function for their sort value"
            )
        page = cut_page(
            [row for row in self._rows if passes_filters(list_definition, query.filters, row)],
            value_of=value,
            identity_of=identity,
            order=query.sort_order,
            limit=query.limit,
            position=query.position,
        )
        return replace(
            page,
            known=filter_values_by_field(list_definition, lambda _: self._rows)
            if self._known is None
            else self._known,
        )


class StoredRows(Generic[Row]):
    """Rows in storage. `answer` is the storage's method that runs a query."""

    def __init__(self, answer: Callable[[ListQuery], Awaitable[ListPage[Row]]]) -> None:
        self._answer = answer

    async def page(self, list_definition: ListDefinition[Row], page_query: PageQuery) -> ListPage[Row]:
        sort, identity = list_definition.sorts[page_query.sort_key].field, list_definition.identity.field
        if sort is None or identity is None:
            raise TypeError(
                f"the list {list_definition.root} has stored rows, but names no field to sort them by"
            )
        query = ListQuery(
            sort=sort,
            order=page_query.sort_order,
            identity=identity.name,
            limit=page_query.limit,
            filters={
                list_definition.filters[name].field: values for name, values in page_query.filters.items()
            },
            position=page_query.position,
            known=tuple(
                listed_filter.field
                for listed_filter in list_definition.filters.values()
                if listed_filter.field and listed_filter.has_listed_values
            ),
        )
        page = await self._answer(query)
        known_by_name = {
            name: page.known.get(listed_filter.field, ())
            for name, listed_filter in list_definition.filters.items()
        }
        return replace(page, known=known_by_name)


def filter_values_by_field(
    list_definition: ListDefinition[Row], rows_for: Callable[[str], Iterable[Row]]
) -> dict[str, list[str]]:
    """
    Return the existing values of each filter, or none for a filter with more than MOST_KNOWN values.

    `rows_for` returns rows that together have every value of a filter.
    """
    known: dict[str, list[str]] = {}
    for name, filter_ in list_definition.filters.items():
        if filter_.values is None or filter_.excludes or not filter_.has_listed_values:
            continue
        field_values: set[str] = set()
        for row in rows_for(name):
            field_values.update(filter_.values(row))
            if len(field_values) > MOST_KNOWN:
                break
        known[name] = limited_choices(field_values)
    return known


def row_filter(
    list_definition: ListDefinition[Row], query: Sequence[tuple[str, str]], people: People
) -> Callable[[Row], bool]:
    """
    Return a function that tests rows against the filters of a query.

    Raises Refusal 400 for other parameters.
    """
    requested: dict[str, list[str]] = {}
    for name, text in query:
        if name not in list_definition.filters:
            raise _invalid_parameter_refusal(
                f"unknown parameter; allowed parameters: {', '.join(list_definition.filters)}"
            )
        requested.setdefault(name, []).append(text)
    filters_by_name = {
        name: _check_filter(name, list_definition.filters[name], values) for name, values in requested.items()
    }
    filters = _expand_people(list_definition, filters_by_name, people)
    if list_definition.shows_people:
        note_viewed_people(filters_by_name, list_definition.filters)
    return lambda row: passes_filters(list_definition, filters, row)


def _parse_page_query(
    list_definition: ListDefinition[Any], query: Sequence[tuple[str, str]], secret: bytes
) -> PageQuery:
    """Return the page that a query requests. Raises Refusal 400 if the query contradicts its cursor."""
    requested: dict[str, list[str]] = {}
    for name, text in query:
        if name not in _RESERVED and name not in list_definition.filters:
            raise _invalid_parameter_refusal(
                f"unknown parameter; allowed parameters: {', '.join((*_RESERVED, *list_definition.filters))}"
            )
        requested.setdefault(name, []).append(text)
    for name in _RESERVED:
        if len(requested.get(name, ())) > 1:
            raise _repeated_parameter_refusal(name)
    limit = _parse_limit(requested["limit"][0], list_definition.max_limit) if "limit" in requested else None
    sort_key = _check_allowed("sort_key", requested.get("sort_key"), tuple(list_definition.sorts))
    sort_order = _check_allowed("sort_order", requested.get("sort_order"), ORDERS)
    filters = {
        name: _check_filter(name, filter_, requested[name])
        for name, filter_ in list_definition.filters.items()
        if name in requested
    }
    if "cursor" not in requested:
        default_key, default_order = list_definition.default_sort
        order = sort_order or (default_order if sort_key in (None, default_key) else "asc")
        limit = limit or list_definition.default_limit
        return PageQuery(sort_key=sort_key or default_key, sort_order=order, filters=filters, limit=limit)
    page_query = _open_cursor(list_definition, requested["cursor"][0], secret)
    if (sort_key or page_query.sort_key, sort_order or page_query.sort_order) != (
        page_query.sort_key,
        page_query.sort_order,
    ):
        raise _stale_cursor_refusal("it was made with another sort order")
    if filters and _filters_as_sets(filters) != _filters_as_sets(page_query.filters):
        raise _stale_cursor_refusal("it was made with other filters")
    return replace(page_query, limit=limit or page_query.limit)


def _expand_people(
    list_definition: ListDefinition[Any], filters: Mapping[str, tuple[str, ...]], people: People
) -> dict[str, tuple[str, ...]]:
    people_filters = {
        name: values for name, values in filters.items() if list_definition.filters[name].names_people
    }
    return {**filters, **people.check_and_expand_filter(people_filters)}


def _ages_to_times(
    list_definition: ListDefinition[Any], filters: Mapping[str, tuple[str, ...]], now: float
) -> dict[str, tuple[str, ...]]:
    times = {
        name: tuple(str(now - _age_s(name, text)) for text in texts)
        for name, texts in filters.items()
        if list_definition.filters[name].type == AGE
    }
    return {**filters, **times}


def _age_s(name: str, text: str) -> float:
    age_s = parse_quantity(Duration, text)
    if age_s is None:
        raise _invalid_parameter_refusal(f"{name} must be a duration such as 12h or 3d")
    return age_s


def _filters_as_sets(filters: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    return {name: set(values) for name, values in filters.items()}


def _parse_limit(text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= maximum):
        raise _invalid_parameter_refusal(f"limit must be a whole number from 1 to {maximum}")
    return int(text)


def _check_allowed(name: str, values: list[str] | None, allowed: Sequence[str]) -> str | None:
    if values is not None and values[0] not in allowed:
        raise _invalid_parameter_refusal(f"{name} must be one of {', '.join(allowed)}")
    return values[0] if values else None


def _check_filter(name: str, filter_: Filter[Any], value_texts: list[str]) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(value_texts))
    if filter_.is_single and len(values) > 1:
        raise _repeated_parameter_refusal(name)
    if filter_.valid_values and not set(values) <= set(filter_.valid_values):
        raise _invalid_parameter_refusal(f"{name} must be one of {', '.join(filter_.valid_values)}")
    if filter_.type == "integer" and not all(_is_integer(value) for value in values):
        raise _invalid_parameter_refusal(f"{name} must be a whole number")
    if filter_.type == AGE:
        for value in values:
            _age_s(name, value)
    return values


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18


def _page_cursors(
    list_definition: ListDefinition[Row], page_query: PageQuery, page: ListPage[Row], secret: bytes
) -> dict[str, object]:
    following = previous = None
    if page.keys:
        [first_value, first_identity], [last_value, last_identity] = page.keys[0], page.keys[-1]
        if page.after:
            following = Position(value=last_value, identity=last_identity)
        if page.before:
            previous = Position(value=first_value, identity=first_identity, backward=True)
    elif page_query.position is not None:
        # All rows in this direction were deleted. The other cursor includes the row at the requested
        # position.
        position = page_query.position
        turned = replace(position, backward=not position.backward, inclusive=not position.inclusive)
        following = turned if page.after else None
        previous = turned if page.before else None
    return {
        "next_cursor": following and _seal_cursor(list_definition, page_query, following, secret),
        "previous_cursor": previous and _seal_cursor(list_definition, page_query, previous, secret),
        "has_next": following is not None,
        "has_previous": previous is not None,
    }


def _seal_cursor(
    list_definition: ListDefinition[Any], page_query: PageQuery, position: Position, secret: bytes
) -> str:
    state = [
        list_definition.root,
        page_query.sort_key,
        page_query.sort_order,
        page_query.filters,
        page_query.limit,
        position.value,
        position.identity,
        position.backward,
        position.inclusive,
    ]
    text = orjson.dumps(state)
    return urlsafe_b64encode(_cursor_signature(text, secret) + text).decode().rstrip("=")


def _open_cursor(list_definition: ListDefinition[Any], cursor: str, secret: bytes) -> PageQuery:
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except ValueError:
        raise _stale_cursor_refusal("Tollhouse did not create it") from None
    signature, text = sealed[:_SIGNATURE], sealed[_SIGNATURE:]
    if not hmac.compare_digest(signature, _cursor_signature(text, secret)):
        raise _stale_cursor_refusal("Tollhouse did not create it")
    root, sort_key, sort_order, filters, limit, value, identity, backward, inclusive = orjson.loads(text)
    if (
        root != list_definition.root
        or sort_key not in list_definition.sorts
        or not filters.keys() <= list_definition.filters.keys()
    ):
        raise _stale_cursor_refusal("it belongs to another list")
    parsed_filters = {
        name: _check_filter(name, list_definition.filters[name], values) for name, values in filters.items()
    }
    position = Position(value=value, identity=identity, backward=backward, inclusive=inclusive)
    return PageQuery(
        sort_key=sort_key, sort_order=sort_order, filters=parsed_filters, limit=limit, position=position
    )


def _cursor_signature(text: bytes, secret: bytes) -> bytes:
    return blake2b(text, key=secret, digest_size=_SIGNATURE, person=_SORTED).digest()


def passes_filters(
    list_definition: ListDefinition[Row], filters: Mapping[str, Sequence[str]], row: Row
) -> bool:
    for name, requested in filters.items():
        values, holds = list_definition.filters[name].values, list_definition.filters[name].holds
        if holds is not None:
            passes = any(holds(row, value) for value in requested)
        elif values is not None:
            passes = any(value in requested for value in values(row))
        else:
            raise TypeError(
                f"the list {list_definition.root} has no function that filters rows in memory by {name}"
            )
        if passes == list_definition.filters[name].excludes:
            return False
    return True


def _invalid_parameter_refusal(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)


def _repeated_parameter_refusal(name: str) -> Refusal:
    return _invalid_parameter_refusal(f"{name} may be given only once")


def _stale_cursor_refusal(reason: str) -> Refusal:
    message = f"cursor cannot be used: {reason}; use next_cursor or previous_cursor from the same list"
    return Refusal(400, "invalid_cursor", message)
