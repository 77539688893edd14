"""Faults of enforcers: when a fault is reported, its proven cause, and its texts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

from gateway.bills.enforcers.source import WINDOWS
from spool.record import utc_iso
from spool.registry.tables.enforcers import EnforcerLimit

COUNTER, WINDOW, NOT_REFUSING = "enforcer_counter", "enforcer_window", "enforcer_not_refusing"
LIMIT_DIFFERS, UNPRICED = "enforcer_limit_differs", "enforcer_unpriced"
IN_A_ROW = 3  # number of consecutive readings that must show a fault before it is reported
SHARE = Decimal("0.01")  # share of our own sum by which an enforcer's counter may differ
CENT = Decimal("0.01")
MOST_TIMES = 10  # largest whole factor between counter and own sum that is tried as a cause
LATE_S = 3600.0  # seconds after the stated end of a window within which a reset may happen
UNDER_WAY_S = 900.0  # seconds after a limit was passed in which calls that began before are still counted
DROP = Decimal("0.5")  # a counter that drops below this share of its previous value was reset
_NAMED_MODELS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyBudget:
    """A budget in money, with its amount of the running period. `granularity` is daily, weekly, monthly or other."""

    name: str
    include: Mapping[str, Sequence[str]]
    per: str
    granularity: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class SpendBounds:
    """
    The lowest and the highest amount that the counter of an enforcer's limit may have at a moment, by the
    calls that Tollhouse counted.
    """

    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReading:
    at: float
    spent: Decimal | None
    band: SpendBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerFault:
    """A fault of a limit. `detector` names the insight, and `newest` is the time of the reading."""

    detector: str
    limit: EnforcerLimit
    title: str
    seen: str
    newest: float
    enforcer: str = ""

    def with_enforcer(self, enforcer: str) -> EnforcerFault:
        return replace(self, enforcer=enforcer)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexpectedReset:
    """
    A counter reset between the readings at `before` and `after`, although the enforcer stated `stated` as the
    reset time.
    """

    before: float
    after: float
    stated: float | None

    def fault(self, limit: EnforcerLimit) -> EnforcerFault:
        stated = f"at {utc_iso(self.stated)}" if self.stated is not None else "never"
        return EnforcerFault(
            detector=WINDOW,
            limit=limit,
            title=f"{_limit_phrase(limit)} was reset at another time than stated",
            seen=f"It stated that its counter is reset {stated}. It was reset between {utc_iso(self.before)} and "
            f"{utc_iso(self.after)}.",
            newest=self.after,
        )


def is_at_most_with_tolerance(spent: Decimal, upper_bound: Decimal) -> bool:
    return spent <= upper_bound * (1 + SHARE) + CENT


def is_at_least_with_tolerance(spent: Decimal, lower_bound: Decimal) -> bool:
    return spent >= lower_bound * (1 - SHARE) - CENT


def are_outside_bands(judged_readings: Sequence[JudgedReading]) -> bool:
    """
    Return whether the counters of all judged readings are below their lowest allowed amounts, or all are
    above the highest ones.
    """
    known = [(each.spent, each.band) for each in judged_readings if each.spent is not None]
    too_low = [not is_at_least_with_tolerance(spent, band.low) for spent, band in known]
    too_high = [not is_at_most_with_tolerance(spent, band.high) for spent, band in known]
    return len(known) == IN_A_ROW and (all(too_low) or all(too_high))


def proven_miscount_cause(judged_readings: Sequence[JudgedReading], limits: Sequence[EnforcerLimit]) -> str:
    """
    Return why an enforcer counts wrong, or "" if its readings do not prove the cause. Single calls are not
    queried.
    """
    spent = [each.spent for each in judged_readings if each.spent is not None]
    times = [
        number
        for number in range(2, MOST_TIMES + 1)
        if all(
            _is_within_band_with_tolerance(value / number, each.band)
            for value, each in zip(spent, judged_readings, strict=True)
        )
    ]
    if len(times) == 1:
        return f"each amount is {times[0]} times ours, so it counts each call {times[0]} times"
    if _has_readings_of_two_counters(limits):
        return "its readings alternate between two rising counters, so each instance counts alone"
    return ""


def standstill_cause(first: JudgedReading, last: JudgedReading) -> str:
    """
    Describe that the counter did not rise between two readings while the counted spend rose. Return "" if the
    spend did not rise.
    """
    before, after = first.band.high, last.band.low
    if after <= before * (1 + SHARE) + CENT:
        return ""
    return f"it stood still since {utc_iso(first.at)} while our sum rose from ${before:,.2f} to ${after:,.2f}"


def _is_within_band_with_tolerance(spent: Decimal, band: SpendBounds) -> bool:
    return is_at_least_with_tolerance(spent, band.low) and is_at_most_with_tolerance(spent, band.high)


def is_group_missing_from_counter(reading: JudgedReading, group_spend: SpendBounds) -> bool:
    """
    Return whether the enforcer's counter equals the counted spend without the spend of a group of calls.
    """
    low, high = reading.band.low - group_spend.low, reading.band.high - group_spend.high
    return reading.spent is not None and group_spend.low > CENT and low - CENT <= reading.spent <= high + CENT


def is_sum_exact(reading: JudgedReading) -> bool:
    """Return whether the counted spend at a reading is known to the cent, because no call was under way."""
    return reading.band.low == reading.band.high


def _has_readings_of_two_counters(limits: Sequence[EnforcerLimit]) -> bool:
    """Return whether the readings of one window alternate between two counters, each of which only rises."""
    last = limits[-1]
    spent = [
        Decimal(each.spent)
        for each in limits
        if each.spent is not None and (each.starts_at, each.ends_at) == (last.starts_at, last.ends_at)
    ]
    falls = sum(after < before for before, after in pairwise(spent))
    ends: list[Decimal] = []
    for value in spent:
        below = [end for end in ends if end <= value]
        if below:
            ends[ends.index(max(below))] = value
        elif len(ends) < 2:
            ends.append(value)
        else:
            return False
    return falls >= 2 and len(ends) == 2


def find_wrong_reset(limit_series: Sequence[tuple[float, EnforcerLimit]]) -> UnexpectedReset | None:
    """
    Return the newest reset that the stated window does not explain: the counter fell and stayed low before
    the window ended.
    """
    for (before_at, before), (after_at, after) in reversed([*pairwise(limit_series)]):
        if before.spent is None or after.spent is None or before.limit != after.limit:
            continue
        has_fallen = Decimal(after.spent) < Decimal(before.spent) * DROP and Decimal(before.spent) > CENT
        stays = sum(each_at >= after_at for each_at, _ in limit_series) >= IN_A_ROW
        was_due = before.ends_at is not None and before.ends_at <= after_at
        if has_fallen and stays and not was_due:
            return UnexpectedReset(before=before_at, after=after_at, stated=before.ends_at)
    return None


def late_reset_faults(limit_series: Sequence[tuple[float, EnforcerLimit]]) -> list[EnforcerFault]:
    """Report a counter that was not reset, although its window ended long before the last three readings."""
    newest = limit_series[-IN_A_ROW:]
    ended = {each.ends_at for _, each in newest}
    [end, *others] = ended
    if others or end is None or len(newest) < IN_A_ROW or newest[0][0] <= end + LATE_S:
        return []
    at, limit = newest[-1]
    if limit.spent is None:
        return []
    return [
        EnforcerFault(
            detector=WINDOW,
            limit=limit,
            title=f"{_limit_phrase(limit)} was not reset at the stated time",
            seen=f"It stated that its counter is reset at {utc_iso(end)}. At {utc_iso(at)}, its counter was still "
            f"${Decimal(limit.spent):,.2f}.",
            newest=at,
        )
    ]


def enforcer_counter_mismatch_fault(
    limit: EnforcerLimit, reading: JudgedReading, cause: str
) -> EnforcerFault:
    assert reading.spent is not None
    low, high = reading.band.low, reading.band.high
    ours = f"${low:,.2f}" if high - low < CENT else f"${low:,.2f} to ${high:,.2f}"
    way = "less" if reading.spent < low else "more"
    because = f" The cause: {cause}." if cause else " No cause is proven."
    return EnforcerFault(
        detector=COUNTER,
        limit=limit,
        title=f"{_limit_phrase(limit)} counts {way} than its calls cost: ${reading.spent:,.2f}, ours {ours}",
        seen=(
            f"At {utc_iso(reading.at)}, its counter was ${reading.spent:,.2f}. Our calls {_since_phrase(limit)} "
            f"cost {ours}. "
            f"The two readings before differ in the same way.{because}"
        ),
        newest=reading.at,
    )


def missing_refusal_faults(
    limit: EnforcerLimit, crossed_at: float, hours: Sequence[tuple[float, int, Decimal]], read_at: float
) -> list[EnforcerFault]:
    """Report calls that succeeded after the limit was reached."""
    calls = sum(count for _, count, _ in hours)
    if not calls:
        return []
    cost = sum((cost for _, _, cost in hours), Decimal(0))
    spent = "our sum" if limit.spent is None else f"its counter of ${Decimal(limit.spent):,.2f}"
    return [
        EnforcerFault(
            detector=NOT_REFUSING,
            limit=limit,
            title=f"{_limit_phrase(limit)} does not refuse: {calls:,} calls for ${cost:,.2f} after its limit",
            seen=f"At {utc_iso(crossed_at)}, {spent} had reached the limit of ${Decimal(limit.limit or 0):,.2f}. "
            f"Afterwards, {calls:,} successful calls cost ${cost:,.2f}. The first of them began in the hour from "
            f"{utc_iso(min(start for start, _, _ in hours))}. The limit was last read at {utc_iso(read_at)}.",
            newest=read_at,
        )
    ]


def rising_counter_faults(limit_series: Sequence[tuple[float, EnforcerLimit]]) -> list[EnforcerFault]:
    """
    Report a counter that still rises a quarter of an hour after it has passed its limit. Only the enforcer's own
    figures are read, so this also holds for limits that cannot be compared with our calls.
    """
    read_at, last = limit_series[-1]
    if not last.enforcing or last.limit is None:
        return []
    above = [
        (at, Decimal(each.spent))
        for at, each in limit_series
        if (each.limit, each.starts_at, each.ends_at) == (last.limit, last.starts_at, last.ends_at)
        and each.spent is not None
        and Decimal(each.spent) > Decimal(last.limit)
    ]
    settled = [spent for at, spent in above if at >= above[0][0] + UNDER_WAY_S]
    if not settled or settled[-1] <= settled[0] + CENT:
        return []
    rise = f"from {settled[0]:,.2f} to {settled[-1]:,.2f} {last.currency}"
    return [
        EnforcerFault(
            detector=NOT_REFUSING,
            limit=last,
            title=f"{_limit_phrase(last)} does not refuse: its counter rose {rise} above its limit",
            seen=f"At {utc_iso(above[0][0])}, its counter had passed the limit of {Decimal(last.limit):,.2f} "
            f"{last.currency}. Afterwards it rose {rise}. The limit was last read at {utc_iso(read_at)}.",
            newest=read_at,
        )
    ]


def differing_limit_faults(
    limit: EnforcerLimit, budgets: Sequence[MoneyBudget], read_at: float
) -> list[EnforcerFault]:
    """Report a budget of the same calls and period that has another amount than the limit."""
    if limit.limit is None:
        return []
    theirs = Decimal(limit.limit)
    return [
        EnforcerFault(
            detector=LIMIT_DIFFERS,
            limit=limit,
            title=f"{_limit_phrase(limit)} allows ${theirs:,.2f}, budget {budget.name} ${budget.amount:,.2f}",
            seen=f"At {utc_iso(read_at)}, its limit per {limit.window} was ${theirs:,.2f}. The budget {budget.name} of "
            f"the same calls has ${budget.amount:,.2f}.",
            newest=read_at,
        )
        for budget in budgets[:1]
        if WINDOWS.get(limit.window) == budget.granularity and budget.amount != theirs
    ]


def non_monthly_window_faults(
    limit: EnforcerLimit, budgets: Sequence[MoneyBudget], read_at: float
) -> list[EnforcerFault]:
    """
    Report a window of 28 to 31 days that is not a calendar month, if a budget of the same calls is monthly.
    """
    days = limit.window.removesuffix("d")
    is_fixed = days.isdecimal() and 28 <= int(days) <= 31
    if not is_fixed or limit.ends_at is None:
        return []
    return [
        EnforcerFault(
            detector=WINDOW,
            limit=limit,
            title=f"{_limit_phrase(limit)} resets every {days} days, but budget {budget.name} is monthly",
            seen=f"Its window ends at {utc_iso(limit.ends_at)}. The month of the budget {budget.name} ends at "
            f"{utc_iso(_month_end(read_at))}.",
            newest=read_at,
        )
        for budget in budgets[:1]
        if budget.granularity == "monthly"
    ]


def unpriced_faults(
    limit: EnforcerLimit, calls_by_model: Mapping[str, int], read_at: float
) -> list[EnforcerFault]:
    """Report models whose calls have no price, because a limit in money cannot count them."""
    if not calls_by_model:
        return []
    most_first = sorted(calls_by_model, key=lambda model: (-calls_by_model[model], model))
    shown = ", ".join(
        f"{model or 'unknown'}: {calls_by_model[model]:,} calls" for model in most_first[:_NAMED_MODELS]
    )
    return [
        EnforcerFault(
            detector=UNPRICED,
            limit=limit,
            title=f"{_limit_phrase(limit)} is a limit over calls without a price",
            seen=(
                f"In its window ({_since_phrase(limit)}), these models had calls without a known price: "
                f"{shown}. The limit "
                f"was read at {utc_iso(read_at)}."
            ),
            newest=read_at,
        )
    ]


def _limit_phrase(limit: EnforcerLimit) -> str:
    return f"The limit of {limit.kind} {limit.name[:60] or limit.id[:60]}"


def _since_phrase(limit: EnforcerLimit) -> str:
    return f"since {utc_iso(limit.starts_at)}" if limit.starts_at is not None else "so far"


def _month_end(moment: float) -> float:
    now = datetime.fromtimestamp(moment, UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1).timestamp()
