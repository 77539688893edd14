"""
Timing of requests and deliveries: backoff, rate limits, order, and the workers of a route.

Timers are monotonic, so a change of the wall clock does not change a wait.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf

from exporters.errors import Misconfigured, Retryable
from spool.clock import Clock, elapsed_s
from spool.deliveries.rules import SUSPECT_AFTER
from spool.deliveries.values import PARKED, REFUSING, RUNNING, Delivery
from spool.log.protocols import RecordLog
from spool.turns.fair_turns import TokenBucket

# seconds; longest accepted Retry-After, because a later date comes from a wrong clock
LONGEST_HINT_S = 86_400.0

# While a destination rejects every record, the route tries up to this number of single records and more
# later. So a run of bad records cannot hide that the destination accepts other records.
MAX_SUSPECTS = 16
ANOTHER_SUSPECT_S = 600.0
CHECK_INTERVAL_S = 0.05  # seconds between two checks for a full delivery
# seconds after `release_committed_records` in which commits of other gateways may become known
FOLLOW_S = 2.0
DAY_S = 86400.0
DAY_ENDS_S = 600.0  # seconds after midnight UTC until the files of the previous day are written


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """
    Exponential delays from `first_s` to `most_s` seconds. Random jitter keeps gateways from retrying all at once.
    """

    first_s: float = 1.0
    most_s: float = 30.0

    def delay_s(self, failures: int, hint_s: float | None = None, *, chance: float | None = None) -> float:
        """
        Return the seconds to wait: at least `hint_s`, which the destination requested, but at most a day.

        `chance`, from 0 to 1, places the wait between half and all of a step that doubles with each failure.
        """
        step = min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1), 32))
        drawn = random.random() if chance is None else chance
        waiting = max(self.first_s, step * (0.5 + 0.5 * drawn))
        return max(waiting, min(hint_s or 0.0, LONGEST_HINT_S))


class RateLimiter:
    """A rate limit of `per_s` units per second on average, and of `burst` units at once."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._bucket = TokenBucket(clock, per_s=per_s, burst=burst)
        self._turn = asyncio.Lock()

    async def wait_and_take_units(self, n: int) -> None:
        """Wait until `n` units are available, and use them. Callers are served in order."""
        async with self._turn:
            amount = min(n, self._bucket.burst)
            while wait_s := self._bucket.wait_s(amount):  # noqa: ASYNC110 - it waits for time alone
                await asyncio.sleep(wait_s)
            self._bucket.remove_tokens(amount)

    def return_units(self, n: int) -> None:
        self._bucket.remove_tokens(-n)


class DeliveryOrder:
    """The order in a sequence: while one delivery waits, those with higher numbers wait as well."""

    def __init__(self) -> None:
        # first record numbers of waiting deliveries, by sequence of deliveries
        self._waiting: defaultdict[str, set[int]] = defaultdict(set)

    @contextmanager
    def hold_turn(self, sequence: str, delivery: Delivery) -> Iterator[None]:
        """
        Hold the delivery's turn in the block. Raises Retryable, before anything is sent, while an earlier
        delivery of the sequence waits. Replays do not wait.
        """
        waiting = self._waiting[sequence]
        if not delivery.replay and any(first < delivery.first for first in waiting):
            # From now on, later deliveries wait for this delivery, even if they become due first.
            waiting.add(delivery.first)
            raise Retryable("an earlier request must be accepted first", answered=False)
        try:
            yield
        except (Retryable, Misconfigured):
            waiting.add(delivery.first)
            raise
        except Exception:
            waiting.discard(delivery.first)
            raise
        waiting.discard(delivery.first)


