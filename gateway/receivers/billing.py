"""
Billing drops: kept, or only validated.

A drop is kept whole and leaves as it came. Both names of the segment are accepted, independent of the upstream's.
"""

from __future__ import annotations

import os
from functools import partial

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.requests import KeyRequest, Result
from gateway.http.slices import LARGE, aside
from gateway.normalise import billing
from gateway.normalise.billing import Drop
from spool.identity import Identity, of_request
from spool.record import BillingDrop

IDEMPOTENCY_KEY = "Idempotency-Key"


async def create_billing_drop(request: KeyRequest[bytes]) -> web.Response:
    connections, body = request.services.billing_connections, request.body
    async with connections.taking(request.word("connection_id")) as connection:
        drop = await _read(body)
        if drop.errors:
            raise Refusal(400, "invalid_drop", f"Nothing was kept: {'; '.join(drop.errors)}.")
        identity = _identity(request.http, request.bearer)
        record = BillingDrop(
            id=identity.id,
            connection_id=connection.id,
            month=drop.month,
            operation=drop.operation,
            rows=drop.rows,
            body=body,
            upstream_id=connection.upstream_id or None,
        )
        await connections.check_room(record)
        receipt = await request.services.deposits.drop(record, identity, request.bearer)
    answer = {"drop_id": identity.id.hex(), "month": drop.month, "row_count": drop.rows}
    return answers.json_response({"connection": answer}, receipt=receipt)


async def validate_billing_drop(request: KeyRequest[bytes]) -> Result:
    """
    Apply the same rules and keep nothing. What passes them is shown to the upstream, if there is one that answers.

    What breaks a rule of ours would not be taken here, whatever the upstream says; it may hold message content.
    """
    found, answered_by = list((await _read(request.body)).errors), "tollhouse"
    validate = request.services.billing_connections.validate
    if not found and validate is not None:
        there = await validate(request.body)
        if there is not None:
            found, answered_by = there, "upstream"
    return {"connection": {"is_valid": not found, "errors": found, "answered_by": answered_by}}


async def _read(body: bytes) -> Drop:
    if len(body) > billing.MAX_BYTES:
        raise Refusal(413, "body_too_large", "A drop is at most 5 MB; send several, each with whole hours.")
    return await aside(partial(billing.read, body), is_large=len(body) > LARGE)


def _identity(request: web.Request, bearer: Bearer) -> Identity:
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key:
        return Identity(of_request(bearer.name, request.path, key, 0))
    return Identity(os.urandom(16), certain=False)
