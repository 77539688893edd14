"""
Exact totals for budgets, by period and owner, and the history that forecasts need.

Amounts are units (spool.money). Tokens and calls are also scaled to units, so that all budgets are
judged in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from gateway.money.budgets.declared import CALLS, COST, TOKENS, SpendBudget, problem_with_units
from gateway.money.budgets.forecast import (
    HOURS_DAYS,
    WINDOW_DAYS,
    Forecast,
    History,
    TooEarly,
    forecast_total,
)
from gateway.money.budgets.joined import BudgetOfView, JoinedBudgets, group_budgets_by_query
from gateway.money.budgets.periods import BudgetPeriod, judged_periods, period_at
from spool import money
from spool.currencies import SCALE, CurrencyConverter, find_no_rate
from spool.errors import NotKept
from spool.ledger.dimensions import PLAN_TYPES, TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow, CostsLedger
from spool.ledger.sums import DAY_S
from spool.meters import METERS
from spool.meters import SCALE as OF_METERS
from spool.record import CURRENCY
from spool.registry.documents import replace_fields
from spool.registry.views import SavedView

_BILLS_S = 62 * DAY_S  # how far to search back for the last day with a bill, in seconds
_MEASURES = {
    COST: ("calls",),
    CALLS: ("calls",),
    TOKENS: ("input_tokens", "output_tokens", "cached_input_tokens", "cached_output_tokens"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSpend:
    """
    The spend of an owner in a period. `unpriced` is the number of calls whose cost is unknown, so the true
    amount is higher if there are any.

    `unconverted` maps currencies without an exchange rate to amounts, which the spend does not include.
    """

    actual: int
    calls: int
    unpriced: int
    unconverted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFigures:
    """
    The spend of one period by owner. The owner "" is that of a budget without owners, or an unknown owner.

    `is_whole` means that the totals contain all records of the period. `forecasts` exist only for the running
    period. `owners_left_out` is the number of owners beyond the limit. The owners with the lowest spend are
    left out first.
    """

    period: BudgetPeriod
    spent: Mapping[str, OwnerSpend]
    is_whole: bool = True
    forecasts: Mapping[str, Forecast | TooEarly] = field(default_factory=dict)
    owners_left_out: int = 0

    @property
    def owner_count(self) -> int:
        return len(self.spent) + self.owners_left_out

    @property
    def total_spend(self) -> OwnerSpend:
        return OwnerSpend(
            actual=sum(spend.actual for spend in self.spent.values()),
            calls=sum(spend.calls for spend in self.spent.values()),
            unpriced=sum(spend.unpriced for spend in self.spent.values()),
            unconverted=money.add_by_currency(spend.unconverted for spend in self.spent.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFigures:
    """
    A budget with its view and its figures.

    `periods` are the judged periods. The running period is first. If `problem` is set, there are no periods.
    `per_label` is the label of the dimension `per`. `rate` is the value of one unit of the budget's currency
    in dollars, times SCALE, or None if unknown.
    """

    budget: SpendBudget
    view: SavedView | None
    periods: Sequence[PeriodFigures] = ()
    problem: str | None = None
    per_label: str = ""
    billed_through: str | None = None  # last day with a bill, only for a budget of billed costs
    rate: int | None = SCALE


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLedger:
    """
    Queries of the ledger's totals for budgets, up to `now`. If several budgets of a view need the same
    result, it is queried once.
    """

    ledger: Ledger
    now: float
    max_owners: int
    # a function that returns the totals without the calls that plans cover, or only the totals of these calls
    divided: Callable[[str], Awaitable[CostsLedger]]
    _known: dict[tuple[object, ...], Mapping[tuple[datetime, str], OwnerSpend]] = field(default_factory=dict)
    # sums that a query for several budgets returned, by budget and start of the period
    _joined: dict[tuple[str, datetime], Mapping[tuple[datetime, str], OwnerSpend]] = field(
        default_factory=dict
    )
    # cached result of `known_until`, as a list with at most one value
    _billed_until: list[float] = field(default_factory=list)

    async def read_figures(self, budget: SpendBudget, view: SavedView | None) -> BudgetFigures:
        problem = evaluation_problem(budget, view, self.ledger, self.now)
        if problem is not None or view is None:
            return BudgetFigures(budget=budget, view=view, problem=problem)
        try:
            running, *late = [
                await self._period_figures(budget, view, period)
                for period in judged_periods(budget, self.now)
            ]
            forecasts = await self._forecast_owners(budget, view, running)
        except NotKept as error:
            return BudgetFigures(budget=budget, view=view, problem=str(error))
        running = replace(running, forecasts=forecasts)
        return BudgetFigures(
            budget=budget,
            view=view,
            periods=[running, *late],
            per_label=self.ledger.dimension_label(budget.per),
            billed_through=await self._last_billed_day(budget),
            rate=budget_currency_rate_in_dollars(budget, self.ledger, self.now),
        )

    async def read_running_figures(self, budget: SpendBudget, view: SavedView | None) -> BudgetFigures:
        """Return the figures of the running period, without a forecast."""
        problem = evaluation_problem(budget, view, self.ledger, self.now)
        if problem is not None or view is None:
            return BudgetFigures(budget=budget, view=view, problem=problem)
        period = period_at(self.now, budget.granularity, budget.zone)
        try:
            figures = await self._period_figures(budget, view, period)
        except NotKept as error:
            return BudgetFigures(budget=budget, view=view, problem=str(error))
        return BudgetFigures(budget=budget, view=view, periods=[figures])

    async def read_sums_of_similar_budgets(
        self, budgets: Sequence[BudgetOfView], last_owner_counts: Mapping[str, int]
    ) -> None:
        """
        Read the sums that `read_running_figures` needs, with one query for budgets that differ only in one value of
        their views. `last_owner_counts` are the numbers of owners that budgets had last.
        """
        known = self.ledger.dimensions()
        plain = {*known} - {dimension.name for dimension in self.ledger.derived_dimensions()}
        sound = [each for each in budgets if evaluation_problem(*each, self.ledger, self.now) is None]
        for group in group_budgets_by_query(sound, last_owner_counts, plain):
            budget, view = group.example
            period = period_at(self.now, budget.granularity, budget.zone)
            query = _budget_query(budget, view, period.start, period.end, TOTAL)
            query = replace(
                query,
                group_by=[group.dimension, *query.group_by],
                include={**view.include, group.dimension: tuple(group.by_value)},
            )
            try:
                rows = await self.ledger.costs(query)
            except (
                NotKept
            ):  # skipped here, because `read_running_figures` reports missing hours for each budget
                continue
            by_budget = await asyncio.to_thread(_spend_by_budget, group, budget.measure, rows)
            self._joined.update({(id, period.start): sums for id, sums in by_budget.items()})

    async def known_until(self, budget: SpendBudget) -> float:
        """
        Return the time until which the money of a budget is known: now, or for billed money the end of the
        last day with a bill.
        """
        if not budget.cost_type_mask:
            return self.now
        if not self._billed_until:
            days = await self.ledger.billed_days(int(self.now) - _BILLS_S, int(self.now))
            billed_days = [day.day for day in days if day.source and not day.corrected_day]
            self._billed_until.append(float(max(billed_days) + DAY_S) if billed_days else 0.0)
        return self._billed_until[0]

    async def _last_billed_day(self, budget: SpendBudget) -> str | None:
        until = await self.known_until(budget)
        has_bill = budget.cost_type_mask and until
        return f"{datetime.fromtimestamp(until - DAY_S, UTC):%Y-%m-%d}" if has_bill else None

    async def spend_by_period(
        self,
        budget: SpendBudget,
        view: SavedView,
        since: datetime,
        until: datetime,
        granularity: str,
        *,
        by_owner: bool,
    ) -> Mapping[tuple[datetime, str], OwnerSpend]:
        """Sum the spend by period in the budget's zone. If `by_owner` is True, also split it by owner."""
        owner = budget.per if by_owner else ""
        of_budget = (budget.measure, budget.cost_type, budget.currency, budget.time_zone)
        of_view = (view.id, view.version, *of_budget)
        cache_key = (*of_view, since, until, granularity)
        if not owner and cache_key in self._known:
            return self._known[cache_key]
        query = _budget_query(budget, view, since, until, granularity, by_owner=by_owner)
        divides = budget.cost_type in PLAN_TYPES
        ledger = await self.divided(budget.cost_type) if divides else self.ledger
        rows = await ledger.costs(query) if since < until else []
        # This sum runs in a thread, because with thousands of owners it would block the senders for too long.
        spent_by_owner = await asyncio.to_thread(_spend_by_owner, budget.measure, rows)
        if not owner:  # only results without owners are cached, because results by owner are too large
            self._known[cache_key] = spent_by_owner
        return spent_by_owner

    async def daily_spend_by_owner(
        self, budget: SpendBudget, view: SavedView, count: int, *, by_owner: bool
    ) -> dict[str, dict[date, int]]:
        """Return the spend of the last `count` complete days in UTC, by owner."""
        until = datetime.fromtimestamp(await self.known_until(budget), UTC)
        midnight = until.replace(hour=0, minute=0, second=0, microsecond=0)
        in_utc = _with_zone_utc(budget)
        sums = await self.spend_by_period(
            in_utc, view, midnight - timedelta(days=count), midnight, "daily", by_owner=by_owner
        )
        days_by_owner: dict[str, dict[date, int]] = {}
        for (start, owner), spent in sums.items():
            days_by_owner.setdefault(owner, {})[start.date()] = spent.actual
        return days_by_owner

    async def spend_by_hour(self, budget: SpendBudget, view: SavedView) -> tuple[int, ...]:
        """
        Return the spend by hour of the day in UTC, over HOURS_DAYS days and all owners. Bills state no hours,
        so for billed money all hours are equal.
        """
        if budget.cost_type_mask:
            return (1,) * 24
        until = datetime.fromtimestamp(self.now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since = await self.ledger.earliest_moment_with_hourly_sums(until - timedelta(days=HOURS_DAYS))
        hourly = [0] * 24
        sums = await self.spend_by_period(
            _with_zone_utc(budget), view, since, until, "hourly", by_owner=False
        )
        for (start, _), spent in sums.items():
            hourly[start.hour] += spent.actual
        return tuple(hourly)

    async def _period_figures(
        self, budget: SpendBudget, view: SavedView, period: BudgetPeriod
    ) -> PeriodFigures:
        # Query the whole period and not only until now, because a sender's wrong clock may have put calls
        # into the future.
        sums = self._joined.get((budget.id, period.start))
        if sums is None:
            sums = await self.spend_by_period(budget, view, period.start, period.end, TOTAL, by_owner=True)
        by_spend = sorted(
            ((owner, spent) for (_, owner), spent in sums.items()), key=lambda item: -item[1].actual
        )
        return PeriodFigures(
            period=period,
            spent=dict(by_spend[: self.max_owners]),
            is_whole=await self.ledger.start_of_complete_hours() <= period.start.timestamp(),
            owners_left_out=len(by_spend[self.max_owners :]),
        )

    async def _forecast_owners(
        self, budget: SpendBudget, view: SavedView, running: PeriodFigures
    ) -> Mapping[str, Forecast | TooEarly]:
        """
        Forecast each owner if forecast alerts are on. Without forecast alerts, forecast only
        budgets without owners.
        """
        if budget.per and not any(flag == "Y" for flag in budget.forecast_alerts.values()):
            return {}
        days = await self.daily_spend_by_owner(budget, view, WINDOW_DAYS, by_owner=True)
        hours = await self.spend_by_hour(budget, view)
        owners = running.spent if budget.per else {"": running.spent.get("")}
        at = await self.known_until(budget)

        def forecast_each_owner() -> Mapping[str, Forecast | TooEarly]:
            return {
                owner: self.forecast_period(
                    running.period, History(days=days.get(owner, {}), hours=hours), spent, at
                )
                for owner, spent in owners.items()
            }

        return await asyncio.to_thread(forecast_each_owner)

    def forecast_period(
        self, period: BudgetPeriod, history: History, spent: OwnerSpend | None, known_until: float
    ) -> Forecast | TooEarly:
        now = datetime.fromtimestamp(known_until, UTC)
        if now < period.start:
            return TooEarly(reason="too early for a forecast: no bill covers a day of this period")
        actual = spent.actual if spent else 0
        return forecast_total(history, start=period.start, end=period.end, now=now, actual=actual)


def budget_currency_rate_in_dollars(budget: SpendBudget, ledger: Ledger, now: float) -> int | None:
    """Return today's value of one unit of the budget's currency in dollars, times SCALE, or None."""
    return CurrencyConverter(ledger.rates or find_no_rate, CURRENCY).rate(budget.currency, int(now))


def evaluation_problem(budget: SpendBudget, view: SavedView | None, ledger: Ledger, now: float) -> str | None:
    """Return why a budget cannot be evaluated, or None if it can."""
    known = ledger.dimensions()
    if view is None:
        return "its view no longer exists; choose another view"
    if budget.per and budget.per not in known:
        return (
            f"the dimension {budget.per} no longer exists; add the tag to [ledger] tags, publish a "
            "definition of the dimension, or change per"
        )
    if budget_currency_rate_in_dollars(budget, ledger, now) is None:
        return (
            f"no exchange rate from {CURRENCY} to {budget.currency} is known for today; add one to the section "
            "[currency] of the configuration, or change the currency"
        )
    broken = view.broken_reason(known)
    if broken is not None:
        return f"its view {view.name!r} is broken: {broken}"
    return problem_with_units(budget, view)


def _budget_query(
    budget: SpendBudget,
    view: SavedView,
    since: datetime,
    until: datetime,
    granularity: str,
    *,
    by_owner: bool = True,
) -> CostQuery:
    return CostQuery(
        since=since,
        until=until,
        granularity=granularity,
        group_by=[budget.per] if by_owner and budget.per else [],
        include=view.include,
        exclude=view.exclude,
        zone=budget.zone,
        measures=_MEASURES.get(budget.measure, ("calls",)),
        meter=budget.measure if budget.measure in METERS else "",
        currency=budget.currency,
        arranged=budget.cost_type_mask,
    )


def _with_zone_utc(budget: SpendBudget) -> SpendBudget:
    return replace_fields(budget, time_zone="UTC")


def _spend_by_budget(
    group: JoinedBudgets, measure: str, rows: Sequence[CostRow]
) -> Mapping[str, Mapping[tuple[datetime, str], OwnerSpend]]:
    by_value: dict[str, dict[tuple[datetime, str], OwnerSpend]] = {value: {} for value in group.by_value}
    for row in rows:
        value, *owner = row.group
        by_value[value or ""][row.start, (owner[0] if owner else "") or ""] = _row_spend(measure, row)
    return {budget.id: by_value[value] for value, budgets in group.by_value.items() for budget in budgets}


def _spend_by_owner(measure: str, rows: Sequence[CostRow]) -> Mapping[tuple[datetime, str], OwnerSpend]:
    return {(row.start, (row.group[0] if row.group else "") or ""): _row_spend(measure, row) for row in rows}


def _row_spend(measure: str, row: CostRow) -> OwnerSpend:
    """Return the spend of a row in units. Calls that a gateway's cache answered count as no spend."""
    if measure == COST:
        actual = money.text_to_units(row.cost)
    elif measure == CALLS:
        actual = (row.calls - row.cached) * money.UNIT
    elif measure in METERS:
        actual = row.metered * (money.UNIT // OF_METERS)
    else:
        tokens = row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens
        actual = tokens * money.UNIT
    unconverted = row.unconverted if measure == COST else {}
    return OwnerSpend(
        actual=actual, calls=row.calls - row.cached, unpriced=row.unpriced, unconverted=unconverted
    )
