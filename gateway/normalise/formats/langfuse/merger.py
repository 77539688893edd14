"""
Merging of partial reports. Langfuse's SDKs send the create event and the update event of a generation
separately. Only the update event has the usage.

Partial reports wait for `spool.pending_window`, up to a limit in number and bytes, and are loaded again after
a restart. The caller that a trace states is kept as long as generations of the trace arrive. The merger
itself neither waits nor writes. A merge collects its changes for the disk in `PendingChange`, and the commit
of its outcome writes them.

    for _ in merger.apply(merge):    # a large batch in turns
        await sleep(0)
    receipt = await intake.take(merge.outcome, bearer, merge.pending)    # on failure: merger.undo(merge)

Until that commit, no other merge that shares a key may be applied. Reports are merged only within one
sender's key, so no sender can complete or attribute a call of another key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from gateway.normalise.formats.engine.declaration import (
    CallReport,
    NormalisedBody,
    ReadCall,
    origins_of_known_fields,
)
from gateway.normalise.formats.langfuse.generations import (
    GENERATION,
    ORIGINS,
    TRACE,
    TURN,
    WHOLE,
    Generation,
    Trace,
    build_call_of_generation,
    fill_caller_from_trace,
    generation_from_record,
    merge_by_time,
    merge_traces_and_count_dropped_tags,
)
from gateway.normalise.outcome import MERGED, NOT_AI, ReadOutcome
from spool.clock import elapsed_s
from spool.identity import RecordIdentity
from spool.log.partial_reports import PARTS, TOLD, TOLD_OF, PartialReport, PendingChange, report_kind
from spool.record import AiRecord, Inference
from spool.shares import HeldByKey, UsedAmountByOwner, entries_to_remove


class RecordedGeneration(NamedTuple):
    """A Langfuse generation that has a record. Later reports never change the record's dedup key."""

    generation: Generation
    identity: RecordIdentity
    at: float  # time when the generation was first recorded
    trace_key: bytes | None


class _Stored(msgspec.Struct, array_like=True):
    generation: Generation
    identity: RecordIdentity
    trace_key: bytes | None = None


class RecordedGenerations:
    """
    Recorded generations by key, oldest first, within the merger's limits on time and number.

    After a restart this table starts empty, because the restart closes all records. If several processes
    share a log, each process stores its recorded generations (`reports_to_store`), so that the other
    processes can read them.
    """

    def __init__(self, *, window_s: float, hold_s: float, max_generations: int) -> None:
        self._window_s = window_s
        self._hold_s = hold_s
        self._max_generations = max_generations
        self._by_key: OrderedDict[bytes, RecordedGeneration] = OrderedDict()
        self._of_trace: dict[bytes, dict[bytes, None]] = {}

    def remember_record(
        self, key: bytes, trace_key: bytes | None, record: Inference, identity: RecordIdentity, now: float
    ) -> None:
        """
        Note that a generation's record was stored or changed. The waiting time of the record starts when it
        is first stored.
        """
        known = self._by_key.get(key)
        if known is not None:
            self._remove_from_trace(key, known)
        at = now if known is None else known.at
        self._by_key[key] = RecordedGeneration(generation_from_record(record), identity, at, trace_key)
        if trace_key is not None:
            self._of_trace.setdefault(trace_key, {})[key] = None

    def load_report(self, key: bytes, report: PartialReport) -> None:
        """
        Load a Langfuse generation (a model call) that another process recorded. Raises msgspec.DecodeError if
        it cannot be read.
        """
        loaded = _stored.decode(report.body)
        self._by_key[key] = RecordedGeneration(
            loaded.generation, loaded.identity, report.at, loaded.trace_key
        )
        if loaded.trace_key is not None:
            self._of_trace.setdefault(loaded.trace_key, {})[key] = None

    def reports_to_store(self, key: bytes) -> list[PartialReport]:
        """
        Return the reports to store for other processes: the generation, and two references from its trace.

        One reference has the trace's own key, and its value changes with each generation. So a process that
        merges a report on the trace at the same time notices the change and reads again.
        """
        generation, identity, at, trace_key = self._by_key[key]
        reports = [PartialReport(TOLD + key, at, _encode(_Stored(generation, identity, trace_key)))]
        if trace_key is not None:
            reports.append(PartialReport(TOLD_OF + trace_key + key, at, b""))
            reports.append(PartialReport(TOLD_OF + trace_key, at, key))
        return reports

    def find_generation(self, key: bytes) -> RecordedGeneration | None:
        return self._by_key.get(key)

    def generations_with_open_records(self, trace_key: bytes, now: float) -> Sequence[RecordedGeneration]:
        of_trace = [self._by_key[key] for key in self._of_trace.get(trace_key, ())]
        return [recorded for recorded in of_trace if now - recorded.at < self._hold_s]

    def drop_old_generations(self, now: float) -> None:
        while self._by_key:
            key, oldest = next(iter(self._by_key.items()))
            if len(self._by_key) <= self._max_generations and elapsed_s(oldest.at, now) < self._window_s:
                break
            del self._by_key[key]
            self._remove_from_trace(key, oldest)

    def _remove_from_trace(self, key: bytes, recorded: RecordedGeneration) -> None:
        if recorded.trace_key is not None:
            keys = self._of_trace[recorded.trace_key]
            del keys[key]
            if not keys:
                del self._of_trace[recorded.trace_key]


