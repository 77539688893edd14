"""
The budgets of a registry: every change with its audit row, and all of them in memory for those that evaluate them.

What an evaluation found is kept in one transaction: the states of thresholds, their notices and their
insights. A process that is killed has kept all of it or nothing, so no alert is lost and none is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spool.errors import AlreadyThere, Invalid
from spool.registry import budgets
from spool.registry.budget_alerts import BUDGET_ALERTS, PeriodAlerts
from spool.registry.budgets import BUDGETS, RULES, BudgetDraft, SpendBudget
from spool.registry.insights import Finding
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import ManagedTable, Sees, is_taken
from spool.registry.tables.insights import merge_findings
from spool.registry.tables.notices import add_notices
from spool.registry.views import VIEWS, View

KEPT_S = 92 * 86400.0  # the alerts of a period are shown for so long after its end
NO_VIEW = "view.id: there is no view with this id"
FINDER = "budget"  # before the keys of findings about budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The rows that an evaluation is judged by, read in the transaction that keeps what it finds."""

    budgets: Sequence[SpendBudget]
    views: Mapping[str, View]
    alerts: Mapping[str, PeriodAlerts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """
    What an evaluation found: alerts that changed, notices each with its channels, and what holds now of all
    budgets. `findings` None leaves the insights as they are.
    """

    alerts: Sequence[PeriodAlerts]
    notices: Sequence[tuple[Notice, Sequence[str]]]
    findings: Sequence[Finding] | None


class BudgetTable(ManagedTable[SpendBudget]):
    """Create, change and delete budgets. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = BUDGETS
    draft = BudgetDraft
    limit = makers.BUDGETS
    action = "budget"

    async def alerts(self, id: str) -> list[PeriodAlerts]:
        """The alerts of a budget, by period."""
        found = await self._changes.read(BUDGET_ALERTS.all)
        return [alerts for alerts in found.values() if alerts.budget_id == id]

    def checked(self, draft: BudgetDraft) -> BudgetDraft:
        return budgets.check_budget(draft, now=self._changes.now())

    def check_known(self, draft: BudgetDraft, given: Collection[str], known: Collection[str]) -> None:
        if "per" in given and draft.per and draft.per not in known:
            raise Invalid(f"unknown dimension in per. Use one of: {', '.join(known)}")

    def made(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"rules_since": now}

    def changed(self, before: SpendBudget, after: SpendBudget, actor: Actor, now: float) -> SpendBudget:
        """A change of the rules re-evaluates the running period."""
        is_judged_anew = any(getattr(before, name) != getattr(after, name) for name in RULES)
        return replace(after, rules_since=now) if is_judged_anew else after

    def check_place(
        self,
        rows: RegistryRows,
        stored: Mapping[str, SpendBudget],
        row: SpendBudget,
        sees: Sees[SpendBudget],
    ) -> None:
        """A budget hangs on a view that exists, under a name that no other budget of the view has."""
        if VIEWS.find(rows, row.view_id) is None:
            raise Invalid(NO_VIEW)
        of_view = [each for each in stored.values() if each.view_id == row.view_id]
        if is_taken(of_view, row, sees):
            raise AlreadyThere(f"this view has a budget named {row.name!r}")

    def check_deletion(self, rows: RegistryRows, row: SpendBudget) -> None:
        """Its alerts go with it. Its insight is closed by the next evaluation."""
        for alerts in BUDGET_ALERTS.all(rows).values():
            if alerts.budget_id == row.id:
                BUDGET_ALERTS.delete(rows, alerts.id)

    async def keep(self, judge: Callable[[Kept], Judged]) -> Judged:
        """Keep what `judge` finds from the rows of this moment, all of it or nothing."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> Judged:
            alerts = BUDGET_ALERTS.all(rows)
            for old in alerts.values():
                if old.end < now - KEPT_S:
                    BUDGET_ALERTS.delete(rows, old.id)
            judged = judge(
                Kept(budgets=list(BUDGETS.all(rows).values()), views=VIEWS.all(rows), alerts=alerts)
            )
            for changed in judged.alerts:
                BUDGET_ALERTS.put(rows, changed)
            for notice, channels in judged.notices:
                add_notices(rows, [notice], channels)
            if judged.findings is not None:
                merge_findings(rows, judged.findings, looked_for=[FINDER], now=now)
            return judged

        return await self._changes.change(work)
