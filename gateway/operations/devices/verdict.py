"""The answer of an agent to an assistant's hook: whether a session may go on. Only agents have this address."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from gateway.core.errors import RECOUNT_RETRY_S, Refusal
from gateway.core.schemas import TEXT, closed_object_schema, schema_with_description
from gateway.devices.agent.hook import AMOUNT, MOST_SESSION, PATH
from gateway.devices.agent.session_meter import sum_session_cost
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.address import WRITE, ApiAddress
from gateway.http.answers import JSON
from gateway.http.requests import Result, check_json_content_type
from gateway.operations.requests.key_requests import KeyRequest
from spool import money
from spool.errors import NotKept
from spool.ledger.ledger import Ledger
from spool.log.protocols import RecordLog
from spool.registry.scopes import INGEST


class VerdictServices(Protocol):
    """What this receiver needs."""

    devices: DeviceLifecycle
    ledger: Ledger
    log: RecordLog


class SessionQuestion(msgspec.Struct, kw_only=True):
    session_id: Annotated[
        str, Meta(min_length=1, max_length=MOST_SESSION, description="The id of the session.")
    ]
    session_limit: Annotated[
        str,
        Meta(pattern=f"^({AMOUNT})?$", description="The limit of the session in dollars; empty for none."),
    ] = ""


@ApiAddress(
    methods=("POST",),
    path=PATH,
    summary="Answer whether a session of this machine may go on",
    endpoint="agent/verdict",
    scope=INGEST,
    check=check_json_content_type,
    gives={
        200: {
            JSON: closed_object_schema(
                {"refuse": schema_with_description(TEXT, "Why the session may not go on; empty if it may.")}
            )
        }
    },
    refusals=WRITE,
)
async def give_verdict(request: KeyRequest[VerdictServices, SessionQuestion]) -> Result:
    """Return in `refuse` why the session may not go on, or "". The answer states nothing about other sessions."""
    refuse = request.services.devices.budget_refusal()
    if not refuse and request.body.session_limit:
        refuse = await _limit_refusal_text(request)
    return {"refuse": refuse}


async def _limit_refusal_text(request: KeyRequest[VerdictServices, SessionQuestion]) -> str:
    session, limit = request.body.session_id, request.body.session_limit
    services = request.services
    try:
        spent = await sum_session_cost(session, services.ledger, services.log, request.receivers.clock.now())
    except NotKept as error:
        raise Refusal(503, "no_verdict", "the session is no longer listed") from error
    if spent is None:
        message = "the totals are being counted again; try again in a minute"
        raise Refusal(503, "no_verdict", message, retry_after_s=RECOUNT_RETRY_S)
    if spent < money.text_to_units(limit):
        return ""
    amount = Decimal(money.units_to_text(spent)).quantize(Decimal("0.01"))
    return f"Tollhouse: this session has cost {amount} USD, and its limit is {limit} USD."
