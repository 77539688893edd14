"""
Fair scheduling: parties (keys, people, addresses) take turns by their recent processor time, not by their
requests.

A party that used less than a tenth of the time never waits, so many small keys are as fast as one with the
same load. A party without others does not wait either. Otherwise each step of a party with more use waits. A
pass of the event loop runs such steps for about STEP_S, least use first, after a short pause while a request
of a party with far less use is pending. Reading the next request of a heavy party waits in the same way.

A party is charged for the time that others waited for its requests, so a slow request cannot delay others for
long.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, Token
from itertools import islice
from math import exp
from types import coroutine
from typing import Any, Final, TypeVar

from spool.clock import Clock

T = TypeVar("T")

STEP_S: Final = 0.0005  # after a step of this length, other parties may work
LEAST_STEP_S: Final = 0.00005
# length of a step if no other party is active
ALONE_S: Final = 0.004
MEMORY_S: Final = 2.0  # time constant of past use, which counts half after 1.4 s
# seconds; a party that committed within them may commit more at any moment
LATELY_S: Final = 2.0
# while a party committed within this time, no other party counts as alone
RECENT_S: Final = 10.0
# Below this use, a party with nothing to commit, such as a scraper, is active only while a request is
# pending.
LITTLE_S: Final = 0.05
# if a request made no step for longer, it waits for something else, and nobody must pause for it
URGENT_S: Final = 0.05
# Pause between steps of heavier parties while a far lighter request is pending: REST times the last step,
# within these.
LEAST_REST_S, MOST_REST_S = 0.003, 0.01
REST: Final = 4.0
# far less use is use below the other party's divided by this number
FAR_LESS: Final = 2.0
# Recent processor time in seconds, a tenth of MEMORY_S. A party with less waits for nobody.
HEAVY_S: Final = 0.2
# maximum waiting parties checked for less use
MOST_LOOKED_AT: Final = 64
# seconds between updates of the weight of used time, which makes recent time count more
_RENEW_S: Final = 0.1
QUIET_S: Final = 1.0  # seconds after the last request until the process counts as quiet
_FAR: Final = 100.0  # sums are scaled down at this exponent, long before exp() overflows


class FairTurnParty:
    """A key, person or address, with its processor time `used`, in which recent time weighs more."""

    __slots__ = ("in_hand", "name", "seen", "step_s", "submitted", "turns", "urgent_until", "used", "waiting")

    def __init__(self, scheduler: FairTurnScheduler, name: str) -> None:
        self.turns = scheduler
        self.name = name
        self.used = 0.0
        self.in_hand = 0  # pending requests
        self.urgent_until = 0.0
        self.seen = self.submitted = float("-inf")
        # estimate of a step, rather too high than too low
        self.step_s = LEAST_STEP_S
        # Futures, which get True if their turn is certain, or functions to call.
        self.waiting: deque[asyncio.Future[bool] | Callable[[], None]] = deque()

    @property
    def has_little_use(self) -> bool:
        """
        Return whether the party used less than a tenth of the processor time, so that it waits for nobody.
        """
        return self.used < HEAVY_S * self.turns.weight

    def charge_time(self, seconds: float) -> None:
        """Charge processor time to the party. Any thread may call this."""
        self.used += seconds * self.turns.weight


class FairTurnScheduler:
    """
    The turns of the parties (keys, people, addresses) in one process. Use them on the event loop, except
    `FairTurnParty.charge_time` and `is_wanted`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.weight = 1.0
        self.are_shared = False  # whether several parties are active
        self.commits_are_shared = False  # True if several parties committed recently
        # whether a lighter party than the holder of the thread for long jobs has a request
        self.is_wanted = False
        self.aside: FairTurnParty | None = None  # party that uses the thread for long jobs
        self._now = clock
        self._began = clock()
        self._renew_at = self._forget_at = 0.0
        self._parties: dict[str, FairTurnParty] = {}
        self._in_hand: dict[str, FairTurnParty] = {}
        # parties that stored records recently
        self._submitting: dict[str, FairTurnParty] = {}
        self._waiting: dict[str, FairTurnParty] = {}
        self._is_looking = False  # whether the next pass of the event loop runs `_let_waiting_continue`
        self._left_s = STEP_S  # seconds left in this pass of the event loop
        self._timer: asyncio.TimerHandle | None = None
        self._for_thread: list[tuple[FairTurnParty, asyncio.Future[None]]] = []
        self.last_step_s = 0.0
        self._rested_since = 0.0
        self._nobody = FairTurnParty(self, "")  # the party of background work
        self._nobody.step_s = STEP_S
        self._renewed = asyncio.Event()

    def find_or_add_party(self, name: str) -> FairTurnParty:
        now = self._now()
        if now >= self._renew_at:
            self._renew_weights(now)
        party = self._parties.get(name)
        if party is None:
            party = self._parties[name] = FairTurnParty(self, name)
        party.seen = now
        return party

    def note_submission(self, party: FairTurnParty) -> None:
        party.submitted = party.seen
        if party.name not in self._submitting:
            self._submitting[party.name] = party
            self.commits_are_shared = len(self._submitting) > 1

    def has_party_with_far_less_use_submitted_lately(self, used_s: float) -> bool:
        """
        Return whether a party with far less use than `used_s` has submitted records lately. For a small `used_s`,
        return False.
        """
        if used_s < HEAVY_S * self.weight:
            return False
        used_limit, since = used_s / FAR_LESS, self._now() - LATELY_S
        looked_at = islice(self._submitting.values(), MOST_LOOKED_AT)
        return any(party.used < used_limit and party.submitted > since for party in looked_at)

    def new_request(self, name: str) -> FairTurnRequest:
        """Begin a request. Its party is `name`, unless `set_party_and_wait_for_turn` sets another."""
        return FairTurnRequest(self, name)

    async def wait_for_requests(self, max_wait_s: float | None = None) -> None:
        """
        Wait until there is a request, at most `max_wait_s` seconds. Return at once during requests and shortly
        after.

        Periodic checks call this first, so that an idle process does not wake up.
        """
        if self._in_hand or self._now() < self._renew_at + QUIET_S:
            return
        self._renewed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait_s):
                await self._renewed.wait()

    def note_request(self, party: FairTurnParty) -> None:
        party.in_hand += 1
        party.urgent_until = self._now() + URGENT_S
        self._in_hand[party.name] = party
        self.are_shared = self.are_shared or len(self._in_hand) > 1
        if self.aside is not None and party.used < self.aside.used:
            self.is_wanted = True

    def note_end_of_request(self, party: FairTurnParty) -> None:
        party.in_hand -= 1
        if not party.in_hand:
            self._in_hand.pop(party.name, None)
            if self._timer is not None:  # others may wait for this party's last request
                self._timer.cancel()
                self._timer = None
                self._let_waiting_continue()

    async def wait_for_turn(self, party: FairTurnParty) -> None:
        """
        Wait for the party's turn. Return at once if no other party has requests, or if this party used little
        or the least. So several small keys are as fast as one with the same total.
        """
        if not self.are_shared or party.has_little_use:
            return
        if not party.waiting and not self._find_urgent_party_with_far_less_use(party):
            if not self._waiting and self._left_s > 0:
                self._left_s -= party.step_s
                self._schedule_turn_check()
                return
            rivals = [rival for rival in islice(self._in_hand.values(), MOST_LOOKED_AT) if rival is not party]
            if rivals and all(party.used <= rival.used for rival in rivals):
                return
        while not await self._wait_and_check_turn(party):
            pass

    async def _wait_and_check_turn(self, party: FairTurnParty) -> bool:
        """
        Wait for a turn. Return whether it is valid: it is not if a request of a far lighter party arrived
        meanwhile.
        """
        waits = asyncio.get_running_loop().create_future()
        party.waiting.append(waits)
        self._waiting[party.name] = party
        self._schedule_turn_check()
        try:
            is_certain = await waits
        except BaseException:
            if waits in party.waiting:
                self._stop_waiting(party, waits)
            raise
        if is_certain:
            return True
        await asyncio.sleep(0)  # requests of this pass of the event loop can begin
        return self._find_urgent_party_with_far_less_use(party) is None

    def find_party_that_must_wait(self, name: str) -> FairTurnParty | None:
        """
        Return the party if it used much while other parties are active, so that its next request must wait.
        Else return None.
        """
        party = self._parties.get(name)
        return None if party is None or party.has_little_use or not self.are_shared else party

    def call_in_turn(self, party: FairTurnParty, job: Callable[[], None]) -> None:
        """Call a function in the party's turn. It must not raise."""
        party.waiting.append(job)
        self._waiting[party.name] = party
        self._schedule_turn_check()

    async def wait_for_background_turn(self) -> None:
        """Wait for a turn of background work, which gives way to requests of parties with little use."""
        self._nobody.used = FAR_LESS * HEAVY_S * self.weight
        await self.wait_for_turn(self._nobody)

    @asynccontextmanager
    async def hold_long_job_thread(self, party: FairTurnParty) -> AsyncIterator[None]:
        """
        Hold the one thread for long jobs in the block. The waiting party with the least use gets it next.
        """
        await self.wait_for_turn(party)
        if self.aside is not None:
            waits = asyncio.get_running_loop().create_future()
            self._for_thread.append((party, waits))
            if party.used < self.aside.used:
                self.is_wanted = True
            try:
                await waits
            except BaseException:
                self._leave_thread_queue(waits)
                raise
        self.aside = party
        try:
            yield
        finally:
            self._pass_on_or_free_thread()

    def _leave_thread_queue(self, waits: asyncio.Future[None]) -> None:
        if waits.cancelled() or not waits.done():
            self._for_thread = [waiter for waiter in self._for_thread if waiter[1] is not waits]
        else:  # this waiter was cancelled after it got the thread, so the thread is passed on
            self._pass_on_or_free_thread()

    def _pass_on_or_free_thread(self) -> None:
        self.aside, self.is_wanted = None, False
        waiting = [waiter for waiter in self._for_thread if not waiter[1].done()]
        if waiting:
            first = min(waiting, key=lambda waiter: waiter[0].used)
            self._for_thread = [waiter for waiter in waiting if waiter is not first]
            # set before the waiter runs, so that no other party takes the thread first
            self.aside = first[0]
            first[1].set_result(None)
        else:
            self._for_thread = []

    def _stop_waiting(self, party: FairTurnParty, waits: asyncio.Future[bool]) -> None:
        party.waiting.remove(waits)
        if not party.waiting:
            del self._waiting[party.name]

    def _schedule_turn_check(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._let_waiting_continue)

    def _let_waiting_continue(self) -> None:
        self._timer, self._is_looking = None, False
        self._left_s = STEP_S
        while self._waiting and self._left_s > 0:
            party = min(self._waiting.values(), key=lambda party: party.used)
            lighter = self._find_urgent_party_with_far_less_use(party)
            if rest_s := self._pause_for_lighter_party_s(lighter):
                self._is_looking = True
                self._timer = asyncio.get_running_loop().call_later(rest_s, self._let_waiting_continue)
                return
            waits = party.waiting.popleft()
            if not party.waiting:
                del self._waiting[party.name]
            if not isinstance(waits, asyncio.Future):
                self._left_s -= party.step_s
                waits()
            elif not waits.done():
                self._left_s -= party.step_s
                waits.set_result(lighter is not None)
        if self._waiting:
            self._schedule_turn_check()

    def _pause_for_lighter_party_s(self, lighter_party: FairTurnParty | None) -> float:
        if lighter_party is None:
            self._rested_since = 0.0
            return 0.0
        now = self._now()
        if not self._rested_since:
            self._rested_since = now
        max_rest_s = min(MOST_REST_S, max(LEAST_REST_S, REST * self.last_step_s))
        remaining_s = self._rested_since + max_rest_s - now
        if remaining_s <= 0:
            lighter_party.charge_time(max_rest_s)
            self._rested_since = 0.0
            return 0.0
        return remaining_s

    def _find_urgent_party_with_far_less_use(self, party: FairTurnParty) -> FairTurnParty | None:
        if party.has_little_use:
            return None
        now, used_limit = self._now(), party.used / FAR_LESS
        for candidate in islice(self._in_hand.values(), MOST_LOOKED_AT):
            if candidate.used < used_limit and candidate.urgent_until > now:
                return candidate
        return None

    def _renew_weights(self, now: float) -> None:
        self._renew_at = now + _RENEW_S
        self._renewed.set()
        exponent = (now - self._began) / MEMORY_S
        if exponent > _FAR:
            for party in self._parties.values():
                party.used *= exp(-exponent)
            self._began, exponent = now, 0.0
        self.weight = exp(exponent)
        self._note_if_several_parties_active(now)
        if now >= self._forget_at:
            self._forget_at = now + RECENT_S / 10
            gone = [
                party for party in self._parties.values() if not party.in_hand and party.seen < now - RECENT_S
            ]
            for party in gone:
                del self._parties[party.name]

    def _note_if_several_parties_active(self, now: float) -> None:
        if self._submitting:
            recent = {
                name: party for name, party in self._submitting.items() if party.submitted >= now - RECENT_S
            }
            self._submitting, self.commits_are_shared = recent, len(recent) > 1
        little = LITTLE_S * self.weight
        party_count = 0
        for party in self._parties.values():
            if party.in_hand or party.used > little or party.name in self._submitting:
                party_count += 1
                if party_count > 1:
                    break
        self.are_shared = self.commits_are_shared or party_count > 1


