"""All rows of a list as CSV, read a page at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
from aiohttp import web

from gateway.core.schemas import Schema
from gateway.http.answers import CSV, UNCACHED, AnswerInPieces, open_piece_sender
from gateway.http.requests import Result
from gateway.operations.requests.address import OperatorApiAddress
from gateway.operations.requests.requests import OperatorRequest
from spool.printable import csv_pieces


def column_names(item: type | Schema) -> list[str]:
    """Return the columns of a list's CSV: the published fields of a row, also if there are no rows."""
    if isinstance(item, type):
        return [field.encode_name for field in msgspec.structs.fields(item)]
    return list(item["properties"])


async def send_list_as_csv(
    address: OperatorApiAddress,
    request: OperatorRequest[Any, Any],
    read_page: Callable[[OperatorRequest[Any, Any]], Awaitable[Result]],
) -> Result:
    """
    Send the rows of a list as CSV. Each page is what the request's JSON answer would show.

    If the list has one page, the answer is returned, so that its sender gives back its turn first.
    """
    assert address.lists is not None
    root, names = address.lists.root, column_names(address.item)

    async def read(cursor: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
        url = request.http.rel_url.update_query(cursor=cursor) if cursor else request.http.rel_url
        page: Any = await read_page(replace(request, http=request.http.clone(rel_url=url)))
        return page[root], page["pagination"]["cursor"]["next_cursor"]

    rows, cursor = await read(None)
    pieces = csv_pieces(chain([names], ([row.get(name) for name in names] for row in rows)))
    headers = {**UNCACHED, "Content-Disposition": f'attachment; filename="tollhouse-{root}.csv"'}
    if cursor is None:
        return AnswerInPieces(pieces=pieces, content_type=CSV, headers=headers)
    response = web.StreamResponse(headers={**headers, "Content-Type": CSV})
    async with open_piece_sender(request.http, response) as send:
        while True:
            for piece in pieces:
                await send(piece)
            if cursor is None:
                return response
            rows, cursor = await read(cursor)
            pieces = csv_pieces([row.get(name) for name in names] for row in rows)
