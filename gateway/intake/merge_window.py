"""
The merge window before the intake: partial reports of one call are merged, and are on disk before their 2xx.

Receivers call `MergeWindow.take` in place of `Intake.take`. What waited for the whole window is released
as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any

from gateway.authentication.access import Bearer
from gateway.intake.intake import Intake
from gateway.normalise.formats.engine.declaration import CallReport
from gateway.normalise.formats.langfuse.merger import Merge, Merger, Released, Sender, keys_of
from gateway.normalise.outcome import Outcome
from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.partial_reports import PARTS, PartialReports, of_kind
from spool.log.values import Receipt
from spool.shares import HeldByKey
from spool.turns.fair_turns import pause

LOOK_S = 5.0

_Turn = asyncio.Future[None]  # done when it is over

_log = logging.getLogger(__name__)


class MergeWindow:
    """
    What a request keeps or forgets of partial reports is in the commit of its records: after a crash, disk
    and books agree on what waits.
    """

    def __init__(self, stored: PartialReports, intake: Intake, clock: Clock, merger: Merger) -> None:
        self._stored = stored
        self._intake = intake
        self._clock = clock
        self._merger = merger
        self._turns = Turns()

    @property
    def waiting(self) -> int:
        """Return the number of partial reports that wait for the rest of their call."""
        return len(self._merger)

    @property
    def held(self) -> HeldByKey:
        """The same by key."""
        return self._merger.held

    async def start(self) -> None:
        """Take up what was waiting when the process ended."""
        stored = list(of_kind(await self._stored.load(), PARTS))
        damaged = self._merger.load(stored)
        if damaged:
            damage = {"action": "partial_reports_damaged"}
            _log.error("%d partial reports cannot be read", damaged, extra=damage)

    def take(
        self, outcome: Outcome, bearer: Bearer, reports: Sequence[CallReport] = ()
    ) -> Coroutine[Any, Any, Receipt]:
        """
        Merge reports and store them. Returns when everything is durable; an error means that nothing was stored.
        """
        return self._merge(outcome, bearer, reports) if reports else self._intake.take(outcome, bearer)

    async def _merge(self, outcome: Outcome, bearer: Bearer, reports: Sequence[CallReport]) -> Receipt:
        sender = Sender(bearer.name, dict(bearer.labels), bearer.device, bearer.named)
        async with self._turns.of(keys_of(reports, sender)):
            merge = Merge(outcome=outcome, reports=reports, sender=sender, now=self._clock.now())
            try:
                for _ in self._merger.apply(merge):
                    await pause()
                receipt = await self._intake.take(outcome, bearer, merge.pending)
            except BaseException:
                self._merger.undo(merge)
                raise
        if self._merger.is_over_full:
            await self._try_to_release()
        return receipt

    async def release(self) -> int:
        """Make records of what waited long enough; how many reports there were."""
        count = 0
        while released := self._merger.release(now=self._clock.now(), busy=self._turns.taken):
            async with self._turns.of({key for one in released for key in one.reports}):
                await self._put_on_record(released)
            count += sum(len(one.reports) for one in released)
        return count

    async def _put_on_record(self, released: Sequence[Released]) -> None:
        for place, one in enumerate(released):
            sender = one.sender
            bearer = Bearer(sender.name, frozenset(), sender.labels, sender.device, sender.named)
            try:
                await self._intake.take(one.outcome, bearer, one.pending)
            except BaseException:
                for left in reversed(released[place:]):
                    self._merger.restore(left)
                raise

    async def run(self) -> None:
        """Release for ever, as a background task."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._try_to_release()

    async def _try_to_release(self) -> None:
        """
        Release reports. Those that cannot be put on record now are tried again first; the sender that pushed
        them out is not refused.
        """
        try:
            await self.release()
        except SpoolError as error:
            _log.warning("partial reports wait on: %s", error, extra={"action": "release_put_off"})


class Turns:
    """
    One request at a time for each key, in order of arrival: what one merges is kept, or refused, before the
    next looks at it.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, _Turn] = {}  # by key, the last turn in the queue

    @property
    def taken(self) -> Set[bytes]:
        return self._last.keys()

    @asynccontextmanager
    async def of(self, keys: Set[bytes]) -> AsyncIterator[None]:
        """Queue for all the keys at once: no circle of waiting requests, and none is overtaken."""
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
        """End a turn. One that is given up while it waits ends with those before it: the next waits for them."""
        if before:
            first, *others = before
            first.add_done_callback(lambda _: self._end(turn, keys, others))
            return
        for key in keys:
            if self._last.get(key) is turn:
                del self._last[key]
        turn.set_result(None)
