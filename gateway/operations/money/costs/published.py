"""
API of costs for keys: AI costs, their dimensions and tags, read from the totals.

The parameters equal the parameters of the cost service, and each dimension is also a filter. The parameters
`view` and `measures` exist only in Tollhouse. A cursor contains all parameters, so that a request for the
next page needs no other parameter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from gateway.core.errors import Refusal
from gateway.core.schemas import (
    COUNT,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    array_schema,
    closed_object_schema,
    schema_with_description,
)
from gateway.http.address import READ, key_call
from gateway.http.lists import YES_NO, Filter, ListDefinition, MemoryRows, PageQuery, Sort
from gateway.http.requests import Result
from gateway.money.costs.answer import answer_costs, has_plans_or_contract_amounts
from gateway.money.costs.measures import (
    ANSWERED,
    MAX_TOP,
    METER,
    REAL_COST,
    USAGE,
    USAGE_AMOUNT,
    measures_and_cost_type_measures,
    meter_unit,
    metered_quantities,
    row_amount,
    units_by_measure,
)
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.times import parse_moment
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.people.managed import cost_reader_for_key
from gateway.operations.requests.key_requests import KeyRequest
from spool import record
from spool.errors import NotKept
from spool.ledger.billed import BILLING, CALLS, COUNTED
from spool.ledger.costs import calendar_period_start
from spool.ledger.dimensions import (
    BILLED_DIMENSIONS,
    BILLED_TYPES,
    DIMENSIONS,
    GRANULARITIES,
    MISSING_IS_OF_BILLS,
    PAID_COST,
    PLAN,
    WantedValues,
)
from spool.ledger.ledger import TagValues
from spool.ledger.queries import EVERY_METER, CostRow, next_full_hour
from spool.ledger.work import UNITS
from spool.listing import ListPage, cut_page
from spool.meters import METERS
from spool.people import People

PAGE = 10_000
MAX_VALUES = 10_000  # maximum values per tag

_NAMES = {"api_key": "API key", "cost_source": "Cost source", "request_model": "Requested model"}


@dataclass(frozen=True, slots=True)
class CostItem:
    """
    A row before it is formatted. Only the rows of the requested page are formatted. `meter` selects one meter
    of the row's usage.
    """

    question: CostQuestion
    row: CostRow
    cost_type: str
    measures: Sequence[str]
    meter: str = ""

    @property
    def usage_date(self) -> str:
        """Return the first day or hour of the row's period, even if the query begins after it."""
        return _usage_date(self.question.per, self.row.start)

    @property
    def unique_sort_key(self) -> str:
        """Return a sort key that is unique among the rows of a query."""
        of_meter = (self.meter,) if self.meter else ()
        return orjson.dumps([self.usage_date, *self.row.group, *of_meter]).decode()

    @property
    def amount(self) -> float:
        """Return the amount for sorting; the response has the exact value."""
        return float(self._amount_text)

    @property
    def _amount_text(self) -> str:
        if self.meter:
            return metered_quantities(self.row)[self.meter]
        return row_amount(self.row, self.cost_type, self.question.meter)

    @property
    def answer_fields(self) -> Mapping[str, object]:
        group = dict(zip(self.question.by, self.row.group, strict=True))
        if self.meter:
            group |= {METER: self.meter, "unit": meter_unit(self.meter)}
        usage = {name: getattr(self.row, name) for name in self.measures}
        field = USAGE_AMOUNT if self.cost_type == USAGE_AMOUNT else "cost"
        return {"usage_date": self.usage_date, field: self._amount_text, **group, **usage}


def _id_and_name_list(
    root: str,
    filters: Mapping[str, Filter[dict[str, Any]]] | None = None,
    at_times: Mapping[str, Schema] | None = None,
) -> ListDefinition[dict[str, Any]]:
    return ListDefinition(
        root=root,
        show=lambda item: item,
        identity=Sort(value=lambda item: str(item["id"])),
        sorts={name: Sort(value=itemgetter(name)) for name in ("id", "name")},
        default_sort=("id", "asc"),
        filters=filters or {},
        default_limit=1000,
        at_times=at_times or {},
    )


