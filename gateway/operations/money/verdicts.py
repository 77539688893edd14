"""The table of verdicts on budgets, which gateways pull, and the key that signs it."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.fields import example, words
from gateway.core.visible import NOTHING
from gateway.http.address import READ, Address
from gateway.http.answers import JSON, respond
from gateway.http.requests import Result
from gateway.money.budgets.verdicts import ACTING, ALL, BudgetVerdicts, SignedTable, VerdictBoard
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import call
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.requests import OperatorRequest
from spool.registry.permission_sets import VIEW_COSTS

SIGNATURE = "Tollhouse-Signature"
MAX_WAIT_S = 60
_WAIT = re.compile(r"\s*wait\s*=\s*(\d{1,9})\s*")
_TABLES = {"": ACTING, "all": ALL}


class VerdictKey(msgspec.Struct, kw_only=True):
    public_key: Annotated[
        str,
        words("The Ed25519 key in PEM format that checks the signature of a table."),
        example("-----BEGIN PUBLIC KEY-----\n"),
    ]


@Address(
    methods=("GET", "HEAD"),
    path="/v2/budgets/verdicts",
    summary="Show which budgets are over or near their amounts; with `ETag`, `Prefer: wait` and a signature",
    endpoint="budgets/verdicts",
    scope="budgets:read_budgets",
    gives={200: {JSON: BudgetVerdicts}},
    refusals=READ,
    optional=("state",),
)
async def show_verdicts(request: KeyRequest[MoneyServices, None]) -> web.Response:
    """
    Return the table as one signed document, or 304 if the reader has it.

    `state=all` adds the rows `within`. With `Prefer: wait=N` and an ETag, the answer waits up to N seconds for another
    table, at most 60. A waiting reader holds no turn.
    """
    state = request.http.query.get("state", "")
    if state not in _TABLES:
        raise Refusal(400, "invalid_parameter", "state must be all")
    board: VerdictBoard = request.services.require_budgets().verdicts
    known = request.http.headers.get("If-None-Match", "").strip().removeprefix("W/")
    signed = await board.newer(_TABLES[state], known, _wait_s(request.http) if known else 0)
    return _response(signed, is_known=signed.tag == known)


def _wait_s(http: web.Request) -> int:
    """Return the seconds of `Prefer: wait`, at most MAX_WAIT_S. Other preferences are ignored, as in RFC 7240."""
    preferences = ",".join(http.headers.getall("Prefer", ())).split(",")
    waits = [int(found[1]) for preference in preferences if (found := _WAIT.fullmatch(preference))]
    return min(waits[0], MAX_WAIT_S) if waits else 0


def _response(signed: SignedTable, *, is_known: bool) -> web.Response:
    signature = b64encode(signed.signature).decode()
    headers = {"ETag": signed.tag, "Cache-Control": "private, no-cache", SIGNATURE: f"ed25519={signature}"}
    if is_known:
        return web.Response(status=304, headers=headers)
    return respond(signed.body, headers=headers)


@call(
    "GET",
    "/budgets/verdict-key",
    VIEW_COSTS,
    "Show the public key that checks the table of verdicts",
    gives={JSON: VerdictKey},
    shows=NOTHING,
)
async def show_verdict_key(request: OperatorRequest[MoneyServices, None]) -> Result:
    return {"public_key": request.services.require_budgets().verdicts.key.public_pem.decode()}
