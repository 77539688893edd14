"""Operator API for a change of costs: its parts, and the groups that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter

from gateway.http.requests import Result
from gateway.money.comparison.comparing import answer_comparison
from gateway.money.comparison.sentence import comparison_sentence
from gateway.money.comparison.split import PARTS, Driver, Spending
from gateway.money.costs.answer import bills_status
from gateway.money.costs.measures import (
    COMPARED_KINDS,
    DEFAULT_TOP,
    MAX_TOP,
    PREVIOUS,
    REAL_COST,
)
from gateway.money.costs.past import Past, earlier_query
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import (
    PAGING,
    asks_closed_months,
    page_of_rows,
    parse_top,
    read_question,
)
from gateway.operations.requests.address import SLICED, call
from gateway.operations.requests.requests import OperatorRequest
from spool.ledger import money
from spool.ledger.queries import CostQuery
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import COUNTED_TYPES
from spool.registry.texts import check_one_of

REPEATED = ("by", "where")
ONCE = ("from", "to", "range", "view", "tz", "against", "top", "cost_type", *PAGING)


@call(
    "GET",
    "/comparison",
    VIEW_COSTS,
    "Explain what changed the costs",
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
    asks_closed=asks_closed_months,
)
async def comparison(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Compare the costs of two time ranges. The totals are first updated with all closed records.

    `past` states how much of the earlier time is counted. Unless it is whole, nothing is compared: `against`, the
    change and its parts are null. `rows` add up exactly to `total`, and the parts of each row add up exactly to its
    change. `whole_since` is included if totals may lack records deleted before they were counted. `billed`
    is null for counted costs. For billed money it states how final the bills are.
    """
    services, reads, parameters = request.services, request.reads, request.http.query
    cost_type = parameters.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, COMPARED_KINDS)
    ledger = reads.ledger_for_cost_types((cost_type, *COUNTED_TYPES))
    await ledger.catch_up(services.log)
    known = await reads.dimensions(cost_type, within=ledger, units=True)
    question = replace(await read_question(request, known), cost_type=cost_type)
    top = parse_top(parameters.get("top", str(DEFAULT_TOP)))
    against = partial(
        earlier_query,
        against=parameters.get("against", PREVIOUS),
        now=request.now(),
        hours_since=await reads.whole.hours_since(),
        named=parameters.get("range"),
    )
    answer = await answer_comparison(
        question, against, reads, now=request.now(), top=top, prices=services.prices
    )
    page = await page_of_rows(
        request,
        list(enumerate(answer.comparison.drivers)),
        show=lambda driver: {
            **dict(zip(question.by, driver[1].group, strict=True)),
            **_describe_driver(driver[1], answer.past),
        },
        place=itemgetter(0),
        identity=lambda _: "",
        query=answer.query,
        dimensions=known,
        most=MAX_TOP + 2,
    )
    return {
        "comparison": {
            **_span_fields(answer.query),
            "by": list(question.by),
            "past": answer.past.described(),
            "against": _span_fields(answer.baseline) if answer.past.is_whole else None,
            "top": top,
            "cost_type": cost_type,
            "sentence": comparison_sentence(answer.comparison, answer.past),
            "names": {
                dimension.name: dimension.label
                for dimension in reads.whole.derived()
                if dimension.name in known
            },
            "whole_since": answer.may_lack,
        },
        "total": _describe_driver(answer.comparison.total, answer.past),
        "billed": await bills_status(answer.query, reads, request.now()),
        **page,
    }


def _span_fields(query: CostQuery) -> dict[str, str]:
    return {"from": query.since.isoformat(), "to": query.until.isoformat()}


def _describe_driver(driver: Driver, past: Past) -> Mapping[str, object]:
    if not past.is_whole:
        return {**_describe_spending(driver.now), "against": None, "change": None, **dict.fromkeys(PARTS)}
    parts = {name: money.text(getattr(driver.parts, name)) for name in PARTS}
    return {
        **_describe_spending(driver.now),
        "against": _describe_spending(driver.before),
        "change": money.text(driver.parts.change),
        **parts,
    }


def _describe_spending(spending: Spending) -> Mapping[str, object]:
    return {
        "cost": money.text(spending.cost),
        "tokens": spending.tokens,
        "calls": spending.calls,
        "unpriced": spending.unpriced,
        "estimated": money.text(spending.estimated),
    }
