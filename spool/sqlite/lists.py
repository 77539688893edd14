"""A page of a table's rows in SQL. Names of tables and fields come from the program, every value is bound."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from spool.listing import DESCENDING, ListPage, ListQuery, SortField

Row = TypeVar("Row")


def read_page(
    connection: sqlite3.Connection,
    table: str,
    query: ListQuery,
    row: Callable[[sqlite3.Row], Row],
    *,
    within: tuple[str, Sequence[object]] = ("1", ()),
) -> ListPage[Row]:
    """Answer a query inside a transaction. `within` restricts the table: a condition and its values."""
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row  # of this cursor alone: others on the connection may want tuples
    sort, identity = _expression(query.sort), query.identity
    where, values = _where(query, within)
    downward = (query.order == DESCENDING) != query.backward
    ahead, behind, at = _around(query, sort, downward)
    way = "DESC" if downward else "ASC"
    page = cursor.execute(
        f"SELECT *, {sort} AS sort_value, {identity} AS identity FROM {table} WHERE {where} AND {ahead}"
        f" ORDER BY {sort} IS NOT NULL {way}, {sort} {way}, {identity} {way} LIMIT ?",
        [*values, *at, query.limit + 1],
    ).fetchall()
    [total] = cursor.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}", values).fetchone()
    statement = f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {where} AND {behind})"
    [any_behind] = cursor.execute(statement, [*values, *at]).fetchone()
    any_ahead = len(page) > query.limit
    rows = page[: query.limit]
    if query.backward:
        rows.reverse()
    return ListPage(
        rows=[row(each) for each in rows],
        keys=[(each["sort_value"], each["identity"]) for each in rows],
        before=any_ahead if query.backward else bool(any_behind),
        after=bool(any_behind) if query.backward else any_ahead,
        total=total,
    )


def _around(query: ListQuery, sort: str, downward: bool) -> tuple[str, str, list[object]]:
    """Conditions for rows ahead of the position and behind it, and the position's values for either."""
    position = query.position
    if position is None:
        return "1", "0", []
    ahead, behind = ("<", ">") if downward else (">", "<")
    if position.inclusive:
        ahead += "="
    else:
        behind += "="
    # Null first, as in memory; a null would otherwise make every comparison with it unknown.
    key = f"({sort} IS NOT NULL, IFNULL({sort}, 0), {query.identity})"
    value = 0 if position.value is None else position.value
    at: list[object] = [position.value is not None, value, position.identity]
    return f"{key} {ahead} (?, ?, ?)", f"{key} {behind} (?, ?, ?)", at


def _expression(sort: SortField) -> str:
    if sort.words:
        ranks = " ".join(f"WHEN '{word}' THEN {rank}" for rank, word in enumerate(sort.words))
        return f"(CASE {sort.name} {ranks} END)"
    return f"CAST({sort.name} AS REAL)" if sort.numeric else sort.name


def _where(query: ListQuery, within: tuple[str, Sequence[object]]) -> tuple[str, list[object]]:
    condition, values = within
    terms, bound = [condition], list(values)
    for name, accepted in query.filters.items():
        terms.append(f"CAST({name} AS TEXT) IN ({', '.join('?' * len(accepted))})")
        bound += accepted
    return " AND ".join(terms), bound
