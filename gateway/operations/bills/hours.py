"""Handlers of the operator API that preview and send hours of AI cost as billing rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from gateway.http.requests import Result
from gateway.money.costs.times import parse_moment
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.billing import BillingPlan
from spool.errors import Invalid
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

MAX_DAYS = 62  # maximum days per request, because the ledger stores hours for only 62 days


class Push(RequestBody):
    """A request to send the billing rows of some hours."""

    since: Annotated[str, words("The first hour to send: a UTC day or a time.")]
    until: Annotated[str, words("The end of the hours to send: a UTC day, which is included, or a time.")]
    dry_run: Annotated[bool, words("Whether to count the hours and send nothing.")] = False


class BilledHours(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-26T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T00:00:00+00:00")]
    hours: Annotated[int, words("The number of hours."), example(24)]
    rows: Annotated[int, words("The number of billing rows."), example(605)]
    bytes: Annotated[int, words("The size of the hourly files in bytes."), example(451349)]
    drops: Annotated[int, words("The number of files."), example(1)]
    cost: Annotated[str, words("The cost of the calls."), example("32.19136705")]
    sent: Annotated[int, words("The number of hours that the receiver accepted."), example(0)]
    dry_run: Annotated[bool | UnsetType, words("Whether nothing was sent.")] = UNSET


class BilledHoursAnswer(msgspec.Struct, kw_only=True):
    billing: Annotated[BilledHours, words("The hours and their files.")]


@operator_call(
    "GET",
    "/billing",
    VIEW_COSTS,
    "Preview the billing rows of hours",
    required=("from", "to"),
    in_turn=True,
    answers=BilledHoursAnswer,
)
async def preview_billing_rows(request: OperatorRequest[MoneyServices, None]) -> Result:
    query = request.http.query
    if len(query) < 2:
        raise Invalid("from and to are required")
    since, until = _parse_span(query["from"], query["to"])
    await request.services.ledger.require_complete_totals(request.services.log)
    return {
        "billing": _describe_billing_plan(since, until, await request.services.billing.preview(since, until))
    }


@operator_call(
    "POST", "/billing/push", MODIFY_BILLING, "Send the billing rows of hours", answers=BilledHoursAnswer
)
async def push(request: OperatorRequest[MoneyServices, Push]) -> Result:
    """
    Send every hour of the span, even if unchanged. Repeats do no harm, because `replace_hourly` replaces an hour.
    """
    services = request.services
    body = request.body
    since, until = _parse_span(body.since, body.until)
    await services.ledger.require_complete_totals(services.log)
    if body.dry_run:
        plan = await services.billing.preview(since, until)
    else:
        span = {"since": since.isoformat(), "until": until.isoformat()}
        async with request.audited_change("billing.push", "billing", span):
            plan = await services.billing.push(since, until)
    return {"billing": {**_describe_billing_plan(since, until, plan), "dry_run": body.dry_run}}


def _parse_span(start_text: str, end_text: str) -> tuple[datetime, datetime]:
    since = parse_moment("from", start_text).astimezone(UTC)
    until = parse_moment("to", end_text, end=True).astimezone(UTC)
    since, until = (moment.replace(minute=0, second=0, microsecond=0) for moment in (since, until))
    if since >= until:
        raise Invalid("from must be at least one hour before to")
    if until - since > timedelta(days=MAX_DAYS):
        raise Invalid(f"the span can be at most {MAX_DAYS} days")
    return since, until


def _describe_billing_plan(since: datetime, until: datetime, plan: BillingPlan) -> dict[str, object]:
    return {"from": since.isoformat(), "to": until.isoformat(), **asdict(plan)}
