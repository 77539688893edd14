"""
Every receiver of AI telemetry (HTTP, gRPC, file or agent) ends in one call of `PayloadIntake.store_outcome`.

Only the intake attributes, prices, appends and counts records and writes the receipt. It knows no protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from gateway.intake.attribution import RecordAttributor
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import (
    SUMMING,
    ReportedCallers,
    Unkept,
    is_run_summary,
    reporters_of_record,
    sender_rows_to_store,
)
from gateway.intake.start_times import count_misdated_items
from gateway.intake.waiting_counters import WaitingCounters
from gateway.normalise.outcome import PART, TEST_SPAN, ReadOutcome, RejectedPayloadItem
from gateway.people.authentication.bearer import NO_LABELS, AuthenticatedKey, key_ended_refusal
from spool.clock import SteadyClock
from spool.errors import KeyEnded
from spool.identity import identity_for_uncounted_source
from spool.log.partial_reports import PendingChange
from spool.log.protocols import RecordLog
from spool.log.values import Receipt, Submission
from spool.meters import remove_implausible_meters
from spool.record import AiRecord, Inference
from spool.turns.fair_turns import current_work, pause_if_step_was_long

# Records per commit while other requests wait. Such a commit takes a few milliseconds.
SHARED_PART = 128
# counters per commit while other requests wait; a counter takes several times as long as a record
SHARED_POINTS = 32
NOTED_AT_ONCE = 256  # number of calls whose senders are remembered together
TURN = 25  # records between two checks of the time


class StatedFieldCounter(Protocol):
    """Counts the fields that calls state when they arrive."""

    def add_payload(self, outcome: ReadOutcome, bearer: AuthenticatedKey) -> None: ...


class DeviceAssigner(Protocol):
    """Assigns records to the devices of their senders."""

    async def assign_or_reject_items(self, outcome: ReadOutcome, bearer: AuthenticatedKey) -> None: ...

    def labels_with_user(self, device: str | None) -> Mapping[str, str]: ...


class PayloadIntake:
    """
    Stores the outcome of each payload as one submission, and returns when the submission is durable.

    A counter may report the same tokens as calls. With `counters`, it can wait for such calls. Without, it is
    judged on arrival by earlier calls and calls of the same payload.
    """

    def __init__(
        self,
        record_log: RecordLog,
        *,
        attributor: RecordAttributor,
        prices: PriceBook,
        shadows: ReportedCallers,
        device_assignment: DeviceAssigner | None = None,
        counters: WaitingCounters | None = None,
        clock: SteadyClock | None = None,
        note_test: Callable[[AuthenticatedKey], None] | None = None,
        note_sources: Callable[[str, Collection[str]], None] | None = None,
        fields: StatedFieldCounter | None = None,
    ) -> None:
        self._log = record_log
        self._attribution = attributor
        self.prices = prices  # a reload of the settings replaces the price book
        self._shadows = shadows
        self._devices = device_assignment  # None if there are no devices, such as when files are explained
        self._counters = counters
        self._note_test = note_test  # called when a product has sent a test of its export
        # called with the key and the sources of stored records; the key is "" if the request needs none
        self._note_sources = note_sources
        self._fields = fields  # None on an agent, and while the registry is damaged
        self._clock = clock  # start times of calls show whether this clock was set wrong

    @property
    def person_name_settings_applier(self) -> Callable[[AiRecord], None]:
        return self._attribution.apply_person_name_settings

    def store_outcome(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, pending: PendingChange | None = None
    ) -> Coroutine[Any, Any, Receipt]:
        """
        Store a payload. SpoolFull and SpoolUnavailable are raised to the receiver, which then does not
        acknowledge the payload.

        A large payload is stored in parts with one receipt. After an error, the sender repeats the whole
        payload. The parts that were already stored are then recognized as duplicates, because items that
        cannot be recognized again are all in the last part.
        """
        if not outcome.packed and max(len(outcome.records), len(outcome.points)) <= SHARED_POINTS:
            # A small payload is stored as one part, even if other requests wait.
            return self._store_payload_part(outcome, bearer, pending, ())
        return self._store_in_parts(outcome, bearer, pending)

    async def _store_in_parts(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, report_changes: PendingChange | None
    ) -> Receipt:
        work = current_work()
        part_size = PART
        if work is not None and work.turns.commits_are_shared:
            part_size = SHARED_POINTS if outcome.points else SHARED_PART
        if not outcome.packed and max(len(outcome.records), len(outcome.points)) <= part_size:
            return await self._store_payload_part(outcome, bearer, report_changes, ())
        receipts: list[Receipt] = []
        late_rejects: list[RejectedPayloadItem] = []
        misdated: Counter[tuple[str, int, bool]] = Counter()
        for part in outcome.yield_parts(part_size):
            earlier_receipts = [receipt.id for receipt in receipts] if part.is_last else []
            change = report_changes if part.is_last else None
            receipts.append(await self._store_payload_part(part, bearer, change, earlier_receipts))
            misdated.update(part.misdated)
            if not part.is_last:
                # number of items from devices that were revoked while the request was handled
                late_rejects += part.rejects
        outcome.rejects += late_rejects
        outcome.misdated = dict(misdated)
        return Receipt(
            id=receipts[-1].id,
            records=sum(receipt.records for receipt in receipts),
            ignored=sum(receipt.ignored for receipt in receipts),
            rejected=sum(receipt.rejected for receipt in receipts),
            durability=receipts[-1].durability,
        )

    async def _store_payload_part(
        self,
        outcome: ReadOutcome,
        bearer: AuthenticatedKey,
        report_changes: PendingChange | None,
        earlier_receipts: Sequence[str],
    ) -> Receipt:
        """
        Store a part of a payload. Each step needs the earlier ones: devices, labels, prices, noted calls,
        then the counters that repeat calls.
        """
        arrived_at = self._update_clock_and_return_arrival_time(outcome)
        if self._devices is not None:
            await self._devices.assign_or_reject_items(outcome, bearer)
        count_misdated_items(outcome, arrived_at)
        default_users = await self._attribute_items_and_list_default_users(outcome, bearer)
        await self._price_records(outcome)
        repeaters = await self._note_calls(outcome, bearer, default_users, arrived_at)
        for window in outcome.sessions:
            self._shadows.note_session_of_sender(*window, sender_key=bearer.name)
        if repeaters or outcome.points:
            await self._load_callers_that_reported_records(outcome, repeaters, bearer)
        unkept = self._shadows.take_unstored_callers(bearer.name)
        try:
            receipt = await self._append_outcome_part(
                outcome, bearer, report_changes, earlier_receipts, unkept, repeaters
            )
        except BaseException as error:
            self._shadows.put_back_callers(unkept, bearer.name)
            if isinstance(error, KeyEnded):
                raise key_ended_refusal() from error
            raise
        if self._fields is not None and (outcome.stated or outcome.misdated):
            self._fields.add_payload(outcome, bearer)
        if self._note_sources is not None and (outcome.records or outcome.points):
            sources = {record.source for record in outcome.records}
            sources.update(point.template.source for point in outcome.points)
            self._note_sources(bearer.sender or "", sources)
        if outcome.ignored and TEST_SPAN in outcome.ignored and self._note_test is not None:
            self._note_test(bearer)
        return receipt

    def _update_clock_and_return_arrival_time(self, outcome: ReadOutcome) -> float:
        """
        Return the arrival time, which is the same for a whole payload. Also tells the clock when the newest
        call began.
        """
        if self._clock is None:
            return self._shadows.now()
        began = outcome.records[-1].start_time if outcome.records else None
        return self._clock.correct_clock_and_return_arrival_time(began) if began else self._clock.now()

    async def _attribute_items_and_list_default_users(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey
    ) -> Sequence[str | None]:
        """
        Fill in the labels that the sender left out of records and points.

        Return for each record the user to whom reports of this sender without a user belong.
        """
        sender, attribution, key_labels = bearer.sender, self._attribution, bearer.labels
        gives_users = bool(key_labels) or attribution.has_rules
        default_users: list[str | None] = []
        for number, record in enumerate(outcome.records, start=1):
            if number % TURN == 0:
                await pause_if_step_was_long()
            labels = NO_LABELS if record.device is None else self._device_labels(record.device)
            record.sender_key = sender
            attribution.attribute_record(record, key_labels, labels)
            attribution.erase_if_unconfirmed(record, bearer.lower_installation)
            is_given = gives_users or labels
            default_users.append(attribution.default_user(record, key_labels, labels) if is_given else None)
        outcome.steps = attribution.attribute_steps(outcome.steps)
        for number, point in enumerate(outcome.points, start=1):
            if number % TURN == 0:
                await pause_if_step_was_long()
            template = point.template
            labels = NO_LABELS if template.device is None else self._device_labels(template.device)
            template.sender_key = sender
            attribution.attribute_record(template, key_labels, labels)
            attribution.erase_if_unconfirmed(template, bearer.lower_installation)
        return default_users

    async def _price_records(self, outcome: ReadOutcome) -> None:
        """Price records. Another Tollhouse has already priced what it forwarded."""
        price, forwarded = self.prices.price_record, outcome.forwarded
        for position, record in enumerate(outcome.records):
            if position % TURN == TURN - 1:
                await pause_if_step_was_long()
            if isinstance(record, Inference):
                if record.meters:
                    outcome.meter_too_large += remove_implausible_meters(record)
                if position not in forwarded:
                    price(record)

    async def _note_calls(
        self,
        outcome: ReadOutcome,
        bearer: AuthenticatedKey,
        default_users: Sequence[str | None],
        arrived_at: float,
    ) -> Mapping[int, AiRecord]:
        """
        Note which senders reported which calls, for counters that may repeat them. Give each duplicate kept
        for reference a dedup key of its own.

        Return the undecided records that may repeat calls, by position. Records that another Tollhouse
        forwarded are already decided.
        """
        repeaters: dict[int, AiRecord] = {}
        records, key = outcome.records, bearer.name
        for begin in range(0, len(records), NOTED_AT_ONCE):
            if begin:
                await pause_if_step_was_long()
            part = records[begin : begin + NOTED_AT_ONCE]
            users = default_users[begin : begin + NOTED_AT_ONCE]
            for position, record in enumerate(part, begin):
                if isinstance(record, Inference):
                    if record.shadow:
                        _replace_identity_of_uncounted_duplicate(outcome, position)
                    may_repeat = record.operation in SUMMING and is_run_summary(record) and not record.shadow
                else:
                    may_repeat = True
                if may_repeat and position not in outcome.forwarded:
                    repeaters[position] = record
            self._shadows.note_records(part, users, arrived_at, sender_key=key)
        for number, point in enumerate(outcome.points, start=1):
            if number % TURN == 0:
                await pause_if_step_was_long()
            self._shadows.note_counter(point.template, sender_key=bearer.name)
        return repeaters

    async def _load_callers_that_reported_records(
        self,
        outcome: ReadOutcome,
        possible_repeats_by_index: Mapping[int, AiRecord],
        bearer: AuthenticatedKey,
    ) -> None:
        """Load from the storage which callers reported these calls before a restart or to another gateway."""
        records = (*possible_repeats_by_index.values(), *(point.template for point in outcome.points))
        reporters = (reporter for record in records for reporter in reporters_of_record(record))
        await self._shadows.load_reporters_from_storage(reporters, sender_key=bearer.name)

    def _append_outcome_part(
        self,
        outcome: ReadOutcome,
        bearer: AuthenticatedKey,
        change: PendingChange | None,
        earlier_receipts: Sequence[str],
        unstored_callers: Unkept,
        possible_repeats_by_index: Mapping[int, AiRecord],
    ) -> Coroutine[Any, Any, Receipt]:
        """
        Append a part. A record that may repeat calls waits until reports of these calls had time to arrive.
        """
        change = change or PendingChange()
        submission = Submission(
            topic=outcome.topic,
            received=outcome.received,
            split=outcome.split,
            records=outcome.records,
            identities=outcome.identities,
            points=outcome.points,
            ignored=outcome.ignored,
            rejected=Counter(reject.reason for reject in outcome.rejects) if outcome.rejects else {},
            pending=change.count,
            keep=change.keep,
            forget=change.forget,
            expects=[*bearer.expects, *change.expects],
            heard=sender_rows_to_store(unstored_callers) if unstored_callers else (),
            heard_by=bearer.name,
            steps=outcome.steps,
            left_out=outcome.left_out,
            meter_too_large=outcome.meter_too_large,
            unrecognised=outcome.unrecognised,
            before=earlier_receipts,
            price=self.prices.price_record,
            renaming=self._attribution.erased_name_renaming,
        )
        if self._counters is not None and (possible_repeats_by_index or submission.points):
            return self._counters.append_or_hold(submission, possible_repeats_by_index, key=bearer.name)
        for record in possible_repeats_by_index.values():
            self._shadows.mark_record_if_it_repeats_calls(record)
        for point in submission.points:
            self._shadows.mark_record_if_it_repeats_calls(point.template)
        return self._log.append_submission(submission)

    def _device_labels(self, device: str) -> Mapping[str, str]:
        return NO_LABELS if self._devices is None else self._devices.labels_with_user(device)


def _replace_identity_of_uncounted_duplicate(outcome: ReadOutcome, position: int) -> None:
    """
    Give an uncounted duplicate its own id, so that the report that counts is not taken for a repeat of the
    duplicate.
    """
    identity = outcome.identities[position]
    if identity.certain:
        outcome.identities[position] = identity_for_uncounted_source(identity)
        outcome.records[position].id = outcome.identities[position].id
