"""
Operator API of cost reports by dimensions and periods, as JSON or CSV. A report may include the period
before, or only the largest groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.first_use import import_in_thread
from gateway.core.paths import CUT_PERIODS, OTHER_UNITS, WHOLE_SINCE
from gateway.core.schemas import TEXT
from gateway.http.answers import CSV, JSON, UNCACHED, AnswerInPieces
from gateway.http.requests import Result
from gateway.money.costs.answer import answer_costs, has_plans_or_contract_amounts
from gateway.money.costs.asked_measures import measure_now_and_previous
from gateway.money.costs.continuing import work_units_with_calls_in_adjacent_days
from gateway.money.costs.listing import repeat_while_listing_changes
from gateway.money.costs.measures import columns_of_spans, report_key_columns
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.rows import AnswerRows, place_sort_key
from gateway.operations.answers import ComparedTimesFields, ComparisonPast
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.colours import colours_for_rows
from gateway.operations.money.costs.questions import (
    ONCE,
    REPEATED,
    ROWS,
    ReportForm,
    is_query_of_past_whole_months,
    page_of_rows,
    read_report_question,
    time_range_fields,
)
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.ledger.work import TREES, UNITS
from spool.printable import csv_pieces
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS
from spool.streams import METRIC

if TYPE_CHECKING:
    from gateway.money.costs.price_lines import FieldsOfReportRow


class ReportQuery(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-11-01T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T02:00:00+00:00")]
    by: Annotated[list[str], words("The dimensions by which the report groups."), example(["model"])]
    per: Annotated[str, words("The length of a period, such as `daily`, or `total`."), example("total")]
    show: Annotated[list[str], words("The measures that the report shows."), example(["cost", "calls"])]
    top: Annotated[int | None, words("The maximum number of groups, or null."), example(None)]
    dimensions: Annotated[
        list[str],
        words("The dimensions by which costs can be grouped."),
        example(["model", "request_model", "provider"]),
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
    past: Annotated[
        ComparisonPast | None,
        words("How much of the time to compare with is counted, or null."),
        example(None),
    ]
    compared: Annotated[
        ComparedTimesFields | None, words("The two compared periods, or null."), example(None)
    ]
    whole_since: Annotated[
        str | None,
        words("Hours before this time may be incomplete. Null if all hours are complete."),
        example(None),
    ]
    cut_periods: Annotated[list[str], words("The periods of which only a part is in the range."), example([])]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]
    cost_type: Annotated[str, words("The kind of cost, such as `metered_cost`."), example("real_cost")]
    charges: Annotated[
        dict[str, str], words("Amounts in other currencies than US dollars, by currency."), example({})
    ]
    unconverted: Annotated[
        dict[str, str], words("Amounts in currencies without a rate, by currency."), example({})
    ]
    unit: Annotated[
        str | None, words("The dimension or `stream:NAME` whose units are counted, or null."), example(None)
    ]
    other_units: Annotated[
        dict[str, str | int] | None,
        words("The calls and cost of units that are not listed, or null."),
        example(None),
    ]
    scope: Annotated[
        str,
        words("Whether costs include the runs that a run started: `own` or `aggregated`."),
        example("own"),
    ]
    streams: Annotated[list[str], words("The unit-cost streams that may be units."), example([])]
    row_count: Annotated[
        int, words("The total number of rows, including rows that are left out."), example(3)
    ]
    truncated: Annotated[bool, words("Whether the smaller groups are joined as `(other)`."), example(False)]
    has_plans: Annotated[bool | UnsetType, words("True if plans or contracts exist; else omitted.")] = UNSET


class ReportLatency(msgspec.Struct, kw_only=True):
    timed: Annotated[int, words("The number of calls with a duration."), example(0)]
    latency_p50_ms: Annotated[float | None, words("The median duration in milliseconds."), example(None)]
    latency_p95_ms: Annotated[
        float | None,
        words("The duration in milliseconds that 95 % of the calls do not exceed."),
        example(None),
    ]
    latency_p99_ms: Annotated[
        float | None,
        words("The duration in milliseconds that 99 % of the calls do not exceed."),
        example(None),
    ]


class ReportAnswer(msgspec.Struct, kw_only=True):
    report: Annotated[ReportQuery, words("The query as the server understood it.")]
    total: Annotated[
        dict[str, Any] | None,
        words("The shown measures over all rows, or null with `scope=aggregated`."),
        example({"cost": "30.8716", "calls": 3813}),
    ]
    latency: Annotated[ReportLatency, words("The durations of the calls.")]
    billed: Annotated[
        dict[str, Any] | None,
        words("How final the bills of the time are, or null for counted costs."),
        example(None),
    ]
    rows: Annotated[
        list[dict[str, Any]],
        words("The rows: each dimension and each shown measure by name."),
        example([{"model": "gpt-4.1", "cost": "30.8716", "calls": 3813}]),
    ]
    pagination: Annotated[
        dict[str, Any],
        words("The page: [lists](../http-api.md#lists)."),
        example(
            {
                "page_count": 3,
                "item_count": 1,
                "total_count": 3,
                "cursor": {
                    "next_cursor": "I0MvaNbLrHTT4QFtjHmt",
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
            {
                "available": [{"field": "model", "valid_values": [], "valid_types": ["string"]}],
                "current": {"team": ["search"]},
            }
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
    colours: Annotated[
        dict[str, int] | UnsetType, words("The number of the colour of each name, if requested.")
    ] = UNSET
    last_records: Annotated[
        dict[str, str] | UnsetType,
        words("When the newest record of each source or key arrived, if the report groups by it."),
    ] = UNSET


@operator_call(
    "GET",
    "/report",
    VIEW_COSTS,
    "Report costs by dimensions",
    optional=ONCE,
    repeated=REPEATED,
    gives={JSON: ReportAnswer, "text/csv": TEXT},
    shows=SLICED,
    asks_cost_type=True,
    in_turn=True,
    asks_closed=is_query_of_past_whole_months,
)
async def report(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Report costs. All closed records are counted first.

    With `compare`, the report ends with the last full hour. Unless the earlier time is counted completely,
    `compared` is null, and rows have no earlier figures. Rows also have none if the two times have different
    lengths. `total` also includes earlier periods without a counterpart. With scope=aggregated it is null,
    because the cost of a run then includes the runs that it started. JSON has at most answers.max_rows rows,
    so the smaller groups may be added up as OTHER. CSV has all rows, and with top=all up to 100,000 units of
    work. `other_units` sums up the units that are not listed, so each of them costs at most this sum.

    With lines=meters, a row has `price_lines`, which add up to its estimated cost, or null. With
    colours=names, a name has the same number from 1 to 8 in every report. Grouped by session or run,
    `continues` states whether a row also has calls in the day before or after the period. Only people who see
    all costs get `last_records`.
    """
    services, reads = request.services, request.cost_reader
    await reads.ledger.require_complete_totals(services.log)
    known = await reads.visible_dimensions(request.http.query.get("cost_type", ""), includes_work_units=True)
    dimensions = [name for name in known if name not in UNITS]
    question, form = await read_report_question(request, known)
    make = partial(_build_report, request, question, form, known, dimensions)
    # whole: asks again if lists changed; the answer has visible calls
    return await repeat_while_listing_changes(reads.whole, question.query, make)


