"""Operator API of the totals' state, and of all figures on the first page of the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.http.lists import MemoryRows, PageQuery
from gateway.http.requests import Result
from gateway.money.budgets.declared import COST, MONTHLY
from gateway.money.budgets.expansion import format_amount_rounded_down
from gateway.money.budgets.forecast import TooEarly, forecast_running_period
from gateway.money.comparison.comparing import compare_times
from gateway.money.comparison.sentence import describe_named_drivers
from gateway.money.costs.answer import has_plans_or_contract_amounts, ledger_for_question
from gateway.money.costs.earlier_period import (
    ComparedTimes,
    EarlierPeriodCoverage,
    comparison_times,
    find_earlier_period_coverage,
    queries_of_spans,
    read_compared_times,
)
from gateway.money.costs.measures import cost_per_count
from gateway.money.costs.question import CostQuestion, check_span
from gateway.operations.answers import (
    ComparedTimesFields,
    ComparisonPast,
    CostAndCalls,
    MarkItem,
    NamedDriver,
    OperatorInsight,
)
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.attention import OPEN, visible_insights
from gateway.operations.money.costs.colours import colours_for_rows
from gateway.operations.money.costs.marks import chart_marks
from gateway.operations.money.costs.questions import read_time_range
from gateway.operations.money.published_insights import INSIGHTS_OF_PEOPLE, describe_insight_for_people
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool import money
from spool.cost_kinds import KINDS
from spool.ledger.billed import USAGE
from spool.ledger.costs import combine_rows
from spool.ledger.dimensions import CHARGE, MODEL_FAMILY, OVERAGE, PAID_COST, SEAT_FEE, TOTAL
from spool.ledger.periods import PREVIOUS, ComparedSpans
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.record import AI_TELEMETRY, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS, VIEW_OPERATION

ONCE = ("view", "from", "to")
MOST_DAYS = 100  # maximum days in the chart
LISTED = 5
_DRIVERS = 3  # maximum models that the month lists as drivers of its change
LISTS = (MODEL_FAMILY, "team", "user")
_OF_MONTH = ("cost", "calls", "errors", "unpriced")
_OF_DAY = ("cost", "calls", "unpriced")
_BORDERS = ("hourly_since", "whole_since")


class LedgerFigures(msgspec.Struct, kw_only=True):
    reach: Annotated[int | None, words("The next record number to count."), example(62585)]
    rebuilding: Annotated[
        int | None, words("0, or the record number at which a running recount ends."), example(0)
    ]
    missed: Annotated[int | None, words("The number of records that could not be counted."), example(0)]
    damaged: Annotated[int | None, words("The number of damaged records."), example(0)]
    absurd: Annotated[int | None, words("The number of records with impossible figures."), example(0)]
    rows: Annotated[int | None, words("The number of stored sums."), example(18948)]
    hourly_since: Annotated[
        str | None,
        words("Older sums are stored by day. Null if all hours are stored."),
        example("2026-09-26T00:00:00.000Z"),
    ]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]
    behind: Annotated[
        int | None, words("The number of closed records that are not yet in the totals."), example(0)
    ]


class LedgerAnswer(msgspec.Struct, kw_only=True):
    ledger: Annotated[LedgerFigures, words("The state of the totals.")]
    frozen_rates: Annotated[dict[str, Any], words("The frozen exchange rates by month."), example({})]


class PreviousFigures(CostAndCalls, kw_only=True):
    errors: Annotated[int | UnsetType, words("The number of failed calls; only of a month.")] = UNSET
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(0)]


class OverviewFigures(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-27")]
    cost: Annotated[str, words("The cost of the calls."), example("1.1763021")]
    calls: Annotated[int, words("The number of calls."), example(90)]
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(0)]
    cost_per_call: Annotated[str | None, words("The average cost of a call."), example("0.013070023333")]
    past: Annotated[ComparisonPast, words("How much of the time to compare with is counted.")]
    compared: Annotated[
        ComparedTimesFields | None,
        words(
            "The compared part of the period, and the same part of the day or month before, or null. The "
            "compared cost is `cost` without `since_cut`."
        ),
        example(None),
    ]
    previous: Annotated[
        PreviousFigures | None,
        words("The figures of the earlier of the compared periods, or null."),
        example(None),
    ]


class FiguresOfMonth(OverviewFigures, kw_only=True, rename={"from_": "from"}):
    errors: Annotated[int, words("The number of failed calls."), example(4527)]
    drivers: Annotated[
        list[NamedDriver],
        words("The models that changed the cost most since the last month, at most three, and why."),
        example([]),
    ]


class PaidFigures(msgspec.Struct, kw_only=True):
    cost: Annotated[str, words("The paid cost of the month so far.")]
    seat_fee: Annotated[str, words("The fees of seats.")]
    overage: Annotated[str, words("The charges for extra usage of plans.")]
    metered: Annotated[str, words("The cost of calls that no plan covers.")]
    contracts: Annotated[str, words("The amounts of contracts.")]


class MonthForecast(msgspec.Struct, kw_only=True):
    total: Annotated[str, words("The expected cost of the whole month."), example("833.71")]
    low: Annotated[str, words("The lower end of the likely range."), example("828.11")]
    high: Annotated[str, words("The upper end of the likely range."), example("843.81")]


class ModelDay(msgspec.Struct, kw_only=True):
    period: Annotated[str, words("The day, or in `lists` the first of `days`."), example("2026-10-29")]
    model_family: Annotated[
        str | None, words("The model, with all its variants, or null if it is unknown."), example("(other)")
    ]
    cost: Annotated[str, words("The cost of the calls."), example("1.57887505")]


class TeamDay(msgspec.Struct, kw_only=True):
    period: Annotated[str, words("The first of `days`."), example("2026-10-29")]
    team: Annotated[str | None, words("The team, or null if it is unknown."), example(None)]
    cost: Annotated[str, words("The cost of the calls."), example("25.95079")]
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(0)]


class UserDay(msgspec.Struct, kw_only=True):
    period: Annotated[str, words("The first of `days`."), example("2026-10-29")]
    user: Annotated[str | None, words("The person or service, or null if it is unknown."), example(None)]
    cost: Annotated[str, words("The cost of the calls."), example("602.63045265")]
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(0)]


class ModelCosts(ModelDay, kw_only=True):
    unpriced: Annotated[int, words("Calls that used something without a known price."), example(0)]


class CostLists(msgspec.Struct, kw_only=True):
    model_family: Annotated[list[ModelCosts], words("The costs by model.")]
    team: Annotated[list[TeamDay], words("The costs by team.")]
    user: Annotated[list[UserDay], words("The costs by person or service.")]


class OperationState(msgspec.Struct, kw_only=True):
    has_records: Annotated[bool, words("Whether a record was ever accepted."), example(True)]
    demo: Annotated[
        str | None,
        words("The state of the demo month, or null if the server can have none."),
        example("none"),
    ]


class OpenInsights(msgspec.Struct, kw_only=True):
    rows: Annotated[list[OperatorInsight], words("The insights.")]
    total_count: Annotated[int, words("The number of all open insights."), example(18)]


class Overview(msgspec.Struct, kw_only=True):
    now: Annotated[str, words("The time of the server."), example("2026-11-27T01:45:15.049Z")]
    since: Annotated[str, words("The first day of `days`."), example("2026-10-29")]
    last: Annotated[str, words("The last day of `days`."), example("2026-11-27")]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]
    month: Annotated[FiguresOfMonth, words("The figures of the month so far.")]
    paid: Annotated[PaidFigures | UnsetType, words("The paid cost; omitted without plans and contracts.")] = (
        UNSET
    )
    forecast: Annotated[MonthForecast | None, words("The expected cost of the month, or null.")]
    today: Annotated[OverviewFigures, words("The figures of today so far.")]
    days: Annotated[list[ModelDay], words("Costs by day.")]
    reported: Annotated[
        str, words("The part of the cost of `days` that sources reported."), example("139.02977095")
    ]
    kinds: Annotated[
        dict[str, int],
        words("The numbers of calls of `days` by what is known of their cost."),
        example({"priced": 21480, "free": 611, "unpriced": 826, "without_usage": 14}),
    ]
    colours: Annotated[
        dict[str, int], words("The number of the colour of each model in charts."), example({"gpt-4o": 1})
    ]
    marks: Annotated[list[MarkItem], words("Annotations and other events by day.")]
    truncated: Annotated[
        bool, words("Whether older marks are missing because there are too many."), example(False)
    ]
    lists: Annotated[CostLists, words("Costs by model, team and user.")]
    operation: Annotated[
        OperationState | None, words("The state of the installation, or null for people who may not see it.")
    ]
    insights: Annotated[
        OpenInsights | None, words("The open insights, or null while the registry is damaged.")
    ]


@operator_call(
    "GET", "/ledger", VIEW_COSTS, "Show how current the totals are", shows=SLICED, answers=LedgerAnswer
)
async def show_ledger_state(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Describe how current the totals are. `behind` is the number of closed records that are not counted yet.

    People with limited data access do not see the numbers of records.
    """
    return await describe_ledger(request, counts_rows=True)