class FairTurnRequest:
    """
    The work on one request: its party, and the processor time of its present step. Use it as a context
    manager in the request's task.
    """

    __slots__ = ("_before", "_before_s", "_began", "_name", "party", "turns")

    def __init__(self, scheduler: FairTurnScheduler, name: str) -> None:
        self.turns = scheduler
        # None before `set_party_and_wait_for_turn`, while the sender is unknown
        self.party: FairTurnParty | None = None
        self._name = name
        self._before: Token[FairTurnRequest | None]
        self._before_s = 0.0  # seconds of processor time in earlier steps
        self._began = 0.0

    def __enter__(self) -> FairTurnRequest:
        self._before = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self.party is not None:
            self.turns.note_end_of_request(self.party)
        _current.reset(self._before)

    async def set_party_and_wait_for_turn(self, name: str = "") -> None:
        """
        Set the party (key, person or address) once it is known, and wait for its turn on the event loop. Does
        nothing if a party is set.
        """
        if self.party is None:
            self.party = party = self.turns.find_or_add_party(name or self._name)
            self.turns.note_request(party)
            party.used += self._before_s * self.turns.weight
            if self.turns.are_shared:
                await self.turns.wait_for_turn(party)

    async def wait_for_turn_before_response(self) -> None:
        """
        Wait before the response, so that this sender's next request is not read before requests of other
        senders.
        """
        if self.party is None:
            await self.set_party_and_wait_for_turn()
        if self.party is not None and self.turns.are_shared:
            await self.turns.wait_for_turn(self.party)

    def has_party_with_far_less_use_submitted_lately(self) -> bool:
        return self.party is not None and self.turns.has_party_with_far_less_use_submitted_lately(
            self.party.used
        )

    async def pause_for_others(self) -> None:
        await asyncio.sleep(0)
        if self.party is not None:
            await self.turns.wait_for_turn(self.party)

    @asynccontextmanager
    async def hold_long_job_thread(self) -> AsyncIterator[FairTurnParty]:
        party = self.party or self.turns.find_or_add_party(self._name)
        async with self.turns.hold_long_job_thread(party):
            yield party

    async def pause_if_step_was_long(self) -> None:
        step_limit_s = STEP_S if self.turns.are_shared else ALONE_S
        if time.perf_counter() - self._began > step_limit_s:
            await self.pause_for_others()

    @coroutine
    def run_and_charge_time_to_party(self, job: Awaitable[T]) -> Generator[Any, None, T]:
        """
        Run a job, and add the duration of each of its steps on the event loop to the time that its party has
        used.
        """
        steps = job.__await__()
        error: BaseException | None = None
        while True:
            self._began = time.perf_counter()
            try:
                waited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                error = None
                now = time.perf_counter()
                seconds, party = now - self._began, self.party
                if party is None:
                    self._before_s += seconds
                else:
                    party.used += seconds * self.turns.weight  # `FairTurnParty.charge_time`, inlined
                    party.urgent_until = now + URGENT_S
                    party.step_s = max(seconds, 0.9 * party.step_s, LEAST_STEP_S)
                    self.turns.last_step_s = seconds
            try:
                yield waited
            except BaseException as raised:  # noqa: BLE001 - the job's own
                error = raised


