"""The tool get_reconciliation: provider bills against counted costs, and the causes of differences."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.claims import CauseClaim
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import FINAL, ComparisonLine
from gateway.bills.reconciliation.sides import DAY, PARTS
from gateway.bills.reconciliation.wording import build_rounded_comparison_row, day_text
from gateway.mcp.cost_queries import ZONE
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    console_page_link,
    did_you_mean,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.operations.holders.operators import MoneyServices
from spool import money, providers
from spool.errors import Invalid
from spool.printable import CONFIDENCE_WORDS
from spool.turns.threads import sort_in_short_steps

MOST_PROVIDERS = 5
MOST_CAUSES = 5  # maximum causes of differences per provider
_PLACES = 2  # decimal places of the totals in the text
_TEXT = 200  # maximum characters of a cause's evidence, and of its advice


class ReconciliationQuestion(ToolInput):
    month: Annotated[str | None, msgspec.Meta(description="Month, YYYY-MM (UTC); default: this month")] = None
    provider: Annotated[
        str | None, msgspec.Meta(description="Only this provider; default: all with a bill")
    ] = None
    by: Annotated[Literal["day", "model", "key"], msgspec.Meta(description="Dimension of the rows")] = "model"
    limit: Annotated[int, msgspec.Meta(ge=1, le=50, description="Maximum number of rows per provider")] = 10


class BilledLine(ToolOutput):
    """
    A row. Amounts are exact decimal text: billed = counted + explained + unexplained, where `explained` is
    the sum of the causes. Also, billed = counted + volume + rate + other + own. `own` is the value of the
    counted tokens and fees at list prices minus their counted cost. `name` null is unknown.
    """

    name: str | None
    billed: str
    counted: str
    difference: str
    explained: str
    unexplained: str
    volume: str
    rate: str
    other: str
    own: str
    billed_tokens: int
    counted_tokens: int


class ExplainedDifference(ToolOutput):
    """A cause and its part of the difference."""

    cause: str
    amount: str
    sure: str
    evidence: str
    advice: str


class PossibleCause(ToolOutput):
    """A cause that is only likely. Its amount is part of `unexplained`."""

    cause: str
    evidence: str
    advice: str


class ReconciledProvider(ToolOutput):
    """
    A provider. `rest` sums the rows that are not shown, so rows and rest equal the total.

    `not_compared` counts days that are not final or have no bill; no sum includes them.
    """

    provider: str
    total: BilledLine
    rows: list[BilledLine]
    rest: BilledLine | None
    causes: list[ExplainedDifference]
    cause_count: int
    hints: list[PossibleCause]
    not_compared: int


class ReconciledMonths(ToolOutput):
    """The result of the tool. `without_statement` is the counted cost of providers without a bill."""

    month: str
    zone: str
    currency: str
    by: str
    providers: list[ReconciledProvider]
    provider_count: int
    without_statement: str
    truncated: bool


async def answer_reconciliation(
    arguments: ReconciliationQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    reconciler = call_context.services.require_reconciler()
    month = (
        CalendarMonth.at(call_context.shared.clock.now())
        if arguments.month is None
        else _parse_month(arguments.month)
    )
    provider_name = (
        None if arguments.provider is None else providers.canonical_provider_name(arguments.provider)
    )
    reconciled = await reconciler.reconcile(month)
    names = [provider.provider for provider in reconciled.providers]
    if provider_name is not None and provider_name not in names:
        known = ", ".join(map(remove_hidden_characters, names)) or "none"
        hint = did_you_mean(provider_name, names)
        raise Invalid(
            f"{reconciled.month.name} has no bill from {remove_hidden_characters(provider_name)}{hint}; the providers "
            "with bills are: "
            f"{known}"
        )
    chosen = [provider for provider in reconciled.providers if provider_name in (None, provider.provider)]
    chosen.sort(key=lambda provider: (-abs(provider.total.difference), provider.provider))

    link = console_page_link(
        call_context, "/reconciliation", {"month": [reconciled.month.name], "by": [arguments.by]}
    )

    def answer_with_lines(count: int) -> ToolAnswer:
        shown = [_reconciled_provider(provider, arguments.by, count) for provider in chosen[:MOST_PROVIDERS]]
        content = ReconciledMonths(
            month=reconciled.month.name,
            zone=ZONE,
            currency=CURRENCY_UNIT,
            by=arguments.by,
            providers=shown,
            provider_count=len(chosen),
            without_statement=money.units_to_text(sum(reconciled.without.values())),
            truncated=len(chosen) > MOST_PROVIDERS or any(provider.rest is not None for provider in shown),
        )
        return ToolAnswer(text=_format_reconciliation(content), content=content, link=link)

    return await asyncio.to_thread(answer_within_limit, answer_with_lines, arguments.limit)


def _parse_month(text: str) -> CalendarMonth:
    try:
        return CalendarMonth.of(text)
    except (ValueError, OverflowError):
        raise Invalid("month must be a year and a month, such as 2026-10") from None


def _reconciled_provider(result: Reconciliation, dimension: str, count: int) -> ReconciledProvider:
    lines = sort_in_short_steps(
        filter(_has_final_state, result.lines_of_level(dimension)),
        key=lambda line: (-abs(line.difference), line.name),
    )
    rest = lines[count:]
    return ReconciledProvider(
        provider=clean_and_shorten(result.provider, _TEXT),
        total=_sum_lines([result.total], None),
        rows=[_sum_lines([line], _shown_line_name(line, dimension)) for line in lines[:count]],
        rest=_sum_lines(rest, None) if rest else None,
        causes=[_explained_difference(claim) for claim in result.claims[:MOST_CAUSES]],
        cause_count=len(result.claims),
        hints=[
            PossibleCause(
                cause=hint.cause,
                evidence=clean_and_shorten(hint.evidence, _TEXT),
                advice=clean_and_shorten(hint.advice, _TEXT),
            )
            for hint in result.hints[:MOST_CAUSES]
        ],
        not_compared=sum(not _has_final_state(line) for line in result.days),
    )


def _has_final_state(line: ComparisonLine) -> bool:
    return line.state in FINAL


def _shown_line_name(line: ComparisonLine, dimension: str) -> str | None:
    return day_text(int(line.name)) if dimension == DAY else remove_hidden_characters(line.name) or None


def _sum_lines(lines: Sequence[ComparisonLine], name: str | None) -> BilledLine:
    return BilledLine(
        name=name,
        billed=money.units_to_text(sum(line.billed for line in lines)),
        counted=money.units_to_text(sum(line.counted for line in lines)),
        difference=money.units_to_text(sum(line.difference for line in lines)),
        explained=money.units_to_text(sum(line.explained for line in lines)),
        unexplained=money.units_to_text(sum(line.unexplained for line in lines)),
        **{part: money.units_to_text(sum(line.parts[part] for line in lines)) for part in PARTS},
        billed_tokens=sum(line.billed_tokens for line in lines),
        counted_tokens=sum(line.counted_tokens for line in lines),
    )


def _explained_difference(claim: CauseClaim) -> ExplainedDifference:
    return ExplainedDifference(
        cause=claim.cause,
        amount=money.units_to_text(claim.amount),
        sure=claim.sure,
        evidence=clean_and_shorten(claim.evidence, _TEXT),
        advice=clean_and_shorten(claim.advice, _TEXT),
    )


def _format_reconciliation(content: ReconciledMonths) -> str:
    if not content.providers:
        return (
            f"{content.month}: no provider bill was imported, so nothing can be compared; counted "
            f"costs are {format_dollars(content.without_statement)} {content.currency}."
        )
    parts = [
        f"{content.month} ({content.zone}): {content.provider_count} providers with bills, in "
        f"{content.currency}. Counted without a bill: {format_dollars(content.without_statement)}."
    ]
    for provider in content.providers:
        total = provider.total
        causes = {"": total.explained} if provider.causes else {}
        shown = build_rounded_comparison_row(
            total.billed, total.counted, causes, total.unexplained, places=_PLACES
        )
        parts.append(
            f"{format_cell(provider.provider)}: billed {shown.billed}, counted {shown.counted}, difference "
            f"{shown.difference} = {shown.explained} explained + {shown.unexplained} unexplained; "
            f"{provider.not_compared} days are not compared yet."
        )
        rows = [
            [
                format_cell(row.name),
                *(format_dollars(getattr(row, name)) for name in ("billed", "counted", "difference")),
            ]
            for row in provider.rows[:MAX_TABLE_ROWS]
        ]
        if rows:
            parts.append(markdown_table([content.by, "billed", "counted", "difference"], rows))
        if provider.rest is not None:
            parts.append(f"All other rows: difference {format_dollars(provider.rest.difference)}.")
        for claim in provider.causes:
            parts.append(
                f"{claim.cause} ({CONFIDENCE_WORDS.get(claim.sure, claim.sure)}): {format_dollars(claim.amount)}. "
                f"{format_cell(claim.evidence)}"
            )
    if content.truncated:
        parts.append("There are more; name one provider, or raise limit.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name="get_reconciliation",
    title="Billed against counted",
    description=(
        "Provider bills of a month against counted costs: the difference split exactly into volume, "
        "rate, other and own, and its causes with evidence, by day, model or key. Default: this "
        "month, by model."
    ),
    takes=ReconciliationQuestion,
    gives=ReconciledMonths,
    run=answer_reconciliation,
)