class RouteThrottle:
    """The destination's latest responses, and which workers of a route may send after them."""

    def __init__(self, clock: Clock, backoff: Backoff) -> None:
        self.state = RUNNING
        # requests that began in the same round count as one failure
        self.round = 0
        self._clock = clock
        self._backoff = backoff
        self._epoch = clock.now() - clock.monotonic()
        self._failures = 0
        self._refusals = 0
        self._shown: str | None = None  # reason that operators see next to the state
        self._waits_until = 0.0
        # The time until which the destination's Retry-After lasts. A success of another delivery does
        # not shorten it.
        self._requested_wait_until = 0.0
        self._refusing_since = clock.monotonic()
        self._suspects: Counter[int] = Counter()  # number of errors per delivery id since the last success

    def now(self) -> float:
        """Return the wall-clock time at start plus the monotonic time since then (epoch seconds)."""
        return self._epoch + self._clock.monotonic()

    def wait_s(self, worker: int) -> float:
        """
        Return the seconds until the worker may send: 0 if it may now, inf if another worker must succeed
        first.
        """
        if worker > 0 and self._is_limited_to_one_worker():
            return inf
        return max(0.0, max(self._waits_until, self._requested_wait_until) - self._clock.monotonic())

    def max_suspect_deliveries(self) -> int:
        return MAX_SUSPECTS + int((self._clock.monotonic() - self._refusing_since) / ANOTHER_SUSPECT_S)

    def end_waits(self) -> None:
        self._waits_until = self._requested_wait_until = 0.0

    def note_success_and_check_recovery(self) -> bool:
        """Note an accepted delivery. Return whether the route was not running or showed a failure before."""
        recovered = self.state != RUNNING or self._shown is not None
        self.state = RUNNING
        self._failures = self._refusals = 0
        self._shown = None
        self._waits_until = 0.0
        self._suspects.clear()
        return recovered

    def count_suspect_delivery_failure(self, delivery_id: int) -> None:
        self._suspects[delivery_id] += 1

    def has_failed_often_enough_to_split(self, delivery: Delivery) -> bool:
        """
        Return whether a delivery has failed so often that its records may be at fault, so that it is to be
        split even if no other delivery has succeeded meanwhile.

        On a quiet route there may be no other delivery. If the destination is at fault, splitting costs
        little, because one request is sent at a time and each half must fail equally often.
        """
        return self._suspects[delivery.id] >= (1 if delivery.proven else SUSPECT_AFTER)

    def note_batch_rejection(self) -> None:
        """
        Note that a whole batch was rejected. Until a delivery is accepted, one request at a time searches for
        the record at fault.
        """
        self._refusals += 1

    def note_record_rejection(self) -> None:
        """
        Note that a record sent alone was rejected, and wait, because the destination may reject every record.
        """
        if self.state != REFUSING:
            self.state = REFUSING
            self._refusing_since = self._clock.monotonic()
            self._refusals = 0
        self._refusals += 1
        self._extend_wait(self._backoff.delay_s(self._refusals))

    def pause_route(self, seconds: float) -> None:
        self.state = PARKED
        self._extend_wait(seconds)

    def note_failure_and_return_is_new_reason(
        self, round_at_start: int, reason: str, *, requested_wait_s: float | None
    ) -> bool:
        """
        Note a failure without a response, or a response that requests a wait.

        Return whether operators should now see `reason`. The first failure delays nothing, because another
        delivery may succeed. After the second failure in a row, the route waits.
        """
        if round_at_start == self.round:
            self.round += 1
            self._failures += 1
            if self._failures > 1:
                self._extend_wait(self._backoff.delay_s(self._failures - 1))
        if requested_wait_s:
            asked_s = self._backoff.delay_s(1, requested_wait_s)
            self._requested_wait_until = max(self._requested_wait_until, self._clock.monotonic() + asked_s)
        if self._failures < 2 or reason == self._shown:
            return False
        self._shown = reason
        return True

    def _is_limited_to_one_worker(self) -> bool:
        return self.state != RUNNING or self._failures > 0 or self._refusals > 0

    def _extend_wait(self, seconds: float) -> None:
        self._waits_until = max(self._waits_until, self._clock.monotonic() + seconds)


class RouteSendDelay:
    """
    Delays the newest records of a route for up to `seconds`, because a request costs more than its records.

    Deliveries may contain record numbers lower than `sendable_below`. Records that are closed at the start do
    not wait.
    """

    def __init__(self, record_log: RecordLog, topic: str, *, seconds: float, max_records: int) -> None:
        self._log = record_log
        self._topic = topic
        self._seconds = seconds
        self._max_records = max_records
        self._below = record_log.lowest_open_number(topic)

    @property
    def sendable_below(self) -> int:
        return self._below if self._seconds else self._log.lowest_open_number(self._topic)

    async def first_unsendable_number_changes(self) -> AsyncIterator[int]:
        """
        Yield the number below which records may be sent, whenever the oldest record has waited long enough or
        a delivery is full.
        """
        async for closed in self._log.watermark_changes(self._topic):
            if not self._seconds or closed <= self._below:
                self._below = max(closed, self._below)
                yield self._below
            # The log reports each watermark once, so wait here for the records below it.
            while closed > self._below:
                self._below = max(await self._wait_for_more(), self._below)
                yield self._below

    def release_waiting_records(self) -> bool:
        """Let all closed records be sent now. Return False if none was waiting."""
        waited_from, self._below = self.sendable_below, self._log.lowest_open_number(self._topic)
        return self._below > waited_from

    async def _wait_for_more(self) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while (left_s := until - loop.time()) > 0:
            waiting = self._log.lowest_open_number(self._topic) - self._below
            if waiting >= self._max_records:
                return self._below + waiting // self._max_records * self._max_records
            await asyncio.sleep(min(left_s, CHECK_INTERVAL_S))
        return self._log.lowest_open_number(self._topic)