class BackgroundWork(FairTurnRequest):
    """Work that belongs to no request."""

    __slots__ = ()

    async def pause_for_others(self) -> None:
        await asyncio.sleep(0)
        await self.turns.wait_for_background_turn()


async def run_in_background(scheduler: FairTurnScheduler, job: Awaitable[T]) -> T:
    """Run a job that waits, between its steps, for requests of parties with little use."""
    with BackgroundWork(scheduler, ""):
        return await job


_current: ContextVar[FairTurnRequest | None] = ContextVar("work_in_hand", default=None)


def current_work() -> FairTurnRequest | None:
    return _current.get()


def has_other_active_parties() -> bool:
    """
    Return whether other parties than that of the current request are active. Outside a request, return False.
    """
    work = _current.get()
    return work is not None and work.turns.are_shared


async def pause_for_others() -> None:
    """Let the event loop and parties with less use work first."""
    work = _current.get()
    if work is None:
        await asyncio.sleep(0)
    else:
        await work.pause_for_others()


async def pause_if_step_was_long() -> None:
    """Pause if the current step has taken long. Background work always pauses."""
    work = _current.get()
    if work is None:
        await asyncio.sleep(0)
    else:
        await work.pause_if_step_was_long()


# -- limits of rate and burst --------------------------------------------------------------------------------


NEARLY = 1e-6  # rounding error in tokens


class TokenBucket:
    """A rate limit of `per_s` on average and `burst` at once. It starts full."""

    __slots__ = ("_at", "_clock", "_level", "_per_s", "burst")

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self.burst = burst
        self._clock = clock
        self._per_s = per_s
        self._level = burst
        self._at = clock.monotonic()

    def wait_s(self, amount: float) -> float:
        """Return for how many seconds to wait until `amount` (at most `burst`) is available."""
        missing = amount - self._refill()
        return 0.0 if missing <= NEARLY else missing / self._per_s

    def remove_tokens(self, amount: float) -> None:
        """Remove tokens. If more are removed than available, the debt is refilled first."""
        self._level = self._refill() - amount

    def _refill(self) -> float:
        now = self._clock.monotonic()
        self._level = min(self.burst, self._level + (now - self._at) * self._per_s)
        self._at = now
        return self._level
