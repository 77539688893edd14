"""
What AI costs, its dimensions and its tags, read from the ledger.

Parameters are those of the service, and every dimension is a filter, too; `view` and `measures` are Tollhouse's own.
Cursors carry all parameters, so that the next page needs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from gateway.api.measures import ANSWERED, REFUSED, USAGE, USAGE_AMOUNT, amount, needed, units
from gateway.api.views import within_view
from gateway.errors import Refusal
from gateway.http.lists import Filter, List, MemoryRows, PageQuery, Sort
from gateway.http.requests import KeyRequest, Result
from gateway.http.services import OperatorServices
from gateway.schemas import OBJECT, TEXT
from spool.errors import NotKept
from spool.ledger.queries import DIMENSIONS, GRANULARITIES, CostQuery, CostRow, end_of_hour
from spool.listing import ListPage
from spool.record import NS, rfc3339

PAGE = 10_000

MAX_PERIODS = 10_000
PERIODS = {"hourly": timedelta(hours=1), "daily": timedelta(days=1)}  # any other is a week or more
_ONCE = ("start_date", "end_date", "granularity", "filters", "cost_type", "view")
_NAMES = {"api_key": "API key", "cost_source": "Cost source", "request_model": "Requested model"}


@dataclass(frozen=True, slots=True)
class Item:
    """A row as it is answered; `place` is unique."""

    usage_date: str
    place: str
    amount: float  # to sort by; what is shown is exact
    shown: Mapping[str, object]


async def read_costs(request: KeyRequest[None]) -> Result:
    """
    `whole_since` is there where sums of before it may lack records that were gone before they were counted, `units`
    where not money alone is asked for.
    """
    for name in request.http.query.getall("cost_type", ()):
        if name in REFUSED:
            raise _wrong(f"cost_type {name} is not answered: {REFUSED[name]}")
    rows = _Rows(request.services.operators)
    answer = await request.list(cost_list(request.services.storage.ledger.dimensions()), rows)
    return {**answer, **rows.beside}


async def read_dimensions(request: KeyRequest[None]) -> Result:
    ledger = request.services.storage.ledger
    dimensions = [{"id": name, "name": _name(name)} for name in ledger.own_dimensions()]
    dimensions += [{"id": each.name, "name": each.label} for each in ledger.derived()]
    return await request.list(DIMENSION_LIST, MemoryRows(dimensions))


async def read_resource_tags(request: KeyRequest[None]) -> Result:
    ledger = request.services.storage.ledger
    tags = [
        {"id": name, "name": _name(name), "values": await ledger.values(name)}
        for name in ledger.own_dimensions()
        if name not in DIMENSIONS
    ]
    return await request.list(TAG_LIST, MemoryRows(tags))


def _named(root: str, filters: Mapping[str, Filter[dict[str, Any]]] | None = None) -> List[dict[str, Any]]:
    return List(
        root=root,
        show=lambda item: item,
        identity=Sort(value=lambda item: str(item["id"])),
        sorts={name: Sort(value=itemgetter(name)) for name in ("id", "name")},
        default_sort=("id", "asc"),
        filters=filters or {},
        default_limit=1000,
    )


# The service can hide dimensions, and its clients may ask for hidden ones; here none is ever hidden.
_HIDDEN: Filter[dict[str, Any]] = Filter(
    values=lambda item: ("true", "false"), valid_values=("true", "false"), type="boolean"
)
DIMENSION_LIST = _named("dimensions", {"include_hidden": _HIDDEN})
TAG_LIST = _named("resource_tags")


def cost_list(dimensions: Sequence[str]) -> List[Item]:
    """The list of costs. The parameters are filters of it, so that answers name them and cursors keep them."""
    question: dict[str, Filter[Item]] = {
        "start_date": Filter(type="date"),
        "end_date": Filter(type="date"),
        "granularity": Filter(valid_values=GRANULARITIES),
        "group_by": Filter(valid_values=tuple(dimensions)),
        "filters": Filter(type="object"),
        "cost_type": Filter(valid_values=ANSWERED),
        "measures": Filter(valid_values=tuple(USAGE)),
        "view": Filter(),
    }
    return List(
        root="costs",
        show=lambda item: item.shown,
        identity=Sort(value=lambda item: item.place),
        sorts={
            "usage_date": Sort(value=attrgetter("usage_date")),
            "cost": Sort(value=attrgetter("amount")),
            USAGE_AMOUNT: Sort(value=attrgetter("amount")),
        },
        default_sort=("usage_date", "asc"),
        filters=question | {name: Filter() for name in dimensions},
        default_limit=PAGE,
        max_limit=PAGE,
        at_times={"whole_since": TEXT, "units": OBJECT},
    )


class _Rows:
    """The rows of the costs that a request asks for."""

    def __init__(self, services: OperatorServices) -> None:
        self.beside: dict[str, object] = {}  # root keys of the answer, once a page of it was asked for
        self._services = services
        self._ledger = services.ledger

    async def page(self, listed: List[Item], wanted: PageQuery) -> ListPage[Item]:
        asked = dict(wanted.filters)
        for name in _ONCE:
            if len(asked.get(name, ())) > 1:
                raise _wrong(f"{name} may be given only once")
        cost_type, measures = asked.get("cost_type", ("real_cost",))[0], asked.get("measures", ())
        query = replace(self._query(asked), measures=needed(cost_type, measures))
        try:
            found = await self._ledger.costs(query)
        except NotKept as error:
            raise _wrong(str(error)) from None
        whole = await self._ledger.whole_since()
        if query.since.timestamp() < whole:
            self.beside["whole_since"] = rfc3339(whole * NS)
        if measures or cost_type == USAGE_AMOUNT:
            self.beside["units"] = units(cost_type, measures)
        rows = [_item(row, query.group_by, cost_type, measures) for row in found]
        return await MemoryRows(rows).page(listed, replace(wanted, filters={}))

    def _query(self, asked: Mapping[str, tuple[str, ...]]) -> CostQuery:
        if "start_date" not in asked:
            raise _wrong("start_date is required: a day such as 2026-11-01, or an RFC 3339 time")
        known = self._ledger.dimensions()
        include = {name: values for name, values in asked.items() if name in known}
        exclude: dict[str, tuple[str, ...]] = {}
        if "filters" in asked:
            more, exclude = _filters(asked["filters"][0], known)
            for name in include.keys() & more.keys():
                raise _wrong(f"{name} is asked for in filters and by its own name; choose one of them")
            include |= more
        end = asked.get("end_date")
        query = CostQuery(
            since=moment("start_date", asked["start_date"][0]),
            until=moment("end_date", end[0], end=True) if end else end_of_hour(self._services.clock.now()),
            granularity=asked.get("granularity", ("daily",))[0],
            group_by=asked.get("group_by", ()),
            include=include,
            exclude=exclude,
        )
        check_span(query)
        return within_view(self._services, query, asked["view"][0]) if "view" in asked else query


def moment(name: str, text: str, *, zone: tzinfo = UTC, end: bool = False) -> datetime:
    """A day or a time, of `zone` unless it names another. A day that ends something is part of it."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(f"{name} must be a day such as 2026-11-01, or an RFC 3339 time") from None
    if not 2000 <= when.year < 2200:
        raise _wrong(f"{name} must lie between the years 2000 and 2200")
    if end and len(text) <= len("2026-11-01"):
        when += timedelta(days=1)
    return when if when.tzinfo else when.replace(tzinfo=zone)


