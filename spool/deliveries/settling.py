"""
The operations that settle, split or postpone a sent delivery by one transition. Engines share them and
implement `_apply_transition`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from spool.clock import Clock
from spool.deliveries import transitions
from spool.deliveries.stored import RouteChange, StoredDelivery
from spool.deliveries.values import Delivery, Settlement
from spool.errors import TakenOver
from spool.log.accounting import route_topic
from spool.log.protocols import RecordLog

_log = logging.getLogger(__name__)

Transition = Callable[[StoredDelivery], RouteChange]


class SentDeliveries(ABC):
    def __init__(self, record_log: RecordLog, clock: Clock) -> None:
        self._log = record_log
        self._clock = clock
        self.version = self.dead_version = self.fenced = 0

    @abstractmethod
    async def _apply_transition(self, delivery: Delivery, transition: Transition) -> None:
        """
        Apply a transition if the delivery is still open: it may have been skipped or deleted meanwhile.

        If another worker has taken the delivery, nothing changes, and `_count_and_log_takeover` logs this. Even if
        this fails, the process no longer treats the delivery as being sent, so an open one becomes due.
        """

    def _count_and_log_takeover(self, delivery: Delivery) -> TakenOver:
        self.fenced += 1
        message = f"{delivery.route}: another worker took over records {delivery.first} to {delivery.last}"
        _log.warning(
            "%s, so this result was ignored",
            message,
            extra={"action": "delivery_fenced", "route": delivery.route},
        )
        return TakenOver(message)

    async def store_settlement(self, delivery: Delivery, settlement: Settlement) -> None:
        transitions.check_settlement(delivery, settlement)
        await self._apply_transition(
            delivery,
            partial(transitions.settle_delivery, settlement=settlement, settled_at=self._clock.now()),
        )

    async def split_delivery(
        self,
        delivery: Delivery,
        *,
        reason: str,
        second_first_number: int | None = None,
        refused: bool = False,
    ) -> None:
        second = transitions.first_number_after_split(delivery, second_first_number)
        transition = partial(
            transitions.split_delivery, second_first_number=second, reason=reason, refused=refused
        )
        await self._apply_transition(delivery, transition)

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        topic = route_topic(delivery.route)
        number = delivery.first
        entries = [delivery.kept] if delivery.kept else await self._log.read(topic, number, number)
        record = entries[0].records[0] if entries else None
        if record is None:  # the record cannot be read, so nothing can be set aside
            await self.store_settlement(delivery, Settlement(delivered=0, damaged=1))
            return
        transition = partial(
            transitions.replace_delivery_by_dead_letter,
            record=record,
            topic=topic,
            committed_at=entries[0].committed_at,
            error=error,
            status=status,
            rejected_at=self._clock.now(),
        )
        await self._apply_transition(delivery, transition)
        self.dead_version += 1

    async def schedule_retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        not_before: float,
        answer: str | None = None,
        may_be_accepted: bool = False,
        proves_no_acceptance: bool = False,
        refused_at: float | None = None,
        server_error: bool = False,
    ) -> None:
        transition = partial(
            transitions.retry_later,
            reason=reason,
            not_before=not_before,
            answer=answer,
            may_be_accepted=may_be_accepted,
            proves_no_acceptance=proves_no_acceptance,
            refused_at=refused_at,
            server_error=server_error,
        )
        await self._apply_transition(delivery, transition)

    async def requeue_as_possibly_received(
        self, delivery: Delivery, *, reason: str, not_before: float
    ) -> None:
        await self._apply_transition(
            delivery, partial(transitions.requeue_as_possibly_received, reason=reason, not_before=not_before)
        )

    async def mark_outcome_unknown(self, delivery: Delivery, *, reason: str) -> None:
        await self._apply_transition(delivery, partial(transitions.mark_outcome_unknown, reason=reason))
