"""The answer to a question for costs: rows by period and group, beside the period before. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from gateway.api.measures import billed_tokens, per
from gateway.api.report_words import PERCENTILES, PREVIOUS, SUMS
from gateway.operator.costs.asked_measures import AskedMeasures, Place, Placed
from gateway.operator.costs.kept_groups import largest_groups
from gateway.operator.costs.questions import ReportQuestion
from spool.ledger.costs import combined, own_start, periods
from spool.ledger.latency import percentile_ms
from spool.ledger.queries import TOTAL, CostRow
from spool.ledger.sums import OTHER
from spool.turns.ordering import ordered


@dataclass(frozen=True, kw_only=True)
class ReportAnswer:
    """`show` makes the row of a place. `row_count` is how many there are before `is_truncated` made them fewer."""

    places: Sequence[Place]
    show: Callable[[Place], dict[str, object]]
    row_count: int
    is_truncated: bool
    total: dict[str, object]
    latency: dict[str, int | None]
    charges: Mapping[str, str]  # as they came, and those that no rate is known for
    unconverted: Mapping[str, str]


def report_answer(
    question: ReportQuestion,
    now: Sequence[CostRow],
    before: Sequence[CostRow],
    asked: Sequence[AskedMeasures | None],
    most: int | None,
) -> ReportAnswer:
    """Make the answer. With `most`, a longer report shows its largest groups, and the others as one."""
    epoch = datetime.fromtimestamp(0, UTC)
    total = combined(now, start=epoch, group=())
    was = None if question.previous is None else combined(before, start=epoch, group=())
    places = _placed_rows(question, now, before)
    count = len(places)
    groups = None
    shown = question.query.shown
    if most is not None:
        groups = largest_groups(now, places, most, by=question.top_by)
    if groups is not None:
        folded = replace(question.query, kept=groups)
        now, before = (
            [msgspec.structs.replace(row, group=folded.shown(row.group)) for row in rows]
            for rows in (now, before)
        )
        places = _placed_rows(question, now, before)
        shown = folded.shown
    extra, extra_before = (None if each is None else each.folded(shown) for each in asked)
    return ReportAnswer(
        places=ordered(places, key=_order),
        show=lambda place: _row(question, place, *places[place], extra, extra_before),
        row_count=count,
        is_truncated=groups is not None,
        total=_beside(
            question,
            total,
            was,
            extra.total.shown() if extra else {},
            extra_before.total.shown() if extra_before else {},
        ),
        latency=_latency(total.latency),
        charges=total.charges,
        unconverted=total.unconverted,
    )


def _placed_rows(
    question: ReportQuestion, now: Sequence[CostRow], before: Sequence[CostRow]
) -> dict[Place, tuple[list[CostRow], list[CostRow]]]:
    """
    Group the rows of the span and of the span before by place. An earlier period without a counterpart
    has no place.
    """
    found: dict[Place, tuple[list[CostRow], list[CostRow]]] = defaultdict(lambda: ([], []))
    starts = {start: index for index, (start, _) in enumerate(periods(question.query))}
    for row in now:
        found[starts[row.start], row.group][0].append(row)
    if question.previous is not None:
        earlier = {start: index for index, (start, _) in enumerate(periods(question.previous))}
        for row in before:
            if earlier[row.start] < len(starts):
                found[earlier[row.start], row.group][1].append(row)
    return dict(found)


def _row(
    question: ReportQuestion,
    place: Place,
    now: Sequence[CostRow],
    before: Sequence[CostRow],
    extra: Placed | None,
    extra_before: Placed | None,
) -> dict[str, object]:
    index, group = place
    query = question.query
    start = question.starts[index]
    row = combined(now, start=start, group=group)
    was = None if question.previous is None else combined(before, start=start, group=group)
    period = (
        {}
        if query.granularity == TOTAL
        else {"period": own_start(query.granularity, start.astimezone(query.zone)).isoformat()}
    )
    return {
        **period,
        **dict(zip(query.group_by, group, strict=True)),
        **_beside(
            question,
            row,
            was,
            extra.at(place) if extra else {},
            extra_before.at(place) if extra_before else {},
        ),
    }


def _order(place: Place) -> tuple[int, str]:
    """Return the sort key of a place: by period, then by group, the other groups last."""
    return place[0], identity(place)


def identity(place: Place) -> str:
    """Return the sort key of a row within its period: unknown values first, the other groups last."""
    group = place[1]
    is_rest = bool(group) and set(group) == {OTHER}
    unknown = "".join("0" if value is None else "1" for value in group)
    return "\0".join([f"{is_rest:d}", *(value or "" for value in group), unknown])


def _beside(
    question: ReportQuestion,
    row: CostRow,
    was: CostRow | None,
    extra: Mapping[str, object],
    extra_before: Mapping[str, object],
) -> dict[str, object]:
    """The measures of a row, with those of the period before where they are asked for."""
    shown = _describe(question, row, extra)
    return shown if was is None else {**shown, PREVIOUS: _describe(question, was, extra_before)}


def _describe(question: ReportQuestion, row: CostRow, extra: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {
        **{name: getattr(row, name) for name in SUMS},
        **_latency(row.latency),
        "cost_per_call": per(row.cost, row.calls),
        "cost_per_million_tokens": per(row.cost, billed_tokens(row), of=1_000_000),
        **extra,
    }
    shown = {name: found[name] for name in question.show}
    if row.charges:
        shown |= {"charges": row.charges, "converted": row.converted}
    return shown | ({"unconverted": row.unconverted} if row.unconverted else {})


def _latency(counts: Sequence[int]) -> dict[str, int | None]:
    """
    Count the calls with a known duration, and estimate percentiles of it; null beyond the last edge (5 minutes).
    """
    percentiles = {name: percentile_ms(counts, percent) for name, percent in PERCENTILES.items()}
    return {"timed": sum(counts), **percentiles}