async def _build_report(
    request: OperatorRequest[MoneyServices, None],
    question: CostQuestion,
    form: ReportForm,
    known_names: Sequence[str],
    dimensions: Sequence[str],
) -> Result:
    services, reads = request.services, request.cost_reader
    result = await answer_costs(question, reads, request.now(), prices=services.prices)
    streams = None if reads.has_limited_data_access else services.streams
    unit_measures = await measure_now_and_previous(
        result, form.show, unit=form.unit, streams=streams, prices=services.prices
    )
    max_rows = request.shared.answers().max_rows
    rows = await asyncio.to_thread(
        AnswerRows, result, form.show, unit_measures, None if form.as_csv else max_rows
    )
    beside: dict[str, Any] = {
        "report": {
            **time_range_fields(result.query),
            "by": list(question.by),
            "per": question.per,
            "show": list(form.show),
            "top": question.top,
            "dimensions": dimensions,
            "names": {
                dimension.name: dimension.label
                for dimension in reads.definitions.derived_dimensions()
                if dimension.name in known_names
            },
            "past": result.past and result.past.to_fields(),
            "compared": result.compared and result.compared.to_fields(),
            "whole_since": result.incomplete_before,
            "cut_periods": [start.isoformat() for start in result.partial_periods],
            "currency": question.currency,
            "cost_type": question.cost_type,
            "charges": rows.charges,
            "unconverted": rows.unconverted,
            "unit": form.unit or None,
            "other_units": rows.other_units,
            "scope": question.scope,
            "streams": [
                stream.name
                for stream in (await streams.streams() if streams else ())
                if stream.type == METRIC
            ],
            "row_count": rows.row_count,
            "truncated": rows.is_truncated,
            **({"has_plans": True} if has_plans_or_contract_amounts(services.registry) else {}),
        },
        "total": rows.total,
        "latency": rows.latency,
        "billed": result.billed,
    }
    if form.has_colours:
        beside["colours"] = await colours_for_rows(
            services.colours, request.shared.people, question.by[0], result.rows
        )
    if form.as_csv:
        payload = {**beside, "rows": map(rows.row_fields, rows.places)}
        return _csv_response(payload, has_previous=rows.has_previous)
    if not reads.has_limited_data_access:
        beside |= await _last_record_fields(services, question.by)
    show: FieldsOfReportRow = rows.row_fields
    if form.has_lines:
        await import_in_thread("gateway.money.costs.price_lines")
        from gateway.money.costs import price_lines

        charged = await price_lines.read_charged_lines(result.ledger, result.query, services.prices)
        show = price_lines.with_price_lines(show, charged)
    page = await page_of_rows(
        request,
        rows.places,
        show=show,
        index_of_row=lambda key: key[0],
        identity=place_sort_key,
        query=result.query,
        dimensions=dimensions,
        max_rows=max_rows,
    )
    for unit in set(TREES).intersection(question.by):
        around = await work_units_with_calls_in_adjacent_days(
            result.ledger, result.query, unit, [row[unit] for row in page[ROWS]]
        )
        for row in page[ROWS]:
            row["continues"] = row[unit] in around
    return {**beside, **page}


