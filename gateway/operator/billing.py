"""The calls of the operator API on billing: what hours of AI cost come to as drops, and sending them now."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from aiohttp import web

from gateway.api import costs
from gateway.operator.body import Body, answer
from gateway.operator.calls import Asked, Call
from spool.billing_hours import BillingPlan
from spool.errors import Invalid
from spool.registry.operators import OPERATOR, VIEWER

MAX_DAYS = 62  # the ledger keeps hours no longer


class Push(Body):
    """`since` and `until` are days (UTC, the last is part of it) or RFC 3339 times; a dry run sends nothing."""

    since: str
    until: str
    dry_run: bool = False


async def preview(asked: Asked) -> web.Response:
    given = asked.only("from", "to")
    if len(given) < 2:
        raise Invalid("from and to are required")
    since, until = _span(given["from"], given["to"])
    await asked.services.ledger.catch_up(asked.services.log)
    return answer({"billing": _shown(since, until, await asked.services.billing.preview(since, until))})


async def push(asked: Asked) -> web.Response:
    """Every hour of the span is sent, changed or not: `replace_hourly` makes a repeat harmless."""
    services = asked.services
    given = await asked.body(Push)
    since, until = _span(given.since, given.until)
    await services.ledger.catch_up(services.log)
    if given.dry_run:
        plan = await services.billing.preview(since, until)
    else:
        plan = await services.noted(
            asked.actor,
            "billing.push",
            "billing",
            {"since": since.isoformat(), "until": until.isoformat()},
            lambda: services.billing.push(since, until),
        )
    return answer({"billing": {**_shown(since, until, plan), "dry_run": given.dry_run}})


def _span(first: str, last: str) -> tuple[datetime, datetime]:
    since, until = costs.moment("from", first).astimezone(UTC), costs.moment("to", last, end=True).astimezone(UTC)
    since, until = (moment.replace(minute=0, second=0, microsecond=0) for moment in (since, until))
    if since >= until:
        raise Invalid("from must be an hour or more before to")
    if until - since > timedelta(days=MAX_DAYS):
        raise Invalid(f"at most {MAX_DAYS} days at once")
    return since, until


def _shown(since: datetime, until: datetime, plan: BillingPlan) -> dict[str, object]:
    return {"from": since.isoformat(), "to": until.isoformat(), **asdict(plan)}


CALLS = (
    Call("GET", "/billing", VIEWER, preview, "What hours come to as billing drops", query=("from", "to")),
    Call("POST", "/billing/push", OPERATOR, push, "Send hours as billing drops", takes=Push),
)
