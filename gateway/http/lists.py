"""
Every list of the house speaks the service's envelope (published interface, parts 2.3 and 4.2), and it is built here.

A `List` says what a list is: its root key, sort keys and filters. Its rows come from memory or from SQL. Pages are cut
by keyset, never by offset: a walk in either direction sees every row whose sort key did not change exactly once,
whatever others insert and delete meanwhile. A cursor carries the filters, the sort and the limit it was made under.
"""

from __future__ import annotations

import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

import orjson

from gateway.errors import Refusal

Row = TypeVar("Row")
Value = str | int | float | None  # what rows are sorted by: null first, then numbers, then text by code point

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
ORDERS = ("asc", "desc")
_RESERVED = ("cursor", "limit", "sort_key", "sort_order")
_SIGNATURE = 16


@dataclass(frozen=True, kw_only=True)
class Sort(Generic[Row]):
    """A sort key: its value of a row in memory, or the SQL expression with the same order."""

    value: Callable[[Row], Value] | None = None
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class Filter(Generic[Row]):
    """A filterable field: a row passes when one of its values was asked for. No `valid_values`: an open set."""

    values: Callable[[Row], Sequence[str]] | None = None
    column: str = ""
    valid_values: tuple[str, ...] = ()
    type: str = "string"


@dataclass(frozen=True, kw_only=True)
class List(Generic[Row]):
    """What a list is, whatever its rows come from. `identity` breaks ties and must be unique and of one type."""

    root: str
    show: Callable[[Row], Mapping[str, object]]
    identity: Sort[Row]
    sorts: Mapping[str, Sort[Row]]
    default_sort: tuple[str, str]
    filters: Mapping[str, Filter[Row]] = field(default_factory=dict)
    default_limit: int = DEFAULT_LIMIT
    max_limit: int = MAX_LIMIT


@dataclass(frozen=True, slots=True)
class Place:
    """Between two rows: after (or, going back, before) the row with this sort value and identity; or at it."""

    value: Value
    identity: Value
    backward: bool = False
    inclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One page that was asked for."""

    sort_key: str
    sort_order: str
    filters: Mapping[str, tuple[str, ...]]
    limit: int
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """A page's rows in the list's order; whether the list goes on beyond its ends; how many rows all pages hold."""

    rows: Sequence[Row]
    places: Sequence[tuple[Value, Value]]
    before: bool
    after: bool
    total: int


class Rows(Protocol[Row]):
    """Where a list's rows come from. A page is of one moment."""

    async def page(self, listed: List[Row], view: View) -> Page[Row]: ...


async def envelope(
    listed: List[Row], rows: Rows[Row], query: Sequence[tuple[str, str]], *, secret: bytes
) -> dict[str, Any]:
    """The whole answer to a list request. Refusal 400 names the allowed values; `secret` signs the cursors."""
    view = _view(listed, query, secret)
    page = await rows.page(listed, view)
    return {
        listed.root: [listed.show(row) for row in page.rows],
        "pagination": {
            "page_count": math.ceil(page.total / view.limit),
            "item_count": len(page.rows),
            "total_count": page.total,
            "cursor": _cursors(listed, view, page, secret),
        },
        "filtering": {
            "available": [
                {"field": name, "valid_values": list(each.valid_values), "valid_types": [each.type]}
                for name, each in listed.filters.items()
            ],
            "current": {name: list(values) for name, values in view.filters.items()},
        },
        "sorting": {
            "available": list(listed.sorts),
            "current": [{"sort_key": view.sort_key, "sort_order": view.sort_order}],
            "ordering": list(ORDERS),
        },
    }


