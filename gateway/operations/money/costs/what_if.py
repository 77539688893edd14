"""Operator API for the costs of calls if they had used another model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.money.costs.measures import MAX_TOP
from gateway.money.recommendations.facts import DAYS, dimension_value
from gateway.money.recommendations.what_if import (
    ASSUMPTIONS,
    Group,
    ModelReplacementCosts,
    check_model_has_price,
    days_within,
)
from gateway.money.recommendations.what_if import what_if as worked_out
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import read_question
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool import money
from spool.errors import Invalid
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, next_full_hour
from spool.ledger.sums import OTHER, Dimensions
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS
from spool.turns.threads import sort_in_short_steps

REPEATED = ("by", "where")
REQUIRED = ("model",)
ONCE = ("from", "to", "range", "view", "tz")


class WhatIfQuery(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    model: Annotated[str, words("The model that the estimate is for."), example("gpt-4o")]
    by: Annotated[list[str], words("The dimensions by which the estimate groups."), example(["team"])]
    days: Annotated[int, words("The number of days that are included."), example(27)]
    from_: Annotated[str | None, words("The first day, or null if there is none."), example("2026-11-01")]
    to: Annotated[str | None, words("The last day, or null if there is none."), example("2026-11-27")]
    price_book: Annotated[str, words("The name of the price list."), example("genai-prices-0.2.3-2026-11-27")]
    assumptions: Annotated[
        list[str],
        words("The assumptions of the estimate."),
        example(
            [
                "The other model needs the same number of tokens.",
                (
                    "The other model costs its current list price, scaled by the share of "
                    "list prices that these calls paid."
                ),
            ]
        ),
    ]
    saves_a_month: Annotated[
        str,
        words("The cost that the other model would save per month; negative if it costs more."),
        example("-11.814277111111111111111111112"),
    ]
    left_out: Annotated[
        str, words("The cost of small sums on days with very many sums, which are in no row."), example("0")
    ]


class WhatIfAnswerTotal(msgspec.Struct, kw_only=True):
    calls: Annotated[int, words("The number of calls."), example(4468)]
    cost: Annotated[str, words("The cost of the calls."), example("31.0996606")]
    as_if: Annotated[
        str, words("The estimated cost of the same calls with the other model."), example("41.73251")
    ]
    saves: Annotated[
        str,
        words("The cost that the other model would save; negative if it costs more."),
        example("-10.6328494"),
    ]
    unchanged: Annotated[
        str, words("The cost of calls that cannot be estimated with the other model."), example("0")
    ]


class WhatIfAnswer(msgspec.Struct, kw_only=True):
    what_if: Annotated[WhatIfQuery, words("The estimate.")]
    rows: Annotated[
        list[dict[str, Any]],
        words("The rows: the fields of the total, and each dimension by name."),
        example(
            [
                {
                    "team": "search",
                    "calls": 4468,
                    "cost": "31.0996606",
                    "as_if": "41.73251",
                    "saves": "-10.6328494",
                    "unchanged": "0",
                }
            ]
        ),
    ]
    total: Annotated[WhatIfAnswerTotal, words("The sums of all rows.")]


@operator_call(
    "GET",
    "/what-if",
    VIEW_COSTS,
    "Estimate the costs with another model",
    required=REQUIRED,
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
    answers=WhatIfAnswer,
)
async def what_if(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Estimate the costs with another model. All closed records are counted first.

    All days (UTC) that the time range touches are included. The largest change is first. On days with very
    many sums, small sums are not recalculated.
    """
    services = request.services
    ledger = request.ledger
    await ledger.require_complete_totals(services.log)
    query = (await read_question(request, await request.cost_reader.visible_dimensions())).query
    model = request.http.query.get("model", "")
    now = request.now()
    if not model:
        raise Invalid("model is required, such as model=gpt-4.1-mini")
    book = await asyncio.to_thread(services.prices)
    check_model_has_price(book, model, now)
    derived = {dimension.name: dimension for dimension in ledger.derived_dimensions()}

    def dimension_value_in_totals(dimensions: Dimensions, name: str) -> str:
        derived_dimension = derived.get(name)
        if derived_dimension is None:
            return dimension_value(dimensions, name)
        return derived_dimension.value(
            tuple(dimension_value(dimensions, source) for source in derived_dimension.sources)
        )

    def is_chosen(dimensions: Dimensions) -> bool:
        if request.has_limited_data_access and not ledger.has_call(
            lambda name: dimension_value(dimensions, name)
        ):
            return False
        return all(
            dimension_value_in_totals(dimensions, name) in values for name, values in query.include.items()
        ) and not any(
            dimension_value_in_totals(dimensions, name) in values for name, values in query.exclude.items()
        )

    def group_of_dimensions(dimensions: Dimensions) -> Group:
        return tuple(dimension_value_in_totals(dimensions, name) or None for name in query.group_by)

    days = days_within(query.since.timestamp(), min(query.until.timestamp(), now))
    has_choice = request.has_limited_data_access or query.include or query.exclude
    chosen = is_chosen if has_choice else None
    result = await worked_out(
        # whole: `chosen` counts only visible calls
        request.whole_ledger,
        book,
        model,
        days=days,
        chosen=chosen,
        group_of=group_of_dimensions,
        now=now,
    )
    whole = await ledger.costs(_limit_to_days(query, days)) if days else []
    cost = sum(money.text_to_units(row.cost) for row in whole)
    shown = await asyncio.to_thread(_largest_groups_and_rest, result.groups, (OTHER,) * len(query.group_by))
    return {
        "what_if": {
            "model": model,
            "by": list(query.group_by),
            "days": len(days),
            "from": _format_day(days[0]) if days else None,
            "to": _format_day(days[-1]) if days else None,
            "price_book": book.version,
            "assumptions": list(ASSUMPTIONS),
            "saves_a_month": money.units_to_text(result.total.saves * DAYS // max(1, len(days))),
            "left_out": money.units_to_text(max(0, cost - result.total.cost)),
        },
        "rows": [
            {**dict(zip(query.group_by, group, strict=True)), **_describe_replacement_costs(instead)}
            for group, instead in shown
        ],
        "total": _describe_replacement_costs(result.total),
    }


def _largest_groups_and_rest(
    groups: Mapping[Group, ModelReplacementCosts], other_group: Group
) -> list[tuple[Group, ModelReplacementCosts]]:
    """
    Return the MAX_TOP groups with the largest change, and the sum of all other groups. Ties are sorted by name.
    """
    by_name = sort_in_short_steps(groups.items(), lambda item: [word or "" for word in item[0]])
    rows = sort_in_short_steps(by_name, lambda item: -abs(item[1].saves))
    rest = [instead for _, instead in rows[MAX_TOP:]]
    return [*rows[:MAX_TOP], *([(other_group, ModelReplacementCosts.sum_of(rest))] if rest else [])]


def _limit_to_days(query: CostQuery, days: range) -> CostQuery:
    since = datetime.fromtimestamp(days.start, UTC)
    until = next_full_hour(days.stop - 1)
    return replace(query, since=since, until=until, granularity=TOTAL, group_by=(), measures=("calls",))


def _describe_replacement_costs(replacement_costs: ModelReplacementCosts) -> Mapping[str, object]:
    return {
        "calls": replacement_costs.calls,
        "cost": money.units_to_text(replacement_costs.cost),
        "as_if": money.units_to_text(replacement_costs.hypothetical_cost),
        "saves": money.units_to_text(replacement_costs.saves),
        "unchanged": money.units_to_text(replacement_costs.unchanged),
    }


def _format_day(start: int) -> str:
    return datetime.fromtimestamp(start, UTC).date().isoformat()
