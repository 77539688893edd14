"""
The call of the operator API for costs: by dimensions and periods, beside the period before, the largest groups
alone, as JSON or CSV.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from gateway.api import costs
from gateway.api.measures import billed_tokens, per
from gateway.api.report_words import (
    ASKED,
    LATENCY,
    MAX_TOP,
    MEASURES,
    MONEY_KINDS,
    PERCENTILES,
    PREVIOUS,
    REAL_COST,
    SAVED_BY_CACHING,
    SUMS,
    columns,
)
from gateway.api.times import parse_moment
from gateway.comparison.old_prices import list_prices
from gateway.http.answers import CSV, UNCACHED, Pieces
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.mounts import CUT_PERIODS, WHOLE_SINCE
from gateway.operator.costs import billed_money
from gateway.operator.costs.asked_measures import (
    AskedMeasures,
    Placed,
    asked_measures,
    check_unit,
)
from gateway.operator.costs.kept_groups import largest_groups
from gateway.operator.costs.row_pages import PAGING, enveloped
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import named_dimensions, usable_view_of, visible_to
from spool.csv_cells import csv_pieces
from spool.currencies.codes import DECIMALS
from spool.errors import Invalid
from spool.ledger.costs import combined, cut, own_start, periods
from spool.ledger.latency import percentile_ms
from spool.ledger.queries import (
    BILLED_DIMENSIONS,
    BILLED_TYPES,
    GRANULARITIES,
    TOTAL,
    CostQuery,
    CostRow,
    Group,
    within,
)
from spool.ledger.ranges import RANGES, preceding, span
from spool.ledger.sums import OTHER
from spool.record import CURRENCY, moment
from spool.registry.shared.texts import check_one_of
from spool.streams import METRIC
from spool.turns.ordering import ordered

REPEATED = ("by", "where", "show")
ONE_SPAN = ("from", "to", "range", "tz")
ONCE = (
    *ONE_SPAN,
    "view",
    "cost_type",
    "per",
    "compare",
    "top",
    "top_by",
    "unit",
    "currency",
    "format",
    *PAGING,
)
FORMATS = ("json", "csv")

_Place = tuple[int, Group]  # of a row: which period, and which group


@dataclass(frozen=True, kw_only=True)
class _Question:
    query: CostQuery
    show: Sequence[str]  # of MEASURES
    previous: CostQuery | None
    top: int | None
    top_by: str
    unit: str  # what is counted, "" for nothing
    cost_type: str
    as_csv: bool

    @cached_property
    def starts(self) -> Sequence[datetime]:
        return [start for start, _ in periods(self.query)]


async def report(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    The costs of everything closed by now: the ledger catches up first.

    `whole_since` is given where sums of the report may lack records that were gone before they were counted.
    `total` is over all rows; a period of the period before that has no counterpart is in it alone. A period of
    `cut_periods` is one that the question begins or ends in. JSON has at most answers.max_rows: where there
    are more, `truncated` says that groups were added up as OTHER; CSV has all of them. Rows are in the
    envelope of every list. `billed` is null, or how final the days of billed money are.
    """
    ledger = request.ledger
    await ledger.catch_up(request.services.log)
    named = await named_dimensions(request)
    known = (*ledger.own_dimensions(), *(each.name for each in named))
    if request.http.query.get("cost_type") in BILLED_TYPES:
        known = (*known, *BILLED_DIMENSIONS)
    question = await _question(request, known)
    query, previous = question.query, question.previous
    now = await ledger.costs(replace(query, top=question.top, top_by=question.top_by))
    if question.top is not None:
        groups = frozenset({(None,) * len(query.group_by), *(row.group for row in now)})
        query, previous = replace(query, kept=groups), previous and replace(previous, kept=groups)
        question = replace(question, query=query, previous=previous)
    before = [] if previous is None else await ledger.costs(previous)
    asked = [await _asked(request, question, each) for each in (query, previous)]
    billed = await billed_money.told(request, query) if query.arranged else None
    whole = await ledger.whole_since()
    since = (previous or query).since
    cut_periods = [start.isoformat() for start in cut(query)]
    max_rows = request.shared.answers().max_rows
    answer = await asyncio.to_thread(
        _answer, question, now, before, asked, None if question.as_csv else max_rows
    )
    beside: dict[str, Any] = {
        "report": {
            "from": query.since.isoformat(), "to": query.until.isoformat(), "by": list(query.group_by),
            "per": query.granularity, "show": list(question.show), "top": question.top,
            "dimensions": list(known), "names": {each.name: each.label for each in named},
            "previous": previous and {"from": previous.since.isoformat(), "to": previous.until.isoformat()},
            "whole_since": moment(whole) if since.timestamp() < whole else None,
            "cut_periods": cut_periods, "currency": query.currency,
            "cost_type": question.cost_type, "charges": answer.charges, "unconverted": answer.unconverted,
            "unit": question.unit or None, "streams": await _streams(request),
            "row_count": answer.row_count, "truncated": answer.is_truncated,
        },
        "total": answer.total, "latency": answer.latency, "billed": billed,
    }  # fmt: skip
    if not question.as_csv:
        page = await enveloped(
            request,
            answer.places,
            show=answer.show,
            place=lambda place: place[0],
            identity=_identity,
            query=question.query,
            dimensions=known,
            most=max_rows,
        )
        return {**beside, **page}
    headers = {**UNCACHED, "Content-Disposition": 'attachment; filename="tollhouse-report.csv"'}
    if since.timestamp() < whole:
        headers[WHOLE_SINCE] = moment(whole)
    if cut_periods:
        headers[CUT_PERIODS] = ", ".join(cut_periods)
    rows = csv_rows({**beside, "rows": map(answer.show, answer.places)})
    return Pieces(pieces=csv_pieces(rows), content_type=CSV, headers=headers)


