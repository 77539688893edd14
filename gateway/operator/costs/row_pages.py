"""The rows of a report in the envelope of every list: one page has all of them unless a limit is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import orjson

from gateway.http.holders.money import MoneyServices
from gateway.http.lists import List, MemoryRows, Sort, envelope
from gateway.operator.requests import OperatorRequest
from spool.ledger.queries import CostQuery

Row = TypeVar("Row")

PAGING = ("limit", "cursor")
ROWS = "rows"
_PLACE = "place"  # the only order: that of the report


async def enveloped(
    request: OperatorRequest[MoneyServices, Any],
    rows: Sequence[Row],
    *,
    show: Callable[[Row], Mapping[str, object]],
    place: Callable[[Row], int],
    identity: Callable[[Row], str],
    query: CostQuery,
    dimensions: Sequence[str],
    most: int,
) -> dict[str, Any]:
    """
    `rows`, `pagination`, `filtering` and `sorting`; a page has at most so many rows.

    A cursor is the question's own: another question is refused with 400.
    """
    parameters = request.http.query
    question = sorted((name, value) for name, value in parameters.items() if name not in PAGING)
    root = f"{ROWS} {blake2b(orjson.dumps(question), digest_size=8).hexdigest()}"
    listed: List[Row] = List(
        root=root,
        show=lambda row: {_PLACE: row},
        identity=Sort(value=identity),
        sorts={_PLACE: Sort(value=place)},
        default_sort=(_PLACE, "asc"),
        default_limit=most,
        max_limit=most,
    )
    asked = [(name, value) for name, value in parameters.items() if name in PAGING]
    shared = request.shared
    page = await envelope(listed, MemoryRows(rows), asked, secret=shared.cursor_secret, people=shared.people)
    rows = [row[_PLACE] for row in page.pop(root)]
    shown = await asyncio.to_thread(lambda: [show(row) for row in rows])
    return {ROWS: shown, **page, "filtering": _filtering(query, dimensions)}


def _filtering(query: CostQuery, dimensions: Sequence[str]) -> dict[str, object]:
    """The filters of `where` and of the view, as those of a list."""
    current = {**query.include, **{f"{name}!": values for name, values in query.exclude.items()}}
    return {
        "available": [{"field": name, "valid_values": [], "valid_types": ["string"]} for name in dimensions],
        "current": {name: list(values) for name, values in current.items()},
    }
