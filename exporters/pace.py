"""
When a request may leave: the wait after failures, and the rate and order that a destination wants; and when the
deliveries of one route leave: what the answers mean for its workers, how long the newest records wait for others to
leave with them, and which worker wakes.

The throttle is pure except for the clock. Timers are monotonic: a step of the wall clock changes no wait.
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
from spool.log.protocols import Log
from spool.turns.fair_turns import TokenBucket

LONGEST_HINT_S = 86_400.0  # a date further away comes from a wrong clock

# While everything is refused, that many single records are tried; one more for every ten minutes of it, so
# that no run of bad records, however long, can hide that the destination takes others.
MAX_SUSPECTS = 16
ANOTHER_SUSPECT_S = 600.0
LOOK_S = 0.05  # whether there is a whole delivery by now
FOLLOW_S = 2.0  # for so long after a request to hurry, commits of other gateways may become known here
DAY_S = 86400.0
DAY_ENDS_S = 600.0  # after midnight, UTC: then the files of the day before are made


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential from `first_s` to `most_s`, with jitter so that gateways do not return all at once."""

    first_s: float = 1.0
    most_s: float = 30.0

    def delay_s(self, failures: int, hint_s: float | None = None, *, chance: float | None = None) -> float:
        """
        The wait after `failures` (at least 1) failures in a row, at least as long as the destination asked for.

        `chance` from 0 to 1 is drawn when not given: the wait lies between half and the whole of the step.
        """
        step = min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1), 32))
        drawn = random.random() if chance is None else chance
        waiting = max(self.first_s, step * (0.5 + 0.5 * drawn))
        return max(waiting, min(hint_s or 0.0, LONGEST_HINT_S))


