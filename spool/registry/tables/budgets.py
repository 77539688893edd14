"""
The budgets of a registry: every change with its audit row, and all of them in memory for those that evaluate them.

What an evaluation found is kept in one transaction: the states of thresholds, their notices and their insights. A
process that is killed has kept all of it or nothing, so no alert is lost and none is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.registry import budget_alerts, budgets, views
from spool.registry.budget_alerts import PeriodAlerts
from spool.registry.budgets import DRAFTED, KIND, RULES, BudgetDraft, SpendBudget
from spool.registry.changes import Changes
from spool.registry.insights import Finding
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.rows import RegistryRows
from spool.registry.shared.edits import check_version, edited
from spool.registry.shared.following import DOCUMENTS
from spool.registry.shared.makers import BUDGETS, check_share, forget_maker, note_maker
from spool.registry.tables.insights import merge_findings
from spool.registry.tables.notices import add_notices
from spool.registry.views import View

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
    What an evaluation found: alerts that changed, notices each with its channels, and what holds now of all budgets.
    `findings` None leaves the insights as they are.
    """

    alerts: Sequence[PeriodAlerts]
    notices: Sequence[tuple[Notice, Sequence[str]]]
    findings: Sequence[Finding] | None


class BudgetTable:
    """
    Create, change and delete budgets. A method that raises (Invalid, NotAllowed, NotThere) changes nothing.

    `known` are the dimensions of the ledger.
    """

    about = ((DOCUMENTS, KIND),)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._budgets: dict[str, SpendBudget] = {}

    async def load(self) -> None:
        self._budgets = dict(await self._changes.read(_all))

    def all(self) -> list[SpendBudget]:
        return list(self._budgets.values())

    def find(self, id: str) -> SpendBudget | None:
        return self._budgets.get(id)

    def get(self, id: str) -> SpendBudget:
        return _found(self._budgets, id)

    async def alerts(self, id: str) -> list[PeriodAlerts]:
        """The alerts of a budget, by period."""
        found = await self._changes.read(_alerts)
        return [alerts for alerts in found.values() if alerts.budget_id == id]

    async def create(self, draft: BudgetDraft, *, known: Collection[str], most: int, actor: Actor) -> SpendBudget:
        """NotAllowed when there are `most`, or a key made as many as it leaves free."""
        now = self._changes.clock.now()
        drafted = budgets.checked_budget(draft, now=now)
        _check_owners(drafted, known)
        id = budgets.new_budget_id()
        budget = SpendBudget(id=id, created=now, last_updated=now, rules_since=now, **_fields(drafted))

        def work(rows: RegistryRows) -> SpendBudget:
            kept = _all(rows)
            if len(kept) >= most:
                raise NotAllowed(f"there are {most} budgets (budgets.max); delete one")
            check_share(rows, BUDGETS, kept, most, actor)
            _check_place(rows, kept, budget)
            rows.put_document(KIND, id, budgets.stored(budget))
            note_maker(rows, BUDGETS, id, actor)
            rows.add_audit(now, actor, "budget.create", id, after=_shown(budget, DRAFTED))
            return budget

        return await self._changes.change(work, self._remember)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known: Collection[str],
        actor: Actor,
    ) -> SpendBudget:
        """
        Set the fields of a draft that are given. A change of the rules judges the running period anew.

        NotAllowed if it is not of the `version` any more that was read.
        """
        now = self._changes.clock.now()

        def work(rows: RegistryRows) -> SpendBudget:
            kept = _all(rows)
            before = _found(kept, id)
            check_version(before.version, version)
            drafted = budgets.checked_budget(BudgetDraft(**{**_fields(before), **changes}), now=now)
            if "per" in changes:
                _check_owners(drafted, known)
            is_judged_anew = any(getattr(before, name) != getattr(drafted, name) for name in RULES)
            since = now if is_judged_anew else before.rules_since
            after = edited(before, replace(before, **_fields(drafted), rules_since=since), last_updated=now)
            if after is before:
                return before
            _check_place(rows, kept, after)
            rows.put_document(KIND, id, budgets.stored(after))
            names = [name for name in DRAFTED if getattr(before, name) != getattr(after, name)]
            rows.add_audit(now, actor, "budget.change", id, before=_shown(before, names), after=_shown(after, names))
            return after

        return await self._changes.change(work, self._remember)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """With its alerts. Its insight is closed by the next evaluation."""

        def work(rows: RegistryRows) -> None:
            before = _found(_all(rows), id)
            rows.delete_document(KIND, id)
            forget_maker(rows, BUDGETS, id)
            for alerts in _alerts(rows).values():
                if alerts.budget_id == id:
                    rows.delete_document(budget_alerts.KIND, alerts.id)
            rows.add_audit(self._changes.clock.now(), actor, "budget.delete", id, before=_shown(before, DRAFTED))

        await self._changes.change(work, lambda _: self._forget(id))

    async def keep(self, judge: Callable[[Kept], Judged]) -> Judged:
        """Keep what `judge` finds from the rows of this moment, all of it or nothing."""
        now = self._changes.clock.now()

        def work(rows: RegistryRows) -> Judged:
            alerts = _alerts(rows)
            for old in alerts.values():
                if old.end < now - KEPT_S:
                    rows.delete_document(budget_alerts.KIND, old.id)
            kept_views = {id: views.restored(body) for id, body in rows.documents(views.KIND).items()}
            judged = judge(Kept(budgets=list(_all(rows).values()), views=kept_views, alerts=alerts))
            for changed in judged.alerts:
                rows.put_document(budget_alerts.KIND, changed.id, budget_alerts.stored(changed))
            for notice, channels in judged.notices:
                add_notices(rows, [notice], channels)
            if judged.findings is not None:
                merge_findings(rows, judged.findings, looked_for=[FINDER], now=now)
            return judged

        return await self._changes.change(work)

    def _remember(self, budget: SpendBudget) -> None:
        self._budgets[budget.id] = budget

    def _forget(self, id: str) -> None:
        self._budgets.pop(id, None)


def _all(rows: RegistryRows) -> dict[str, SpendBudget]:
    return {id: budgets.restored(body) for id, body in rows.documents(KIND).items()}


def _alerts(rows: RegistryRows) -> dict[str, PeriodAlerts]:
    return {id: budget_alerts.restored(body) for id, body in rows.documents(budget_alerts.KIND).items()}


def _found(kept: Mapping[str, SpendBudget], id: str) -> SpendBudget:
    budget = kept.get(id)
    if budget is None:
        raise NotThere("there is no budget with this id")
    return budget


def _fields(draft: BudgetDraft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in DRAFTED}


def _shown(budget: SpendBudget, names: Collection[str]) -> dict[str, Any]:
    body = budgets.stored(budget)
    return {name: body[name] for name in names}


def _check_owners(draft: BudgetDraft, known: Collection[str]) -> None:
    if draft.per and draft.per not in known:
        raise Invalid(f"per is no dimension; costs are known by {', '.join(known)}")


def _check_place(rows: RegistryRows, kept: Mapping[str, SpendBudget], budget: SpendBudget) -> None:
    """A budget hangs on a view that exists, under a name that no other budget of the view has."""
    if rows.document(views.KIND, budget.view_id) is None:
        raise Invalid(NO_VIEW)
    name = budget.name.casefold()
    for each in kept.values():
        if each.id != budget.id and each.view_id == budget.view_id and each.name.casefold() == name:
            raise AlreadyThere(f"this view has a budget named {budget.name!r}")
