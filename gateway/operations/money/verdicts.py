"""The table of verdicts on budgets, which gateways pull, and the key that signs it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.schemas import BYTES
from gateway.core.visibility import NOTHING
from gateway.http.address import READ, ApiAddress
from gateway.http.answers import JSON, bytes_response
from gateway.http.requests import Result
from gateway.money.budgets.opa_bundle import MEDIA_TYPE
from gateway.money.budgets.verdicts import ACTING, ALL, BudgetVerdictBoard, BudgetVerdicts, SignedTable
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.requests import OperatorRequest
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS

SIGNATURE = "Tollhouse-Signature"
MAX_WAIT_S = 60
_WAIT = re.compile(r"\s*wait\s*=\s*(\d{1,9})\s*")
_BETWEEN = re.compile("[,;]")  # pattern between two preferences, which OPA separates with a semicolon
_TABLES = {"": ACTING, "all": ALL}


class VerdictKey(msgspec.Struct, kw_only=True):
    public_key: Annotated[
        str,
        words("The Ed25519 key in PEM format that checks the signature of a table."),
        example("-----BEGIN PUBLIC KEY-----\n"),
    ]
    bundle_key: Annotated[
        str,
        words("The P-256 key in PEM format that checks the signature of a bundle."),
        example("-----BEGIN PUBLIC KEY-----\n"),
    ]


@ApiAddress(
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
    Return the table of verdicts as one signed document, or 304 if the reader has it.

    `state=all` adds the rows `within`. With `Prefer: wait=N` and an ETag, the answer waits up to N seconds
    for another table, at most 60. Waiting requests do not delay others.
    """
    _, signed, is_known = await _wait_for_newer_verdict_table(request)
    signature = b64encode(signed.signature).decode()
    headers = {**_table_headers(signed), SIGNATURE: f"ed25519={signature}"}
    return _not_modified_response(headers) if is_known else bytes_response(signed.body, headers=headers)


@ApiAddress(
    methods=("GET", "HEAD"),
    path="/v2/budgets/verdicts/bundle.tar.gz",
    summary="Download the verdicts as a signed bundle for Open Policy Agent; with `ETag` and `Prefer: wait`",
    endpoint="budgets/verdicts/bundle",
    scope="budgets:read_budgets",
    gives={200: {MEDIA_TYPE: BYTES}},
    refusals=READ,
    optional=("state",),
)
async def show_bundle(request: KeyRequest[MoneyServices, None]) -> web.Response:
    """
    Return the table of verdicts as an OPA bundle, with the table under `data.tollhouse` and a signature with
    ES256.

    The parameter `state` and the headers are those of the table.
    """
    board, signed, is_known = await _wait_for_newer_verdict_table(request)
    headers = {**_table_headers(signed), "Content-Type": MEDIA_TYPE}
    if is_known:
        return _not_modified_response(headers)
    bundle = await board.signed_bundle(_table_name(request.http), signed)
    return bytes_response(bundle, content_type=MEDIA_TYPE, headers=headers)


async def _wait_for_newer_verdict_table(
    request: KeyRequest[MoneyServices, None],
) -> tuple[BudgetVerdictBoard, SignedTable, bool]:
    """
    Wait for a newer table as `Prefer: wait` requests. Return the board, its table, and whether the reader has
    this table.
    """
    name = _table_name(request.http)
    board: BudgetVerdictBoard = request.services.require_budgets().verdicts
    known = request.http.headers.get("If-None-Match", "").strip().removeprefix("W/")
    wait_s = _requested_wait_s(request.http) if known else 0
    signed = await board.wait_for_newer_table(name, known, wait_s, request.receivers.in_hand.stopping)
    return board, signed, signed.tag == known


def _table_name(http: web.Request) -> str:
    state = http.query.get("state", "")
    if state not in _TABLES:
        raise Refusal(400, "invalid_parameter", "state must be all")
    return _TABLES[state]


def _requested_wait_s(http: web.Request) -> int:
    """Return the seconds of `Prefer: wait`, at most MAX_WAIT_S. Other preferences are ignored, as in RFC 7240."""
    preferences = _BETWEEN.split(",".join(http.headers.getall("Prefer", ())))
    waits = [int(found[1]) for preference in preferences if (found := _WAIT.fullmatch(preference))]
    return min(waits[0], MAX_WAIT_S) if waits else 0


def _table_headers(signed: SignedTable) -> dict[str, str]:
    return {"ETag": signed.tag, "Cache-Control": "private, no-cache"}


def _not_modified_response(headers: Mapping[str, str]) -> web.Response:
    return web.Response(status=304, headers=headers)


@operator_call(
    "GET",
    "/budgets/verdict-key",
    VIEW_COSTS,
    "Show the public key that checks the table of verdicts",
    gives={JSON: VerdictKey},
    shows=NOTHING,
)
async def show_verdict_key(request: OperatorRequest[MoneyServices, None]) -> Result:
    board: BudgetVerdictBoard = request.services.require_budgets().verdicts
    return {
        "public_key": board.signing_key.public_pem.decode(),
        "bundle_key": board.bundle_signing_key.public_pem.decode(),
    }
