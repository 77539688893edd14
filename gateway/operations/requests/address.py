"""Rows of the table of addresses for operators. A row requires a permission set instead of a scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.core.paths import OPERATOR_API
from gateway.core.schemas import OBJECT, TEXT, Schema
from gateway.core.visibility import NOTHING, OPERATION, SLICED, WHOLE
from gateway.http.address import CSRF, SESSION, ApiAddress, BodyLimit, Content
from gateway.http.answers import JSON
from gateway.http.error_table import SAFE_METHODS
from gateway.http.lists import ListDefinition, SearchableObject

# Keys of functions that every application of the operator API has. OPENED returns the operations by scope, ALL_ROWS
# all addresses, and ROWS_AT the addresses for reading at the given paths. They import missing modules in a thread.
OPENED: web.AppKey[Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]]] = web.AppKey("OPENED")
ALL_ROWS: web.AppKey[Callable[[], Awaitable[Sequence[OperatorApiAddress]]]] = web.AppKey("ALL_ROWS")
ROWS_AT: web.AppKey[Callable[[Collection[str]], Awaitable[Mapping[str, OperatorApiAddress]]]] = web.AppKey(
    "ROWS_AT"
)

__all__ = ["NOTHING", "OPERATION", "SLICED", "WHOLE"]

SIGNED_IN = ""  # value of `needs` that admits any signed-in person

_NOTES = {
    WHOLE: "Requires access to all calls.",
    OPERATION: "Requires a role for all calls.",
    SLICED: "Limited to the calls that the person may see.",
    NOTHING: "",
}

OPERATOR_REFUSALS: Mapping[int, str] = {
    400: "The request breaks a rule that the message states",
    401: "No one is signed in, or the sign-in is wrong",
    403: (
        "The permission sets, the access to calls, the CSRF token, the Host or the Origin do not allow "
        "the request"
    ),
    404: "The resource does not exist",
    409: "The name is in use, or the state of the resource does not allow the request",
    413: "The body is too large",
    415: "The body is not application/json",
    422: (
        "The definition has errors, which `errors` lists with value and path; or the query exceeds a "
        "limit, and the message says how to narrow it"
    ),
    429: "Too many attempts or queries; Retry-After gives the seconds until a retry",
    503: "Tollhouse cannot complete the request now",
}


@dataclass(frozen=True, kw_only=True)
class OperatorApiAddress(ApiAddress):
    """
    An address of the operator API.

    `needs` is the id of a permission set, or SIGNED_IN. None means that the request signs a person in.

    `shows` states which AI calls the answer may contain:
    - WHOLE: all. People who may see only some AI calls are rejected.
    - SLICED: calls of which the person may see every kind of counted cost. People without such calls are
      rejected. With `asks_cost_type`, the handler checks only the requested kind of cost.
    - OPERATION: as WHOLE, but also under `privacy.min_group`, because the answer shows nothing of single people.

    `limit` replaces the limit of a JSON body. `names` returns the names of the rows that a list would show
    to the person. It describes no row, because a search reads the names of all rows.

    A request with a method other than GET changes something and needs the CSRF token. `asks_closed` returns
    whether a query covers only whole past months. The JSON answer to such a query has an ETag.
    """

    needs: str | None
    shows: str = WHOLE
    asks_cost_type: bool = False
    # function that returns whether an OperatorRequest covers only whole past months
    asks_closed: Callable[[Any], bool] | None = None
    names: Callable[[Any], Awaitable[Iterable[SearchableObject]]] | None = None
    refusals: tuple[int, ...] = tuple(OPERATOR_REFUSALS)

    @property
    def documented_note(self) -> str:
        return _NOTES[self.shows]

    @property
    def documented_refusals(self) -> Mapping[int, str]:
        return OPERATOR_REFUSALS

    @property
    def security(self) -> list[dict[str, list[str]]]:
        if self.needs is None:
            return []
        needed = [self.needs] if self.needs else []
        is_safe = set(self.methods) <= set(SAFE_METHODS)
        return [{SESSION: needed} if is_safe else {SESSION: needed, CSRF: []}]


def operator_call(
    method: str,
    path: str,
    needs: str | None,
    summary: str,
    *,
    lists: ListDefinition[Any] | None = None,
    item: type | Schema = OBJECT,
    names: Callable[[Any], Awaitable[Iterable[SearchableObject]]] | None = None,
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    repeated: tuple[str, ...] = (),
    status: int = 200,
    takes: Mapping[str, Schema] | None = None,
    answers: type | Schema = OBJECT,
    gives: Content | None = None,
    checks_query: bool = True,
    shows: str = WHOLE,
    asks_cost_type: bool = False,
    in_turn: bool = False,
    asks_much: Callable[[Any], bool] | None = None,
    asks_closed: Callable[[Any], bool] | None = None,
    limit: BodyLimit | None = None,
) -> OperatorApiAddress:
    """
    Return the address of one operation below OPERATOR_API. It returns JSON of the type `answers`, or a list
    of `item`, and accepts a body of the type in the handler's annotation. With `takes`, the handler reads a
    body of another type itself.
    """
    return OperatorApiAddress(
        methods=(method,),
        path=OPERATOR_API + path,
        needs=needs,
        summary=summary,
        takes=takes or {},
        gives={
            status: ({JSON: answers} if gives is None else gives) if lists is None else {"text/csv": TEXT}
        },
        lists=lists,
        item=item,
        required=required,
        optional=optional,
        repeated=repeated,
        checks_query=checks_query,
        shows=shows,
        asks_cost_type=asks_cost_type,
        in_turn=in_turn,
        asks_much=asks_much,
        asks_closed=asks_closed,
        limit=limit,
        names=names,
    )