class Pace:
    """At most `per_s` a second over time, and `burst` at once."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._bucket = TokenBucket(clock, per_s=per_s, burst=burst)
        self._turn = asyncio.Lock()

    async def take(self, n: int) -> None:
        """Wait until n may be sent, in the order of the calls."""
        async with self._turn:
            wanted = min(n, self._bucket.burst)
            while wait_s := self._bucket.wait_s(wanted):  # noqa: ASYNC110 - it waits for time alone
                await asyncio.sleep(wait_s)
            self._bucket.charge(wanted)

    def give_back(self, n: int) -> None:
        """Return what was waited for and not sent."""
        self._bucket.charge(-n)


class InOrder:
    """Keeps the deliveries of a sequence in order: while one waits, those with later numbers wait too."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[int]] = defaultdict(set)  # by sequence, the first numbers

    @contextmanager
    def turn(self, sequence: str, delivery: Delivery) -> Iterator[None]:
        """A context around sending. Retryable, before anything is sent, while an earlier delivery waits."""
        waiting = self._waiting[sequence]
        if not delivery.replay and any(first < delivery.first for first in waiting):
            waiting.add(delivery.first)  # later ones wait for this one too, whichever is due first
            raise Retryable("an earlier request must arrive first", answered=False)
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
    """Which workers may send, by what the answers so far mean for the route as a whole."""

    def __init__(self, clock: Clock, backoff: Backoff) -> None:
        self.state = RUNNING
        self.round = 0  # failures that began in the same round are one failure
        self._clock = clock
        self._backoff = backoff
        self._epoch = clock.now() - clock.monotonic()
        self._failures = 0
        self._refusals = 0
        self._shown: str | None = None  # the reason that operators see beside the state
        self._waits_until = 0.0
        self._asked_until = 0.0  # by the destination: another delivery's success does not shorten it
        self._refusing_since = clock.monotonic()
        self._suspects: Counter[int] = Counter()  # errors of each delivery since the last success, by id

    def now(self) -> float:
        """Seconds since the epoch as of start, moved on by the monotonic clock."""
        return self._epoch + self._clock.monotonic()

    def rest_s(self, place: int) -> float:
        """Return how long the worker at a place waits: 0 if it may send, inf if another worker must succeed first."""
        if place > 0 and self._is_narrow():
            return inf
        return max(0.0, max(self._waits_until, self._asked_until) - self._clock.monotonic())

    def max_suspects(self) -> int:
        return MAX_SUSPECTS + int((self._clock.monotonic() - self._refusing_since) / ANOTHER_SUSPECT_S)

    def open(self) -> None:
        """End every wait; the state stays."""
        self._waits_until = self._asked_until = 0.0

    def succeed(self) -> bool:
        """A record was accepted. True if the route was not running or had failed."""
        recovered = self.state != RUNNING or self._shown is not None
        self.state = RUNNING
        self._failures = self._refusals = 0
        self._shown = None
        self._waits_until = 0.0
        self._suspects.clear()
        return recovered

    def suspect(self, delivery: int) -> None:
        """A delivery met an error that it may be the cause of."""
        self._suspects[delivery] += 1

    def is_suspect(self, delivery: Delivery) -> bool:
        """
        True if a delivery met so many errors that it is tried in halves, though nothing else passed meanwhile.

        On a quiet route nothing ever passes beside it. Where the destination is to blame, halving costs
        little: one request goes out at a time, and the halves must meet as many errors again. Where the other
        half passed, one error is enough.
        """
        return self._suspects[delivery.id] >= (1 if delivery.proven else SUSPECT_AFTER)

    def search(self) -> None:
        """A batch was refused: until one is accepted, one request at a time looks for the record at fault."""
        self._refusals += 1

    def refuse(self) -> None:
        """A single record was refused and nothing proves that others are not."""
        if self.state != REFUSING:
            self.state = REFUSING
            self._refusing_since = self._clock.monotonic()
            self._refusals = 0
        self._refusals += 1
        self._wait_for(self._backoff.delay_s(self._refusals))

    def park(self, seconds: float) -> None:
        self.state = PARKED
        self._wait_for(seconds)

    def fail(self, began: int, words: str, *, hint_s: float | None) -> bool:
        """
        Note a failure without an answer, or with one that asks to wait. True if operators should see `words`
        as the reason.

        The first failure delays nothing: another delivery may pass. The second in a row does.
        """
        if began == self.round:
            self.round += 1
            self._failures += 1
            if self._failures > 1:
                self._wait_for(self._backoff.delay_s(self._failures - 1))
        if hint_s:
            asked_s = self._backoff.delay_s(1, hint_s)
            self._asked_until = max(self._asked_until, self._clock.monotonic() + asked_s)
        if self._failures < 2 or words == self._shown:
            return False
        self._shown = words
        return True

    def _is_narrow(self) -> bool:
        return self.state != RUNNING or self._failures > 0 or self._refusals > 0

    def _wait_for(self, seconds: float) -> None:
        self._waits_until = max(self._waits_until, self._clock.monotonic() + seconds)


class Linger:
    """
    Lets the newest records wait for others, because a request costs more than its records. `below` is the number
    below which deliveries may be cut; what is closed when it is made may leave at once.

    Timers are those of the event loop: no step of a clock changes a wait.
    """

    def __init__(self, log: Log, topic: str, *, seconds: float, max_records: int) -> None:
        self._log = log
        self._topic = topic
        self._seconds = seconds
        self._max_records = max_records
        self._below = log.closed_below(topic)

    @property
    def below(self) -> int:
        return self._below if self._seconds else self._log.closed_below(self._topic)

    async def changes(self) -> AsyncIterator[int]:
        """`below` whenever it has grown: when the oldest record waited long enough, or there is a whole delivery."""
        async for closed in self._log.changes(self._topic):
            if not self._seconds or closed <= self._below:
                self._below = max(closed, self._below)
                yield self._below
            # a whole delivery leaves at once; what is left over is no news of the log
            while closed > self._below:
                self._below = max(await self._wait(), self._below)
                yield self._below

    def end(self) -> bool:
        """Let everything that is closed leave; False if nothing waited."""
        waited_from, self._below = self.below, self._log.closed_below(self._topic)
        return self._below > waited_from

    async def _wait(self) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while (left_s := until - loop.time()) > 0:
            waiting = self._log.closed_below(self._topic) - self._below
            if waiting >= self._max_records:
                return self._below + waiting // self._max_records * self._max_records
            await asyncio.sleep(min(left_s, LOOK_S))
        return self._log.closed_below(self._topic)


