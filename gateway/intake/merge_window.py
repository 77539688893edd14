"""
The merge window before the intake. It merges partial reports of one call. Reports that still wait are stored
on disk before the sender gets a 2xx.

Receivers call `ReportMergeWindow.store_outcome` instead of `PayloadIntake.store_outcome`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from gateway.intake.intake import PayloadIntake
from gateway.normalise.formats.engine.declaration import CallReport
from gateway.normalise.formats.langfuse.merger import (
    BatchMerge,
    ReleasedReports,
    ReportMerger,
    Sender,
    keys_of_reports,
    next_keys_to_load,
    protect_people_in_reports,
    report_keys_and_prefixes_to_load,
    sender_key_of_report,
)
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import Clock
from spool.errors import SpoolError, Stale
from spool.log.partial_reports import (
    PARTS,
    TOLD,
    TOLD_OF,
    PartialReport,
    PartialReports,
    expected_report_versions,
    filter_by_kind,
)
from spool.log.protocols import RecordLog
from spool.log.values import Receipt, Submission
from spool.loops import log_failure, repeat
from spool.record import AI_TELEMETRY
from spool.shares import NEARLY_FULL, HeldByKey, UsedAmountByOwner, entries_to_remove
from spool.turns.fair_turns import pause_for_others

LOOK_S = 5.0

_Turn = asyncio.Future[None]  # done when the merge that has this turn has ended

_log = logging.getLogger(__name__)


async def _repeat_release(release_due_reports: Callable[[], Awaitable[object]]) -> None:
    """Release due reports again and again until cancelled, first after LOOK_S seconds."""

    async def wait_and_release() -> None:
        await asyncio.sleep(LOOK_S)
        await release_due_reports()

    await repeat(
        wait_and_release,
        every_s=0.0,
        failed="partial reports must wait longer",
        action="release_put_off",
        retry_s=LOOK_S,
    )


class ReportMergeWindow:
    """
    The merge window of a single process.

    A request stores and deletes partial reports in the commit of its records. So after a crash, the stored
    reports and the accounting agree.
    """

    def __init__(
        self, stored_reports: PartialReports, intake: PayloadIntake, clock: Clock, merger: ReportMerger
    ) -> None:
        self._stored = stored_reports
        self._intake = intake
        self._clock = clock
        self._merger = merger
        self._turns = DedupKeyLocks()

    @property
    def waiting_count(self) -> int:
        return len(self._merger)

    @property
    def held_by_sender_key(self) -> HeldByKey:
        return self._merger.held_by_sender_key

    async def load_stored_reports(self) -> None:
        stored = list(filter_by_kind(await self._stored.load(), PARTS))
        damaged = self._merger.load_waiting_reports(stored)
        if damaged:
            damage = {"action": "partial_reports_damaged"}
            _log.error("%d partial reports cannot be read", damaged, extra=damage)

    def store_outcome(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, reports: Sequence[CallReport] = ()
    ) -> Coroutine[Any, Any, Receipt]:
        """
        Merge reports and store them. Return when everything is durable.

        After an error, the sender repeats the payload. With PostgreSQL, a commit that was not confirmed in
        time may have been stored. Even then, each call counts once.
        """
        return (
            self._merge_and_store(outcome, bearer, reports)
            if reports
            else self._intake.store_outcome(outcome, bearer)
        )

    async def _merge_and_store(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, reports: Sequence[CallReport]
    ) -> Receipt:
        sender, reports = (
            _bearer_to_sender(bearer),
            protect_people_in_reports(reports, self._intake.person_name_settings_applier),
        )
        async with self._turns.hold_keys(keys_of_reports(reports, sender)):
            merge = BatchMerge(outcome=outcome, reports=reports, sender=sender, now=self._clock.now())
            try:
                for _ in self._merger.merge_batch(merge):
                    await pause_for_others()
                receipt = await self._intake.store_outcome(outcome, bearer, merge.pending)
            except BaseException:
                self._merger.undo_merge(merge)
                raise
        if self._merger.exceeds_limits:
            await self._try_to_release_reports()
        return receipt

    async def release_due_reports(self) -> int:
        count = 0
        while released := self._merger.release_due_reports(now=self._clock.now(), busy=self._turns.held_keys):
            async with self._turns.hold_keys({key for call in released for key in call.reports}):
                failed = await self._store_released_reports(released)
            count += sum(len(call.reports) for call in released) - sum(len(call.reports) for call in failed)
            if failed:
                break
        return count

    async def _store_released_reports(
        self, released_reports: Sequence[ReleasedReports]
    ) -> Sequence[ReleasedReports]:
        """
        Store calls. Return the calls that failed, whose reports wait again. If the storage fails, no further call
        is tried.
        """
        unstored = list(released_reports)
        failed: list[ReleasedReports] = []
        try:
            while unstored:
                call = unstored[0]
                try:
                    await self._intake.store_outcome(
                        call.outcome, _sender_to_bearer(call.sender), call.pending
                    )
                except SpoolError:
                    raise
                except Exception as error:  # noqa: BLE001 - a call that fails costs only itself
                    log_failure("partial reports of a call must wait longer", error, action="release_put_off")
                    failed.append(call)
                unstored.pop(0)
        finally:
            for unrecorded in reversed([*failed, *unstored]):
                self._merger.put_back_released_reports(unrecorded)
        return failed

    async def run(self) -> None:
        await _repeat_release(self.release_due_reports)

    async def _try_to_release_reports(self) -> None:
        """
        Release waiting reports. If the storage fails, they are released first the next time, and the request
        that exceeded the limit is not refused.
        """
        try:
            await self.release_due_reports()
        except SpoolError as error:
            _log.warning("partial reports must wait longer: %s", error, extra={"action": "release_put_off"})


class DedupKeyLocks:
    """
    Locks by dedup key: each key is held by one request at a time, in order of arrival.

    The result of a request is stored or refused before the next request reads it.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, _Turn] = {}  # key of a call -> the last turn in its queue

    @property
    def held_keys(self) -> Set[bytes]:
        return self._last.keys()

    @asynccontextmanager
    async def hold_keys(self, keys: Set[bytes]) -> AsyncIterator[None]:
        """
        Hold several keys while the block runs. The caller queues for all keys at once, so that requests
        cannot deadlock and cannot overtake each other.
        """
        earlier_turns = {self._last[key] for key in keys if key in self._last}
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._last.update(dict.fromkeys(keys, turn))
        try:
            if earlier_turns:
                await asyncio.wait(earlier_turns)
            yield
        finally:
            self._end_turn_after_earlier_turns(
                turn, keys, [turn_before for turn_before in earlier_turns if not turn_before.done()]
            )

    def _end_turn_after_earlier_turns(
        self, turn: _Turn, keys: Set[bytes], earlier_turns: Sequence[_Turn]
    ) -> None:
        """
        End a turn. One that is cancelled while it waits ends only after the earlier turns, because later
        turns wait for it.
        """
        if earlier_turns:
            first, *other_turns = earlier_turns
            first.add_done_callback(lambda _: self._end_turn_after_earlier_turns(turn, keys, other_turns))
            return
        for key in keys:
            if self._last.get(key) is turn:
                del self._last[key]
        turn.set_result(None)


