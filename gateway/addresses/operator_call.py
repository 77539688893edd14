"""A row of the operator API: the permission set that a call needs, what it takes, and its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import Result
from gateway.mounts import OPERATOR_API
from gateway.operator.address import WHOLE, OperatorAddress
from gateway.operator.requests import OperatorRequest
from gateway.schemas import OBJECT, Schema

Body = TypeVar("Body")


def call(
    method: str,
    path: str,
    needs: str | None,
    handler: Callable[[OperatorRequest[Any, Body]], Awaitable[Result]],
    summary: str,
    *,
    takes: type[Body] | None = None,
    lists: List[Any] | None = None,
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    repeated: tuple[str, ...] = (),
    status: int = 200,
    gives: Mapping[str, Schema] | None = None,
    checks_query: bool = True,
    shows: str = WHOLE,
    asks_cost_type: bool = False,
    in_turn: bool = False,
    asks_much: Callable[[Any], bool] | None = None,
    asks_closed: Callable[[Any], bool] | None = None,
    name: str = "",
) -> OperatorAddress:
    """The row of one call: JSON in and out, below OPERATOR_API. `name` is the handler's, unless given."""
    return OperatorAddress(
        methods=(method,),
        path=OPERATOR_API + path,
        needs=needs,
        name=name or handler.__name__,
        summary=summary,
        handler=handler,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives={} if lists else {status: {JSON: OBJECT} if gives is None else gives},
        lists=lists,
        required=required,
        optional=optional,
        repeated=repeated,
        checks_query=checks_query,
        shows=shows,
        asks_cost_type=asks_cost_type,
        in_turn=in_turn,
        asks_much=asks_much,
        asks_closed=asks_closed,
    )
