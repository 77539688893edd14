"""
Group commit: submissions that wait together are committed together. Only behind a group of several is there a
short wait for more: a lone sender never waits for a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from spool.errors import SpoolError, SpoolUnavailable
from spool.log.planning.plan import Answer
from spool.log.values import Receipt, Submission
from spool.turns.fair_turns import FAR_LESS, Party, current_work

GROUP_RECORDS = 16_384  # four entries: more would make those who wait behind it wait too long
SHARE_RECORDS = 128  # of them for one party, while others were heard of lately; one submission may have more
SUBMISSION_S, RECORD_S = 5e-5, 1e-5  # of processor time that a commit takes for each, about
SUBMISSION_WEIGHT = 5  # a submission is as much work as five more records
# The same beside one that used less, in every other group: a submission of 32 records, or six of one.
BESIDE_WEIGHT = 32 + SUBMISSION_WEIGHT
GROWS_BY = 8  # the part of itself by which a group may be larger than the one before
# Behind a group of parties of which each used far more than one that had something lately: so many times its
# duration until the next such group, so that who comes next seldom waits for a running one; or until that one
# had something, because then it seldom has more at once.
REST = 8.0
MOST_REST_S = 0.03
TICK_S = 1.0  # between looks at a log that is not well
TOGETHER_S = 0.05  # what is late by less is refused together

_log = logging.getLogger(__name__)

CommitGroup = Callable[[Sequence[Submission]], Awaitable[Sequence[Answer]]]


class _WaitingSubmission(NamedTuple):
    submission: Submission
    receipt: asyncio.Future[Receipt]
    until: float  # it is refused when its group has not begun by then
    party: Party | None  # whose request it is of; None: the gateway's own
    records: int


class Overtaken(Exception):
    """Nothing of the group was kept: it goes behind one of a party that used far less."""


class IndexOutOfStep(Exception):
    """The group is durable but the in-memory index was not updated: what comes next could be kept twice."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__("a commit is durable, but the in-memory index was not updated")
        self.answers = answers


