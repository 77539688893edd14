"""
Summation of records in memory: measures per hour and set of dimensions. Pure.

A duplicate that is stored for reference never counts. A cached call counts as a call and as saved money,
never as spend. A usage metric adds tokens and money but no calls; a negative one subtracts what another
added. A correction subtracts the call as it was counted, and adds its new state. A record counts in the hour
of its call, not of its arrival.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import log
from operator import add, sub
from typing import NamedTuple, cast

import msgspec

from spool import money
from spool.cost_kinds import KIND_OF_SOURCE, NONE, OUTCOME_TAGS, call_cost_source, counted_cost_source
from spool.ledger.token_sums import SIZES
from spool.ledger.work import MAX_LEVELS, Units, WorkUnitHasher, names_to_store
from spool.ledger.work import NONE as NO_UNIT
from spool.ledger.work import OTHER as OTHER  # the name that stands for many values
from spool.ledger.work import TAGS as UNIT_TAGS
from spool.log.values import LogEntry
from spool.meters import quantity_in_millionths
from spool.processing import processing_mode
from spool.record import CALL_UNIT, CURRENCY, NS, TOKEN_UNIT, Correction, Inference, Record, UsageMetric

HOUR_S = 3600
DAY_S = 24 * HOUR_S
END_OF_TIME = 1 << 62
WEEK_S, FOUR_WEEKS_S = 7 * DAY_S, 28 * DAY_S
BILLED_ROLLUPS = 100  # number of the first rollup of billed costs
ROLLUP_WIDTHS = (FOUR_WEEKS_S, WEEK_S, DAY_S)  # seconds; see spool.ledger.days.rollups
# first Monday after the epoch: weeks of rollups and queries begin on the same day
MONDAY_S = 4 * DAY_S
_HOUR_NS = HOUR_S * NS
AHEAD_S = 2 * HOUR_S  # start times further after the hour of arrival are not believed
MS = 1_000_000

INPUT_UNKNOWN = -1
_OUTPUT_UNKNOWN = -2  # if the output is unknown, the input size is subtracted from this value

# upper edges; one more bucket is above the last
LATENCY_EDGES_MS = (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000)

COUNTS = (
    "calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cache_write_1h_tokens",
)
MONEY = ("reported", "estimated")
LATENCY = ("latency_ms", *(f"latency_{index}" for index in range(len(LATENCY_EDGES_MS) + 1)))
_REPORTED, _ESTIMATED = len(COUNTS), len(COUNTS) + 1
_LATENCY_MS = _ESTIMATED + 1
WIDTH = _LATENCY_MS + len(LATENCY)

# Larger counts are ignored. The limit is far above any call and far below 64-bit sums, so one broken sender
# cannot make a sum overflow.
MAX_TOKENS = 10**12
MAX_MONEY = 10**7 * money.UNIT

# Prefixes of counters whose input excludes the cache, or whose output excludes reasoning. Tollhouse includes
# both.
_CACHE_APART = ("claude_code.", "cline.", "coder_", "cursor.", "opencode.")
_REASONING_APART = ("gemini_cli.", "opencode.")
_INPUT_TYPES = frozenset({"input", "input_uncached", "tool_input"})
_OUTPUT_TYPES = frozenset({"output", "output_visible"})
_MEMO = 10_000
# characters of a tag's value; values are cut one by one, so that the tags remain valid JSON
MAX_TAG = 256


class Dimensions(NamedTuple):
    """
    The dimensions of a sum; "" means unknown. `model`: the model that answered, else the requested model.
    `cost_source`: as in `spool.cost_kinds`.
    """

    kind: str
    source: str
    provider: str
    model: str
    request_model: str
    team: str
    user: str
    device: str
    api_key: str
    tags: str  # tags as JSON, "" for none
    status: str
    cost_source: str
    mode: str
    size: int
    region: str = ""
    sender: str = ""  # `sender_key` of the record


class CountedFields(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """
    The fields that decide a call's dimensions and units of work. Their order is that of the compiled module.
    """

    source: str
    provider: str | None
    request_model: str | None
    response_model: str | None
    team: str | None
    user: str | None
    device: str | None
    api_key: str | None
    status: str
    cost_source: str
    region: str | None
    sender_key: str | None
    session: str | None
    run: str | None
    parent_run: str | None
    ancestors: str | None
    input_tokens: int | None
    output_tokens: int | None
    tags: dict[str, str]


Restated = Callable[[Inference, int | None, int], Inference]
TagsOf = Callable[[int, int], tuple[str, ...]]
Measures = list[int]  # COUNTS, MONEY in units, LATENCY
# quantities in millionths of the meter's unit; also limbs of amounts (spool.currencies)
MeterSums = dict[str, int]
# a plain tuple is faster than Dimensions
DimensionValues = tuple[str, str, str, str, str, str, str, str, str, str, str, str, str, int, str, str]


def start_hour_or_arrival_hour(start_time: int | None, committed_at: float) -> int:
    """
    Return the hour (epoch seconds) of a call's start. If the start is missing or more than AHEAD_S ahead of
    the arrival, return the hour of arrival.
    """
    arrival = int(committed_at) // HOUR_S * HOUR_S
    if start_time is None or not 0 < start_time < (arrival + AHEAD_S) * NS:
        return arrival
    return start_time // _HOUR_NS * HOUR_S


class HourlySums:
    """
    Sums of log entries, by hour. `skip`: returns whether a number and hour are left out. Without `unit_hasher`,
    units of work are not counted. `restated`: returns a call with its estimate after recalculations.
    `tags`: the tags by which calls are counted. `tags_of`, if set, returns these tags for a record number
    and an hour.
    """

    def __init__(
        self,
        tags: Sequence[str] = (),
        *,
        unit_hasher: WorkUnitHasher | None = None,
        skip: Callable[[int, int], bool] | None = None,
        restated: Restated | None = None,
        tags_of: TagsOf | None = None,
    ) -> None:
        self.hours: dict[int, dict[DimensionValues, Measures]] = {}
        # only for rows that have meters
        self.meters: dict[int, dict[DimensionValues, MeterSums]] = {}
        self.work: dict[int, dict[DimensionValues, dict[Units, Measures]]] = {}
        self.work_names: dict[int, str] = {}  # names of units by their numbers
        self.work_edges: set[Units] = set()  # runs above the calls, each with its starter
        self.first: dict[int, int] = {}  # the lowest record number counted in each hour
        self.damaged = 0
        self.absurd = 0
        self.tags = tuple(tags)
        self._skip = skip
        self._restated = restated
        self._digests = unit_hasher
        self._tags_of = tags_of
        self._texts_of = defaultdict[tuple[str, ...], dict[tuple[str | None, ...], str]](dict)
        self._choose_tags(self.tags)
        self._units: dict[tuple[str | None, ...], Units] = {}
        self._chains: set[tuple[str | None, str | None, str]] = set()  # chains that `work_edges` already has

    def add_entries(self, entries: Iterable[LogEntry]) -> None:
        """
        Count every record, except duplicates stored for reference and those for which `skip` returns True.
        """
        first, skip = self.first, self._skip
        for entry in entries:
            arrival = start_hour_or_arrival_hour(None, entry.committed_at)
            believed_ns = (arrival + AHEAD_S) * NS
            for number, record in enumerate(entry.records, entry.first):
                if record is None:
                    self.damaged += 1
                    continue
                if record.shadow:
                    continue
                start = record.start_time  # `start_hour_or_arrival_hour`, inlined for speed
                hour = arrival if start is None or not 0 < start < believed_ns else start // _HOUR_NS * HOUR_S
                if skip is not None and skip(number, hour):
                    continue
                if not self._count_record_if_countable(hour, record, number):
                    self.absurd += 1
                elif hour not in first or number < first[hour]:  # `note_lowest_record_number`, inlined
                    first[hour] = number

    def count_sums(self) -> int:
        """Return the number of sums in memory, including sums of units of work."""
        of_units = sum(map(len, chain.from_iterable(work.values() for work in self.work.values())))
        return of_units + sum(map(len, self.hours.values()))

    def clear(self) -> None:
        for sums in (self.hours, self.meters, self.work, self.work_names, self.first):
            sums.clear()
        self.work_edges.clear()
        self._chains.clear()
        self.damaged = self.absurd = 0

    def add_call_sums(self, hour: int, call: CountedFields, measures: Measures) -> None:
        """
        Add the measures of calls with the dimensions of `call` and this object's `tags`. Either all of these
        calls have usage or none has (see `spool.cost_kinds`). The stored sum may be the same object as
        `measures`.
        """
        is_empty = not any(measures[1:_LATENCY_MS])
        self._choose_tags(self.tags)
        key = self._dimension_values(
            call, counted_cost_source(call.status, call.cost_source, is_empty=is_empty)
        )
        rows = self.hours.setdefault(hour, {})
        row = rows.get(key)
        rows[key] = measures if row is None else list(map(add, row, measures))
        if (unit_row := self._find_or_add_work_unit_measures(hour, key, call)) is not None:
            unit_row[:] = map(add, unit_row, measures)

    def _find_or_add_work_unit_measures(
        self, hour: int, key: DimensionValues, call: Inference | UsageMetric | CountedFields
    ) -> Measures | None:
        if (digests := self._digests) is None:
            return None
        tags, run, parent = call.tags, None, None
        if not isinstance(call, UsageMetric):
            run, parent = call.run, call.parent_run
            if call.ancestors:
                self._add_run_edges(digests, call.session, parent, call.ancestors)
        has_tags = bool(tags) and not tags.keys().isdisjoint(UNIT_TAGS)
        if call.session is None and run is None and not has_tags:
            return None
        values: tuple[str | None, ...] = (call.session, run, parent)
        if has_tags:
            values += tuple(map(tags.get, UNIT_TAGS))
        units = self._units.get(values)
        if units is None:
            if len(self._units) >= _MEMO:
                self._units.clear()
            units = self._units[values] = digests.hash_units(call.session, run, parent, tags)
            if has_tags:
                self.work_names.update(names_to_store(units, tags))
        if max(units) == NO_UNIT:
            return None
        rows = self.work.setdefault(hour, {}).setdefault(key, {})
        row = rows.get(units)
        if row is None:
            row = rows[units] = [0] * WIDTH
        return row

    def _add_run_edges(
        self, unit_hasher: WorkUnitHasher, session: str | None, parent: str | None, ancestors: str
    ) -> None:
        chain = session, parent, ancestors
        if chain in self._chains:
            return
        if len(self._chains) >= _MEMO:
            self._chains.clear()
        self._chains.add(chain)
        runs = [] if parent is None else [parent, *ancestors.split()[:MAX_LEVELS]]
        self.work_edges.update(
            [unit_hasher.edge_to_starting_run(session, run, above) for run, above in pairwise(runs)]
        )

    def note_lowest_record_number(self, hour: int, record_number: int) -> None:
        self.first[hour] = min(record_number, self.first.get(hour, record_number))

    def _count_record_if_countable(self, hour: int, record: Record, record_number: int) -> bool:
        if self._tags_of is not None:
            self._choose_tags(self._tags_of(original_record_number(record, record_number), hour))
        if isinstance(record, Inference):
            restated = self._restated
            return self._count_call_if_in_range(
                hour, record if restated is None else restated(record, record_number, hour)
            )
        if isinstance(record, Correction):
            return self._count_correction_if_in_range(hour, record)
        return isinstance(record, UsageMetric) and self._count_metric_if_in_range(hour, record)

    def _count_correction_if_in_range(self, hour: int, record: Correction) -> bool:
        """
        Count a correction, so that the sums are as if all reports had arrived in time. Return whether it was
        counted.
        """
        before, after = record.before, record.after
        if self._restated is not None:
            before = self._restated(before, record.corrects_number, hour)
            after = self._restated(after, record.corrects_number, hour)
        if not after.shadow and not self._count_call_if_in_range(hour, after):
            return False
        self._subtract_call(hour, before)
        return True

    def _subtract_call(self, hour: int, call: Inference) -> None:
        alone = HourlySums(self._chosen_tags)
        alone._count_call_if_in_range(hour, call)  # a call that is too large to count has no row
        for _, key, measures in alone.hourly_rows():
            row = self._find_or_add_row(hour, key)
            for index, amount in enumerate(measures):
                row[index] -= amount
            if (unit_row := self._find_or_add_work_unit_measures(hour, key, call)) is not None:
                unit_row[:] = map(sub, unit_row, measures)
        for _, key, meters in alone.meter_rows():
            meter_sums = self.meters.setdefault(hour, {}).setdefault(key, {})
            for name, units in meters.items():
                meter_sums[name] = meter_sums.get(name, 0) - units

    def _count_call_if_in_range(self, hour: int, call: Inference) -> bool:
        input_tokens, output_tokens = call.input_tokens, call.output_tokens
        reported = 0 if call.cost is None else money.text_to_units(call.cost)
        estimated = 0 if call.estimated_cost is None else money.text_to_units(call.estimated_cost)
        if (
            (input_tokens or 0) > MAX_TOKENS
            or (output_tokens or 0) > MAX_TOKENS
            or abs(reported) + estimated > MAX_MONEY
        ):
            return False
        key = self.call_dimensions(call)
        if call.charges and not self._add_charges_if_in_range(hour, key, call.charges):
            return False
        rows = self.hours.get(hour)
        if rows is None:  # `_find_or_add_row`, inlined for speed
            rows = self.hours[hour] = {}
        row = rows.get(key)
        if row is None:
            row = rows[key] = [0] * WIDTH
        if call.meters:
            self._add_meters(hour, key, call.meters)
        _add_call_to_row(row, call, reported, estimated)
        if (unit_row := self._find_or_add_work_unit_measures(hour, key, call)) is not None:
            _add_call_to_row(unit_row, call, reported, estimated)
        return True

    def call_dimensions(self, call: Inference) -> DimensionValues:
        return self._dimension_values(call, call_cost_source(call))

    def _dimension_values(self, call: Inference | CountedFields, cost_source: str) -> DimensionValues:
        key = (
            "call",
            call.source,
            call.provider or "",
            call.response_model or call.request_model or "",
            call.request_model or "",
            call.team or "",
            call.user or "",
            call.device or "",
            call.api_key or "",
            self._chosen_tags_text(call.tags) if call.tags else "",
            call.status,
            cost_source,
            processing_mode(call.tags) if call.tags else "",
            encode_input_size(call.input_tokens, call.output_tokens),
            call.region or "",
            call.sender_key or "",
        )
        return key if OTHER not in key else _replace_other_with_empty(key)

    def _count_metric_if_in_range(self, hour: int, metric: UsageMetric) -> bool:
        amount = metric.value
        status, cost_source = metric_status_and_source(metric)
        paid = metric.unit == CURRENCY
        is_foreign = metric.unit not in (CURRENCY, TOKEN_UNIT, CALL_UNIT)
        units = money.text_to_units(str(amount)) if paid else 0 if is_foreign else int(amount)
        if abs(units) > (MAX_MONEY if paid else MAX_TOKENS):
            return False
        key = (
            "metric",
            metric.source,
            "",
            metric.model or "",
            "",
            metric.team or "",
            metric.user or "",
            metric.device or "",
            metric.api_key or "",
            self._chosen_tags_text(metric.tags) if metric.tags else "",
            status,
            cost_source,
            "",
            INPUT_UNKNOWN,
            "",
            metric.sender_key or "",
        )
        if OTHER in key:
            key = _replace_other_with_empty(key)
        if is_foreign and not self._add_charges_if_in_range(hour, key, {metric.unit: str(amount)}):
            return False
        changed = (
            ()
            if is_foreign
            else (_ESTIMATED if cost_source == "estimated" else _REPORTED,)
            if paid
            else (0,)
            if metric.unit == CALL_UNIT
            else measure_indexes_of_tokens(metric.name, metric.token_type)
        )
        row, unit_row = (
            self._find_or_add_row(hour, key),
            self._find_or_add_work_unit_measures(hour, key, metric),
        )
        for index in changed:
            row[index] += units
            if unit_row is not None:
                unit_row[index] += units
        if metric.meter is not None and metric.unit == TOKEN_UNIT:
            self._add_meters(hour, key, {metric.meter: units})
        return True

    def hourly_rows(self) -> Iterator[tuple[int, Dimensions, Measures]]:
        for hour in sorted(self.hours):
            for values, row in self.hours[hour].items():
                yield hour, Dimensions._make(values), row

    def meter_rows(self) -> Iterator[tuple[int, Dimensions, MeterSums]]:
        for hour, rows in self.meters.items():
            for values, meter_sums in rows.items():
                yield hour, Dimensions._make(values), meter_sums

    def _add_meters(self, hour: int, key: DimensionValues, quantities: Mapping[str, int | str]) -> None:
        meter_sums = self.meters.setdefault(hour, {}).setdefault(key, {})
        for name, quantity in quantities.items():
            if units := quantity_in_millionths(quantity):
                meter_sums[name] = meter_sums.get(name, 0) + units

    def _add_charges_if_in_range(self, hour: int, key: DimensionValues, charges: Mapping[str, str]) -> bool:
        from spool.currencies import (  # imported only if a record has an amount in another currency
            MAX_CHARGE,
            charges_as_meters,
        )

        if any(abs(money.text_to_units(amount)) > MAX_CHARGE for amount in charges.values()):
            return False
        meter_sums = self.meters.setdefault(hour, {}).setdefault(key, {})
        for name, units in charges_as_meters(charges).items():
            meter_sums[name] = meter_sums.get(name, 0) + units
        return True

    def _find_or_add_row(self, hour: int, key: DimensionValues) -> Measures:
        rows = self.hours.get(hour)
        if rows is None:
            rows = self.hours[hour] = {}
        row = rows.get(key)
        if row is None:
            row = rows[key] = [0] * WIDTH
        return row

    def _choose_tags(self, tags: tuple[str, ...]) -> None:
        self._chosen_tags, self._tag_texts = tags, self._texts_of[tags]

    def _chosen_tags_text(self, tags: Mapping[str, str]) -> str:
        values = tuple(map(tags.get, self._chosen_tags))
        text = self._tag_texts.get(values)
        if text is None:
            tag_values = {
                name: value[:MAX_TAG]
                for name, value in zip(self._chosen_tags, values, strict=True)
                if value and value != OTHER
            }
            text = tags_text(tag_values)
            if len(self._tag_texts) >= _MEMO:
                self._tag_texts.clear()
            self._tag_texts[values] = text
        return text


def tags_text(tags: Mapping[str, str]) -> str:
    return json.dumps(tags, sort_keys=True, ensure_ascii=False) if tags else ""


def original_record_number(record: Record, record_number: int) -> int:
    """
    Return the number by which the tag list of a record is chosen: that of the record it corrects or reverses,
    else its own.
    """
    corrected = None
    if isinstance(record, Correction):
        corrected = record.corrects_number
    elif isinstance(record, UsageMetric):
        corrected = record.reverses_number
    return record_number if corrected is None else corrected


def _replace_other_with_empty(key: DimensionValues) -> DimensionValues:
    return cast("DimensionValues", tuple(["" if value == OTHER else value for value in key]))


def call_sum(call: Inference) -> tuple[Dimensions, Measures, MeterSums] | None:
    """Return the sum of one call without tags, or None if its values are too large to count."""
    sums = HourlySums()
    sums._count_call_if_in_range(0, call)
    meters = {key: amounts for _, key, amounts in sums.meter_rows()}
    return next(((key, row, meters.get(key, {})) for _, key, row in sums.hourly_rows()), None)


def _add_call_to_row(row: Measures, call: Inference, reported: int, estimated: int) -> None:
    row[0] += 1
    row[1] += call.input_tokens or 0
    row[2] += call.output_tokens or 0
    row[3] += call.cache_read_tokens or 0
    row[4] += call.cache_write_tokens or 0
    row[5] += call.reasoning_tokens or 0
    row[6] += call.cache_write_1h_tokens or 0
    row[_REPORTED] += reported
    row[_ESTIMATED] += estimated
    start, end = call.start_time, call.end_time
    if start is not None and end is not None and end >= start:
        took = (end - start) // MS
        row[_LATENCY_MS] += took
        row[_LATENCY_MS + 1 + bisect_left(LATENCY_EDGES_MS, took)] += 1


def metric_status_and_source(metric: UsageMetric) -> tuple[str, str]:
    """
    Return the status and cost source that the totals count a metric under. Only corrections from another
    Tollhouse state these, in tags.
    """
    if metric.unit == CURRENCY and metric.tags.get(OUTCOME_TAGS[1]) == "estimated":
        return "ok", "estimated"
    if metric.unit == CALL_UNIT:
        status, cost_source = [metric.tags.get(tag) or "" for tag in OUTCOME_TAGS]
        return status or "ok", cost_source if cost_source in KIND_OF_SOURCE else NONE
    return "ok", "none" if metric.unit == TOKEN_UNIT else "reported"


def encode_input_size(input_tokens: int | None, output_tokens: int | None) -> int:
    """Encode the highest of SIZES that the input exceeds, and whether the output is known."""
    if input_tokens is None:
        return INPUT_UNKNOWN
    beyond = SIZES[bisect_left(SIZES, input_tokens) - 1] if input_tokens else 0
    return beyond if output_tokens is not None else _OUTPUT_UNKNOWN - beyond


def input_size_and_is_output_known(encoded_size: int) -> tuple[int, bool]:
    """Decode a result of `encode_input_size`, except INPUT_UNKNOWN."""
    return (encoded_size, True) if encoded_size >= 0 else (_OUTPUT_UNKNOWN - encoded_size, False)


def measure_indexes_of_tokens(metric_name: str, token_type: str | None) -> tuple[int, ...]:
    """
    Return the positions in a row of measures to which a metric's tokens are added. Each token is added to a
    total only once.
    """
    if token_type in _INPUT_TYPES:
        return (1,)
    if token_type in _OUTPUT_TYPES:
        return (2,)
    if token_type in ("cache_read", "cache_write"):
        own = 3 if token_type == "cache_read" else 4
        return (1, own) if metric_name.startswith(_CACHE_APART) else (own,)
    if token_type == "reasoning":
        return (2, 5) if metric_name.startswith(_REASONING_APART) else (5,)
    return ()


def period_start(period_s: int, moment: int) -> int:
    """Return the start (epoch seconds) of the hour, day or group of weeks that contains `moment`."""
    first = MONDAY_S if period_s > DAY_S else 0
    return (moment - first) // period_s * period_s + first


# -- latency percentiles from the counts by LATENCY_EDGES_MS -------------------------------------------------


def percentile_ms(counts: Sequence[int], percent: int) -> int | None:
    """
    Estimate a percentile in milliseconds, inside the histogram bucket that contains it.

    Return None without latencies, or if it lies above the last edge. Within a bucket, each doubling of the
    time is assumed to leave the same proportion of slower calls, because evenly spread times would
    overestimate a long tail.
    """
    total = sum(counts)
    rank = -(-percent * total // 100)
    reached = 0
    for (low, high), calls in zip(pairwise((0, *LATENCY_EDGES_MS)), counts, strict=False):
        if calls and reached + calls >= rank:
            remaining, beyond = total - reached, max(total - reached - calls, 0.25)
            share = log(remaining / (total - rank + 0.5)) / log(remaining / beyond)
            return round(low * (high / low) ** share) if low else round(high * share)
        reached += calls
    return None