async def _last_record_fields(services: MoneyServices, dimensions: Sequence[str]) -> dict[str, Any]:
    hours = services.sender_hours
    if hours is None or tuple(dimensions) not in (("source",), ("sender",)):
        return {}
    newest = await (hours.newest_by_source() if dimensions[0] == "source" else hours.newest_by_key())
    return {"last_records": {name: utc_iso(at) for name, at in newest.items()}}


def _csv_response(payload: Mapping[str, Any], *, has_previous: bool) -> AnswerInPieces:
    headers = {**UNCACHED, "Content-Disposition": 'attachment; filename="tollhouse-report.csv"'}
    if payload["report"]["whole_since"]:
        headers[WHOLE_SINCE] = payload["report"]["whole_since"]
    if payload["report"]["cut_periods"]:
        headers[CUT_PERIODS] = ", ".join(payload["report"]["cut_periods"])
    if payload["report"]["other_units"]:
        headers[OTHER_UNITS] = "{calls} {cost}".format_map(payload["report"]["other_units"])
    return AnswerInPieces(
        pieces=csv_pieces(csv_rows(payload, has_previous=has_previous)), content_type=CSV, headers=headers
    )


def csv_rows(payload: Mapping[str, Any], *, has_previous: bool) -> Iterator[Sequence[object]]:
    """
    Yield the rows of a report as CSV. The columns are the same even if there are no rows. Each row of a
    comparison ends with both times.
    """
    report_fields = payload["report"]
    compared = report_fields["compared"]
    before = [f"previous_{name}" for name in report_fields["show"]] if has_previous else []
    spans = columns_of_spans(compared) if compared else {}
    names = [*report_key_columns(report_fields), *report_fields["show"], *before, *spans]
    yield names
    for row in payload["rows"]:
        cells = {
            **row,
            **{f"previous_{name}": value for name, value in row.get("previous", {}).items()},
            **spans,
        }
        yield [cells[name] for name in names]
