"""Description of a change of costs in one sentence: the amount, the drivers and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import partial

from gateway.money.comparison.comparing import Comparison
from gateway.money.comparison.split import MIXES, PARTS, CostDriver, GroupSpending
from gateway.money.comparison.wording import MILLION, format_dollars
from gateway.money.costs.earlier_period import ComparedTimes, EarlierPeriodCoverage
from spool import money
from spool.ledger.sums import OTHER

UNITS = (" a million tokens", " a call")
_UP_TO_KINDS = ("more_calls", "larger_calls", "other_kinds")
_DAY = timedelta(days=1)
MOST = 3  # maximum drivers that the sentence names
# if one amount is this many times the other, the sentence states the amounts instead of the factor
_FACTOR = 10
_LITTLE = 20  # smaller drivers than 1/_LITTLE of the largest are omitted


def comparison_sentence(
    comparison: Comparison, earlier_coverage: EarlierPeriodCoverage, compared: ComparedTimes | None
) -> str:
    """Describe a change of costs in one sentence: the two spans, the amount, and the largest drivers first."""
    total = comparison.total
    if compared is None:
        return (
            no_past_sentence(earlier_coverage) if total.now.calls or total.now.cost else "Nothing was spent."
        )
    spans = " against ".join(compared.texts)
    if not compared.spans.is_comparable:
        return f"{spans}, {_average_phrase(total, compared)}."
    return f"{spans}: {_change_phrase(comparison)}"


def _average_phrase(total: CostDriver, compared: ComparedTimes) -> str:
    """Describe spans of different lengths by their cost a day, because their sums do not compare."""
    now, before = ((span[1] - span[0]) / _DAY for span in (compared.spans.now, compared.spans.before))
    amounts = (
        f"{format_dollars(round(side.cost / length))} a day"
        for side, length in ((total.now, now), (total.before, before))
    )
    days = f"{_format_factor(Decimal(now))} {'day' if now == 1 else 'days'} against {_format_factor(Decimal(before))}"
    return f"{days}: {' against '.join(amounts)}"


def _change_phrase(comparison: Comparison) -> str:
    total = comparison.total
    if not total.before.calls and not total.before.cost:
        return (
            "Nothing was spent in the time to compare with."
            if total.now.calls or total.now.cost
            else "Nothing was spent."
        )
    change = total.parts.change
    largest = named_drivers(comparison)
    if not largest:
        return (
            f"{_difference_text(change)}, {_phrase_for_unnamed_groups(comparison)}."
            if change
            else "Nothing changed."
        )
    reasons = [driver_words(driver) for driver in largest]
    if not change:
        return f"The total did not change: {'; '.join(reasons)}."
    if all(change * driver.parts.change < 0 for driver in largest):
        return f"{_difference_text(change)}, {_phrase_for_unnamed_groups(comparison)}; {'; '.join(reasons)}."
    return f"{_difference_text(change)}: {'; '.join(reasons)}."


def named_drivers(comparison: Comparison) -> list[CostDriver]:
    """Return the drivers that the sentence names, the largest first."""
    drivers = changed_drivers_of_named_groups(comparison)[:MOST]
    return [
        driver for driver in drivers if abs(driver.parts.change) >= abs(drivers[0].parts.change) // _LITTLE
    ]


def describe_named_drivers(comparison: Comparison) -> list[dict[str, object]]:
    """Return the names, the change and the reason of each driver that the sentence names."""
    return [
        {
            "names": list(driver.group),
            "change": money.units_to_text(driver.parts.change),
            "reason": reason_for_change(driver).removeprefix("because "),
        }
        for driver in named_drivers(comparison)
    ]


def _phrase_for_unnamed_groups(comparison: Comparison) -> str:
    changed = [driver for driver in comparison.drivers if driver.parts.change]
    if not any(driver.now.calls or driver.before.calls for driver in changed):
        return reason_for_change(changed[0])
    return "in calls without a known name, or in small groups"


def no_past_sentence(earlier_coverage: EarlierPeriodCoverage) -> str:
    if earlier_coverage.begins_at is not None:
        begins_at = earlier_coverage.begins_at
        time = f"at {begins_at:%H:%M}" if begins_at.hour else f"on {day_and_month_text(begins_at)}"
        return f"Too early; the comparison begins {time}."
    if earlier_coverage.known_from is None:
        return "Nothing is known of the time to compare with."
    what = "Bills begin" if earlier_coverage.is_billed else "Counting began"
    return (
        f"{what} on {day_and_month_text(earlier_coverage.known_from)}, so there is nothing to compare with."
    )


def comparable_days_hint(earlier_coverage: EarlierPeriodCoverage) -> str:
    """Describe how many days have an earlier time to compare with. Return "" if none has."""
    days = earlier_coverage.comparable_days
    return f"The last {days} days have an earlier time." if days > 1 else ""


def changed_drivers_of_named_groups(comparison: Comparison) -> list[CostDriver]:
    """
    Return the changed groups that have a name. Unknown and joined groups are left out, because nobody can act
    on them.
    """
    return [driver for driver in comparison.drivers if driver.parts.change and _has_name(driver)]


def _has_name(driver: CostDriver) -> bool:
    return not driver.group or not set(driver.group) <= {None, OTHER}


def _difference_text(change: int) -> str:
    return f"{format_dollars(abs(change))} {'more' if change > 0 else 'less'}"


def driver_words(driver: CostDriver) -> str:
    change = driver.parts.change
    name = " ".join(value or "unknown" for value in driver.group) or "all calls"
    words = f"{name} {'+' if change > 0 else '-'}{format_dollars(abs(change))}"
    if _needs_amount(driver):
        words += f" (before: {format_dollars(driver.before.cost)})"
    return f"{words}, {reason_for_change(driver)}"


def _needs_amount(driver: CostDriver) -> bool:
    """
    Return whether the sentence about a change must state the amount before. If one amount is very small or
    far larger, the reason alone would mislead.
    """
    before, now = driver.before.cost, driver.now.cost
    if not driver.before.calls or not driver.now.calls:
        return False  # without calls on one side, the group is new, has ended, or has only billed costs
    return before < money.UNIT or now >= _FACTOR * before or before >= _FACTOR * now


def reason_for_change(driver: CostDriver) -> str:
    """
    Describe the largest cause that has the direction of the change, with the two numbers that show it.

    Changed prices are named only if an entry of the price list changed.
    """
    rose = driver.parts.change > 0
    parts = {name: getattr(driver.parts, name) for name in PARTS}
    largest = max(PARTS, key=lambda name: parts[name] if rose else -parts[name])
    return _WHY[largest](driver)


def _more_calls_reason(driver: CostDriver) -> str:
    now, before = driver.now.calls, driver.before.calls
    return f"because it made {_factor_text(now, before, 'calls')} ({now:,}, before {before:,})"


def _more_tokens_per_call_reason(driver: CostDriver) -> str:
    now = driver.now.tokens * driver.before.calls
    before = driver.before.tokens * driver.now.calls
    sizes = [f"{side.tokens // max(side.calls, 1):,}" for side in (driver.now, driver.before)]
    return (
        f"because its calls used {_factor_text(now, before, 'tokens')} each ({sizes[0]}, before {sizes[1]})"
    )


def _other_models_or_token_kinds_reason(driver: CostDriver) -> str:
    at_old_prices = driver.before.cost + sum(getattr(driver.parts, name) for name in _UP_TO_KINDS)
    now, before = _unit_costs(driver, at_old_prices)
    return f"because it used other models or kinds of tokens ({now} at the earlier prices, before {before})"


def _stated_or_unit_cost_reason(driver: CostDriver, cause: str) -> str:
    return f"because {driver.reasons[cause]}" if driver.reasons.get(cause) else _unit_cost_reason(driver)


def _price_reason(driver: CostDriver) -> str:
    words = driver.reasons.get("prices")
    if not words:
        return _unit_cost_reason(driver)
    return f"because prices {'rose' if driver.parts.change > 0 else 'fell'}: {words}"


def _unit_cost_reason(driver: CostDriver) -> str:
    rose = driver.parts.change > 0
    if not driver.now.calls and not driver.before.calls and not driver.now.tokens:
        amounts = f"{format_dollars(driver.now.cost)}, before {format_dollars(driver.before.cost)}"
        return f"because {'more' if rose else 'less'} was billed without known calls ({amounts})"
    now, before = _unit_costs(driver, driver.now.cost)
    return f"at {now}, before {before}"


def _unit_costs(driver: CostDriver, cost: int) -> tuple[str, str]:
    """
    Return the later and the earlier unit cost in words. `cost` is the later cost. A common unit is stated
    once.
    """
    now, before = _unit_cost(cost, driver.now), _unit_cost(driver.before.cost, driver.before)
    unit = next((unit for unit in UNITS if now.endswith(unit) and before.endswith(unit)), "")
    return now, before.removesuffix(unit)


def _unit_cost(cost: int, side: GroupSpending) -> str:
    if side.tokens:
        return format_dollars(cost * MILLION // side.tokens) + UNITS[0]
    return format_dollars(cost // max(side.calls, 1)) + UNITS[1]


def _factor_text(now: int, before: int, what: str) -> str:
    if before <= 0:
        return f"more {what}"
    if now >= _FACTOR * before:
        return f"many times as many {what}"
    if now >= 2 * before:
        return f"{_format_factor(Decimal(now) / before)} times as many {what}"
    percent = round(abs(Decimal(now - before)) * 100 / before)
    return f"{percent or 'under 1'} % {'more' if now > before else 'fewer'} {what}"


def _format_factor(times: Decimal) -> str:
    return f"{times:.1f}".removesuffix(".0")


_WHY: Mapping[str, Callable[[CostDriver], str]] = {
    "more_calls": _more_calls_reason,
    "larger_calls": _more_tokens_per_call_reason,
    "other_kinds": _other_models_or_token_kinds_reason,
    **{name: partial(_stated_or_unit_cost_reason, cause=name) for name in MIXES[1:]},
    "prices": _price_reason,
    "reported_rates": partial(_stated_or_unit_cost_reason, cause="reported_rates"),
    "unit_cost": _unit_cost_reason,
    "new": lambda _: "which is new",
    "gone": lambda _: "which made no more calls",
}


def day_and_month_text(day: date) -> str:
    return f"{day.day} {day:%b}"
