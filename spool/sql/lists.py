"""
Pages of rows in SQL. Names in statements are constants of the program, and values are bound.

Texts of people are sorted without case (`spool.listing.text_sort_key`). Other texts are sorted by code point, so
PostgreSQL columns have `COLLATE "C"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from spool.listing import (
    DESCENDING,
    MOST_KNOWN,
    ListPage,
    ListQuery,
    Position,
    SortField,
    fold_case,
    limited_choices,
)
from spool.sql.connection import SqlConnection

Row = TypeVar("Row")
TOLD_S = 5.0
_EVERYTHING: tuple[str, Mapping[str, object]] = ("true", {})


class CachedFieldValues:
    """
    A cache of fields' distinct values, at most TOLD_S seconds old, because otherwise every page would scan
    the table.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told: dict[str, tuple[float, Sequence[str]]] = {}

    def recent_values(self) -> Mapping[str, Sequence[str]]:
        oldest = self._now() - TOLD_S
        return {name: values for name, (at, values) in self._told.items() if at > oldest}

    def remember_values(self, known: Mapping[str, Sequence[str]]) -> None:
        now = self._now()
        self._told.update((name, (now, values)) for name, values in known.items())


def read_page(
    connection: SqlConnection,
    table: str,
    columns: Sequence[str],
    query: ListQuery,
    row: Callable[[Sequence[Any]], Row],
    *,
    within: tuple[str, Mapping[str, object]] = _EVERYTHING,
) -> ListPage[Row]:
    """
    Read a page of the rows that fit the condition `within`. Call this in a snapshot. `row`: converts
    `columns`, in order.
    """
    sort = _sort_expression(query.sort)
    identity = f'"{query.identity}"'
    where, values = _filter_condition_and_parameters(query, within)
    keys = [sort]
    if query.sort.is_text:
        small, letters = connection.folded_expression(sort)
        keys = [small, sort]
        values |= letters
    downward = (query.order == DESCENDING) != query.is_backward
    ahead, behind = _conditions_after_and_before(query.position, [*keys, identity], downward)
    values |= _position_parameters(query.position)
    names = ", ".join(f'"{name}"' for name in columns)
    way = "DESC" if downward else "ASC"
    last = "LAST" if downward else "FIRST"
    order = ", ".join(f"{key} {way} NULLS {last}" for key in keys)
    statement = f"""
        SELECT {names}, {sort}, {identity} FROM {{schema}}.{table} WHERE {where} AND {ahead}
         ORDER BY {order}, {identity} {way} LIMIT :at_most"""
    page = connection.all(statement, **values, at_most=query.limit + 1)
    counts = f"""
        SELECT (SELECT count(*) FROM {{schema}}.{table} WHERE {where}),
               EXISTS (SELECT 1 FROM {{schema}}.{table} WHERE {where} AND {behind})"""
    total, is_any_behind = connection.first_row(counts, **values)
    is_any_ahead = len(page) > query.limit
    rows = page[: query.limit]
    if query.is_backward:
        rows.reverse()
    return ListPage(
        rows=[row(values[:-2]) for values in rows],
        keys=[(values[-2], values[-1]) for values in rows],
        before=bool(is_any_ahead if query.is_backward else is_any_behind),
        after=bool(is_any_behind if query.is_backward else is_any_ahead),
        total=total,
        known={name: _distinct_values(connection, table, name, within) for name in query.known},
    )


def _distinct_values(
    connection: SqlConnection, table: str, name: str, within: tuple[str, Mapping[str, object]]
) -> Sequence[str]:
    condition, values = within
    statement = f'SELECT DISTINCT "{name}" FROM {{schema}}.{table} WHERE {condition} LIMIT {MOST_KNOWN + 1}'
    distinct = [str(value) for (value,) in connection.all(statement, **values) if value is not None]
    return limited_choices(distinct)


def _position_parameters(position: Position | None) -> dict[str, object]:
    if position is None:
        return {}
    value = position.value
    small = fold_case(value) if isinstance(value, str) else value
    return {"at_folded": small, "at_value": value, "at_identity": position.identity}


def _conditions_after_and_before(
    position: Position | None, keys: Sequence[str], downward: bool
) -> tuple[str, str]:
    """
    Return the conditions for rows after and before the position. NULL sorts first. `keys`: columns to sort
    by, the identity last.
    """
    if position is None:
        return "true", "false"
    above = _condition_beyond(position, keys, ">")
    below = _condition_beyond(position, keys, "<")
    ahead, behind = (below, above) if downward else (above, below)
    at = f"({_same_sort_value_condition(position, keys)} AND {keys[-1]} = :at_identity)"
    if position.inclusive:
        return f"({ahead} OR {at})", behind
    return ahead, f"({behind} OR {at})"


def _condition_beyond(position: Position, keys: Sequence[str], sign: str) -> str:
    value = keys[-2]
    of_same = f"({_same_sort_value_condition(position, keys)} AND {keys[-1]} {sign} :at_identity)"
    if position.value is None:
        return f"({value} IS NOT NULL OR {of_same})" if sign == ">" else of_same
    of_others = f"{value} {sign} :at_value"
    if len(keys) > 2:
        of_others = f"({keys[0]} {sign} :at_folded OR ({keys[0]} = :at_folded AND {of_others}))"
    return f"({of_others} OR {of_same})" if sign == ">" else f"({value} IS NULL OR {of_others} OR {of_same})"


def _same_sort_value_condition(page_position: Position, keys: Sequence[str]) -> str:
    return f"{keys[-2]} IS NULL" if page_position.value is None else f"{keys[-2]} = :at_value"


def _sort_expression(sort: SortField) -> str:
    if sort.words:
        ranks = " ".join(f"WHEN '{word}' THEN {rank}" for rank, word in enumerate(sort.words))
        return f'(CASE "{sort.name}" {ranks} END)'
    return f'CAST("{sort.name}" AS double precision)' if sort.numeric else f'"{sort.name}"'


def _filter_condition_and_parameters(
    query: ListQuery, within: tuple[str, Mapping[str, object]]
) -> tuple[str, dict[str, object]]:
    condition, parameters = within
    terms = [condition]
    values = dict(parameters)
    for n, (name, accepted) in enumerate(query.filters.items()):
        terms.append(f'CAST("{name}" AS text) IN :filter_{n}')
        values[f"filter_{n}"] = list(accepted)
    return " AND ".join(terms), values
