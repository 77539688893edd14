"""
Costs by period and dimensions, added up from the stored sums of hours and days.

A query may select groups to show, or request the largest; all other groups become one. Its cost is the total
minus the shown groups, so the other groups' sums are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nsmallest
from operator import add
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from spool import money
from spool.cost_kinds import KIND_OF_SOURCE, KINDS
from spool.errors import NotKept
from spool.ledger import work
from spool.ledger.counting import read_state
from spool.ledger.days.spans import distinct_moments, divide_billed_periods, group_reads, plan_period_reads
from spool.ledger.dimensions import BILLED_DIMENSIONS, PRICED_BY, TOTAL, Group
from spool.ledger.ledger_rows import WRONG, WRONG_OF, GroupSum, LedgerRows, MeterSum, Span
from spool.ledger.periods import next_beginning, period_beginning
from spool.ledger.queries import EVERY_METER, SLICE, CostQuery, CostRow, check_dimension
from spool.ledger.sums import COUNTS, DAY_S, LATENCY, MONEY, OTHER, Measures
from spool.record import CURRENCY
from spool.turns.question_limit import CHECK_EVERY, QuestionLimit
from spool.turns.threads import sort_in_short_steps
from spool.turns.threads import sum_columns as column_sums

if TYPE_CHECKING:
    from spool.currencies import CurrencyConverter, Rates

# `spans.check` refuses a query that begins or ends inside an hour
_NEVER_CUT = (TOTAL, "hourly")
_FINE = 10**6  # parts of a billionth of a dollar, so that approximate costs add up as integers
_NO_LATENCY = (0,) * (len(LATENCY) - 1)
_EPOCH = datetime.fromtimestamp(0, UTC)
_DAY = timedelta(days=1)
# indexes of the amounts of money among the measures
_REPORTED, _ESTIMATED = (len(COUNTS) + index for index in range(len(MONEY)))
_MONEY = ("cost", "reported", "estimated", "saved", "converted")
_ADDED_UP = (
    "_cost",
    "_reported",
    "_estimated",
    "_saved",
    "_errors",
    "_cached",
    *KINDS,
    "_cached_input",
    "_cached_output",
    "_metered",
    "_converted",
)
_COUNTED = ("_charges", "_unconverted", "_meters")

# -- groups that may be among the largest
# -----------------------------------------------------------------------


# if more groups cost about as much as the smallest of the largest, all groups are read
ALIKE = 1000
# number of groups to read: at least MANY, at most MANY_OF_TOP times the number of groups shown
MANY, MANY_OF_TOP = 100, 5
MOST_SPANS = 100  # maximum spans per statement; SQLite allows 500


def query_costs(
    ledger_rows: LedgerRows, query: CostQuery, limit: QuestionLimit | None = None, rates: Rates | None = None
) -> list[CostRow]:
    """
    Return the rows of a query by period, then by dimension values. Sums are exact.

    A group without calls has no row, for example after corrections removed all.

    Raises ValueError for an unknown dimension, NotKept if a period splits an hour or day stored as
    one sum, and AskedTooMuch beyond the limit.
    """
    query = check_and_simplify_query(ledger_rows, query)
    ask = partial(_totals_by_period, ledger_rows, limit=limit, rates=rates)
    is_folded = query.top is not None or query.kept is not None
    totals = _totals_of_kept_or_largest_groups(ledger_rows, query, limit, ask) if is_folded else ask(query)
    # a query for the largest or for chosen groups may also have a group with the rest
    if is_folded and query.aggregated:
        for groups in totals.values():
            groups.pop((OTHER,) * len(query.group_by), None)
    return [
        total.cost_row(start, group)
        for start, groups in totals.items()
        for group, total in sort_in_short_steps(groups.items(), key=_group_sort_key)
        if not total.is_zero or (query.arranged > 0 and OTHER not in group)
    ]


def check_and_simplify_query(ledger_rows: LedgerRows, query: CostQuery) -> CostQuery:
    """
    Return the query without filters that every call passes, because a rollup without their dimensions can
    then be used. Raises ValueError for an unknown dimension, and NotKept for a unit of work whose calls
    cannot be found.
    """
    for name in query.used_dimensions:
        if name not in query.derived and name not in PRICED_BY:
            check_dimension(name)
    if (
        query.unit_of_work is None
        and _can_have_filters_excluding_nothing(query)
        and ledger_rows.has_filters_excluding_nothing(query)
    ):
        return replace(query, include={}, exclude={})
    # for restricted people, an error would reveal which units of others exist
    if query.unit_of_work is not None and SLICE not in query.derived:
        for filters in (query.include, query.exclude):
            for unit in filters.keys() & work.UNITS.keys():
                _check_units_listed(ledger_rows, unit, filters[unit])
    return query


def _check_units_listed(ledger_rows: LedgerRows, unit: str, values: Collection[str]) -> None:
    numbers = work.unit_numbers(unit, values)
    unlisted = ledger_rows.ids_merged_into_other(unit, numbers)
    for value, number in zip(values, numbers, strict=True):
        if number in unlisted:
            name = f" {value}" if work.UNITS[unit].is_named else ""
            raise NotKept(
                f"the {unit}{name} is no longer listed, and its calls are part of {OTHER}. work.ids_per_month, "
                "work.retention and work.retention_units decide how many units are listed, and for how long"
            )


def _can_have_filters_excluding_nothing(query: CostQuery) -> bool:
    filtered = {*query.include, *query.exclude}
    if not filtered or query.arranged or query.until - query.since <= _DAY:
        return False
    return filtered.isdisjoint(BILLED_DIMENSIONS)


def _read_totals(
    ledger_rows: LedgerRows, query: CostQuery, limit: QuestionLimit | None, rates: Rates | None
) -> _ByPeriod:
    if not query.arranged and not set(BILLED_DIMENSIONS).isdisjoint(query.used_dimensions):
        from spool.ledger.billed import with_constant_billing_dimensions

        query = with_constant_billing_dimensions(query)
    time_ranges = list(periods_of_query(query))
    has_charges = False
    if query.arranged:
        from spool.ledger.billed import check_billed_days_not_split, whole_day_spans

        moments = distinct_moments(time_ranges)
        check_billed_days_not_split(
            ledger_rows.starts_of_billed_days(int(min(moments)) - DAY_S, int(max(moments)) + 1), moments
        )
        questions = divide_billed_periods(ledger_rows, query, time_ranges, whole_day_spans)
    else:
        state = read_state(ledger_rows)
        questions = plan_period_reads(ledger_rows, query, time_ranges, state)
        # other currencies have no sums by unit of work, and count as calls without a unit
        has_charges = bool(state["charged"]) and query.unit_of_work is None
    is_converted = query.currency != CURRENCY
    converter = _build_converter(rates, query.currency) if has_charges or is_converted else None
    totals: dict[datetime, dict[Group, _GroupTotal]] = {start: {} for start, _ in time_ranges}
    # an engine makes a new string for every row, so keep each text once
    texts: dict[str | None, str | None] = {}
    row_count = 0
    at_once = 1 if query.arranged or is_converted else MOST_SPANS
    for group_of_spans in group_reads(questions, at_once):
        question = group_of_spans[0]
        is_one_period = len(question.periods) == 1
        by_start = not is_one_period or is_converted
        if query.arranged:
            width, low, high, rollup = question.span
            sums = ledger_rows.billed_totals(width, low, high, query, groups_by_start=by_start, rollup=rollup)
        else:
            spans = [each.span for each in group_of_spans]
            sums = _group_sums(ledger_rows, spans, query, groups_by_start=by_start, by_day=is_one_period)
        groups = totals[question.periods[0]]
        for index, sum_row in enumerate(sums):
            if not is_one_period:
                groups = totals[question.period_at(sum_row.start)]
            group = sum_row.group if query.kept is None else query.shown_group(sum_row.group)
            total = groups.get(group)
            if total is None:
                total = groups[tuple(map(texts.setdefault, group, group))] = _GroupTotal()
                row_count += 1
            measures = sum_row.measures
            if converter is not None:
                measures = total.convert_dollars_unrounded(converter, sum_row)
            total.add_measures(sum_row.status, sum_row.cost_source, measures)
            if limit is not None and index % CHECK_EVERY == 0:
                limit.check_rows(row_count)
                limit.check_time()
        charged_totals: dict[int, _GroupTotal] = {}
        for question in group_of_spans:
            asked_of = (min(question.width, DAY_S), question.low, question.high, query)
            if query.meter and query.unit_of_work is None:
                for metered in ledger_rows.meter_totals(*asked_of, groups_by_start=by_start):
                    total = totals[question.period_at(metered.start)].get(query.shown_group(metered.group))
                    if total is not None:
                        total.add_meter(metered)
            if has_charges:
                for charged in ledger_rows.charge_totals(*asked_of):
                    total = totals[question.period_at(charged.start)].get(query.shown_group(charged.group))
                    if total is not None:
                        total.add_charge_amount_part(charged)
                        charged_totals[id(total)] = total
        if converter is not None:
            for total in charged_totals.values():
                total.convert_charges(converter)
        if limit is not None:
            limit.check_rows(row_count)
            limit.check_time()
    return totals


def _group_sums(
    ledger_rows: LedgerRows, spans: Sequence[Span], query: CostQuery, *, groups_by_start: bool, by_day: bool
) -> Iterable[GroupSum]:
    """
    Return the sums by group. If `query.aggregated`, a unit of work includes the runs below it, and only one
    span may be given.
    """
    if not query.aggregated or query.unit_of_work is None:
        return ledger_rows.totals_by_group(spans, query, groups_by_start=groups_by_start)
    from spool.ledger.run_trees import aggregate_sums, query_grouped_by_run_in_session

    [(_, since, until, _)] = spans
    tree = ledger_rows.run_tree(query, since, until)
    return aggregate_sums(
        tree,
        query,
        ledger_rows.totals_by_group(
            spans, query_grouped_by_run_in_session(query), groups_by_start=groups_by_start
        ),
        by_day=by_day,
    )


def _totals_by_period(
    ledger_rows: LedgerRows, query: CostQuery, limit: QuestionLimit | None, rates: Rates | None
) -> _ByPeriod:
    """
    Return totals by period and group.

    Sums of units of work contain only calls with a unit. The total of calls without a unit is the total of
    all calls minus these sums.
    """
    ask = partial(_read_totals, ledger_rows, limit=limit, rates=rates)
    totals = ask(query)
    if query.unit_of_work is None or not work.can_match_unknown(query.include, query.exclude):
        return totals
    plain = replace(query.without_units(), kept=None)
    with_units = ask(replace(plain, exclude={**plain.exclude, work.SESSION: ()}))
    place = query.work_unit_group_index
    for start, groups in ask(plain).items():
        for group, without in groups.items():
            if (part := with_units[start].get(group)) is not None:
                without.add_totals([part], -1)
            unknown = group if place is None else (*group[:place], None, *group[place:])
            if query.only is not None and unknown not in query.only:
                continue
            if (known := totals[start].get(query.shown_group(unknown))) is not None:
                known.add_totals([without])
            else:
                totals[start][query.shown_group(unknown)] = without
    return totals


def _totals_of_kept_or_largest_groups(
    ledger_rows: LedgerRows,
    query: CostQuery,
    question_limit: QuestionLimit | None,
    totals_of_query: Callable[[CostQuery], _ByPeriod],
) -> _ByPeriod:
    if query.top is None:
        return totals_of_kept_and_other_groups(query, totals_of_query)
    return largest_group_totals(
        ledger_rows,
        query,
        periods_of_query(replace(query, granularity=TOTAL)),
        question_limit,
        totals_of_query,
    )


def periods_of_query(query: CostQuery) -> Iterator[tuple[datetime, datetime]]:
    """Yield the periods of a query. It may cover only a part of the first and last period."""
    start = query.since.astimezone(query.zone)
    until = query.until.astimezone(query.zone)
    while start.astimezone(UTC) < until.astimezone(UTC):
        end = until
        if query.granularity != TOTAL:
            end = min(next_beginning(start, query.granularity), until, key=_epoch_seconds)
        yield start.astimezone(UTC), end.astimezone(UTC)
        start = end.astimezone(query.zone)


def calendar_period_start(granularity: str, start: datetime) -> datetime:
    return start if granularity in _NEVER_CUT else period_beginning(start, granularity)


def partial_period_starts(query: CostQuery) -> Sequence[datetime]:
    if query.granularity in _NEVER_CUT:
        return ()
    since, until = query.since.astimezone(query.zone), query.until.astimezone(query.zone)
    first = calendar_period_start(query.granularity, since)
    last = calendar_period_start(query.granularity, until - timedelta(microseconds=1))
    cut_starts = [first] if _epoch_seconds(first) < _epoch_seconds(query.since) else []
    if (
        _epoch_seconds(next_beginning(last, query.granularity)) > _epoch_seconds(query.until)
        and last not in cut_starts
    ):
        cut_starts.append(last)
    return cut_starts


def combine_rows(rows: Iterable[CostRow], *, start: datetime, group: tuple[str | None, ...]) -> CostRow:
    """Add up the rows. Without rows, the result has zero calls."""
    rows = list(rows)
    if len(rows) == 1:
        return msgspec.structs.replace(rows[0], start=start, group=group)
    sums: dict[str, Any] = {}
    for field in CostRow.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        if field in _MONEY:
            sums[field] = money.units_to_text(sum(map(money.text_to_units, values)))
        elif field in ("charges", "unconverted"):
            sums[field] = money.add_by_currency(values)
        elif field == "meters":
            sums[field] = dict(sum(map(Counter, values), Counter()))
        elif field == "latency":
            sums[field] = column_sums(values, len(LATENCY) - 1)
        elif field not in ("start", "group"):
            sums[field] = sum(values)
    return CostRow(start=start, group=group, **sums)


class _GroupTotal:
    """
    The sums of one group. The status and cost source of an added row decide which of the amounts its money is
    added to.
    """

    # Class attributes as defaults save memory: there may be as many groups as sums, most with few fields set.
    _sums: Sequence[int] = ()
    _cost = _reported = _estimated = _saved = 0
    _errors = _cached = 0
    priced = free = unpriced = without_usage = 0  # number of calls by KINDS
    _cached_input = _cached_output = _metered = 0
    _is_multiplied = False
    _converted = 0
    # limbs by start of the period, until they are converted
    _limbs: dict[int, Counter[str]] | None = None
    _charges: Counter[str] | None = None
    _unconverted: Counter[str] | None = None
    _meters: Counter[str] | None = None

    def add_measures(self, status: str, cost_source: str, measures: Measures) -> None:
        sums = self._sums
        self._sums = list(map(add, sums, measures)) if sums else measures
        calls, reported, estimated = measures[0], measures[_REPORTED], measures[_ESTIMATED]
        if calls:
            kind = KIND_OF_SOURCE[cost_source]
            setattr(self, kind, getattr(self, kind) + calls)
        if status == "cached":
            self._cached += calls
            self._saved += estimated
            self._cached_input += measures[1]
            self._cached_output += measures[2]
            return
        if status == "error":
            self._errors += calls
        self._reported += reported
        self._estimated += estimated
        if cost_source == "reported":
            self._cost += reported
        elif cost_source == "estimated":
            self._cost += estimated

    def add_totals(self, parts: Collection[_GroupTotal], sign: int = 1) -> None:
        """Add totals in which other currencies are already converted, or subtract them if `sign` is -1."""
        for name in _ADDED_UP:
            setattr(self, name, getattr(self, name) + sign * sum([getattr(part, name) for part in parts]))
        sums = column_sums([part._sums for part in parts], len(self._sums))
        self._sums = [own + sign * added for own, added in zip(self._sums, sums, strict=True)]
        self._is_multiplied = self._is_multiplied or any(part._is_multiplied for part in parts)
        for name in _COUNTED:
            if amounts := [part_amounts for part in parts if (part_amounts := getattr(part, name))]:
                merged = Counter[str](getattr(self, name))
                for counter in amounts:
                    (merged.update if sign > 0 else merged.subtract)(counter)
                setattr(self, name, merged)

    @property
    def is_zero(self) -> bool:
        if any(self._sums):
            return False
        amounts = [getattr(self, name) for name in _ADDED_UP]
        counted = [getattr(self, name) for name in _COUNTED]
        return not any(amounts) and not any(map(_has_some, counted))

    def measure(self, name: str) -> int:
        """Return a measure by its field name in CostRow. Money is in units of `spool.money`."""
        if name == "cost":
            return self._units_without_rate_scale(self._cost)
        value = getattr(self.cost_row(_EPOCH, ()), name)
        return money.text_to_units(value) if name in _MONEY else int(value)

    def add_meter(self, metered: MeterSum) -> None:
        if metered.status != "cached":
            self._metered += metered.quantity
            self._meters = self._meters or Counter()
            self._meters[metered.meter] += metered.quantity

    def convert_dollars_unrounded(self, converter: CurrencyConverter, group_sum: GroupSum) -> Measures:
        """
        Return the measures with dollars multiplied by the exchange rate, not yet rounded. Dollars without a
        rate are added to the unconverted amounts.
        """
        self._is_multiplied = True
        measures = list(group_sum.measures)
        for index, name in enumerate(MONEY, len(COUNTS)):
            if units := measures[index]:
                rate = converter.rate(CURRENCY, group_sum.start)
                measures[index] = units * (rate or 0)
                if rate is None and group_sum.status != "cached" and group_sum.cost_source == name:
                    self._unconverted = self._unconverted or Counter()
                    self._unconverted[CURRENCY] += units
        return measures

    def add_charge_amount_part(self, charged: MeterSum) -> None:
        if charged.status != "cached":
            self._limbs = self._limbs or {}
            self._limbs.setdefault(charged.start, Counter())[charged.meter] += charged.quantity

    def convert_charges(self, converter: CurrencyConverter) -> None:
        from spool.currencies import charge_units_by_currency

        charges, unconverted = self._charges or Counter(), self._unconverted or Counter()
        for start, limbs in (self._limbs or {}).items():
            for currency, units in charge_units_by_currency(limbs.items()).items():
                charges[currency] += units
                rate = converter.rate(currency, start)
                self._cost += units * (rate or 0)
                self._reported += units * (rate or 0)
                self._converted += units * (rate or 0)
                unconverted[currency] += units if rate is None else 0
        self._charges, self._unconverted, self._limbs = charges, unconverted, None

    def _amount_text(self, units: int) -> str:
        return money.units_to_text(self._units_without_rate_scale(units)) if units else "0"

    def _units_without_rate_scale(self, scaled_units: int) -> int:
        if not self._is_multiplied:
            return scaled_units
        from spool.currencies import round_product_to_units

        return round_product_to_units(scaled_units)

    def cost_row(self, start: datetime, group: tuple[str | None, ...]) -> CostRow:
        calls, input_tokens, output, read, written, thought, written_1h = self._sums[: len(COUNTS)]
        latency = self._sums[len(COUNTS) + len(MONEY) :]
        cost = self._amount_text(self._cost)
        reported = cost if self._reported == self._cost else self._amount_text(self._reported)
        estimated = cost if self._estimated == self._cost else self._amount_text(self._estimated)
        return CostRow(
            start=start,
            group=group,
            cost=cost,
            reported=reported,
            estimated=estimated,
            saved=self._amount_text(self._saved),
            calls=calls,
            errors=self._errors,
            cached=self._cached,
            priced=self.priced,
            free=self.free,
            unpriced=self.unpriced,
            without_usage=self.without_usage,
            input_tokens=input_tokens,
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=thought,
            cache_write_1h_tokens=written_1h,
            cached_input_tokens=self._cached_input,
            cached_output_tokens=self._cached_output,
            latency_ms=latency[0],
            metered=self._metered,
            latency=tuple(latency[1:]) if any(latency) else _NO_LATENCY,
            charges=_amount_texts(self._charges) if self._charges else {},
            meters=dict(self._meters) if self._meters else {},
            converted=self._amount_text(self._converted),
            unconverted=_amount_texts(self._unconverted) if self._unconverted else {},
        )


_ByPeriod = dict[datetime, dict[Group, _GroupTotal]]


def _build_converter(rates: Rates | None, currency: str) -> CurrencyConverter:
    # imported here, because most queries convert nothing
    from spool.currencies import CurrencyConverter, find_no_rate

    return CurrencyConverter(rates or find_no_rate, currency)


def _has_some(amounts: Counter[str] | None) -> bool:
    return amounts is not None and any(amounts.values())


def _amount_texts(amounts: Mapping[str, int]) -> Mapping[str, str]:
    return {name: money.units_to_text(units) for name, units in sorted(amounts.items()) if units}


def _group_sort_key(item: tuple[Group, _GroupTotal]) -> Group:
    group = item[0]
    return tuple([value or "" for value in group]) if None in group else group


def _epoch_seconds(moment: datetime) -> float:
    return moment.timestamp()


def largest_groups(
    ledger_rows: LedgerRows,
    query: CostQuery,
    time_ranges: Iterable[tuple[datetime, datetime]],
    limit: QuestionLimit | None,
) -> set[Group]:
    """
    Return the groups that may be among the largest over all periods together.

    Return an empty set if finding them requires reading all groups, or if the result would contain all
    anyway. Raises the errors of `query_costs`.
    """
    periods = list(time_ranges)
    if not periods or not _can_read_largest_first(query) or (state := read_state(ledger_rows))["charged"]:
        return set()
    top = query.top or 0
    if not ledger_rows.has_more_groups(query, top + 1):
        return set()
    spans = [question.span for question in plan_period_reads(ledger_rows, query, periods, state)]
    if len(spans) > MOST_SPANS:
        return set()
    find = (
        partial(_group_count_and_costliest_run_tree_groups, ledger_rows)
        if query.aggregated
        else ledger_rows.group_count_and_largest_groups
    )
    count, ranked = find(spans, query, top + ALIKE)
    if limit is not None:
        if query.unit_of_work is None:  # there may be more units of work than an answer may have rows
            limit.check_rows(count)
        limit.check_time()
    # calls without a unit and unlisted units would take a unit's place
    if (place := query.work_unit_group_index) is not None:
        ranked = [(group, cost) for group, cost in ranked if group[place] not in (None, OTHER)]
    if count <= top + 1 or len(ranked) < top:
        return set()
    last = ranked[max(top - 1, 0)][1]
    least = last - 2 * (WRONG + WRONG_OF * abs(last))
    near = {group for group, cost in ranked if cost >= least}
    return near if len(near) < top + ALIKE else set()


def _group_count_and_costliest_run_tree_groups(
    ledger_rows: LedgerRows, spans: Sequence[Span], query: CostQuery, most: int
) -> tuple[int, Sequence[tuple[Group, float]]]:
    from spool.ledger.run_trees import aggregate_sums, query_grouped_by_run_in_session

    [(_, since, until, _)] = spans
    _, places = ledger_rows.group_count_and_largest_groups(
        spans, query_grouped_by_run_in_session(query), None
    )
    sums = [GroupSum(group, "", "", [int(cost * _FINE)]) for group, cost in places]
    costs = Counter[Group]()
    for each in aggregate_sums(ledger_rows.run_tree(query, since, until), query, sums, by_day=True):
        costs[each.group] += each.measures[0]
    return len(costs), [(group, cost / _FINE) for group, cost in costs.most_common(most)]


def _can_read_largest_first(query: CostQuery) -> bool:
    return (
        has_many_groups(query)
        and has_no_billed_costs(query)
        and query.top_by == "cost"
        and query.currency == CURRENCY
    )


def has_no_billed_costs(query: CostQuery) -> bool:
    return set(BILLED_DIMENSIONS).isdisjoint(query.used_dimensions) and not query.arranged


def has_many_groups(query: CostQuery) -> bool:
    """
    Return whether a query may have so many groups that selecting a few is faster than reading all.

    It may not if it groups only by derived dimensions. These have few groups, and selecting one computes its
    value for every stored set of dimensions.
    """
    return bool(query.group_by) and not query.derived.keys() >= {*query.group_by}


# -- the kept or the largest groups, and all others as one ---------------------------------------------------


MOST = 2000  # maximum kept groups for which all other groups are computed by subtraction
_KEPT = "(kept)"  # internal derived dimension that no query can use


class GroupTotal(Protocol):
    @property
    def is_zero(self) -> bool: ...

    def measure(self, name: str) -> int: ...

    def add_totals(self, parts: Collection[Any], sign: int = 1) -> None: ...


T = TypeVar("T", bound=GroupTotal)
Totals = dict[datetime, dict[Group, T]]
TotalsOfQuery = Callable[[CostQuery], Totals[T]]


def totals_of_kept_and_other_groups(query: CostQuery, totals_of_query: TotalsOfQuery[T]) -> Totals[T]:
    if not _can_compute_others_by_subtraction(query):
        return totals_of_query(_replace_unkept_values_by_other(query))
    rest = (OTHER,) * len(query.group_by)
    plain = replace(query, kept=None)
    kept_groups = frozenset(query.kept or ()) - {rest}
    if not kept_groups:
        return totals_of_query(query)
    if query.aggregated:
        return _totals_with_descendant_runs(plain, kept_groups, totals_of_query)
    totals = totals_of_query(replace(plain, only=kept_groups))
    whole = totals_of_query(replace(plain, group_by=()))
    for start, sums in whole.items():
        for total in sums.values():
            total.add_totals(totals[start].values(), -1)
            totals[start][rest] = total
    return totals


def _totals_with_descendant_runs(
    query: CostQuery, kept_groups: frozenset[Group], totals_of_query: TotalsOfQuery[T]
) -> Totals[T]:
    """
    Return the totals of these groups, each with the runs below its runs. One run may count in several groups,
    so there is no total of the other groups.

    Calls without a unit of work have no runs below them. A separate query reads them, because the query with
    runs would otherwise read all runs.
    """
    place = query.work_unit_group_index
    unknown = frozenset(group for group in kept_groups if place is not None and group[place] is None)
    if place is None or not unknown:
        return totals_of_query(replace(query, only=kept_groups))
    totals = totals_of_query(replace(query, aggregated=False, only=unknown))
    if known := kept_groups - unknown:
        unit = query.group_by[place]
        exclude = {**query.exclude, unit: (*query.exclude.get(unit, ()), "")}
        for start, groups in totals_of_query(replace(query, exclude=exclude, only=known)).items():
            totals[start].update(groups)
    return totals


def _replace_unkept_values_by_other(query: CostQuery) -> CostQuery:
    [name, *more_names] = query.group_by or ("",)
    derived = query.derived.get(name)
    if derived is None or more_names:
        return query
    kept_values = {value or "" for (value,) in query.kept or ()}
    value = derived.value

    def kept_value_or_other(sources: tuple[str, ...]) -> str:
        shown_value = value(sources)
        return shown_value if shown_value in kept_values else OTHER

    alone = replace(derived, name=_KEPT, value=kept_value_or_other)
    return replace(query, group_by=(_KEPT,), derived={**query.derived, _KEPT: alone})


def _can_compute_others_by_subtraction(query: CostQuery) -> bool:
    if not query.kept or not has_many_groups(query) or query.meter == EVERY_METER:
        return False
    return len(query.kept) <= MOST


def largest_group_totals(
    ledger_rows: LedgerRows,
    query: CostQuery,
    time_ranges: Iterable[tuple[datetime, datetime]],
    limit: QuestionLimit | None,
    totals_of_query: TotalsOfQuery[T],
) -> Totals[T]:
    """
    Return the totals of the groups that are largest over `time_ranges` together, and of all other groups as
    one.

    For the other groups, only the measure that decides the order is read.
    """
    whole = replace(query, granularity=TOTAL)
    is_decided = query.granularity == TOTAL and {query.top_by} == {*query.measures}
    top = query.top or 0
    near = set[Group]()
    # many groups are shown and the deciding measure is the result, so all groups are read at once
    is_long = is_decided and top >= MANY and has_many_groups(query) and has_no_billed_costs(query)
    if not is_long or ledger_rows.has_more_groups(whole, MANY_OF_TOP * top):
        near = largest_groups(ledger_rows, whole, time_ranges, limit)
    kept_groups = near
    if not near or len(near) != query.top:
        decided = totals_of_query(replace(whole, measures=(query.top_by,), only=frozenset(near) or None))
        groups: Mapping[Group, T] = next(iter(decided.values()), {})
        kept_groups = _choose_largest_groups(groups, query)
        if not near and is_decided:
            return {
                start: _merge_all_but_largest_groups(groups, query, kept_groups)
                for start, groups in decided.items()
            }
        if not near and len(groups) <= len(kept_groups):
            return totals_of_query(replace(query, top=None))
    return totals_of_kept_and_other_groups(
        replace(query, kept=_largest_and_unknown_groups(query, kept_groups), top=None), totals_of_query
    )


def _merge_all_but_largest_groups(
    groups: Mapping[Group, T], query: CostQuery, largest: Collection[Group]
) -> dict[Group, T]:
    rest = (OTHER,) * len(query.group_by)
    kept_groups = _largest_and_unknown_groups(query, largest) - {rest}
    shown_totals = {group: total for group, total in groups.items() if group in kept_groups}
    other_totals = [total for group, total in groups.items() if group not in kept_groups]
    if other_totals:
        shown_totals[rest], *further_totals = other_totals
        shown_totals[rest].add_totals(further_totals)
    return shown_totals


def _largest_and_unknown_groups(query: CostQuery, largest: Collection[Group]) -> frozenset[Group]:
    return frozenset([(None,) * len(query.group_by), *largest])


def _choose_largest_groups(groups: Mapping[Group, GroupTotal], query: CostQuery) -> set[Group]:
    # Leave out groups that would take the place of a unit: calls without a unit, unlisted units, and units whose
    # calls were all corrected.
    place = query.work_unit_group_index
    named = {
        group: total
        for group, total in groups.items()
        if place is None or (group[place] not in (None, OTHER) and not total.is_zero)
    }
    sizes = {group: total.measure(query.top_by) for group, total in named.items()}
    max_groups = query.top or 0
    return set(
        nsmallest(max_groups, sizes, key=lambda group: (-sizes[group], [value or "" for value in group]))
    )
