"""What recommendations saved after they were followed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated

import msgspec

from gateway.http.holders.operators import InstallationServices
from gateway.http.visible import SLICED
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput, fit
from gateway.mcp.writing import MAX_TABLE_ROWS, cell, clean, money_text, page, table
from gateway.money.costs.measures import CURRENCY_UNIT
from spool.record import moment
from spool.registry.insights import ADDRESSED
from spool.registry.recommendations import Recommendation

MOST = 100


class SavingsQuestion(ToolInput):
    type: Annotated[
        str | None, msgspec.Meta(description="Only recommendations of this type; default: all")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Rows of the answer")] = 20


class SavingLine(ToolOutput):
    """
    `realized` is what was saved on the days from `since` until before `until`, null while that is not known;
    `promised` is what a month was expected to save when it was addressed.
    """

    id: str
    type: str
    title: str
    addressed_at: str
    promised: str | None
    realized: str | None
    since: str | None
    until: str | None


class RealizedSavings(ToolOutput):
    """Totals are of every addressed recommendation of the question, also of those that are cut."""

    currency: str
    savings: list[SavingLine]
    saving_count: int
    total_realized: str
    total_promised: str
    types: list[str]
    truncated: bool


async def run(asked: SavingsQuestion, asking: Asking[InstallationServices]) -> ToolAnswer:
    kept = await asking.shared.require_registry().recommendations.all()
    sees = await asking.reads.visible()
    addressed = [
        each if sees.realized(each) else replace(each, realized=None)
        for each in kept
        if each.status == ADDRESSED and sees.recommendation(each)
    ]
    types = sorted({each.saving.type for each in addressed})
    lines = [_line(each) for each in addressed if asked.type in (None, each.saving.type)]
    lines.sort(key=lambda line: (-Decimal(line.realized or 0), line.id))
    realized = sum((Decimal(line.realized or 0) for line in lines), Decimal(0))
    promised = sum((Decimal(line.promised or 0) for line in lines), Decimal(0))

    shown = {"status": [ADDRESSED], "type": [asked.type] if asked.type else []}

    def written(count: int) -> ToolAnswer:
        content = RealizedSavings(
            currency=CURRENCY_UNIT,
            savings=lines[:count],
            saving_count=len(lines),
            total_realized=f"{realized:f}",
            total_promised=f"{promised:f}",
            types=types,
            truncated=count < len(lines),
        )
        return ToolAnswer(text=_text(content), content=content, link=page(asking, "/recommendations", shown))

    return fit(written, min(asked.limit, len(lines)))


def _line(each: Recommendation) -> SavingLine:
    realized = each.realized
    return SavingLine(
        id=each.id,
        type=each.saving.type,
        title=clean(each.saving.title),
        addressed_at=moment(each.status_at),
        promised=each.promised,
        realized=None if realized is None else realized.amount,
        since=None if realized is None else realized.since,
        until=None if realized is None else realized.until,
    )


def _text(content: RealizedSavings) -> str:
    parts = [
        f"{content.saving_count} recommendations were addressed; they saved "
        f"{money_text(content.total_realized)} "
        f"{content.currency} so far, and were expected to save {money_text(content.total_promised)} a month."
    ]
    if not content.saving_count:
        types = (
            f"there are {', '.join(map(cell, content.types))}" if content.types else "none was addressed yet"
        )
        parts.append(f"None matches: {types}. get_optimize_recs lists what could be saved.")
    rows = [
        [
            cell(each.title),
            each.type,
            money_text(each.realized),
            f"{each.since or '-'} to {each.until or '-'}",
            money_text(each.promised),
        ]
        for each in content.savings[:MAX_TABLE_ROWS]
    ]
    if rows:
        columns = ["recommendation", "type", f"saved ({content.currency})", "days", "promised a month"]
        parts.append(table(columns, rows))
    if content.truncated or len(content.savings) > MAX_TABLE_ROWS:
        parts.append("There are more: see the structured content, raise limit, or ask for one type.")
    return "\n\n".join(parts)


TOOL = Tool(
    name="get_realized_savings",
    title="Realized savings",
    description=(
        "What recommendations saved after people followed them, beside what they had promised. The largest "
        "first; "
        "default: 20. What could be saved and was not yet is in get_optimize_recs."
    ),
    takes=SavingsQuestion,
    gives=RealizedSavings,
    run=run,
    shows=SLICED,
)
