"""Cost queries from the parameters of a request, and the pages of rows in a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import orjson

from gateway.http.lists import ListDefinition, MemoryRows, Sort, list_envelope
from gateway.money.costs.asked_measures import check_unit
from gateway.money.costs.earlier_period import comparison_times
from gateway.money.costs.measures import (
    ASKED,
    MAX_TOP,
    MEASURED_IN,
    MEASURES,
    MONEY_KINDS,
    REAL_COST,
    SUMS,
    sums_needed_for_measures,
)
from gateway.money.costs.question import (
    AGGREGATED,
    MAX_CSV_UNITS,
    OWN,
    SCOPES,
    UNIT_GROUPS,
    CostQuestion,
    billed_unit_refusal,
)
from gateway.money.costs.times import parse_moment
from gateway.operations.requests.requests import FORMAT, FORMATS, OperatorRequest
from spool.currencies import DECIMALS
from spool.errors import AskedTooMuch, Invalid
from spool.ledger.billed import COUNTED
from spool.ledger.dimensions import BILLED_TYPES, GRANULARITIES, MISSING_IS_OF_BILLS, TOTAL
from spool.ledger.periods import RANGES, named_span
from spool.ledger.queries import CostQuery
from spool.ledger.work import UNITS
from spool.people import People
from spool.record import CURRENCY
from spool.registry.texts import check_one_of, check_time_zone, unknown_dimension_error

REPEATED = ("by", "where", "show")
ONE_SPAN = ("from", "to", "range", "tz")
PAGING = ("limit", "cursor")
ONCE = (
    *ONE_SPAN,
    "view",
    "cost_type",
    "missing",
    "per",
    "compare",
    "top",
    "top_by",
    "unit",
    "scope",
    "currency",
    FORMAT,
    "lines",
    "colours",
    *PAGING,
)
ALL = "all"  # value of `top` for a CSV of every group
LINES = ("meters",)
COLOURED = ("names",)
MOST_COLOURED = 20  # names in a chart that get a colour
ROWS = "rows"
_OF_BILLS = ["cost"]  # measure of a report of billed costs, which has no other
_PLACE = "place"  # name of the sort order that keeps the order of the report

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class ReportForm:
    """
    The form of a cost report: the shown measures (of MEASURES and ASKED), the `unit` that some of these
    measures count, and the format.
    """

    show: Sequence[str]
    unit: str
    as_csv: bool
    has_lines: bool  # whether each row lists its costs by meter (price lines)
    has_colours: bool  # True if the names of the first dimension have colours


async def read_report_question(
    request: OperatorRequest[Any, Any], known_names: Sequence[str]
) -> tuple[CostQuestion, ReportForm]:
    """Read the query of a report. Raises Invalid or a Refusal if it is wrong."""
    parameters = request.http.query
    show = _split_commas(parameters.getall("show", []))
    for name in show:
        check_one_of("show", name, (*MEASURES, *ASKED))
    top_by, cost_type = parameters.get("top_by", "cost"), parameters.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, MONEY_KINDS)
    is_billed, fills = cost_type in BILLED_TYPES, "missing" in parameters
    if is_billed:
        _check_billed_measures(parameters, cost_type, {*show, top_by})
        show = _OF_BILLS
    if fills:
        check_one_of("missing", parameters["missing"], (COUNTED,))
        if not is_billed:
            raise Invalid(MISSING_IS_OF_BILLS)
    unit, as_csv, has_lines = (parameters.get("unit", ""), request.is_csv_requested, "lines" in parameters)
    check_unit(unit, known_names, show)
    check_one_of("top_by", top_by, SUMS)
    check_one_of(FORMAT, parameters.get(FORMAT, FORMATS[0]), FORMATS)
    if as_csv and not set(PAGING).isdisjoint(parameters):
        raise Invalid("format=csv returns all rows, so use it without limit and cursor")
    currency = parameters.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    base_question = await read_question(request, known_names)
    check_one_of("scope", scope := parameters.get("scope", OWN), SCOPES)
    if scope == AGGREGATED and (unit or has_lines):
        raise AskedTooMuch("scope=aggregated cannot be used with unit or lines, because these costs overlap")
    if unit in UNITS:
        if base_question.is_grouped_by_units:
            raise AskedTooMuch(
                f"by={','.join(base_question.by)} already groups by a unit of work, so {unit} cannot be the unit; "
                "filter by it instead"
            )
        replace(base_question, by=(*base_question.by, unit), cost_type=cost_type).check_span()
    if has_lines:
        check_one_of("lines", parameters["lines"], LINES)
        if base_question.per != "hourly" or is_billed or currency != CURRENCY or as_csv:
            raise Invalid("lines=meters needs per=hourly, format=json, counted costs and the currency USD")
    has_colours = "colours" in parameters
    top = UNIT_GROUPS if base_question.is_grouped_by_units else None
    if parameters.get("top") == ALL:
        if not as_csv:
            raise Invalid("top=all needs format=csv")
        top = top and MAX_CSV_UNITS
    elif "top" in parameters:
        top = parse_top(parameters["top"])
    if has_colours:
        check_one_of("colours", parameters["colours"], COLOURED)
        if not base_question.by or top is None or top > MOST_COLOURED:
            raise Invalid(f"colours=names needs by, and top of at most {MOST_COLOURED}")
    form = ReportForm(
        show=show or MEASURES, unit=unit, as_csv=as_csv, has_lines=has_lines, has_colours=has_colours
    )
    needed_types = [MEASURED_IN[name] for name in (*form.show, top_by) if name in MEASURED_IN]
    question = replace(
        base_question,
        cost_type=cost_type,
        fills=fills,
        measures=(*show, top_by, *sums_needed_for_measures(show)) if show else (),
        currency=currency,
        top=top,
        top_by=top_by,
        earlier=await comparison_times(
            request.cost_reader,
            request.now(),
            against=parameters["compare"],
            range_name=range_name_of(parameters),
            parameter_name="compare",
        )
        if "compare" in parameters
        else None,
        tells=(*needed_types, *((MEASURED_IN["estimated"],) if has_lines else ())),
        scope=scope,
    )
    question.check_span()
    return question, form


async def read_question(request: OperatorRequest[Any, Any], known_names: Sequence[str]) -> CostQuestion:
    """
    Read the time range, the groups and the filters of a query. Raises Invalid or a Refusal if one of
    them is wrong.
    """
    parameters = request.http.query
    by = _split_commas(parameters.getall("by", []))
    include: dict[str, tuple[str, ...]] = {}
    exclude: dict[str, tuple[str, ...]] = {}
    for text in parameters.getall("where", []):
        name, equals, value = text.partition("=")
        if not equals:
            raise Invalid(f"where={text} is not a filter; use NAME=VALUE or NAME!=VALUE, such as team=search")
        terms = exclude if name.endswith("!") else include
        dimension = name.removesuffix("!")
        terms[dimension] = (*terms.get(dimension, ()), value)
    for name in (*by, *include, *exclude):
        if name not in known_names and name in UNITS:
            raise _unsupported_unit_error(name, parameters.get("cost_type"))
        if name not in known_names:
            raise unknown_dimension_error(name, known_names)
    people = request.shared.people
    include, exclude = people.check_and_expand_filter(include), people.check_and_expand_filter(exclude)
    per = parameters.get("per", TOTAL)
    check_one_of("per", per, (TOTAL, *GRANULARITIES))
    since, until, zone = read_time_range(parameters, request.now())
    view = await request.cost_reader.find_view(parameters["view"]) if "view" in parameters else None
    if view is not None and (unit := view.unit_of_work) is not None and unit not in known_names:
        raise _unsupported_unit_error(unit, parameters.get("cost_type"))
    question = CostQuestion(
        since=since, until=until, zone=zone, per=per, by=by, include=include, exclude=exclude, view=view
    )
    question.check_span()
    return question


def _unsupported_unit_error(unit: str, cost_type: str | None) -> AskedTooMuch:
    if cost_type in BILLED_TYPES:
        return billed_unit_refusal(unit)
    return AskedTooMuch(
        f"a {unit} is only in reports, comparisons and forecasts of counted costs; use GET /report"
    )


def read_time_range(
    parameters: Mapping[str, str], now: float, *, default: str = "this_month"
) -> tuple[datetime, datetime, ZoneInfo]:
    """Return the start, the end and the zone of the time range in the parameters ONE_SPAN. Raises Invalid."""
    zone = check_time_zone("tz", parameters.get("tz", "UTC"))
    if "range" in parameters and ("from" in parameters or "to" in parameters):
        raise Invalid("range sets the start and the end, so use it without from and to")
    named = parameters.get("range", default)
    check_one_of("range", named, RANGES)
    since, until = named_span(named, now, zone)
    if "from" in parameters:
        since = parse_moment("from", parameters["from"], zone=zone)
    if "to" in parameters:
        until = parse_moment("to", parameters["to"], zone=zone, end=True)
    return since, until, zone


def range_name_of(parameters: Mapping[str, str], *, default: str = "this_month") -> str | None:
    """Return the named range of the parameters, or None if they state the start or the end."""
    return None if "from" in parameters or "to" in parameters else parameters.get("range", default)


def is_query_of_past_whole_months(request: OperatorRequest[Any, Any]) -> bool:
    """Return whether the time range consists of whole months in its zone, all of which are over."""
    now = request.now()
    since, until, zone = read_time_range(request.http.query, now)
    edges = [since.astimezone(zone), until.astimezone(zone)]
    return until.timestamp() <= now and all(
        edge == edge.replace(day=1, hour=0, minute=0, second=0, microsecond=0) for edge in edges
    )


def parse_top(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_TOP):
        raise Invalid(f"top must be a whole number from 1 to {MAX_TOP}")
    return int(text)


def _check_billed_measures(parameters: Mapping[str, str], cost_type: str, measures: set[str]) -> None:
    """Raise Invalid if a query of billed money also requests values that need calls."""
    if measures - {*_OF_BILLS} or "unit" in parameters:
        raise Invalid(
            f"{cost_type} has only money, so use show=cost and top_by=cost without unit, or use another "
            "cost_type"
        )


def _split_commas(texts: Sequence[str]) -> list[str]:
    return [name for text in texts for name in text.split(",") if name]


def _asked_text_by_form(filters: Sequence[str], people: People) -> Mapping[tuple[str, str], str]:
    """
    Return the text in a filter by each form of its name. An answer repeats what was asked, because another form,
    such as the hash of an address, would be news to the reader.
    """
    terms = [(name, value) for name, _, value in (text.partition("=") for text in filters)]
    return {
        (name, form): value
        for name, value in terms
        for form in people.expand_filter({name.removesuffix("!"): (value,)})[name.removesuffix("!")]
    }


async def page_of_rows(
    request: OperatorRequest[Any, Any],
    rows: Sequence[Row],
    *,
    show: Callable[[Row], Mapping[str, object]],
    index_of_row: Callable[[Row], int],
    identity: Callable[[Row], str],
    query: CostQuery,
    dimensions: Sequence[str],
    max_rows: int,
) -> dict[str, Any]:
    """
    Return the rows of a report in the JSON form that all lists use.

    If no limit is given, one page has up to `max_rows` rows. A cursor is valid only for its own query. For
    another query, the response is 400.
    """
    parameters = request.http.query
    question = sorted((name, value) for name, value in parameters.items() if name not in PAGING)
    root = f"{ROWS} {blake2b(orjson.dumps(question), digest_size=8).hexdigest()}"
    listed: ListDefinition[Row] = ListDefinition(
        root=root,
        show=lambda row: {_PLACE: row},
        identity=Sort(value=identity),
        sorts={_PLACE: Sort(value=index_of_row)},
        default_sort=(_PLACE, "asc"),
        default_limit=max_rows,
        max_limit=max_rows,
    )
    page_parameters = [(name, value) for name, value in parameters.items() if name in PAGING]
    shared = request.shared
    page = await list_envelope(
        listed,
        MemoryRows(rows),
        page_parameters,
        secret=shared.cursor_secret,
        people=shared.people,
        now=shared.clock.now(),
    )
    rows = [row[_PLACE] for row in page.pop(root)]
    shown = await asyncio.to_thread(lambda: [show(row) for row in rows])
    current = {**query.include, **{f"{name}!": values for name, values in query.exclude.items()}}
    asked = _asked_text_by_form(parameters.getall("where", []), shared.people)
    filtering = {
        "available": [{"field": name, "valid_values": [], "valid_types": ["string"]} for name in dimensions],
        # filters in force: those of `where` and of the view together
        "current": {
            name: list(dict.fromkeys(asked.get((name, value), value) for value in values))
            for name, values in current.items()
        },
    }
    return {ROWS: shown, **page, "filtering": filtering}


def time_range_fields(query: CostQuery) -> dict[str, str]:
    return {"from": query.since.isoformat(), "to": query.until.isoformat()}