def csv_rows(payload: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """The rows of a report; the same columns whether there are any or not."""
    asked = payload["report"]
    measures = [
        *asked["show"],
        *(f"previous_{name}" for name in (asked["show"] if asked["previous"] else ())),
    ]
    names = [*columns(asked), *measures]
    yield names
    yield from (_csv_row(row, names) for row in payload["rows"])


def _csv_row(row: Mapping[str, Any], names: Sequence[str]) -> list[object]:
    cells = {**row, **{f"previous_{name}": value for name, value in row.get(PREVIOUS, {}).items()}}
    return [cells[name] for name in names]


# -- the question --------------------------------------------------------------------------------------------


async def _question(request: OperatorRequest[MoneyServices, Any], known: Sequence[str]) -> _Question:
    parameters = request.http.query
    show = _words(parameters.getall("show", []))
    for name in show:
        check_one_of("show", name, (*MEASURES, *ASKED))
    top_by = parameters.get("top_by", "cost")
    cost_type = parameters.get("cost_type", REAL_COST)
    check_one_of("cost_type", cost_type, MONEY_KINDS)
    if arranged := BILLED_TYPES.get(cost_type, 0):
        show = billed_money.check_measures(parameters, show, top_by)
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
    return _Question(
        query=query,
        show=show or MEASURES,
        previous=preceding(query) if "compare" in parameters else None,
        top=top_of(parameters["top"]) if "top" in parameters else None,
        top_by=top_by,
        unit=parameters.get("unit", ""),
        cost_type=cost_type,
        as_csv=parameters.get("format") == "csv",
    )


async def _asked(
    request: OperatorRequest[MoneyServices, Any], question: _Question, query: CostQuery | None
) -> AskedMeasures | None:
    """Return the measures shown beside the sums; None if none of them is asked for."""
    if query is None or set(ASKED).isdisjoint(question.show):
        return None
    saves = SAVED_BY_CACHING in question.show
    return await asked_measures(
        request.ledger,
        query,
        unit=question.unit,
        saves=saves,
        streams=None if request.is_limited else request.services.streams,
        estimate=await list_prices(request.services.prices) if saves else None,
    )


async def _streams(request: OperatorRequest[MoneyServices, Any]) -> Sequence[str]:
    """The unit-cost streams whose values can be units; none for who may see some calls alone."""
    streams = request.services.streams
    if request.is_limited or streams is None:
        return ()
    return [each.name for each in await streams.streams() if each.type == METRIC]


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
    per = parameters.get("per", TOTAL)
    check_one_of("per", per, (TOTAL, *GRANULARITIES))
    since, until, zone = times(parameters, request.shared.clock.now())
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
    """
    Return the begin, the end and the zone of the span in the parameters ONE_SPAN. Invalid for a wrong one.
    """
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


# -- the answer ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """
    `show` makes the row of a place. `row_count` is how many there are before `is_truncated` made them fewer.
    """

    places: Sequence[_Place]
    show: Callable[[_Place], dict[str, object]]
    row_count: int
    is_truncated: bool
    total: dict[str, object]
    latency: dict[str, int | None]
    charges: Mapping[str, str]  # as they came, and those that no rate is known for
    unconverted: Mapping[str, str]


def _answer(
    question: _Question,
    now: Sequence[CostRow],
    before: Sequence[CostRow],
    asked: Sequence[AskedMeasures | None],
    most: int | None,
) -> _Answer:
    """Make the answer. With `most`, a longer report shows its largest groups, and the others as one."""
    epoch = datetime.fromtimestamp(0, UTC)
    total = combined(now, start=epoch, group=())
    was = None if question.previous is None else combined(before, start=epoch, group=())
    places = _placed_rows(question, now, before)
    count, groups, shown = len(places), None, question.query.shown
    if most is not None:
        groups = largest_groups(now, places, most, by=question.top_by)
    if groups is not None:
        folded = replace(question.query, kept=groups)
        now, before = (
            [replace(row, group=folded.shown(row.group)) for row in rows] for rows in (now, before)
        )
        places, shown = _placed_rows(question, now, before), folded.shown
    extra, extra_before = (None if each is None else each.folded(shown) for each in asked)
    return _Answer(
        places=ordered(places, key=_order),
        show=lambda place: _row(question, place, *places[place], extra, extra_before),
        row_count=count,
        is_truncated=groups is not None,
        total=_beside(
            question,
            total,
            was,
            extra.total.shown() if extra else {},
            extra_before.total.shown() if extra_before else {},
        ),
        latency=_latency(total.latency),
        charges=total.charges,
        unconverted=total.unconverted,
    )


def _placed_rows(
    question: _Question, now: Sequence[CostRow], before: Sequence[CostRow]
) -> dict[_Place, tuple[list[CostRow], list[CostRow]]]:
    """
    Group the rows of the span and of the span before by place. An earlier period without a counterpart has no
    place.
    """
    found: dict[_Place, tuple[list[CostRow], list[CostRow]]] = defaultdict(lambda: ([], []))
    starts = {start: index for index, (start, _) in enumerate(periods(question.query))}
    for row in now:
        found[starts[row.start], row.group][0].append(row)
    if question.previous is not None:
        earlier = {start: index for index, (start, _) in enumerate(periods(question.previous))}
        for row in before:
            if earlier[row.start] < len(starts):
                found[earlier[row.start], row.group][1].append(row)
    return dict(found)


def _row(
    question: _Question,
    place: _Place,
    now: Sequence[CostRow],
    before: Sequence[CostRow],
    extra: Placed | None,
    extra_before: Placed | None,
) -> dict[str, object]:
    index, group = place
    query = question.query
    start = question.starts[index]
    row = combined(now, start=start, group=group)
    was = None if question.previous is None else combined(before, start=start, group=group)
    period = (
        {}
        if query.granularity == TOTAL
        else {"period": own_start(query.granularity, start.astimezone(query.zone)).isoformat()}
    )
    return {
        **period,
        **dict(zip(query.group_by, group, strict=True)),
        **_beside(
            question,
            row,
            was,
            extra.at(place) if extra else {},
            extra_before.at(place) if extra_before else {},
        ),
    }


def _order(place: _Place) -> tuple[int, str]:
    """Return the sort key of a place: by period, then by group, the other groups last."""
    return place[0], _identity(place)


def _identity(place: _Place) -> str:
    """Return the sort key of a row within its period: unknown values first, the other groups last."""
    group = place[1]
    is_rest = bool(group) and set(group) == {OTHER}
    unknown = "".join("0" if value is None else "1" for value in group)
    return "\0".join([f"{is_rest:d}", *(value or "" for value in group), unknown])


def _beside(
    question: _Question,
    row: CostRow,
    was: CostRow | None,
    extra: Mapping[str, object],
    extra_before: Mapping[str, object],
) -> dict[str, object]:
    """The measures of a row, with those of the period before where they are asked for."""
    shown = _describe(question, row, extra)
    return shown if was is None else {**shown, PREVIOUS: _describe(question, was, extra_before)}


def _describe(question: _Question, row: CostRow, extra: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {
        **{name: getattr(row, name) for name in SUMS},
        **_latency(row.latency),
        "cost_per_call": per(row.cost, row.calls),
        "cost_per_million_tokens": per(row.cost, billed_tokens(row), of=1_000_000),
        **extra,
    }
    shown = {name: found[name] for name in question.show}
    if row.charges:
        shown |= {"charges": row.charges, "converted": row.converted}
    return shown | ({"unconverted": row.unconverted} if row.unconverted else {})


def _latency(counts: Sequence[int]) -> dict[str, int | None]:
    """
    Count the calls with a known duration, and bound its percentiles; null beyond the last edge (5 minutes).
    """
    percentiles = {name: percentile_ms(counts, percent) for name, percent in PERCENTILES.items()}
    return {"timed": sum(counts), **percentiles}
