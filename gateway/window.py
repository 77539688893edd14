"""
The merge window before the intake: reports that come in halves are brought together, on disk before their 2xx.

Takes the place of `Intake.take` at the doors whose formats know halves, and releases what waited in vain.
"""

from __future__ import annotations

import asyncio
import logging

from gateway.access import Bearer
from gateway.intake import Intake
from gateway.normalise.formats.langfuse_pending import Released, Sender, Waiting
from gateway.normalise.outcome import Outcome
from spool.clock import Clock
from spool.errors import SpoolError
from spool.log import Receipt
from spool.pending import Pending

LOOK_S = 5.0

_log = logging.getLogger(__name__)


class Window:
    """
    One for the house. A crash loses no half: it is written before the record that needs it, and forgotten after.

    What a crash leaves behind twice meets its own record again, and the log knows that record.
    """

    def __init__(self, pending: Pending, intake: Intake, clock: Clock, *, waiting: Waiting | None = None) -> None:
        self._pending = pending
        self._intake = intake
        self._clock = clock
        self._waiting = waiting or Waiting()

    async def start(self) -> None:
        """Take up what was waiting when the house went down."""
        self._waiting.load(await self._pending.load())

    async def take(self, outcome: Outcome, bearer: Bearer) -> Receipt:
        """Like `Intake.take`: returns when everything is durable, and its errors mean that nothing was kept."""
        if not outcome.halves and not self._waiting:
            return await self._intake.take(outcome, bearer)
        changes = self._waiting.join(outcome, sender=_sender(bearer), now=self._clock.now())
        try:
            await self._pending.put(changes.keep)
            receipt = await self._intake.take(outcome, bearer)
        except BaseException:
            self._waiting.undo(changes)
            raise
        await self._pending.forget(changes.forget)
        if self._waiting.is_over_full:
            await self.release()
        return receipt

    async def release(self) -> int:
        """Make records of what waited long enough; how many there were."""
        released = self._waiting.released(now=self._clock.now())
        kept = iter(released)
        try:
            for one in kept:
                await self._put_on_record(one)
        except BaseException:
            for one in kept:
                self._waiting.restore(one)
            raise
        await self._pending.forget([one.key for one in released])
        return len(released)

    async def _put_on_record(self, one: Released) -> None:
        if not one.outcome.pending:  # what a trace said of who called: nothing of its own
            return
        bearer = Bearer(one.sender.name, frozenset(), one.sender.labels, one.sender.device)
        try:
            await self._intake.take(one.outcome, bearer)
        except BaseException:
            self._waiting.restore(one)
            raise

    async def run(self) -> None:
        """Release for ever, as a task of the house."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.release()
            except SpoolError as error:
                _log.warning("halves wait on: %s", error, extra={"action": "release_put_off"})


def _sender(bearer: Bearer) -> Sender:
    return Sender(bearer.name, dict(bearer.labels), bearer.device)
