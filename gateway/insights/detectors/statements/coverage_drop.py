"""Providers of whose bill less is counted than before: somebody's calls stopped to be reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import day, finding, money, named, ordered
from gateway.reconciliation.comparing import AGREES, DIFFERS, Line, Reconciliation
from spool.ledger import money as units
from spool.registry.insights import MEDIUM, Finding

NAME = "coverage_drop"
RECENT, BEFORE, LEAST_BEFORE = 7, 28, 7  # settled days
POINTS = Decimal(5)  # of a hundred

Amounts = Callable[[Line], tuple[int, int]]  # what is in both, and what was billed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drop:
    measure: str
    before: Decimal
    now: Decimal
    first: int  # the first of the newest days
    last: int
    missing: int  # of the money of the newest days


def find(facts: Facts) -> Sequence[Finding]:
    found: dict[str, list[Reconciliation]] = {}
    for month in facts.reconciled:
        for each in month.providers:
            found.setdefault(each.provider, []).append(each)
    return ordered(
        _finding(provider, months, drop) for provider, months in found.items() for drop in _largest(months)
    )


def _largest(months: Sequence[Reconciliation]) -> Iterator[_Drop]:
    """The larger drop of the two measures, if there is one."""
    measures: list[tuple[str, Amounts]] = [
        ("tokens", lambda line: (line.captured_tokens, line.billed_tokens))
    ]
    if any(each.has_money for each in months):
        measures.append(("money", lambda line: (line.captured_money, line.billed)))
    settled = sorted(
        (line for each in months for line in each.days if line.state in (AGREES, DIFFERS)),
        key=lambda line: int(line.name),
    )
    drops = [drop for name, amounts in measures if (drop := _drop(name, amounts, settled)) is not None]
    yield from sorted(drops, key=lambda each: each.now - each.before)[:1]


def _drop(measure: str, amounts: Amounts, settled: Sequence[Line]) -> _Drop | None:
    """Compare the newest billed days with those before them; None if the rate fell by no more than POINTS."""
    lines = [line for line in settled if amounts(line)[1] > 0][-(RECENT + BEFORE) :]
    newest = lines[-RECENT:]
    older = lines[:-RECENT]
    if len(older) < LEAST_BEFORE:
        return None
    before = _rate(amounts, older)
    now = _rate(amounts, newest)
    if before - now <= POINTS:
        return None
    return _Drop(
        measure=measure,
        before=before,
        now=now,
        first=int(newest[0].name),
        last=int(newest[-1].name),
        missing=sum(line.billed - line.captured_money for line in newest),
    )


def _rate(amounts: Amounts, lines: Sequence[Line]) -> Decimal:
    """Return the counted share of the billed amounts in percent."""
    both, billed = (sum(amounts(line)[place] for line in lines) for place in (0, 1))
    return Decimal(100) * both / billed


def _finding(provider: str, months: Sequence[Reconciliation], drop: _Drop) -> Finding:
    cause = next((claim for each in reversed(months) for claim in each.claims), None)
    why = (
        f" The largest cause of the month is {cause.cause} ({cause.sure}): {cause.evidence}." if cause else ""
    )
    missing = max(Decimal(0), Decimal(units.text(drop.missing)))
    rates = f"from {drop.before:.1f}% to {drop.now:.1f}%"
    month = day(drop.last)[:7]
    return finding(
        NAME,
        (provider,),
        title=f"The counted share of the {drop.measure} that {named(provider)} billed fell {rates}",
        seen=f"From {day(drop.first)} to {day(drop.last)}, {RECENT} settled days, {drop.now:.1f}% was counted; on the "
        f"days before it was {drop.before:.1f}%. {money(missing)} of these days was billed and not "
        f"counted.{why}",
        advice=f"{cause.advice if cause else 'Look whose calls stopped to be reported.'} `tollhouse reconcile report "
        f"--month {month} --provider {named(provider)} --by key` shows whose calls are missing.",
        category="coverage",
        effort=MEDIUM,
        impact=missing,
        newest=drop.last + DAY_S,
    )
