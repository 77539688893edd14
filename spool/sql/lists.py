"""
A page of a table's rows. Names of tables and fields come from the program, every value is bound.

Texts of a table sort by code point: in PostgreSQL they are `COLLATE "C"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from spool.listing import DESCENDING, MOST_KNOWN, ListPage, ListQuery, Position, SortField
from spool.sql.connection import SqlConnection

Row = TypeVar("Row")
_EVERYTHING: tuple[str, Mapping[str, object]] = ("true", {})


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
    Answer a query inside a snapshot. `within` restricts the table: a condition and its values by name.

    `row` is given the values of `columns`, in their order.
    """
    sort, identity = _expression(query.sort), f'"{query.identity}"'
    where, values = _where(query, within)
    downward = (query.order == DESCENDING) != query.backward
    ahead, behind = _around(query.position, sort, identity, downward)
    if query.position is not None:
        values |= {"at_value": query.position.value, "at_identity": query.position.identity}
    names = ", ".join(f'"{name}"' for name in columns)
    way = "DESC" if downward else "ASC"
    last = "LAST" if downward else "FIRST"
    statement = f"""
        SELECT {names}, {sort}, {identity} FROM {{schema}}.{table} WHERE {where} AND {ahead}
         ORDER BY {sort} {way} NULLS {last}, {identity} {way} LIMIT :at_most"""
    page = connection.all(statement, **values, at_most=query.limit + 1)
    counts = f"""
        SELECT (SELECT count(*) FROM {{schema}}.{table} WHERE {where}),
               EXISTS (SELECT 1 FROM {{schema}}.{table} WHERE {where} AND {behind})"""
    total, is_any_behind = connection.one(counts, **values)
    is_any_ahead = len(page) > query.limit
    rows = page[: query.limit]
    if query.backward:
        rows.reverse()
    return ListPage(
        rows=[row(each[:-2]) for each in rows],
        keys=[(each[-2], each[-1]) for each in rows],
        before=bool(is_any_ahead if query.backward else is_any_behind),
        after=bool(is_any_behind if query.backward else is_any_ahead),
        total=total,
        known={name: _known(connection, table, name, within) for name in query.known},
    )


def _known(
    connection: SqlConnection, table: str, name: str, within: tuple[str, Mapping[str, object]]
) -> Sequence[str]:
    """The values of a field, sorted; none if there are too many to choose from."""
    condition, values = within
    statement = f'SELECT DISTINCT "{name}" FROM {{schema}}.{table} WHERE {condition} LIMIT {MOST_KNOWN + 1}'
    found = sorted(str(value) for (value,) in connection.all(statement, **values) if value is not None)
    return found if len(found) <= MOST_KNOWN else []


def _around(position: Position | None, sort: str, identity: str, downward: bool) -> tuple[str, str]:
    """Conditions for the rows ahead of the position and for those behind it. Null comes first."""
    if position is None:
        return "true", "false"
    above, below = _beyond(position, sort, identity, ">"), _beyond(position, sort, identity, "<")
    ahead, behind = (below, above) if downward else (above, below)
    at = f"({_same(position, sort)} AND {identity} = :at_identity)"
    if position.inclusive:
        return f"({ahead} OR {at})", behind
    return ahead, f"({behind} OR {at})"


def _beyond(position: Position, sort: str, identity: str, sign: str) -> str:
    of_same = f"({_same(position, sort)} AND {identity} {sign} :at_identity)"
    if position.value is None:
        return f"({sort} IS NOT NULL OR {of_same})" if sign == ">" else of_same
    of_others = f"{sort} {sign} :at_value"
    return f"({of_others} OR {of_same})" if sign == ">" else f"({sort} IS NULL OR {of_others} OR {of_same})"


def _same(position: Position, sort: str) -> str:
    return f"{sort} IS NULL" if position.value is None else f"{sort} = :at_value"


def _expression(sort: SortField) -> str:
    if sort.words:
        ranks = " ".join(f"WHEN '{word}' THEN {rank}" for rank, word in enumerate(sort.words))
        return f'(CASE "{sort.name}" {ranks} END)'
    return f'CAST("{sort.name}" AS double precision)' if sort.numeric else f'"{sort.name}"'


def _where(query: ListQuery, within: tuple[str, Mapping[str, object]]) -> tuple[str, dict[str, object]]:
    condition, given = within
    terms, values = [condition], dict(given)
    for n, (name, accepted) in enumerate(query.filters.items()):
        terms.append(f'CAST("{name}" AS text) IN :filter_{n}')
        values[f"filter_{n}"] = list(accepted)
    return " AND ".join(terms), values
