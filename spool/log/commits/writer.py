"""
Group commit: submissions that wait at the same time are committed together.

After a group of several submissions, the next group waits a moment for more. A sender without others never
waits.

A party is a key, a person or an address. Its use is its recent processor time (`spool.turns.fair_turns`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from spool.errors import SpoolError, SpoolUnavailable
from spool.log.planning.plan import PlanAnswer
from spool.log.values import Receipt, Submission
from spool.turns.fair_turns import FAR_LESS, FairTurnParty, current_work

# Maximum records in a group, in four entries. A larger group would delay the next group too long.
GROUP_RECORDS = 16_384
# records of one party (a key, person or address) in a group while others are active; a single submission may
# have more
SHARE_RECORDS = 128
SUBMISSION_S, RECORD_S = 5e-5, 1e-5  # estimated processor time of a submission and of a record, in seconds
SUBMISSION_WEIGHT = 5  # a submission costs as much time as this number of records, besides its own
# Maximum weight that a party adds to a group that begins with a party of less use: one submission of 32 records,
# or six of one record. After a group that left out submissions because of this limit, one group is without it.
BESIDE_WEIGHT = 32 + SUBMISSION_WEIGHT
GROWS_BY = 8  # a group grows by at most 1/GROWS_BY
# Pause after a group whose parties all used far more than another active party, as a multiple of the group's
# duration. So a submission of the lighter party seldom waits. Its submission ends the pause, because a second
# one seldom follows at once.
REST = 8.0
MOST_REST_S = 0.03
TICK_S = 1.0  # seconds between upkeep runs while the log has a problem
TOGETHER_S = 0.05  # submissions with deadlines within these seconds are refused together

_log = logging.getLogger(__name__)

CommitGroup = Callable[[Sequence[Submission]], Awaitable[Sequence[PlanAnswer]]]


class _WaitingSubmission(NamedTuple):
    submission: Submission
    receipt: asyncio.Future[Receipt]
    until: float  # if its group has not begun at this time, the submission is refused
    party: FairTurnParty | None  # None for submissions of the gateway itself
    records: int


class GroupOvertaken(Exception):
    """Raised if a group of submissions was not stored, because a party with far less use goes first."""


class IndexOutOfStep(Exception):
    """
    Raised if the group is durable but the index in memory was not updated, so that further commits could
    store duplicates.
    """

    def __init__(self, answers: Sequence[PlanAnswer]) -> None:
        super().__init__("a commit is durable, but the index in memory was not updated")
        self.answers = answers


class GroupCommitWriter:
    """
    A task that commits waiting submissions in groups.

    `run_upkeep` runs after every group, and every second while it returns True.

    If the disk does not respond, only the running group is blocked. A submission that has waited `wait_s`
    seconds, or that exceeds `max_waiting`, is refused and not stored. With `answers_in_time`, the running
    group is refused as well, although it may still be stored. `storage_name`: name of the storage in these errors.

    The group after a group of several submissions begins at least `gather_s` seconds later, so that
    submissions in quick succession share a flush.

    If a group fails because the storage is unavailable, the next group is half as large: all senders repeat
    at once, and a small group can finish over a slow connection. If submissions still wait after a stored
    group, the next group may be larger by an eighth.
    """

    def __init__(
        self,
        commit: CommitGroup,
        run_upkeep: Callable[[], Awaitable[bool]],
        *,
        gather_s: float = 0.0,
        wait_s: float = 10.0,
        max_waiting: int = 10_000,
        answers_in_time: bool = False,
        storage_name: str = "the disk",
    ) -> None:
        self._commit = commit
        self._between = run_upkeep
        self._answers_in_time = answers_in_time
        self._keeper = storage_name
        self._gather_s = gather_s
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0  # monotonic time before which no group begins
        # lowest use among the waiting parties, or in the running group if it may give way
        self._least = 0.0
        # Whether the running group may give way to a party with less use, and whether it should. If it
        # should, its commit raises GroupOvertaken before it stores anything.
        self.may_give_way = self.is_overtaken = False
        self._much = 0.0  # lowest use of a party in the running group, 0 if it is small
        self._gave_way = False  # a group gave way, and none of parties with much use was stored since
        self._most = GROUP_RECORDS  # limit of records in the next group
        # set when a party submits that used far less than all that wait
        self._lighter = asyncio.Event()
        # monotonic time before which no group of parties with much use begins
        self._heavy_not_before = 0.0
        # whether BESIDE_WEIGHT kept submissions out of the last group
        self._passed_over = False
        self._began: float | None = None  # start of the running group or the upkeep after it
        self._waiting: deque[_WaitingSubmission] = deque()
        self._in_hand: Sequence[_WaitingSubmission] = ()
        # one timer for all, because most submissions are committed long before their deadline
        self._timer: asyncio.TimerHandle | None = None
        self._somebody = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._commit_until_closed(), name="group commit")
        self._task.add_done_callback(self._fail_waiting)

    @property
    def is_alive(self) -> bool:
        return not self._task.done()

    @property
    def has_died(self) -> bool:
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_s(self) -> float:
        """Return for how many seconds the current group or upkeep has run, 0 between groups."""
        return 0.0 if self._began is None else self._loop.time() - self._began

    async def append_submission(self, submission: Submission) -> Receipt:
        """
        Store a submission with the next group. Return the receipt after the flush.

        If the caller is cancelled before the group begins, nothing is stored; later, the whole submission is
        stored. Raises SpoolUnavailable if the disk does not respond in time. Then nothing was stored, unless
        the message says otherwise.
        """
        if self._closing.is_set():
            raise SpoolUnavailable("the log is closing. Retry after the restart")
        if self._task.done():
            raise SpoolUnavailable("the task that writes to disk has ended. Restart Tollhouse")
        work = current_work()
        party = None if work is None else work.party
        if len(self._waiting) >= self._max_waiting and not self._refuse_newest_of_busiest(party):
            raise self._queue_full_error()
        now = self._loop.time()
        if self._began is not None and now - self._began > self._wait_s:
            raise SpoolUnavailable(f"{self._keeper} does not respond (spool.commit_wait)")
        receipt: asyncio.Future[Receipt] = self._loop.create_future()
        until = now + self._wait_s
        if party is not None:
            party.turns.note_submission(party)
        if (0.0 if party is None else party.used) < self._least / FAR_LESS:
            self._lighter.set()
            self.is_overtaken = True
        self._waiting.append(_WaitingSubmission(submission, receipt, until, party, _item_count(submission)))
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._refuse_late_submissions)
        self._somebody.set()
        return await receipt

    async def close(self) -> None:
        self._closing.set()
        self._lighter.set()
        self._somebody.set()
        await asyncio.wait([self._task])

    async def _commit_until_closed(self) -> None:
        has_more = False
        while self._waiting or not self._closing.is_set():
            await self._wait_for_submission(TICK_S if has_more else None)
            if self._not_before or self._heavy_not_before:
                await self._wait_for_group()
            self._in_hand = self._take_next_group()
            self._began = self._loop.time()
            self._not_before = 0.0
            if self._in_hand:
                self._much = min(map(_recent_processor_time, self._in_hand))
                self._least = 0.0 if self._gave_way else self._much
                self.may_give_way, self.is_overtaken = self._least > 0, False
                await self._commit_and_answer(self._in_hand)
                self._least = 0.0
                self._set_earliest_start_of_next_group(self._loop.time() - self._began)
            try:
                has_more = await self._between()
            except Exception:  # noqa: BLE001 - the only task that commits must survive any error of its upkeep
                _log.exception("upkeep between commits failed", extra={"action": "upkeep_failed"})
                has_more = True
            self._began = None

    def _set_earliest_start_of_next_group(self, commit_duration_s: float) -> None:
        assert self._began is not None
        if self._is_heavy(self._in_hand):
            self._heavy_not_before = self._loop.time() + min(MOST_REST_S, REST * commit_duration_s)
        else:
            self._heavy_not_before = 0.0
            self._not_before = self._began + self._gather_s if len(self._in_hand) > 1 else 0.0

    async def _wait_for_submission(self, timeout_s: float | None) -> None:
        if self._waiting or self._closing.is_set():
            return
        self._somebody.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._somebody.wait()
        except TimeoutError:
            return

    async def _wait_for_group(self) -> None:
        not_before = max(self._not_before, self._heavy_not_before)
        if not self._waiting or not_before <= self._loop.time():
            return
        if self._not_before < not_before and not self._is_heavy(self._waiting):
            not_before = self._not_before
        rest_s = not_before - self._loop.time()
        if rest_s > 0 and not self._closing.is_set():
            self._lighter.clear()
            self._least = min(map(_recent_processor_time, self._waiting))
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._lighter.wait()
            self._least = 0.0

    def _is_heavy(self, group: Sequence[_WaitingSubmission]) -> bool:
        first = group[0].party
        if first is None or not first.turns.commits_are_shared:
            return False
        return first.turns.has_party_with_far_less_use_submitted_lately(
            min(map(_recent_processor_time, group))
        )

    def _take_next_group(self) -> list[_WaitingSubmission]:
        """
        Remove the next group from the queue. Parties with less use are first, and each party's submissions
        stay in order.
        """
        # a single submission needs no sharing of the group among parties
        if len(self._waiting) == 1 and not self._waiting[0].receipt.done():
            self._passed_over = False
            return [self._waiting.popleft()]
        waiting = [waiter for waiter in self._waiting if not waiter.receipt.done()]
        if len({waiter.party for waiter in waiting}) > 1:
            waiting.sort(key=_recent_processor_time)
        group = list[_WaitingSubmission]()
        remaining = list[_WaitingSubmission]()
        by_party: Counter[FairTurnParty | None] = Counter()
        full: set[FairTurnParty | None] = set()
        records = 0
        is_little = not self._passed_over
        self._passed_over = False
        for waiter in waiting:
            is_beside = (
                is_little
                and bool(group)
                and waiter.party is not group[0].party
                and _recent_processor_time(waiter) > 0
            )
            weight = waiter.records + is_beside * SUBMISSION_WEIGHT
            share = BESIDE_WEIGHT if is_beside else SHARE_RECORDS
            is_bounded = waiter.party is not None and waiter.party.turns.commits_are_shared
            is_over = is_bounded and by_party[waiter.party] + weight > share
            self._passed_over |= is_over and is_beside
            if waiter.party in full or (group and (is_over or records + waiter.records > self._most)):
                full.add(waiter.party)
                remaining.append(waiter)
                continue
            group.append(waiter)
            records += waiter.records
            by_party[waiter.party] += weight
        self._waiting = deque(sorted(remaining, key=_wait_deadline))
        return group

    async def _commit_and_answer(self, group: Sequence[_WaitingSubmission]) -> None:
        left_some = bool(self._waiting)  # without waiting submissions, a larger group is not needed
        try:
            answers = await self._commit([waiter.submission for waiter in group])
        except SpoolError as error:
            if isinstance(error, SpoolUnavailable):
                self._most = max(1, min(self._most, _record_count(group)) // 2)
            for waiter in group:
                _set_error(waiter.receipt, error)
        except GroupOvertaken:
            self._requeue_group(group)
        except IndexOutOfStep as error:
            _set_answers(group, error.answers)
            raise  # ends this task; the next start loads the index from disk
        except Exception as error:  # noqa: BLE001 - a submission that cannot be encoded must not fail the others
            if len(group) == 1:
                _set_error(group[0].receipt, error)
            else:
                for waiter in group:
                    await self._commit_and_answer([waiter])
        else:
            if left_some:
                self._raise_limit_of_records_per_group(_record_count(group))
            self._gave_way &= not self._much
            _charge_processor_time(group)
            _set_answers(group, answers)

    def _requeue_group(self, group: Sequence[_WaitingSubmission]) -> None:
        self._gave_way = True
        self._waiting = deque(sorted((*group, *self._waiting), key=_wait_deadline))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._waiting[0].until, self._refuse_late_submissions)

    def _raise_limit_of_records_per_group(self, committed_record_count: int) -> None:
        limit = max(self._most, committed_record_count)
        self._most = min(GROUP_RECORDS, limit + max(1, limit // GROWS_BY))

    def _queue_full_error(self) -> SpoolUnavailable:
        return SpoolUnavailable(
            f"{len(self._waiting)} submissions are already waiting, which is the limit "
            "(spool.waiting_submissions)"
        )

    def _refuse_newest_of_busiest(self, newcomer: FairTurnParty | None) -> bool:
        """
        Refuse the newest submission of the party with the most waiting submissions. Return False, without
        refusing any, if `newcomer` is that party.
        """
        counts = Counter(waiter.party for waiter in self._waiting)
        ((busiest_party, count),) = counts.most_common(1)
        if counts[newcomer] + 1 >= count:
            return False
        newest = max(index for index, waiter in enumerate(self._waiting) if waiter.party is busiest_party)
        _set_error(self._waiting[newest].receipt, self._queue_full_error())
        del self._waiting[newest]
        return True

    def _refuse_late_submissions(self) -> None:
        now = self._loop.time()
        late = f"{self._keeper} did not respond in time (spool.commit_wait)"
        while self._waiting and self._waiting[0].until <= now:
            _set_error(self._waiting.popleft().receipt, SpoolUnavailable(late))
        ends = [self._waiting[0].until] if self._waiting else []
        if self._answers_in_time:
            for waiter in self._in_hand:
                if waiter.until <= now:
                    _set_error(
                        waiter.receipt, SpoolUnavailable(f"{late}. The records may be stored nevertheless")
                    )
                elif not waiter.receipt.done():
                    ends.append(waiter.until)
        again_at = max(min(ends), now + TOGETHER_S) if ends else None
        self._timer = self._loop.call_at(again_at, self._refuse_late_submissions) if again_at else None

    def _fail_waiting(self, task: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        error = None if task.cancelled() else task.exception()
        if not self._closing.is_set():
            name = type(error.__cause__ or error).__name__ if error else None
            _log.critical(
                "the task that writes to disk has ended, so nothing more can be stored. Restart Tollhouse",
                extra={"action": "writer_died", "error": name},
            )
        for waiter in (*self._in_hand, *self._waiting):
            _set_error(
                waiter.receipt, SpoolUnavailable("the task that writes to disk has ended. Restart Tollhouse")
            )


def _item_count(submission: Submission) -> int:
    return len(submission.records) + len(submission.points) + max(0, submission.pending)


def _recent_processor_time(waiter: _WaitingSubmission) -> float:
    """
    Return the use of the waiter's party. A small use counts as 0, so that parties with little use are equal.
    """
    return 0.0 if waiter.party is None or waiter.party.has_little_use else waiter.party.used


def _wait_deadline(waiter: _WaitingSubmission) -> float:
    return waiter.until


def _charge_processor_time(group: Sequence[_WaitingSubmission]) -> None:
    """
    Charge the processor time of a group to its parties. Elapsed time would be unfair, because most of it is
    spent waiting for the disk.
    """
    for waiter in group:
        if waiter.party is not None:
            waiter.party.charge_time(SUBMISSION_S + waiter.records * RECORD_S)


def _record_count(group: Sequence[_WaitingSubmission]) -> int:
    return sum(waiter.records for waiter in group)


def _set_answers(group: Sequence[_WaitingSubmission], answers: Sequence[PlanAnswer]) -> None:
    for waiter, answer in zip(group, answers, strict=True):
        if isinstance(answer, Receipt):
            if not waiter.receipt.done():
                waiter.receipt.set_result(answer)
        else:
            _set_error(waiter.receipt, answer)


def _set_error(receipt: asyncio.Future[Receipt], error: Exception) -> None:
    if not receipt.done():
        receipt.set_exception(error)
