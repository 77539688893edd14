"""
The webhook event `budget.verdict`, which reports that a budget or its owners changed between within, near and
over.

The states that were last reported are stored, so neither a restart nor another gateway reports a change
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

import msgspec

from gateway.money.budgets.declared import BudgetTable, SpendBudget
from gateway.money.budgets.judging import notified_channels
from gateway.money.budgets.verdicts import NEAR, OVER, WITHIN, BudgetVerdicts
from gateway.money.insights.findings import printable_name
from spool.registry.notices import INFO, Notice
from spool.registry.registry import Registry
from spool.registry.tables.verdicts import ReportedStates
from spool.registry.views import SavedView

VERDICT = "budget.verdict"
_NAMED_OWNERS = 10

States = Mapping[str, str]  # owner -> state, without owners that are within their amount


class VerdictEvents:
    """
    Stores a notice for each budget whose state changed. `is_on` returns the setting budgets.verdict_events.
    """

    def __init__(
        self, registry: Registry, is_on: Callable[[], bool], link: Callable[[SpendBudget], str]
    ) -> None:
        self._registry = registry
        self._is_on = is_on
        self._link = link
        self._reported: Mapping[str, States] | None = None  # states by budget that this process last reported

    @property
    def is_reporting_changes(self) -> bool:
        return self._is_on() and bool(self._registry.notices.webhook_channels)

    async def report_changes(self, table: BudgetVerdicts, now: float) -> None:
        """
        Store notices of the changes since the last reported table. `table` lists only budgets and owners that
        are near or over their amounts.
        """
        states = _states_by_budget(table)
        if not self.is_reporting_changes or states == self._reported:
            return
        webhooks = self._registry.notices.webhook_channels

        def build_verdict_notices(
            before: ReportedStates,
        ) -> tuple[ReportedStates, list[tuple[Notice, tuple[str, ...]]]]:
            return self._build_change_notices(before, states, webhooks, table.truncated, now)

        await self._registry.verdicts.update_reported_states(build_verdict_notices)
        self._reported = states

    def _build_change_notices(
        self,
        before: ReportedStates,
        states: Mapping[str, States],
        webhooks: Collection[str],
        is_table_truncated: bool,
        now: float,
    ) -> tuple[ReportedStates, list[tuple[Notice, tuple[str, ...]]]]:
        after: ReportedStates = {}
        notices = []
        for budget in self._registry.declared_table(BudgetTable).all():
            number, old = before.get(budget.id, (0, {}))
            new = states.get(budget.id)
            if new is None:  # the budget has no verdicts now, so keep what was last reported
                after[budget.id] = number, old
                continue
            # an owner that is missing in a shortened table may still be near or over, so keep its state
            if is_table_truncated:
                new = {**old, **new}
            changed = sorted(owner for owner in {*old, *new} if old.get(owner) != new.get(owner))
            after[budget.id] = number + bool(changed), new
            if changed:
                view = self._registry.views.find(budget.view_id)
                to = notified_channels(budget, view, self._registry.notices.channels)
                notice = _change_notice(budget, view, new, changed, number + 1, now, self._link(budget))
                notices.append((notice, tuple(name for name in to if name in webhooks)))
        return after, notices


def _states_by_budget(table: BudgetVerdicts) -> Mapping[str, States]:
    states: dict[str, dict[str, str]] = {budget: {} for budget in table.budgets}
    for row in table.rows:
        states[row.budget][row.owner or ""] = row.state
    return states


def _change_notice(
    budget: SpendBudget,
    view: SavedView | None,
    states: States,
    changed: Collection[str],
    change_number: int,
    now: float,
    link: str,
) -> Notice:
    """Build the notice of a change. `change_number` counts the changes of the budget."""
    id = "bgv_" + blake2b(msgspec.json.encode((budget.id, change_number)), digest_size=16).hexdigest()
    counts = {state: str(sum(each == state for each in states.values())) for state in (OVER, NEAR)}
    if budget.per:
        title = f"Budget {printable_name(budget.name)}: the verdict on {len(changed):,} owners changed"
    else:
        title = f"Budget {printable_name(budget.name)} is {states.get('', WITHIN)}"
    shown = [f"{printable_name(owner)} is {states.get(owner, WITHIN)}." for owner in changed if owner]
    more = len(shown) - _NAMED_OWNERS
    return Notice(
        id=id,
        kind=VERDICT,
        title=title,
        at=now,
        text=" ".join([*shown[:_NAMED_OWNERS], *([f"And {more:,} more."] if more > 0 else [])]),
        fields={
            "budget": budget.name,
            "budget_id": budget.id,
            "view": view.name if view else "",
            **({"per": budget.per, **counts} if budget.per else {"state": states.get("", WITHIN)}),
        },
        severity=INFO,
        link=link,
        thread=f"verdict:{budget.id}",
    )
