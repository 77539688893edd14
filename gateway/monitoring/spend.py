"""
Cost and tokens on `/metrics`, from the hourly totals: few series, and counters that only rise.

Each reading adds to the counters how much the totals of this and the previous month have grown. If totals
fall, for example after a correction, a counter does not rise until the totals exceed the counted value. The
gauge for the month is exact, even after a restart, and may fall.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from spool import money
from spool.clock import Clock
from spool.ledger.ledger import Ledger
from spool.ledger.periods import period_beginning
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.ledger.sums import OTHER
from spool.loops import repeat

EVERY_S = 60.0
LOOK_S = 1.0  # seconds between two checks whether the ledger has counted all records
# maximum combinations of labels, because their number grows quickly with the number of names
MAX_SERIES = 2000
UNKNOWN = "(unknown)"
LABELS = ("provider", "model", "team", "cost_source")
_MEASURES = ("cost", "input_tokens", "output_tokens")
_log = logging.getLogger(__name__)

LabelValues = tuple[str, ...]


class _SpendSums(NamedTuple):
    cost: int = 0  # cost in units of spool.money
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    def plus(self, other: _SpendSums) -> _SpendSums:
        return _SpendSums(*map(sum, zip(self, other, strict=True)))

    def growth_since(self, other: _SpendSums) -> _SpendSums:
        """Return the growth of each value over `other`, never below 0."""
        return _SpendSums(*(max(0, own - reference) for own, reference in zip(self, other, strict=True)))


class SpendCounts:
    """
    Counters of cost and tokens, and the cost of the running month, by provider, model and team (LABELS). No
    I/O.

    At most `top` providers, models and teams have their own name until the process ends: first those with the
    highest cost, then new names while there is space. All others share the name OTHER.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._names: tuple[set[str], ...] = (set(), set(), set())
        self._known: set[LabelValues] = set()
        self._counted: dict[LabelValues, _SpendSums] = {}
        self._highest: dict[tuple[datetime, LabelValues], _SpendSums] = {}
        self._month: dict[LabelValues, _SpendSums] = {}
        self._is_begun = False

    @property
    def largest_value_count_of_a_dimension(self) -> int:
        return max(map(len, self._names))

    def count_growth_of_totals(self, rows: Sequence[CostRow], month: datetime) -> None:
        """
        Count the growth of the totals of the running `month` and of the previous month. The first reading
        only sets the values from which the growth is counted.

        This may run in a thread, because the metrics that `metric_families` yields are replaced in one step
        at the end.
        """
        self._add_largest_names(rows)
        sums_by_series: defaultdict[tuple[datetime, LabelValues], _SpendSums] = defaultdict(_SpendSums)
        for row in rows:
            series = row.start, self._row_labels(row)
            sums_by_series[series] = sums_by_series[series].plus(
                _SpendSums(money.text_to_units(row.cost), row.input_tokens, row.output_tokens, row.calls)
            )
        self._add_growth(sums_by_series)
        oldest = period_beginning(month - timedelta(days=1), "monthly")
        self._highest = {series: sums for series, sums in self._highest.items() if series[0] >= oldest}
        self._month = {labels: sums for (start, labels), sums in sums_by_series.items() if start == month}
        self._is_begun = True

    def metric_families(self) -> Iterator[Metric]:
        """Yield the metrics. Their values are floats, which are precise enough for graphs."""
        cost = CounterMetricFamily("tollhouse_cost_dollars", "Cost of calls in dollars", labels=LABELS)
        tokens = CounterMetricFamily("tollhouse_tokens", "Tokens of calls", labels=(*LABELS, "direction"))
        month = GaugeMetricFamily(
            "tollhouse_month_cost_dollars", "Cost of the running month in dollars, in UTC", labels=LABELS
        )
        calls = GaugeMetricFamily(
            "tollhouse_month_calls", "Calls of the running month, in UTC", labels=LABELS
        )
        for labels, sums in self._counted.items():
            cost.add_metric(labels, sums.cost / money.UNIT)
            tokens.add_metric((*labels, "input"), sums.input_tokens)
            tokens.add_metric((*labels, "output"), sums.output_tokens)
        for labels, sums in self._month.items():
            month.add_metric(labels, sums.cost / money.UNIT)
            calls.add_metric(labels, sums.calls)
        yield from (cost, tokens, month, calls)

    def _add_growth(self, sums_by_series: Mapping[tuple[datetime, LabelValues], _SpendSums]) -> None:
        """
        Add the growth of the totals to the counters. A new series starts with 0, so that a rate includes its
        first step.
        """
        new = {labels for _, labels in sums_by_series} - self._counted.keys()
        counted = {**self._counted, **dict.fromkeys(new, _SpendSums())}
        for series, sums in sums_by_series.items():
            if self._is_begun and series[1] in new:
                continue
            before = self._highest.get(series, _SpendSums())
            gained = sums.growth_since(before)
            self._highest[series] = before.plus(gained)
            if self._is_begun:
                counted[series[1]] = counted[series[1]].plus(gained)
        self._counted = counted

    def _add_largest_names(self, rows: Iterable[CostRow]) -> None:
        for index, names in enumerate(self._names):
            if len(names) >= self._top:
                continue
            costs: defaultdict[str, int] = defaultdict(int)
            for row in rows:
                costs[row.group[index] or UNKNOWN] += money.text_to_units(row.cost)
            new = sorted(costs.keys() - names, key=lambda name: (-costs[name], name))
            names.update(new[: self._top - len(names)])

    def _row_labels(self, row: CostRow) -> LabelValues:
        values = [value or UNKNOWN for value in row.group]
        shown = [
            value if value in names else OTHER for value, names in zip(values, self._names, strict=False)
        ]
        labels = (*shown, values[-1])
        if labels not in self._known and len(self._known) >= MAX_SERIES - 1:
            return (OTHER,) * len(LABELS)
        self._known.add(labels)
        return labels


class SpendSeries:
    """A task that reads the hourly totals once a minute for the spend metrics."""

    def __init__(self, ledger: Ledger, clock: Clock, *, top: int) -> None:
        self.counts = SpendCounts(top)
        self._ledger = ledger
        self._clock = clock

    async def run(self) -> None:
        """Read the totals repeatedly."""
        await repeat(
            self.read_totals,
            every_s=EVERY_S,
            failed="cost and tokens on /metrics could not be updated",
            action="spend_put_off",
            incomplete_s=LOOK_S,
        )

    async def read_totals(self) -> None:
        self._ledger.require_caught_up()
        now = self._clock.now()
        month = period_beginning(datetime.fromtimestamp(now, UTC), "monthly")
        rows = await self._ledger.costs(
            CostQuery(
                since=period_beginning(month - timedelta(days=1), "monthly"),
                until=next_full_hour(now),
                granularity="monthly",
                group_by=LABELS,
                measures=_MEASURES,
            )
        )
        await asyncio.to_thread(self.counts.count_growth_of_totals, rows, month)
