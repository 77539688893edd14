"""A row for what people and keys create, list and change: JSON in and out, with the refusals of all such calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
from gateway.schemas import OBJECT, Schema


def managing(
    method: str,
    path: str,
    handler: AddressHandler,
    summary: str,
    *,
    group: str,
    endpoint: str,
    scope: str = "",
    takes: type | None = None,
    gives: Content | None = None,
    lists: List[Any] | None = None,
    item: type | Schema = OBJECT,
    may_be_empty: bool = False,
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
) -> Address:
    """`group` is the part of the scope before the colon; the part behind it is the handler's name, unless given."""
    answers: Mapping[int, Content] = {200: gives} if gives else {}
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=f"{group}:{scope or handler.__name__}",
        check=check_json if takes and not may_be_empty else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        may_be_empty=may_be_empty,
        gives=answers,
        lists=lists,
        item=item,
        repeated=repeated,
        in_turn=in_turn,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )
