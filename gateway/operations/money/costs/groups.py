"""Operator API of costs in groups of at least `privacy.min_group` people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from gateway.core.schemas import COUNT, TEXT, TEXT_OR_NULL, open_object_schema, schema_with_description
from gateway.http.lists import Filter, ListDefinition, MemoryRows, PageQuery, Sort
from gateway.http.requests import Result
from gateway.money.costs.groups import USUAL, GroupCostFigures, Groups, sum_figures, visible_groups
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool import money
from spool.ledger.dimensions import SPLIT_BY
from spool.listing import ListPage, limited_choices
from spool.registry.permission_sets import VIEW_COSTS

BY = "by"
_NANODOLLAR = money.UNIT // 10**9  # a cursor has at most 64 bits for a number


class GroupRow(NamedTuple):
    since: datetime
    until: datetime
    names: Mapping[str, str | None]
    figures: GroupCostFigures

    @property
    def id(self) -> str:
        return "\n".join((self.since.isoformat(), *(name or "" for name in self.names.values())))


def _describe_group(row: GroupRow) -> Mapping[str, object]:
    span = {"from": row.since.isoformat(), "to": row.until.isoformat()}
    return {"id": row.id, **span, **row.names, **row.figures.to_fields}


# a filter without effect here, because filters select whole cells before they are added up
_CHOSEN: Filter[GroupRow] = Filter(holds=lambda row, value: True)

_FIGURES = {
    "cost": schema_with_description(TEXT, "The cost of the calls."),
    "calls": schema_with_description(COUNT, "The number of calls."),
    "input_tokens": schema_with_description(COUNT, "The number of input tokens."),
    "output_tokens": schema_with_description(COUNT, "The number of output tokens."),
}
_GROUP = open_object_schema(
    {
        "id": schema_with_description(TEXT, "The id of the row."),
        "from": schema_with_description(TEXT, "The start of the period."),
        "to": schema_with_description(TEXT, "The end of the period."),
        "team": schema_with_description(TEXT_OR_NULL, "The team that made the calls, if rows are by `team`."),
        **_FIGURES,
    }
)
GROUP_COSTS: ListDefinition[GroupRow] = ListDefinition(
    root="group_costs",
    show=_describe_group,
    identity=Sort(value=lambda row: row.id),
    sorts={
        "from": Sort(value=lambda row: row.since.isoformat()),
        "cost": Sort(value=lambda row: row.figures.cost // _NANODOLLAR),
        "calls": Sort(value=lambda row: row.figures.counts[0]),
    },
    default_sort=("from", "desc"),
    filters={BY: replace(_CHOSEN, valid_values=SPLIT_BY), **dict.fromkeys(SPLIT_BY, _CHOSEN)},
    beside={
        "people": schema_with_description({"type": "integer"}, "The setting `privacy.min_group`."),
        "total": schema_with_description(open_object_schema(_FIGURES), "The sum of all rows."),
    },
)


class _GroupRows:
    """
    The rows of a list of group costs. The groups that pass the request's filters are summed by the dimensions
    in its parameter `by`.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.total = GroupCostFigures()

    async def page(
        self, list_definition: ListDefinition[GroupRow], page_query: PageQuery
    ) -> ListPage[GroupRow]:
        by = page_query.filters.get(BY, USUAL)
        rows = [
            GroupRow(cut.since, cut.until, dict(zip(by, names, strict=True)), figures)
            for cut, names, figures in self._groups.sums_by_dimensions(by, page_query.filters)
        ]
        self.total = sum_figures(row.figures for row in rows)
        every_cell = [cell for _, cells in self._groups.parts for cell in cells]
        known = {
            name: limited_choices({cell.names[place] or "" for cell in every_cell})
            for place, name in enumerate(SPLIT_BY)
        }
        return await MemoryRows(rows, known=known).page(list_definition, page_query)


@operator_call(
    "GET",
    "/group-costs",
    VIEW_COSTS,
    "List costs in groups of enough people",
    shows=SLICED,
    lists=GROUP_COSTS,
    item=_GROUP,
    in_turn=True,
)
async def group_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    List costs by parts of a month, and by team, provider, model or source, in groups of more than
    `privacy.min_group` people. Groups that are too small are one row, such as `(fewer than 5 people)`.
    `total` is over all rows. Without the setting, the list is empty.

    Days 1 to 7, 8 to 14, 15 to 21 and 22 to the end of a month (UTC) are listed from the second day after
    them, and never change. A part with too few people is joined with the next part.
    """
    services, registry = request.services, request.registry
    await services.ledger.require_complete_totals(services.log)
    groups = await visible_groups(services.ledger, registry, request.rights, request.now())
    rows = _GroupRows(groups)
    answer = await request.list_page(GROUP_COSTS, rows)
    return {**answer, "people": registry.people.min_group, "total": rows.total.to_fields}
