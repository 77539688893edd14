"""Operator API for the notes in charts: annotations, changes of list prices, and new models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.intake.rates import Quote
from gateway.intake.unit_prices import UNITS
from gateway.operations.answers import MarkItem
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import JsonAnswer
from gateway.operations.money.annotations import AnnotationTable
from gateway.operations.money.costs.questions import ONE_SPAN, is_query_of_past_whole_months, read_question
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.ledger.dimensions import MODEL_FAMILY, TOTAL, Group
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.record import NS
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS

REPEATED = ("where",)
ONCE = (*ONE_SPAN, "view")
ANNOTATION, PRICES, MODEL = "annotation", "list_prices", "new_model"
MOST_MODELS = 50  # only this number of models is considered: the models with the most calls
MOST_MARKS = 100
NEW_AFTER = timedelta(days=365)  # a model that had no calls for this time counts as new
MOST_DAYS = 366  # if the time range has more days, a new model is marked on the first day of its month
_SHORT = -1  # stands for the prices of short prompts, in place of a minimum input size


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    day: str
    kind: str
    text: str
    id: str | None = None  # id of the annotation, or None for other notes


class MarksAnswer(msgspec.Struct, kw_only=True):
    marks: Annotated[list[MarkItem], words("Annotations and other events by day.")]
    truncated: Annotated[
        bool, words("Whether older marks are missing because there are too many."), example(False)
    ]


@operator_call(
    "GET",
    "/marks",
    VIEW_COSTS,
    "List annotations, changed list prices and new models in a time range by day",
    optional=ONCE,
    repeated=REPEATED,
    shows=SLICED,
    in_turn=True,
    asks_closed=is_query_of_past_whole_months,
    answers=MarksAnswer,
)
async def marks(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the newest notes of the time range, by day: annotations, new prices and new models. A model is new
    if none of its calls in the preceding year match the filters.

    Annotations of a view appear in queries of this view and in queries without a view. Filters by units of
    work do not limit the notes.
    """
    await request.ledger.require_complete_totals(request.services.log)
    query = (
        await read_question(request, await request.cost_reader.visible_dimensions(includes_work_units=True))
    ).query
    return await chart_marks(request, request.services, query.without_units())


async def chart_marks(
    request: OperatorRequest[Any, None], money: MoneyServices, query: CostQuery
) -> JsonAnswer:
    """Return the notes for a query in the requested view. Does not update the totals first."""
    ledger = request.ledger
    marks = [
        *await _annotation_marks(request, query),
        *await _new_model_marks(ledger, query),
        *await _price_change_marks(ledger, money, query),
    ]
    marks.sort(key=lambda mark: (mark.day, mark.kind, mark.text))
    shown = marks[-MOST_MARKS:]
    rows = [{"day": mark.day, "kind": mark.kind, "text": mark.text, "id": mark.id} for mark in shown]
    return {"marks": rows, "truncated": len(shown) < len(marks)}


async def _annotation_marks(request: OperatorRequest[Any, None], query: CostQuery) -> list[ChartMark]:
    registry, sees, word = (
        request.registry,
        await request.cost_reader.read_visibility(),
        request.http.query.get("view"),
    )
    views = ("", request.cost_reader.find_view_among(word, sees).id) if word else None
    first, last = (
        edge.astimezone(query.zone).date().isoformat()
        for edge in (query.since, query.until - timedelta(microseconds=1))
    )
    return [
        ChartMark(day=annotation.day, kind=ANNOTATION, text=annotation.text, id=annotation.id)
        for annotation in registry.declared_table(AnnotationTable).all()
        if first <= annotation.day <= last
        and (views is None or annotation.view in views)
        and sees.can_see_view_id(annotation.view)
    ]


