"""Asks the ledger and the registry for the figures of a report, cut to what its reader may see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from gateway.http.holders.money import MoneyServices
from gateway.http.visible import Visible
from gateway.money.budgets.declared import BudgetTable
from gateway.money.budgets.judging import limit_of
from gateway.money.budgets.words import amount
from gateway.money.calls.budgets import add_state
from gateway.money.calls.reports.declared import WEEK, ScheduledReport
from gateway.money.calls.reports.readers import NotReadable
from gateway.money.calls.reports.words import CHANGES, TOP, ReportFigures
from gateway.money.comparison.comparing import compare
from gateway.money.comparison.old_prices import list_prices
from gateway.money.costs.answer import ledger_for, told_of_bills
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from gateway.service.errors import Refusal
from spool.ledger import money
from spool.ledger.costs import periods
from spool.ledger.periods import preceding
from spool.ledger.queries import AnswersCosts, CostQuery, CostRow
from spool.registry.insights import OPEN, Insight
from spool.registry.registry import Registry
from spool.registry.roles import COUNTED_TYPES
from spool.registry.views import View
from spool.turns.threads import ordered

_MODEL = "model"


async def figures_of(
    services: MoneyServices, report: ScheduledReport, view: View, reader: CostReader, due: float
) -> ReportFigures:
    """Return what a person sees of the calls, in the money of a view. NotReadable if the roles hide that money."""
    since, until = report.span(due)
    by = _dimension(view)
    asked = CostQuestion(
        since=since,
        until=until,
        zone=report.zone,
        by=[by],
        view=view,
        cost_type=view.cost_type,
        tells=COUNTED_TYPES,
    )
    query = asked.query
    try:
        ledger = await ledger_for(asked, reader) if query.arranged else reader.ledger
    except Refusal as error:
        raise NotReadable(error.message) from error
    prices = await list_prices(services.prices)
    found = await compare(ledger, query, preceding(query), top=CHANGES, prices=prices)
    rows = await ledger.costs(replace(query, measures=("calls",)))
    groups, unconverted = await asyncio.to_thread(_groups, rows)
    registry, visible = reader.require_registry(), await reader.visible()
    insights = [
        each for each in await registry.insights.found() if each.status in OPEN and visible.insight(each)
    ]
    billed: Mapping[str, Any] = await told_of_bills(query, reader, due, states_alone=True) or {}
    insights.sort(key=lambda each: -abs(Decimal(each.cost_impact)))
    return ReportFigures(
        view=view.name,
        since=since,
        until=until,
        by=by,
        found=found,
        bars=await _bars(ledger, query, report),
        top=[each for each in groups[:TOP] if each[1]],
        budgets=list(_budgets(services, registry, visible, view)),
        insights=[_insight(each) for each in insights[:CHANGES]],
        insight_count=len(insights),
        unconverted=unconverted,
        billed=view.cost_type if query.arranged else "",
        billed_days=billed.get("days", {}),
    )


def _groups(rows: Sequence[CostRow]) -> tuple[list[tuple[str | None, int]], Mapping[str, str]]:
    """Return the cost of each group, the largest first, and the amounts that no rate is known for."""
    groups = [(row.group[0], money.units(row.cost)) for row in rows]
    return ordered(groups, key=lambda each: -each[1]), money.added(row.unconverted for row in rows)


def _dimension(view: View) -> str:
    """Return the dimension that the view is mainly about; models if it has one value of that."""
    name = view.principal_dimension
    return _MODEL if len(view.include.get(name, ())) == 1 else name


async def _bars(
    ledger: AnswersCosts, query: CostQuery, report: ScheduledReport
) -> Sequence[tuple[datetime, int]]:
    per = "daily" if report.every == WEEK else "weekly"
    asked = replace(query, granularity=per, group_by=(), measures=("calls",))
    spent = {row.start: money.units(row.cost) for row in await ledger.costs(asked)}
    return [(start.astimezone(report.zone), spent.get(start, 0)) for start, _ in periods(asked)]


def _budgets(services: MoneyServices, registry: Registry, visible: Visible, view: View) -> Iterator[str]:
    """Yield a line for each budget of the view, by its last evaluation."""
    for budget in registry.table(BudgetTable).all():
        if budget.view_id != view.id or not visible.budget(budget):
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
