"""
Pages of sorted and filtered rows.

A page begins after the last row of the page before, not at an offset. So a reader sees each row once, even if
rows are added and deleted, unless a row's sort value changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import nlargest, nsmallest
from operator import gt, lt
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
# null, then numbers, then text by `text_sort_key`
SortValue = str | int | float | None

ASCENDING, DESCENDING = "asc", "desc"
MOST_KNOWN = 200  # maximum values that a filter offers
# range that contains all letters that have capital and small forms
_FIRST_CASED, _PAST_CASED = ord("A"), 0x1E944


@cache
def small_letter_by_capital() -> Mapping[str, str]:
    """
    Return a mapping from capital to small letters, for letters that stay one character.

    It is Unicode's simple case folding, for every engine: SQL has no rule, and a database's rule depends on
    its release and locale.
    """
    letters = {}
    for code in range(_FIRST_CASED, _PAST_CASED):
        letter = chr(code)
        small = letter.casefold()
        if small != letter and len(small) == 1:
            letters[letter] = small
    return letters


def fold_case(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_case_folding_table())


@cache
def _case_folding_table() -> dict[int, str]:
    return {ord(letter): small for letter, small in small_letter_by_capital().items()}


def text_sort_key(text: str) -> tuple[str, str]:
    """Return a sort key that ignores case first, then compares code points."""
    return fold_case(text), text


def sort_rank(value: SortValue) -> tuple[Any, ...]:
    """Return a sort key that orders null before numbers, and numbers before text."""
    if value is None:
        return 0, value
    return (2, *text_sort_key(value)) if isinstance(value, str) else (1, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in a sorted list: after a row, before it if `backward`, or at it if `inclusive`."""

    value: SortValue
    identity: SortValue
    backward: bool = False
    inclusive: bool = False


@dataclass(frozen=True, slots=True)
class SortField:
    """
    A field to sort rows by. Without options, its value decides.

    `words`: its possible texts in ascending order. `numeric`: the number in its text decides. `is_text`:
    sort as text, ignoring case.
    """

    name: str
    words: tuple[str, ...] = ()
    numeric: bool = False
    is_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """
    A query for one page of a list. Fields are given by name.

    `identity`: a unique field, which orders rows with equal sort values. `filters`: accepted values by field;
    fields are compared as text. `known`: fields whose distinct values the page lists.
    """

    sort: SortField
    order: str
    identity: str
    limit: int
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    position: Position | None = None
    known: tuple[str, ...] = ()

    @property
    def is_backward(self) -> bool:
        return self.position is not None and self.position.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[Row]):
    """
    A page of rows, with `keys`: each row's sort value and identity.

    `before` and `after`: whether there are more rows on that side. `total`: the number of rows on all pages.
    `known`: the sorted distinct values over the whole list, by field, empty if too many.
    """

    rows: Sequence[Row]
    keys: Sequence[tuple[SortValue, SortValue]]
    before: bool
    after: bool
    total: int
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)


def empty_page(*, total: int) -> ListPage[Any]:
    """Return a page without rows, for lists that store their rows elsewhere."""
    return ListPage(rows=[], keys=[], before=False, after=False, total=total)


def limited_choices(values: Collection[str]) -> list[str]:
    return sorted(values, key=text_sort_key) if len(values) <= MOST_KNOWN else []


def cut_page(
    rows: Iterable[Row],
    *,
    value_of: Callable[[Row], SortValue],
    identity_of: Callable[[Row], Any],
    order: str,
    limit: int,
    position: Position | None,
) -> ListPage[Row]:
    if value_of is identity_of:
        keyed_rows = [
            (sort_rank(identity), identity, row) for row in rows for identity in (identity_of(row),)
        ]
    else:
        keyed_rows = [(sort_rank(value_of(row)), identity_of(row), row) for row in rows]
    # only the rows of the page are sorted
    backward = position is not None and position.backward
    from_end = (order == DESCENDING) != backward
    near = keyed_rows if position is None else _rows_beyond(keyed_rows, position, from_end=from_end)
    cut = (nlargest if from_end else nsmallest)(limit, near, key=lambda keyed_row: keyed_row[:2])
    has_passed, has_more = len(near) < len(keyed_rows), len(near) > limit
    if backward:
        cut.reverse()
        has_passed, has_more = has_more, has_passed
    return ListPage(
        rows=[row for _, _, row in cut],
        keys=[(rank[-1], identity) for rank, identity, _ in cut],
        before=has_passed,
        after=has_more,
        total=len(keyed_rows),
    )


def _rows_beyond(
    keyed_rows: Sequence[tuple[Any, Any, Row]], position: Position, *, from_end: bool
) -> list[tuple[Any, Any, Row]]:
    at = (sort_rank(position.value), position.identity)
    beyond = lt if from_end else gt
    return [each for each in keyed_rows if beyond(each[:2], at) or (position.inclusive and each[:2] == at)]


def page_bounds(
    rows: Sequence[Row],
    key: Callable[[Row], tuple[Any, ...]],
    position: Position | None,
    limit: int,
    *,
    from_end: bool,
) -> tuple[int, int]:
    """
    Return the start and end index of a page in rows in ascending order. `from_end`: the page ends at the
    position, instead of beginning there.

    `key`: returns a row's sort key and identity.
    """
    start, end = 0, len(rows)
    if position is not None:
        at = (sort_rank(position.value), position.identity)
        below = bisect_left(rows, at, key=key)
        through = bisect_right(rows, at, key=key)
        if from_end:
            end = through if position.inclusive else below
        else:
            start = below if position.inclusive else through
    if from_end:
        return max(start, end - limit), end
    return start, min(end, start + limit)
