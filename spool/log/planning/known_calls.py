"""
Reports of known calls: they add facts to the record, or show that two records are one call.

If two records are one call, the later one becomes a duplicate stored for reference (a shadow). If it is
closed already, a correction subtracts it. The earlier record gets the facts that only the later one had. A
lookup that finds the later record continues at the record that counts, so names need not be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from spool.erasure import rename_person, rename_person_in_fields, time_of_new_call, time_of_stored_call
from spool.identity import (
    ANY_SCOPE,
    NestedReport,
    RecordIdentity,
    derived_dedup_key,
    is_log_to_span_dedup_key,
    limit_to_sender_key,
    request_id_type_prefix,
    scope_dedup_flags,
    without_keys_of_any_failure,
)
from spool.log import accounting, duplicates
from spool.log.accounting import SubmissionCounts
from spool.log.amendments import (
    MODELS,
    PRICED_BY,
    TOKENS,
    are_of_two_calls,
    has_disagreeing_counts_or_cost,
    is_processing_mode_changed,
    missing_fields,
    replace_fields,
    served_models,
    with_tag_of_asked_model,
)
from spool.log.duplicates import IN_A_RUN, DuplicateIndex, id_storage_and_search_hours
from spool.log.pending_spans import (
    NOTHING_GIVEN,
    Siblings,
    ValuesFromSpansAbove,
    run_fields_to_add,
    values_to_add,
)
from spool.log.planning.costs import (
    CostReliability,
    CostRules,
    cost_reliability,
    dedup_flags_of_first_report,
    has_cost,
    served_model_dedup_flag,
)
from spool.log.planning.device_reports import (
    DeviceReportRules,
    LaterCallReport,
    changed_fields,
    classify_later_report,
    has_measurement,
    without_device_measurements,
    without_server_decided_fields,
)
from spool.log.planning.nested_reports import NestedReportSearch, nested_pair_dedup_flag
from spool.log.planning.plan import CommitPlan, CommitPlanReader
from spool.log.planning.relayed_reports import RelayedReportSearch
from spool.log.planning.relayed_reports import relayed_pair_dedup_flag as relay_name
from spool.log.planning.sibling_spans import MOST_BESIDE, can_be_one_call, pair_reports
from spool.log.values import Submission
from spool.people import CallTime
from spool.record import DEVICE_KEYS, NS, Correction, Inference, Record

_GUESSED = "guessed"
MOST_NAMES = 64  # limit of names stored with one record


class KnownCalls:
    """
    The reports of one submission, compared with known calls. `submission_counts` counts the results.

    Without `amends`, all records of earlier submissions are closed. A late report of a closed record becomes
    a correction if it changes a cost or a count.
    """

    def __init__(
        self,
        index: DuplicateIndex,
        plan: CommitPlan,
        reader: CommitPlanReader,
        lowest_open_numbers: Mapping[str, int],
        submission: Submission,
        submission_counts: SubmissionCounts,
        *,
        amends: bool,
    ) -> None:
        self._index = index
        self._plan = plan
        self._reader = reader
        self._price = submission.price
        self._renaming = submission.renaming
        self._terms = submission_counts
        self._amends = amends
        self._open_from = lowest_open_numbers.get(submission_counts.topic, 1)
        # names that the present report used up; no later report can match them
        self._used_names: set[bytes] = set()
        self._nested: Record | None = None  # the record that was last compared with nested reports
        self._relayed: Record | None = None  # the record that was last compared with relayed reports

    def find_log_position(self, dedup_key: bytes, search_hours: Iterable[int]) -> int | None:
        id = self._index.short_id(dedup_key)
        log_position = self._plan.ids.get(id)  # may be IN_A_RUN, which is no position but a known id
        return (
            self._index.find_log_position((id,), search_hours, self._plan.at)
            if log_position is None
            else log_position
        )

    def find_linked_call(
        self, record: Record, identity: RecordIdentity, search_hours: Iterable[int]
    ) -> int | None:
        """
        Return the position of the call that the other side (such as its caller, for a server's report) has
        reported, found by the report's links. Return None if there is none, or if this side has already
        reported the call.
        """
        self._used_names.clear()
        if isinstance(record, Inference):
            for log_position, pair_names in self._linked_positions_and_pair_keys(
                record, identity.nesting, identity.links, search_hours
            ):
                self._mark_pair_keys_as_used(pair_names, log_position)
                return log_position
        return None

    def _mark_pair_keys_as_used(self, pair_keys: Sequence[bytes], log_position: int) -> None:
        if pair_keys:
            known = self._records_of_call(log_position)[-1:]
            self._used_names.update(pair_keys, [derived_dedup_key(each.id, _GUESSED) for each in known])

    def can_be_of_another_call(
        self, log_position: int, record: Record, span_scope: str | None, search_hours: Iterable[int]
    ) -> bool:
        """
        Return whether the record may be another call than that at `log_position`, although they share a dedup
        id. They must have different response ids. In addition, the shared id must have a rounded time, or one
        of the two may be a device's and the other a server's report.

        Return True also if the report is a span with own ids, and the record has, or may have, a span of the
        same scope.
        """
        if span_scope is not None and (
            log_position == IN_A_RUN or self._has_span_of_scope(log_position, span_scope, search_hours)
        ):
            return True
        if log_position == IN_A_RUN or not isinstance(record, Inference):
            return False
        devices = self._device_report_rules(search_hours)
        is_doubtful = any(
            self._has_uncertain_match(known, search_hours)
            or devices.can_be_device_and_server_pair(known, record)
            for known in self._records_of_call(log_position)[-1:]
        )
        return is_doubtful and self._has_another_id(log_position, record, search_hours)

    def _has_span_of_scope(self, log_position: int, span_scope: str, search_hours: Iterable[int]) -> bool:
        return any(
            self.find_log_position(mark, search_hours) is not None
            for known in self._records_of_call(log_position)[-1:]
            for mark in scope_dedup_flags(known.id, span_scope, ANY_SCOPE)
        )

    def _has_uncertain_match(self, known_record: Inference, search_hours: Iterable[int]) -> bool:
        return self.find_log_position(derived_dedup_key(known_record.id, _GUESSED), search_hours) is not None

    def _has_id_with_prefix(
        self, known_record: Inference, id_prefix: str, search_hours: Iterable[int]
    ) -> bool:
        return (
            request_id_type_prefix(known_record) == id_prefix
            or self.find_log_position(derived_dedup_key(known_record.id, id_prefix), search_hours) is not None
        )

    def find_call_by_nested_report(
        self,
        record: Inference,
        identity: RecordIdentity,
        search_hours: Iterable[int],
        own_position: int | None = None,
    ) -> int | None:
        """
        Return the position of the call that the other of two nested reports (an SDK's, and its caller's)
        describes, or None. `store_dedup_keys_of_call` later stores the ids by which this report is found.
        `own_position`: position of the record that has this report.
        """
        nesting = identity.nesting
        if nesting is None or self._nested is record:
            return None
        self._nested = record
        nesting = limit_to_sender_key(nesting, record.sender_key)
        found = self._nested_report_search(search_hours).find_match(record, nesting, own_position)
        self._used_names.update(found.names)
        if found.place is not None and own_position is None:
            self._used_names.update(map(nested_pair_dedup_flag, self._records_of_call(found.place)[-1:]))
        return found.place

    def find_call_by_relayed_report(
        self,
        record: Inference,
        identity: RecordIdentity,
        search_hours: Iterable[int],
        own_position: int | None = None,
    ) -> int | None:
        """
        Return the position of the call that an assistant or its gateway, whichever did not send this report, has
        reported, or None. `store_dedup_keys_of_call` later stores the ids by which this report is found.
        `own_position`: position of the record that has this report.
        """
        relay = identity.relay
        if relay is not None and record.sender_key == DEVICE_KEYS:
            relay = without_keys_of_any_failure(relay)
        if relay is None or self._relayed is record:
            return None
        self._relayed = record
        reports = RelayedReportSearch(
            lambda name: self.find_log_position(name, search_hours),
            self._records_of_call,
            lambda log_position, report: self._has_another_id(log_position, report, search_hours),
        )
        found = reports.find_match(record, relay, own_position)
        self._used_names.update(found.names)
        if found.place is not None and own_position is None:
            self._mark_relay_key_as_used(found.place)
        return found.place

    def _is_relayed_pair(self, log_position: int, search_hours: Iterable[int]) -> bool:
        """Return whether the call has a report of an assistant and one of its gateway."""
        return any(
            self.find_log_position(relay_name(known), search_hours) is not None
            for known in self._records_of_call(log_position)
        )

    def _mark_relay_key_as_used(self, log_position: int) -> None:
        for known in self._records_of_call(log_position)[-1:]:
            self._used_names.update((relay_name(known), derived_dedup_key(known.id, _GUESSED)))

    @property
    def used_dedup_keys(self) -> Sequence[bytes]:
        return sorted(self._used_names)

    def find_open_or_merge_closed_record(
        self, record: Record, dedup_keys: Iterable[bytes]
    ) -> tuple[Record, int | None]:
        """
        Find an earlier record that has one of these ids and may contain only the end of this call. If it is
        open, return this record unchanged, and the earlier one's position (topic and number).

        If it is closed, return this record with the facts of the earlier one added, and None.
        """
        for name in dedup_keys:
            log_position = self._find_log_position_in_memory(name) or IN_A_RUN
            if log_position == IN_A_RUN:
                continue
            topic, number = duplicates.decode_log_position(log_position)
            if self.can_amend(topic, number):
                return record, log_position
            known = self.current_record(topic, number)
            if isinstance(record, Inference) and isinstance(known, Inference):
                record = self._with_names_of_known_call(record, log_position)
                # the report states only a cost, which is final
                is_final = all(getattr(known, name) is None for name in TOKENS)
                if is_final and known.sender_key == record.sender_key:
                    record = _with_later_cost(record, known)
                if known.sender_key == DEVICE_KEYS != record.sender_key:
                    known = without_server_decided_fields(known)
                record = replace_fields(record, missing_fields(record, known))
        return record, None

    def add_report_to_known_call(
        self, record: Record, identity: RecordIdentity, log_position: int, search_hours: Iterable[int]
    ) -> int:
        """
        Add a report to the record at `log_position`, and compare the two. Return the position of the record that counts
        the call.
        """
        self._terms.duplicates += 1
        self._count_accounting_term(accounting.DUPLICATES, record)
        if not isinstance(record, Inference):
            return log_position
        if log_position == IN_A_RUN:
            self._count_accounting_term(accounting.UNCOMPARED, record)
            return log_position
        if identity.also or identity.links or identity.nesting or identity.relay:
            log_position = self._join_matches(record, identity, log_position, search_hours)
        record = self._with_names_of_known_call(record, log_position)
        if self._read_record(log_position) == record:  # most frequent: the sender repeats a request
            return log_position
        known, corrections_so_far = self._current_record(log_position)
        if isinstance(known, Inference) and known.counted_by is not None:
            log_position = self._end_of_counted_by_chain(log_position)
            record = self._with_names_of_known_call(record, log_position)
            known, corrections_so_far = self._current_record(log_position)
        if known is None:
            self._count_accounting_term(accounting.UNCOMPARED, record)
        if not isinstance(known, Inference):
            return log_position
        topic, number = duplicates.decode_log_position(log_position)
        rank = cost_reliability(record, identity)
        replaces = False
        if rank == CostReliability.GUESS and has_cost(known):
            record = _without_cost(record, known)
        elif rank == CostReliability.FINAL or (rank and has_cost(known)):
            replaces = self._cost_rules(search_hours).can_replace_cost(known, rank, record.sender_key)
        later = classify_later_report(record)
        devices = self._device_report_rules_if_any(known, later, search_hours)
        fields = self._find_added_fields_and_count_conflict(
            topic,
            known,
            later,
            devices,
            is_open=self.can_amend(topic, number),
            replaces_cost=replaces,
            is_model_replaceable=self._is_model_replaceable(
                known, record, search_hours, is_later_of_assistant=identity.is_of_assistant
            ),
        )
        names = () if devices is None else tuple(devices.dedup_flags_to_store(known, later, fields))
        if _is_model_replaced(known, fields):
            names += (served_model_dedup_flag(known.id),)
        if fields and self.can_amend(topic, number):
            self.amend_record(topic, number, known, fields)
            self._terms.amended += 1
            self._count_accounting_term(accounting.AMENDED, record)
        elif fields and not self._store_late_report_if_changing(
            number, known, corrections_so_far, record, fields, replaces_cost=replaces
        ):
            self._terms.amended_late += 1
            self._count_accounting_term(accounting.AMENDED_LATE, record)
            self._store_further_dedup_keys(names, log_position, known, search_hours)
            return log_position
        if names:
            self._store_further_dedup_keys(names, log_position, known, search_hours)
        if rank and (replaces or not {"cost", "charges"}.isdisjoint(fields)):
            names = self._cost_rules(search_hours).dedup_flags_of_later_cost(
                known, rank, (record.sender_key,)
            )
            self._store_further_dedup_keys(names, log_position, known, search_hours)
        return log_position

    def _with_names_of_known_call(self, report: Inference, log_position: int) -> Inference:
        """
        Return the report without the name of a person who was erased after the known call. The report itself may
        state a later start, or none.
        """
        known = self._read_record(log_position)
        if self._renaming is None or known is None:
            return report
        renamed = replace_fields(report, {})  # a copy, because the caller may submit the report again
        call = self._time_of_call(known, *duplicates.decode_log_position(log_position))
        return renamed if rename_person(renamed, self._renaming, call) else report

    def _time_of_call(self, record: Record, topic: str, record_number: int) -> CallTime:
        is_stored = record_number < self._plan.first.get(topic, 1)
        return time_of_stored_call(record, topic, record_number) if is_stored else time_of_new_call(record)

    def _cost_rules(self, search_hours: Iterable[int]) -> CostRules:
        return CostRules(lambda name: self.find_log_position(name, search_hours) is not None)

    def _device_report_rules(self, search_hours: Iterable[int]) -> DeviceReportRules:
        return DeviceReportRules(lambda name: self.find_log_position(name, search_hours) is not None)

    def _device_report_rules_if_any(
        self, known_record: Inference, later_report: LaterCallReport, search_hours: Iterable[int]
    ) -> DeviceReportRules | None:
        devices = self._device_report_rules(search_hours)
        return (
            devices
            if later_report.is_of_device or later_report.claims or devices.has_device_report(known_record)
            else None
        )

    def _count_accounting_term(self, accounting_term: str, record: Record) -> None:
        self._plan.observed[self._terms.topic, accounting_term, record.source] += 1

    def _is_position_in_memory(self, known_record: Inference) -> bool:
        """
        Return whether memory has the record's position (topic and number). Then it also has those of the
        record's corrections, because they are newer.
        """
        return bool(self._find_log_position_in_memory(known_record.id))

    def _find_log_position_in_memory(self, dedup_key: bytes) -> int | None:
        id = self._index.short_id(dedup_key)
        return self._plan.ids.get(id) or self._index.find_log_position_in_memory(id)

    def _current_record(self, log_position: int) -> tuple[Record | None, int]:
        known = self._read_record(log_position)
        is_closed = log_position != IN_A_RUN and not self.can_amend(
            *duplicates.decode_log_position(log_position)
        )
        if is_closed and isinstance(known, Inference) and self._is_position_in_memory(known):
            # imported here because most processes never handle a correction
            from spool.log.planning.corrections import state_after_corrections_and_their_count

            return state_after_corrections_and_their_count(known, self._find_record_by_dedup_key)
        return known, 0

    def _find_record_by_dedup_key(self, dedup_key: bytes) -> Record | None:
        return self._read_record(self._find_log_position_in_memory(dedup_key) or IN_A_RUN)

    def _store_late_report_if_changing(
        self,
        number: int,
        known_record: Inference,
        corrections_so_far: int,
        later_record: Inference,
        fields: dict[str, Any],
        *,
        replaces_cost: bool,
    ) -> bool:
        """
        Store a late report of the record with a number as a correction. Return False if it would change nothing,
        so that the report is a duplicate.
        """
        if not self._is_position_in_memory(known_record):
            return False
        from spool.log.planning.corrections import late_report_correction

        now_ns = int(self._plan.at * NS)
        correction_record = late_report_correction(
            known_record, corrections_so_far, later_record, fields, replaces_cost=replaces_cost, now_ns=now_ns
        )
        if correction_record is None or self._is_known_correction(correction_record):
            return False
        self._store_correction(correction_record, number)
        self._terms.duplicates -= 1
        self._plan.observed[self._terms.topic, accounting.DUPLICATES, later_record.source] -= 1
        return True

    def add_values_from_spans_above(self, log_position: int, values_above: ValuesFromSpansAbove) -> None:
        if log_position == IN_A_RUN or not (values_above.runs or values_above.given != NOTHING_GIVEN):
            return
        log_position = self._end_of_counted_by_chain(log_position)
        known, corrections_so_far = self._current_record(log_position)
        if not isinstance(known, Inference) or known.shadow:
            return
        fields: dict[str, Any] = values_to_add(known, values_above.given, is_in_run=values_above.is_in_run)
        fields |= run_fields_to_add((known.run, known.parent_run, known.ancestors), values_above.runs)
        if not fields:
            return
        topic, number = duplicates.decode_log_position(log_position)
        if self._is_unread(topic, number):
            self.amend_record(topic, number, known, fields)
        elif self._is_position_in_memory(known):
            from spool.log.planning.corrections import correction_with_runs_and_values

            correction = correction_with_runs_and_values(
                known, corrections_so_far, fields, now_ns=int(self._plan.at * NS)
            )
            if correction is None or self._is_known_correction(correction):
                return
            self._store_correction(correction, number)
            self._terms.split += 1
        if "run" in fields and number < self._terms.first:
            self._count_accounting_term(accounting.PLACED, known)

    def merge_sibling_reports(
        self, record: Inference, siblings: Siblings, search_hours: Iterable[int]
    ) -> None:
        """Join a new call with a call of another scope below the same span, if the two are one call."""
        reports = {
            log_position: known
            for log_position in (*siblings.besides, *siblings.others)
            if isinstance(known := self._read_record(log_position), Inference)
            and _has_same_outcome(record, known)
        }
        if len(reports) > MOST_BESIDE:
            return
        besides, others = [
            [log_position for log_position in side if log_position in reports] for side in siblings
        ]
        counting = {log_position: self._end_of_counted_by_chain(log_position) for log_position in reports}
        by_record = {counting[log_position]: log_position for log_position in besides}
        pairs = {other: by_record[counting[other]] for other in others if counting[other] in by_record}
        fitting = {
            beside: [other for other in others if can_be_one_call(reports[other], reports[beside])]
            for beside in besides
        }
        all_pairs = pair_reports(fitting, pairs)
        new_besides = set(all_pairs.values()) - set(pairs.values())
        for other, beside in zip(sorted(all_pairs.keys() - pairs.keys()), sorted(new_besides), strict=True):
            first, later = sorted((counting[other], counting[beside]))
            are_two_records = first != later and self._is_counted_call(first) and self._is_counted_call(later)
            if are_two_records:
                self._merge_records_if_possible(first, later, record, search_hours)

    def _is_known_correction(self, correction: Correction) -> bool:
        # search only the id, because a stored correction may be unreadable, and a second one would count twice
        _, near = id_storage_and_search_hours(correction, int(self._plan.at * NS))
        return self.find_log_position(correction.id, near) is not None

    def _store_correction(self, correction: Correction, number: int) -> None:
        """Store the correction of the record with a number, by which readers find what it replaces."""
        hour, _ = id_storage_and_search_hours(correction, int(self._plan.at * NS))
        topic = self._terms.topic
        records = self._plan.records[topic]
        log_position = duplicates.encode_log_position(topic, self._plan.first[topic] + len(records))
        correction.corrects_number = number
        if self._renaming is not None:
            rename_person(correction, self._renaming, self._time_of_call(correction, topic, number))
        self._plan.ids[self._index.short_id(correction.id)] = log_position
        self._plan.hours.append(hour)
        records.append(correction)
        self._plan.observed[topic, accounting.CORRECTED, correction.source] += 1

    def store_dedup_keys_of_call(
        self,
        record: Record,
        identity: RecordIdentity,
        log_position: int,
        hour: int,
        search_hours: Iterable[int],
    ) -> None:
        """
        Store the dedup id and further ids of a call. An id that is already stored belongs to another
        report and does not change.
        """
        topic, number = duplicates.decode_log_position(log_position)
        # the names of a new record were looked up before
        known_in = search_hours if number < self._plan.first.get(topic, 1) else ()
        form, known = (
            request_id_type_prefix(record) if isinstance(record, Inference) else None,
            self._read_record(log_position),
        )
        if form is not None and isinstance(known, Inference) and form != request_id_type_prefix(known):
            self._used_names.add(derived_dedup_key(known.id, form))
        if identity.scope is not None and isinstance(known, Inference):
            self._used_names.update(scope_dedup_flags(known.id, "", identity.scope))
        if known is record and isinstance(record, Inference):
            self._used_names.update(dedup_flags_of_first_report(record, identity))
        names = (identity.id, *identity.keys_to_remember, *self.used_dedup_keys)
        noted = [name for name in names if self.store_dedup_key_if_new(name, log_position, hour, known_in)]
        self._used_names.clear()
        if noted and known is not record:
            self._add_dedup_keys_to_record(topic, number, noted)
        if (
            known is record
            and isinstance(record, Inference)
            and record.status == "error"
            and identity.relay is not None
        ):
            # it is compared with near reports only now, when its record has its times
            self._relayed = None
            relay = identity._replace(also=(), links=(), nesting=None)
            counting = self._join_matches(record, relay, log_position, search_hours)
            if counting != log_position:
                self.store_dedup_keys_of_call(record, identity, counting, hour, search_hours)
            self._used_names.clear()

    def _store_further_dedup_keys(
        self,
        dedup_keys: Iterable[bytes],
        log_position: int,
        known_record: Inference,
        search_hours: Iterable[int],
    ) -> None:
        hour, _ = id_storage_and_search_hours(known_record, int(self._plan.at * NS))
        noted = [
            name for name in dedup_keys if self.store_dedup_key_if_new(name, log_position, hour, search_hours)
        ]
        if noted:
            self._add_dedup_keys_to_record(*duplicates.decode_log_position(log_position), noted)

    def _add_dedup_keys_to_record(self, topic: str, record_number: int, dedup_keys: Iterable[bytes]) -> None:
        # a start reads the names from open records
        known = self.current_record(topic, record_number) if self.can_amend(topic, record_number) else None
        if isinstance(known, Inference):
            also = (known.also or b"") + b"".join(dedup_keys)
            self.amend_record(topic, record_number, known, {"also": also[: 16 * MOST_NAMES]})

    def store_dedup_key_if_new(
        self, dedup_key: bytes, log_position: int, hour: int, search_hours: Iterable[int] = ()
    ) -> bool:
        """
        Store a further id (name) of the call at `log_position`. Return False if the id is known already, in memory
        or in the sorted lists of the hours in `search_hours`.
        """
        index = self._index
        plan = self._plan
        id = index.short_id(dedup_key)
        if (
            id in plan.ids
            or index.is_among_newest_ids(id)
            or (search_hours and index.find_log_position((id,), search_hours, plan.at) is not None)
        ):
            return False
        plan.ids[id] = log_position
        plan.hours.append(hour)
        topic, number = duplicates.decode_log_position(log_position)
        if number < plan.first.get(topic, 1):
            plan.apart.append((id, log_position, hour))
        return True

    def can_amend(self, topic: str, record_number: int) -> bool:
        return self._amends and topic == self._terms.topic and record_number >= self._open_from

    def current_record(self, topic: str, record_number: int) -> Record | None:
        begin = self._plan.first.get(topic, 1)
        if record_number >= begin:
            return self._plan.records[topic][record_number - begin]
        known = self._reader.read_record(topic, record_number)
        fields = self._plan.amendments.get((topic, record_number))
        return replace_fields(known, fields) if fields and isinstance(known, Inference) else known

    def _read_record(self, log_position: int) -> Record | None:
        return (
            None
            if log_position == IN_A_RUN
            else self.current_record(*duplicates.decode_log_position(log_position))
        )

    def amend_record(
        self, topic: str, record_number: int, known_record: Inference, fields: dict[str, Any]
    ) -> None:
        begin = self._plan.first.get(topic, 1)
        if self._renaming is not None:
            call = self._time_of_call(known_record, topic, record_number)
            rename_person_in_fields(fields, self._renaming, call)
        # change a copy of a record that is not written yet, because the caller may submit its object again
        if record_number >= begin:
            self._plan.records[topic][record_number - begin] = replace_fields(known_record, fields)
        else:
            self._plan.amendments.setdefault((topic, record_number), {}).update(fields)

    # -- two records of one call -----------------------------------------------------------------------------

    def _end_of_counted_by_chain(self, log_position: int) -> int:
        *_, counting = self._counted_by_chain(log_position)
        return counting

    def _counted_by_chain(self, log_position: int) -> Iterator[int]:
        yield log_position
        while (
            isinstance(known := self._current_record(log_position)[0], Inference)
            and known.counted_by is not None
        ):
            earlier = self._find_log_position_in_memory(known.counted_by) or IN_A_RUN
            if earlier >= log_position:  # the earlier record is not in this log
                break
            log_position = earlier
            yield log_position

    def _records_of_call(self, log_position: int) -> list[Inference]:
        records = []
        for each in self._counted_by_chain(log_position):
            known, (current, _) = self._read_record(each), self._current_record(each)
            if isinstance(known, Inference) and isinstance(current, Inference):
                records.append(current if current is known else replace_fields(current, {"also": known.also}))
        return records

    def _join_matches(
        self, record: Inference, identity: RecordIdentity, log_position: int, search_hours: Iterable[int]
    ) -> int:
        """
        Merge the recorded calls that one report matches. Return the position of the call that still counts,
        or `log_position` if nothing is merged.
        """
        if record.shadow:
            return log_position
        is_of_log = any(is_log_to_span_dedup_key(other_name) for _, other_name in identity.links)
        links = self._unambiguous_links(identity.links, search_hours)
        pairs = list(self._linked_positions_and_pair_keys(record, identity.nesting, links, search_hours))
        nested = self.find_call_by_nested_report(record, identity, search_hours, log_position)
        relayed = self.find_call_by_relayed_report(record, identity, search_hours, log_position)
        if relayed is not None and self._end_of_counted_by_chain(relayed) == self._end_of_counted_by_chain(
            log_position
        ):
            self._mark_relay_key_as_used(log_position)
            relayed = None
        named = set(self._positions_of_identity_keys(identity, search_hours))
        if identity.scope is not None:
            named = {
                each for each in named if not self._has_span_of_scope(each, identity.scope, search_hours)
            }
        others = {*named, *[position for position, _ in pairs]} - {log_position}
        if any(self._is_relayed_pair(each, search_hours) for each in others):
            relayed = None
        others |= {each for each in (nested, relayed) if each is not None}
        if not others:
            return log_position
        log_position = self._end_of_counted_by_chain(log_position)
        named = {log_position, *map(self._end_of_counted_by_chain, named)}
        fitting = {log_position, *map(self._end_of_counted_by_chain, others)}
        calls = sorted(candidate for candidate in fitting if self._is_counted_call(candidate))
        # one of the records is too old to be read, so both records stay counted
        if IN_A_RUN in fitting and calls:
            self._count_failed_merge(record)
        if len(calls) < 2:
            return log_position
        first = calls[0]
        joined = {first}
        is_guess = relayed is not None or any(pair_names for _, pair_names in pairs)
        for later in calls[1:]:
            # several spans may share the short id that a log record states
            if is_of_log and all(self._has_span_of_scope(each, "", search_hours) for each in (first, later)):
                continue
            # an assistant's report may describe several attempts, each of which the gateway reports
            are_two_attempts = not {first, later} <= named and all(
                self._is_relayed_pair(each, search_hours) for each in (first, later)
            )
            if (
                not are_two_attempts
                and not self._are_two_calls(first, later, record, search_hours, is_guess=is_guess)
                and self._merge_records_if_possible(first, later, record, search_hours)
            ):
                joined.add(later)
            else:
                self._count_failed_merge(record)
        if log_position not in joined:
            return log_position
        for _, pair_names in pairs:
            self._mark_pair_keys_as_used(pair_names, first)
        if nested is not None:
            self._used_names.update(map(nested_pair_dedup_flag, self._records_of_call(first)[-1:]))
        if relayed is not None:
            self._mark_relay_key_as_used(first)
        return first

    def _nested_report_search(self, search_hours: Iterable[int]) -> NestedReportSearch:
        return NestedReportSearch(
            lambda name: self.find_log_position(name, search_hours), self._records_of_call
        )

    def _count_failed_merge(self, record: Record) -> None:
        self._terms.bridged_late += 1
        self._count_accounting_term(accounting.BRIDGED_LATE, record)

    def _unambiguous_links(
        self, links: Sequence[tuple[bytes, bytes]], search_hours: Iterable[int]
    ) -> list[tuple[bytes, bytes]]:
        fitting: dict[bytes, set[int]] = {own: set() for own, _ in links}
        for own, other_name in links:
            if (log_position := self.find_log_position(other_name, search_hours)) is not None:
                fitting[own].add(self._end_of_counted_by_chain(log_position))
        return [link for link in links if len(fitting[link[0]]) < 2]

    def _positions_of_identity_keys(
        self, identity: RecordIdentity, search_hours: Iterable[int]
    ) -> Iterator[int]:
        for name in (identity.id, *identity.also):
            log_position = self.find_log_position(name, search_hours)
            if log_position is not None:
                yield log_position

    def _linked_positions_and_pair_keys(
        self,
        record: Inference,
        nested_report: NestedReport | None,
        links: Sequence[tuple[bytes, bytes]],
        search_hours: Iterable[int],
    ) -> Iterator[tuple[int, Sequence[bytes]]]:
        """
        Yield the positions of calls that the other side (such as the caller for a server's report) reported,
        for links that no report has used.

        Each own id of a link is used once. If an own id may match several calls, two ids are also yielded
        that mark it and the other side's id as used.
        """
        sides = set()
        for own, other_name in links:
            if own in sides or self.find_log_position(own, search_hours) is not None:
                continue
            log_position = self.find_log_position(other_name, search_hours)
            if (
                log_position is not None
                and is_log_to_span_dedup_key(own)
                and self._has_span_of_scope(log_position, "", search_hours)
            ):
                continue
            if log_position is None or (
                nested_report is not None
                and self._nested_report_search(search_hours).has_complete_pair_without(
                    log_position, nested_report
                )
            ):
                continue
            pair_names = (
                [derived_dedup_key(name, "told") for name in (own, other_name)]
                if _has_several_links(own, links)
                else []
            )
            if pair_names and self._has_another_id(log_position, record, search_hours):
                continue
            if all(self.find_log_position(name, search_hours) is None for name in pair_names):
                sides.add(own)
                yield log_position, pair_names

    def _has_another_id(self, log_position: int, record: Inference, search_hours: Iterable[int]) -> bool:
        form = request_id_type_prefix(record)
        return form is not None and any(
            known.request_id != record.request_id and self._has_id_with_prefix(known, form, search_hours)
            for known in self._records_of_call(log_position)
        )

    def _are_two_calls(
        self,
        first_position: int,
        later_position: int,
        joining_report: Inference,
        search_hours: Iterable[int],
        *,
        is_guess: bool,
    ) -> bool:
        """
        Return whether two records that a report matches are different calls. There are two cases.

        - Both have ids of the same form, and a guess connects them or connected one of them with an earlier
          report: an id with a rounded time.
        - Their counts differ, and the report's sender key is neither record's: its holder could otherwise
          subtract every call of which it knows an id.

        If a device reports two calls of servers, both cases apply without the conditions on guess and key.
        """
        known, later_call = self._current_record(first_position)[0], self._current_record(later_position)[0]
        assert isinstance(known, Inference)
        assert isinstance(later_call, Inference)
        both = known, later_call
        is_claim = joining_report.sender_key == DEVICE_KEYS and not any(
            map(self._device_report_rules(search_hours).is_only_from_devices, both)
        )
        is_third = is_claim or joining_report.sender_key not in [each.sender_key for each in both]
        if is_third and are_of_two_calls(*both):
            return True
        if (
            not is_claim
            and not is_guess
            and not any(self._has_uncertain_match(each, search_hours) for each in both)
        ):
            return False
        forms = {
            form for each in (*both, joining_report) if (form := request_id_type_prefix(each)) is not None
        }
        return any(all(self._has_id_with_prefix(each, form, search_hours) for each in both) for form in forms)

    def _is_counted_call(self, log_position: int) -> bool:
        if log_position == IN_A_RUN:
            return False
        known = self._read_record(log_position)
        topic, _ = duplicates.decode_log_position(log_position)
        return topic == self._terms.topic and isinstance(known, Inference) and not known.shadow

    def _merge_records_if_possible(
        self, first_position: int, later_position: int, joining_report: Inference, search_hours: Iterable[int]
    ) -> bool:
        """
        Turn the later record into a duplicate stored for reference (shadow) or, if it is closed, subtract it
        by a correction. The first record gets the facts that it lacks, by a correction if it is closed.

        Return False and change nothing if a closed record cannot be corrected.
        """
        topic, number = duplicates.decode_log_position(first_position)
        _, later_number = duplicates.decode_log_position(later_position)
        known, corrections_so_far = self._current_record(first_position)
        later_call, later_corrections = self._current_record(later_position)
        assert isinstance(known, Inference)
        assert isinstance(later_call, Inference)
        is_open, is_later_open = (self._is_unread(topic, each) for each in (number, later_number))
        marks = (
            scope_dedup_flags(known.id, "", ANY_SCOPE)
            if self._has_span_of_scope(later_position, "", search_hours)
            else ()
        )
        if self._is_relayed_pair(later_position, search_hours):
            marks += (relay_name(known),)
        keys = (known.sender_key, later_call.sender_key, joining_report.sender_key)
        costs = self._cost_rules(search_hours)
        takes_cost, cost_names = costs.decide_if_later_cost_counts(known, later_call, keys)
        said = later_call
        if has_cost(known) and costs.is_cost_guessed(later_call):
            said = _without_cost(later_call, known)
        devices = self._device_report_rules(search_hours)
        later_report = LaterCallReport(
            said,
            devices.is_only_from_devices(later_call),
            devices.owner_fields_stated_only_by_device(later_call),
        )
        heard = self._device_report_rules_if_any(known, later_report, search_hours)
        is_later_asked = costs.is_model_only_asked_for(later_call)
        compared = partial(
            self._find_added_fields_and_count_conflict,
            topic,
            known,
            later_report,
            heard,
            is_open=is_open,
            replaces_cost=takes_cost,
            is_model_replaceable=self._is_model_replaceable(
                known, later_call, search_hours, is_later_of_assistant=is_later_asked
            ),
        )
        is_model_served = costs.is_model_only_asked_for(known) and not is_later_asked
        model_names = (served_model_dedup_flag(known.id),) if is_model_served else ()
        filled = {name: None for name in later_report.claims if getattr(known, name) is None}
        device_names = [] if heard is None else list(heard.dedup_flags_to_store(known, later_report, filled))
        if is_open:
            if fields := compared():
                self.amend_record(topic, number, known, fields)
        elif not self._store_merge_corrections_if_possible(
            (number, known, corrections_so_far),
            (later_number, later_call, later_corrections),
            joining_report,
            compared,
            is_later_open=is_later_open,
        ):
            return False
        self._store_further_dedup_keys(
            (*device_names, *cost_names, *model_names, *marks), first_position, known, search_hours
        )
        if is_later_open:
            self.amend_record(topic, later_number, later_call, {"shadow": True, "counted_by": known.id})
        self._terms.bridged += 1
        self._count_accounting_term(accounting.BRIDGED, joining_report)
        return True

    def _is_unread(self, topic: str, record_number: int) -> bool:
        return self.can_amend(topic, record_number) or record_number >= self._terms.first

    def _store_merge_corrections_if_possible(
        self,
        first_record: tuple[int, Inference, int],
        later_record: tuple[int, Inference, int],
        joining_report: Inference,
        find_added_fields: Callable[[], dict[str, Any]],
        *,
        is_later_open: bool,
    ) -> bool:
        """
        Store corrections that make one call of two records: the closed first record gets the facts that it
        lacks, and the later record is subtracted if it is closed as well. Both come with their number and
        how many corrections they have. Return False and store nothing if one correction is impossible.
        """
        from spool.log.planning.corrections import MOST, correction_subtracting_duplicate, merge_correction

        number, known, count = first_record
        later_number, later_call, later_count = later_record
        if max(count, later_count) >= MOST or not self._is_position_in_memory(known):
            return False
        if not (is_later_open or self._is_position_in_memory(later_call)):
            return False
        now_ns = int(self._plan.at * NS)
        fields = find_added_fields()
        found = [(merge_correction(known, count, later_call, fields, now_ns=now_ns), number)]
        if not is_later_open:
            subtracting = correction_subtracting_duplicate(
                later_call, later_count, known.id, joining_report, now_ns=now_ns
            )
            found.append((subtracting, later_number))
        corrections = [(each, of) for each, of in found if each is not None]
        if any(self._is_known_correction(each) for each, _ in corrections):
            return False
        for each, of in corrections:
            self._store_correction(each, of)
        # the report is counted elsewhere, as a duplicate or as a record, so its corrections are additional
        self._terms.split += len(corrections)
        return True

    def _find_added_fields_and_count_conflict(
        self,
        topic: str,
        known_record: Inference,
        later_report: LaterCallReport,
        devices: DeviceReportRules | None,
        *,
        is_open: bool,
        replaces_cost: bool,
        is_model_replaceable: bool | None,
    ) -> dict[str, Any]:
        """
        Return the fields that a report adds to a record. Count a conflict if the two disagree.

        `is_model_replaceable`: whether the report's model replaces that of the record (True), the record's
        counts (False), or both are of the same kind (None).
        """
        record = later_report.report
        effective = _with_later_cost(known_record, record) if replaces_cost else known_record
        is_costlier = effective is not known_record
        if has_disagreeing_counts_or_cost(effective, record):
            self._terms.conflict += 1
            self._plan.conflicts.add(topic, known_record, record)
            self._plan.observed[topic, accounting.CONFLICT, f"{known_record.source}/{record.source}"] += 1
        if devices is not None:
            if later_report.is_server_measurement and devices.is_only_from_devices(known_record):
                return self._changes_by_server_report(known_record, record, is_open=is_open)
            if (
                later_report.is_of_device
                and has_measurement(known_record)
                and not devices.is_only_from_devices(known_record)
            ):
                record = without_server_decided_fields(record)
            effective = devices.without_owner_replaced_by_server(effective, later_report)
        fields: dict[str, Any] = {}
        asked = effective
        if is_model_replaceable:
            models = served_models(asked, record)
            tags = with_tag_of_asked_model(asked.tags, asked, models["request_model"])
            fields = {**models, "tags": tags}
        elif is_model_replaceable is not None:
            models = served_models(record, effective)
            tags = with_tag_of_asked_model(record.tags, record, models["request_model"])
            record = replace_fields(record, {**models, "tags": tags})
        fields = {name: value for name, value in fields.items() if value != getattr(asked, name)}
        fields |= missing_fields(replace_fields(asked, fields), record)
        if fields:
            self._estimate_cost_again(asked, fields)
        if is_costlier:
            fields |= {"cost": record.cost, "cost_source": "reported"}
            if known_record.charges or record.charges:
                fields["charges"] = record.charges
        return fields

    def _is_model_replaceable(
        self, known: Inference, later: Inference, search_hours: Iterable[int], *, is_later_of_assistant: bool
    ) -> bool | None:
        """Return whether the later report's model counts, or None if both models are of the same kind."""
        if all(getattr(later, name) in (None, getattr(known, name)) for name in MODELS):
            return None
        is_asked = self._cost_rules(search_hours).is_model_only_asked_for(known)
        return None if is_asked == is_later_of_assistant else is_asked

    def _changes_by_server_report(
        self, known_record: Inference, report: Inference, *, is_open: bool
    ) -> dict[str, Any]:
        kept = without_device_measurements(known_record)
        fields = missing_fields(report, kept)
        if fields:
            self._estimate_cost_again(report, fields)
        return changed_fields(known_record, replace_fields(report, fields), is_open=is_open)

    def _estimate_cost_again(self, known_record: Inference, fields: dict[str, Any]) -> None:
        """
        Compute the estimate again, because each report may have stated only a part of what decides the price.
        An estimate by another Tollhouse does not change.
        """
        decides = not PRICED_BY.isdisjoint(fields) or is_processing_mode_changed(known_record, fields)
        if self._price is None or not decides:
            return
        as_it_was = replace_fields(known_record, {})
        as_it_is = replace_fields(known_record, fields)
        self._price(as_it_was)
        if (as_it_was.estimated_cost, as_it_was.price_book) == (
            known_record.estimated_cost,
            known_record.price_book,
        ):
            self._price(as_it_is)
            fields |= {
                name: getattr(as_it_is, name) for name in ("estimated_cost", "price_book", "cost_source")
            }


def _is_model_replaced(known_record: Inference, fields: Mapping[str, Any]) -> bool:
    return any(name in fields and getattr(known_record, name) is not None for name in MODELS)


def _has_same_outcome(one: Inference, other: Inference) -> bool:
    return one.status == other.status and (one.output_tokens or 0) == (other.output_tokens or 0)


def _with_later_cost(known_record: Inference, later_record: Inference) -> Inference:
    if not (has_cost(known_record) and has_cost(later_record)):
        return known_record
    if known_record.charges == later_record.charges and _cost_amount(known_record) == _cost_amount(
        later_record
    ):
        return known_record
    cost = {"cost": later_record.cost, "cost_source": "reported", "charges": later_record.charges}
    return replace_fields(known_record, cost)


def _without_cost(report: Inference, known_record: Inference) -> Inference:
    return replace_fields(report, {"cost": None, "charges": {}, "cost_source": known_record.cost_source})


def _cost_amount(record: Inference) -> Decimal | None:
    return None if record.cost is None else Decimal(record.cost)


def _has_several_links(own: bytes, links: Iterable[tuple[bytes, bytes]]) -> bool:
    return sum(name == own for name, _ in links) > 1
