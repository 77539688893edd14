"""Detectors for provider bills that differ from the counted costs or no longer arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import DIFFERS, EXPLAINED, FINAL, ComparisonLine, merge_lines
from gateway.bills.reconciliation.wording import build_rounded_comparison_row, underscores_to_spaces
from gateway.bills.statements.arrivals import ReportArrival
from gateway.money.insights.detector_facts import DAY_S, InsightFacts, mark_impossible_in_demo
from gateway.money.insights.findings import (
    MAX_FINDINGS,
    build_finding,
    day_in_words,
    format_day,
    format_money,
    format_rows,
    printable_name,
    sort_by_impact,
)
from spool import money as units
from spool.registry.insights import LOW, MEDIUM, Finding
from spool.registry.notices import NOT_ARRIVING

# Thresholds of the detector coverage_drop. RECENT and BEFORE are numbers of settled days: the recent days,
# and the earlier days to compare them with. LEAST_BEFORE is the minimum of earlier days.
RECENT, BEFORE, LEAST_BEFORE = 7, 28, 7
POINTS = Decimal(5)  # minimum drop of the coverage, in percentage points
# Thresholds of the detector statement_stale.
MONTHLY = 2  # number of months with an import, after which an import is expected every month
REFUSED_S = DAY_S  # seconds after which a refused report of a pull is critical
FORGOTTEN_S = 100 * DAY_S  # seconds without an import, after which no further import is expected
MAX_FAILURE = 300
PLACES = 2  # decimals of amounts

# function that returns the counted and the billed amount of a bill line
LineAmounts = Callable[[ComparisonLine], tuple[int, int]]


def reconciliation_difference(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find settled days on which the billed and the counted costs of a provider differ by more than the tolerance.
    """
    findings = []
    for reconciled_month in facts.reconciled:
        for reconciliation in reconciled_month.providers:
            differing = [line for line in reconciliation.days if line.state in (EXPLAINED, DIFFERS)]
            if differing:
                findings.append(_difference_finding(reconciled_month.month.name, reconciliation, differing))
    return sort_by_impact(findings)


def _format_signed(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}{format_money(abs(amount))}"


def _difference_finding(
    month: str, reconciliation: Reconciliation, differing: Sequence[ComparisonLine]
) -> Finding:
    total = merge_lines(differing, name="")
    shown = build_rounded_comparison_row(
        units.units_to_text(total.billed),
        units.units_to_text(total.counted),
        {cause: units.units_to_text(amount) for cause, amount in total.causes.items() if amount},
        units.units_to_text(total.unexplained),
        places=PLACES,
    )
    newest = max(int(line.name) for line in differing)
    cause = reconciliation.claims[0] if reconciliation.claims else None
    likely = cause or (reconciliation.hints[0] if reconciliation.hints else None)
    why = " No cause was found."
    if cause is not None:
        why = f" The largest cause is {underscores_to_spaces(cause.cause)}: {cause.evidence}."
    elif likely is not None:
        why = (
            f" No cause is certain. A likely one is {underscores_to_spaces(likely.cause)}: {likely.evidence}."
        )
    by_size = sorted(shown.causes.items(), key=lambda item: -abs(item[1]))
    rows = [
        f"{underscores_to_spaces(name)}: {_format_signed(amount)}"
        for name, amount in [*by_size, ("unexplained", shown.unexplained)]
        if amount
    ]
    impact = sum(map(abs, shown.causes.values()), abs(shown.unexplained))
    both_signs = (
        "" if impact == abs(shown.difference) else " The cost impact adds up all causes without their signs."
    )
    count = f"{len(differing)} settled days of {month}"
    return build_finding(
        "reconciliation_difference",
        (reconciliation.provider, month),
        title=_difference_title(
            printable_name(reconciliation.provider),
            format_money(shown.billed),
            format_money(shown.counted),
            count,
        ),
        seen=(
            f"{count} differ by more than the tolerance. The last one is "
            f"{format_day(newest)}.{why}{both_signs}{format_rows(rows)}"
        ),
        advice=(
            f"{likely.advice if likely else 'Look at these days.'} `tollhouse reconcile report --month "
            f"{month} --provider {printable_name(reconciliation.provider)}` shows every day, model and cause."
        ),
        category="prices",
        effort=MEDIUM,
        impact=impact,
        newest=newest + DAY_S,
    )


