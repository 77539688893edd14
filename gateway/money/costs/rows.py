"""The rows of a result by period and group, optionally with the measures of the period before. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from gateway.money.costs.answer import CostAnswer
from gateway.money.costs.asked_measures import AskedMeasures, ReportRowKey, RowMeasures
from gateway.money.costs.measures import MONEY, PERCENTILES, SUMS, billed_tokens, cost_per_count
from spool import money
from spool.ledger.costs import calendar_period_start, combine_rows, periods_of_query
from spool.ledger.dimensions import TOTAL, Group
from spool.ledger.queries import CostRow
from spool.ledger.sums import OTHER, percentile_ms
from spool.turns.threads import sort_in_short_steps

_EPOCH = datetime.fromtimestamp(0, UTC)


class AnswerRows:
    """
    The rows of `places`, in order, and their sum `total`. A place is a period and a group.

    If there are more than `max_rows` rows, the largest groups stay and the others are joined. Then `is_truncated`
    is True, and `row_count` is the number of rows before joining. `show` lists the measures of each row.
    `asked` has the measures on request: those of the query, and those of the period before it.
    """

    def __init__(
        self,
        answer: CostAnswer,
        show: Sequence[str],
        asked: Sequence[AskedMeasures | None],
        max_rows: int | None,
    ) -> None:
        self._query, self._show = answer.query, show
        self.has_previous = answer.previous is not None
        self._starts = [start for start, _ in periods_of_query(answer.query)]
        sides = [answer.rows, answer.before]
        rows = _current_and_earlier_rows_by_key(answer, sides)
        self.row_count = len(rows)
        # aggregated costs count a call in several rows, so the rows overlap
        overlaps = answer.query.aggregated
        largest_groups = (
            None
            if max_rows is None or overlaps
            else _largest_groups(answer.rows, rows, max_rows, by=answer.question.top_by)
        )
        self.is_truncated = largest_groups is not None
        shown = answer.query.shown_group
        if largest_groups is not None:
            shown = replace(answer.query, kept=largest_groups).shown_group
            sides = [[msgspec.structs.replace(row, group=shown(row.group)) for row in side] for side in sides]
            rows = _current_and_earlier_rows_by_key(answer, sides)
        self._rows = rows
        self._asked = [None if side is None else side.merge_groups(shown) for side in asked]
        self.places = sort_in_short_steps(rows, key=lambda place: (place[0], place_sort_key(place)))
        totals = [None if side is None else side.total for side in self._asked]
        asked_total = totals[0]
        # units whose calls are no longer stored separately, so that no list and no measure includes them
        self.other_units: Mapping[str, object] | None = None
        if asked_total is not None and asked_total.other_calls:
            self.other_units = {
                "calls": asked_total.other_calls,
                "cost": money.units_to_text(asked_total.other_cost),
            }
        elif answer.unlisted is not None:
            self.other_units = {"calls": answer.unlisted.calls, "cost": answer.unlisted.cost}
        self.total = None if overlaps else self._measures_with_previous(sides, _EPOCH, (), totals)
        total = combine_rows(answer.rows, start=_EPOCH, group=())
        self.latency = _latency_fields(total.latency)
        self.charges, self.unconverted = total.charges, total.unconverted

    def row_fields(self, place: ReportRowKey) -> dict[str, object]:
        index, group = place
        start = self._starts[index]
        query = self._query
        period = (
            {}
            if query.granularity == TOTAL
            else {
                "period": calendar_period_start(query.granularity, start.astimezone(query.zone)).isoformat()
            }
        )
        place_measures = [None if side is None else side.measures_at(place) for side in self._asked]
        return {
            **period,
            **dict(zip(query.group_by, group, strict=True)),
            **self._measures_with_previous(self._rows[place], start, group, place_measures),
        }

    def _measures_with_previous(
        self,
        sides: Sequence[Sequence[CostRow]],
        start: datetime,
        group: Group,
        measures: Sequence[RowMeasures | None],
    ) -> dict[str, object]:
        now, before = sides
        fields = self._measure_fields(combine_rows(now, start=start, group=group), measures[0])
        if not self.has_previous:
            return fields
        return {
            **fields,
            "previous": self._measure_fields(combine_rows(before, start=start, group=group), measures[1]),
        }

    def _measure_fields(self, row: CostRow, asked: RowMeasures | None) -> dict[str, object]:
        measures: dict[str, object] = {
            **{name: getattr(row, name) for name in SUMS},
            **_latency_fields(row.latency),
            "cost_per_call": cost_per_count(row.cost, row.calls),
            "cost_per_million_tokens": cost_per_count(row.cost, billed_tokens(row), of=1_000_000),
            **(asked.to_fields() if asked else {}),
        }
        shown = {name: measures[name] for name in self._show}
        if row.charges:
            shown |= {"charges": row.charges, "converted": row.converted}
        return shown | ({"unconverted": row.unconverted} if row.unconverted else {})


def place_sort_key(place: ReportRowKey) -> str:
    """Return a sort key for a row by its group. Unknown values are first, and the joined groups are last."""
    group = place[1]
    is_rest = bool(group) and set(group) == {OTHER}
    unknown = "".join("0" if value is None else "1" for value in group)
    return "\0".join([f"{is_rest:d}", *(value or "" for value in group), unknown])


def _current_and_earlier_rows_by_key(
    answer: CostAnswer, current_and_earlier_rows: Sequence[Sequence[CostRow]]
) -> dict[ReportRowKey, tuple[list[CostRow], list[CostRow]]]:
    rows_by_place: dict[ReportRowKey, tuple[list[CostRow], list[CostRow]]] = defaultdict(lambda: ([], []))
    starts = {start: index for index, (start, _) in enumerate(periods_of_query(answer.query))}
    now, before = current_and_earlier_rows
    for row in now:
        rows_by_place[starts[row.start], row.group][0].append(row)
    if answer.previous is not None:
        earlier = {start: index for index, (start, _) in enumerate(periods_of_query(answer.previous))}
        for row in before:
            if earlier[row.start] < len(starts):
                rows_by_place[earlier[row.start], row.group][1].append(row)
    return dict(rows_by_place)


def _largest_groups(
    rows: Sequence[CostRow], places: Collection[ReportRowKey], limit: int, *, by: str
) -> frozenset[Group] | None:
    if len(places) <= limit:
        return None
    counts = Counter(group for _, group in places)
    # all joined groups together need one row per period
    remaining = limit - len({period for period, _ in places})
    sizes: dict[Group, int] = defaultdict(int)
    for row in rows:
        value = getattr(row, by)
        sizes[row.group] += money.text_to_units(value) if by in MONEY else value
    largest_groups = []
    for group in sort_in_short_steps(
        sizes, key=lambda group: (-sizes[group], [value or "" for value in group])
    ):
        remaining -= counts[group]
        if remaining < 0:
            break
        largest_groups.append(group)
    return frozenset(largest_groups)


def _latency_fields(counts: Sequence[int]) -> dict[str, int | None]:
    """
    Return the number of timed calls and latency percentiles in ms. A percentile above 5 minutes is None.
    """
    percentiles = {name: percentile_ms(counts, percent) for name, percent in PERCENTILES.items()}
    return {"timed": sum(counts), **percentiles}
