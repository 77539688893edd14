"""
Judgement of all budgets at once: their figures and stored alerts become new alerts, notices and findings.

The module is pure. It runs inside the transaction that stores its result, on the rows that this transaction read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import msgspec

from gateway.money.budgets.alerts import AlertNotice, Reading, Thresholds, judge_alerts
from gateway.money.budgets.declared import (
    ACTUAL,
    FIRED,
    REAL_COST,
    RULES,
    Alert,
    BudgetDocuments,
    JudgedBudgets,
    PeriodAlerts,
    SpendBudget,
    enabled_percents,
)
from gateway.money.budgets.figures import BudgetFigures, PeriodFigures
from gateway.money.budgets.forecast import Forecast
from gateway.money.budgets.notice_texts import CrossedOwner, build_budget_finding, build_crossing_notice
from spool import money
from spool.record import CURRENCY
from spool.registry.insights import Finding
from spool.registry.notices import PARKED, REMOVED, ChannelState, Notice
from spool.registry.views import SavedView

_EMPTY: PeriodAlerts = PeriodAlerts(budget_id="", first_day="", end=0.0, rules="", owners={})


@dataclass(slots=True, kw_only=True)
class BudgetAlertCollector:
    """Collects the alerts, notices and findings of all budgets, one budget after the other."""

    now: float
    channels: Collection[str]  # names of the configured notification channels
    link: Callable[[SpendBudget], str]
    alerts: list[PeriodAlerts] = field(default_factory=list)
    notices: list[tuple[Notice, tuple[str, ...]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def judge_budget(self, figures: BudgetFigures, budget_documents: BudgetDocuments) -> None:
        budget = figures.budget
        crossed = list[CrossedOwner]()
        for index, period in enumerate(figures.periods):
            key = f"{budget.id}.{period.period.first_day}"
            after = self._judge_period(figures, period, budget_documents.alerts.get(key))
            if after != budget_documents.alerts.get(key):
                self.alerts.append(after)
            if index == 0:
                crossed = _crossed_owners(budget, period, after)
        finding = build_budget_finding(figures, crossed)
        if finding is not None:
            self.findings.append(finding)

    def _judge_period(
        self, figures: BudgetFigures, period: PeriodFigures, stored: PeriodAlerts | None
    ) -> PeriodAlerts:
        budget = figures.budget
        rules = rules_digest(figures.budget, figures.view)
        is_first = stored is None or stored.rules != rules
        before = _EMPTY if stored is None or is_first else stored
        # For thresholds that are already crossed, a new or changed budget sends no notice. The response to
        # its author lists these thresholds.
        is_old_news = is_first and (
            stored is not None or budget.rules_since > period.period.start.timestamp()
        )
        owners = {}
        thresholds = Thresholds(
            actual=enabled_percents(budget.alerts), forecast=enabled_percents(budget.forecast_alerts)
        )
        for owner in dict.fromkeys((*period.spent, *before.owners)) if budget.per else ("",):
            reading = self._build_reading(
                budget,
                period,
                owner,
                are_notices_silenced=is_old_news or self.now < budget.notices_silenced_until,
            )
            alerts, notices = judge_alerts(thresholds, before.owners.get(owner, ()), reading)
            if alerts:
                owners[owner] = alerts
            self._add_notices(figures, period, owner, notices, rules)
        end = period.period.end.timestamp()
        return PeriodAlerts(
            budget_id=budget.id, first_day=period.period.first_day, end=end, rules=rules, owners=owners
        )

    def _build_reading(
        self, budget: SpendBudget, period: PeriodFigures, owner: str, *, are_notices_silenced: bool
    ) -> Reading:
        spent = period.spent.get(owner)
        expected = period.forecasts.get(owner)
        can_tell = isinstance(expected, Forecast) and period.period.can_forecast_alert(self.now)
        return Reading(
            now=self.now,
            actual=spent.actual if spent else 0,
            limit=planned_limit(budget, period),
            forecast=expected.total if can_tell and isinstance(expected, Forecast) else None,
            is_silent=are_notices_silenced,
            is_whole=period.is_whole and not period.owners_left_out,
        )

    def _add_notices(
        self,
        figures: BudgetFigures,
        period: PeriodFigures,
        owner: str,
        notices: list[AlertNotice],
        digest_of_rules: str,
    ) -> None:
        channels = notified_channels(figures.budget, figures.view, self.channels)
        for notice in notices:
            subject = (
                figures.budget.id,
                owner,
                period.period.first_day,
                notice.kind,
                notice.percent,
                notice.state,
                digest_of_rules,
            )
            id = "bgt_" + blake2b(msgspec.json.encode(subject), digest_size=16).hexdigest()
            link = self.link(figures.budget)
            self.notices.append(
                (
                    build_crossing_notice(figures, period, owner, notice, id=id, now=self.now, link=link),
                    channels,
                )
            )


def notified_channels(
    budget: SpendBudget, view: SavedView | None, configured: Collection[str]
) -> tuple[str, ...]:
    """
    Return the channels of the budget. If it has none, return the channels of its view. If the view has
    none, return all channels. Channels that are not configured are ignored.
    """
    for named in (budget.channels, view.channels if view else ()):
        known = tuple(name for name in named if name in configured)
        if known:
            return known
    return tuple(configured)


def count_budgets_without_channel(
    budgets: Iterable[SpendBudget], views: Mapping[str, SavedView], channels: Iterable[ChannelState]
) -> int:
    """
    Return the number of budgets whose alerts nobody receives, because no channel exists or all their channels
    are paused.
    """
    states = {channel.name: channel.state for channel in channels if channel.state != REMOVED}
    with_alerts = (
        budget
        for budget in budgets
        if enabled_percents(budget.alerts) or enabled_percents(budget.forecast_alerts)
    )
    chosen = (notified_channels(budget, views.get(budget.view_id), states) for budget in with_alerts)
    return sum(all(states[name] == PARKED for name in names) for names in chosen)


def judge_all(
    figures: Mapping[str, BudgetFigures],
    budget_documents: BudgetDocuments,
    *,
    now: float,
    channels: Collection[str],
    link: Callable[[SpendBudget], str],
) -> JudgedBudgets:
    """
    Judge all budgets. If a budget was changed after its figures were read, the next evaluation judges it.

    In that case, the insights of all budgets stay unchanged until then.
    """
    judgement = BudgetAlertCollector(now=now, channels=channels, link=link)
    is_complete = True
    for budget in budget_documents.budgets:
        budget_figures = figures.get(budget.id)
        view = budget_documents.views.get(budget.view_id)
        is_current = budget_figures is not None and rules_digest(
            budget_figures.budget, budget_figures.view
        ) == rules_digest(budget, view)
        if budget_figures is None or not is_current:
            is_complete = False
            continue
        judgement.judge_budget(replace(budget_figures, budget=budget, view=view), budget_documents)
    findings = judgement.findings if is_complete else None
    return JudgedBudgets(alerts=judgement.alerts, notices=judgement.notices, findings=findings)


def planned_limit(budget: SpendBudget, period: PeriodFigures) -> int | None:
    planned = budget.amount_for_period(period.period.first_day)
    return money.text_to_units(planned) if planned else None


def rules_digest(budget: SpendBudget, view: SavedView | None) -> str:
    """Hash the rules on which alerts depend. If the hash changes, the running period is judged again."""
    rules = {name: getattr(budget, name) for name in RULES}
    # Defaults stay out of the hash, so that budgets older than these fields keep their hash.
    if budget.cost_type == REAL_COST:
        del rules["cost_type"]
    if budget.currency == CURRENCY:
        del rules["currency"]
    filters = None if view is None else {name: sorted(values) for name, values in view.filter.items()}
    text = msgspec.json.encode([rules, filters], order="sorted")
    return blake2b(text, digest_size=16).hexdigest()


def _crossed_owners(budget: SpendBudget, period: PeriodFigures, alerts: PeriodAlerts) -> list[CrossedOwner]:
    """Return the owners above a threshold. The owner with the highest spend is first."""
    limit = planned_limit(budget, period)
    crossed = []
    for owner, states in alerts.owners.items():
        fired = [alert for alert in states if alert.state == FIRED]
        if fired and limit is not None:
            highest = max(fired, key=_alert_rank)
            crossed.append(
                CrossedOwner(owner=owner, spent=period.spent.get(owner), limit=limit, alert=highest)
            )
    return sorted(
        crossed, key=lambda crossing: (-(crossing.spent.actual if crossing.spent else 0), crossing.owner)
    )


def _alert_rank(alert: Alert) -> tuple[bool, int]:
    """Return a sort key: actual spend ranks above a forecast, then a higher percentage above a lower one."""
    return alert.kind == ACTUAL, alert.percent
