"""What providers billed against what was counted, with what explains the difference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gateway.bills.reconciliation.claims import Claim
from gateway.bills.reconciliation.comparing import AGREES, DIFFERS, Line, Reconciliation
from gateway.bills.reconciliation.gathering import CalendarMonth
from gateway.bills.reconciliation.sides import DAY, PARTS
from gateway.bills.reconciliation.wording import day_text
from gateway.http.holders.operators import MoneyServices
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.mcp.questions import ZONE
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput, fit
from gateway.mcp.writing import MAX_TABLE_ROWS, cell, clean, cut, money_text, page, suggestion, table
from gateway.money.costs.measures import CURRENCY_UNIT
from spool import providers
from spool.errors import Invalid
from spool.ledger import money
from spool.turns.threads import ordered

MOST_PROVIDERS = 5
MOST_CAUSES = 5  # of one provider
_TEXT = 200  # characters of evidence and advice


class ReconciliationQuestion(ToolInput):
    month: Annotated[str | None, msgspec.Meta(description="YYYY-MM of UTC; default: this month")] = None
    provider: Annotated[str | None, msgspec.Meta(description="Default: all with a statement")] = None
    by: Annotated[Literal["day", "model", "key"], msgspec.Meta(description="What rows tell apart")] = "model"
    limit: Annotated[int, msgspec.Meta(ge=1, le=50, description="Rows of each provider")] = 10


class BilledLine(ToolOutput):
    """Exact decimal text: billed is counted, and the parts volume, rate, other and own. `name` null is unknown."""

    name: str | None
    billed: str
    counted: str
    difference: str
    volume: str
    rate: str
    other: str
    own: str
    unexplained: str
    billed_tokens: int
    counted_tokens: int


class ExplainedDifference(ToolOutput):
    """A cause with its part of the difference."""

    cause: str
    amount: str
    sure: str
    evidence: str
    advice: str


class ReconciledProvider(ToolOutput):
    """
    `rest` is every row that is not shown, so that rows and rest add up to total. `not_compared` are days that
    are not settled, or have no statement: they are in no sum.
    """

    provider: str
    total: BilledLine
    rows: list[BilledLine]
    rest: BilledLine | None
    causes: list[ExplainedDifference]
    cause_count: int
    not_compared: int


class ReconciledMonths(ToolOutput):
    """`without_statement` is what was counted of providers that no statement tells of."""

    month: str
    zone: str
    currency: str
    by: str
    providers: list[ReconciledProvider]
    provider_count: int
    without_statement: str
    truncated: bool


async def run(asked: ReconciliationQuestion, asking: Asking[MoneyServices]) -> ToolAnswer:
    reconciler = asking.services.require_reconciler()
    month = CalendarMonth.at(asking.shared.clock.now()) if asked.month is None else _month(asked.month)
    wanted = None if asked.provider is None else providers.canonical(asked.provider)
    try:
        found = await reconciler.reconcile(month)
    except CardUnreadable as error:
        raise Invalid(f"prices.file: {error}") from error
    names = [each.provider for each in found.providers]
    if wanted is not None and wanted not in names:
        known = ", ".join(map(clean, names)) or "none"
        hint = suggestion(wanted, names)
        raise Invalid(f"no statement of {found.month.name} is of {clean(wanted)}{hint}; there are: {known}")
    chosen = [each for each in found.providers if wanted in (None, each.provider)]
    chosen.sort(key=lambda each: (-abs(each.total.difference), each.provider))

    link = page(asking, "/reconciliation", {"month": [found.month.name], "by": [asked.by]})

    def written(count: int) -> ToolAnswer:
        shown = [_provider(each, asked.by, count) for each in chosen[:MOST_PROVIDERS]]
        content = ReconciledMonths(
            month=found.month.name,
            zone=ZONE,
            currency=CURRENCY_UNIT,
            by=asked.by,
            providers=shown,
            provider_count=len(chosen),
            without_statement=money.text(sum(found.without.values())),
            truncated=len(chosen) > MOST_PROVIDERS or any(each.rest is not None for each in shown),
        )
        return ToolAnswer(text=_text(content), content=content, link=link)

    return await asyncio.to_thread(fit, written, asked.limit)


def _month(text: str) -> CalendarMonth:
    try:
        return CalendarMonth.of(text)
    except (ValueError, OverflowError):
        raise Invalid("month must be written as a year and a month, such as 2026-10") from None


def _provider(found: Reconciliation, by: str, count: int) -> ReconciledProvider:
    lines = ordered(
        filter(_is_compared, found.lines(by)), key=lambda line: (-abs(line.difference), line.name)
    )
    rest = lines[count:]
    return ReconciledProvider(
        provider=cut(found.provider, _TEXT),
        total=_line([found.total], None),
        rows=[_line([line], _name(line, by)) for line in lines[:count]],
        rest=_line(rest, None) if rest else None,
        causes=[_cause(claim) for claim in found.claims[:MOST_CAUSES]],
        cause_count=len(found.claims),
        not_compared=sum(not _is_compared(line) for line in found.days),
    )


def _is_compared(line: Line) -> bool:
    return line.state in (AGREES, DIFFERS)


def _name(line: Line, by: str) -> str | None:
    return day_text(int(line.name)) if by == DAY else clean(line.name) or None


def _line(lines: Sequence[Line], name: str | None) -> BilledLine:
    """These lines as one."""
    return BilledLine(
        name=name,
        billed=money.text(sum(line.billed for line in lines)),
        counted=money.text(sum(line.counted for line in lines)),
        difference=money.text(sum(line.difference for line in lines)),
        **{part: money.text(sum(line.parts[part] for line in lines)) for part in PARTS},
        unexplained=money.text(sum(line.unexplained for line in lines)),
        billed_tokens=sum(line.billed_tokens for line in lines),
        counted_tokens=sum(line.counted_tokens for line in lines),
    )


def _cause(claim: Claim) -> ExplainedDifference:
    return ExplainedDifference(
        cause=claim.cause,
        amount=money.text(claim.amount),
        sure=claim.sure,
        evidence=cut(claim.evidence, _TEXT),
        advice=cut(claim.advice, _TEXT),
    )


def _text(content: ReconciledMonths) -> str:
    if not content.providers:
        return (
            f"{content.month}: no statement of a provider was imported, so nothing can be compared; "
            f"{money_text(content.without_statement)} {content.currency} were counted."
        )
    parts = [
        f"{content.month} ({content.zone}): {content.provider_count} providers with statements, in "
        f"{content.currency}. "
        f"Counted without a statement: {money_text(content.without_statement)}."
    ]
    for each in content.providers:
        total = each.total
        parts.append(
            f"{cell(each.provider)}: billed {money_text(total.billed)}, counted {money_text(total.counted)}, "
            f"difference {money_text(total.difference)}, of it unexplained {money_text(total.unexplained)}; "
            f"{each.not_compared} days are not compared yet."
        )
        rows = [
            [
                cell(row.name),
                *(money_text(getattr(row, name)) for name in ("billed", "counted", "difference")),
            ]
            for row in each.rows[:MAX_TABLE_ROWS]
        ]
        if rows:
            parts.append(table([content.by, "billed", "counted", "difference"], rows))
        if each.rest is not None:
            parts.append(f"All other rows: difference {money_text(each.rest.difference)}.")
        for claim in each.causes:
            parts.append(f"{claim.cause} ({claim.sure}): {money_text(claim.amount)}. {cell(claim.evidence)}")
    if content.truncated:
        parts.append("There is more: ask for one provider, or raise limit.")
    return "\n\n".join(parts)


TOOL = Tool(
    name="get_reconciliation",
    title="Billed against counted",
    description=(
        "How what providers billed in a month compares with what was counted: the difference split exactly "
        "into "
        "volume, rate, other and own, its causes with evidence, by day, model or key. Default: this month, "
        "by model."
    ),
    takes=ReconciliationQuestion,
    gives=ReconciledMonths,
    run=run,
)
