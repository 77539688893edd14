"""The call of the operator API for a change of costs: what it is made of, and which groups drive it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from gateway.api.report_words import DEFAULT_TOP, MAX_TOP, REAL_COST, SAME_WEEKDAYS
from gateway.comparison.comparing import baseline_of, by_whole_days, compare
from gateway.comparison.old_prices import list_prices
from gateway.comparison.sentence import sentence
from gateway.comparison.split import PARTS, Driver, Spending
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.operator.costs import billed_money
from gateway.operator.costs.questions import query_of, top_of
from gateway.operator.costs.row_pages import PAGING, enveloped
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import known_dimensions, named_dimensions
from spool.ledger import money
from spool.ledger.queries import BILLED_DIMENSIONS, BILLED_TYPES
from spool.record import moment
from spool.registry.shared.cost_types import COUNTED_TYPES
from spool.registry.shared.texts import check_one_of

REPEATED = ("by", "where")
ONCE = ("from", "to", "range", "view", "tz", "against", "top", "cost_type", *PAGING)
MONEY_KINDS = (REAL_COST, *BILLED_TYPES)  # that are compared


async def comparison(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Compare the costs of two spans over all records closed by now: the ledger catches up first.

    `rows` add up to `total`, and the parts of each to its change, to the last digit. `whole_since` is given
    where sums may lack records that were gone before they were counted. `billed` is null, or how final the days of
    billed money are.
    """
    services = request.services
    given = request.http.query
    cost_type = given.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, MONEY_KINDS)
    is_billed = cost_type in BILLED_TYPES
    ledger = request.ledger_of((cost_type, *COUNTED_TYPES)) if is_billed else request.ledger
    await ledger.catch_up(services.log)
    known = await known_dimensions(request)
    if is_billed:
        known = (*known, *BILLED_DIMENSIONS, *await ledger.row_tags())
    query = await query_of(request, known)
    if is_billed:
        query = by_whole_days(query, cost_type, request.now())
    baseline = baseline_of(query, given.get("against", SAME_WEEKDAYS), request.now())
    if is_billed:
        baseline = by_whole_days(baseline, cost_type, request.now())
    top = top_of(given.get("top", str(DEFAULT_TOP)))
    prices = await list_prices(services.prices)
    found = await compare(ledger, query, baseline, top=top, prices=prices)
    whole = await ledger.whole_since()
    since = min(query.since, baseline.since)
    drivers = list(enumerate(found.drivers))
    page = await enveloped(
        request,
        drivers,
        show=lambda driver: {
            **dict(zip(query.group_by, driver[1].group, strict=True)),
            **_describe(driver[1]),
        },
        place=itemgetter(0),
        identity=lambda _: "",
        query=query,
        dimensions=known,
        most=MAX_TOP + 2,
    )
    return {
        "comparison": {
            "from": query.since.isoformat(),
            "to": query.until.isoformat(),
            "by": list(query.group_by),
            "against": {"from": baseline.since.isoformat(), "to": baseline.until.isoformat()},
            "top": top,
            "cost_type": cost_type,
            "sentence": sentence(found),
            "names": {each.name: each.label for each in await named_dimensions(request)},
            "whole_since": moment(whole) if since.timestamp() < whole else None,
        },
        "total": _describe(found.total),
        "billed": await billed_money.told(request, query) if is_billed else None,
        **page,
    }


def _describe(driver: Driver) -> Mapping[str, object]:
    parts = {name: money.text(getattr(driver.parts, name)) for name in PARTS}
    was = _spending(driver.before)
    return {**_spending(driver.now), "against": was, "change": money.text(driver.parts.change), **parts}


def _spending(spending: Spending) -> Mapping[str, object]:
    return {
        "cost": money.text(spending.cost),
        "tokens": spending.tokens,
        "calls": spending.calls,
        "unpriced": spending.unpriced,
        "estimated": money.text(spending.estimated),
    }