class DelayAfterCommit:
    """
    Delays records for up to `seconds` from their commit, so that neither a restart nor a stop writes a file
    early.

    A record waits at most until ten minutes after the end of its UTC day. `uncut` returns the lowest record
    number without a finished delivery.
    """

    def __init__(
        self,
        record_log: RecordLog,
        topic: str,
        clock: Clock,
        *,
        seconds: float,
        max_records: int,
        uncut: Callable[[], Awaitable[int]],
    ) -> None:
        self._log = record_log
        self._topic = topic
        self._clock = clock
        self._seconds = seconds
        self._max_records = max_records
        self._uncut = uncut
        self._hurried_below = 0
        self._hurried_at = -inf
        self.sendable_below = 0

    async def first_unsendable_number_changes(self) -> AsyncIterator[int]:
        async for _ in self._log.watermark_changes(self._topic):
            self.sendable_below = max(self.sendable_below, await self._uncut())
            while self._waiting_record_count() > 0:
                await self._wait_for_more(await self._oldest_waiting_commit_time())
                waiting = self._waiting_record_count()
                self.sendable_below += waiting // self._max_records * self._max_records or waiting
                yield self.sendable_below

    def release_committed_records(self) -> None:
        """Let the records committed so far be sent as soon as they are closed."""
        self._hurried_below = self._log.next_number(self._topic)
        self._hurried_at = self._clock.monotonic()

    async def _wait_for_more(self, committed_at: float) -> None:
        while (  # noqa: ASYNC110
            self._waiting_record_count() < self._max_records
            and not await self._check_waited_long_enough(committed_at)
        ):
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _waiting_record_count(self) -> int:
        return self._log.lowest_open_number(self._topic) - self.sendable_below

    async def _oldest_waiting_commit_time(self) -> float:
        entries = await self._log.read(self._topic, self.sendable_below, self.sendable_below)
        return entries[0].committed_at if entries else 0.0

    async def _check_waited_long_enough(self, oldest_committed_at: float) -> bool:
        if self._clock.monotonic() - self._hurried_at < FOLLOW_S:
            self._hurried_below = await self._log.newest_number(self._topic)
        day_ends_at = oldest_committed_at // DAY_S * DAY_S + DAY_S
        waits_s = min(self._seconds, day_ends_at + DAY_ENDS_S - oldest_committed_at)
        return (
            self.sendable_below < self._hurried_below
            or elapsed_s(oldest_committed_at, self._clock.now()) >= waits_s
        )

    def release_waiting_records(self) -> bool:
        """Do nothing and return False: waiting records are safe on disk."""
        return False


class RestingWorkers:
    """
    The idle workers of one route. Each signal wakes one worker, and a worker that finds work wakes the next.

    `may_work` returns whether the worker with a number may send now. Use this class only on the event loop.
    """

    def __init__(self, may_work: Callable[[int], bool]) -> None:
        self._may_work = may_work
        self._resting: dict[int, asyncio.Event] = {}
        # number of wake-ups that a worker may have missed because it was looking for work
        self.missed_wakeups = 0

    def wake_one(self) -> None:
        """
        Wake one idle worker that may send. If there is none, make workers that are looking for work look once
        more.
        """
        for worker in self._resting:
            if self._may_work(worker):
                self._resting.pop(worker).set()
                return
        self.missed_wakeups += 1

    def wake_all(self) -> None:
        self.missed_wakeups += 1
        for woken in self._resting.values():
            woken.set()
        self._resting.clear()

    async def rest_until_woken(self, worker: int, seconds: float, *, missed_wakeups: int) -> None:
        """
        Wait until woken, at most for some seconds. Return at once if there was a signal since
        `missed_wakeups` was read.
        """
        if missed_wakeups != self.missed_wakeups:
            return
        woken = self._resting[worker] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await woken.wait()
        finally:
            self._resting.pop(worker, None)
