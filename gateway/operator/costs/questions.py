"""Questions for costs, read from the parameters of a call: what a report shows, and of which span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from gateway.api import costs
from gateway.api.report_words import (
    ASKED,
    LATENCY,
    MAX_TOP,
    MEASURED_IN,
    MEASURES,
    MONEY_KINDS,
    PREVIOUS,
    REAL_COST,
    SUMS,
)
from gateway.api.times import parse_moment
from gateway.http.holders.money import MoneyServices
from gateway.operator.costs import billed_money
from gateway.operator.costs.asked_measures import check_unit
from gateway.operator.costs.row_pages import PAGING
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import usable_view_of, visible_to
from spool.currencies.codes import DECIMALS
from spool.errors import Invalid
from spool.ledger.costs import periods
from spool.ledger.queries import BILLED_TYPES, GRANULARITIES, PLAN_TYPES, TOTAL, CostQuery, within
from spool.ledger.ranges import RANGES, preceding, span
from spool.record import CURRENCY
from spool.registry.shared.texts import check_one_of

REPEATED = ("by", "where", "show")
ONE_SPAN = ("from", "to", "range", "tz")
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
    "currency",
    "format",
    "lines",
    *PAGING,
)
FORMATS = ("json", "csv")
LINES = ("meters",)


@dataclass(frozen=True, kw_only=True)
class ReportQuestion:
    """What a report is asked for, and how it is shown."""

    query: CostQuery
    show: Sequence[str]  # of MEASURES
    previous: CostQuery | None
    top: int | None
    top_by: str
    unit: str  # what is counted, "" for nothing
    cost_type: str
    fills: bool  # counted money where a bill is missing
    as_csv: bool
    has_lines: bool = False  # of the estimates of its rows

    @property
    def cost_types(self) -> Sequence[str]:
        """The cost types of all that is shown."""
        measures = (name for name in (*self.show, self.top_by) if name in MEASURED_IN)
        own = REAL_COST if self.cost_type in PLAN_TYPES else self.cost_type
        more = (MEASURED_IN["estimated"],) if self.has_lines else ()
        filled = (REAL_COST,) if self.fills else ()
        return tuple(dict.fromkeys((own, *filled, *(MEASURED_IN[name] for name in measures), *more)))

    @cached_property
    def starts(self) -> Sequence[datetime]:
        return [start for start, _ in periods(self.query)]


async def report_question(
    request: OperatorRequest[MoneyServices, Any], known: Sequence[str]
) -> ReportQuestion:
    """Read the question for a report. Invalid, or a Refusal, for a wrong one."""
    parameters = request.http.query
    show = _words(parameters.getall("show", []))
    for name in show:
        check_one_of("show", name, (*MEASURES, *ASKED))
    top_by = parameters.get("top_by", "cost")
    cost_type = parameters.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, MONEY_KINDS)
    arranged = BILLED_TYPES.get(cost_type, 0)
    if arranged:
        show = billed_money.check_measures(parameters, show, top_by)
    if "missing" in parameters:
        billed_money.check_missing(parameters["missing"], cost_type)
    check_unit(parameters.get("unit", ""), known, show)
    check_one_of("top_by", top_by, SUMS)
    check_one_of("format", parameters.get("format", "json"), FORMATS)
    check_one_of("compare", parameters.get("compare", PREVIOUS), (PREVIOUS,))
    if parameters.get("format") == "csv" and not set(PAGING).isdisjoint(parameters):
        raise Invalid("CSV has every row: leave limit and cursor out")
    measures = (*show, top_by, *_needed(show)) if show else ()
    currency = parameters.get("currency", CURRENCY)
    check_one_of("currency", currency, DECIMALS)
    query = replace(await query_of(request, known), measures=measures, currency=currency, arranged=arranged)
    if "lines" in parameters:
        _check_lines(parameters, query)
    return ReportQuestion(
        query=query,
        show=show or MEASURES,
        previous=preceding(query) if "compare" in parameters else None,
        top=top_of(parameters["top"]) if "top" in parameters else None,
        top_by=top_by,
        unit=parameters.get("unit", ""),
        cost_type=cost_type,
        fills="missing" in parameters,
        as_csv=parameters.get("format") == "csv",
        has_lines="lines" in parameters,
    )


async def query_of(request: OperatorRequest[MoneyServices, Any], known: Sequence[str]) -> CostQuery:
    """Read the question for costs from the parameters. Invalid, or a Refusal, for a wrong one."""
    parameters = request.http.query
    by = _words(parameters.getall("by", []))
    include: dict[str, tuple[str, ...]] = {}
    exclude: dict[str, tuple[str, ...]] = {}
    for text in parameters.getall("where", []):
        name, equals, value = text.partition("=")
        if not equals:
            raise Invalid(
                f"where={text} is not a filter: write NAME=VALUE or NAME!=VALUE, such as team=search"
            )
        terms = exclude if name.endswith("!") else include
        dimension = name.removesuffix("!")
        terms[dimension] = (*terms.get(dimension, ()), value)
    for name in (*by, *include, *exclude):
        if name not in known:
            raise Invalid(f"unknown dimension {name!r}. Use one of: {', '.join(known)}")
    people = request.shared.people
    include, exclude = people.asked(include), people.asked(exclude)
    per = parameters.get("per", TOTAL)
    check_one_of("per", per, (TOTAL, *GRANULARITIES))
    since, until, zone = times(parameters, request.now())
    query = CostQuery(
        since=since,
        until=until,
        granularity=per,
        group_by=by,
        include=include,
        exclude=exclude,
        zone=zone,
    )
    costs.check_span(query)
    if "view" not in parameters:
        return query
    view = usable_view_of(request, await visible_to(request), parameters["view"])
    return within(query, include=view.include, exclude=view.exclude)


def times(
    given: Mapping[str, str], now: float, *, default: str = "mtd"
) -> tuple[datetime, datetime, ZoneInfo]:
    """Return the begin, the end and the zone of the span in the parameters ONE_SPAN. Invalid for a wrong one."""
    zone = _zone(given.get("tz", "UTC"))
    if "range" in given and ("from" in given or "to" in given):
        raise Invalid("range says when it begins and ends; leave from and to out")
    named = given.get("range", default)
    check_one_of("range", named, RANGES)
    since, until = span(named, now, zone)
    if "from" in given:
        since = parse_moment("from", given["from"], zone=zone)
    if "to" in given:
        until = parse_moment("to", given["to"], zone=zone, end=True)
    return since, until, zone


def asks_closed_months(request: OperatorRequest[Any, Any]) -> bool:
    """True if the span is of whole months, in its zone, the last of which is over."""
    now = request.now()
    since, until, zone = times(request.http.query, now)
    edges = [since.astimezone(zone), until.astimezone(zone)]
    return until.timestamp() <= now and all(
        each == each.replace(day=1, hour=0, minute=0, second=0, microsecond=0) for each in edges
    )


def _check_lines(parameters: Mapping[str, str], query: CostQuery) -> None:
    check_one_of("lines", parameters["lines"], LINES)
    is_apart = bool(query.arranged) or query.currency != CURRENCY
    if query.granularity != "hourly" or is_apart or parameters.get("format") == "csv":
        raise Invalid("lines=meters is of counted dollars by the hour, as JSON: ask for per=hourly")


def _words(texts: Sequence[str]) -> list[str]:
    return [name for text in texts for name in text.split(",") if name]


def top_of(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_TOP):
        raise Invalid(f"top must be a whole number from 1 to {MAX_TOP}")
    return int(text)


def _needed(show: Sequence[str]) -> Iterator[str]:
    """Yield the sums that measures need which the ledger does not know by these names."""
    if not set(show).isdisjoint(LATENCY):
        yield "latency"
    if "cost_per_million_tokens" in show:
        yield from ("input_tokens", "output_tokens")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a bad name, a directory, an unknown zone
        raise Invalid("tz must be the name of a time zone, such as Europe/Berlin") from None
