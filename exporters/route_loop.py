"""
The loop of a route: take a delivery, send it, record the outcome.

`exporters.pace` decides which worker may send, and when.
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
    Misconfigured,
    OutcomeUnknown,
    Rejected,
    Retryable,
    SendError,
    SplitRequired,
)
from exporters.exporter import Exporter, WholeDeliveryExporter
from exporters.pace import Backoff, DelayAfterCommit, RestingWorkers, RouteSendDelay, RouteThrottle
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.rules import STUCK_AFTER
from spool.deliveries.values import PARKED, REFUSING, RUNNING, Delivery, RouteSpec, Settlement
from spool.errors import SpoolDamaged, SpoolError, SpoolUnavailable, TakenOver
from spool.log.protocols import RecordLog
from spool.log.values import LogEntry
from spool.packed.native import NativeModule
from spool.settings import MAX_DEAD_LETTERS

_log = logging.getLogger(__name__)

PARKED_S = 60.0
LONGEST_REST_S = 60.0
AFTER_A_FAULT_S = 5.0
READ_AT_ONCE = 4096  # records read at once for a delivery that lands as a whole
FAULTS = 3  # number of internal errors after which the route is paused, if no delivery succeeded in between
# Statuses which prove that the request was never accepted under its key, because a service that honours keys
# would have repeated its first response. Any other rejection may come from a proxy, or be sent while the
# first request is still in progress.
_NOT_TAKEN = (200, 400, 413)  # 200 stands for a response that rejected every item
_BUSY = (502, 503, 504)  # statuses that state nothing about the request itself


class _HalvingRequired(SendError):
    """The delivery itself may cause the 5xx responses, so it is split to find the record at fault."""


class RouteLoop:
    """
    The loop of one route. It runs until it is cancelled. Then open deliveries stay open and are sent again
    with the same bytes.

    After `retire` or `leave_route_to_other_process`, the loop ends when its requests in progress are answered.
    After the latter, it may run again.
    """

    def __init__(
        self,
        spec: RouteSpec,
        exporter: Exporter | WholeDeliveryExporter,
        *,
        deliveries: Deliveries,
        record_log: RecordLog,
        clock: Clock,
        backoff: Backoff | None = None,
        linger_s: float = 0.0,
        lands: bool = False,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        native: NativeModule | None = None,
    ) -> None:
        self.name = spec.name
        self._topic = spec.topic
        self._exporter = exporter
        self._deliveries = deliveries
        self._log = record_log
        self._lands = lands
        self._linger: RouteSendDelay | DelayAfterCommit
        if lands:
            self._linger = DelayAfterCommit(
                record_log,
                spec.topic,
                clock,
                seconds=linger_s,
                max_records=exporter.max_records,
                uncut=self._read_progress,
            )
        else:
            self._linger = RouteSendDelay(
                record_log, spec.topic, seconds=linger_s, max_records=exporter.max_records
            )
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._max_dead_letters = max_dead_letters
        self._packed = native
        self._throttle = RouteThrottle(clock, self._backoff)
        self._resting = RestingWorkers(lambda worker: self._throttle.wait_s(worker) == 0.0)
        self._choosing = asyncio.Lock()
        self._faults = 0  # internal errors since the last success
        self._ignores_waits = False  # True until a delivery fails, or no delivery is left
        self._is_retired = self._is_handed_over = self.is_running = False
        self._waits = ""  # last logged reason why this route waits for the queue on disk

    async def run(self, state: str = RUNNING) -> None:
        """
        Run the loop. `state`: the route's state at the end of the last process. A paused route tries to send
        at once.
        """
        self._throttle.state = state
        self._is_handed_over = False
        self.is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(self._wake_on_changes(), name=f"{self.name} news")
                workers = range(self._exporter.in_flight)
                await asyncio.gather(
                    *(group.create_task(self._run_worker(n), name=f"{self.name} {n}") for n in workers)
                )
                listener.cancel()
        finally:
            self.is_running = False

    def retry_now(self) -> None:
        """Try again now, because a secret or the configuration changed. Waiting deliveries count as due."""
        self._throttle.end_waits()
        self._ignores_waits = True
        self._resting.wake_all()

    def send_now(self) -> None:
        """
        Try again now, because an operator requests it. A data lake also gets the records that wait for more.
        """
        if isinstance(self._linger, DelayAfterCommit):
            self._linger.release_committed_records()
        self.retry_now()

    def retire(self) -> None:
        """Begin no further delivery, for good. The loop ends after its requests."""
        self._is_retired = True
        self._resting.wake_all()

    def leave_route_to_other_process(self) -> None:
        """Begin no further delivery in this run, because another process will send for the route."""
        self._is_handed_over = True
        self._resting.wake_all()

    async def send_waiting_records(self) -> None:
        """Send the records that wait for more records, if the route may send now."""
        if self._linger.release_waiting_records() and self.is_running:
            while self._throttle.wait_s(0) == 0.0 and await self.forward_one_delivery():
                pass

    async def forward_one_delivery(self, worker: int | None = None) -> bool:
        """
        Begin or resume one delivery, send it and settle it.

        Return False if no delivery was due, or if this worker may not send.
        """
        ignores_waits = self._ignores_waits
        must_wait = True
        async with self._choosing:
            # If the worker that held the lock failed, this worker must wait as well.
            rests = worker is not None and self._throttle.wait_s(worker) > 0
            delivery = None if rests else await self._take_due_delivery()
        if delivery is None:
            return False
        self._resting.wake_one()  # let another worker look for a further due delivery
        try:
            must_wait = not await self._forward_delivery(delivery)
        # The outcome could not be stored, so the delivery must not stay marked as being sent.
        except Exception as error:
            not_before = self._throttle.now() + self._backoff.delay_s(delivery.attempts + 1)
            # The delivery is ambiguous, because the destination may have accepted it.
            with suppress(SpoolError):
                await self._deliveries.requeue_as_possibly_received(
                    delivery, reason=str(error), not_before=not_before
                )
            raise
        finally:
            if ignores_waits and must_wait:  # the delivery failed, as other deliveries probably would
                self._ignores_waits = False
        return True

    async def _forward_delivery(self, delivery: Delivery) -> bool:
        began = self._throttle.round
        try:
            settlement = await self._send_delivery(delivery)
        except _HalvingRequired as error:
            await self._deliveries.split_delivery(delivery, reason=str(error), refused=True)
        except SplitRequired as error:
            await self._deliveries.split_delivery(delivery, reason=str(error), second_first_number=error.at)
        except (Rejected, DeliveryTooLarge) as error:
            await self._handle_rejection(delivery, error, began)
            return False
        except Misconfigured as error:  # the data is not at fault, so the delivery is stored and waits
            await self._pause_route(delivery, error)
            return False
        except Retryable as error:
            await self._retry_delivery(delivery, error, began)
            return False
        except TakenOver:
            pass  # the process that took over the delivery sends it
        except OutcomeUnknown as error:
            await self._deliveries.mark_outcome_unknown(delivery, reason=str(error))
        except Exception as error:  # noqa: BLE001 - one delivery fails inside, the route goes on
            _log.exception("%s: internal error in a delivery", self.name, extra={"action": "delivery_fault"})
            await self._handle_fault(delivery, error, began)
            return False
        else:
            await self._deliveries.store_settlement(delivery, settlement)
            if settlement.delivered:
                await self._note_success()
        return True

    async def _take_due_delivery(self) -> Delivery | None:
        ignores_waits = self._ignores_waits
        delivery = await self._take_due_at(inf if ignores_waits else self._throttle.now())
        if delivery is None and ignores_waits:
            self._ignores_waits = False
        return delivery

    async def _take_due_at(self, now: float) -> Delivery | None:
        if self._throttle.state == REFUSING:
            max_suspects = self._throttle.max_suspect_deliveries()
            return await self._deliveries.take_test_delivery(
                self.name, now=now, max_rejected_records=max_suspects
            )
        # While the route is paused, only the throttle decides when to try, so every delivery counts as due.
        # After repeated internal errors, each delivery keeps its own waiting time, so that deliveries without
        # errors are tried first.
        waited = inf if self._throttle.state == PARKED and self._faults < FAULTS else now
        max_records = self._exporter.max_records
        return await self._deliveries.take_due_delivery(
            self.name, now=waited, max_records=max_records, below_number=self._linger.sendable_below
        )

    async def _send_delivery(self, delivery: Delivery) -> Settlement:
        to_blame = delivery.server_errors >= STUCK_AFTER or self._throttle.has_failed_often_enough_to_split(
            delivery
        )
        if delivery.count > 1 and to_blame and not delivery.ambiguous:
            raise _HalvingRequired(
                delivery.last_error or "5xx while other deliveries were accepted", answered=False
            )
        if self._lands:
            return await self._write_delivery_step_by_step(delivery)
        exporter = cast("Exporter", self._exporter)
        entries: Sequence[LogEntry]
        if delivery.kept is not None:
            entries = [delivery.kept]
        else:
            entries = await self._read_entries(delivery)
        mark = await exporter.prepare_delivery_mark(delivery)
        if mark is not None:
            await self._store_delivery_mark(delivery, mark)
            delivery = replace(delivery, mark=mark)
        return await exporter.send(delivery, entries)

    async def _write_delivery_step_by_step(self, delivery: Delivery) -> Settlement:
        exporter = cast("WholeDeliveryExporter", self._exporter)
        keep_mark = partial(self._store_delivery_mark, delivery)
        return await exporter.write_delivery(delivery, self._read_step_by_step(delivery), keep_mark)

    async def _read_step_by_step(self, delivery: Delivery) -> AsyncIterator[LogEntry]:
        """
        Yield the entries of a delivery step by step, because the whole delivery may not fit into memory.
        """
        for first in range(delivery.first, delivery.last + 1, READ_AT_ONCE):
            last = min(first + READ_AT_ONCE - 1, delivery.last)
            for entry in await self._read_entries(replace(delivery, first=first, last=last)):
                yield entry

    async def _store_delivery_mark(self, delivery: Delivery, mark: str) -> None:
        try:
            await self._deliveries.store_delivery_mark(delivery, mark)
        except SpoolUnavailable as error:
            # nothing was sent, so the destination cannot have accepted the delivery
            raise Retryable(
                f"the queue on disk did not store where the delivery begins: {error}", answered=False
            ) from error

    async def _read_progress(self) -> int:
        return next(
            state.progress for state in await self._deliveries.route_states() if state.name == self.name
        )

    async def _read_entries(self, delivery: Delivery) -> Sequence[LogEntry]:
        """
        Read the entries of a delivery. A damaged page pauses the route, because a restart can salvage its
        records.
        """
        try:
            return await self._log.read(self._topic, delivery.first, delivery.last, native=self._packed)
        except SpoolDamaged as error:
            raise Misconfigured(str(error), answered=False) from error

    async def _note_success(self) -> None:
        self._faults = 0
        if self._throttle.note_success_and_check_recovery():
            _log.info("%s: running", self.name, extra={"action": "route_running", "route": self.name})
            await self._deliveries.set_route_state(self.name, RUNNING, None)

    async def _handle_rejection(self, delivery: Delivery, error: SendError, round_at_start: int) -> None:
        """
        Split a rejected delivery. A single record is set aside if another record of the route was accepted
        since its first rejection.
        """
        reason = str(error)
        if delivery.ambiguous and error.answered and error.status not in _NOT_TAKEN:
            await self._retry_delivery(delivery, Retryable(reason, status=error.status), round_at_start)
            return
        if delivery.count > 1 and isinstance(error, DeliveryTooLarge):
            await self._deliveries.split_delivery(delivery, reason=reason)
            return
        self._log_warning(delivery, "delivery_refused", reason)
        if delivery.count > 1 and self._throttle.state != REFUSING:
            self._throttle.note_batch_rejection()
            await self._deliveries.split_delivery(delivery, reason=reason, refused=True)
        # The delivery was sent before the whole route was rejected, so halving it now would prove nothing.
        elif delivery.count > 1:
            definite = error.status in _NOT_TAKEN
            await self._deliveries.schedule_retry(
                delivery,
                reason=reason,
                not_before=0.0,
                answer=error.status_text,
                proves_no_acceptance=definite,
            )
        elif delivery.refusals and delivery.proven:
            await self._set_aside_or_pause(delivery, error)
        else:
            await self._schedule_retry_of_rejected_record(delivery, error)

    async def _set_aside_or_pause(self, delivery: Delivery, error: SendError) -> None:
        dead = next(state.dead for state in await self._deliveries.route_states() if state.name == self.name)
        if dead >= self._max_dead_letters:
            full = (
                f"{dead} rejected records wait for a decision (spool.max_dead_letters): retry or discard them"
            )
            await self._pause_route(
                delivery, Misconfigured(f"{full}; the last rejection: {error}", answered=error.answered)
            )
            return
        await self._deliveries.set_aside(delivery, error=str(error), status=str(error.status or "unsendable"))
        # if `proven` is True, the destination accepted other records, so the route works
        await self._note_success()

    async def _schedule_retry_of_rejected_record(self, delivery: Delivery, error: SendError) -> None:
        """
        Retry a rejected record later. Unless another record has been accepted since, one record at a time is
        sent until one is accepted.
        """
        await self._deliveries.schedule_retry(
            delivery,
            reason=str(error),
            not_before=self._throttle.now() + self._backoff.delay_s(delivery.refusals + 1),
            answer=error.status_text,
            proves_no_acceptance=error.status in _NOT_TAKEN,
            refused_at=self._clock.now(),
        )
        if not delivery.proven:
            self._throttle.note_record_rejection()
            await self._deliveries.set_route_state(self.name, REFUSING, str(error))

    async def _handle_fault(self, delivery: Delivery, error: Exception, round_at_start: int) -> None:
        self._faults += 1
        reason = f"fault: {type(error).__name__}"
        if self._faults < FAULTS:
            await self._retry_delivery(
                delivery, Retryable(reason, answered=False, ambiguous=True), round_at_start
            )
            return
        repeats = f"{reason}, repeatedly: see the log of Tollhouse"
        # The failed delivery becomes due later than the next attempts of the waiting deliveries.
        not_before = self._throttle.now() + PARKED_S + self._backoff.delay_s(1)
        await self._pause_route(
            delivery, Misconfigured(repeats, answered=False, ambiguous=True), not_before=not_before
        )

    async def _pause_route(
        self, delivery: Delivery, error: Misconfigured, *, not_before: float = 0.0
    ) -> None:
        reason = str(error)
        self._log_warning(delivery, "route_parked", reason)
        # park before the delivery is released, so that no other worker sends it
        self._throttle.pause_route(PARKED_S)
        await self._deliveries.schedule_retry(
            delivery,
            reason=reason,
            not_before=not_before,
            answer=error.status_text,
            may_be_accepted=error.ambiguous,
        )
        await self._deliveries.set_route_state(self.name, PARKED, reason)

    async def _retry_delivery(self, delivery: Delivery, error: Retryable, round_at_start: int) -> None:
        reason = str(error)
        self._log_warning(delivery, "delivery_retried", reason)
        if error.status is not None and error.status >= 500 and error.status not in _BUSY:
            self._throttle.count_suspect_delivery_failure(delivery.id)
        delay_s = self._backoff.delay_s(delivery.attempts + 1, error.retry_after_s)
        await self._deliveries.schedule_retry(
            delivery,
            reason=reason,
            not_before=self._throttle.now() + delay_s,
            answer=error.status_text,
            may_be_accepted=error.ambiguous,
            server_error=error.status is not None and error.status >= 500,
        )
        if (
            self._throttle.note_failure_and_return_is_new_reason(
                round_at_start, reason, requested_wait_s=error.retry_after_s
            )
            and self._throttle.state == RUNNING
        ):
            await self._deliveries.set_route_state(self.name, RUNNING, reason)

    async def _run_worker(self, worker: int) -> None:
        while not (self._is_retired or self._is_handed_over):
            # The counter is read before the search for work, so that no later wake-up is missed.
            missed_wakeups = self._resting.missed_wakeups
            rest_s = self._throttle.wait_s(worker)
            if rest_s == 0.0:
                try:
                    if await self.forward_one_delivery(worker):
                        # only another worker may send now, or all workers wait
                        if self._throttle.wait_s(worker):
                            self._resting.wake_all()
                        continue
                    rest_s = await self._seconds_until_due()
                    self._waits = ""
                except SpoolUnavailable as error:
                    # no delivery was settled, and no record is lost
                    self._log_waiting(str(error))
                    rest_s = AFTER_A_FAULT_S
                except Exception:  # noqa: BLE001 - the spool failed: nothing was settled, nothing is lost
                    _log.exception("%s: the queue on disk failed", self.name, extra={"action": "route_fault"})
                    rest_s = AFTER_A_FAULT_S
            await self._resting.rest_until_woken(
                worker, min(rest_s, LONGEST_REST_S), missed_wakeups=missed_wakeups
            )

    def _log_waiting(self, reason: str) -> None:
        if reason != self._waits:
            fields = {"action": "route_waits", "route": self.name}
            _log.warning("%s waits: %s", self.name, reason, extra=fields)
        self._waits = reason

    async def _seconds_until_due(self) -> float:
        at = await self._deliveries.next_due_at(self.name)
        return LONGEST_REST_S if at is None else max(0.01, at - self._throttle.now())

    async def _wake_on_changes(self) -> None:
        """
        Wake a worker for new records. If this loop ends, nothing is lost, because workers look for work at
        least every LONGEST_REST_S.
        """
        async for _ in self._linger.first_unsendable_number_changes():
            self._resting.wake_one()

    def _log_warning(self, delivery: Delivery, action: str, reason: str) -> None:
        fields = {"action": action, "route": self.name, "first": delivery.first, "last": delivery.last}
        _log.warning("%s: %s", self.name, reason, extra=fields)
