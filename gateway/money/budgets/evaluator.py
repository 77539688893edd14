"""
Evaluates the budgets: every ten minutes, after many new records, and whenever a budget, a view, a plan or a
price was changed.

It reads sums and keeps no count of its own, so that a restart, late records and new prices need nothing special.

The values of its gauges are for graphs: to the precision of a float.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gateway.bills.plans.declared import PlanTable
from gateway.money.budgets.declared import COST, BudgetTable, Judged, SpendBudget
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger
from gateway.money.budgets.forecast import Forecast
from gateway.money.budgets.judging import judge_all, limit_of, rules_digest
from gateway.service.first_use import imported
from gateway.service.monitoring.snapshot import BudgetGauge
from spool.clock import Clock
from spool.ledger import money
from spool.ledger.ledger import Ledger
from spool.ledger.queries import AnswersCosts
from spool.log.protocols import ReadableLog
from spool.record import AI_TELEMETRY
from spool.registry.registry import Registry

EVERY_S = 600.0
LOOK_S = 15.0  # whether something asks for an evaluation before
RECORDS = 10_000  # so many new ones do
_log = logging.getLogger(__name__)
MAX_OWNERS = 200  # of a budget with series of their own: every new one costs the monitoring memory for good


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRun:
    """How many budgets were evaluated and how many cannot be, and how many alerts were told."""

    evaluated: int
    broken: int
    told: int
    # None, or why nothing was evaluated: sums that are being counted anew would look like money that was
    # never spent.
    waits: str | None = None


_WAITING = BudgetRun(evaluated=0, broken=0, told=0, waits="the ledger is being counted anew")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What an evaluation was made from: when it changes, the next one is due."""

    reach: int
    rules: tuple[str, ...]


class BudgetEvaluator:
    """
    One evaluation of all budgets at a time; a single one does not wait for it. `link` is the address of a
    budget's page in the console.
    """

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        log: ReadableLog,
        clock: Clock,
        *,
        max_owners: Callable[[], int],
        link: Callable[[SpendBudget], str],
    ) -> None:
        self.figures: Mapping[str, BudgetFigures] = {}  # of the last evaluation, by budget
        self._registry = registry
        self._ledger = ledger
        self._log = log
        self._clock = clock
        self._max_owners = max_owners
        self._link = link
        self._turn = asyncio.Lock()
        self._single_turn = asyncio.Lock()
        self._is_running = False
        # Evaluated alone since the evaluation of all began, whose figures of them may be older.
        self._alone: dict[str, BudgetFigures | None] = {}
        self._woken = asyncio.Event()
        self._basis: _Basis | None = None

    def books(self) -> BudgetLedger:
        """The ledger, asked about budgets up to now."""
        return BudgetLedger(
            ledger=self._ledger,
            now=self._clock.now(),
            max_owners=self._max_owners(),
            divided=self._divided,
        )

    async def _divided(self, cost_type: str) -> AnswersCosts:
        plans = await imported("gateway.bills.plans.coverage")
        found: AnswersCosts = plans.divided(self._ledger, self._registry, cost_type)
        return found

    def wake(self) -> None:
        """Let `run` evaluate soon: sums were changed other than by new records."""
        self._woken.set()

    async def evaluate(self) -> BudgetRun:
        """Evaluate all budgets with every record that is closed by now."""
        async with self._turn:
            self._basis = None
            self._alone = {}
            await self._ledger.catch_up(self._log)
            basis = self._now()
            if not await self._ledger.is_complete():
                return _WAITING
            books = self.books()
            registry = self._registry
            figures = {
                budget.id: await books.figures(budget, registry.views.find(budget.view_id))
                for budget in registry.table(BudgetTable).all()
            }
            if not await self._ledger.is_complete():
                return _WAITING
            judged = await self._judged(
                lambda: {id: each for id, each in figures.items() if id not in self._alone}, books.now
            )
            alone = {id: each for id, each in self._alone.items() if each is not None}
            self.figures, self._basis = {**figures, **alone}, basis
        broken = sum(each.problem is not None for each in figures.values())
        return BudgetRun(evaluated=len(figures) - broken, broken=broken, told=len(judged.notices))

    async def evaluate_one(self, budget: SpendBudget) -> bool:
        """
        Evaluate a budget that was made or changed, and let `run` evaluate all soon; False while nothing is evaluated.

        Where nothing runs, all are evaluated.
        """
        if not self._is_running:
            return (await self.evaluate()).waits is None
        self.wake()
        async with self._single_turn:
            await self._ledger.catch_up(self._log)
            if not await self._ledger.is_complete():
                return False
            books = self.books()
            figures = await books.figures(budget, self._registry.views.find(budget.view_id))
            if not await self._ledger.is_complete():
                return False
            self._alone[budget.id] = None
            await self._judged(lambda: {budget.id: figures}, books.now)
            self._alone[budget.id] = figures
            self.figures = {**self.figures, budget.id: figures}
        return True

    async def evaluate_soon(self) -> None:
        """Let `run` evaluate all, as after a budget was deleted; where nothing runs, evaluate them."""
        self.wake()
        if not self._is_running:
            await self.evaluate()

    async def run(self) -> None:
        """Evaluate again and again. A failure is logged and left to the next evaluation."""
        self._is_running = True
        try:
            while True:
                self._woken.clear()
                try:
                    await self.evaluate()
                except Exception:  # noqa: BLE001 - the supervised loop
                    _log.exception(
                        "budgets wait for the next evaluation", extra={"action": "evaluation_put_off"}
                    )
                await self._until_due()
        finally:
            self._is_running = False

    async def _judged(self, figures: Callable[[], Mapping[str, BudgetFigures]], now: float) -> Judged:
        """Keep what is found by figures, which are asked for when the rows are at hand."""
        channels = self._registry.notices.channels
        return await self._registry.table(BudgetTable).keep(
            lambda kept: judge_all(figures(), kept, now=now, channels=channels, link=self._link)
        )

    async def _until_due(self) -> None:
        due = self._clock.monotonic() + EVERY_S
        while self._clock.monotonic() < due and not self._woken.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                basis = self._basis
                now = self._now()
                if basis is None or now.rules != basis.rules or now.reach - basis.reach >= RECORDS:
                    return

    def _now(self) -> _Basis:
        views = self._registry.views
        budgets = self._registry.table(BudgetTable).all()
        rules = tuple(rules_digest(budget, views.find(budget.view_id)) for budget in budgets)
        plans = tuple(f"{each.id}:{each.last_updated}" for each in self._registry.table(PlanTable).all())
        return _Basis(reach=self._ledger.needs(AI_TELEMETRY) or 0, rules=(*rules, *plans))


def gauges(figures: Iterable[BudgetFigures]) -> Iterator[BudgetGauge]:
    """Yield a gauge for each budget without owners, and for each owner of budgets with few."""
    for each in figures:
        if not each.periods or each.view is None:
            continue
        budget = each.budget
        running = each.periods[0]
        limit = limit_of(budget, running)
        owners = running.spent if budget.per else ("",)
        if len(owners) > MAX_OWNERS:
            continue
        for owner in owners:
            spent = running.spent.get(owner)
            actual = spent.actual if spent else 0
            expected = running.forecasts.get(owner)
            is_money = budget.measure == COST
            yield BudgetGauge(
                budget=budget.name,
                view=each.view.name,
                owner=owner,
                spent=actual / money.UNIT if is_money else None,
                limit=limit / money.UNIT if is_money and limit is not None else None,
                forecast=expected.total / money.UNIT if is_money and isinstance(expected, Forecast) else None,
                ratio=actual / limit if limit else None,
            )
