"""
The loop of one (destination, topic): take a delivery, send it, record what became of it.

What an answer means for the route as a whole (which worker may send, and when) is kept in `exporters.pace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import cast

from msgspec.structs import replace

from exporters.errors import (
    DeliveryTooLarge,
    Divide,
    Misconfigured,
    OutcomeUnknown,
    Rejected,
    Retryable,
    SendError,
)
from exporters.exporter import Exporter, LandingExporter
from exporters.pace import Backoff, CommitLinger, Linger, RestingWorkers, RouteThrottle
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.rules import STUCK_AFTER
from spool.deliveries.values import PARKED, REFUSING, RUNNING, Delivery, RouteSpec, Settlement
from spool.errors import SpoolDamaged, SpoolError, SpoolUnavailable, TakenOver
from spool.log.protocols import Log
from spool.log.values import Entry
from spool.packed.native import Native
from spool.settings import MAX_DEAD_LETTERS

_log = logging.getLogger(__name__)

PARKED_S = 60.0
LONGEST_REST_S = 60.0
AFTER_A_FAULT_S = 5.0
READ_AT_ONCE = 4096  # records, of a delivery that lands whole
FAULTS = 3  # without a success between: then the route is at fault, and it parks
# The refusals that are never given to a request that was taken under the same key: a service that honours
# keys would have repeated its first answer. Every other one may come from somebody in between, or while the
# first is worked on.
_NOT_TAKEN = (200, 400, 413)  # 200: it rejected every item
_BUSY = (502, 503, 504)  # these say nothing of the request


class _Halve(SendError):
    """5xx, which this delivery may be the cause of: look for the record at fault."""


class RouteLoop:
    """
    Runs until it is cancelled; then open deliveries stay open and are sent again with the same bytes.

    After `retire` or `let_go` it ends by itself, when what it was sending is answered; after the second it
    may run again.
    """

    def __init__(
        self,
        spec: RouteSpec,
        exporter: Exporter | LandingExporter,
        *,
        deliveries: Deliveries,
        log: Log,
        clock: Clock,
        backoff: Backoff | None = None,
        linger_s: float = 0.0,
        lands: bool = False,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        packed: Native | None = None,
    ) -> None:
        self.name = spec.name
        self._topic = spec.topic
        self._exporter = exporter
        self._deliveries = deliveries
        self._log = log
        self._lands = lands
        self._linger: Linger | CommitLinger
        if lands:
            self._linger = CommitLinger(
                log,
                spec.topic,
                clock,
                seconds=linger_s,
                max_records=exporter.max_records,
                uncut=self._progress,
            )
        else:
            self._linger = Linger(log, spec.topic, seconds=linger_s, max_records=exporter.max_records)
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._max_dead_letters = max_dead_letters
        self._packed = packed
        self._throttle = RouteThrottle(clock, self._backoff)
        self._resting = RestingWorkers(lambda place: self._throttle.rest_s(place) == 0.0)
        self._choosing = asyncio.Lock()
        self._faults = 0  # of our own since the last success
        self._is_retired = self._is_let_go = self.is_running = False
        self._waits = ""  # for the spool, as it was last logged

    async def run(self, state: str = RUNNING) -> None:
        """`state` is where the route stood when the process ended; a parked one tries at once."""
        self._throttle.state = state
        self._is_let_go = False
        self.is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(self._listen(), name=f"{self.name} news")
                places = range(self._exporter.in_flight)
                await asyncio.gather(
                    *(group.create_task(self._work(n), name=f"{self.name} {n}") for n in places)
                )
                listener.cancel()
        finally:
            self.is_running = False

    def poke(self) -> None:
        """Try again now: a secret or the configuration changed."""
        self._throttle.open()
        self._resting.wake_all()

    def wake(self) -> None:
        """Try again now, and let a lake have what waits for its file: an operator asked for it."""
        if isinstance(self._linger, CommitLinger):
            self._linger.hurry()
        self.poke()

    def retire(self) -> None:
        """Begin no further delivery, ever."""
        self._is_retired = True
        self._resting.wake_all()

    def let_go(self) -> None:
        """Begin no further delivery in this run: another process is to send for the route."""
        self._is_let_go = True
        self._resting.wake_all()

    async def flush(self) -> None:
        """Send what waits for others to leave with it, if the route may send now."""
        if self._linger.end() and self.is_running:
            while self._throttle.rest_s(0) == 0.0 and await self.forward_once():
                pass

    async def forward_once(self, place: int | None = None) -> bool:
        """
        Begin or resume one delivery, send it, settle it. False when nothing was due, or the worker at a place may
        not send any more.

        Cancellation settles nothing: the delivery stays open and is sent again with the same bytes.
        """
        async with self._choosing:
            # Who looked before may have met why all wait: the same delivery is there again.
            rests = place is not None and self._throttle.rest_s(place) > 0
            delivery = None if rests else await self._next()
        if delivery is None:
            return False
        self._resting.wake_one()  # there may be more
        try:
            await self._forward(delivery)
        except Exception as error:  # what became of it could not be said: it must not stay as being sent
            not_before = self._throttle.now() + self._backoff.delay_s(delivery.attempts + 1)
            # then it is due again at once, and known as one that may have been taken
            with suppress(SpoolError):
                await self._deliveries.give_back(delivery, reason=str(error), not_before=not_before)
            raise
        return True

    async def _forward(self, delivery: Delivery) -> None:
        """Send it and say what became of it."""
        began = self._throttle.round
        try:
            settlement = await self._send(delivery)
        except _Halve as error:
            await self._deliveries.split(delivery, reason=str(error), refused=True)
        except Divide as error:
            await self._deliveries.split(delivery, reason=str(error), at=error.at)
        except (
            Rejected,
            DeliveryTooLarge,
        ) as error:  # refused as it was sent: look for the record at fault
            await self._search(delivery, error, began)
        except Misconfigured as error:  # the data is not at fault: keep it and wait
            await self._park(delivery, error)
        except Retryable as error:
            await self._retry(delivery, error, began)
        except TakenOver:
            pass  # who has it now sends it
        except OutcomeUnknown as error:
            await self._deliveries.unknown(delivery, reason=str(error))
        except Exception as error:  # noqa: BLE001 - one delivery fails inside, the route goes on
            _log.exception("%s: a delivery failed inside", self.name, extra={"action": "delivery_fault"})
            await self._fault(delivery, error, began)
        else:
            await self._deliveries.settle(delivery, settlement)
            if settlement.delivered:
                await self._worked()

    async def _next(self) -> Delivery | None:
        now = self._throttle.now()
        if self._throttle.state == REFUSING:
            max_suspects = self._throttle.max_suspects()
            return await self._deliveries.probe(self.name, now=now, max_suspects=max_suspects)
        # Parked: the throttle alone decides when. But over a fault, what does not fail comes first.
        waited = inf if self._throttle.state == PARKED and self._faults < FAULTS else now
        most = self._exporter.max_records
        return await self._deliveries.due(self.name, now=waited, max_records=most, below=self._linger.below)

    async def _send(self, delivery: Delivery) -> Settlement:
        to_blame = delivery.server_errors >= STUCK_AFTER or self._throttle.is_suspect(delivery)
        if delivery.count > 1 and to_blame and not delivery.ambiguous:
            raise _Halve(delivery.last_error or "5xx while others passed", answered=False)
        if self._lands:
            return await self._land(delivery)
        exporter = cast("Exporter", self._exporter)
        entries: Sequence[Entry]
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            entries = await self._read(delivery)
        mark = await exporter.prepare(delivery)
        if mark is not None:
            await self._keep_mark(delivery, mark)
            delivery = replace(delivery, mark=mark)
        return await exporter.send(delivery, entries)

    async def _land(self, delivery: Delivery) -> Settlement:
        exporter = cast("LandingExporter", self._exporter)
        keep_mark = partial(self._keep_mark, delivery)
        return await exporter.land(delivery, self._pieces(delivery), keep_mark)

    async def _pieces(self, delivery: Delivery) -> AsyncIterator[Entry]:
        """Yield the entries of a delivery, of which there may be more than fit into memory."""
        for first in range(delivery.first, delivery.last + 1, READ_AT_ONCE):
            last = min(first + READ_AT_ONCE - 1, delivery.last)
            for entry in await self._read(replace(delivery, first=first, last=last)):
                yield entry

    async def _keep_mark(self, delivery: Delivery, mark: str) -> None:
        try:
            await self._deliveries.mark(delivery, mark)
        except SpoolUnavailable as error:  # nothing was sent: it cannot have been taken
            raise Retryable(f"the spool did not keep where it begins: {error}", answered=False) from error

    async def _progress(self) -> int:
        return next(state.progress for state in await self._deliveries.routes() if state.name == self.name)

    async def _read(self, delivery: Delivery) -> Sequence[Entry]:
        """Parks the route over a damaged page: what the page hides is whole, and a restart salvages it."""
        try:
            return await self._log.read(self._topic, delivery.first, delivery.last, packed=self._packed)
        except SpoolDamaged as error:
            raise Misconfigured(str(error), answered=False) from error

    async def _worked(self) -> None:
        self._faults = 0
        if self._throttle.succeed():
            _log.info("%s: running", self.name, extra={"action": "route_running", "route": self.name})
            await self._deliveries.set_state(self.name, RUNNING, None)

    async def _search(self, delivery: Delivery, error: SendError, began: int) -> None:
        """Split what was refused; set a single record aside once the route is proven to work without it."""
        words = str(error)
        if delivery.ambiguous and error.answered and error.status not in _NOT_TAKEN:
            await self._retry(delivery, Retryable(words, status=error.status), began)
            return
        if delivery.count > 1 and isinstance(error, DeliveryTooLarge):
            await self._deliveries.split(delivery, reason=words)
            return
        self._warn(delivery, "delivery_refused", words)
        if delivery.count > 1 and self._throttle.state != REFUSING:
            self._throttle.search()
            await self._deliveries.split(delivery, reason=words, refused=True)
        elif delivery.count > 1:  # sent before the route began to refuse: halving it would prove nothing now
            definite = error.status in _NOT_TAKEN
            await self._deliveries.retry(
                delivery, reason=words, not_before=0.0, answer=error.answer, definite=definite
            )
        elif delivery.refusals and delivery.proven:
            await self._set_aside(delivery, error)
        else:
            await self._suspect(delivery, error)

    async def _set_aside(self, delivery: Delivery, error: SendError) -> None:
        """Keep the record as a dead letter; the route parks when it has as many as it may, so that none is lost."""
        dead = next(state.dead for state in await self._deliveries.routes() if state.name == self.name)
        if dead >= self._max_dead_letters:
            full = f"{dead} dead letters wait for a decision (spool.max_dead_letters): retry or discard them"
            await self._park(
                delivery, Misconfigured(f"{full}; the last refusal: {error}", answered=error.answered)
            )
            return
        await self._deliveries.set_aside(delivery, error=str(error), status=str(error.status or "unsendable"))
        await self._worked()  # `proven`: others were accepted

    async def _suspect(self, delivery: Delivery, error: SendError) -> None:
        """Retry a single refused record later; unless others passed since, send one at a time until then."""
        await self._deliveries.retry(
            delivery,
            reason=str(error),
            not_before=self._throttle.now() + self._backoff.delay_s(delivery.refusals + 1),
            answer=error.answer,
            definite=error.status in _NOT_TAKEN,
            refused_at=self._clock.now(),
        )
        if not delivery.proven:
            self._throttle.refuse()
            await self._deliveries.set_state(self.name, REFUSING, str(error))

    async def _fault(self, delivery: Delivery, error: Exception, began: int) -> None:
        """Retry what failed inside of Tollhouse, and park when nothing else comes of it."""
        self._faults += 1
        words = f"fault: {type(error).__name__}"
        if self._faults < FAULTS:
            await self._retry(delivery, Retryable(words, answered=False, ambiguous=True), began)
            return
        repeats = f"{words}, again and again: the log of Tollhouse says where"
        not_before = self._throttle.now() + PARKED_S + self._backoff.delay_s(1)  # behind what waits
        await self._park(
            delivery, Misconfigured(repeats, answered=False, ambiguous=True), not_before=not_before
        )

    async def _park(self, delivery: Delivery, error: Misconfigured, *, not_before: float = 0.0) -> None:
        words = str(error)
        self._warn(delivery, "route_parked", words)
        self._throttle.park(PARKED_S)  # first: once it is given back, another worker that looks would send it
        await self._deliveries.retry(
            delivery, reason=words, not_before=not_before, answer=error.answer, ambiguous=error.ambiguous
        )
        await self._deliveries.set_state(self.name, PARKED, words)

    async def _retry(self, delivery: Delivery, error: Retryable, began: int) -> None:
        words = str(error)
        self._warn(delivery, "delivery_retried", words)
        if error.status is not None and error.status >= 500 and error.status not in _BUSY:
            self._throttle.suspect(delivery.id)
        delay_s = self._backoff.delay_s(delivery.attempts + 1, error.retry_after_s)
        await self._deliveries.retry(
            delivery,
            reason=words,
            not_before=self._throttle.now() + delay_s,
            answer=error.answer,
            ambiguous=error.ambiguous,
            server_error=error.status is not None and error.status >= 500,
        )
        if self._throttle.fail(began, words, hint_s=error.retry_after_s) and self._throttle.state == RUNNING:
            await self._deliveries.set_state(self.name, RUNNING, words)

    async def _work(self, place: int) -> None:
        while not (self._is_retired or self._is_let_go):
            told = self._resting.told  # read first: what happens from here on is not missed
            rest_s = self._throttle.rest_s(place)
            if rest_s == 0.0:
                try:
                    if await self.forward_once(place):
                        if self._throttle.rest_s(place):  # now another one sends, or says how long all wait
                            self._resting.wake_all()
                        continue
                    rest_s = await self._until_due()
                    self._waits = ""
                except SpoolUnavailable as error:
                    # nothing was settled, nothing is lost: the spool says what it needs
                    self._tell_waiting(str(error))
                    rest_s = AFTER_A_FAULT_S
                except Exception:  # noqa: BLE001 - the spool failed: nothing was settled, nothing is lost
                    _log.exception("%s: the spool failed", self.name, extra={"action": "route_fault"})
                    rest_s = AFTER_A_FAULT_S
            await self._resting.rest(place, min(rest_s, LONGEST_REST_S), told=told)

    def _tell_waiting(self, words: str) -> None:
        if words != self._waits:
            fields = {"action": "route_waits", "route": self.name}
            _log.warning("%s waits: %s", self.name, words, extra=fields)
        self._waits = words

    async def _until_due(self) -> float:
        at = await self._deliveries.next_due_at(self.name)
        return LONGEST_REST_S if at is None else max(0.01, at - self._throttle.now())

    async def _listen(self) -> None:
        """Wake a worker for new records. They look in LONGEST_REST_S anyway, so an end is not a failure."""
        async for _ in self._linger.changes():
            self._resting.wake_one()

    def _warn(self, delivery: Delivery, action: str, words: str) -> None:
        fields = {"action": action, "route": self.name, "first": delivery.first, "last": delivery.last}
        _log.warning("%s: %s", self.name, words, extra=fields)
