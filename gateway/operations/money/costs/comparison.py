"""Operator API for a change of costs: its parts, and the groups that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.money.comparison.comparing import ComparedAnswer, answer_comparison
from gateway.money.comparison.sentence import comparison_sentence, describe_named_drivers
from gateway.money.comparison.split import PARTS, CostDriver, GroupSpending
from gateway.money.costs.answer import billing_status_of_query
from gateway.money.costs.earlier_period import comparison_times
from gateway.money.costs.measures import COMPARED_KINDS, DEFAULT_TOP, MAX_TOP, REAL_COST
from gateway.operations.answers import ComparedTimesFields, ComparisonPast, NamedDriver
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import (
    PAGING,
    is_query_of_past_whole_months,
    page_of_rows,
    parse_top,
    range_name_of,
    read_question,
    time_range_fields,
)
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool import money
from spool.ledger.periods import PREVIOUS
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import COUNTED_TYPES
from spool.registry.texts import check_one_of

REPEATED = ("by", "where")
ONCE = ("from", "to", "range", "view", "tz", "against", "top", "cost_type", *PAGING)


class ComparisonQuery(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-21T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T02:00:00+00:00")]
    by: Annotated[list[str], words("The dimensions by which the comparison groups."), example(["team"])]
    past: Annotated[ComparisonPast, words("How much of the time to compare with is counted.")]
    compared: Annotated[ComparedTimesFields | None, words("The two compared periods, or null.")]
    top: Annotated[int, words("The maximum number of groups."), example(10)]
    cost_type: Annotated[str, words("The kind of cost, such as `metered_cost`."), example("real_cost")]
    sentence: Annotated[
        str,
        words("The result in one sentence."),
        example(
            "21 to 27 Nov 01:00 against 14 to 20 Nov 01:00: $11.66 more: search +$7.52, because it made 2.1 "
            "times as many calls; operations +$3.20, because its calls used 2 % more tokens each."
        ),
    ]
    drivers: Annotated[
        list[NamedDriver], words("The largest changed groups with a name, at most three."), example([])
    ]
    names: Annotated[
        dict[str, str],
        words("The names of dimensions that are derived from others."),
        example(
            {
                "model_family": "Model, all variants",
                "provider_family": "Provider, all variants",
                "User:Defined:CostCentre": "Cost centre",
            }
        ),
    ]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]


class ComparedFigures(msgspec.Struct, kw_only=True):
    cost: Annotated[str, words("The cost of the calls."), example("158.806789425")]
    tokens: Annotated[int, words("The number of tokens."), example(75756773)]
    calls: Annotated[int, words("The number of calls."), example(11923)]
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(338)]
    estimated: Annotated[str, words("The part of the cost that is estimated."), example("129.123113175")]


class ComparedTotal(ComparedFigures, kw_only=True):
    against: Annotated[ComparedFigures | None, words("The figures of the period to compare with, or null.")]
    change: Annotated[
        str | None, words("The change of the cost between the two periods."), example("11.662589925")
    ]
    more_calls: Annotated[
        str | None,
        words("The part of the change that comes from the number of calls."),
        example("7.158761910905306699969577046"),
    ]
    larger_calls: Annotated[
        str | None,
        words("The part of the change that comes from the size of the calls."),
        example("5.235484857512046117400097584"),
    ]
    other_kinds: Annotated[
        str | None,
        words("The part of the change that comes from the mix of models and token types."),
        example("-2.420613996963899900922081378"),
    ]
    large_inputs: Annotated[
        str | None,
        words("The part of the change that comes from large inputs with a higher price."),
        example("0"),
    ]
    other_tiers: Annotated[
        str | None, words("The part of the change that comes from tiers, such as batch."), example("0")
    ]
    other_regions: Annotated[
        str | None, words("The part of the change that comes from regions with another price."), example("0")
    ]
    reported_costs: Annotated[
        str | None,
        words("The part of the change that comes from calls whose source reports a cost."),
        example("0"),
    ]
    prices: Annotated[
        str | None, words("The part of the change that comes from changed list prices."), example("0")
    ]
    reported_rates: Annotated[
        str | None,
        words(
            "The part of the change that comes from sources that report another cost for the same tokens, while the "
            "list price explains less than half of it."
        ),
        example("0"),
    ]
    unit_cost: Annotated[
        str | None,
        words("The part of the change of the cost per token that no other part explains."),
        example("1.688957153546547083552406748"),
    ]
    new: Annotated[
        str | None,
        words("The part of the change that comes from groups without earlier costs."),
        example("0"),
    ]
    gone: Annotated[
        str | None, words("The part of the change that comes from groups without later costs."), example("0")
    ]


class ComparisonAnswer(msgspec.Struct, kw_only=True):
    comparison: Annotated[ComparisonQuery, words("The query as the server understood it.")]
    total: Annotated[ComparedTotal, words("The sums of all rows.")]
    billed: Annotated[
        dict[str, Any] | None,
        words("How final the bills of the time are, or null for counted costs."),
        example(None),
    ]
    rows: Annotated[
        list[dict[str, Any]],
        words("The rows: the fields of the total, and each dimension by name."),
        example(
            [
                {
                    "team": "search",
                    "cost": "12.8056275",
                    "tokens": 5065382,
                    "calls": 1717,
                    "unpriced": 33,
                    "estimated": "12.7636275",
                    "against": {
                        "cost": "5.28850675",
                        "tokens": 2227748,
                        "calls": 830,
                        "unpriced": 13,
                        "estimated": "5.28850675",
                    },
                    "change": "7.51712075",
                    "more_calls": "5.65169335813253012048192771",
                    "larger_calls": "1.084637036072514615278131327",
                    "other_kinds": "0.780790355794955264239940963",
                    "large_inputs": "0",
                    "other_tiers": "0",
                    "other_regions": "0",
                    "reported_costs": "0",
                    "prices": "0",
                    "reported_rates": "0",
                    "unit_cost": "0",
                    "new": "0",
                    "gone": "0",
                }
            ]
        ),
    ]
    pagination: Annotated[
        dict[str, Any],
        words("The page: [lists](../http-api.md#lists)."),
        example(
            {
                "page_count": 11,
                "item_count": 1,
                "total_count": 11,
                "cursor": {
                    "next_cursor": "lFQ33dJoVOFT4NGov1vm",
                    "previous_cursor": None,
                    "has_next": True,
                    "has_previous": False,
                },
            }
        ),
    ]
    filtering: Annotated[
        dict[str, Any],
        words("The filters: [lists](../http-api.md#lists)."),
        example(
            {"available": [{"field": "model", "valid_values": [], "valid_types": ["string"]}], "current": {}}
        ),
    ]
    sorting: Annotated[
        dict[str, Any],
        words("The order: [lists](../http-api.md#lists)."),
        example(
            {
                "available": ["place"],
                "current": [{"sort_key": "place", "sort_order": "asc"}],
                "ordering": ["asc", "desc"],
            }
        ),
    ]


@operator_call(
    "GET",
    "/comparison",
    VIEW_COSTS,
    "Explain what changed the costs",
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
    asks_closed=is_query_of_past_whole_months,
    answers=ComparisonAnswer,
)
async def compare_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Compare the costs of two time ranges. All closed records are counted first.

    `rows` add up exactly to `total`, and the parts of each row add up exactly to its change. A compared range
    ends with the last full hour, and has the same length as the earlier time, or both are whole calendar
    periods. If the lengths differ, only the total has `against`, and the change and its parts are null. Unless
    the earlier time is counted completely, `compared` and `against` are null as well.
    """
    services, reads, parameters = request.services, request.cost_reader, request.http.query
    cost_type = parameters.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, COMPARED_KINDS)
    ledger = reads.ledger_for_cost_types((cost_type, *COUNTED_TYPES))
    await ledger.require_complete_totals(services.log)
    known = await reads.visible_dimensions(cost_type, within=ledger, includes_work_units=True)
    question = replace(await read_question(request, known), cost_type=cost_type)
    top = parse_top(parameters.get("top", str(DEFAULT_TOP)))
    times = await comparison_times(
        reads,
        request.now(),
        against=parameters.get("against", PREVIOUS),
        range_name=range_name_of(parameters),
    )
    answer = await answer_comparison(
        question, times, reads, now=request.now(), top=top, prices=services.prices
    )
    page = await page_of_rows(
        request,
        list(enumerate(answer.comparison.drivers)),
        show=lambda driver: {
            **dict(zip(question.by, driver[1].group, strict=True)),
            **_describe_driver(driver[1], answer),
        },
        index_of_row=itemgetter(0),
        identity=lambda _: "",
        query=answer.query,
        dimensions=known,
        max_rows=MAX_TOP + 2,
    )
    return {
        "comparison": {
            **time_range_fields(answer.query),
            "by": list(question.by),
            "past": answer.past.to_fields(),
            "compared": answer.compared and answer.compared.to_fields(),
            "top": top,
            "cost_type": cost_type,
            "sentence": comparison_sentence(answer.comparison, answer.past, answer.compared),
            "drivers": describe_named_drivers(answer.comparison) if answer.has_parts else [],
            "names": {
                dimension.name: dimension.label
                for dimension in reads.definitions.derived_dimensions()
                if dimension.name in known
            },
            "whole_since": answer.incomplete_before,
        },
        "total": _describe_total(answer),
        "billed": await billing_status_of_query(answer.query, reads, request.now()),
        **page,
    }


def _describe_total(answer: ComparedAnswer) -> Mapping[str, object]:
    total = _describe_driver(answer.comparison.total, answer)
    if answer.compared is None or answer.has_parts:
        return total
    # spans of different lengths have sums, but no change
    return {**total, "against": _describe_spending(answer.comparison.total.before)}


def _describe_driver(driver: CostDriver, answer: ComparedAnswer) -> Mapping[str, object]:
    if not answer.has_parts:
        return {**_describe_spending(driver.now), "against": None, "change": None, **dict.fromkeys(PARTS)}
    parts = {name: money.units_to_text(getattr(driver.parts, name)) for name in PARTS}
    return {
        **_describe_spending(driver.now),
        "against": _describe_spending(driver.before),
        "change": money.units_to_text(driver.parts.change),
        **parts,
    }


def _describe_spending(spending: GroupSpending) -> Mapping[str, object]:
    return {
        "cost": money.units_to_text(spending.cost),
        "tokens": spending.tokens,
        "calls": spending.calls,
        "unpriced": spending.unpriced,
        "estimated": money.units_to_text(spending.estimated),
    }
