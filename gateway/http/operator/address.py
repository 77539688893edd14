"""A row of the table of addresses for operators: a permission set in place of a scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.http.address import CSRF, SESSION, Address
from gateway.http.answers import JSON
from gateway.http.error_table import SAFE_METHODS
from gateway.http.lists import List
from gateway.http.visible import NOTHING, SLICED, WHOLE
from gateway.service.mounts import OPERATOR_API
from gateway.service.schemas import OBJECT, Schema

# Set on every application of the operator API. They import what has not been asked for yet, in a thread.
OPENED: web.AppKey[Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]]] = web.AppKey("OPENED")  # by scope
ALL_ROWS: web.AppKey[Callable[[], Awaitable[Sequence[OperatorAddress]]]] = web.AppKey("ALL_ROWS")

__all__ = ["NOTHING", "SLICED", "WHOLE"]

SIGNED_IN = ""  # needed: nothing but to be signed in

_NOTES = {
    WHOLE: "Closed to people who may see some calls alone.",
    SLICED: "About the calls that the person may see.",
    NOTHING: "",
}

OPERATOR_REFUSALS: Mapping[int, str] = {
    400: "The request breaks a rule that the message states",
    401: "Nobody is signed in, or the sign-in is wrong",
    403: "The permission sets, the calls that one may see, the CSRF token, the Host or the Origin do not allow it",
    404: "There is no such thing",
    409: "The name is taken, or the state of the thing does not allow it",
    413: "The body is too large",
    415: "The body is not application/json",
    422: "The definition has faults: `errors` has each of them with its value and its path; or the question asks too "
    "much: the message says what to ask instead",
    429: "Too many attempts or questions; Retry-After says when to repeat",
    503: "Tollhouse cannot do it now",
}


@dataclass(frozen=True, kw_only=True)
class OperatorAddress(Address):
    """
    `needs` is the id of a permission set, or SIGNED_IN; None: the call is how one signs in. `shows` WHOLE is
    refused to people who may see a part of the calls alone; with SLICED the handler leaves the rest out.
    SLICED is all counted money; with `asks_cost_type` the handler sees to it that the roles show the money that the
    question is about.

    A call that is not GET changes something and needs the CSRF token.

    `asks_closed` says whether a question is about whole months that are over: JSON then has an ETag.
    """

    needs: str | None
    shows: str = WHOLE
    asks_cost_type: bool = False
    asks_closed: Callable[[Any], bool] | None = None  # of the OperatorRequest
    refusals: tuple[int, ...] = tuple(OPERATOR_REFUSALS)

    @property
    def note(self) -> str:
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


def call(
    method: str,
    path: str,
    needs: str | None,
    summary: str,
    *,
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
) -> OperatorAddress:
    """Return the row of one call, below OPERATOR_API: JSON out, and the body that the handler's request names in."""
    return OperatorAddress(
        methods=(method,),
        path=OPERATOR_API + path,
        needs=needs,
        summary=summary,
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