class MemoryRows(Generic[Row]):
    """Rows that are all at hand."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    async def page(self, listed: List[Row], view: View) -> Page[Row]:
        value, identity = listed.sorts[view.sort_key].value, listed.identity.value
        if value is None or identity is None:
            raise TypeError(f"the list {listed.root} has no values for rows in memory")
        found = sorted(
            ((_rank(value(row)), identity(row), row) for row in self._rows if _passes(listed, view, row)),
            key=lambda each: each[:2],
        )
        if view.sort_order == "desc":
            found.reverse()
        start, end = _cut(found, view)
        cut = found[start:end]
        return Page(
            rows=[row for _, _, row in cut],
            places=[(rank[1], key) for rank, key, _ in cut],
            before=start > 0,
            after=end < len(found),
            total=len(found),
        )


class SqlRows(Generic[Row]):
    """
    Rows of a table. `select` runs several statements at one moment and gives each one's rows; `row` reads one of them.

    The columns come from the list's definition, every value is bound.
    """

    def __init__(
        self,
        select: Callable[[Sequence[tuple[str, Sequence[object]]]], Awaitable[Sequence[Sequence[Any]]]],
        *,
        table: str,
        row: Callable[[Any], Row],
    ) -> None:
        self._select = select
        self._table = table
        self._row = row

    async def page(self, listed: List[Row], view: View) -> Page[Row]:
        sort, key = listed.sorts[view.sort_key].column, listed.identity.column
        where, values = _where(listed, view)
        backward = view.place is not None and view.place.backward
        downward = (view.sort_order == "desc") != backward
        # Null first, as in memory; a null would otherwise make every comparison with it unknown.
        keyset = f"({sort} IS NOT NULL, IFNULL({sort}, 0), {key})"
        beyond, behind, at = "1", "0", []
        if view.place is not None:
            ahead, back = ("<", ">") if downward else (">", "<")
            inclusive = view.place.inclusive
            beyond = f"{keyset} {ahead}{'=' if inclusive else ''} (?, ?, ?)"
            behind = f"{keyset} {back}{'' if inclusive else '='} (?, ?, ?)"
            value = view.place.value
            at = [value is not None, 0 if value is None else value, view.place.identity]
        way = "DESC" if downward else "ASC"
        pages, totals, others = await self._select([
            (
                f"SELECT *, {sort} AS sort_value, {key} AS identity FROM {self._table} WHERE {where} AND {beyond}"
                f" ORDER BY {sort} IS NOT NULL {way}, {sort} {way}, {key} {way} LIMIT ?",
                [*values, *at, view.limit + 1],
            ),
            (f"SELECT COUNT(*) FROM {self._table} WHERE {where}", values),
            (f"SELECT EXISTS (SELECT 1 FROM {self._table} WHERE {where} AND {behind})", [*values, *at]),
        ])  # fmt: skip
        cut = list(pages[: view.limit])
        more, others_behind = len(pages) > view.limit, bool(others[0][0])
        if backward:
            cut.reverse()
        return Page(
            rows=[self._row(row) for row in cut],
            places=[(row["sort_value"], row["identity"]) for row in cut],
            before=more if backward else others_behind,
            after=others_behind if backward else more,
            total=totals[0][0],
        )


def _view(listed: List[Any], query: Sequence[tuple[str, str]], secret: bytes) -> View:
    """The page that a query asks for; what a cursor carries holds unless the query says the same in other words."""
    asked: dict[str, list[str]] = {}
    for name, text in query:
        if name not in _RESERVED and name not in listed.filters:
            raise _wrong(f"unknown parameter; this list takes {', '.join((*_RESERVED, *listed.filters))}")
        asked.setdefault(name, []).append(text)
    for name in _RESERVED:
        if len(asked.get(name, ())) > 1:
            raise _wrong(f"{name} may be given only once")
    limit = _limit(asked["limit"][0], listed.max_limit) if "limit" in asked else None
    sort_key = _one_of("sort_key", asked.get("sort_key"), tuple(listed.sorts))
    sort_order = _one_of("sort_order", asked.get("sort_order"), ORDERS)
    filters = {name: _filter(name, listed.filters[name], asked[name]) for name in listed.filters if name in asked}
    if "cursor" not in asked:
        default_key, default_order = listed.default_sort
        order = sort_order or (default_order if sort_key in (None, default_key) else "asc")
        limit = limit or listed.default_limit
        return View(sort_key=sort_key or default_key, sort_order=order, filters=filters, limit=limit)
    view = _opened(listed, asked["cursor"][0], secret)
    if (sort_key or view.sort_key, sort_order or view.sort_order) != (view.sort_key, view.sort_order):
        raise _stale("it was made under another sort")
    if filters and {name: set(each) for name, each in filters.items()} != {
        name: set(each) for name, each in view.filters.items()
    }:
        raise _stale("it was made under other filters")
    return replace(view, limit=limit or view.limit)


def _limit(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= most):
        raise _wrong(f"limit must be a whole number from 1 to {most}")
    return int(text)


def _one_of(name: str, given: list[str] | None, allowed: Sequence[str]) -> str | None:
    if given is not None and given[0] not in allowed:
        raise _wrong(f"{name} must be one of {', '.join(allowed)}")
    return given[0] if given else None


def _filter(name: str, by: Filter[Any], given: list[str]) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(given))
    if by.valid_values and not set(values) <= set(by.valid_values):
        raise _wrong(f"{name} must be one of {', '.join(by.valid_values)}")
    if by.type == "integer" and not all(_is_integer(value) for value in values):
        raise _wrong(f"{name} must be a whole number")
    return values


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18


def _cursors(listed: List[Row], view: View, page: Page[Row], secret: bytes) -> dict[str, object]:
    following = previous = None
    if page.places:
        following = Place(*page.places[-1]) if page.after else None
        previous = Place(*page.places[0], backward=True) if page.before else None
    elif view.place is not None:
        # Everything on this side was deleted meanwhile: the way back includes the row at the border.
        turned = replace(view.place, backward=not view.place.backward, inclusive=not view.place.inclusive)
        following = turned if page.after else None
        previous = turned if page.before else None
    return {
        "next_cursor": following and _sealed(listed, view, following, secret),
        "previous_cursor": previous and _sealed(listed, view, previous, secret),
        "has_next": following is not None,
        "has_previous": previous is not None,
    }


def _sealed(listed: List[Any], view: View, place: Place, secret: bytes) -> str:
    state = [
        listed.root, view.sort_key, view.sort_order, view.filters, view.limit,
        place.value, place.identity, place.backward, place.inclusive,
    ]  # fmt: skip
    text = orjson.dumps(state)
    return urlsafe_b64encode(_signature(text, secret) + text).decode().rstrip("=")


def _opened(listed: List[Any], cursor: str, secret: bytes) -> View:
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except ValueError:
        raise _stale("it is not one of ours") from None
    signature, text = sealed[:_SIGNATURE], sealed[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signature(text, secret)):
        raise _stale("it is not one of ours")
    root, sort_key, sort_order, filters, limit, *place = orjson.loads(text)
    if root != listed.root or sort_key not in listed.sorts or not filters.keys() <= listed.filters.keys():
        raise _stale("it belongs to another list")
    asked = {name: _filter(name, listed.filters[name], values) for name, values in filters.items()}
    return View(sort_key=sort_key, sort_order=sort_order, filters=asked, limit=limit, place=Place(*place))


def _signature(text: bytes, secret: bytes) -> bytes:
    return blake2b(text, key=secret, digest_size=_SIGNATURE, person=b"list cursor").digest()


def _passes(listed: List[Row], view: View, row: Row) -> bool:
    for name, asked in view.filters.items():
        values = listed.filters[name].values
        if values is None:
            raise TypeError(f"the list {listed.root} has no values of {name} for rows in memory")
        if not any(value in asked for value in values(row)):
            return False
    return True


def _where(listed: List[Any], view: View) -> tuple[str, list[object]]:
    terms = ["1"]
    values: list[object] = []
    for name, asked in view.filters.items():
        terms.append(f"CAST({listed.filters[name].column} AS TEXT) IN ({', '.join('?' * len(asked))})")
        values += asked
    return " AND ".join(terms), values


def _rank(value: Value) -> tuple[int, Any]:
    if value is None:
        return 0, None
    return (2, value) if isinstance(value, str) else (1, value)


def _cut(found: Sequence[tuple[tuple[int, Any], Any, Any]], view: View) -> tuple[int, int]:
    """Where a page begins and ends among rows that stand in the view's order."""
    if view.place is None:
        return 0, min(view.limit, len(found))
    rank, at = _rank(view.place.value), view.place.identity
    # bisect wants rising keys: in a falling list the rows are counted from its end.
    falling = view.sort_order == "desc"
    rising = found[::-1] if falling else found
    below = bisect_left(rising, (rank, at), key=lambda each: each[:2])
    through = bisect_right(rising, (rank, at), key=lambda each: each[:2])
    smaller, upto = (len(found) - through, len(found) - below) if falling else (below, through)
    if view.place.backward:
        end = upto if view.place.inclusive else smaller
        return max(0, end - view.limit), end
    start = smaller if view.place.inclusive else upto
    return start, min(start + view.limit, len(found))


def _wrong(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)


def _stale(reason: str) -> Refusal:
    return Refusal(
        400, "invalid_cursor", f"cursor cannot be used: {reason}; take next_cursor or previous_cursor of the same list"
    )
