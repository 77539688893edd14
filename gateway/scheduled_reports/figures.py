"""Asks the ledger and the registry for the figures of a report, cut to what its reader may see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from gateway.api.lists.budgets import add_state
from gateway.api.report_words import REAL_COST
from gateway.api.visible import slice_of
from gateway.budgets.judging import limit_of
from gateway.budgets.words import amount
from gateway.comparison.comparing import compare
from gateway.comparison.old_prices import list_prices
from gateway.errors import Refusal
from gateway.first_use import imported
from gateway.http.holders.money import MoneyServices
from gateway.http.visible import Visible
from gateway.scheduled_reports.declared import WEEK, ScheduledReport
from gateway.scheduled_reports.readers import NotReadable
from gateway.scheduled_reports.words import CHANGES, TOP, ReportFigures
from spool.ledger import money
from spool.ledger.costs import periods
from spool.ledger.queries import BILLED_TYPES, TOTAL, CostQuery, CostRow
from spool.ledger.ranges import preceding
from spool.ledger.slices import SlicedLedger
from spool.registry.insights import OPEN, Insight
from spool.registry.registry import Registry
from spool.registry.roles import Rights
from spool.registry.shared.cost_types import COUNTED_TYPES
from spool.registry.views import View
from spool.turns.ordering import ordered

_MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Who reads a report, and what of the calls that person may see."""

    registry: Registry
    ledger: SlicedLedger
    visible: Visible


async def reader_of(services: MoneyServices, rights: Rights, cost_type: str = REAL_COST) -> Reader:
    """Return what somebody sees of the calls, in the money of a view. NotReadable if the roles hide that money."""
    registry = services.require_registry()
    ledger = SlicedLedger(services.ledger, rights.slice)
    visible = Visible(ledger.is_whole, await ledger.contained(), registry.views.find, limits=ledger.limits)
    if cost_type in BILLED_TYPES:
        try:
            shown = slice_of(rights, (cost_type, *COUNTED_TYPES))
        except Refusal as error:
            raise NotReadable(error.message) from error
        ledger = SlicedLedger(services.ledger, shown)
    return Reader(registry=registry, ledger=ledger, visible=visible)


async def figures_of(
    services: MoneyServices, report: ScheduledReport, view: View, reader: Reader, due: float
) -> ReportFigures:
    since, until = report.span(due)
    by = _dimension(view)
    query = CostQuery(
        since=since,
        until=until,
        granularity=TOTAL,
        group_by=[by],
        include=view.include,
        exclude=view.exclude,
        zone=report.zone,
        arranged=BILLED_TYPES.get(view.cost_type, 0),
    )
    prices = await list_prices(services.prices)
    found = await compare(reader.ledger, query, preceding(query), top=CHANGES, prices=prices)
    rows = await reader.ledger.costs(replace(query, measures=("calls",)))
    groups, unconverted = await asyncio.to_thread(_groups, rows)
    insights = [
        each
        for each in await reader.registry.insights.found()
        if each.status in OPEN and reader.visible.insight(each)
    ]
    insights.sort(key=lambda each: -abs(Decimal(each.cost_impact)))
    return ReportFigures(
        view=view.name,
        since=since,
        until=until,
        by=by,
        found=found,
        bars=await _bars(reader, query, report),
        top=[each for each in groups[:TOP] if each[1]],
        budgets=list(_budgets(services, reader, view)),
        insights=[_insight(each) for each in insights[:CHANGES]],
        insight_count=len(insights),
        unconverted=unconverted,
        billed=view.cost_type if query.arranged else "",
        billed_days=await _billed_days(services, query, due) if query.arranged else {},
    )


def _groups(rows: Sequence[CostRow]) -> tuple[list[tuple[str | None, int]], Mapping[str, str]]:
    """Return the cost of each group, the largest first, and the amounts that no rate is known for."""
    groups = [(row.group[0], money.units(row.cost)) for row in rows]
    return ordered(groups, key=lambda each: -each[1]), money.added(row.unconverted for row in rows)


async def _billed_days(services: MoneyServices, query: CostQuery, due: float) -> Mapping[str, int]:
    beside = await imported("gateway.billed.beside")
    found: Mapping[str, int] = await beside.billed_states(services.ledger, query, due)
    return found


def _dimension(view: View) -> str:
    """Return the dimension that the view is mainly about; models if it has one value of that."""
    name = view.principal_dimension
    return _MODEL if len(view.include.get(name, ())) == 1 else name


async def _bars(reader: Reader, query: CostQuery, report: ScheduledReport) -> Sequence[tuple[datetime, int]]:
    per = "daily" if report.every == WEEK else "weekly"
    asked = replace(query, granularity=per, group_by=(), measures=("calls",))
    spent = {row.start: money.units(row.cost) for row in await reader.ledger.costs(asked)}
    return [(start.astimezone(report.zone), spent.get(start, 0)) for start, _ in periods(asked)]


def _budgets(services: MoneyServices, reader: Reader, view: View) -> Iterator[str]:
    """Yield a line for each budget of the view, by its last evaluation."""
    for budget in reader.registry.budgets.all():
        if budget.view_id != view.id or not reader.visible.budget(budget):
            continue
        shown = add_state(services, budget)
        figures = services.require_budgets().figures.get(budget.id)
        if shown.problem is not None:
            yield f"{budget.name}: not evaluated, {shown.problem}"
        elif figures is not None and figures.periods and shown.percent is not None:
            running = figures.periods[0]
            limit = limit_of(budget, running)
            of = "" if limit is None else f" of {amount(budget.measure, limit)}"
            spent = "" if budget.per else f", {amount(budget.measure, running.total.actual)} spent"
            whose = f" by the {budget.per} that is furthest" if budget.per else ""
            yield f"{budget.name}: {shown.percent} %{of} used{whose}{spent} since {running.period.first_day}"


def _insight(insight: Insight) -> str:
    impact = Decimal(insight.cost_impact)
    return f"{insight.title} (${impact:,.2f})" if impact else insight.title
