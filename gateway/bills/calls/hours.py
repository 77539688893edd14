"""The calls of the operator API on billing: what hours of AI cost come to as drops, and sending them now."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from gateway.http.holders.operators import MoneyServices
from gateway.http.operator.address import call
from gateway.http.operator.requests import OperatorRequest, RequestBody
from gateway.http.requests import Result
from gateway.money.costs.times import parse_moment
from spool.billing import BillingPlan
from spool.errors import Invalid
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

MAX_DAYS = 62  # as long as the ledger keeps hours


class Push(RequestBody):
    """`since` and `until` are days (UTC, the last is part of it) or RFC 3339 times; a dry run sends nothing."""

    since: str
    until: str
    dry_run: bool = False


@call(
    "GET",
    "/billing",
    VIEW_COSTS,
    "What hours come to as billing drops",
    required=("from", "to"),
    in_turn=True,
)
async def preview(request: OperatorRequest[MoneyServices, None]) -> Result:
    given = request.http.query
    if len(given) < 2:
        raise Invalid("from and to are required")
    since, until = _span(given["from"], given["to"])
    await request.services.ledger.catch_up(request.services.log)
    return {"billing": _describe(since, until, await request.services.billing.preview(since, until))}


@call("POST", "/billing/push", MODIFY_BILLING, "Send hours as billing drops")
async def push(request: OperatorRequest[MoneyServices, Push]) -> Result:
    """Every hour of the span is sent, changed or not: `replace_hourly` makes a repeat harmless."""
    services = request.services
    given = request.body
    since, until = _span(given.since, given.until)
    await services.ledger.catch_up(services.log)
    if given.dry_run:
        plan = await services.billing.preview(since, until)
    else:
        span = {"since": since.isoformat(), "until": until.isoformat()}
        async with request.audited("billing.push", "billing", span):
            plan = await services.billing.push(since, until)
    return {"billing": {**_describe(since, until, plan), "dry_run": given.dry_run}}


def _span(first: str, last: str) -> tuple[datetime, datetime]:
    since = parse_moment("from", first).astimezone(UTC)
    until = parse_moment("to", last, end=True).astimezone(UTC)
    since, until = (moment.replace(minute=0, second=0, microsecond=0) for moment in (since, until))
    if since >= until:
        raise Invalid("from must be an hour or more before to")
    if until - since > timedelta(days=MAX_DAYS):
        raise Invalid(f"at most {MAX_DAYS} days at once")
    return since, until


def _describe(since: datetime, until: datetime, plan: BillingPlan) -> dict[str, object]:
    return {"from": since.isoformat(), "to": until.isoformat(), **asdict(plan)}
