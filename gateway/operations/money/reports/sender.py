"""
Sending of scheduled reports, once per scheduled time, even across restarts and with several gateways.

Figures are limited to what the recipient may see. The notices of a scheduled time and the mark that it is
done are stored in one transaction. Channels send the notices afterwards. If several scheduled times passed
while no gateway was running, only one report is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.core.errors import Refusal
from gateway.core.paths import page_link
from gateway.core.visibility import VisibilityRules
from gateway.money.budgets.declared import BudgetTable
from gateway.money.budgets.judging import planned_limit
from gateway.money.budgets.notice_texts import format_budget_amount
from gateway.money.comparison.comparing import compare_times
from gateway.money.costs.answer import billing_status_of_query
from gateway.money.costs.earlier_period import comparison_times
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.budgets import budget_with_state
from gateway.operations.money.reports import report_text
from gateway.operations.money.reports.declared import (
    WEEK,
    ScheduledReport,
    ScheduledReportTable,
    cost_type_problem,
)
from gateway.operations.money.reports.readers import IsDefault, NotReadable, recipient_rights
from gateway.operations.money.reports.report_text import TOP, ReportFigures
from spool import money
from spool.clock import Clock
from spool.errors import NotKept
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.periods import PREVIOUS
from spool.ledger.queries import CostQuery, CostRow, CostsLedger
from spool.loops import FailedItems, failure_reason, repeat
from spool.registry.insights import OPEN, Insight
from spool.registry.notices import INFO, REPORT, Notice
from spool.registry.registry import Registry
from spool.registry.roles import COUNTED_TYPES, Rights
from spool.registry.views import SavedView
from spool.turns.threads import sort_in_short_steps

LARGEST = 3  # maximum drivers of the change, and maximum insights, that are named
LOOK_S = 15.0
AddressedNotices = Sequence[tuple[Notice, str]]  # pairs of a notice and its channel
_MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class ReportSender:
    """Sends scheduled reports. `console` returns the public address of the console."""

    services: MoneyServices
    clock: Clock
    console: Callable[[], str]
    is_default: IsDefault
    failed_items: FailedItems = field(default_factory=FailedItems)

    async def run(self) -> None:
        await repeat(
            self.send_due,
            every_s=LOOK_S,
            failed="scheduled reports could not be sent; trying again",
            action="scheduled_reports_put_off",
        )

    async def send_due(self) -> int:
        """Send the due reports. A report that fails states its problem, and is tried again later."""
        now = self.clock.now()
        sent = 0

        async def send_if_due(report: ScheduledReport) -> None:
            nonlocal sent
            due = report.last_due_at(now)
            if due <= report.done:
                return
            await self.services.ledger.require_complete_totals(self.services.log)
            addressed, problem = await self.build_notices(report, due, id=f"{report.id}-{int(due)}")
            sent += await self._report_table.store_notices_once(report, due, addressed, problem)

        async def store_problem(name: str, error: Exception) -> None:
            problem = f"not sent yet: {failure_reason(error)}"
            await self._report_table.store_problem(reports[name].id, problem)

        reports = {report.name: report for report in self._report_table.all()}
        await self.failed_items.work_on("scheduled reports", reports, send_if_due, store_problem)
        return sent

    async def build_notices(
        self, report: ScheduledReport, due_at: float, *, id: str
    ) -> tuple[AddressedNotices, str]:
        """Return the notices of a report with their channels, and why some recipients get no report."""
        table = self.services.require_registry().notices
        mails = [name for name in report.channels if report.people and name in table.mail_channels]
        other_channels = [name for name in report.channels if name not in mails]
        addressed: list[tuple[Notice, str]] = []
        problems = []
        for person in (*([report.owner] if other_channels else []), *(report.people if mails else ())):
            is_mail = person in report.people and bool(mails)
            try:
                rights = await recipient_rights(self.services.require_registry(), person, self.is_default)
                notice = await self.build_notice(report, rights, due_at, id=id)
            except NotReadable as error:
                problems.append(f"not sent: {error}")
                continue
            if other_channels and person == report.owner:
                addressed += [(notice, name) for name in other_channels]
            if is_mail:
                mail = replace(notice, id=f"{notice.id}-{report.people.index(person)}", to=person)
                addressed += [(mail, name) for name in mails]
        gone = [name for name in report.channels if name not in table.channels]
        problems += [f"the channel {name} no longer exists" for name in gone]
        addressed = [(notice, name) for notice, name in addressed if name not in gone]
        return list({(notice.id, name): (notice, name) for notice, name in addressed}.values()), "; ".join(
            problems
        )

    async def build_notice(
        self, report: ScheduledReport, rights: Rights, due_at: float, *, id: str
    ) -> Notice:
        """
        Build the notice of a report with the figures that a person with these rights may see. Raises
        NotReadable if its view cannot be used.
        """
        registry = self.services.require_registry()
        view = registry.views.find(report.view_id)
        if view is None:
            raise NotReadable("its view no longer exists; choose another view")
        reason = view.broken_reason(self.services.ledger.dimensions())
        if reason:
            raise NotReadable(f"its view {view.name} is broken: {reason}")
        if problem := cost_type_problem(view):
            raise NotReadable(problem)
        reader = CostReader(
            whole=self.services.ledger, require_registry=self.services.require_registry, rights=rights
        )
        try:
            figures = await read_figures(self.services, report, view, reader, due_at)
        except NotKept as error:
            raise NotReadable(str(error)) from error
        return Notice(
            id=f"report-{id}",
            kind=REPORT,
            title=report_text.report_title(figures),
            at=self.clock.now(),
            text=report_text.report_text(figures),
            fields=report_text.report_fields(figures),
            severity=INFO,
            link=page_link(self.console(), "/costs", _link_parameters(report, view, due_at)),
            thread=f"report {report.id}",
        )

    @property
    def _report_table(self) -> ScheduledReportTable:
        return self.services.require_registry().declared_table(ScheduledReportTable)


def _link_parameters(report: ScheduledReport, view: SavedView, due_at: float) -> Mapping[str, Sequence[str]]:
    since, until = report.time_range(due_at)
    last = until - timedelta(days=1)
    shown = {"view": [report.view_id], "from": [f"{since:%Y-%m-%d}"], "to": [f"{last:%Y-%m-%d}"]}
    return {**shown, "cost_type": [view.cost_type]} if view.cost_type in BILLED_TYPES else shown


async def read_figures(
    services: MoneyServices, report: ScheduledReport, view: SavedView, reader: CostReader, due_at: float
) -> ReportFigures:
    """
    Return the figures that a person may see, in the cost type of the view. Raises NotReadable if the person's
    roles hide this cost type.
    """
    since, until = report.time_range(due_at)
    by = _main_dimension(view)
    question = CostQuestion(
        since=since,
        until=until,
        zone=report.zone,
        by=[by],
        view=view,
        cost_type=view.cost_type,
        tells=COUNTED_TYPES,
    )
    query = question.query
    try:
        ledger = reader.ledger
        if query.arranged:
            ledger = reader.ledger_for_cost_types(question.cost_types)
    except Refusal as error:
        raise NotReadable(error.message) from error
    times = await comparison_times(reader, due_at, against=PREVIOUS)
    comparison, past, compared = await compare_times(
        ledger, query, times(query), due_at, top=LARGEST, prices=services.prices
    )
    rows = await ledger.costs(replace(query, measures=("calls",)))
    groups, unconverted = await asyncio.to_thread(_cost_by_group, rows)
    registry, visible = reader.require_registry(), await reader.read_visibility()
    insights = [
        insight
        for insight in await registry.insights.detector_insights()
        if insight.status in OPEN and visible.can_see_insight(insight)
    ]
    billed: Mapping[str, Any] = (
        await billing_status_of_query(query, reader, due_at, only_day_states=True) or {}
    )
    insights.sort(key=lambda insight: -abs(Decimal(insight.cost_impact)))
    return ReportFigures(
        view=view.name,
        since=since,
        until=until,
        by=by,
        past=past,
        compared=compared,
        comparison=comparison,
        bars=await _cost_bars(ledger, query, report),
        top=[group for group in groups[:TOP] if group[1]],
        budgets=list(_budget_lines(services, registry, visible, view)),
        insights=[_insight_line(insight) for insight in insights[:LARGEST]],
        insight_count=len(insights),
        unconverted=unconverted,
        billed=view.cost_type if query.arranged else "",
        billed_days=billed.get("days", {}),
    )


def _cost_by_group(rows: Sequence[CostRow]) -> tuple[list[tuple[str | None, int]], Mapping[str, str]]:
    groups = [(row.group[0], money.text_to_units(row.cost)) for row in rows]
    return sort_in_short_steps(groups, key=lambda item: -item[1]), money.add_by_currency(
        row.unconverted for row in rows
    )


def _main_dimension(view: SavedView) -> str:
    """
    Return the dimension of the report's costs: the view's main one, or the model if the view has one value of
    it.
    """
    name = view.principal_dimension
    return _MODEL if len(view.include.get(name, ())) == 1 else name


async def _cost_bars(
    ledger: CostsLedger, query: CostQuery, report: ScheduledReport
) -> Sequence[tuple[datetime, int]]:
    per = "daily" if report.every == WEEK else "weekly"
    bar_query = replace(query, granularity=per, group_by=(), measures=("calls",))
    spent = {row.start: money.text_to_units(row.cost) for row in await ledger.costs(bar_query)}
    return [(start.astimezone(report.zone), spent.get(start, 0)) for start, _ in periods_of_query(bar_query)]


def _budget_lines(
    services: MoneyServices, registry: Registry, visibility_rules: VisibilityRules, view: SavedView
) -> Iterator[str]:
    for budget in registry.declared_table(BudgetTable).all():
        if budget.view_id != view.id or not visibility_rules.can_see_budget(budget):
            continue
        shown = budget_with_state(services, budget)
        figures = services.require_budgets().figures.get(budget.id)
        if shown.problem is not None:
            yield f"{budget.name}: not evaluated, because {shown.problem}"
        elif figures is not None and figures.periods and shown.percent is not None:
            running = figures.periods[0]
            limit = planned_limit(budget, running)
            limit_text = "" if limit is None else f" of {format_budget_amount(budget, limit)}"
            spent = (
                "" if budget.per else f", {format_budget_amount(budget, running.total_spend.actual)} spent"
            )
            owner_text = f" by the {budget.per} with the highest percentage" if budget.per else ""
            used = f"{shown.percent} %{limit_text} used{owner_text}"
            yield f"{budget.name}: {used}{spent} since {running.period.first_day}"


def _insight_line(insight: Insight) -> str:
    impact = Decimal(insight.cost_impact)
    return f"{insight.title} (${impact:,.2f})" if impact else insight.title
