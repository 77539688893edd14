"""
`POST .../billing/{segment}/{connection_id}/billing_drops` and `.../validate_billing_drop`: billing data.

A drop is kept whole and leaves as it came. Both words for the segment are taken, whatever the upstream's is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.boundary import Handler, admit, authorization, guarded, read_body
from gateway.intake.deposits import Deposits
from gateway.normalise import billing
from gateway.normalise.billing import Drop
from gateway.services import ReceiverServices
from spool.identity import Identity, of_request
from spool.record import BillingDrop
from spool.registry.scopes import BILLING_DROP, VALIDATE_BILLING_DROP

IDEMPOTENCY_KEY = "Idempotency-Key"
_PREFIX = "/v2/connections/billing/{segment:external|anycost}"
_CONNECTION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


def addresses(services: ReceiverServices, deposits: Deposits) -> Sequence[tuple[str, Handler]]:
    return (
        (_PREFIX + "/validate_billing_drop", validation(services)),
        (_PREFIX + "/{connection_id}/billing_drops", drops(services, deposits)),
    )


def drops(services: ReceiverServices, deposits: Deposits) -> Handler:
    async def take(request: web.Request) -> web.Response:
        bearer = admit(services, request, authorization(request), scope=BILLING_DROP)
        connection_id = request.match_info["connection_id"]
        if not _CONNECTION.fullmatch(connection_id):
            raise Refusal(400, "invalid_connection", "A connection's id has letters, digits and any of . _ : @ -")
        with services.budget.lease() as lease:
            body = await read_body(services, request, lease, bearer)
            drop = _read(body)
            if drop.errors:
                raise Refusal(400, "invalid_drop", f"Nothing was kept: {'; '.join(drop.errors)}.")
            identity = _identity(request, bearer)
            record = BillingDrop(
                id=identity.id,
                connection_id=connection_id,
                month=drop.month,
                operation=drop.operation,
                rows=drop.rows,
                body=body,
            )
            receipt = await deposits.drop(record, identity)
        said = {"drop_id": receipt.id, "month": drop.month, "row_count": drop.rows}
        return answers.json_response({"connection": said}, receipt=receipt)

    return guarded("billing", take, services)


def validation(services: ReceiverServices) -> Handler:
    """The same rules, and nothing is kept."""

    async def take(request: web.Request) -> web.Response:
        bearer = admit(services, request, authorization(request), scope=VALIDATE_BILLING_DROP)
        with services.budget.lease() as lease:
            drop = _read(await read_body(services, request, lease, bearer))
        said = {"is_valid": not drop.errors, "errors": list(drop.errors)}
        return answers.json_response({"connection": said})

    return guarded("billing/validate", take, services)


def _read(body: bytes) -> Drop:
    if len(body) > billing.MAX_BYTES:
        raise Refusal(413, "body_too_large", "A drop is at most 5 MB; send several, each with whole hours.")
    return billing.read(body)


def _identity(request: web.Request, bearer: Bearer) -> Identity:
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key:
        return Identity(of_request(bearer.name, request.path, key, 0))
    return Identity(os.urandom(16), certain=False)
