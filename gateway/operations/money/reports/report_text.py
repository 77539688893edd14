"""The text of a report for mails and chats, from its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from gateway.money.comparison.comparing import Comparison
from gateway.money.comparison.sentence import comparison_sentence
from gateway.money.comparison.wording import format_dollars
from gateway.money.costs.earlier_period import ComparedTimes, EarlierPeriodCoverage
from gateway.money.costs.measures import NO_PRICE
from gateway.money.insights.findings import printable_name
from spool import money
from spool.money import unconverted_amounts_sentence
from spool.record import CURRENCY
from spool.registry.notices import BAR

WIDTH = 20  # characters of the longest bar in a chart
TOP = 5
_LITTLE = money.UNIT  # smallest amount for which a percentage is shown, because it would mislead for less


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigures:
    """
    The figures of a view that a recipient may see. Amounts are units (spool.money).

    `bars` are days or weeks. `top` are the largest groups of the dimension `by`.
    """

    view: str
    since: datetime
    until: datetime
    by: str
    past: EarlierPeriodCoverage
    compared: ComparedTimes | None
    comparison: Comparison
    bars: Sequence[tuple[date, int]]
    top: Sequence[tuple[str | None, int]]
    budgets: Sequence[str]
    insights: Sequence[str]
    insight_count: int
    # by currency: the amount that has no exchange rate
    unconverted: Mapping[str, str] = field(default_factory=dict)
    billed: str = ""  # the cost type if the report shows billed money, or "" if it shows counted costs
    # state of a day's bills, such as open or final -> number of days
    billed_days: Mapping[str, int] = field(default_factory=dict)


def report_title(figures: ReportFigures) -> str:
    total = figures.comparison.total
    subject = f"Billed AI costs ({figures.billed})" if figures.billed else "AI costs"
    amount = NO_PRICE if total.now.unpriced and not total.now.cost else format_dollars(total.now.cost)
    return f"{subject} of {figures.view}, {_span_phrase(figures)}: {amount}{_change_percent(figures)}"


def report_text(figures: ReportFigures) -> str:
    """Format the report as plain lines, for every kind of channel."""
    return "\n\n".join("\n".join(part) for part in _report_paragraphs(figures) if part)


def report_fields(figures: ReportFigures) -> dict[str, str]:
    total, compared = figures.comparison.total, figures.compared
    before = {}
    if compared is not None:
        first, end = compared.spans.before
        before = {
            "period_before": money.units_to_text(total.before.cost),
            "before_from": first.isoformat(),
            "before_to": end.isoformat(),
        }
    return {
        "view": figures.view,
        "from": figures.since.isoformat(),
        "to": figures.until.isoformat(),
        **({"cost_type": figures.billed} if figures.billed else {}),
        "spent": money.units_to_text(total.now.cost),
        **before,
    }


def _report_paragraphs(figures: ReportFigures) -> Iterator[Sequence[str]]:
    total = figures.comparison.total
    yield [comparison_sentence(figures.comparison, figures.past, figures.compared)]
    if figures.compared is not None and figures.compared.rest:
        yield [f"{figures.compared.rest}."]
    if figures.billed:
        day_counts = ", ".join(f"{count} {state}" for state, count in figures.billed_days.items())
        yield [f"Days with bills: {day_counts}. Open days have no billed money."]
    if total.now.unpriced:
        yield [f"{total.now.unpriced:,} calls have no price and are missing from the total."]
    if figures.unconverted:
        yield [f"{unconverted_amounts_sentence(figures.unconverted, CURRENCY)}."]
    yield list(_draw_bars(figures.bars))
    if figures.top:
        yield [
            f"Top {len(figures.top)} by {figures.by}",
            *(_group_line(group, total.now.cost) for group in figures.top),
        ]
    if figures.budgets:
        yield ["Budgets", *(f"- {line}" for line in figures.budgets)]
    if figures.insight_count:
        many = f"{figures.insight_count:,} open insight{'s' * (figures.insight_count > 1)}"
        yield [many, *(f"- {line}" for line in figures.insights)]


def _draw_bars(bars: Sequence[tuple[date, int]]) -> Iterator[str]:
    """Draw a chart as text, because mails and chats show text without loading anything."""
    highest = max((amount for _, amount in bars), default=0)
    for day, amount in bars if highest else ():
        width = -(-amount * WIDTH // highest)
        yield f"{day:%a %d %b}  {BAR * width}{' ' * (width > 0)}{format_dollars(amount)}"


def _group_line(group_amount: tuple[str | None, int], total: int) -> str:
    name, amount = group_amount
    share = round(amount * 100 / total) if total > 0 else 0
    part = f"{share} %" if share or not amount else "under 1 %"
    return f"- {printable_name(name)}: {format_dollars(amount)} ({part})"


def _change_percent(figures: ReportFigures) -> str:
    total = figures.comparison.total
    if total.before.cost < _LITTLE:
        return ""
    change = round(total.parts.change * 100 / total.before.cost)
    return f" ({change:+} %)" if change else ""


def _span_phrase(figures: ReportFigures) -> str:
    first = figures.since.date()
    last = (figures.until - timedelta(days=1)).date()
    if first.day == 1 and (last + timedelta(days=1)).day == 1:
        return f"{first:%B %Y}"
    begin = f"{first.day}" if first.month == last.month else f"{first.day} {first:%B}"
    return f"{begin} to {last.day} {last:%B %Y}"