# The cost service can hide dimensions, so its clients may send this filter. Tollhouse never hides a dimension.
_HIDDEN: Filter[dict[str, Any]] = Filter(
    values=lambda item: ("true", "false"), valid_values=YES_NO, type="boolean"
)
DIMENSION_LIST = _id_and_name_list("dimensions", {"include_hidden": _HIDDEN})
TAG_LIST = _id_and_name_list(
    "resource_tags",
    at_times={"more_tags": schema_with_description(COUNT, "The number of tags that are left out.")},
)


def cost_list(dimensions: Sequence[str], *, has_plans: bool) -> ListDefinition[CostItem]:
    """
    Define the list of costs. All parameters are filters, so that responses name them and cursors contain them.
    PAID_COST and its dimensions exist only with plans, or contracts with amounts.
    """
    dimensions = (*dimensions, *BILLED_DIMENSIONS, *((PLAN,) if has_plans else ()))
    question: dict[str, Filter[CostItem]] = {
        "start_date": Filter(type="date", is_single=True),
        "end_date": Filter(type="date", is_single=True),
        "granularity": Filter(valid_values=GRANULARITIES, is_single=True),
        "group_by": Filter(valid_values=(*dimensions, METER)),
        "filters": Filter(type="object", is_single=True),
        "cost_type": Filter(valid_values=(*ANSWERED, *((PAID_COST,) if has_plans else ())), is_single=True),
        "meter": Filter(valid_values=tuple(METERS), is_single=True),
        "missing": Filter(valid_values=(COUNTED,), is_single=True),
        "measures": Filter(valid_values=tuple(USAGE)),
        "view": Filter(is_single=True),
    }
    return ListDefinition(
        root="costs",
        show=lambda item: item.answer_fields,
        identity=Sort(value=lambda item: item.unique_sort_key),
        sorts={
            "usage_date": Sort(value=attrgetter("usage_date")),
            "cost": Sort(value=attrgetter("amount")),
            USAGE_AMOUNT: Sort(value=attrgetter("amount")),
        },
        default_sort=("usage_date", "asc"),
        filters=question | {name: Filter(names_people=True) for name in dimensions},
        default_limit=PAGE,
        max_limit=PAGE,
        at_times={
            "whole_since": schema_with_description(TEXT, "Hours before this time may be incomplete."),
            "units": schema_with_description(OBJECT, "The units of the measures."),
            "billed": schema_with_description(
                OBJECT, "How final billed money is, and the money without known calls."
            ),
            "cut_periods": schema_with_description(
                array_schema(TEXT), "The periods of which only a part is in the range."
            ),
        },
    )


_MEANINGS = {
    "calls": "The number of calls.",
    "errors": "The number of failed calls.",
    "cached": "The number of calls that a cache of the gateway answered.",
    "priced": "The number of calls with a known cost.",
    "free": "The number of calls that a gateway's cache answered, or that failed without usage.",
    "unpriced": "Calls that used something without a known price.",
    "without_usage": "The number of successful calls whose source reported no usage.",
    "input_tokens": "The number of input tokens.",
    "output_tokens": "The number of output tokens.",
    "cache_read_tokens": "The number of input tokens read from a cache.",
    "cache_write_tokens": "The number of input tokens written to a cache.",
    "reasoning_tokens": "The number of output tokens for reasoning.",
    "cache_write_1h_tokens": "The number of input tokens written to a cache for an hour.",
    "cached_input_tokens": "The number of input tokens of calls that a cache of the gateway answered.",
    "cached_output_tokens": "The number of output tokens of calls that a cache of the gateway answered.",
    "latency_ms": "The sum of the durations in milliseconds.",
}
_COST_ROW = {
    "usage_date": schema_with_description(TEXT, "The start of the period."),
    "cost": schema_with_description(TEXT, "The cost of the calls."),
    USAGE_AMOUNT: schema_with_description(TEXT, "The number of tokens, or the quantity of the meter."),
    **{name: schema_with_description({"type": "integer"}, _MEANINGS[name]) for name in USAGE},
}