def _difference_title(provider: str, billed: str, counted: str, days: str) -> str:
    if billed == counted:
        return f"{provider} billed {billed} on {days}: the total agrees with the counted costs, but its parts differ"
    return f"{provider} billed {billed}, but {counted} was counted, on {days}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drop:
    measure: str
    before: Decimal
    now: Decimal
    first: int  # start of the first of the recent days, in epoch seconds
    last: int
    missing: int  # billed minus counted amount of the recent days


@mark_impossible_in_demo("in a demo month, the counted share of the bills is the same every day")
def coverage_drop(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find providers for which the counted share of the bill fell. Some calls are probably no longer reported.
    """
    by_provider: dict[str, list[Reconciliation]] = {}
    for month in facts.reconciled:
        for reconciliation in month.providers:
            by_provider.setdefault(reconciliation.provider, []).append(reconciliation)
    return sort_by_impact(
        _fallen_counted_share_finding(provider, months, drop)
        for provider, months in by_provider.items()
        for drop in _largest_drop_of_counted_share(months)
    )


def _largest_drop_of_counted_share(months: Sequence[Reconciliation]) -> Iterator[_Drop]:
    """
    Yield the larger drop of the share that was counted, of the billed tokens or of the billed money, if any.
    """
    measures: list[tuple[str, LineAmounts]] = [
        ("tokens", lambda line: (line.captured_tokens, line.billed_tokens))
    ]
    if any(month.has_money for month in months):
        measures.append(("money", lambda line: (line.captured_money, line.billed)))
    settled = sorted(
        (line for month in months for line in month.days if line.state in FINAL),
        key=lambda line: int(line.name),
    )
    drops = [
        drop
        for name, amounts in measures
        if (drop := _find_drop_of_counted_share(name, amounts, settled)) is not None
    ]
    yield from sorted(drops, key=lambda item: item.now - item.before)[:1]


def _find_drop_of_counted_share(
    measure: str, amounts: LineAmounts, settled_lines: Sequence[ComparisonLine]
) -> _Drop | None:
    """
    Compare the recent billed days with the days before. Return None if the counted share fell by at most
    POINTS, or if too few earlier days are billed.
    """
    lines = [line for line in settled_lines if amounts(line)[1] > 0][-(RECENT + BEFORE) :]
    newest = lines[-RECENT:]
    older = lines[:-RECENT]
    if len(older) < LEAST_BEFORE:
        return None
    before = _counted_percent(amounts, older)
    now = _counted_percent(amounts, newest)
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


def _counted_percent(amounts: LineAmounts, lines: Sequence[ComparisonLine]) -> Decimal:
    both, billed = (sum(amounts(line)[index] for line in lines) for index in (0, 1))
    return Decimal(100) * both / billed


def _fallen_counted_share_finding(provider: str, months: Sequence[Reconciliation], drop: _Drop) -> Finding:
    cause = next((claim for month in reversed(months) for claim in month.claims), None)
    why = (
        f" The largest cause of the month is {underscores_to_spaces(cause.cause)}: {cause.evidence}."
        if cause
        else ""
    )
    missing = max(Decimal(0), Decimal(units.units_to_text(drop.missing)))
    rates = f"from {drop.before:.1f}% to {drop.now:.1f}%"
    month = format_day(drop.last)[:7]
    return build_finding(
        "coverage_drop",
        (provider,),
        title=f"The counted share of the {drop.measure} that {printable_name(provider)} billed fell {rates}",
        seen=(
            f"From {format_day(drop.first)} to {format_day(drop.last)} ({RECENT} settled days), "
            f"{drop.now:.1f}% was "
            f"counted. On the days before, {drop.before:.1f}% was counted. {format_money(missing)} of the recent "
            f"days was billed but not counted.{why}"
        ),
        advice=(
            f"{cause.advice if cause else 'Find out who stopped reporting calls.'} `tollhouse reconcile "
            f"report --month {month} --provider {printable_name(provider)} --by key` shows whose calls are missing."
        ),
        category="coverage",
        effort=MEDIUM,
        impact=missing,
        newest=drop.last + DAY_S,
    )


@mark_impossible_in_demo("a demo month has only new bills")
def statement_stale(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find provider bills that no longer arrive, because a pull fails or is refused, or because nobody imported the
    bills of the month.
    """
    return [*_stale_statement_findings(facts)][:MAX_FINDINGS]


def _stale_statement_findings(facts: InsightFacts) -> Iterator[Finding]:
    for arrival in sorted(
        facts.arrivals, key=lambda arrival: (arrival.source, arrival.account, arrival.pull)
    ):
        if arrival.pull:
            if arrival.refused_since is not None and facts.now - arrival.refused_since >= REFUSED_S:
                yield _refused_pull_finding(arrival, arrival.refused_since)
            elif _pull_is_stale(arrival, facts.now):
                yield _stale_pull_finding(arrival)
        elif arrival.until is not None and _month_is_missing(arrival, arrival.until, facts.now):
            yield _stale_import_finding(arrival, arrival.until, facts.now)


def _pull_is_stale(arrival: ReportArrival, now: float) -> bool:
    """
    Return whether the bills of a pull are overdue. A pull without any bill yet is overdue only if it failed.
    """
    if arrival.until is None:
        return bool(arrival.failure)
    return arrival.until < now - arrival.settle_s - arrival.every - DAY_S


def _month_is_missing(arrival: ReportArrival, until: float, now: float) -> bool:
    begin = _month_start(now)
    is_monthly = len(arrival.months) >= MONTHLY and now - until <= FORGOTTEN_S
    return is_monthly and until < begin and now >= begin + arrival.settle_s


def _month_start(now: float) -> float:
    return (
        datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    )


def _stale_pull_finding(arrival: ReportArrival) -> Finding:
    since = (
        "has never arrived" if arrival.until is None else f"ends with {day_in_words(arrival.until - DAY_S)}"
    )
    why = (
        f" The pull failed: {printable_name(arrival.failure, max_characters=MAX_FAILURE)}."
        if arrival.failure
        else " No pull has finished since."
    )
    return build_finding(
        "statement_stale",
        (arrival.source, arrival.account, arrival.pull),
        title=f"The report {printable_name(arrival.source)} that {printable_name(arrival.pull)} pulls {since}",
        seen=(
            f"Later bills of {_billed_account_phrase(arrival)} are unknown, so they are not compared with the counted "
            f"costs.{why}"
        ),
        advice=(
            "`tollhouse reconcile pulls` shows the state. Check that the key of "
            "`[[reconciliation.pull]]` is still an admin key. Then pull the report with `tollhouse "
            f"reconcile pull --name {printable_name(arrival.pull)}`."
        ),
        category="coverage",
        effort=LOW,
        newest=arrival.until,
    )


def _refused_pull_finding(arrival: ReportArrival, since: float) -> Finding:
    pull = printable_name(arrival.pull)
    return build_finding(
        "statement_stale",
        (arrival.source, arrival.account, arrival.pull),
        title=f"The bills that {pull} pulls are refused since {day_in_words(since)}",
        seen=(
            f"The report {printable_name(arrival.source)} would remove final figures of "
            f"{_billed_account_phrase(arrival)}: {printable_name(arrival.failure, max_characters=MAX_FAILURE)}"
        ),
        advice=(
            "Ask the provider which figures are right. To accept the smaller ones, run `tollhouse reconcile pull "
            f"--name {pull} --replace`. `tollhouse reconcile undo` takes them back."
        ),
        category=NOT_ARRIVING,
        effort=LOW,
        newest=arrival.until,
    )


def _stale_import_finding(arrival: ReportArrival, until: float, now: float) -> Finding:
    month = datetime.fromtimestamp(_month_start(now) - DAY_S, UTC).strftime("%Y-%m")
    return build_finding(
        "statement_stale",
        (arrival.source, arrival.account),
        title=f"The report {printable_name(arrival.source)} does not cover the whole of {month}",
        seen=(
            f"The bills of {_billed_account_phrase(arrival)} are known until {format_day(until - DAY_S)}. Reports for "
            f"{len(arrival.months)} months were imported before. Later days are not compared with the "
            "counted costs."
        ),
        advice=(
            "Import the report on the page Reconciliation or with `tollhouse reconcile import FILE`. Or set "
            "up a pull with an admin key in `[[reconciliation.pull]]`."
        ),
        category="coverage",
        effort=LOW,
        newest=until,
    )


def _billed_account_phrase(arrival: ReportArrival) -> str:
    return f"the account {printable_name(arrival.account)}" if arrival.account else "the account"
