"""
Planning of a group commit: submissions become entries, reports added to records, series and terms. Pure,
except for reads.

An engine writes a plan in one transaction and then calls
`CommitPlanner.apply_plan_and_return_next_numbers`, so a failed commit leaves no trace.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from spool.identity import RecordIdentity, limit_to_sender_key, scope_dedup_flags
from spool.log import accounting, duplicates
from spool.log.accounting import SubmissionCounts
from spool.log.counted_names import sum_by_type
from spool.log.counters import SeriesState, advance_series, delta_record
from spool.log.duplicates import HOUR_NS, DuplicateIndex, SearchHoursCache
from spool.log.partial_reports import PartialReport, indexes_of_stale_submissions
from spool.log.pending_spans import BESIDE, CallBelow, LinkedSpan, PendingSpans
from spool.log.planning.costs import dedup_flags_of_first_report
from spool.log.planning.known_calls import KnownCalls
from spool.log.planning.nested_reports import counterpart_keys_and_positions
from spool.log.planning.plan import CommitPlan, CommitPlanReader
from spool.log.planning.relayed_reports import positions_of_other_side_reports
from spool.log.retention import SERIES_AGE_S
from spool.log.values import CounterPoint, Submission
from spool.record import (
    AI_TELEMETRY,
    NS,
    TOPICS,
    USAGE_EVENTS,
    Inference,
    KeyedRecord,
    Record,
    request_dedup_keys,
)
from spool.registry.key_expectations import indexes_with_ended_bearers

_log = logging.getLogger(__name__)
_source = attrgetter("source")


def check_submission(submission: Submission) -> None:
    if len(submission.records) != len(submission.identities):
        raise ValueError("a submission needs one identity per record")
    if submission.topic not in TOPICS:
        raise ValueError(f"there is no topic {submission.topic!r}")


class CommitPlanner:
    """The state in memory that planning needs: next numbers, known ids and pending spans."""

    def __init__(self, index: DuplicateIndex, *, hold_s: float, max_spans: int) -> None:
        self.index = index
        self.spans = PendingSpans(max_spans)
        self._amends = hold_s > 0
        self._next: dict[str, int] = {}

    @property
    def next_numbers(self) -> Mapping[str, int]:
        return dict(self._next)

    def set_next_numbers(self, next_numbers: Mapping[str, int]) -> None:
        self._next = dict(next_numbers)

    def load_spans(self, rows: Iterable[PartialReport]) -> None:
        if damaged := self.spans.load_rows(rows):
            _log.error("%d rows of spans cannot be read", damaged, extra={"action": "spans_damaged"})

    def log_positions_to_read(self, group: Iterable[Submission], now: float) -> set[int]:
        """
        Return the positions (topic and number) of records that planning this group's commit may read, so that an
        engine can read them at once.
        """
        hours = SearchHoursCache(int(now * NS))
        log_positions: set[int | None] = set()
        for submission in group:
            has_besides = self.spans.has_calls_in_several_scopes(submission.heard_by)
            for record, identity in zip(submission.records, submission.identities, strict=True):
                _, near = hours.id_storage_and_search_hours(record)
                find = partial(self._find_log_position, near, now)
                if identity.nesting is not None:
                    nesting = limit_to_sender_key(identity.nesting, getattr(record, "sender_key", None))
                    matches = counterpart_keys_and_positions(nesting, find)
                    log_positions.update([log_position for _, log_position in matches])
                if identity.relay is not None:
                    log_positions.update(positions_of_other_side_reports(identity.relay, find))
                above = identity.above
                if above is not None and (has_besides or above.startswith(BESIDE)):
                    log_positions.update(self._sibling_call_positions(submission.heard_by, record, above))
                linked = [name for _, name in identity.links]
                names = (identity.id, *identity.lookups, *identity.keys_to_remember, *linked)
                log_positions.update(map(find, names))
            log_positions.update(
                self.spans.positions_of_linkable_calls(submission.heard_by, submission.steps)
            )
        return set(filter(None, log_positions))

    def _find_log_position(self, search_hours: Iterable[int], now: float, dedup_key: bytes) -> int | None:
        return self.index.find_log_position((self.index.short_id(dedup_key),), search_hours, now)

    def _sibling_call_positions(self, sender: str, record: Record, span_above: str) -> Sequence[int]:
        if not isinstance(record, Inference):
            return ()
        siblings = self.spans.find_siblings(sender, record.trace_id or "", record.span_id or "", span_above)
        return () if siblings is None else (*siblings.besides, *siblings.others)

    def plan_group(
        self,
        group: Sequence[Submission],
        reader: CommitPlanReader,
        lowest_open_numbers: Mapping[str, int],
        now: float,
        check: Callable[[], None] | None = None,
    ) -> CommitPlan:
        """
        Plan a commit. `lowest_open_numbers`: the watermarks, which must not move during this commit. `check` is
        called before each submission, and may raise to abort.
        """
        failed = indexes_of_stale_submissions(group, reader.partial_report_version)
        gone = indexes_with_ended_bearers(group, reader.partial_report_version) if failed else set()
        plan = CommitPlan(at=now, first=dict(self._next), stale=failed, ended=gone)
        self.spans.undo_new_spans()
        hours = SearchHoursCache(int(now * NS))
        for index, submission in enumerate(group):
            if index in plan.stale:
                continue
            if check is not None:
                check()
            is_known = self._refuse_or_tell_if_known(plan, index, submission)
            if index not in plan.stale:
                work = _SubmissionPlanner(
                    self.index,
                    self.spans,
                    plan,
                    reader,
                    lowest_open_numbers,
                    submission,
                    hours,
                    amends=self._amends,
                )
                work.plan_submission(is_known=is_known)
        plan.span_rows = self.spans.rows_of_new_spans(now)
        plan.gone_spans = self.spans.rows_to_delete(now)
        plan.partial_reports.update({row.key: row for row in plan.span_rows})
        plan.partial_reports.update(dict.fromkeys(plan.gone_spans))
        return plan

    def _refuse_or_tell_if_known(self, plan: CommitPlan, index: int, submission: Submission) -> bool:
        """Return whether the request was stored before. Refuse it if its idempotency key had another body."""
        request = submission.request
        if request is None:
            return False
        if self._is_known_request(plan, request.body):
            return True
        if self._is_known_request(plan, request.key):
            plan.reused.add(index)
            plan.stale.add(index)
        elif submission.is_repeat:
            plan.stale.add(index)
        return False

    def _is_known_request(self, plan: CommitPlan, dedup_key: bytes) -> bool:
        return self.index.short_id(dedup_key) in plan.ids or self.index.knows_request(dedup_key, plan.at)

    def apply_plan_and_return_next_numbers(self, plan: CommitPlan) -> Mapping[str, int]:
        """
        Update the state in memory after the plan is on disk. Return the next number of each topic with new
        records.
        """
        numbers = plan.next_numbers()
        self._next.update(numbers)
        self.index.add_ids(plan.ids, plan.hours, plan.at)
        self.spans.confirm_committed_rows(plan.span_rows, plan.gone_spans)
        return numbers


class _SubmissionPlanner:
    def __init__(
        self,
        index: DuplicateIndex,
        spans: PendingSpans,
        plan: CommitPlan,
        reader: CommitPlanReader,
        lowest_open_numbers: Mapping[str, int],
        submission: Submission,
        near_hours: SearchHoursCache,
        *,
        amends: bool,
    ) -> None:
        topic = submission.topic
        self._index = index
        self._spans = spans
        self._calls_below: list[CallBelow] = []
        self._plan = plan
        self._reader = reader
        self._submission = submission
        self._records = plan.records.setdefault(topic, [])
        self._first = plan.first.setdefault(topic, 1)
        self._now_ns = int(plan.at * NS)
        self._near_hours = near_hours
        self._ignored = dict(submission.ignored)
        self._terms = SubmissionCounts(
            topic=topic,
            received=submission.received,
            split=submission.split,
            pending=submission.pending,
            rejected=dict(submission.rejected),
            first=self._first + len(self._records),
            before=list(submission.before),
            left_out=submission.left_out,
        )
        self._closed_below = lowest_open_numbers
        self._amends = amends
        self._known_calls: KnownCalls | None = None

    @property
    def _known(self) -> KnownCalls:
        """Return the index of known calls, built on first use because most submissions repeat no call."""
        if self._known_calls is None:
            self._known_calls = KnownCalls(
                self._index,
                self._plan,
                self._reader,
                self._closed_below,
                self._submission,
                self._terms,
                amends=self._amends,
            )
        return self._known_calls

    def plan_submission(self, *, is_known: bool) -> None:
        begin = len(self._records)
        if is_known:
            self._count_repeats()
        else:
            self._plan_records(zip(self._submission.records, self._submission.identities, strict=True))
        if self._submission.points:
            self._plan_records(self._counter_deltas())
        if self._calls_below or self._submission.steps:
            self._link_to_agent_runs()
        if self._terms.topic != AI_TELEMETRY:
            self._store_request_dedup_keys(begin)
        self._terms.accepted = len(self._records) - begin
        self._terms.ignored = self._ignored
        self._plan.submissions.append(self._terms)
        self._plan.partial_reports.update(dict.fromkeys(self._submission.forget))
        for report in self._submission.keep:
            self._plan.partial_reports[report.key] = report
        if self._submission.heard:
            self._plan.heard.setdefault(self._submission.heard_by, set()).update(self._submission.heard)
        self._plan.unrecognised.update(self._submission.unrecognised)
        if self._terms.topic == USAGE_EVENTS:
            for type, new in sum_by_type(self._records[begin:], self._submission.amount_of).items():
                before = self._plan.event_types.get(type)
                self._plan.event_types[type] = before.plus(new) if before else new
        self._count_by_source(self._records[begin:])

    def _plan_records(self, items: Iterator[tuple[Record, RecordIdentity]]) -> None:
        """Plan records. This loop runs for every record, so it uses local variables for speed."""
        index = self._index
        ids = self._plan.ids
        hours = self._plan.hours
        records = self._records
        now = self._plan.at
        near_hours = self._near_hours
        topic = self._terms.topic
        first = self._first
        of_topic = duplicates.encode_log_position(topic, 0)
        step = duplicates.PLACE_STEP
        for record, identity in items:
            (
                known_as,
                lookups,
                certain,
                also,
                links,
                joins,
                is_final,
                is_of_assistant,
                nesting,
                relay,
                above,
                scope,
            ) = identity
            if not certain:
                self._terms.unidentified += 1
                records.append(record)
                continue
            id = index.short_id(known_as)
            hour, near = near_hours.id_storage_and_search_hours(record)
            log_position = ids.get(id)
            if log_position is None:
                log_position = index.find_log_position((id,), near, now)
            if log_position is None and (lookups or also):
                log_position = self._find_log_position_by_dedup_keys((*lookups, *also), near)
                if log_position is not None and (also or scope is not None):
                    is_other = self._known.can_be_of_another_call(log_position, record, scope, near)
                    log_position = None if is_other else log_position
            if log_position is None and links:
                log_position = self._known.find_linked_call(record, identity, near)
            if log_position is None and joins:
                record, log_position = self._known.find_open_or_merge_closed_record(record, joins)
            if log_position is None and nesting is not None and isinstance(record, Inference):
                log_position = self._known.find_call_by_nested_report(record, identity, near)
            if log_position is None and relay is not None and isinstance(record, Inference):
                log_position = self._known.find_call_by_relayed_report(record, identity, near)
            if log_position is None:
                # inlined `duplicates.encode_log_position`
                log_position = of_topic + step * (first + len(records))
                ids[id] = log_position
                hours.append(hour)
                records.append(record)
                if (also or links or joins or nesting or relay) and isinstance(record, Inference):
                    record.also = b"".join(identity.keys_to_remember)
                    if nesting is not None or relay is not None:
                        record.also += b"".join(self._known.used_dedup_keys)
                    if scope is not None:
                        record.also += b"".join(scope_dedup_flags(known_as, "", scope))
                    if is_of_assistant or is_final:
                        record.also += b"".join(dedup_flags_of_first_report(record, identity))
            else:
                log_position = self._known.add_report_to_known_call(record, identity, log_position, near)
            if also or links or joins or nesting or relay:
                self._known.store_dedup_keys_of_call(record, identity, log_position, hour, near)
            if above is not None and isinstance(record, Inference):
                self._calls_below.append((record, above, log_position))

    def _link_to_agent_runs(self) -> None:
        spans, sender = self._spans, self._submission.heard_by
        unplaced = Counter(record.source for record, _, _ in self._calls_below if record.run is None)
        new = list[LinkedSpan]()
        related = spans.add_calls_and_select_linkable(sender, self._calls_below)
        has_besides = spans.has_calls_in_several_scopes(sender)
        for span, (record, above, log_position) in related:
            new.append(span)
            siblings = has_besides and spans.find_siblings(sender, span.trace, record.span_id or "", above)
            if siblings:
                _, near = self._near_hours.id_storage_and_search_hours(record)
                self._known.merge_sibling_reports(record, siblings, near)
            around = spans.values_from_spans_above(span)
            self._known.add_values_from_spans_above(log_position, around)
            unplaced[record.source] -= bool(around.runs) and record.run is None
        for source, n in unplaced.items():
            self._plan.observed[self._terms.topic, accounting.UNPLACED, source] += n
        if self._submission.steps:
            new += spans.add_spans_without_calls(sender, self._submission.steps)
        for log_position, around in spans.call_positions_and_values_below(new):
            self._known.add_values_from_spans_above(log_position, around)

    def _count_repeats(self) -> None:
        self._terms.duplicates += len(self._submission.records)
        for source, n in Counter(map(_source, self._submission.records)).items():
            self._plan.observed[self._terms.topic, accounting.DUPLICATES, source] += n

    def _store_request_dedup_keys(self, first_new_index: int) -> None:
        # when the log is opened, the request's names are read from its first new record
        request = self._submission.request
        hour = self._now_ns // HOUR_NS
        new = self._records[first_new_index:]
        if request is not None and new and isinstance(new[0], KeyedRecord):
            new[0].request = request.key + request.body
        for number, record in enumerate(new, self._first + first_new_index):
            for name in request_dedup_keys(record):
                self._known.store_dedup_key_if_new(
                    name, duplicates.encode_log_position(self._terms.topic, number), hour
                )

    def _find_log_position_by_dedup_keys(
        self, dedup_keys: Iterable[bytes], search_hours: Iterable[int]
    ) -> int | None:
        ids = list(map(self._index.short_id, dedup_keys))
        log_position = self._index.find_log_position(ids, search_hours, self._plan.at)
        if log_position is None:
            return next(filter(None, map(self._plan.ids.get, ids)), None)
        return log_position

    def _counter_deltas(self) -> Iterator[tuple[Record, RecordIdentity]]:
        """Yield records of the increases of counters. Points without an increase are counted by reason."""
        for point in self._submission.points:
            before = self._series_state(point)
            state, delta = advance_series(
                before, point, self._dropped_series_last_reported_at_ns() if before is None else 0
            )
            if state is not None:
                self._plan.series[point.series] = state
            if isinstance(delta, str):
                self._ignored[delta] = self._ignored.get(delta, 0) + 1
                self._plan.observed[self._terms.topic, "ignored", delta] += 1
            else:
                yield delta_record(point, delta)

    def _series_state(self, point: CounterPoint) -> SeriesState | None:
        return self._plan.series.get(point.series) or self._reader.read_series(point.series)

    def _dropped_series_last_reported_at_ns(self) -> int:
        since = self._reader.dropped_series_last_reported_at()
        # a series dropped longer ago would have expired
        return int(since * NS) if since > self._plan.at - SERIES_AGE_S else 0

    def _count_by_source(self, records: Sequence[Record]) -> None:
        topic = self._terms.topic
        observed = self._plan.observed
        observed[topic, accounting.RECEIVED, ""] += self._submission.received
        if self._submission.left_out:
            observed[topic, accounting.LEFT_OUT, ""] += self._submission.left_out
        if self._submission.meter_too_large:
            observed[topic, accounting.METER_TOO_LARGE, ""] += self._submission.meter_too_large
        sources = list(map(_source, records))
        for source in set(sources):
            observed[topic, accounting.ACCEPTED, source] += sources.count(source)
        for reason, n in self._submission.ignored.items():
            observed[topic, "ignored", reason] += n
        for reason, n in self._submission.rejected.items():
            observed[topic, "rejected", reason] += n
        if self._terms.unidentified:
            pairs = zip(self._submission.records, self._submission.identities, strict=True)
            sources = [record.source for record, identity in pairs if not identity.certain]
            for source, n in Counter(sources).items():
                observed[topic, accounting.UNIDENTIFIED, source] += n
