"""Description of a change of costs in one sentence: the amount, the drivers and the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from gateway.money.comparison.comparing import Comparison
from gateway.money.comparison.split import PARTS, Driver
from spool.ledger import money
from spool.ledger.sums import OTHER

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
    """Explain the change of one group by its largest part in the same direction."""
    rose = driver.parts.change > 0
    parts = {name: getattr(driver.parts, name) for name in PARTS}
    largest = max(PARTS, key=lambda name: parts[name] if rose else -parts[name])
    return _WHY[largest](driver)


def _more(driver: Driver) -> str:
    return f"because it made {_times(driver.now.calls, driver.before.calls, 'calls')}"


def _larger(driver: Driver) -> str:
    now = driver.now.tokens * driver.before.calls
    before = driver.before.tokens * driver.now.calls
    return f"because its calls used {_times(now, before, 'tokens')} each"


def _dearer(driver: Driver) -> str:
    rose = driver.parts.change > 0
    if not driver.now.calls and not driver.before.calls and not driver.now.tokens:
        return f"because {'more' if rose else 'less'} was billed without known calls"
    return f"because prices {'rose' if rose else 'fell'}"


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
    "other_kinds": lambda _: "because it used other models or kinds of tokens",
    "prices": _dearer,
    "new": lambda _: "which is new",
    "gone": lambda _: "which made no more calls",
}


def dollars(units: int) -> str:
    amount = Decimal(money.text(units))
    return f"${amount:,.2f}" if amount >= Decimal("0.1") or not amount else f"${amount:,.4f}"