class GroupWriter:
    """
    One task that takes all submissions that wait, commits them together and answers each.

    `between` runs after every group, and every second while it answers True. A disk that does not answer
    holds up the running group only: what has waited `wait_s` for it, or would be beyond `max_waiting`, is
    refused and not kept. `answers_in_time`: a running group is refused after that time, too, and may be kept
    nevertheless. `keeper` is who does not answer then, for the sender.

    From the beginning of a group of several to the next one at least `gather_s` pass: where submissions come
    that close, more of them share a transaction and its flush.

    What cannot be kept is repeated by its senders, all at once: behind a group that failed the next is half
    as large, so that on a slow way to the keeper one ends in time. Behind one that was kept and for which
    others had to wait it may be larger by an eighth: on a way that stays slow few fail.
    """

    def __init__(
        self,
        commit: CommitGroup,
        between: Callable[[], Awaitable[bool]],
        *,
        gather_s: float = 0.0,
        wait_s: float = 10.0,
        max_waiting: int = 10_000,
        answers_in_time: bool = False,
        keeper: str = "the disk",
    ) -> None:
        self._commit = commit
        self._between = between
        self._answers_in_time = answers_in_time
        self._keeper = keeper
        self._gather_s = gather_s
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0  # the next group
        # what was used by those that wait for it, or by those of the running group if it may give way
        self._least = 0.0
        # the running group may give way, and is to: who commits it raises Overtaken, before anything is kept
        self.may_give_way = self.is_overtaken = False
        self._much = 0.0  # what each party of the running group used at least; 0 if that is not much
        self._gave_way = False  # such a group gave way, and none was kept since
        self._most = GROUP_RECORDS  # in the next group
        self._lighter = asyncio.Event()  # somebody submitted who used far less than all that wait
        # the next group without one that used far less than those of the last such group
        self._heavy_not_before = 0.0
        self._passed_over = False  # somebody had more for the group before than fits beside another
        self._began: float | None = None  # the running group, or the upkeep behind it
        self._waiting: deque[_WaitingSubmission] = deque()
        self._in_hand: Sequence[_WaitingSubmission] = ()
        self._timer: asyncio.TimerHandle | None = None  # one for all: most are taken long before
        self._somebody = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="group commit")
        self._task.add_done_callback(self._ended)

    @property
    def alive(self) -> bool:
        return not self._task.done()

    @property
    def died(self) -> bool:
        """True if the task ended by anything but `close`."""
        return self._task.done() and (self._task.cancelled() or self._task.exception() is not None)

    @property
    def waiting(self) -> int:
        """Submissions behind the running group."""
        return len(self._waiting)

    @property
    def in_hand_s(self) -> float:
        """Return how long the pending group has taken so far; 0 between groups."""
        return 0.0 if self._began is None else self._loop.time() - self._began

    async def append(self, submission: Submission) -> Receipt:
        """
        Returns after the flush that holds the submission.

        A caller that is cancelled before its group began takes it back whole; after that it is kept whole.
        SpoolUnavailable when the disk does not answer in time: nothing was kept.
        """
        if self._closing.is_set():
            raise SpoolUnavailable("the log is closing")
        if self._task.done():
            raise SpoolUnavailable("what commits has ended")
        work = current_work()
        party = None if work is None else work.party
        if len(self._waiting) >= self._max_waiting and not self._make_room(party):
            raise self._full()
        now = self._loop.time()
        if self._began is not None and now - self._began > self._wait_s:
            raise SpoolUnavailable(f"{self._keeper} does not answer (spool.commit_wait)")
        receipt: asyncio.Future[Receipt] = self._loop.create_future()
        until = now + self._wait_s
        if party is not None:
            party.turns.submits(party)
        if (0.0 if party is None else party.used) < self._least / FAR_LESS:
            self._lighter.set()
            self.is_overtaken = True
        self._waiting.append(_WaitingSubmission(submission, receipt, until, party, _items(submission)))
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._refuse_late)
        self._somebody.set()
        return await receipt

    async def close(self) -> None:
        """Commit all that wait, then stop."""
        self._closing.set()
        self._lighter.set()
        self._somebody.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        again = False
        while self._waiting or not self._closing.is_set():
            await self._wait(TICK_S if again else None)
            if self._not_before or self._heavy_not_before:
                await self._gather()
            self._in_hand = self._take()
            self._began = self._loop.time()
            self._not_before = 0.0
            if self._in_hand:
                self._much = min(map(_used, self._in_hand))
                self._least = 0.0 if self._gave_way else self._much
                self.may_give_way, self.is_overtaken = self._least > 0, False
                await self._answer(self._in_hand)
                self._least = 0.0
                self._rest(self._loop.time() - self._began)
            try:
                again = await self._between()
            except Exception:  # noqa: BLE001 - the one task that commits must outlive whatever its upkeep meets
                _log.exception("upkeep between commits failed", extra={"action": "upkeep_failed"})
                again = True
            self._began = None

    def _rest(self, took_s: float) -> None:
        """Say when the next group may begin, behind the running one."""
        assert self._began is not None
        if self._is_heavy(self._in_hand):
            self._heavy_not_before = self._loop.time() + min(MOST_REST_S, REST * took_s)
        else:
            self._heavy_not_before = 0.0
            self._not_before = self._began + self._gather_s if len(self._in_hand) > 1 else 0.0

    async def _wait(self, timeout_s: float | None) -> None:
        if self._waiting or self._closing.is_set():
            return
        self._somebody.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._somebody.wait()
        except TimeoutError:
            return

    async def _gather(self) -> None:
        not_before = max(self._not_before, self._heavy_not_before)
        if not self._waiting or not_before <= self._loop.time():
            return
        if self._not_before < not_before and not self._is_heavy(self._waiting):
            not_before = self._not_before
        rest_s = not_before - self._loop.time()
        if rest_s > 0 and not self._closing.is_set():
            self._lighter.clear()
            self._least = min(map(_used, self._waiting))
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._lighter.wait()
            self._least = 0.0

    def _is_heavy(self, group: Sequence[_WaitingSubmission]) -> bool:
        """True if a party that used far less than all in the group may submit at any moment."""
        first = group[0].party
        if first is None or not first.turns.commits_are_shared:
            return False
        return first.turns.expects_lighter(min(map(_used, group)))

    def _take(self) -> list[_WaitingSubmission]:
        """The next group: what waits of parties that used less comes first, that of one party in its order."""
        if len(self._waiting) == 1 and not self._waiting[0].receipt.done():  # a lone sender
            self._passed_over = False
            return [self._waiting.popleft()]
        waiting = [one for one in self._waiting if not one.receipt.done()]
        if len({one.party for one in waiting}) > 1:
            waiting.sort(key=_used)
        group = list[_WaitingSubmission]()
        left = list[_WaitingSubmission]()
        by_party: Counter[Party | None] = Counter()
        full: set[Party | None] = set()
        records = 0
        is_little = not self._passed_over
        self._passed_over = False
        for one in waiting:
            is_beside = is_little and bool(group) and one.party is not group[0].party and _used(one) > 0
            weight = one.records + is_beside * SUBMISSION_WEIGHT
            share = BESIDE_WEIGHT if is_beside else SHARE_RECORDS
            is_bounded = one.party is not None and one.party.turns.commits_are_shared
            is_over = is_bounded and by_party[one.party] + weight > share
            self._passed_over |= is_over and is_beside
            if one.party in full or (group and (is_over or records + one.records > self._most)):
                full.add(one.party)
                left.append(one)
                continue
            group.append(one)
            records += one.records
            by_party[one.party] += weight
        self._waiting = deque(sorted(left, key=_until))
        return group

    async def _answer(self, group: Sequence[_WaitingSubmission]) -> None:
        left_some = bool(self._waiting)  # else a larger group was not wanted
        try:
            answers = await self._commit([one.submission for one in group])
        except SpoolError as error:
            if isinstance(error, SpoolUnavailable):
                self._most = max(1, min(self._most, _records(group)) // 2)
            for one in group:
                _fail(one.receipt, error)
        except Overtaken:
            self._give_way(group)
        except IndexOutOfStep as error:
            _answer(group, error.answers)
            raise  # the end of this task: the next start reads from the disk what is known
        except Exception as error:  # noqa: BLE001 - one that cannot be packed must not fail its neighbours
            if len(group) == 1:
                _fail(group[0].receipt, error)
            else:
                for one in group:
                    await self._answer([one])
        else:
            if left_some:
                self._grow(_records(group))
            self._gave_way &= not self._much
            _charge(group)
            _answer(group, answers)

    def _give_way(self, group: Sequence[_WaitingSubmission]) -> None:
        """The group waits again, as if it had not begun."""
        self._gave_way = True
        self._waiting = deque(sorted((*group, *self._waiting), key=_until))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._waiting[0].until, self._refuse_late)

    def _grow(self, kept: int) -> None:
        most = max(self._most, kept)
        self._most = min(GROUP_RECORDS, most + max(1, most // GROWS_BY))

    def _full(self) -> SpoolUnavailable:
        return SpoolUnavailable(f"{len(self._waiting)} submissions wait already (spool.waiting_submissions)")

    def _make_room(self, newcomer: Party | None) -> bool:
        """Refuse the newest of the party that has the most waiting, unless that is the newcomer's own."""
        counts = Counter(one.party for one in self._waiting)
        ((most, count),) = counts.most_common(1)
        if counts[newcomer] + 1 >= count:
            return False
        newest = max(place for place, one in enumerate(self._waiting) if one.party is most)
        _fail(self._waiting[newest].receipt, self._full())
        del self._waiting[newest]
        return True

    def _refuse_late(self) -> None:
        """Refuse what has waited for too long, and look again when the next one will have."""
        now = self._loop.time()
        late = f"{self._keeper} did not answer in time (spool.commit_wait)"
        while self._waiting and self._waiting[0].until <= now:
            _fail(self._waiting.popleft().receipt, SpoolUnavailable(late))
        ends = [self._waiting[0].until] if self._waiting else []
        if self._answers_in_time:
            for one in self._in_hand:
                if one.until <= now:
                    _fail(one.receipt, SpoolUnavailable(f"{late}: what was sent may be kept"))
                elif not one.receipt.done():
                    ends.append(one.until)
        again_at = max(min(ends), now + TOGETHER_S) if ends else None
        self._timer = self._loop.call_at(again_at, self._refuse_late) if again_at else None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fail what still waits; health reports that the task has ended."""
        if self._timer is not None:
            self._timer.cancel()
        error = None if task.cancelled() else task.exception()
        if not self._closing.is_set():
            name = type(error.__cause__ or error).__name__ if error else None
            _log.critical("the task that commits has ended", extra={"action": "writer_died", "error": name})
        for one in (*self._in_hand, *self._waiting):
            _fail(one.receipt, SpoolUnavailable("what commits has ended"))


def _items(submission: Submission) -> int:
    """Return the number of items that are kept: records, and what waits to become some."""
    return len(submission.records) + len(submission.points) + max(0, submission.pending)


def _used(one: _WaitingSubmission) -> float:
    """Return what the party of a submission used lately; 0 if that is little: such parties are alike."""
    return 0.0 if one.party is None or one.party.is_little else one.party.used


def _until(one: _WaitingSubmission) -> float:
    return one.until


def _charge(group: Sequence[_WaitingSubmission]) -> None:
    """Charge each party with its part of the work; not of the time, most of which may be the wait for the disk."""
    for one in group:
        if one.party is not None:
            one.party.spend(SUBMISSION_S + one.records * RECORD_S)


def _records(group: Sequence[_WaitingSubmission]) -> int:
    return sum(one.records for one in group)


def _answer(group: Sequence[_WaitingSubmission], answers: Sequence[Answer]) -> None:
    for one, answer in zip(group, answers, strict=True):
        if isinstance(answer, Receipt):
            if not one.receipt.done():
                one.receipt.set_result(answer)
        else:
            _fail(one.receipt, answer)


def _fail(receipt: asyncio.Future[Receipt], error: Exception) -> None:
    if not receipt.done():
        receipt.set_exception(error)
