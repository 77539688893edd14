"""
Comparison of the counters of enforcers with the totals.

Two sums bound each counter: the calls of all hours that ended well before the reading, and all calls until the end of
the hour of the reading. A counter between them is right.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

from gateway.bills.enforcers import faults
from gateway.bills.enforcers.faults import EnforcerFault, JudgedReading, MoneyBudget, SpendBounds
from gateway.bills.enforcers.source import EnforcerType
from gateway.bills.enforcers.types.list import TYPES
from gateway.configuration.sections import EnforcerSettings
from spool.clock import Clock
from spool.errors import NotKept, TotalsIncomplete
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.sums import HOUR_S
from spool.record import CURRENCY
from spool.registry.tables.enforcers import EnforcerLimit, EnforcerReading, EnforcerState, EnforcerTable

MARGIN_S = 120.0  # seconds by which an enforcer may count a call later than the source reports it
DELAY_S = 900.0  # assumed reporting delay of a source, in seconds, if none was measured
RESET_S = 900.0  # seconds after the start of a window until which a counter may be reset
# minimum age in seconds of a reading before it is judged, so that all its calls have arrived
SETTLE_S = 1800.0
FRESH_S = 60.0  # seconds for which a comparison with an enforcer is reused
MAX_WINDOWS = 100  # windows compared for each enforcer, because each needs sums of its own
TOO_MANY_WINDOWS = f"the enforcer of this limit has more than {MAX_WINDOWS} windows"
LIVE_S = 2 * 86400.0  # how far back to look for the newest call of an enforcer


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAudit:
    """
    The result of comparing one limit with the counted calls. `reason` says why the limit is not compared, or
    "" if it is. `judged_at` is the time of the last compared reading.
    """

    enforcer: str
    type: str
    limit: EnforcerLimit
    read_at: float
    reason: str = ""
    band: SpendBounds | None = None  # lower and upper bound of our spend at the last judged reading
    judged_at: float | None = None
    faults: Sequence[EnforcerFault] = ()


@dataclass(frozen=True, kw_only=True)
class AuditSources:
    """The inputs of an audit. `delays` returns, by source, the seconds in which 99 % of the calls arrive."""

    table: EnforcerTable
    ledger: Ledger
    clock: Clock
    settings: Callable[[], Sequence[EnforcerSettings]]
    delays: Callable[[], Awaitable[Mapping[str, float]]]
    budgets: Callable[[], Sequence[MoneyBudget]]


class EnforcerAuditor:
    def __init__(self, sources: AuditSources) -> None:
        self._sources = sources
        self._turn = asyncio.Lock()
        self._last: _AuditResult | None = None

    async def audit_limits(self) -> Sequence[LimitAudit]:
        """Compare all limits of all enforcers. Without a new reading, the result is returned for FRESH_S seconds."""
        async with self._turn:
            now = self._sources.clock.now()
            enforcers = self._sources.settings()
            states = [(each, await self._sources.table.state(each.name)) for each in enforcers]
            last = self._last
            if last is None or last.states != states or not 0 <= now - last.at < FRESH_S:
                try:
                    self._sources.ledger.require_caught_up()
                    last = self._last = _AuditResult(now, states, await self._audit_all(now))
                except TotalsIncomplete:
                    return ()
            return last.audits

    async def _audit_all(self, now: float) -> Sequence[LimitAudit]:
        audits: list[LimitAudit] = []
        delays = await self._sources.delays()
        for enforcer in self._sources.settings():
            readings = await self._sources.table.readings(enforcer.name)
            if readings:
                of_type = TYPES[enforcer.type]
                sums = _EnforcerTotalsQueries(
                    self._sources.ledger, of_type, now, _call_delay_of_enforcer_s(of_type, delays)
                )
                budgets = self._sources.budgets()
                audit = await asyncio.to_thread(_EnforcerAudit, enforcer, readings, sums, budgets)
                audits += await audit.audit_limits(readings[-1].limits)
        return audits


@dataclass(frozen=True, slots=True)
class _AuditResult:
    at: float
    states: Sequence[tuple[EnforcerSettings, EnforcerState]]
    audits: Sequence[LimitAudit]


def _call_delay_of_enforcer_s(enforcer_type: EnforcerType, delay_s_by_source: Mapping[str, float]) -> float:
    sources = enforcer_type.scope.get("source", ())
    known = [delay for source, delay in delay_s_by_source.items() if not sources or source in sources]
    return max(known, default=DELAY_S)


@dataclass(slots=True)
class _EnforcerTotalsQueries:
    """
    Queries of the totals for one enforcer. Results are cached, because many limits have the same window.
    """

    ledger: Ledger
    of_type: EnforcerType
    now: float
    delay_s: float
    _known: dict[tuple[object, ...], Mapping[tuple[str, ...], Decimal]] = field(default_factory=dict)
    _unpriced: dict[tuple[str, float], Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    _newest: float | None = None
    _whole_since: int | None = None

    async def cost_by_values(
        self, dimension_names: tuple[str, ...], since: float, until: float, status: tuple[str, ...] = ()
    ) -> Mapping[tuple[str, ...], Decimal]:
        """
        Return the cost of each combination of the dimensions' values. Raises NotKept if the time splits a
        stored sum.
        """
        key = dimension_names, since, until, status
        if key not in self._known:
            query = CostQuery(
                since=_to_datetime(since),
                until=_to_datetime(until),
                granularity=TOTAL,
                group_by=list(dimension_names),
                include={**self.of_type.scope, **({"status": status} if status else {})},
            )
            rows = await self.ledger.costs(query) if since < until else ()
            self._known[key] = {tuple(value or "" for value in row.group): Decimal(row.cost) for row in rows}
        return self._known[key]

    def clear_cached_sums(self) -> None:
        """Clear the cache, so that memory has the results of only one window."""
        self._known.clear()
        self._unpriced.clear()

    async def unpriced_calls_by_model(self, dimension: str, since: float) -> Mapping[str, Mapping[str, int]]:
        """Return, by value of the dimension and by model, the number of calls without a price."""
        key = dimension, since
        if key not in self._unpriced:
            query = CostQuery(
                since=_to_datetime(since),
                until=_to_datetime(_next_hour(self.now)),
                granularity=TOTAL,
                group_by=[*([dimension] if dimension else []), "model"],
                include=self.of_type.scope,
            )
            found: dict[str, dict[str, int]] = defaultdict(dict)
            for row in await self.ledger.costs(query):
                if row.unpriced:
                    value = (row.group[0] or "") if dimension else ""
                    found[value][row.group[-1] or ""] = row.unpriced
            self._unpriced[key] = found
        return self._unpriced[key]

    async def has_successful_call(self, dimension: str, value: str, since: float) -> bool:
        names = (dimension,) if dimension else ()
        known = await self.cost_by_values(names, since, _next_hour(self.now), ("ok",))
        return ((value,) if dimension else ()) in known

    async def hours_with_calls(
        self, dimension: str, value: str, since: float
    ) -> Sequence[tuple[float, int, Decimal]]:
        """Return hours with successful calls: their start, calls and cost."""
        query = CostQuery(
            since=_to_datetime(since),
            until=_to_datetime(_next_hour(self.now)),
            granularity="hourly",
            group_by=[],
            include={**self.of_type.scope, "status": ("ok",), **({dimension: (value,)} if dimension else {})},
        )
        rows = await self.ledger.costs(query) if since < _next_hour(self.now) else ()
        return [(row.start.timestamp(), row.calls, Decimal(row.cost)) for row in rows if row.calls]

    async def no_record_missing_since(self) -> int:
        if self._whole_since is None:
            self._whole_since = await self.ledger.start_of_complete_hours()
        return self._whole_since

    async def newest_call_hour(self) -> float:
        if self._newest is None:
            until = _next_hour(self.now)
            since = max(until - LIVE_S, (await self.ledger.hourly_sums_start()).timestamp())
            query = CostQuery(
                since=_to_datetime(_next_hour(since) if since % HOUR_S else since),
                until=_to_datetime(until),
                granularity="hourly",
                group_by=[],
                include=self.of_type.scope,
            )
            rows = await self.ledger.costs(query)
            self._newest = max((row.start.timestamp() for row in rows if row.calls), default=0.0)
        return self._newest

    def has_all_calls_until(self, at: float, newest_call_hour: float) -> bool:
        """
        Return whether all calls until a time have arrived: the time is long past, and a later call has
        arrived.
        """
        return at <= self.now - max(SETTLE_S, 2 * self.delay_s) and at < newest_call_hour


class _EnforcerAudit:
    """The audit of one enforcer: its readings of limits, compared with the counted costs."""

    def __init__(
        self,
        enforcer: EnforcerSettings,
        readings: Sequence[EnforcerReading],
        sums: _EnforcerTotalsQueries,
        budgets: Sequence[MoneyBudget],
    ) -> None:
        self._enforcer = enforcer
        self._last_at = readings[-1].at
        self._sums = sums
        self._budgets: dict[tuple[str, str | None] | None, list[MoneyBudget]] = defaultdict(list)
        for budget in budgets:
            self._budgets[self._budget_dimension_and_value(budget)].append(budget)
        self._series: dict[tuple[str, ...], list[tuple[float, EnforcerLimit]]] = {}
        for reading in readings:
            for limit in reading.limits:
                self._series.setdefault(limit.key, []).append((reading.at, limit))

    async def audit_limits(self, limits: Sequence[EnforcerLimit]) -> Sequence[LimitAudit]:
        """
        Compare limits with the counted calls, one window after the other. Windows beyond the MAX_WINDOWS most
        frequent ones are not compared.
        """
        windows: dict[float | None, list[EnforcerLimit]] = defaultdict(list)
        for limit in limits:
            windows[limit.starts_at].append(limit)
        audits = []
        for number, window in enumerate(sorted(windows.values(), key=len, reverse=True)):
            self._sums.clear_cached_sums()
            for limit in window:
                await asyncio.sleep(0)  # pending requests get a turn after each limit
                too_many = TOO_MANY_WINDOWS if number >= MAX_WINDOWS else ""
                audits.append(await self._audit_limit(limit, too_many))
        return audits

    async def _audit_limit(self, limit: EnforcerLimit, reason_to_skip: str) -> LimitAudit:
        series = self._series[limit.key]
        shown = LimitAudit(
            enforcer=self._enforcer.name, type=self._enforcer.type, limit=limit, read_at=self._last_at
        )
        reason = await self._reason_not_comparable(limit) or reason_to_skip
        value = "" if reason else await self._value_with_cost(limit)
        if not reason and value is None:
            reason = "no call with the name in this limit was reported in its window"
        if reason or value is None:
            return replace(shown, reason=reason, faults=faults.rising_counter_faults(series))
        try:
            judged = [
                await self._judge_reading(at, each, value)
                for at, each in await self._last_window_readings_with_complete_sums(series)
            ]
            found = await self._find_faults(limit, series, judged, value)
        except NotKept as error:
            return replace(shown, reason=str(error))
        if not judged:
            return replace(
                shown, faults=found, reason="no reading of this limit is old enough to be compared"
            )
        last = judged[-1]
        return replace(shown, faults=found, band=last.band, judged_at=last.at)

    async def _reason_not_comparable(self, limit: EnforcerLimit) -> str:
        if limit.unmatched:
            return limit.unmatched
        if limit.currency != CURRENCY:
            return f"the amounts of this limit are in {limit.currency}"
        if limit.model:
            return "the counter of this limit is for one model"
        if limit.starts_at is None:
            return "the enforcer does not state when its window began"
        if await self._sums.no_record_missing_since() > limit.starts_at:
            return "the totals lack a part of this limit's window"
        return ""

    async def _value_with_cost(self, limit: EnforcerLimit) -> str | None:
        if not limit.dimension:
            return ""
        assert limit.starts_at is not None
        try:
            known = await self._sums.cost_by_values(
                (limit.dimension,), _hour_start(limit.starts_at), _next_hour(self._sums.now)
            )
        except NotKept:
            return None
        return next((value for value in limit.values if (value,) in known), None)

    async def _last_window_readings_with_complete_sums(
        self, limit_series: Sequence[tuple[float, EnforcerLimit]]
    ) -> Sequence[tuple[float, EnforcerLimit]]:
        newest = await self._sums.newest_call_hour()
        last = limit_series[-1][1]
        settled = [(at, limit) for at, limit in limit_series if self._sums.has_all_calls_until(at, newest)][
            -faults.IN_A_ROW :
        ]
        same = [
            (at, limit)
            for at, limit in settled
            if (limit.limit, limit.starts_at, limit.ends_at) == (last.limit, last.starts_at, last.ends_at)
            and (limit.ends_at is None or at < limit.ends_at)
        ]
        return same if len(same) == len(settled) else ()

    async def _judge_reading(self, read_at: float, limit: EnforcerLimit, value: str) -> JudgedReading:
        spent = None if limit.spent is None else Decimal(limit.spent)
        return JudgedReading(at=read_at, spent=spent, band=await self._spend_bounds(limit, value, read_at))

    async def _spend_bounds(
        self,
        limit: EnforcerLimit,
        value: str,
        read_at: float,
        second_dimension: str = "",
        second_value: str = "",
    ) -> SpendBounds:
        assert limit.starts_at is not None
        low_until = _hour_start(read_at - self._sums.delay_s - MARGIN_S)
        # after its reset, a counter may lack earlier calls, and an enforcer may reset it some minutes late
        low_since = _next_hour(limit.starts_at + RESET_S - 1)
        low = await self._sum_spend(
            limit.dimension, value, low_since, low_until, second_dimension, second_value
        )
        high = await self._sum_spend(
            limit.dimension,
            value,
            _hour_start(limit.starts_at),
            _next_hour(read_at),
            second_dimension,
            second_value,
        )
        return SpendBounds(low=low, high=high)

    async def _sum_spend(
        self, dimension: str, value: str, since: float, until: float, second_dimension: str, second_value: str
    ) -> Decimal:
        names = tuple(name for name in (dimension, second_dimension) if name)
        wanted = tuple(each for name, each in ((dimension, value), (second_dimension, second_value)) if name)
        return (await self._sums.cost_by_values(names, since, until)).get(wanted, Decimal(0))

    async def _find_faults(
        self,
        limit: EnforcerLimit,
        limit_series: Sequence[tuple[float, EnforcerLimit]],
        judged: Sequence[JudgedReading],
        value: str,
    ) -> Sequence[EnforcerFault]:
        budgets = self._budgets[limit.dimension, None] + self._budgets[limit.dimension, value]
        found = faults.differing_limit_faults(limit, budgets, self._last_at)
        found += faults.non_monthly_window_faults(limit, budgets, self._last_at)
        found += faults.late_reset_faults(limit_series)
        reset = faults.find_wrong_reset(limit_series)
        if reset is not None and await self._is_consistent_with_reset(reset, limit_series, value):
            found.append(reset.fault(limit))
        elif len(judged) == faults.IN_A_ROW:
            found += await self._counter_faults(limit, limit_series, judged, value)
        found += await self._missing_refusal_faults(limit, limit_series, value)
        found += await self._unpriced_faults(limit, value)
        return found

    async def _is_consistent_with_reset(
        self, reset: faults.UnexpectedReset, limit_series: Sequence[tuple[float, EnforcerLimit]], value: str
    ) -> bool:
        for at, limit in limit_series:
            if at >= reset.after and limit.spent is not None:
                high = await self._sum_spend(
                    limit.dimension, value, _hour_start(reset.before), _next_hour(at), "", ""
                )
                if not faults.is_at_most_with_tolerance(Decimal(limit.spent), high):
                    return False
        return True

    async def _counter_faults(
        self,
        limit: EnforcerLimit,
        limit_series: Sequence[tuple[float, EnforcerLimit]],
        judged: Sequence[JudgedReading],
        value: str,
    ) -> list[EnforcerFault]:
        if not faults.are_outside_bands(judged):
            return []
        cause = faults.proven_miscount_cause(judged, [each for _, each in limit_series])
        cause = cause or await self._cause_if_counter_stands_still(limit_series, judged[-1], value)
        cause = cause or await self._missing_calls_phrase(limit, limit_series, judged, value)
        return [faults.enforcer_counter_mismatch_fault(limit, judged[-1], cause)]

    async def _cause_if_counter_stands_still(
        self, limit_series: Sequence[tuple[float, EnforcerLimit]], last: JudgedReading, value: str
    ) -> str:
        streak = []
        for at, limit in reversed([each for each in limit_series if each[0] <= last.at]):
            if limit.spent is None or Decimal(limit.spent) != last.spent:
                break
            streak.append((at, limit))
        if len(streak) < faults.IN_A_ROW:
            return ""
        return faults.standstill_cause(await self._judge_reading(*streak[-1], value), last)

    async def _missing_calls_phrase(
        self,
        limit: EnforcerLimit,
        limit_series: Sequence[tuple[float, EnforcerLimit]],
        judged: Sequence[JudgedReading],
        value: str,
    ) -> str:
        """
        Describe the calls that a limit's counter lacks, or return "". At each reading, the counter must lie
        within the bounds of our sum without these calls. At least one reading must be from a time without
        running calls, because only then is our sum exact.
        """
        assert limit.starts_at is not None
        same = [
            (at, each)
            for at, each in limit_series
            if at <= judged[-1].at and (each.starts_at, each.ends_at) == (limit.starts_at, limit.ends_at)
        ]
        readings = [await self._judge_reading(at, each, value) for at, each in same]
        exact = [each for each in readings if faults.is_sum_exact(each)]
        if not exact:
            return ""
        for by in ("status", "model"):
            names = tuple(name for name in (limit.dimension, by) if name)
            groups = await self._sums.cost_by_values(
                names, _hour_start(limit.starts_at), _next_hour(judged[-1].at)
            )
            for group in sorted({key[-1] for key in groups if not limit.dimension or key[0] == value}):
                bands = [
                    await self._spend_bounds(limit, value, each.at, by, group) for each in (*exact, *judged)
                ]
                if all(map(faults.is_group_missing_from_counter, (*exact, *judged), bands)):
                    return f"its counter lacks exactly the calls with {by} {group or 'unknown'}"
        return ""

    async def _missing_refusal_faults(
        self, limit: EnforcerLimit, limit_series: Sequence[tuple[float, EnforcerLimit]], value: str
    ) -> list[EnforcerFault]:
        crossed_at = await self._limit_reached_at(limit, limit_series, value)
        if crossed_at is None:
            return []
        since = _next_hour(crossed_at + 2 * self._sums.delay_s + MARGIN_S)
        if not await self._sums.has_successful_call(limit.dimension, value, since):
            return []
        hours = await self._sums.hours_with_calls(limit.dimension, value, since)
        return faults.missing_refusal_faults(limit, crossed_at, hours, self._last_at)

    async def _limit_reached_at(
        self, limit: EnforcerLimit, limit_series: Sequence[tuple[float, EnforcerLimit]], value: str
    ) -> float | None:
        crossed_at = None
        for at, each in reversed(limit_series):
            if (each.limit, each.starts_at) != (limit.limit, limit.starts_at) or not each.enforcing:
                break
            spent = (
                (await self._spend_bounds(each, value, at)).low if each.spent is None else Decimal(each.spent)
            )
            if each.limit is None or spent < Decimal(each.limit):
                break
            crossed_at = at
        return crossed_at

    async def _unpriced_faults(self, limit: EnforcerLimit, value: str) -> list[EnforcerFault]:
        if limit.limit is None or limit.starts_at is None:
            return []
        calls = await self._sums.unpriced_calls_by_model(limit.dimension, _hour_start(limit.starts_at))
        return faults.unpriced_faults(limit, calls.get(value, {}), self._last_at)

    def _budget_dimension_and_value(self, budget: MoneyBudget) -> tuple[str, str | None] | None:
        """
        Return the dimension by which a limit may have the same calls as the budget, and its value (None for
        every value). Return None if no limit can have the budget's calls.

        The budget may also filter by the dimensions that all calls of the enforcer share.
        """
        scope = self._sums.of_type.scope
        rest = [
            (name, *values) for name, values in budget.include.items() if scope.get(name) != tuple(values)
        ]
        if budget.per:
            return None if rest else (budget.per, None)
        if not rest:
            return ("", "") if budget.include else None
        first = rest[0]
        return (first[0], first[1]) if len(rest) == 1 and len(first) == 2 else None


def _hour_start(moment: float) -> float:
    return moment // HOUR_S * HOUR_S


def _next_hour(moment: float) -> float:
    return _hour_start(moment) + HOUR_S


def _to_datetime(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def faults_with_enforcer_names(audits: Iterable[LimitAudit]) -> list[EnforcerFault]:
    return [fault.with_enforcer(audit.enforcer) for audit in audits for fault in audit.faults]