@key_call(
    "GET",
    "/v2/billing/costs",
    "billing:read_costs",
    "List AI costs and usage by period and dimension, including configured tags",
    endpoint="costs",
    required=("start_date",),
    lists=cost_list((*DIMENSIONS, *UNITS), has_plans=True),
    item={**OBJECT, "properties": _COST_ROW, "additionalProperties": TEXT_OR_NULL},
    in_turn=True,
    refusals=READ,
)
async def read_costs(request: KeyRequest[MoneyServices, None]) -> Result:
    """
    List costs.

    `whole_since` is included if earlier totals may lack records deleted before they were counted, and `units`
    if the rows have values other than money. With a meter, each row has its unit. `cut_periods` lists periods
    that the query covers only in part. `billed` states how final billed money is, and the money without known
    calls. A query by a unit of work, such as `pull_request`, covers at most 92 days. It has the most
    expensive units, and `(other)` for the others.
    """
    rows = _CostRows(request.services, request.shared.people)
    known = (*request.services.ledger.dimensions(), *UNITS, *await rows.read_row_tags())
    page = await request.list_page(
        cost_list(known, has_plans=has_plans_or_contract_amounts(request.services.registry)), rows
    )
    return {**page, **rows.beside}


@key_call(
    "GET",
    "/v2/billing/dimensions",
    "billing:read_dimensions",
    "List the dimensions to group and filter costs by",
    endpoint="dimensions",
    lists=DIMENSION_LIST,
    item=closed_object_schema(
        {
            "id": schema_with_description(TEXT, "The id of the dimension."),
            "name": schema_with_description(TEXT, "The name of the dimension."),
        }
    ),
    refusals=READ,
)
async def read_dimensions(request: KeyRequest[MoneyServices, None]) -> Result:
    ledger = request.services.ledger
    dimensions = [{"id": name, "name": _dimension_name(name)} for name in ledger.builtin_and_tag_dimensions()]
    dimensions += [
        {"id": dimension.name, "name": dimension.label} for dimension in ledger.derived_dimensions()
    ]
    return await request.list_page(DIMENSION_LIST, MemoryRows(dimensions))


@key_call(
    "GET",
    "/v2/billing/resource_tags",
    "billing:read_resource_tags",
    "List the tags, with their values in calls and in rows of billing connections",
    endpoint="resource_tags",
    lists=TAG_LIST,
    item=closed_object_schema(
        {
            "id": schema_with_description(TEXT, "The id of the tag."),
            "name": schema_with_description(TEXT, "The name of the tag."),
            "values": schema_with_description(array_schema(TEXT), "The values of the tag."),
            "more_values": schema_with_description(COUNT, "The number of values that are left out."),
            "sources": schema_with_description(
                array_schema(TEXT), "What has the tag: `calls`, or rows of a `billing` connection."
            ),
        }
    ),
    refusals=READ,
)
async def read_resource_tags(request: KeyRequest[MoneyServices, None]) -> Result:
    """
    List tags. `sources` states whether calls or rows of billing connections have the tag. `values` contains
    the values of both.

    `more_values` counts values that are not listed, and `more_tags` tags of rows beyond the limit.
    """
    tags = await request.services.ledger.tag_values()
    limit = request.services.billing_connections.max_tags
    shown = await asyncio.to_thread(lambda: list(map(_describe_tag, tags[:limit])))
    page = await request.list_page(TAG_LIST, MemoryRows(shown))
    return {**page, "more_tags": len(tags) - limit} if len(tags) > limit else page


def _describe_tag(tag: TagValues) -> dict[str, Any]:
    values = sorted(tag.values)
    origins = zip((CALLS, BILLING), (tag.of_calls, tag.of_rows), strict=True)
    return {
        "id": tag.name,
        "name": _dimension_name(tag.name),
        "values": values[:MAX_VALUES],
        "more_values": max(0, len(values) - MAX_VALUES),
        "sources": [origin for origin, has_it in origins if has_it],
    }