ATTEMPTS = 8  # attempts to store a batch, after which the sender gets an error and must repeat the request
AT_ONCE = 500  # maximum waiting reports that are released together


_Found = Mapping[bytes, PartialReport]


class SharedMergeWindow:
    """
    The merge window of several processes on one log. It keeps no reports in memory.

    A batch reads the stored reports that it needs by their keys, and is stored only if they are unchanged.
    Otherwise it is merged again. Usually one process releases due reports at a time, but two at the same time
    do no harm.
    """

    def __init__(
        self,
        stored_reports: PartialReports,
        record_log: RecordLog,
        intake: PayloadIntake,
        clock: Clock,
        *,
        window_s: float,
        hold_s: float,
        max_reports: int,
        max_bytes: int,
    ) -> None:
        self._stored = stored_reports
        self._log = record_log
        self._intake = intake
        self._clock = clock
        self._window_s = window_s
        self._max_reports = max_reports
        self._max_bytes = max_bytes
        self._merger = partial(
            ReportMerger, hold_s=hold_s, max_reports=max_reports, max_bytes=max_bytes, is_shared=True
        )
        # turns that merge the reports of one call in order of arrival, within this process
        self._turns = DedupKeyLocks()
        self.waiting_count = 0  # number of waiting reports when they were last counted
        # waiting reports by key when they were last counted; filled only if the window was nearly full
        self.held = HeldByKey()

    async def store_outcome(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, reports: Sequence[CallReport] = ()
    ) -> Receipt:
        if not reports:
            return await self._intake.store_outcome(outcome, bearer)
        sender, reports = (
            _bearer_to_sender(bearer),
            protect_people_in_reports(reports, self._intake.person_name_settings_applier),
        )
        async with self._turns.hold_keys(keys_of_reports(reports, sender)):
            for attempt in range(1, ATTEMPTS + 1):
                merged = copy.deepcopy(outcome)
                try:
                    receipt = await self._merge_and_store(merged, bearer, reports, sender)
                except Stale:
                    if attempt == ATTEMPTS:
                        raise
                else:
                    break
        for name in ReadOutcome.__struct_fields__:
            setattr(outcome, name, getattr(merged, name))
        return receipt

    async def _merge_and_store(
        self, outcome: ReadOutcome, bearer: AuthenticatedKey, reports: Sequence[CallReport], sender: Sender
    ) -> Receipt:
        keys, under = report_keys_and_prefixes_to_load(reports, sender)
        stored_reports = dict(await self._stored.find_reports(keys, key_prefixes=under))
        more_keys = next_keys_to_load(stored_reports.values(), sender) - keys
        if more_keys:
            stored_reports |= await self._stored.find_reports(more_keys)
        merger = self._merger(window_s=self._window_s)
        _load_in_order(merger, stored_reports)
        merge = BatchMerge(outcome=outcome, reports=reports, sender=sender, now=self._clock.now())
        for _ in merger.merge_batch(merge):
            await pause_for_others()
        merge.pending.expects = expected_report_versions((*keys, *more_keys, *stored_reports), stored_reports)
        return await self._intake.store_outcome(outcome, bearer, merge.pending)

    async def release_due_reports(self) -> int:
        """Release reports that waited long enough or exceed the limit, and return their number."""
        count = 0
        now = self._clock.now()
        while due_reports := await self._stored.oldest_reports(
            PARTS, before_time=now - self._window_s, max_reports=AT_ONCE
        ):
            count += (
                released := await self._merge_and_release_reports(due_reports, merge_window_s=self._window_s)
            )
            if released < len(due_reports):  # another process changed the remaining reports in the meantime
                break
        self.waiting_count, size = await self._stored.count_reports_and_bytes(PARTS)
        while self.waiting_count > self._max_reports or size > self._max_bytes:
            due_reports = await self._excess_reports(
                await self._stored.oldest_reports(PARTS, before_time=now, max_reports=2 * self._max_reports)
            )
            released = 0
            for start in range(0, len(due_reports), AT_ONCE):
                released += await self._merge_and_release_reports(
                    due_reports[start : start + AT_ONCE], merge_window_s=0.0
                )
            if not released:
                break
            count += released
            self.waiting_count, size = await self._stored.count_reports_and_bytes(PARTS)
        is_nearly_full = (
            self.waiting_count >= NEARLY_FULL * self._max_reports or size >= NEARLY_FULL * self._max_bytes
        )
        self.held = await self._count_waiting_reports_by_sender_key(now) if is_nearly_full else HeldByKey()
        await self._delete_old_reports_of_recorded_calls(now - self._window_s)
        return count

    async def _count_waiting_reports_by_sender_key(self, now: float) -> HeldByKey:
        items = Counter[str]()
        sizes = Counter[str]()
        waiting = await self._stored.oldest_reports(PARTS, before_time=now, max_reports=2 * self._max_reports)
        for count, report in enumerate(waiting, start=1):
            if count % AT_ONCE == 0:
                await pause_for_others()
            key = sender_key_of_report(report)
            items[key] += 1
            sizes[key] += _report_bytes(report)
        return HeldByKey(items, sizes)

    async def _excess_reports(self, waiting: Sequence[PartialReport]) -> list[PartialReport]:
        """
        Return the reports that exceed the limit: the oldest reports of the key with the most waiting reports.

        So reports of one key never displace reports of another key.
        """
        reports = {report.key: report for report in waiting}
        queues: dict[str, list[bytes]] = {}
        for count, report in enumerate(waiting, start=1):
            if count % AT_ONCE == 0:
                await pause_for_others()
            queues.setdefault(sender_key_of_report(report), []).append(report.key)
        by_number = len(reports) > self._max_reports
        over = len(reports) - self._max_reports
        over_bytes = sum(map(_report_bytes, waiting)) - self._max_bytes

        def count_or_bytes_of_report(key: bytes) -> int:
            return 1 if by_number else _report_bytes(reports[key])

        holdings = UsedAmountByOwner(
            {name: sum(map(count_or_bytes_of_report, queue)) for name, queue in queues.items()}
        )
        due_reports: list[PartialReport] = []
        for key in entries_to_remove(holdings, queues.__getitem__, count_or_bytes_of_report):
            if over <= 0 and over_bytes <= 0:
                break
            due_reports.append(reports[key])
            over -= 1
            over_bytes -= _report_bytes(reports[key])
        return due_reports

    async def run(self) -> None:
        """Release reports that are due. Only one process runs this task at a time."""
        await _repeat_release(self.release_due_reports)

    async def _merge_and_release_reports(
        self, due_reports: Sequence[PartialReport], *, merge_window_s: float
    ) -> int:
        stored = {report.key: report for report in due_reports}
        more_keys = next_keys_to_load(due_reports) - stored.keys()
        if more_keys:
            stored |= await self._stored.find_reports(more_keys)
        merger = self._merger(window_s=merge_window_s)
        now = self._clock.now()
        unreadable = _load_in_order(merger, stored)
        released = 0
        for call in merger.release_due_reports(now=now):
            if await self._store_completed_calls_unless_stale(call, stored):
                released += len(call.reports.keys() & {report.key for report in due_reports})
        # delete unreadable reports, because otherwise they would stay the oldest reports forever
        if unreadable:
            damaged = [
                report
                for report in due_reports
                if self._merger(window_s=merge_window_s).load_waiting_reports([report])
            ]
            _log.error(
                "%d partial reports cannot be read", len(damaged), extra={"action": "partial_reports_damaged"}
            )
            released += await self._delete_reports(damaged)
        return released

    async def _store_completed_calls_unless_stale(
        self, released_reports: ReleasedReports, stored_reports: _Found
    ) -> bool:
        bearer = _sender_to_bearer(released_reports.sender)
        traces = next_keys_to_load(
            released_reports.reports[key].encode_as_partial_report(key) for key in released_reports.reports
        )
        released_reports.pending.expects = expected_report_versions(
            (*released_reports.reports, *traces), stored_reports
        )
        try:
            await self._intake.store_outcome(released_reports.outcome, bearer, released_reports.pending)
        except Stale:
            return False
        except SpoolError:
            raise
        except Exception as error:  # noqa: BLE001 - a call that fails costs only itself
            log_failure("partial reports of a call must wait longer", error, action="release_put_off")
            return False
        return True

    async def _delete_old_reports_of_recorded_calls(self, before: float) -> None:
        for kind in (TOLD, TOLD_OF):
            while old := await self._stored.oldest_reports(kind, before_time=before, max_reports=AT_ONCE):
                await self._delete_reports(old)
            number, _ = await self._stored.count_reports_and_bytes(kind)
            while (excess := number - self._max_reports) > 0:
                number -= await self._delete_reports(
                    await self._stored.oldest_reports(
                        kind, before_time=self._clock.now(), max_reports=min(AT_ONCE, excess)
                    )
                )

    async def _delete_reports(self, reports: Collection[PartialReport]) -> int:
        if reports:
            forget = [report.key for report in reports]
            await self._log.append_submission(Submission(topic=AI_TELEMETRY, received=0, forget=forget))
        return len(reports)


def _bearer_to_sender(bearer: AuthenticatedKey) -> Sender:
    return Sender(
        bearer.name, dict(bearer.labels), bearer.device, bearer.named, bearer.may_chain, bearer.is_local
    )


def _sender_to_bearer(sender: Sender) -> AuthenticatedKey:
    # the report keeps the rights that its sender had when it sent the report
    return AuthenticatedKey(
        sender.name,
        frozenset(),
        sender.labels,
        sender.device,
        sender.named,
        may_chain=sender.may_chain,
        is_local=sender.is_local,
    )


def _report_bytes(report: PartialReport) -> int:
    return len(report.body)


def _load_in_order(merger: ReportMerger, stored_reports: _Found) -> int:
    """Load stored reports into a merger, the oldest first. Return the number of unreadable reports."""
    return merger.load_waiting_reports(sorted(stored_reports.values(), key=lambda report: report.at))