class CommitLinger:
    """
    As `Linger`, but a record waits from its commit on, so that a restart makes no file early, and a stop makes none.

    `uncut` gives the lowest number that the route has not settled.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        clock: Clock,
        *,
        seconds: float,
        max_records: int,
        uncut: Callable[[], Awaitable[int]],
    ) -> None:
        self._log = log
        self._topic = topic
        self._clock = clock
        self._seconds = seconds
        self._max_records = max_records
        self._uncut = uncut
        self._hurried_below = 0
        self._hurried_at = -inf
        self.below = 0

    async def changes(self) -> AsyncIterator[int]:
        """Yield `below` whenever it has grown."""
        async for _ in self._log.changes(self._topic):
            self.below = max(self.below, await self._uncut())
            while self._waiting() > 0:
                await self._rest(await self._committed_at())
                waiting = self._waiting()
                self.below += waiting // self._max_records * self._max_records or waiting
                yield self.below

    def hurry(self) -> None:
        """Let what has been committed by now leave as soon as it is closed, whatever the times of its commits."""
        self._hurried_below = self._log.next_number(self._topic)
        self._hurried_at = self._clock.monotonic()

    async def _rest(self, committed_at: float) -> None:
        """Wait until a record is due, or for a whole delivery."""
        while self._waiting() < self._max_records and not await self._is_due(committed_at):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    def _waiting(self) -> int:
        return self._log.closed_below(self._topic) - self.below

    async def _committed_at(self) -> float:
        """The commit of the record at `below`; 0 if it is damaged."""
        entries = await self._log.read(self._topic, self.below, self.below)
        return entries[0].committed_at if entries else 0.0

    async def _is_due(self, committed_at: float) -> bool:
        """True if the record at `below` has waited long enough, and with it those behind it."""
        if self._clock.monotonic() - self._hurried_at < FOLLOW_S:
            self._hurried_below = await self._log.newest_number(self._topic)
        day_ends_at = committed_at // DAY_S * DAY_S + DAY_S
        waits_s = min(self._seconds, day_ends_at + DAY_ENDS_S - committed_at)
        return self.below < self._hurried_below or elapsed_s(committed_at, self._clock.now()) >= waits_s

    def end(self) -> bool:
        """Let nothing leave early: what waits is on disk."""
        return False


class RestingWorkers:
    """
    Workers of one route that rest: news wake one of them, and one that found work wakes the next. `may_work` says of
    a place whether its worker may send now. Belongs to the event loop.
    """

    def __init__(self, may_work: Callable[[int], bool]) -> None:
        self._may_work = may_work
        self._resting: dict[int, asyncio.Event] = {}
        self.told = 0  # how often there were news that a worker which looks just now may have missed

    def wake_one(self) -> None:
        """Wake one resting worker that may send. If there is none, workers that are looking for work look again."""
        for place in self._resting:
            if self._may_work(place):
                self._resting.pop(place).set()
                return
        self.told += 1

    def wake_all(self) -> None:
        self.told += 1
        for woken in self._resting.values():
            woken.set()
        self._resting.clear()

    async def rest(self, place: int, seconds: float, *, told: int) -> None:
        """Wait until woken, or for some time; not at all if there were news since `told` was read."""
        if told != self.told:
            return
        woken = self._resting[place] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                # Not wait_for, which loses a cancellation in 3.11.
                async with asyncio.timeout(seconds):
                    await woken.wait()
        finally:
            self._resting.pop(place, None)