async def _new_model_marks(ledger: SlicedLedger, query: CostQuery) -> list[ChartMark]:
    """
    Return the first calls of new models. Totals by day are read only for new models, because usually
    there are none.
    """
    days = (query.until - query.since).days
    model_query = replace(query, group_by=(MODEL_FAMILY,), measures=("calls",))
    rows = await ledger.costs(replace(model_query, granularity=TOTAL, top=MOST_MODELS, top_by="calls"))
    models = frozenset(row.group for row in rows) - {(None,), (OTHER,)}
    known = await _models_used_before(ledger, model_query, models)
    new = models - (known or frozenset())
    if not new:
        return []
    per = "daily" if days <= MOST_DAYS else "monthly"
    first: dict[str, datetime] = {}
    rows = await ledger.costs(replace(model_query, granularity=per, kept=new))
    for row in sorted(rows, key=lambda row: row.start):
        if row.calls and row.group in new:
            first.setdefault(str(row.group[0]), row.start)
    # If there are no calls before the range, every model would be new, so models of the first day are not marked.
    begin = min(first.values(), default=None) if known is None else None
    return [
        ChartMark(
            day=start.astimezone(query.zone).date().isoformat(), kind=MODEL, text=f"First calls of {model}"
        )
        for model, start in first.items()
        if start != begin
    ]


async def _models_used_before(
    ledger: SlicedLedger, query: CostQuery, models: frozenset[Group]
) -> frozenset[Group] | None:
    # Older totals exist only for whole days in UTC, so start at midnight in UTC, even if the query
    # uses another zone.
    midnight = query.since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    before = replace(query, since=midnight - NEW_AFTER, until=query.since, granularity=TOTAL)
    rows = await ledger.costs(replace(before, kept=models))
    return frozenset(row.group for row in rows if row.calls) or None


async def _price_change_marks(
    ledger: SlicedLedger, money: MoneyServices, query: CostQuery
) -> list[ChartMark]:
    """Return changes of list prices in the time range. They take effect at midnight in UTC."""
    model_query = replace(query, granularity=TOTAL, group_by=("provider", "model"), measures=("calls",))
    rows = await ledger.costs(replace(model_query, top=MOST_MODELS, top_by="calls"))
    groups = {row.group for row in rows}
    models = sorted(
        {(provider, str(model)) for provider, model in groups if model not in (None, OTHER)}, key=str
    )
    try:
        book = await asyncio.to_thread(money.prices)
    except CardUnreadable:
        return []  # without a readable price list no call can be priced; `tollhouse check` shows the faulty line
    return list(_price_change_marks_of_models(book, models, query))


def _price_change_marks_of_models(
    price_book: PriceBook, models: Sequence[tuple[str | None, str]], query: CostQuery
) -> Iterator[ChartMark]:
    """
    Yield the price changes of the models (provider, name). A change that several providers have is yielded
    once.
    """
    since, until = (int(edge.timestamp() * NS) for edge in (query.since, query.until))
    seen = set()
    for provider, model in models:
        for at, before, after in price_book.price_changes_between(provider, model, since, until):
            changes = _describe_price_change(
                _shown_prices_by_size_threshold(before), _shown_prices_by_size_threshold(after)
            )
            if changes and (at, model, changes) not in seen:
                seen.add((at, model, changes))
                yield ChartMark(
                    day=_format_day(at / NS), kind=PRICES, text=f"List prices of {model} changed: {changes}"
                )


def _shown_prices_by_size_threshold(quote: Quote) -> Mapping[int, Mapping[str, str]]:
    return {above: part.shown for above, part in quote.parts}


def _describe_price_change(
    before: Mapping[int, Mapping[str, str]], after: Mapping[int, Mapping[str, str]]
) -> str:
    """Describe what changed. Return "" if nothing changed, or if the old or the new price is missing."""
    old = before.get(_SHORT, {})
    new = after.get(_SHORT, {})
    changed = [name for name in UNITS if name in old and name in new and old[name] != new[name]]
    if changed:
        return ", ".join(
            f"{UNITS[name].words} ${old[name]} → ${new[name]}{_per_unit_phrase(name)}" for name in changed
        )
    if not old or not new or before == after:
        return ""
    return (
        "prices of long prompts" if old == new else "some kinds of usage got a separate price or lost theirs"
    )


def _per_unit_phrase(name: str) -> str:
    unit_words = UNITS[name].per_words
    return " each" if unit_words == "one" else f" a {unit_words}"


def _format_day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
