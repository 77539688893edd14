"""
The merge window before the intake: reports that come in halves are brought together, on disk before their 2xx.

Takes the place of `Intake.take` at the doors whose formats know halves, and releases what waited in vain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager

from gateway.authentication.access import Bearer
from gateway.intake.intake import Intake
from gateway.normalise.formats.langfuse.pending import Before, Released, Sender, Waiting, keys_of
from gateway.normalise.outcome import Outcome
from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.partial_reports import PartialReports
from spool.log.values import Receipt

LOOK_S = 5.0

_Turn = asyncio.Future[None]  # done when it is over

_log = logging.getLogger(__name__)


class Window:
    """
    One for the house. What a request keeps or forgets of halves is in the commit of its records: after a crash, disk
    and books agree on what waits.
    """

    def __init__(self, pending: PartialReports, intake: Intake, clock: Clock, waiting: Waiting) -> None:
        self._pending = pending
        self._intake = intake
        self._clock = clock
        self._waiting = waiting
        self._turns = _Turns()

    async def start(self) -> None:
        """Take up what was waiting when the house went down."""
        if damaged := self._waiting.load(await self._pending.load()):
            _log.error("%d halves of reports cannot be read", damaged, extra={"action": "halves_damaged"})

    async def take(self, outcome: Outcome, bearer: Bearer) -> Receipt:
        """Like `Intake.take`: returns when everything is durable, and its errors mean that nothing was kept."""
        if not outcome.halves:
            return await self._intake.take(outcome, bearer)
        sender = Sender(bearer.name, dict(bearer.labels), bearer.device)
        async with self._turns.of(keys_of(outcome, sender)):
            before: Before = {}
            try:
                for _ in self._waiting.join(outcome, before, sender=sender, now=self._clock.now()):
                    await asyncio.sleep(0)
                receipt = await self._intake.take(outcome, bearer)
            except BaseException:
                self._waiting.undo(before)
                raise
        if self._waiting.is_over_full:
            await self._try_to_release()
        return receipt

    async def release(self) -> int:
        """Make records of what waited long enough; how many halves there were."""
        count = 0
        while released := self._waiting.released(now=self._clock.now(), busy=self._turns.taken):
            async with self._turns.of({key for one in released for key in one.entries}):
                await self._put_on_record(released)
            count += sum(len(one.entries) for one in released)
        return count

    async def _put_on_record(self, released: Sequence[Released]) -> None:
        for place, one in enumerate(released):
            sender = one.sender
            try:
                await self._intake.take(one.outcome, Bearer(sender.name, frozenset(), sender.labels, sender.device))
            except BaseException:
                for left in reversed(released[place:]):
                    self._waiting.restore(left)
                raise

    async def run(self) -> None:
        """Release for ever, as a task of the house."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._try_to_release()

    async def _try_to_release(self) -> None:
        """What cannot be put on record now stays the next to go; whoever brought something else hears nothing of it."""
        try:
            await self.release()
        except SpoolError as error:
            _log.warning("halves wait on: %s", error, extra={"action": "release_put_off"})


class _Turns:
    """
    One request at a time for each half, in the order in which they came: what one brings together is kept, or refused,
    before the next looks at it.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, _Turn] = {}  # by key, the last turn that somebody has or waits for

    @property
    def taken(self) -> Set[bytes]:
        return self._last.keys()

    @asynccontextmanager
    async def of(self, keys: Set[bytes]) -> AsyncIterator[None]:
        """Queues for all the keys at once: nobody waits in a circle, and nobody is overtaken."""
        before = {self._last[key] for key in keys if key in self._last}
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._last.update(dict.fromkeys(keys, turn))
        try:
            if before:
                await asyncio.wait(before)
            yield
        finally:
            self._end(turn, keys, [one for one in before if not one.done()])

    def _end(self, turn: _Turn, keys: Set[bytes], before: Sequence[_Turn]) -> None:
        """A turn that is given up while it waits is over when those before it are: the next one waits for them too."""
        if before:
            first, *others = before
            first.add_done_callback(lambda _: self._end(turn, keys, others))
            return
        for key in keys:
            if self._last.get(key) is turn:
                del self._last[key]
        turn.set_result(None)
