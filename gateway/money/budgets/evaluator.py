"""
Evaluation of budgets every ten minutes, after many new records, and after a change of a budget, a view, a
plan or a price.

The evaluator reads the totals and has no counts of its own, so restarts, late records and new prices need no
special handling. Gauge values are for graphs and have the precision of a float.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from gateway.bills.plans.declared import PlanTable
from gateway.core.first_use import import_in_thread
from gateway.intake.prices import PriceBook
from gateway.money.budgets.declared import COST, BudgetTable, JudgedBudgets, SpendBudget
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger
from gateway.money.budgets.forecast import Forecast
from gateway.money.budgets.judging import judge_all, planned_limit, rules_digest
from gateway.money.budgets.verdict_events import VerdictEvents
from gateway.money.budgets.verdicts import ACTING, BudgetVerdictBoard, build_verdict_table
from gateway.monitoring.snapshot import BudgetGauge
from spool import money
from spool.clock import Clock
from spool.errors import SpoolUnavailable, TotalsIncomplete
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostsLedger
from spool.ledger.slices import SlicedLedger
from spool.log.protocols import ReadableLog
from spool.loops import failure_reason, for_each_item, log_failure, repeat
from spool.record import AI_TELEMETRY, CURRENCY
from spool.registry.field_notes import example, words
from spool.registry.registry import Registry
from spool.registry.roles import EVERYTHING

EVERY_S = 600.0
LOOK_S = 15.0  # seconds between checks whether budgets need an early evaluation
RECORDS = 10_000  # number of new records after which budgets are evaluated early
_log = logging.getLogger(__name__)
# Maximum owners of a budget with time series of their own, because each takes memory in the monitoring
# system.
MAX_OWNERS = 200


class BudgetRun(msgspec.Struct, frozen=True, kw_only=True):
    """
    The result of one evaluation of all budgets. `told`: alerts sent. `waits`: why nothing was evaluated.
    """

    evaluated: Annotated[int, words("The number of evaluated budgets."), example(1)]
    broken: Annotated[int, words("The number of budgets that cannot be evaluated."), example(0)]
    told: Annotated[int, words("The number of alerts that were sent."), example(0)]
    # Evaluation waits, for example, while totals are counted again, because the sums are too low.
    waits: Annotated[str | None, words("Why nothing was evaluated, or null."), example(None)] = None


_WAITING = BudgetRun(evaluated=0, broken=0, told=0, waits="the totals are being counted again")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvaluationInputs:
    """
    What an evaluation of budgets was based on: the rules, and the number of the first uncounted record
    (`reach`). The next evaluation is due if the rules change or many records arrive.
    """

    reach: int
    rules: tuple[str, ...]


class BudgetEvaluator:
    """
    Runs one evaluation of all budgets at a time. The evaluation of a single budget runs independently and
    does not wait for it.

    `link` returns the address of a budget's page in the console.
    """

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        record_log: ReadableLog,
        clock: Clock,
        *,
        max_owners: Callable[[], int],
        verdict_amounts: Callable[[], bool] = lambda: True,
        verdict_events: Callable[[], bool] = lambda: False,
        hold_s: Callable[[], float] = lambda: 0.0,
        link: Callable[[SpendBudget], str],
        prices: Callable[[], PriceBook] = PriceBook.load,
    ) -> None:
        self.figures: Mapping[str, BudgetFigures] = {}  # budget id -> result of the last full evaluation
        self._events = VerdictEvents(registry, verdict_events, link)
        self.verdicts = BudgetVerdictBoard(
            registry,
            ledger,
            record_log,
            clock,
            self.budget_ledger,
            verdict_amounts,
            hold_s,
            self._events.report_changes,
        )
        self._registry = registry
        self._ledger = ledger
        self._log = record_log
        self._clock = clock
        self._max_owners = max_owners
        self._link = link
        self._prices = prices
        self._turn = asyncio.Lock()
        self._single_turn = asyncio.Lock()
        self._is_running = False
        # Figures of budgets evaluated singly since the last full evaluation began. These figures
        # may be newer than those of the full evaluation.
        self._alone: dict[str, BudgetFigures | None] = {}
        self._woken = asyncio.Event()
        self._basis: _EvaluationInputs | None = None

    def budget_ledger(self) -> BudgetLedger:
        return BudgetLedger(
            ledger=self._ledger,
            now=self._clock.now(),
            max_owners=self._max_owners(),
            divided=self._ledger_divided_by_plans,
        )

    async def _ledger_divided_by_plans(self, cost_type: str) -> CostsLedger:
        await import_in_thread("gateway.bills.plans.fees")
        from gateway.bills.plans import fees

        every_call = SlicedLedger(self._ledger, EVERYTHING.slice)
        return fees.ledger_divided_by_plans(
            every_call, self._ledger, self._registry, cost_type, self._clock.now(), prices=self._prices
        )

    def request_evaluation(self) -> None:
        """Make `run` evaluate soon, because totals changed without new records."""
        self._woken.set()

    async def evaluate_all(self) -> BudgetRun:
        try:
            return await self._evaluate_all_on_complete_totals()
        except TotalsIncomplete:
            return _WAITING

    async def _evaluate_all_on_complete_totals(self) -> BudgetRun:
        async with self._turn:
            self._basis = None
            self._alone = {}
            await self._ledger.require_complete_totals(self._log)
            basis = self._current_evaluation_inputs()
            books = self.budget_ledger()
            figures = await self._read_all_figures(books)
            judged = await self._judge_and_store(
                lambda: {
                    id: budget_figures for id, budget_figures in figures.items() if id not in self._alone
                },
                books.now,
            )
            lone_figures = {
                id: budget_figures for id, budget_figures in self._alone.items() if budget_figures is not None
            }
            self.figures, self._basis = {**figures, **lone_figures}, basis
            if self._events.is_reporting_changes:
                table = await asyncio.to_thread(
                    build_verdict_table, tuple(figures.values()), ACTING, books.now
                )
                await self._events.report_changes(table, books.now)
        broken = sum(budget_figures.problem is not None for budget_figures in figures.values())
        return BudgetRun(evaluated=len(figures) - broken, broken=broken, told=len(judged.notices))

    async def _read_all_figures(self, books: BudgetLedger) -> dict[str, BudgetFigures]:
        """
        Read the figures of all budgets. A budget that fails has a problem. Raises SpoolUnavailable if the storage
        failed, so that no budget seems to be broken.
        """
        figures: dict[str, BudgetFigures] = {}
        unavailable: list[SpoolUnavailable] = []
        views = self._registry.views

        async def read(budget: SpendBudget) -> None:
            figures[budget.id] = await books.read_figures(budget, views.find(budget.view_id))

        async def note_failure(budget: SpendBudget, error: Exception) -> None:
            if isinstance(error, SpoolUnavailable):
                unavailable.append(error)
                return
            log_failure("a budget could not be evaluated", error, action="budget_not_evaluated", id=budget.id)
            view = views.find(budget.view_id)
            figures[budget.id] = BudgetFigures(budget=budget, view=view, problem=failure_reason(error))

        await for_each_item(self._registry.declared_table(BudgetTable).all(), read, note_failure)
        if unavailable:
            raise unavailable[0]
        return figures

    async def evaluate_budget_if_totals_complete(self, budget: SpendBudget) -> bool:
        """
        Evaluate a budget created or changed, and make `run` evaluate all budgets soon.

        If `run` is not running, evaluate all budgets now. Return False if the totals are being counted again.
        """
        if not self._is_running:
            return (await self.evaluate_all()).waits is None
        self.request_evaluation()
        async with self._single_turn:
            try:
                await self._ledger.require_complete_totals(self._log)
                books = self.budget_ledger()
                figures = await books.read_figures(budget, self._registry.views.find(budget.view_id))
            except TotalsIncomplete:
                return False
            self._alone[budget.id] = None
            await self._judge_and_store(lambda: {budget.id: figures}, books.now)
            self._alone[budget.id] = figures
            self.figures = {**self.figures, budget.id: figures}
        return True

    async def evaluate_soon(self) -> None:
        """
        Evaluate all budgets soon, for example after a deletion. If `run` is not running, evaluate them now.
        """
        self.request_evaluation()
        if not self._is_running:
            await self.evaluate_all()

    async def run(self) -> None:
        """Evaluate all budgets repeatedly."""
        self._is_running = True
        try:
            await repeat(
                self._evaluate_and_wait,
                every_s=0.0,
                failed="the budgets could not be evaluated",
                action="evaluation_put_off",
                retry_s=LOOK_S,
            )
        finally:
            self._is_running = False

    async def _evaluate_and_wait(self) -> None:
        self._woken.clear()
        try:
            await self.evaluate_all()
        except Exception as error:  # noqa: BLE001 - the next evaluation tries again
            log_failure("the budgets could not be evaluated", error, action="evaluation_put_off")
        await self._wait_until_due()

    async def _judge_and_store(
        self, figures: Callable[[], Mapping[str, BudgetFigures]], now: float
    ) -> JudgedBudgets:
        """
        Judge the figures and store the result in one transaction. `figures` is called inside the transaction.
        """
        channels = self._registry.notices.channels
        return await self._registry.declared_table(BudgetTable).judge_and_store_alerts(
            lambda stored_alerts: judge_all(
                figures(), stored_alerts, now=now, channels=channels, link=self._link
            )
        )

    async def _wait_until_due(self) -> None:
        due = self._clock.monotonic() + EVERY_S
        while self._clock.monotonic() < due and not self._woken.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                basis = self._basis
                now = self._current_evaluation_inputs()
                if basis is None or now.rules != basis.rules or now.reach - basis.reach >= RECORDS:
                    return

    def _current_evaluation_inputs(self) -> _EvaluationInputs:
        views = self._registry.views
        budgets = self._registry.declared_table(BudgetTable).all()
        rules = tuple(rules_digest(budget, views.find(budget.view_id)) for budget in budgets)
        plans = tuple(
            f"{plan.id}:{plan.last_updated}" for plan in self._registry.declared_table(PlanTable).all()
        )
        return _EvaluationInputs(
            reach=self._ledger.lowest_needed_number(AI_TELEMETRY) or 0, rules=(*rules, *plans)
        )


def budget_gauges(figures: Iterable[BudgetFigures]) -> Iterator[BudgetGauge]:
    """
    Yield a gauge for each budget without owners. For a budget with at most MAX_OWNERS owners, yield a
    gauge per owner.
    """
    for budget_figures in figures:
        if not budget_figures.periods or budget_figures.view is None:
            continue
        budget = budget_figures.budget
        running = budget_figures.periods[0]
        limit = planned_limit(budget, running)
        owners = running.spent if budget.per else ("",)
        if len(owners) > MAX_OWNERS:
            continue
        for owner in owners:
            spent = running.spent.get(owner)
            actual = spent.actual if spent else 0
            expected = running.forecasts.get(owner)
            # only budgets in dollars have these metrics
            is_money = budget.measure == COST and budget.currency == CURRENCY
            yield BudgetGauge(
                budget=budget.name,
                view=budget_figures.view.name,
                owner=owner,
                spent=actual / money.UNIT if is_money else None,
                limit=limit / money.UNIT if is_money and limit is not None else None,
                forecast=expected.total / money.UNIT if is_money and isinstance(expected, Forecast) else None,
                ratio=actual / limit if limit else None,
            )
