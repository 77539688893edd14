"""The tools get_org_context, an overview of data and configuration to read first, and set_org_context."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from typing import Annotated

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import ZONE, date_range_span
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput
from gateway.mcp.tools.dimensions import describe_dimensions
from gateway.mcp.writing import (
    UNKNOWN,
    clean_lines,
    console_page_link,
    format_cell,
    format_dollars,
    format_percent,
    remove_hidden_characters,
    remove_hidden_characters_or_none,
)
from gateway.money.budgets.declared import BudgetTable
from gateway.money.costs.measures import CURRENCY_UNIT, estimated_cost
from gateway.operations.holders.operators import InstallationServices, MoneyServices
from spool import money
from spool.ledger.costs import combine_rows
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.record import utc_iso
from spool.registry.org_context import MAX_TEXT
from spool.registry.permission_sets import WORK_ON_INSIGHTS
from spool.registry.registry import Registry

_TOP = 5
_NAMES = 20  # maximum names of views, and of budgets, in the result
_TOPS = ("model", "team")


class ContextQuestion(ToolInput):
    """No arguments."""


class Spender(ToolOutput):
    """A group with its cost. `name` is null if unknown."""

    name: str | None
    cost: str


class OrgNotes(ToolOutput):
    """Notes about the organization, and who set them."""

    text: str
    set_by: str
    set_at: str


class ContextAnswer(ToolOutput):
    """
    The result of get_org_context. The fields `month_...` are of this month so far. Lists of views and budgets
    are limited.
    """

    currency: str
    zone: str
    as_of: str
    first_day: str | None
    last_day: str | None
    month_cost: str
    month_calls: int
    estimated_percent: str | None
    unpriced_calls: int
    calls_without_usage: int
    unowned_calls: int
    dimensions: dict[str, int]
    top: dict[str, list[Spender]]
    views: list[str]
    view_count: int
    budgets: list[str]
    budget_count: int
    price_book: str
    org_context: OrgNotes | None
    notes: list[str]


async def answer_org_context(_: ContextQuestion, call_context: ToolCallContext[MoneyServices]) -> ToolAnswer:
    registry = call_context.shared.registry
    sees = await call_context.cost_reader.read_visibility()
    now = call_context.shared.clock.now()
    since, until = date_range_span("month_to_date", now)
    month = {
        name: await call_context.visible_ledger.costs(
            CostQuery(since=since, until=until, granularity=TOTAL, group_by=[name])
        )
        for name in _TOPS
    }
    total = await asyncio.to_thread(partial(combine_rows, month["team"], start=since, group=()))
    known_days = await _visible_data_span(call_context)
    views = (
        [] if registry is None else [view.name for view in registry.views.all() if sees.can_see_view(view)]
    )
    budgets = (
        []
        if registry is None
        else [
            budget.name
            for budget in registry.declared_table(BudgetTable).all()
            if sees.can_see_budget(budget)
        ]
    )
    notes = (
        []
        if registry is not None
        else ["the registry cannot be read, so views and budgets are unknown at the moment"]
    )
    content = ContextAnswer(
        currency=CURRENCY_UNIT,
        zone=ZONE,
        as_of=utc_iso(now),
        first_day=known_days and _format_day(known_days[0]),
        last_day=known_days and _format_day(known_days[1]),
        month_cost=total.cost,
        month_calls=total.calls,
        estimated_percent=format_percent(estimated_cost(total), money.text_to_units(total.cost)),
        unpriced_calls=total.unpriced,
        calls_without_usage=total.without_usage,
        unowned_calls=sum(row.calls for row in month["team"] if row.group[0] is None),
        dimensions={
            dimension.name: dimension.value_count for dimension in await describe_dimensions(call_context)
        },
        top={name: await asyncio.to_thread(_largest_spenders, rows) for name, rows in month.items()},
        views=[remove_hidden_characters_or_none(name) or "" for name in views[:_NAMES]],
        view_count=len(views),
        budgets=[remove_hidden_characters_or_none(name) or "" for name in budgets[:_NAMES]],
        budget_count=len(budgets),
        price_book=call_context.services.prices().version,
        org_context=await _fetch_organization_notes(registry)
        if registry is not None and call_context.visible_ledger.is_whole
        else None,
        notes=notes,
    )
    return ToolAnswer(
        text=_format_context(content), content=content, link=console_page_link(call_context, "/")
    )


async def _visible_data_span(
    call_context: ToolCallContext[MoneyServices],
) -> tuple[datetime, datetime] | None:
    span = await call_context.services.ledger.stored_span()
    if span is None or call_context.visible_ledger.is_whole:
        return span
    until = next_full_hour(max(call_context.shared.clock.now(), span[1].timestamp()))
    rows = await call_context.visible_ledger.costs(
        CostQuery(since=span[0], until=until, granularity="daily", measures=("calls",))
    )
    days = [row.start for row in rows if row.calls]
    return (min(days), max(days)) if days else None


async def _fetch_organization_notes(registry: Registry) -> OrgNotes | None:
    notes = await registry.org_context.get()
    if notes is None:
        return None
    return OrgNotes(
        text=clean_lines(notes.text),
        set_by=remove_hidden_characters(notes.set_by),
        set_at=utc_iso(notes.set_at),
    )


def _format_day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()


def _largest_spenders(rows: Sequence[CostRow]) -> list[Spender]:
    largest = nsmallest(_TOP, rows, key=lambda row: (-money.text_to_units(row.cost), row.group[0] or ""))
    return [Spender(name=remove_hidden_characters_or_none(row.group[0]), cost=row.cost) for row in largest]


def _format_context(context: ContextAnswer) -> str:
    days = f"{context.first_day} to {context.last_day}" if context.first_day else "no data yet"
    lines = [
        f"This month so far: {format_dollars(context.month_cost)} {context.currency} in {context.month_calls:,} "
        f"calls; {context.estimated_percent or '0.0'} % of the cost is estimated, "
        f"{context.unpriced_calls:,} calls have no price, {context.calls_without_usage:,} report no usage, "
        f"{context.unowned_calls:,} have no team. As "
        f"of {context.as_of}.",
        f"Data: {days}. Days are in {context.zone}. List prices: {context.price_book}.",
        "Dimensions (values): "
        + ", ".join(f"{format_cell(name)} ({count})" for name, count in context.dimensions.items()),
        *(
            f"Top {name}: "
            + ", ".join(
                f"{UNKNOWN if spender.name is None else format_cell(spender.name)} {format_dollars(spender.cost)}"
                for spender in spenders
            )
            for name, spenders in context.top.items()
            if spenders
        ),
        _format_names_line("Views", context.views, context.view_count),
        _format_names_line("Budgets", context.budgets, context.budget_count),
        *context.notes,
    ]
    if context.org_context is not None:
        # The organization's notes are written as JSON text, so that they cannot look like a line of this
        # result.
        notes = context.org_context
        noted = json.dumps(notes.text, ensure_ascii=False)
        lines.append(
            f"Notes on the organization (data, set by {format_cell(notes.set_by)} at {notes.set_at}): {noted}"
        )
    return "\n".join(lines)


def _format_names_line(line_title: str, names: list[str], count: int) -> str:
    suffix = f", and {count - len(names)} more" if count > len(names) else ""
    return f"{line_title}: {', '.join(map(format_cell, names)) or 'none'}{suffix}"


TOOL = McpTool(
    name="get_org_context",
    title="Context",
    description=(
        "Call this first. Returns currency, time zone, days with data, costs of this month so far, "
        "dimensions, the largest models and teams, views, budgets, and calls without a price or an "
        "owner."
    ),
    takes=ContextQuestion,
    gives=ContextAnswer,
    run=answer_org_context,
    shows=SLICED,
)


class NewOrgContext(ToolInput):
    text: Annotated[
        str,
        msgspec.Meta(
            max_length=MAX_TEXT,
            description=(
                f"All notes, at most {MAX_TEXT} characters. Replaces the earlier notes; an empty text "
                "removes them"
            ),
        ),
    ]


class OrgContextSet(ToolOutput):
    """The notes as they are now stored."""

    text: str
    set_by: str | None


async def store_organization_notes(
    arguments: NewOrgContext, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    table = call_context.shared.require_registry().org_context
    stored_notes = await table.set_text(clean_lines(arguments.text), actor=call_context.actor)
    content = OrgContextSet(
        text="" if stored_notes is None else stored_notes.text,
        set_by=None if stored_notes is None else stored_notes.set_by,
    )
    outcome = "removed" if stored_notes is None else f"set, {len(stored_notes.text)} characters"
    return ToolAnswer(
        text=f"The notes on the organization are {outcome}; get_org_context returns them.", content=content
    )


SET_TOOL = McpTool(
    name="set_org_context",
    title="Set the notes on the organization",
    description=(
        "Record what every assistant should know about the organization, such as which team owns "
        "which service. Replaces the notes that get_org_context returns as org_context, so read them "
        "first and keep what is still true."
    ),
    takes=NewOrgContext,
    gives=OrgContextSet,
    run=store_organization_notes,
    writes=True,
    needs=WORK_ON_INSIGHTS,
    replaces=True,
)
