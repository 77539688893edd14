"""
Receivers for hourly billing files (billing drops). One receiver stores files, and the other only validates them.

A file is stored whole and forwarded unchanged. The upstream has used two names for the path segment, and
both are accepted.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.schemas import OBJECT, TEXT, array_schema, open_object_schema, schema_with_description
from gateway.http import answers
from gateway.http.address import WRITE, ApiAddress
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.http.turns import LARGE, run_on_thread_if_large
from gateway.intake.billing_connections import BillingConnections
from gateway.intake.deposits import NonTelemetryIntake
from gateway.normalise import billing
from gateway.normalise.billing import BillingFile
from gateway.operations.answers import BillingDropItem
from gateway.operations.requests.key_requests import KeyRequest, item_identity, names_for_repeat_detection
from spool.identity import RequestDedupKeys
from spool.log.values import Receipt
from spool.record import HourlyBillingFile
from spool.registry.field_notes import example, words
from spool.registry.scopes import BILLING_DROP, VALIDATE_BILLING_DROP

_SEGMENT = "/v2/connections/billing/{segment:external|anycost}"


class BillingServices(Protocol):
    """What this receiver needs."""

    deposits: NonTelemetryIntake
    billing_connections: BillingConnections


class StoredDropAnswer(msgspec.Struct, kw_only=True):
    connection: Annotated[BillingDropItem, words("The stored file, with the fields below.")]


class DropCheck(msgspec.Struct, kw_only=True):
    is_valid: Annotated[bool, words("Whether the file is valid."), example(True)]
    errors: Annotated[list[str], words("What is wrong in the file."), example([])]
    answered_by: Annotated[
        str,
        words("Who checked the file: `tollhouse`, or `upstream` for your cost service."),
        example("tollhouse"),
    ]


class ValidatedDrop(msgspec.Struct, kw_only=True):
    connection: Annotated[DropCheck, words("The result of the check, with the fields below.")]


_DROP = open_object_schema(
    {
        "month": schema_with_description(TEXT, "The month that the rows belong to, such as `2026-11`."),
        "operation": schema_with_description(TEXT, "How the rows change the month."),
        "data": schema_with_description(array_schema(OBJECT), "The rows of the file."),
    }
)


def _billing_address(
    path: str, scope: str, endpoint: str, summary: str, gives: type, *, takes_key: bool = False
) -> ApiAddress:
    return ApiAddress(
        methods=("POST",),
        path=_SEGMENT + path,
        summary=summary,
        endpoint=endpoint,
        scope=scope,
        takes={JSON: _DROP},
        gives={200: {JSON: gives}},
        refusals=(*WRITE, 404, 409),
        takes_idempotency_key=takes_key,
    )


@_billing_address(
    "/validate_billing_drop",
    VALIDATE_BILLING_DROP,
    "billing/validate",
    "Validate an hourly billing file without storing it",
    ValidatedDrop,
)
async def validate_billing_drop(request: KeyRequest[BillingServices, bytes]) -> Result:
    """
    Check a file by the rules of Tollhouse, then by the upstream's rules if the upstream answers. Store nothing.

    A file that breaks a rule of Tollhouse is not sent upstream, because it may contain message content.
    """
    errors, answered_by = list((await _parse_billing_file(request)).errors), "tollhouse"
    validate = request.services.billing_connections.validate
    if not errors and validate is not None:
        upstream_errors = await validate(request.body)
        if upstream_errors is not None:
            errors, answered_by = upstream_errors, "upstream"
    return {"connection": {"is_valid": not errors, "errors": errors, "answered_by": answered_by}}


@_billing_address(
    "/{connection_id}/billing_drops",
    BILLING_DROP,
    "billing",
    "Send billing data of one month to a billing connection",
    StoredDropAnswer,
    takes_key=True,
)
async def create_billing_drop(request: KeyRequest[BillingServices, bytes]) -> web.Response:
    connections, id, names = (
        request.services.billing_connections,
        request.path_parameter("connection_id"),
        names_for_repeat_detection(request),
    )
    # accept a request that was stored before, even if the connection has changed since
    if names is not None and request.services.deposits.has_request(names):
        return await _store_hourly_file(request, id, names, is_repeat=True)
    async with connections.hold_lock_for_billing_file(id) as connection:
        return await _store_hourly_file(request, connection.id, names, upstream_id=connection.upstream_id)


async def _store_hourly_file(
    request: KeyRequest[BillingServices, bytes],
    connection_id: str,
    names: RequestDedupKeys | None,
    *,
    upstream_id: str = "",
    is_repeat: bool = False,
) -> web.Response:
    drop = await _parse_billing_file(request)
    if drop.errors:
        raise Refusal(400, "invalid_drop", f"Nothing was stored: {'; '.join(drop.errors)}.")
    identity = item_identity(names, 0, None)
    record = HourlyBillingFile(
        id=identity.id,
        connection_id=connection_id,
        month=drop.month,
        operation=drop.operation,
        rows=drop.rows,
        body=request.body,
        upstream_id=upstream_id or None,
    )
    if not is_repeat:
        await request.services.billing_connections.check_limits(record)
    deposits = request.services.deposits
    bearer = request.bearer
    receipt = await deposits.store_hourly_file(record, identity, bearer, request=names, is_repeat=is_repeat)
    return _drop_response(record, receipt)


def _drop_response(record: HourlyBillingFile, receipt: Receipt) -> web.Response:
    answer = {"drop_id": record.id.hex(), "month": record.month, "row_count": record.rows}
    return answers.json_response({"connection": answer}, receipt=receipt)


async def _parse_billing_file(request: KeyRequest[BillingServices, bytes]) -> BillingFile:
    body = request.body
    max_tags = request.services.billing_connections.max_tags
    if len(body) > billing.MAX_BYTES:
        raise Refusal(
            413,
            "body_too_large",
            "A billing file may have at most 5 MB. Send several files, each with whole hours.",
        )
    return await run_on_thread_if_large(
        partial(billing.read_billing_file, body, max_tags=max_tags), is_large=len(body) > LARGE
    )
