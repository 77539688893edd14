"""
Pages of sorted and filtered rows: the query of a list, and its result.

A page begins after the last row of the previous page, not at an offset. So a reader who pages in either
direction sees each row exactly once, even if rows are inserted and deleted meanwhile. A row whose sort value
changes is the exception.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from spool.turns.threads import sort_in_steps

Row = TypeVar("Row")
# sort order: null first, then numbers, then text in the order of `text_rank`
SortValue = str | int | float | None

ASCENDING, DESCENDING = "asc", "desc"
MOST_KNOWN = 200  # maximum number of values that a filter offers; if a field has more, none are offered
_FIRST_CASED, _PAST_CASED = ord("A"), 0x1E944  # range of code points that contains all letters with two cases


@cache
def small_letters() -> Mapping[str, str]:
    """
    Return a map of capital letters to small letters, where both are one character.

    This is Unicode's simple case folding, used by every storage engine. SQL has no such rule, and a
    database's own lower case depends on its release and locale.
    """
    letters = {}
    for code in range(_FIRST_CASED, _PAST_CASED):
        letter = chr(code)
        small = letter.casefold()
        if small != letter and len(small) == 1:
            letters[letter] = small
    return letters


def fold_case(text: str) -> str:
    """Return the text with small letters in place of capital letters."""
    return text.lower() if text.isascii() else text.translate(_small_letters_table())


@cache
def _small_letters_table() -> dict[int, str]:
    return {ord(letter): small for letter, small in small_letters().items()}


def text_rank(text: str) -> tuple[str, str]:
    """Return the sort key of a text. It ignores case first, and then orders by code point."""
    return fold_case(text), text


def sort_rank(value: SortValue) -> tuple[Any, ...]:
    """Return the sort key of a value: null first, then numbers, then text."""
    if value is None:
        return 0, value
    return (2, *text_rank(value)) if isinstance(value, str) else (1, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """
    A position in a list, given by the sort value and identity of a row. A page begins after that row, ends
    before it if `backward`, or begins at it.
    """

    value: SortValue
    identity: SortValue
    backward: bool = False
    inclusive: bool = False


@dataclass(frozen=True, slots=True)
class SortField:
    """
    A field to sort by. It sorts by the field's value, by the value's position in `words`, or by the number
    in its text.

    `is_text`: the text is sorted without regard to case.
    """

    name: str
    words: tuple[str, ...] = ()
    numeric: bool = False
    is_text: bool = False

    def sort_value(self, row: object) -> SortValue:
        """Return the row's sort value. Return None for a value that is not in `words`."""
        value: Any = getattr(row, self.name)
        if self.words:
            return self.words.index(value) if value in self.words else None
        return float(value) if self.numeric else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """
    Query for one page of stored rows, by the names of their fields.

    `identity` is unique and orders rows with equal sort values. A row passes a filter if its field, as text,
    is one of the filter's values. For the fields in `known`, the distinct values are returned as well.
    """

    sort: SortField
    order: str
    identity: str
    limit: int
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    position: Position | None = None
    known: tuple[str, ...] = ()

    @property
    def backward(self) -> bool:
        return self.position is not None and self.position.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[Row]):
    """
    A page of rows in the list's order, each with its sort value and identity.

    `before` and `after`: there are rows before or after the page. `total`: number of rows on all pages.
    `known`: distinct values by field over the whole list, sorted; empty for a field with too many.
    """

    rows: Sequence[Row]
    keys: Sequence[tuple[SortValue, SortValue]]
    before: bool
    after: bool
    total: int
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)


def empty_page(*, total: int) -> ListPage[Any]:
    """Return a page without rows, for a list whose rows are stored elsewhere."""
    return ListPage(rows=[], keys=[], before=False, after=False, total=total)


def limited_choices(values: Collection[str]) -> list[str]:
    """Return the sorted values of a field. Return none if there are too many to choose from."""
    return sorted(values, key=text_rank) if len(values) <= MOST_KNOWN else []


def cut_page(
    rows: Iterable[Row],
    *,
    value_of: Callable[[Row], SortValue],
    identity_of: Callable[[Row], Any],
    order: str,
    limit: int,
    position: Position | None,
) -> ListPage[Row]:
    """Sort rows that passed the filters and cut one page out of them."""
    keyed_rows = [(sort_rank(value_of(row)), identity_of(row), row) for row in rows]
    ranked = sort_in_steps(keyed_rows, key=lambda keyed_row: keyed_row[:2])
    # The bounds are for ascending order. For a descending list, the bounds are swapped and the rows reversed.
    falling = order == DESCENDING
    backward = position is not None and position.backward
    start, end = page_bounds(
        ranked, lambda keyed_row: keyed_row[:2], position, limit, from_end=falling != backward
    )
    cut = ranked[start:end]
    before = start > 0
    after = end < len(ranked)
    if falling:
        cut.reverse()
        before, after = after, before
    return ListPage(
        rows=[row for _, _, row in cut],
        keys=[(rank[-1], identity) for rank, identity, _ in cut],
        before=before,
        after=after,
        total=len(ranked),
    )


def page_bounds(
    rows: Sequence[Row],
    key: Callable[[Row], tuple[Any, ...]],
    position: Position | None,
    limit: int,
    *,
    from_end: bool,
) -> tuple[int, int]:
    """
    Return the range of a page within ascending rows. With `from_end`, the page ends before the position;
    otherwise it begins after the position.

    `key` returns the rank of a row's sort value together with the row's identity.
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
