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

from spool.erasure import NEVER, rename_person_in_fields
from spool.identity import (
    ANY_SCOPE,
    NestedReport,
    RecordIdentity,
    derived_id,
    is_span_side_name,
    limit_to_sender,
    long_id_prefix,
    span_marks,
)
from spool.log import books, duplicates
from spool.log.amendments import (
    PRICED_BY,
    TOKENS,
    are_of_two_calls,
    has_disagreement,
    is_processing_mode_changed,
    missing_fields,
    replace_fields,
)
from spool.log.books import SubmissionTerms
from spool.log.duplicates import IN_A_RUN, DuplicateIndex, filing_hours
from spool.log.pending_spans import NOTHING_GIVEN, CallSurroundings, Siblings, runs_to_add, values_to_add
from spool.log.planning.besides import MOST_BESIDE, can_be_one_call, pair_reports
from spool.log.planning.costs import (
    CostRank,
    KnownCosts,
    cost_rank,
    first_report_names,
    has_cost,
)
from spool.log.planning.device_reports import (
    DeviceReports,
    LaterReport,
    arriving_report,
    changed_fields,
    device_additions,
    has_measurement,
    kept_after_server_report,
)
from spool.log.planning.nested_reports import NestedReports, pair_name
from spool.log.planning.plan import CommitPlan, PlanReader
from spool.log.planning.relayed_reports import RelayedReports
from spool.log.planning.relayed_reports import pair_name as relay_name
from spool.log.values import Submission
from spool.record import DEVICE_KEYS, NS, Correction, Inference, Record

_GUESSED = "guessed"
MOST_NAMES = 64  # limit of names stored with one record


