"""
The call of the operator API for costs: by dimensions and periods, beside the period before, the largest groups
alone, as JSON or CSV.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.api.report_words import ASKED, PREVIOUS, SAVED_BY_CACHING, columns
from gateway.comparison.comparing import AnswersCosts
from gateway.comparison.old_prices import list_prices
from gateway.first_use import imported
from gateway.http.answers import CSV, UNCACHED, Pieces
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.mounts import CUT_PERIODS, WHOLE_SINCE
from gateway.operator.costs import billed_money
from gateway.operator.costs.asked_measures import AskedMeasures, asked_measures
from gateway.operator.costs.questions import ReportQuestion, report_question
from gateway.operator.costs.report_answer import identity, report_answer
from gateway.operator.costs.row_pages import enveloped
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import named_dimensions
from spool.csv_cells import csv_pieces
from spool.ledger.billed import COUNTED
from spool.ledger.costs import cut
from spool.ledger.queries import BILLED_DIMENSIONS, BILLED_TYPES, PLAN_TYPES, CostQuery, CostRow, Group
from spool.ledger.slices import SlicedLedger
from spool.record import moment
from spool.streams import METRIC


async def report(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    The costs of everything closed by now: the ledger catches up first.

    `whole_since` is given where sums of the report may lack records that were gone before they were counted.
    `total` is over all rows; a period of the period before that has no counterpart is in it alone. A period of
    `cut_periods` is one that the question begins or ends in. JSON has at most answers.max_rows: where there
    are more, `truncated` says that groups were added up as OTHER; CSV has all of them. Rows are in the
    envelope of every list. `billed` is null, or how final the days of billed money are. With lines=meters a row
    has `price_lines`: what its estimates were charged for, and the counts and the cost of the calls that these are
    of; null if none is known.
    """
    ledger = request.ledger
    await ledger.catch_up(request.services.log)
    named = await named_dimensions(request)
    known = (*ledger.own_dimensions(), *(each.name for each in named))
    if request.http.query.get("cost_type") in BILLED_TYPES:
        known = (*known, *BILLED_DIMENSIONS, *await ledger.row_tags())
    question = await report_question(request, known)
    ledger = request.ledger_of(question.cost_types)
    asks = await _asks(request, ledger, question)
    query = question.query
    previous = question.previous
    now = await asks.costs(replace(query, top=question.top, top_by=question.top_by))
    filled = {COUNTED: asks.counted} if question.fills else {}
    if question.top is not None:
        groups = await asyncio.to_thread(_groups, now) | {(None,) * len(query.group_by)}
        query, previous = replace(query, kept=groups), previous and replace(previous, kept=groups)
        question = replace(question, query=query, previous=previous)
    before = [] if previous is None else await asks.costs(previous)
    asked = [await _asked(request, asks, question, each) for each in (query, previous)]
    billed = {**await billed_money.told(request, query), **filled} if query.arranged else None
    whole = await ledger.whole_since()
    since = (previous or query).since
    cut_periods = [start.isoformat() for start in cut(query)]
    max_rows = request.shared.answers().max_rows
    answer = await asyncio.to_thread(
        report_answer, question, now, before, asked, None if question.as_csv else max_rows
    )
    beside: dict[str, Any] = {
        "report": {
            "from": query.since.isoformat(),
            "to": query.until.isoformat(),
            "by": list(query.group_by),
            "per": query.granularity,
            "show": list(question.show),
            "top": question.top,
            "dimensions": list(known),
            "names": {each.name: each.label for each in named},
            "previous": previous and {"from": previous.since.isoformat(), "to": previous.until.isoformat()},
            "whole_since": moment(whole) if since.timestamp() < whole else None,
            "cut_periods": cut_periods,
            "currency": query.currency,
            "cost_type": question.cost_type,
            "charges": answer.charges,
            "unconverted": answer.unconverted,
            "unit": question.unit or None,
            "streams": await _streams(request),
            "row_count": answer.row_count,
            "truncated": answer.is_truncated,
        },
        "total": answer.total,
        "latency": answer.latency,
        "billed": billed,
    }
    if not question.as_csv:
        show = answer.show
        if question.has_lines:
            lines = await imported("gateway.operator.costs.price_lines")
            charged = await lines.charged_lines(asks, query, request.services.prices)
            show = lines.with_lines(show, charged)
        page = await enveloped(
            request,
            answer.places,
            show=show,
            place=lambda place: place[0],
            identity=identity,
            query=question.query,
            dimensions=known,
            most=max_rows,
        )
        return {**beside, **page}
    headers = {**UNCACHED, "Content-Disposition": 'attachment; filename="tollhouse-report.csv"'}
    if since.timestamp() < whole:
        headers[WHOLE_SINCE] = moment(whole)
    if cut_periods:
        headers[CUT_PERIODS] = ", ".join(cut_periods)
    rows = csv_rows({**beside, "rows": map(answer.show, answer.places)})
    return Pieces(pieces=csv_pieces(rows), content_type=CSV, headers=headers)


def _groups(rows: Sequence[CostRow]) -> frozenset[Group]:
    return frozenset([row.group for row in rows])


def csv_rows(payload: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """The rows of a report; the same columns whether there are any or not."""
    asked = payload["report"]
    measures = [
        *asked["show"],
        *(f"previous_{name}" for name in (asked["show"] if asked["previous"] else ())),
    ]
    names = [*columns(asked), *measures]
    yield names
    yield from (_csv_row(row, names) for row in payload["rows"])


def _csv_row(row: Mapping[str, Any], names: Sequence[str]) -> list[object]:
    cells = {**row, **{f"previous_{name}": value for name, value in row.get(PREVIOUS, {}).items()}}
    return [cells[name] for name in names]


async def _asks(
    request: OperatorRequest[MoneyServices, Any], ledger: SlicedLedger, question: ReportQuestion
) -> Any:
    """
    Return the ledger, of PLAN_TYPES the part of it that plans of assistants cover, or the other one; with
    counted money where bills are missing, if that is asked for.
    """
    if question.fills:
        return (await imported("gateway.billed.missing")).WithMissing(ledger, request.whole_ledger)
    if question.cost_type not in PLAN_TYPES:
        return ledger
    return (await imported("gateway.plans.metered")).divided(ledger, request.registry, question.cost_type)


async def _asked(
    request: OperatorRequest[MoneyServices, Any],
    ledger: AnswersCosts,
    question: ReportQuestion,
    query: CostQuery | None,
) -> AskedMeasures | None:
    """Return the measures shown beside the sums; None if none of them is asked for."""
    if query is None or set(ASKED).isdisjoint(question.show):
        return None
    saves = SAVED_BY_CACHING in question.show
    return await asked_measures(
        ledger,
        query,
        unit=question.unit,
        saves=saves,
        streams=None if request.is_limited else request.services.streams,
        prices=await list_prices(request.services.prices) if saves else None,
    )


async def _streams(request: OperatorRequest[MoneyServices, Any]) -> Sequence[str]:
    """The unit-cost streams whose values can be units; none for who may see some calls alone."""
    streams = request.services.streams
    if request.is_limited or streams is None:
        return ()
    return [each.name for each in await streams.streams() if each.type == METRIC]