class _CostRows:
    def __init__(self, money: MoneyServices, people: People) -> None:
        # other members of the response's root object, which `read_costs` adds
        self.beside: dict[str, object] = {}
        self._money = money
        self._people = people
        self._reads = cost_reader_for_key(money)
        self._row_tags: Sequence[str] = ()

    async def read_row_tags(self) -> Sequence[str]:
        """
        Return the tags that only rows of billing connections have, as many as the list of tags still has
        space for.
        """
        ledger = self._money.ledger
        limit = max(0, self._money.billing_connections.max_tags - len(ledger.tags))
        self._row_tags = (await ledger.billing_row_tags())[:limit]
        return self._row_tags

    async def page(
        self, list_definition: ListDefinition[CostItem], page_query: PageQuery
    ) -> ListPage[CostItem]:
        filters = dict(page_query.filters)
        once = {name: texts[0] for name, texts in filters.items() if list_definition.filters[name].is_single}
        cost_type, meter = once.get("cost_type", REAL_COST), once.get("meter", "")
        measures, group_by = filters.get("measures", ()), filters.get("group_by", ())
        is_usage, by_meter = cost_type == USAGE_AMOUNT, METER in group_by
        if by_meter:
            check_meter_query(cost_type, measures)
            group_by = tuple(name for name in group_by if name != METER)
        if meter and not is_usage:
            raise _invalid_parameter(f"meter is a kind of usage, so use it with cost_type={USAGE_AMOUNT}")
        if cost_type != PAID_COST and PLAN in (*group_by, *filters):
            raise _invalid_parameter(f"only costs of the cost_type {PAID_COST} have the dimension {PLAN}")
        if measures and cost_type in BILLED_TYPES:
            raise _invalid_parameter(f"measures count calls, so they need another cost_type than {cost_type}")
        if "missing" in once and cost_type not in BILLED_TYPES:
            raise _invalid_parameter(MISSING_IS_OF_BILLS)
        question = replace(
            await self._read_question(filters, once),
            by=group_by,
            cost_type=REAL_COST if is_usage else cost_type,
            fills="missing" in once,
            measures=measures_and_cost_type_measures(cost_type, measures),
            meter=EVERY_METER if by_meter else meter,
            top=MAX_TOP if not UNITS.keys().isdisjoint(group_by) else None,
        )
        question.check_span()
        try:
            result = await answer_costs(
                question, self._reads, self._money.clock.now(), prices=self._money.prices
            )
        except NotKept as error:
            raise _invalid_parameter(str(error)) from None
        if result.billed is not None:
            self.beside["billed"] = result.billed
        if result.incomplete_before is not None:
            self.beside["whole_since"] = result.incomplete_before
        if measures or (is_usage and not by_meter):
            self.beside["units"] = units_by_measure(cost_type, measures, meter)
        if result.partial_periods:
            self.beside["cut_periods"] = list(map(_format_time, result.partial_periods))

        def build_cost_page() -> ListPage[CostItem]:
            items = [CostItem(question, row, cost_type, measures) for row in result.rows]
            return _cut_item_page(
                list_definition, page_query, _items_by_meter(items, meter) if by_meter else items
            )

        cut = await asyncio.to_thread(build_cost_page)
        return replace(cut, known=await self._money.known_dimension_values())

    async def _read_question(
        self, stated_filters: Mapping[str, tuple[str, ...]], single_parameters: Mapping[str, str]
    ) -> CostQuestion:
        """Return the query with its filters, in its view. Raises Refusal 400 for an invalid filter, date or view."""
        if "start_date" not in single_parameters:
            raise _invalid_parameter(
                "start_date is required; use a day such as 2026-11-01, or an RFC 3339 time"
            )
        include, exclude = self._included_and_excluded_values(stated_filters)
        now, end = self._money.clock.now(), single_parameters.get("end_date")
        return CostQuestion(
            since=parse_moment("start_date", single_parameters["start_date"]),
            until=parse_moment("end_date", end, end=True) if end else next_full_hour(now),
            per=single_parameters.get("granularity", "daily"),
            include=include,
            exclude=exclude,
            view=await self._reads.find_view(single_parameters["view"])
            if "view" in single_parameters
            else None,
        )

    def _included_and_excluded_values(
        self, stated_filters: Mapping[str, tuple[str, ...]]
    ) -> tuple[WantedValues, WantedValues]:
        """
        Return the included and the excluded values of dimensions, from `filters` and the other parameters.
        """
        own = (PLAN,) if stated_filters.get("cost_type") == (PAID_COST,) else ()
        known = (*self._money.ledger.dimensions(), *UNITS, *BILLED_DIMENSIONS, *own, *self._row_tags)
        include = {name: values for name, values in stated_filters.items() if name in known}
        if "filters" not in stated_filters:
            return include, {}
        extra_filters, exclude = map(
            self._people.check_and_expand_filter, _parse_filters(stated_filters["filters"][0], known)
        )
        for name in include.keys() & extra_filters.keys():
            raise _invalid_parameter(
                f"{name} is given both in filters and by its own name; use only one of them"
            )
        return include | extra_filters, exclude