class KnownCalls:
    """
    The reports of one submission, compared with known calls. `terms` counts the results.

    Without `amends`, only records of this submission can still change; all others are closed. A late report
    becomes a correction if it changes a cost or a count.
    """

    def __init__(
        self,
        index: DuplicateIndex,
        plan: CommitPlan,
        reader: PlanReader,
        closed_below: Mapping[str, int],
        submission: Submission,
        terms: SubmissionTerms,
        *,
        amends: bool,
    ) -> None:
        self._index = index
        self._plan = plan
        self._reader = reader
        self._price = submission.price
        self._renaming = submission.renaming
        self._terms = terms
        self._amends = amends
        self._open_from = closed_below.get(terms.topic, 1)
        # names that the present report used up; no later report can match them
        self._used_names: set[bytes] = set()
        self._nested: Record | None = None  # the record that was last compared with nested reports
        self._relayed: Record | None = None  # the record that was last compared with relayed reports

    def find_place(self, name: bytes, hours: Iterable[int]) -> int | None:
        id = self._index.short_id(name)
        place = self._plan.ids.get(id)
        return self._index.find_place((id,), hours, self._plan.at) if place is None else place

    def find_other_side(self, record: Record, identity: RecordIdentity, hours: Iterable[int]) -> int | None:
        """
        Return the place of the call that the other side (such as its caller, for a server's report) has
        reported, found by the report's links. Return None if there is none, or if this side has already
        reported the call.
        """
        self._used_names.clear()
        if isinstance(record, Inference):
            for place, pair_names in self._matching_sides(record, identity.nesting, identity.links, hours):
                self._mark_pair_names_used(pair_names, place)
                return place
        return None

    def _mark_pair_names_used(self, pair_names: Sequence[bytes], place: int) -> None:
        if pair_names:
            self._used_names.update(pair_names)
            self._used_names.update(
                derived_id(known.id, _GUESSED) for known in self._call_records(place)[-1:]
            )

    def is_of_another_call(self, place: int, record: Record, scope: str | None, hours: Iterable[int]) -> bool:
        """
        Return whether the record may be another call than the one at `place`, although a dedup id connects
        them: the two have different response ids, and the connecting id has a rounded time, or it may be from
        a device while one of the two is a server's.

        Return True also if the report is a span with own ids, and the record has, or may have, a span of the
        same scope.
        """
        if scope is not None and (place == IN_A_RUN or self._has_span(place, scope, hours)):
            return True
        if place == IN_A_RUN or not isinstance(record, Inference):
            return False
        devices = self._device_reports(hours)
        is_doubtful = any(
            self._is_guessed(known, hours) or devices.is_doubtful(known, record)
            for known in self._call_records(place)[-1:]
        )
        return is_doubtful and self._has_another_id(place, record, hours)

    def _has_span(self, place: int, scope: str, hours: Iterable[int]) -> bool:
        return any(
            self.find_place(mark, hours) is not None
            for known in self._call_records(place)[-1:]
            for mark in span_marks(known.id, scope, ANY_SCOPE)
        )

    def _is_guessed(self, known_record: Inference, hours: Iterable[int]) -> bool:
        return self.find_place(derived_id(known_record.id, _GUESSED), hours) is not None

    def _has_form(self, known_record: Inference, form: str, hours: Iterable[int]) -> bool:
        return (
            long_id_prefix(known_record) == form
            or self.find_place(derived_id(known_record.id, form), hours) is not None
        )

    def find_nested(self, record: Inference, identity: RecordIdentity, hours: Iterable[int]) -> int | None:
        """
        Return the place of the call that the other of two nested reports (an SDK's, and its caller's)
        describes, or None. `file_names` later stores the ids by which this report is found.
        """
        place = self._find_nested(record, identity, hours)
        if place is not None:
            self._used_names.update(map(pair_name, self._call_records(place)[-1:]))
        return place

    def find_relayed(self, record: Inference, identity: RecordIdentity, hours: Iterable[int]) -> int | None:
        """
        Return the place of the call that an assistant or its gateway, whichever did not send this report, has
        reported, or None. `file_names` later stores the ids by which this report is found.
        """
        place = self._find_relayed(record, identity, hours)
        if place is not None:
            self._mark_relay_names_used(place)
        return place

    def _mark_relay_names_used(self, place: int) -> None:
        for known in self._call_records(place)[-1:]:
            self._used_names.update((relay_name(known), derived_id(known.id, _GUESSED)))

    @property
    def used_names(self) -> Sequence[bytes]:
        return sorted(self._used_names)

    def join_open_record(self, record: Record, names: Iterable[bytes]) -> tuple[Record, int | None]:
        """
        Find an earlier record that has one of these ids and may contain only the end of this call. If it is
        open, return this record unchanged, and the earlier one's place (topic and number).

        If it is closed, return this record with the facts of the earlier one added, and None.
        """
        for name in names:
            id = self._index.short_id(name)
            place = self._plan.ids.get(id, self._index.find_place_in_memory(id))
            if place is None or place == IN_A_RUN:
                continue
            topic, number = duplicates.decode_place(place)
            if self.can_amend(topic, number):
                return record, place
            known = self.current_record(topic, number)
            if isinstance(record, Inference) and isinstance(known, Inference):
                # the report states only a cost, which is final
                is_final = all(getattr(known, name) is None for name in TOKENS)
                if is_final and known.sender_key == record.sender_key:
                    record = _with_later_cost(record, known)
                if known.sender_key == DEVICE_KEYS != record.sender_key:
                    known = device_additions(known)
                record = replace_fields(record, missing_fields(record, known))
        return record, None

    def add_report(self, record: Record, identity: RecordIdentity, place: int, hours: Iterable[int]) -> int:
        """
        Add a report to the record at `place`, and compare the two. Return the place of the record that counts
        the call.
        """
        self._terms.duplicates += 1
        self._count_observation(books.DUPLICATES, record)
        if not isinstance(record, Inference):
            return place
        if place == IN_A_RUN:
            self._count_observation(books.UNCOMPARED, record)
            return place
        if identity.also or identity.links or identity.nesting or identity.relay:
            place = self._join_matches(record, identity, place, hours)
        if self._read_record(place) == record:  # most frequent: the sender repeats a request
            return place
        known, corrections_so_far = self._current_record(place)
        if isinstance(known, Inference) and known.counted_by is not None:
            place = self._counting_place(place)
            known, corrections_so_far = self._current_record(place)
        if known is None:
            self._count_observation(books.UNCOMPARED, record)
        if not isinstance(known, Inference):
            return place
        topic, number = duplicates.decode_place(place)
        rank = cost_rank(record, identity)
        replaces = False
        if rank == CostRank.GUESS and has_cost(known):
            record = _without_cost(record, known)
        elif rank == CostRank.FINAL or (rank and has_cost(known)):
            replaces = self._known_costs(hours).can_replace_cost(known, rank, record.sender_key)
        later = arriving_report(record)
        devices = self._device_reports_if_any(known, later, hours)
        fields = self._compare_report(
            topic, known, later, devices, is_open=self.can_amend(topic, number), replaces_cost=replaces
        )
        names = () if devices is None else tuple(devices.names_to_file(known, later, fields))
        if fields and self.can_amend(topic, number):
            self.amend_record(topic, number, known, fields)
            self._terms.amended += 1
            self._count_observation(books.AMENDED, record)
        elif fields and not self._store_late_report(
            known, corrections_so_far, record, fields, replaces_cost=replaces
        ):
            self._terms.amended_late += 1
            self._count_observation(books.AMENDED_LATE, record)
            self._file_later_names(names, place, known, hours)
            return place
        if names:
            self._file_later_names(names, place, known, hours)
        if rank and (replaces or not {"cost", "charges"}.isdisjoint(fields)):
            names = self._known_costs(hours).later_report_names(known, rank, (record.sender_key,))
            self._file_later_names(names, place, known, hours)
        return place

    def _known_costs(self, hours: Iterable[int]) -> KnownCosts:
        return KnownCosts(lambda name: self.find_place(name, hours) is not None)

    def _device_reports(self, hours: Iterable[int]) -> DeviceReports:
        return DeviceReports(lambda name: self.find_place(name, hours) is not None)

    def _device_reports_if_any(
        self, known_record: Inference, later_report: LaterReport, hours: Iterable[int]
    ) -> DeviceReports | None:
        devices = self._device_reports(hours)
        return (
            devices
            if later_report.is_of_device or later_report.claims or devices.has_device_report(known_record)
            else None
        )

    def _count_observation(self, term: str, record: Record) -> None:
        self._plan.observed[self._terms.topic, term, record.source] += 1

    def _is_place_in_memory(self, known_record: Inference) -> bool:
        """
        Return whether memory has the record's place (topic and number). Then it also has those of the
        record's corrections, because they are newer.
        """
        id = self._index.short_id(known_record.id)
        return bool(self._plan.ids.get(id) or self._index.find_place_in_memory(id))

    def _current_record(self, place: int) -> tuple[Record | None, int]:
        known = self._read_record(place)
        is_closed = place != IN_A_RUN and not self.can_amend(*duplicates.decode_place(place))
        if is_closed and isinstance(known, Inference) and self._is_place_in_memory(known):
            # imported here because most processes never handle a correction
            from spool.log.planning.corrections import newest_state_and_count

            return newest_state_and_count(known, self._find_record_by_name)
        return known, 0

    def _find_record_by_name(self, name: bytes) -> Record | None:
        id = self._index.short_id(name)
        place = self._plan.ids.get(id) or self._index.find_place_in_memory(id)
        return self._read_record(place) if place else None

    def _store_late_report(
        self,
        known_record: Inference,
        count: int,
        later_record: Inference,
        fields: dict[str, Any],
        *,
        replaces_cost: bool,
    ) -> bool:
        """
        Store a late report as a correction. Return False if it would change nothing, so that the report is a
        duplicate.
        """
        if not self._is_place_in_memory(known_record):
            return False
        from spool.log.planning.corrections import late_report_correction

        now_ns = int(self._plan.at * NS)
        correction_record = late_report_correction(
            known_record, count, later_record, fields, replaces_cost=replaces_cost, now_ns=now_ns
        )
        if correction_record is None or self._is_known_correction(correction_record):
            return False
        self._store_correction(correction_record)
        self._terms.duplicates -= 1
        self._plan.observed[self._terms.topic, books.DUPLICATES, later_record.source] -= 1
        return True

    def add_values_around(self, place: int, around: CallSurroundings) -> None:
        if place == IN_A_RUN or not (around.runs or around.given != NOTHING_GIVEN):
            return
        place = self._counting_place(place)
        known, corrections_so_far = self._current_record(place)
        if not isinstance(known, Inference) or known.shadow:
            return
        fields: dict[str, Any] = values_to_add(known, around.given)
        if self._renaming is not None:
            rename_person_in_fields(
                fields, self._renaming, NEVER if known.start_time is None else known.start_time
            )
        fields |= runs_to_add((known.run, known.parent_run, known.ancestors), around.runs)
        if not fields:
            return
        topic, number = duplicates.decode_place(place)
        if self._is_unread(topic, number):
            self.amend_record(topic, number, known, fields)
        elif self._is_place_in_memory(known):
            from spool.log.planning.corrections import placement_correction

            correction = placement_correction(
                known, corrections_so_far, fields, now_ns=int(self._plan.at * NS)
            )
            if correction is None or self._is_known_correction(correction):
                return
            self._store_correction(correction)
            self._terms.split += 1
        if "run" in fields and number < self._terms.first:
            self._count_observation(books.PLACED, known)

    def join_sibling(self, record: Inference, siblings: Siblings, hours: Iterable[int]) -> None:
        """Join a new call with a call of another scope below the same span, if the two are one call."""
        reports = {
            place: known
            for place in (*siblings.besides, *siblings.others)
            if isinstance(known := self._read_record(place), Inference) and _has_same_outcome(record, known)
        }
        if len(reports) > MOST_BESIDE:
            return
        besides, others = [[place for place in side if place in reports] for side in siblings]
        counting = {place: self._counting_place(place) for place in reports}
        by_record = {counting[place]: place for place in besides}
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
            if are_two_records and self._merge_records(first, later, record, hours):
                self._terms.bridged += 1
                self._count_observation(books.BRIDGED, record)

    def _is_known_correction(self, correction: Correction) -> bool:
        # search only the id, because a stored correction may be unreadable, and a second one would count twice
        _, near = filing_hours(correction, int(self._plan.at * NS))
        return self.find_place(correction.id, near) is not None

    def _store_correction(self, correction: Correction) -> None:
        hour, _ = filing_hours(correction, int(self._plan.at * NS))
        topic = self._terms.topic
        records = self._plan.records[topic]
        place = duplicates.encode_place(topic, self._plan.first[topic] + len(records))
        corrected = self._index.short_id(correction.corrects)
        if known_at := self._plan.ids.get(corrected) or self._index.find_place_in_memory(corrected):
            _, correction.corrects_number = duplicates.decode_place(known_at)
        self._plan.ids[self._index.short_id(correction.id)] = place
        self._plan.hours.append(hour)
        records.append(correction)
        self._plan.observed[topic, books.CORRECTED, correction.source] += 1

    def file_names(
        self, record: Record, identity: RecordIdentity, place: int, hour: int, hours: Iterable[int]
    ) -> None:
        """
        Store the dedup id and further ids (names) of a call. An id that is already stored belongs to another
        report and does not change.
        """
        topic, number = duplicates.decode_place(place)
        # the names of a new record were looked up before
        known_in = hours if number < self._plan.first.get(topic, 1) else ()
        form, known = (
            long_id_prefix(record) if isinstance(record, Inference) else None,
            self._read_record(place),
        )
        if form is not None and isinstance(known, Inference) and form != long_id_prefix(known):
            self._used_names.add(derived_id(known.id, form))
        if identity.scope is not None and isinstance(known, Inference):
            self._used_names.update(span_marks(known.id, "", identity.scope))
        if known is record and isinstance(record, Inference):
            self._used_names.update(first_report_names(record, cost_rank(record, identity)))
        names = (identity.id, *identity.remembered_names, *self.used_names)
        noted = [name for name in names if self.file_name(name, place, hour, known_in)]
        self._used_names.clear()
        if noted and known is not record:
            self._add_names(topic, number, noted)

    def _file_later_names(
        self, names: Iterable[bytes], place: int, known_record: Inference, hours: Iterable[int]
    ) -> None:
        hour, _ = filing_hours(known_record, int(self._plan.at * NS))
        noted = [name for name in names if self.file_name(name, place, hour, hours)]
        if noted:
            self._add_names(*duplicates.decode_place(place), noted)

    def _add_names(self, topic: str, number: int, names: Iterable[bytes]) -> None:
        # a start reads the names from open records
        known = self.current_record(topic, number) if self.can_amend(topic, number) else None
        if isinstance(known, Inference):
            also = (known.also or b"") + b"".join(names)
            self.amend_record(topic, number, known, {"also": also[: 16 * MOST_NAMES]})

    def file_name(self, name: bytes, place: int, hour: int, known_in: Iterable[int] = ()) -> bool:
        """
        Store a further id (name) of the call at `place`. Return False if the id is known already, in memory
        or in the sorted lists of the hours in `known_in`.
        """
        index = self._index
        plan = self._plan
        id = index.short_id(name)
        if id in plan.ids or index.is_among_newest(id):
            return False
        if known_in and index.find_place((id,), known_in, plan.at) is not None:
            return False
        plan.ids[id] = place
        plan.hours.append(hour)
        topic, number = duplicates.decode_place(place)
        if number < plan.first.get(topic, 1):
            plan.apart.append((id, place, hour))
        return True

    def can_amend(self, topic: str, number: int) -> bool:
        return self._amends and topic == self._terms.topic and number >= self._open_from

    def current_record(self, topic: str, number: int) -> Record | None:
        begin = self._plan.first.get(topic, 1)
        if number >= begin:
            return self._plan.records[topic][number - begin]
        known = self._reader.read_record(topic, number)
        fields = self._plan.amendments.get((topic, number))
        return replace_fields(known, fields) if fields and isinstance(known, Inference) else known

    def _read_record(self, place: int) -> Record | None:
        return None if place == IN_A_RUN else self.current_record(*duplicates.decode_place(place))

    def amend_record(self, topic: str, number: int, known_record: Inference, fields: dict[str, Any]) -> None:
        begin = self._plan.first.get(topic, 1)
        # the record is not written yet, and is copied because the caller may send its object again
        if number >= begin:
            self._plan.records[topic][number - begin] = replace_fields(known_record, fields)
        else:
            self._plan.amendments.setdefault((topic, number), {}).update(fields)

    # -- two records of one call -----------------------------------------------------------------------------

    def _counting_place(self, place: int) -> int:
        *_, counting = self._counting_places(place)
        return counting

    def _counting_places(self, place: int) -> Iterator[int]:
        yield place
        while isinstance(known := self._current_record(place)[0], Inference) and known.counted_by is not None:
            id = self._index.short_id(known.counted_by)
            earlier = self._plan.ids.get(id) or self._index.find_place_in_memory(id) or IN_A_RUN
            if earlier >= place:  # the earlier record is not in this log
                break
            place = earlier
            yield place

    def _call_records(self, place: int) -> list[Inference]:
        records = []
        for each in self._counting_places(place):
            known, (current, _) = self._read_record(each), self._current_record(each)
            if isinstance(known, Inference) and isinstance(current, Inference):
                records.append(current if current is known else replace_fields(current, {"also": known.also}))
        return records

    def _join_matches(
        self, record: Inference, identity: RecordIdentity, place: int, hours: Iterable[int]
    ) -> int:
        """
        Make one record of all that a report matches. Return the place of the record that still counts, or
        `place` if none are joined.
        """
        if record.shadow:
            return place
        is_of_log = any(is_span_side_name(other_name) for _, other_name in identity.links)
        links = self._unambiguous_links(identity.links, hours)
        pairs = list(self._matching_sides(record, identity.nesting, links, hours))
        nested = self._find_nested(record, identity, hours, place)
        relayed = self._find_relayed(record, identity, hours, place)
        if relayed is not None and self._counting_place(relayed) == self._counting_place(place):
            self._mark_relay_names_used(place)
            relayed = None
        named = set(self._named_places(identity, hours))
        if identity.scope is not None:
            named = {each for each in named if not self._has_span(each, identity.scope, hours)}
        others = {*named, *[place for place, _ in pairs]} - {place}
        others |= {each for each in (nested, relayed) if each is not None}
        if not others:
            return place
        place = self._counting_place(place)
        fitting = {place, *map(self._counting_place, others)}
        calls = sorted(candidate for candidate in fitting if self._is_counted_call(candidate))
        # one of the records is too old to be read, so both records stay counted
        if IN_A_RUN in fitting and calls:
            self._count_bridged_late(record)
        if len(calls) < 2:
            return place
        first = calls[0]
        joined = {first}
        is_guess = relayed is not None or any(pair_names for _, pair_names in pairs)
        for later in calls[1:]:
            # a short id in a log may be that of several spans
            if is_of_log and all(self._has_span(each, "", hours) for each in (first, later)):
                continue
            if not self._are_two_calls(
                first, later, record, hours, is_guess=is_guess
            ) and self._merge_records(first, later, record, hours):
                joined.add(later)
                self._terms.bridged += 1
                self._count_observation(books.BRIDGED, record)
            else:
                self._count_bridged_late(record)
        if place not in joined:
            return place
        for _, pair_names in pairs:
            self._mark_pair_names_used(pair_names, first)
        if nested is not None:
            self._used_names.update(map(pair_name, self._call_records(first)[-1:]))
        if relayed is not None:
            self._mark_relay_names_used(first)
        return first

    def _find_nested(
        self, record: Inference, identity: RecordIdentity, hours: Iterable[int], own: int | None = None
    ) -> int | None:
        nesting = identity.nesting
        if nesting is None or self._nested is record:
            return None
        self._nested = record
        nesting = limit_to_sender(nesting, record.sender_key)
        found = self._nested_reports(hours).find_match(record, nesting, own)
        self._used_names.update(found.names)
        return found.place

    def _find_relayed(
        self, record: Inference, identity: RecordIdentity, hours: Iterable[int], own: int | None = None
    ) -> int | None:
        relay = identity.relay
        if relay is None or self._relayed is record:
            return None
        self._relayed = record
        reports = RelayedReports(
            lambda name: self.find_place(name, hours),
            self._call_records,
            lambda place, report: self._has_another_id(place, report, hours),
        )
        found = reports.find_match(record, relay, own)
        self._used_names.update(found.names)
        return found.place

    def _nested_reports(self, hours: Iterable[int]) -> NestedReports:
        return NestedReports(lambda name: self.find_place(name, hours), self._call_records)

    def _count_bridged_late(self, record: Record) -> None:
        self._terms.bridged_late += 1
        self._count_observation(books.BRIDGED_LATE, record)

    def _unambiguous_links(
        self, links: Sequence[tuple[bytes, bytes]], hours: Iterable[int]
    ) -> list[tuple[bytes, bytes]]:
        fitting: dict[bytes, set[int]] = {own: set() for own, _ in links}
        for own, other_name in links:
            if (place := self.find_place(other_name, hours)) is not None:
                fitting[own].add(self._counting_place(place))
        return [link for link in links if len(fitting[link[0]]) < 2]

    def _named_places(self, identity: RecordIdentity, hours: Iterable[int]) -> Iterator[int]:
        for name in (identity.id, *identity.also):
            place = self.find_place(name, hours)
            if place is not None:
                yield place

    def _matching_sides(
        self,
        record: Inference,
        nested_report: NestedReport | None,
        links: Sequence[tuple[bytes, bytes]],
        hours: Iterable[int],
    ) -> Iterator[tuple[int, Sequence[bytes]]]:
        """
        Yield the places of calls that the other side (such as the caller for a server's report) reported, for
        links that no report has used.

        Each link id of this side is used once. If it may match several calls, the ids that mark the pair as
        used are also yielded.
        """
        sides = set()
        for own, other_name in links:
            if own in sides or self.find_place(own, hours) is not None:
                continue
            place = self.find_place(other_name, hours)
            if place is not None and is_span_side_name(own) and self._has_span(place, "", hours):
                continue
            if place is None or (nested_report is not None and self._is_paired(place, nested_report, hours)):
                continue
            pair_names = (
                [derived_id(name, "told") for name in (own, other_name)]
                if _has_several_links(own, links)
                else []
            )
            if pair_names and self._has_another_id(place, record, hours):
                continue
            if all(self.find_place(name, hours) is None for name in pair_names):
                sides.add(own)
                yield place, pair_names

    def _has_another_id(self, place: int, record: Inference, hours: Iterable[int]) -> bool:
        form = long_id_prefix(record)
        return form is not None and any(
            known.request_id != record.request_id and self._has_form(known, form, hours)
            for known in self._call_records(place)
        )

    def _is_paired(self, place: int, nested_report: NestedReport, hours: Iterable[int]) -> bool:
        return self._nested_reports(hours).is_of_another_pair(place, nested_report)

    def _are_two_calls(
        self, first: int, later: int, reporter: Inference, hours: Iterable[int], *, is_guess: bool
    ) -> bool:
        """
        Return whether two records that a report matches are different calls.

        They are, first, if an id with a rounded time connects them, or connected one of them with an earlier
        report, and both have ids of the same form. Second, if their counts differ and the report's sender key
        is neither record's: its holder could otherwise subtract every call of which it knows an id. Both
        rules also apply if a device reports two calls of servers.
        """
        known, later_call = self._current_record(first)[0], self._current_record(later)[0]
        assert isinstance(known, Inference)
        assert isinstance(later_call, Inference)
        both = known, later_call
        is_claim = reporter.sender_key == DEVICE_KEYS and not any(
            map(self._device_reports(hours).is_only_from_devices, both)
        )
        is_third = is_claim or reporter.sender_key not in [each.sender_key for each in both]
        if is_third and are_of_two_calls(*both):
            return True
        if not is_claim and not is_guess and not any(self._is_guessed(each, hours) for each in both):
            return False
        forms = {form for each in (*both, reporter) if (form := long_id_prefix(each)) is not None}
        return any(all(self._has_form(each, form, hours) for each in both) for form in forms)

    def _is_counted_call(self, place: int) -> bool:
        if place == IN_A_RUN:
            return False
        known = self._read_record(place)
        topic, _ = duplicates.decode_place(place)
        return topic == self._terms.topic and isinstance(known, Inference) and not known.shadow

    def _merge_records(self, first: int, later: int, reporter: Inference, hours: Iterable[int]) -> bool:
        """
        Turn the later record into a duplicate stored for reference (shadow) or, if it is closed, subtract it
        by a correction. The first record gets the facts that it lacks, by a correction if it is closed.

        Return False and change nothing if a closed record cannot be corrected.
        """
        topic, number = duplicates.decode_place(first)
        _, later_number = duplicates.decode_place(later)
        known, corrections_so_far = self._current_record(first)
        later_call, later_corrections = self._current_record(later)
        assert isinstance(known, Inference)
        assert isinstance(later_call, Inference)
        is_open, is_later_open = (self._is_unread(topic, each) for each in (number, later_number))
        marks = span_marks(known.id, "", ANY_SCOPE) if self._has_span(later, "", hours) else ()
        keys = (known.sender_key, later_call.sender_key, reporter.sender_key)
        costs = self._known_costs(hours)
        takes_cost, cost_names = costs.decide_later_cost(known, later_call, keys)
        said = later_call
        if has_cost(known) and costs.is_cost_guessed(later_call):
            said = _without_cost(later_call, known)
        devices = self._device_reports(hours)
        later_report = LaterReport(
            said, devices.is_only_from_devices(later_call), devices.claimed_fields(later_call)
        )
        heard = self._device_reports_if_any(known, later_report, hours)
        compared = partial(
            self._compare_report, topic, known, later_report, heard, is_open=is_open, replaces_cost=takes_cost
        )
        filled = {name: None for name in later_report.claims if getattr(known, name) is None}
        device_names = [] if heard is None else list(heard.names_to_file(known, later_report, filled))
        if is_open:
            if fields := compared():
                self.amend_record(topic, number, known, fields)
        elif not self._correct_both(
            (known, corrections_so_far),
            (later_call, later_corrections),
            reporter,
            compared,
            is_later_open=is_later_open,
        ):
            return False
        self._file_later_names((*device_names, *cost_names, *marks), first, known, hours)
        if is_later_open:
            self.amend_record(topic, later_number, later_call, {"shadow": True, "counted_by": known.id})
        return True

    def _is_unread(self, topic: str, number: int) -> bool:
        return self.can_amend(topic, number) or number >= self._terms.first

    def _correct_both(
        self,
        first: tuple[Inference, int],
        later: tuple[Inference, int],
        reporter: Inference,
        compared: Callable[[], dict[str, Any]],
        *,
        is_later_open: bool,
    ) -> bool:
        """
        Store corrections that make one call of two records: the closed first record gets the facts that it
        lacks, and the later record is subtracted if it is closed as well. Return False and store nothing if
        one correction is impossible.
        """
        from spool.log.planning.corrections import MOST, merge_correction, shadow_correction

        known, count = first
        later_call, later_count = later
        if max(count, later_count) >= MOST or not self._is_place_in_memory(known):
            return False
        if not (is_later_open or self._is_place_in_memory(later_call)):
            return False
        now_ns = int(self._plan.at * NS)
        fields = compared()
        found = [merge_correction(known, count, later_call, fields, now_ns=now_ns)]
        if not is_later_open:
            found.append(shadow_correction(later_call, later_count, known.id, reporter, now_ns=now_ns))
        corrections = [each for each in found if each is not None]
        if any(map(self._is_known_correction, corrections)):
            return False
        for each in corrections:
            self._store_correction(each)
        # the report itself counts as a duplicate or as its own correction
        self._terms.split += len(corrections)
        return True

    def _compare_report(
        self,
        topic: str,
        known_record: Inference,
        later_report: LaterReport,
        devices: DeviceReports | None,
        *,
        is_open: bool,
        replaces_cost: bool = False,
    ) -> dict[str, Any]:
        """Return the fields that a report adds to a record. Count a conflict if the two disagree."""
        record = later_report.report
        effective = _with_later_cost(known_record, record) if replaces_cost else known_record
        is_costlier = effective is not known_record
        if has_disagreement(effective, record):
            self._terms.conflict += 1
            self._plan.conflicts.add(topic, known_record, record)
            self._plan.observed[topic, books.CONFLICT, f"{known_record.source}/{record.source}"] += 1
        if devices is not None:
            if later_report.is_deciding and devices.is_only_from_devices(known_record):
                return self._server_changes(known_record, record, is_open=is_open)
            if (
                later_report.is_of_device
                and has_measurement(known_record)
                and not devices.is_only_from_devices(known_record)
            ):
                record = device_additions(record)
            effective = devices.without_claims(effective, later_report)
        fields = missing_fields(effective, record)
        if fields:
            self._estimate_cost_again(effective, fields)
        if is_costlier:
            fields |= {"cost": record.cost, "cost_source": "reported"}
            if known_record.charges or record.charges:
                fields["charges"] = record.charges
        return fields

    def _server_changes(self, known_record: Inference, report: Inference, *, is_open: bool) -> dict[str, Any]:
        kept = kept_after_server_report(known_record)
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
