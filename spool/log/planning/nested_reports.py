"""
Search for the other of two nested reports without a common id: the SDK's, and that of the code around it in
the same process.

An SDK's report belongs to a call if its time lies within that of exactly one call with the same model and
counts, and no other SDK's report belongs to that call. So calls of a loop, equal simultaneous calls, and
calls that only the SDK reports are not joined.

The index of known ids only finds names. So a report is stored under its key, time step and an ordinal, and
the found records are read to compare exact times.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from spool.identity import (
    STEP_NS,
    NestedReport,
    decode_times_from_dedup_keys,
    dedup_key_of_nested_report,
    derived_dedup_key,
    encode_times_as_dedup_key,
    possible_input_counts,
)
from spool.record import Inference, further_dedup_keys

MOST_IN_STEP: Final = 4096  # limit of reports with one key in a step; further reports are not joined
MOST_READ: Final = 32  # records read per key and step, newest first
# Tolerance in one process. OpenTelemetry for JavaScript drops the fraction of a millisecond from a start, and
# computes the end from it.
SLACK_NS: Final = 2_000_000
LATEST_END_NS: Final = (
    STEP_NS  # largest distance between the end of the SDK's report and of the call around it
)
_DATE: Final = re.compile(r"[-@]\d{8}$")

LogPositionFinder = Callable[[bytes], int | None]  # function that returns the position known under a name
# function that returns a record, the record that counts it, and so on
RecordsOf = Callable[[int], Sequence[Inference]]
Times = tuple[int, int]


class NestedMatch(NamedTuple):
    """
    The position (topic and number) of the call that the other nested report describes, or None, and the ids by
    which this report will be found.
    """

    place: int | None
    names: tuple[bytes, ...]


class _NestedCandidate(NamedTuple):
    key: str
    place: int
    record: Inference
    times: Times
    is_exact: bool  # False if another report, perhaps from another clock, states the times


def counterpart_keys_and_positions(
    nested_report: NestedReport, find_log_position: LogPositionFinder
) -> Iterator[tuple[str, int]]:
    """
    Yield key and position of reports of the other kind (SDK's or caller's) with an equal key and about the
    same end.
    """
    first, last = nested_report.end - LATEST_END_NS, nested_report.end + SLACK_NS
    if nested_report.is_inner:
        first, last = nested_report.end - SLACK_NS, nested_report.end + LATEST_END_NS
    for key in nested_report.keys:
        for step in range(first // STEP_NS, last // STEP_NS + 1):
            name = partial(dedup_key_of_nested_report, key, step, is_inner=not nested_report.is_inner)
            for log_position in positions_of_newest_reports(name, find_log_position):
                yield key, log_position


def positions_of_newest_reports(
    name_of_ordinal: Callable[[int], bytes], find_log_position: LogPositionFinder
) -> Iterator[int]:
    count = count_stored_reports(name_of_ordinal, find_log_position)
    for ordinal in range(count - 1, max(count - MOST_READ, 0) - 1, -1):
        log_position = find_log_position(name_of_ordinal(ordinal))
        if log_position is not None:
            yield log_position


def count_stored_reports(
    name_of_ordinal: Callable[[int], bytes], find_log_position: LogPositionFinder
) -> int:
    """
    Count the stored reports of one key and time step. `name_of_ordinal`: returns the dedup id of the report
    with this number, from 0 without gaps.
    """

    def is_stored(ordinal: int) -> bool:
        return find_log_position(name_of_ordinal(ordinal)) is not None

    above = 1
    while above <= MOST_IN_STEP and is_stored(above - 1):
        above *= 2
    filed = above // 2
    return filed + bisect_left(range(filed, above - 1), True, key=lambda ordinal: not is_stored(ordinal))


def nested_pair_dedup_flag(counted_record: Inference) -> bytes:
    return derived_dedup_key(counted_record.id, "nested")


class NestedReportSearch:
    def __init__(self, find_log_position: LogPositionFinder, records_of: RecordsOf) -> None:
        self._place_of = find_log_position
        self._records_of = records_of

    def find_match(
        self, record: Inference, nested_report: NestedReport, own_position: int | None = None
    ) -> NestedMatch:
        """
        Find the SDK's report if `nested_report` is its caller's, or the other way round. `own_position`: position of
        the record that has this report under another id.
        """
        filed = encode_times_as_dedup_key(nested_report)
        if self._place_of(filed) is not None:
            return NestedMatch(None, ())  # a repeated report, which was filed before
        own_records = [] if own_position is None else self._records_of(own_position)
        counting = own_records[-1] if own_records else None
        if counting is not None and self._place_of(nested_pair_dedup_flag(counting)) is not None:
            return NestedMatch(None, (filed,))
        fitting = self._calls_that_may_be_same_as_nested_report(record, nested_report)
        if not nested_report.is_inner:
            fitting = {id: fit for id, fit in fitting.items() if not self._is_also_within_another_call(fit)}
        if counting is not None and counting.id in fitting:
            return NestedMatch(None, (filed, nested_pair_dedup_flag(counting)))
        exact = [fit for fit in fitting.values() if fit.is_exact]
        fits = exact or list(fitting.values())
        if len(fits) == 1 or (exact and not nested_report.is_inner):
            return NestedMatch(max(fits, key=lambda fit: fit.times[1] - fit.times[0]).place, (filed,))
        return NestedMatch(None, (filed, *self._dedup_keys_to_store(nested_report)))

    def has_complete_pair_without(self, log_position: int, nested_report: NestedReport) -> bool:
        """
        Return whether the SDK's and the caller's report of the call at `log_position` are both known, and
        this report repeats neither. It repeats one of its kind if the time span of one contains the other's.
        """
        records = self._records_of(log_position)
        if all(self._place_of(nested_pair_dedup_flag(record)) is None for record in records):
            return False
        own = nested_report.start, nested_report.end
        return not any(
            is_one_within_other(own, times)
            for record in records
            for times in decode_times_from_dedup_keys(
                further_dedup_keys(record), is_inner=nested_report.is_inner
            )
        )

    def _calls_that_may_be_same_as_nested_report(
        self, record: Inference, nested_report: NestedReport
    ) -> dict[bytes, _NestedCandidate]:
        fitting: dict[bytes, _NestedCandidate] = {}
        is_inner, times = nested_report.is_inner, (nested_report.start, nested_report.end)
        for key, log_position in counterpart_keys_and_positions(nested_report, self._place_of):
            records = self._records_of(log_position)
            if not records or records[-1].shadow:
                continue
            # a reversed record has no counts; the record that counts its call has them
            same = [
                one
                for one in records
                if has_same_counts_and_model(*((record, one) if is_inner else (one, record)))
            ]
            if not same:
                continue
            other = records[0]
            # a report that joined a closed record could not add its times
            stated = decode_times_from_dedup_keys(further_dedup_keys(other), is_inner=not is_inner)
            slack = SLACK_NS if stated else LATEST_END_NS
            for other_times in stated or [(other.start_time or 0, other.end_time or 0)]:
                nested = (times, other_times) if is_inner else (other_times, times)
                if _is_within(*nested, slack):
                    if self._has_no_counterpart(records, is_inner_report=is_inner):
                        fitting[records[-1].id] = _NestedCandidate(
                            key, log_position, same[0], other_times, bool(stated)
                        )
                    break
        return fitting

    def _has_no_counterpart(self, call_records: Sequence[Inference], *, is_inner_report: bool) -> bool:
        if any(self._place_of(nested_pair_dedup_flag(record)) is not None for record in call_records):
            return False
        return not any(
            decode_times_from_dedup_keys(further_dedup_keys(record), is_inner=is_inner_report)
            for record in call_records
        )

    def _is_also_within_another_call(self, candidate: _NestedCandidate) -> bool:
        """
        Return whether the SDK's report in `candidate` also lies within another call. Then it has a record of its
        own, because it may belong to either call.
        """
        key_of_call, _, _ = candidate.key.rpartition("\0")
        keys = tuple([f"{key_of_call}\0{count}" for count in possible_input_counts(candidate.record)])
        return bool(
            self._calls_that_may_be_same_as_nested_report(
                candidate.record, NestedReport(True, keys, *candidate.times)
            )
        )

    def _dedup_keys_to_store(self, nested_report: NestedReport) -> Iterator[bytes]:
        for key in nested_report.keys:
            step = nested_report.end // STEP_NS
            name = partial(dedup_key_of_nested_report, key, step, is_inner=nested_report.is_inner)
            yield name(count_stored_reports(name, self._place_of))


def is_one_within_other(one: Times, other: Times) -> bool:
    """Return whether one span of time contains the other (within SLACK_NS), as two reports of one call do."""
    return any(
        outer[0] - SLACK_NS <= inner[0] and inner[1] - SLACK_NS <= outer[1]
        for inner, outer in ((one, other), (other, one))
    )


def _is_within(inner: Times, outer: Times, slack: int) -> bool:
    starts_inside = outer[0] - slack <= inner[0]
    return starts_inside and inner[1] - slack <= outer[1] <= inner[1] + LATEST_END_NS


def has_same_counts_and_model(inner: Inference, outer: Inference) -> bool:
    has_input = (outer.input_tokens or 0) in possible_input_counts(inner)
    has_counts = has_input and (inner.output_tokens or 0) == (outer.output_tokens or 0)
    return has_counts and not _model_names(inner).isdisjoint(_model_names(outer))


def _model_names(record: Inference) -> set[str]:
    """
    Return the record's model names without prefixes and dates, because one report may name only the alias and
    the other only the dated model.
    """
    models = (record.request_model, record.response_model)
    return {_DATE.sub("", model.rpartition("/")[2].lower()) for model in models if model is not None}
