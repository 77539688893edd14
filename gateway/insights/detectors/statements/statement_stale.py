"""Reports of providers that no longer come: a pull that fails, or a month that nobody imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import MAX_FINDINGS, day, finding, named
from gateway.statements.arrivals import Arrival
from spool.registry.insights import LOW, Finding

NAME = "statement_stale"
MONTHLY = 2  # months that were imported make it a habit
FORGOTTEN_S = 100 * DAY_S  # who has imported nothing for so long does not import any more
MAX_FAILURE = 300


def find(facts: Facts) -> Sequence[Finding]:
    return [*_findings(facts)][:MAX_FINDINGS]


def _findings(facts: Facts) -> Iterator[Finding]:
    for each in sorted(facts.arrivals, key=lambda each: (each.source, each.account, each.pull)):
        if each.pull:
            if _pull_is_stale(each, facts.now):
                yield _of_pull(each)
        elif each.until is not None and _month_is_missing(each, each.until, facts.now):
            yield _of_import(each, each.until, facts.now)


def _pull_is_stale(each: Arrival, now: float) -> bool:
    """A pull that began just now has nothing yet; one that failed at once never will."""
    if each.until is None:
        return bool(each.failure)
    return each.until < now - each.settle_s - each.every - DAY_S


def _month_is_missing(each: Arrival, until: float, now: float) -> bool:
    begin = _month_start(now)
    is_monthly = len(each.months) >= MONTHLY and now - until <= FORGOTTEN_S
    return is_monthly and until < begin and now >= begin + each.settle_s


def _month_start(now: float) -> float:
    return (
        datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    )


def _of_pull(each: Arrival) -> Finding:
    since = "has never come" if each.until is None else f"ends with {day(each.until - DAY_S)}"
    why = (
        f" The pull failed: {named(each.failure, most=MAX_FAILURE)}."
        if each.failure
        else " No pull ended since."
    )
    return finding(
        NAME,
        (each.source, each.account, each.pull),
        title=f"The report {named(each.source)} that {named(each.pull)} pulls {since}",
        seen=f"What {_whose(each)} was billed since is not known, and is not compared.{why}",
        advice="`tollhouse reconcile pulls` shows the state. See that the key of `[[reconciliation.pull]]` is still an "
        f"admin key, then pull it: `tollhouse reconcile pull --name {named(each.pull)}`.",
        category="coverage",
        effort=LOW,
        newest=each.until,
    )


def _of_import(each: Arrival, until: float, now: float) -> Finding:
    month = datetime.fromtimestamp(_month_start(now) - DAY_S, UTC).strftime("%Y-%m")
    return finding(
        NAME,
        (each.source, each.account),
        title=f"The report {named(each.source)} was not imported for the whole of {month}",
        seen=f"What {_whose(each)} was billed is known until {day(until - DAY_S)}; {len(each.months)} months were "
        "imported before. What came later is not compared.",
        advice="Import the report (`tollhouse reconcile import FILE`), or let it be pulled with an admin key: "
        "`[[reconciliation.pull]]`.",
        category="coverage",
        effort=LOW,
        newest=until,
    )


def _whose(each: Arrival) -> str:
    return f"the account {named(each.account)}" if each.account else "the account"