async def describe_ledger(request: OperatorRequest[MoneyServices, None], *, counts_rows: bool) -> Result:
    """Return the totals' state, and the frozen exchange rates. If `counts_rows` is False, `rows` is null."""
    services = request.services
    state = asdict(await services.ledger.state(counts_rows=counts_rows))
    state["rows"] = state["rows"] if counts_rows else None
    state["behind"] = max(0, services.log.lowest_open_number(AI_TELEMETRY) - state["reach"])
    if request.has_limited_data_access:
        state = {name: value if name in _BORDERS else None for name, value in state.items()}
    borders = {name: state[name] and utc_iso(state[name].timestamp()) for name in _BORDERS}
    registry = services.registry
    frozen = {} if registry is None else registry.frozen_rates.all()
    months = {
        name: {field: value for field, value in body.items() if field != "days"}
        for name, body in sorted(frozen.items())
    }
    return {"ledger": {**state, **borders}, "frozen_rates": months}


@operator_call(
    "GET",
    "/overview",
    VIEW_COSTS,
    "Show all figures of the console's first page",
    optional=ONCE,
    shows=SLICED,
    in_turn=True,
    answers=one_field_answer(
        "OneOverview", overview=Annotated[Overview, words("The figures of the Overview page.")]
    ),
)
async def overview(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Return all figures of the first page. All closed records are counted first.

    All totals are read in one transaction. The notes of the chart and the reasons of the month's change are
    read afterwards. The chart, the lists and the notes cover the requested days, by default the last 30.
    People who have limited data access do not get the installation's state. `previous` is null unless its
    time is counted completely.
    """
    services = request.services
    await request.ledger.require_complete_totals(services.money.log)
    now = datetime.fromtimestamp(request.now(), UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    base = CostQuery(
        since=first, until=next_full_hour(now.timestamp()), granularity=TOTAL, measures=_OF_MONTH
    )
    if "view" in request.http.query:
        view = await request.cost_reader.find_view(request.http.query["view"])
        base = replace(base, include=view.include, exclude=view.exclude)
    today = replace(base, since=midnight, measures=_OF_DAY)
    largest = _limit_to_requested_days(request, replace(base, measures=("cost",), top=LISTED))
    since = largest.since
    daily = replace(largest, granularity="daily", group_by=(MODEL_FAMILY,), measures=("cost", "reported"))
    lists = [replace(largest, group_by=(name,)) for name in LISTS]
    of_month, of_today = [
        await _compare_period(request, query, name)
        for query, name in ((base, "this_month"), (today, "today"))
    ]
    row_sets = await request.ledger.costs_of_queries(
        [base, of_month.query_before, today, of_today.query_before, daily, *lists]
    )
    month, month_before, day, day_before, by_day, *by_list = row_sets
    shown_days = combine_rows(by_day, start=since, group=())
    whole = await request.ledger.start_of_complete_hours()
    predicted = (await forecast_running_period(request.ledger, base, MONTHLY, request.now())).forecast
    return {
        "overview": {
            "now": utc_iso(now.timestamp()),
            "since": since.date().isoformat(),
            "last": (largest.until - timedelta(microseconds=1)).date().isoformat(),
            "whole_since": utc_iso(whole) if since.timestamp() < whole else None,
            "month": {
                **_fields_of_period_and_previous(first, month, month_before, _OF_MONTH, of_month),
                "drivers": await _month_drivers(request, base, of_month),
            },
            # total and bounds as in `GET /forecast`, or null if there is too little history
            "forecast": None
            if isinstance(predicted, TooEarly)
            else {
                name: format_amount_rounded_down(COST, getattr(predicted, name))
                for name in ("total", "low", "high")
            },
            **await _paid_cost_fields(request, base),
            "today": _fields_of_period_and_previous(midnight, day, day_before, _OF_DAY, of_today),
            "days": _cost_rows(daily, by_day),
            "reported": shown_days.reported,
            "kinds": {name: getattr(shown_days, name) for name in KINDS},
            "colours": await colours_for_rows(
                services.money.colours, request.shared.people, MODEL_FAMILY, by_day
            ),
            **await chart_marks(request, services.money, replace(largest, top=None).without_units()),
            "lists": {
                list_query.group_by[0]: _cost_rows(list_query, rows, "unpriced")
                for list_query, rows in zip(lists, by_list, strict=True)
            },
            "operation": await _fields_about_tollhouse_operation(request),
            "insights": await _insight_fields(request),
        }
    }


def _limit_to_requested_days(request: OperatorRequest[OperatorServices, None], query: CostQuery) -> CostQuery:
    since, until, _ = read_time_range(request.http.query, request.now(), default="last_30d")
    day_query = replace(query, since=since, until=until)
    check_span(replace(day_query, granularity="daily"), max_periods=MOST_DAYS)
    return day_query


class _ComparedPeriod(NamedTuple):
    """The times of a running period's comparison. `compared` is None if the earlier time is not known completely."""

    spans: ComparedSpans
    past: EarlierPeriodCoverage
    compared: ComparedTimes | None
    query_before: CostQuery


async def _compare_period(
    request: OperatorRequest[OperatorServices, None], query: CostQuery, range_name: str
) -> _ComparedPeriod:
    now = request.now()
    times = await comparison_times(request.cost_reader, now, against=PREVIOUS, range_name=range_name)
    spans = times(query)
    past = await find_earlier_period_coverage(query, spans, request.ledger, now)
    compared = None
    if past.is_fully_covered:
        compared = await read_compared_times(query, spans, request.ledger, now)
    return _ComparedPeriod(spans, past, compared, queries_of_spans(query, spans)[1])


def _fields_of_period_and_previous(
    start: datetime,
    current_rows: Sequence[CostRow],
    previous_rows: Sequence[CostRow],
    names: Sequence[str],
    period: _ComparedPeriod,
) -> dict[str, object]:
    rows = [combine_rows(side, start=start, group=()) for side in (current_rows, previous_rows)]
    shown, previous = ({name: getattr(row, name) for name in names} for row in rows)
    averages = {"cost_per_call": cost_per_count(rows[0].cost, rows[0].calls)}
    return {
        "from": start.date().isoformat(),
        **shown,
        **averages,
        "past": period.past.to_fields(),
        "compared": period.compared and period.compared.to_fields(),
        "previous": previous if period.compared else None,
    }


async def _month_drivers(
    request: OperatorRequest[OperatorServices, None], month: CostQuery, period: _ComparedPeriod
) -> list[dict[str, object]]:
    if period.compared is None:
        return []
    query, prices = replace(month, group_by=(MODEL_FAMILY,)), request.services.money.prices
    comparison, _, _ = await compare_times(
        request.ledger, query, period.spans, request.now(), top=_DRIVERS, prices=prices
    )
    return describe_named_drivers(comparison)


def _cost_rows(query: CostQuery, rows: Sequence[CostRow], *measures: str) -> list[dict[str, object]]:
    [name] = query.group_by
    names = ("cost", *measures)
    return [
        {"period": row.start.date().isoformat(), name: row.group[0]}
        | {each: getattr(row, each) for each in names}
        for row in rows
    ]


async def _paid_cost_fields(
    request: OperatorRequest[OperatorServices, None], month: CostQuery
) -> Mapping[str, object]:
    if not has_plans_or_contract_amounts(request.services.money.registry) or month.unit_of_work is not None:
        return {}
    question = CostQuestion(since=month.since, until=month.until, cost_type=PAID_COST)
    ledger = await ledger_for_question(
        question, request.cost_reader, request.now(), prices=request.services.money.prices
    )
    by_charge = {row.group[0]: row.cost for row in await ledger.costs(replace(month, group_by=(CHARGE,)))}
    units = {name: money.text_to_units(cost) for name, cost in by_charge.items()}
    seats = {name: by_charge.get(name, "0") for name in (SEAT_FEE, OVERAGE)}
    contracts = sum(amount for name, amount in units.items() if name not in (USAGE, *seats))
    return {
        "paid": {
            "cost": money.units_to_text(sum(units.values())),
            **seats,
            "metered": by_charge.get(USAGE, "0"),
            "contracts": money.units_to_text(contracts),
        }
    }


async def _fields_about_tollhouse_operation(
    request: OperatorRequest[OperatorServices, None],
) -> Mapping[str, object] | None:
    if request.has_limited_data_access or VIEW_OPERATION not in request.rights.permission_sets:
        return None
    books = await request.services.spool.log.books()
    has_records = any(terms.get("accepted") for terms in books.topics.values())
    return {"has_records": has_records, "demo": request.shared.demo_state}


async def _insight_fields(request: OperatorRequest[OperatorServices, None]) -> Mapping[str, object] | None:
    try:
        insights = await visible_insights(request, OPEN)
    except Refusal:
        return None
    sort_key, sort_order = INSIGHTS_OF_PEOPLE.default_sort
    query = PageQuery(sort_key=sort_key, sort_order=sort_order, filters={}, limit=LISTED)
    page = await MemoryRows(insights).page(INSIGHTS_OF_PEOPLE, query)
    return {
        "rows": [describe_insight_for_people(insight) for insight in page.rows],
        "total_count": page.total,
    }
