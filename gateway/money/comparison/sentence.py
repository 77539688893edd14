"""Description of a change of costs in one sentence: the amount, the drivers and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from gateway.money.comparison.comparing import Comparison
from gateway.money.comparison.split import PARTS, Driver, Spending
from spool.ledger import money
from spool.ledger.sums import OTHER

MILLION = 10**6
UNITS = (" a million tokens", " a call")
MOST = 3  # maximum drivers in the sentence
_LITTLE = 20  # drivers smaller than 1/_LITTLE of the largest driver are omitted


def sentence(comparison: Comparison) -> str:
    """Describe the change and its reasons. The largest drivers are named first."""
    total = comparison.total
    if not total.before.calls and not total.before.cost:
        return (
            "Nothing was spent in the time to compare with."
            if total.now.calls or total.now.cost
            else "Nothing was spent."
        )
    change = total.parts.change
    shown_drivers = [
        driver for driver in comparison.drivers if set(driver.group) != {OTHER} and driver.parts.change
    ]
    if not shown_drivers:
        return "Nothing changed."
    least = abs(shown_drivers[0].parts.change) // _LITTLE
    reasons = [driver_words(driver) for driver in shown_drivers[:MOST] if abs(driver.parts.change) >= least]
    if not change:
        return f"The total did not change: {'; '.join(reasons)}."
    return f"{dollars(abs(change))} {'more' if change > 0 else 'less'}: {'; '.join(reasons)}."


def driver_words(driver: Driver) -> str:
    change = driver.parts.change
    name = " ".join(value or "unknown" for value in driver.group) or "all calls"
    return f"{name} {'+' if change > 0 else '-'}{dollars(abs(change))}, {because(driver)}"


def because(driver: Driver) -> str:
    """
    Explain the change of one group by its largest part in the same direction, with the two numbers behind it. Prices
    are a reason only if an entry of the price list changed.
    """
    rose = driver.parts.change > 0
    parts = {name: getattr(driver.parts, name) for name in PARTS}
    largest = max(PARTS, key=lambda name: parts[name] if rose else -parts[name])
    return _WHY[largest](driver)


def _more(driver: Driver) -> str:
    now, before = driver.now.calls, driver.before.calls
    return f"because it made {_times(now, before, 'calls')} ({now:,}, before {before:,})"


def _larger(driver: Driver) -> str:
    now = driver.now.tokens * driver.before.calls
    before = driver.before.tokens * driver.now.calls
    sizes = [f"{side.tokens // max(side.calls, 1):,}" for side in (driver.now, driver.before)]
    return f"because its calls used {_times(now, before, 'tokens')} each ({sizes[0]}, before {sizes[1]})"


def _other_kinds(driver: Driver) -> str:
    now, before = _unit_costs(driver, driver.now.cost - driver.parts.prices)
    return f"because it used other models or kinds of tokens ({now} at the earlier prices, before {before})"


def _dearer(driver: Driver) -> str:
    rose = driver.parts.change > 0
    if not driver.now.calls and not driver.before.calls and not driver.now.tokens:
        amounts = f"{dollars(driver.now.cost)}, before {dollars(driver.before.cost)}"
        return f"because {'more' if rose else 'less'} was billed without known calls ({amounts})"
    if driver.changed_price:
        return f"because prices {'rose' if rose else 'fell'}: {driver.changed_price}"
    now, before = _unit_costs(driver, driver.now.cost)
    return f"at {now}, before {before}"


def _unit_costs(driver: Driver, cost: int) -> tuple[str, str]:
    """Return the unit cost of both times, with `cost` for the later one. A common unit is stated once."""
    now, before = _unit_cost(cost, driver.now), _unit_cost(driver.before.cost, driver.before)
    unit = next((unit for unit in UNITS if now.endswith(unit) and before.endswith(unit)), "")
    return now, before.removesuffix(unit)


def _unit_cost(cost: int, side: Spending) -> str:
    """Return the cost per million tokens, or per call without tokens."""
    if side.tokens:
        return dollars(cost * MILLION // side.tokens) + UNITS[0]
    return dollars(cost // max(side.calls, 1)) + UNITS[1]


def _times(now: int, before: int, what: str) -> str:
    if before <= 0:
        return f"more {what}"
    if now >= 2 * before:
        return f"{_figure(Decimal(now) / before)} times as many {what}"
    percent = round(abs(Decimal(now - before)) * 100 / before)
    return f"{percent or 'under 1'} % {'more' if now > before else 'fewer'} {what}"


def _figure(times: Decimal) -> str:
    return f"{times:.0f}" if times >= 10 else f"{times:.1f}".removesuffix(".0")


_WHY: Mapping[str, Callable[[Driver], str]] = {
    "more_calls": _more,
    "larger_calls": _larger,
    "other_kinds": _other_kinds,
    "prices": _dearer,
    "new": lambda _: "which is new",
    "gone": lambda _: "which made no more calls",
}


def dollars(units: int) -> str:
    amount = Decimal(money.text(units))
    return f"${amount:,.2f}" if amount >= Decimal("0.1") or not amount else f"${amount:,.4f}"