def check_meter_query(cost_type: str, measures: Sequence[str]) -> None:
    """
    Raise Refusal 400 if a query by meter is not about usage. A call may have several meters but has only one
    cost, so other queries by meter make no sense.
    """
    if cost_type != USAGE_AMOUNT:
        raise _invalid_parameter(f"meters are usage, so to group by {METER}, use cost_type={USAGE_AMOUNT}")
    if measures:
        raise _invalid_parameter(
            f"measures count calls, which may have several meters, so use measures without {METER}"
        )


def _parse_filters(
    text: str, known_names: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """
    Return the included and the excluded values in the JSON of `filters`. `!` before a name excludes its
    values, and null is the unknown value.
    """
    try:
        filters = orjson.loads(text)
    except orjson.JSONDecodeError:
        filters = None
    if not isinstance(filters, dict):
        raise _invalid_parameter(
            'filters must be a JSON object such as {"team": ["search"], "!model": ["gpt-4o"]}'
        )
    include: dict[str, tuple[str, ...]] = {}
    exclude: dict[str, tuple[str, ...]] = {}
    for name, stated_values in filters.items():
        dimension = name.removeprefix("!")
        if dimension not in known_names:
            raise _invalid_parameter(f"filters accepts only {', '.join(known_names)}")
        values = stated_values if isinstance(stated_values, list) else [stated_values]
        if not values or not all(value is None or isinstance(value, str) for value in values):
            raise _invalid_parameter(f"filters: {dimension} must be a text or a list of texts")
        (exclude if name != dimension else include)[dimension] = tuple(value or "" for value in values)
    return include, exclude


def _items_by_meter(items: Sequence[CostItem], meter: str) -> list[CostItem]:
    """Return one item for each meter in each item, or only for `meter` if it is given."""
    return [
        replace(item, meter=name)
        for item in items
        for name in metered_quantities(item.row)
        if meter in ("", name)
    ]


def _cut_item_page(
    list_definition: ListDefinition[CostItem], page_query: PageQuery, rows: Sequence[CostItem]
) -> ListPage[CostItem]:
    sort = list_definition.sorts[page_query.sort_key].value
    identity = list_definition.identity.value
    assert sort is not None and identity is not None
    return cut_page(
        rows,
        value_of=sort,
        identity_of=identity,
        order=page_query.sort_order,
        limit=page_query.limit,
        position=page_query.position,
    )


@lru_cache(1024)  # cached, because rows are sorted by period, so consecutive rows often have the same period
def _usage_date(granularity: str, start: datetime) -> str:
    return _format_time(calendar_period_start(granularity, start))


def _format_time(moment: datetime) -> str:
    return record.format_to_second(moment.timestamp())


def _dimension_name(dimension: str) -> str:
    if dimension not in DIMENSIONS:
        return dimension.partition(":")[2]
    return _NAMES.get(dimension, dimension.capitalize())


def _invalid_parameter(message: str) -> Refusal:
    return Refusal(400, "invalid_parameter", message)
