"""
Billing drops: kept, or only validated.

A drop is kept whole and leaves as it came. Both names of the segment are accepted, independent of the upstream's.
"""

from __future__ import annotations

import os
import re

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.requests import KeyRequest, Result
from gateway.normalise import billing
from gateway.normalise.billing import Drop
from spool.identity import Identity, of_request
from spool.record import BillingDrop

IDEMPOTENCY_KEY = "Idempotency-Key"
_CONNECTION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


async def create_billing_drop(request: KeyRequest[bytes]) -> web.Response:
    connection_id, body = request.word("connection_id"), request.body
    if not _CONNECTION.fullmatch(connection_id):
        raise Refusal(400, "invalid_connection", "A connection's id has letters, digits and any of . _ : @ -")
    drop = _read(body)
    if drop.errors:
        raise Refusal(400, "invalid_drop", f"Nothing was kept: {'; '.join(drop.errors)}.")
    identity = _identity(request.http, request.bearer)
    record = BillingDrop(
        id=identity.id,
        connection_id=connection_id,
        month=drop.month,
        operation=drop.operation,
        rows=drop.rows,
        body=body,
    )
    receipt = await request.services.deposits.drop(record, identity)
    connection = {"drop_id": receipt.id, "month": drop.month, "row_count": drop.rows}
    return answers.json_response({"connection": connection}, receipt=receipt)


async def validate_billing_drop(request: KeyRequest[bytes]) -> Result:
    """Apply the same rules and keep nothing."""
    drop = _read(request.body)
    return {"connection": {"is_valid": not drop.errors, "errors": list(drop.errors)}}


def _read(body: bytes) -> Drop:
    if len(body) > billing.MAX_BYTES:
        raise Refusal(413, "body_too_large", "A drop is at most 5 MB; send several, each with whole hours.")
    return billing.read(body)


def _identity(request: web.Request, bearer: Bearer) -> Identity:
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key:
        return Identity(of_request(bearer.name, request.path, key, 0))
    return Identity(os.urandom(16), certain=False)