_encode = msgspec.msgpack.Encoder().encode
_stored = msgspec.msgpack.Decoder(_Stored)


KEY_BYTES = 16
STEPS = 4  # the last use of a trace is stored at most this number of times per waiting window


class Sender(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The key that sent a report, and the values that this key adds to each of its reports. They are stored with
    a waiting report, so that its record gets them as well.
    """

    name: str
    labels: dict[str, str] = {}
    device: str | None = None
    named: str | None = None  # device that the request names as the origin of the report
    may_chain: bool = False
    is_local: bool = False


class WaitingReport(msgspec.Struct):
    """The known facts of an incomplete Langfuse generation, or of a trace."""

    sender: Sender
    kind: str
    facts: bytes
    at: float = 0.0  # time of the last report

    def encode_as_partial_report(self, key: bytes) -> PartialReport:
        return PartialReport(key, self.at, _encode(self))


@dataclass(kw_only=True)
class BatchMerge:
    """
    The partial reports of one batch while they are merged.

    Accounting: each item that the outcome received is counted exactly once, either in another count of the
    outcome or in `pending`.
    """

    outcome: ReadOutcome
    reports: Sequence[CallReport]
    sender: Sender
    now: float
    pending: PendingChange = field(default_factory=PendingChange)
    # the state of each changed report before the merge, for `undo_merge`
    replaced: dict[bytes, WaitingReport | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pending.count += count_incomplete_generations(self.reports)


@dataclass(kw_only=True)
class ReleasedReports:
    """Incomplete reports of one sender whose waiting time has ended."""

    sender: Sender
    outcome: ReadOutcome = field(default_factory=ReadOutcome)
    pending: PendingChange = field(default_factory=PendingChange)
    reports: dict[bytes, WaitingReport] = field(default_factory=dict)


class ReportMerger:
    """
    The waiting reports of all senders, oldest first, by a key of sender, kind and id.

    If `is_shared` is True, several processes share a log. Each batch then gets its own merger, into which
    only the reports that the batch needs are loaded. The generations that it records are stored for later
    batches.
    """

    def __init__(
        self, *, window_s: float, hold_s: float, max_reports: int, max_bytes: int, is_shared: bool = False
    ) -> None:
        self._is_shared = is_shared
        self._window_s = window_s
        self._max_reports = max_reports
        self._max_bytes = max_bytes
        self._waiting: OrderedDict[bytes, WaitingReport] = OrderedDict()
        # the reports in `_waiting`, by the name of the sender's key
        self._of_key: dict[str, OrderedDict[bytes, WaitingReport]] = {}
        self._held_items = UsedAmountByOwner[str]()
        self._held_bytes = UsedAmountByOwner[str]()
        self._bytes = 0
        self._asked_for: set[bytes] = set()  # traces that were used since their last use was stored
        self._recorded = RecordedGenerations(window_s=window_s, hold_s=hold_s, max_generations=max_reports)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held_by_sender_key(self) -> HeldByKey:
        return HeldByKey(self._held_items, self._held_bytes)

    @property
    def exceeds_limits(self) -> bool:
        return len(self._waiting) > self._max_reports or self._bytes > self._max_bytes

    def load_waiting_reports(self, reports: Iterable[PartialReport]) -> int:
        """Load the reports that waited when the process ended. Return the number of unreadable reports."""
        damaged = 0
        traces: list[tuple[bytes, WaitingReport]] = []
        for stored in reports:
            kind = report_kind(stored.key)
            if kind == TOLD_OF:
                continue
            try:
                if kind == TOLD:
                    self._recorded.load_report(stored.key.removeprefix(TOLD), stored)
                    continue
                report = _reports.decode(stored.body)
                _facts[report.kind].decode(report.facts)
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
                damaged += 1
                continue
            report.at = stored.at
            if report.kind == TRACE:
                traces.append((stored.key, report))
            else:
                self._replace_waiting_report(stored.key, report)
        # traces are loaded last, because they must be newer in the order than the generations that use them
        for key, report in traces:
            self._replace_waiting_report(key, report)
        return damaged

    def merge_batch(self, merge: BatchMerge) -> Iterator[None]:
        """
        Merge the reports of one batch with waiting reports, and change the records and counts of
        the batch's outcome.

        A generation that is now complete becomes a record of this outcome, and its earlier report stops waiting.
        """
        places = {}
        for index, record in enumerate(merge.outcome.records):
            if isinstance(record, Inference):
                places[record.request_id] = index
        traces_first = sorted(merge.reports, key=lambda report: report.kind != TRACE)
        for number, report in enumerate(traces_first, start=1):
            if number % TURN == 0:
                yield
            if report.kind == TRACE:
                yield from self._add_trace(report, merge)
            elif report.kind == WHOLE:
                self._update_record_of_report(report, places[report.key], merge)
            else:
                self._add_partial_generation(report, merge)
        self._recorded.drop_old_generations(merge.now)
        merge.pending.keep += [
            self._waiting[key].encode_as_partial_report(key) for key in sorted(self._asked_for)
        ]
        self._asked_for.clear()

    def undo_merge(self, merge: BatchMerge) -> None:
        """Restore the state before a merge whose request was refused. The sender will repeat the request."""
        for key, report in merge.replaced.items():
            self._drop_waiting_report(key)
            if report is not None:
                self._replace_waiting_report(key, report)

    def release_due_reports(self, *, now: float, busy: Container[bytes] = ()) -> list[ReleasedReports]:
        """
        Remove and return reports whose waiting time has ended, and reports that exceed the limits, oldest
        first. Reports under the keys in `busy` stay.
        """
        due = self._due_keys(now, busy)
        of_sender: dict[bytes, ReleasedReports] = {}
        for key in due:
            report = self._waiting[key]
            released = of_sender.setdefault(_encode(report.sender), ReleasedReports(sender=report.sender))
            self._release_report(key, report, released, now)
        for key in due:  # traces are removed after the generations that use them
            self._drop_waiting_report(key)
        return list(of_sender.values())

    def put_back_released_reports(self, released: ReleasedReports) -> None:
        """Restore reports that could not become records. They are the next reports to be released."""
        for key, report in reversed(released.reports.items()):
            self._replace_waiting_report(key, report)
            self._waiting.move_to_end(key, last=False)
            self._of_key[report.sender.name].move_to_end(key, last=False)

    def _due_keys(self, now: float, skipped_keys: Container[bytes]) -> list[bytes]:
        """
        Return the keys of the reports to release: first reports whose waiting time has ended, then reports
        that exceed the limits. Reports under the keys in `skipped_keys`, which another merge uses, stay.

        Above the limits, traces are released before generations (model calls), because a generation without
        its update event loses its usage.
        """
        ended = takewhile(lambda entry: elapsed_s(entry[1].at, now) >= self._window_s, self._waiting.items())
        due = dict.fromkeys(islice((key for key, _ in ended if key not in skipped_keys), TURN))
        room = self._max_reports - len(self._waiting) + len(due)
        room_bytes = self._max_bytes - self._bytes + sum(len(self._waiting[key].facts) for key in due)
        if room < 0 or room_bytes < 0:
            for key in self._keys_of_fullest_senders(due, skipped_keys, by_bytes=room >= 0):
                if len(due) == TURN or (room >= 0 and room_bytes >= 0):
                    break
                due[key] = None
                room += 1
                room_bytes += len(self._waiting[key].facts)
        return list(due)

    def _keys_of_fullest_senders(
        self, due: Iterable[bytes], skipped_keys: Container[bytes], *, by_bytes: bool
    ) -> Iterator[bytes]:
        """
        Yield the keys of reports to release, one by one, each from the sender key that then has the most
        waiting reports (or bytes, `by_bytes`). So no sender key displaces reports of another.
        """
        held = self._held_bytes if by_bytes else self._held_items
        gone: dict[str, set[bytes]] = {}
        for key in due:
            gone.setdefault(self._waiting[key].sender.name, set()).add(key)

        def size_of_report(key: bytes) -> int:
            return len(self._waiting[key].facts) if by_bytes else 1

        return entries_to_remove(
            held, partial(self._keys_in_release_order, skipped_keys=skipped_keys), size_of_report, gone=gone
        )

    def _keys_in_release_order(self, sender_name: str, skipped_keys: Container[bytes]) -> Iterator[bytes]:
        for kind in (TRACE, GENERATION):
            for key, report in self._of_key[sender_name].items():
                if report.kind == kind and key not in skipped_keys:
                    yield key

    def _release_report(
        self, key: bytes, report: WaitingReport, released: ReleasedReports, now: float
    ) -> None:
        released.reports[key] = report
        released.pending.forget.append(key)
        if report.kind != GENERATION:
            return
        released.pending.count -= 1
        generation = _generations.decode(report.facts)
        trace = self._find_and_renew_trace(report.sender, generation.trace_id, report.at)
        call = _add_call_of_generation(released.outcome, generation, trace)
        if call is not None:
            self._note_recorded_call(call, report.sender, now, released.pending)

    def _note_recorded_call(self, call: ReadCall, sender: Sender, now: float, pending: PendingChange) -> None:
        """
        Note a call that becomes a record, so that later reports on the call are merged into its record.

        Until the record is stored, each later report carries the whole call. So their order does not matter.
        """
        trace_id = call.record.trace_id
        trace_key = report_key(sender, TRACE, trace_id) if trace_id else None
        key = report_key(sender, GENERATION, call.record.request_id or "")
        self._recorded.remember_record(key, trace_key, call.record, call.identity, now)
        if self._is_shared:
            pending.keep.extend(self._recorded.reports_to_store(key))

    def _add_trace(self, report: CallReport, merge: BatchMerge) -> Iterator[None]:
        key = report_key(merge.sender, TRACE, report.key)
        known, trace = (
            self._find_and_renew_trace(merge.sender, report.key, merge.now),
            _traces.decode(report.facts),
        )
        if known is not None:
            trace, left_out = merge_traces_and_count_dropped_tags(known, trace)
            merge.outcome.left_out += left_out
        self._keep_waiting_report(key, TRACE, _encode(trace), merge)
        if trace == known:
            return
        for number, recorded in enumerate(
            self._recorded.generations_with_open_records(key, merge.now), start=1
        ):
            if number % TURN == 0:
                yield
            call = build_call_of_generation(recorded.generation, trace, recorded.identity)
            if call is not None:
                merge.outcome.split += 1
                merge.outcome.add_record(call.record, call.identity)

    def _update_record_of_report(self, report: CallReport, index: int, merge: BatchMerge) -> None:
        generation, identity, named = self._merge_earlier_reports_and_find_device(report, merge)
        if named is not None:
            merge.outcome.named[index] = named
        call = build_call_of_generation(
            generation, self._find_and_renew_trace(merge.sender, generation.trace_id, merge.now), identity
        )
        if call is not None:
            call.record.id = call.identity.id
            merge.outcome.records[index] = call.record
            merge.outcome.identities[index] = call.identity
            self._note_recorded_call(call, merge.sender, merge.now, merge.pending)

    def _add_partial_generation(self, report: CallReport, merge: BatchMerge) -> None:
        generation, identity, named = self._merge_earlier_reports_and_find_device(report, merge)
        if not generation.is_complete_for_record:
            key = report_key(merge.sender, GENERATION, report.key)
            self._keep_waiting_report(key, GENERATION, _encode(generation), merge, device_name=named)
        # Use the trace after storing the generation, so that the trace expires after the generation.
        trace = self._find_and_renew_trace(merge.sender, generation.trace_id, merge.now)
        if generation.is_complete_for_record:
            merge.pending.count -= 1
            call = _add_call_of_generation(merge.outcome, generation, trace, identity, device_name=named)
            if call is not None:
                self._note_recorded_call(call, merge.sender, merge.now, merge.pending)

    def _merge_earlier_reports_and_find_device(
        self, report: CallReport, merge: BatchMerge
    ) -> tuple[Generation, RecordIdentity | None, str | None]:
        """
        Merge a report with earlier reports on the same generation.

        Return the generation and the dedup key of its record, if it has a record. If this report names no
        device, also return the device of an earlier report.
        """
        key, generation = report_key(merge.sender, GENERATION, report.key), _generations.decode(report.facts)
        earlier = self._waiting.get(key)
        if earlier is not None:
            merge.replaced.setdefault(key, earlier)
            merge.pending.forget.append(key)
            merge.pending.count -= 1
            merge.outcome.ignored[MERGED] += 1
            self._drop_waiting_report(key)
            named = earlier.sender.named if merge.sender.named is None else None
            return merge_by_time(_generations.decode(earlier.facts), generation), None, named
        recorded = self._recorded.find_generation(key)
        if recorded is not None:
            return merge_by_time(recorded.generation, generation), recorded.identity, None
        return generation, None, None

    def _keep_waiting_report(
        self,
        key: bytes,
        kind: str,
        encoded_report: bytes,
        merge: BatchMerge,
        *,
        device_name: str | None = None,
    ) -> None:
        sender = (
            merge.sender if device_name is None else msgspec.structs.replace(merge.sender, named=device_name)
        )
        report = WaitingReport(sender, kind, encoded_report, merge.now)
        merge.replaced.setdefault(key, self._waiting.get(key))
        merge.pending.keep.append(report.encode_as_partial_report(key))
        self._replace_waiting_report(key, report)

    def _find_and_renew_trace(self, sender: Sender, trace_id: str | None, now: float) -> Trace | None:
        key = report_key(sender, TRACE, trace_id or "")
        report = self._waiting.get(key)
        if report is None:
            return None
        if self._is_shared and now - report.at > self._window_s / STEPS:
            self._asked_for.add(key)
        report.at = max(report.at, now)
        self._waiting.move_to_end(key)
        self._of_key[report.sender.name].move_to_end(key)
        return _traces.decode(report.facts)

    def _replace_waiting_report(self, key: bytes, report: WaitingReport) -> None:
        self._drop_waiting_report(key)
        self._waiting[key] = report
        self._bytes += len(report.facts)
        self._of_key.setdefault(report.sender.name, OrderedDict())[key] = report
        self._held_items.add_use(report.sender.name, 1)
        self._held_bytes.add_use(report.sender.name, len(report.facts))

    def _drop_waiting_report(self, key: bytes) -> None:
        report = self._waiting.pop(key, None)
        if report is not None:
            self._bytes -= len(report.facts)
            name = report.sender.name
            self._held_items.add_use(name, -1)
            self._held_bytes.add_use(name, -len(report.facts))
            del self._of_key[name][key]
            if not self._of_key[name]:
                del self._of_key[name]


def sender_key_of_report(stored_report: PartialReport) -> str:
    """Return the name of the key that sent a waiting report, or "" if the report cannot be read."""
    try:
        return _reports.decode(stored_report.body).sender.name
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def count_incomplete_generations(reports: Iterable[CallReport]) -> int:
    return sum(report.kind == GENERATION for report in reports)


def complete_without_later_reports(normalised: NormalisedBody) -> ReadOutcome:
    """
    Return the outcome of a batch that no later report completes. Every generation becomes a record, even if
    it is incomplete.
    """
    outcome, reports = normalised
    traces = {report.key: _traces.decode(report.facts) for report in reports if report.kind == TRACE}
    for report in reports:
        if report.kind == GENERATION:
            generation = _generations.decode(report.facts)
            _add_call_of_generation(outcome, generation, traces.get(generation.trace_id or ""))
    return outcome


def protect_people_in_reports(
    reports: Iterable[CallReport], protect: Callable[[AiRecord], None]
) -> list[CallReport]:
    """
    Return reports in which people on traces are protected as on records (`protect`), because traces may wait
    on disk.
    """
    return [
        report._replace(facts=_protect_people_in_trace(report.facts, protect))
        if report.kind == TRACE
        else report
        for report in reports
    ]


def _protect_people_in_trace(facts: bytes, protect: Callable[[AiRecord], None]) -> bytes:
    trace, record = _traces.decode(facts), Inference(id=b"", source="")
    fill_caller_from_trace(record, trace)
    protect(record)
    named = Trace(
        trace.id, user=record.user, team=record.team, session=record.session, tags=dict(record.tags)
    )
    return _encode(named)


def keys_of_reports(reports: Iterable[CallReport], sender: Sender) -> set[bytes]:
    """Return the keys that merging these reports reads and changes."""
    return {
        report_key(sender, TRACE if report.kind == TRACE else GENERATION, report.key) for report in reports
    }


def report_keys_and_prefixes_to_load(
    reports: Iterable[CallReport], sender: Sender
) -> tuple[set[bytes], set[bytes]]:
    """
    Return the keys, and the key prefixes, to load before merging these reports. The loaded reports may need
    more keys, which `next_keys_to_load` returns.
    """
    keys, under = keys_of_reports(reports, sender), set()
    for report in reports:
        if report.kind == TRACE:
            keys.add(TOLD_OF + report_key(sender, TRACE, report.key))
            under.add(TOLD_OF + report_key(sender, TRACE, report.key))
        else:
            keys.add(TOLD + report_key(sender, GENERATION, report.key))
            keys |= _trace_report_keys(sender, _generations.decode(report.facts))
    return keys, under


def next_keys_to_load(found_reports: Iterable[PartialReport], sender: Sender | None = None) -> set[bytes]:
    """
    Return the keys of the reports to load next: of generations (model calls) and traces that the loaded
    reports name. Without `sender`, each report's own sender is used.
    """
    keys: set[bytes] = set()
    for stored in found_reports:
        kind = report_kind(stored.key)
        if kind == TOLD_OF:
            # a key without a generation's key at its end only marks that the trace has generations
            if stored.key[len(TOLD_OF) + KEY_BYTES :]:
                keys.add(TOLD + stored.key[-KEY_BYTES:])
        elif kind == PARTS:
            # ignore unreadable reports here, because `ReportMerger.load_waiting_reports` counts them
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                report = _reports.decode(stored.body)
                if report.kind == GENERATION:
                    keys |= _trace_report_keys(sender or report.sender, _generations.decode(report.facts))
    return keys


def _trace_report_keys(sender: Sender, generation: Generation) -> set[bytes]:
    return {report_key(sender, TRACE, generation.trace_id)} if generation.trace_id else set()


def report_key(sender: Sender, kind: str, own_id: str) -> bytes:
    key_text = "\0".join((sender.name, kind, own_id)).encode("utf-8", "surrogatepass")
    return blake2b(key_text, digest_size=KEY_BYTES, person=b"langfuse").digest()


def _add_call_of_generation(
    outcome: ReadOutcome,
    generation: Generation,
    trace: Trace | None,
    identity: RecordIdentity | None = None,
    *,
    device_name: str | None = None,
) -> ReadCall | None:
    call = build_call_of_generation(generation, trace, identity)
    if call is None:
        outcome.ignored[NOT_AI] += 1
    else:
        why = None if outcome.why is None else origins_of_known_fields(ORIGINS, call.record)
        outcome.add_record(call.record, call.identity, why, device=device_name)
    return call


_reports = msgspec.msgpack.Decoder(WaitingReport)
_generations = msgspec.msgpack.Decoder(Generation)
_traces = msgspec.msgpack.Decoder(Trace)
_facts: dict[str, msgspec.msgpack.Decoder[Generation] | msgspec.msgpack.Decoder[Trace]] = {
    GENERATION: _generations,
    TRACE: _traces,
}