def check_span(query: CostQuery, *, most: int = MAX_PERIODS) -> None:
    """Refusal 400 for a span that ends before it begins, or that would be cut in too many periods."""
    if query.since >= query.until:
        raise _wrong("the start must be earlier than the end")
    length = PERIODS.get(query.granularity, timedelta(days=7))
    if (query.until - query.since) / length > most:
        raise _wrong(f"this is more than {most} periods; take a shorter span or a coarser granularity")


def _filters(text: str, known: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """The values that the JSON of `filters` includes and excludes; `!` before a name excludes, null is unknown."""
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise _wrong('filters must be a JSON object such as {"team": ["search"], "!model": ["gpt-4o"]}')
    include: dict[str, tuple[str, ...]] = {}
    exclude: dict[str, tuple[str, ...]] = {}
    for name, wanted in given.items():
        dimension = name.removeprefix("!")
        if dimension not in known:
            raise _wrong(f"filters may name {', '.join(known)}")
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values or not all(value is None or isinstance(value, str) for value in values):
            raise _wrong(f"filters: {dimension} must be text or a list of texts")
        (exclude if name != dimension else include)[dimension] = tuple(value or "" for value in values)
    return include, exclude


def _item(row: CostRow, group_by: Sequence[str], cost_type: str, measures: Sequence[str]) -> Item:
    usage_date = rfc3339(int(row.start.timestamp()) * NS) or ""
    text = amount(row, cost_type)
    group = dict(zip(group_by, row.group, strict=True))
    usage = {name: getattr(row, name) for name in measures}
    field = USAGE_AMOUNT if cost_type == USAGE_AMOUNT else "cost"
    return Item(
        usage_date=usage_date,
        place=orjson.dumps([usage_date, *row.group]).decode(),
        amount=float(text),
        shown={"usage_date": usage_date, field: text, **group, **usage},
    )


def _name(dimension: str) -> str:
    if dimension not in DIMENSIONS:
        return dimension.partition(":")[2]
    return _NAMES.get(dimension, dimension.capitalize())


def _wrong(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)
