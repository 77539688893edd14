"""
Asks sellers for the final cost of calls that came without one. An answer while the record is open amends it;
after that it is counted as late, because what is closed never changes.

What waits is kept: how far the log was looked through, and the calls that are still asked for. What was asked
for since the newest time that this was kept is asked for once more after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.configuration.sections import FinalCostSettings, SellerSettings
from gateway.final_costs.sellers import SELLERS, NoAnswer, read_answer
from gateway.final_costs.waiting import LONGEST_S, Waiting
from gateway.intake.prices import PriceBook
from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.protocols import Log
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, Inference, decimal_text
from spool.statements.protocols import Statements

LOOK_EVERY_S = 1.0
IDLE_S = 30.0  # between two looks while nobody is to be asked
KEEP_EVERY_S = 10.0
RETRY_S = 900.0  # after a refusal without Retry-After
LONGEST_PAUSE_S = 86_400.0
READ = 4096  # records of the log at a time
MOST_READS = 8  # in one look
KEPT_AS: Final = "final costs"  # beside the states of pulls, which are kept by name
RUNNING, PAUSED = "running", "paused"

_log = logging.getLogger(__name__)


class NotKnownYet(Exception):
    """The seller does not know the call, or not yet."""


class AskingFailed(Exception):
    """No answer; no message holds the key. `retry_after_s`: when to ask again; None if it would say the same."""

    def __init__(self, message: str, *, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Ask(Protocol):
    """Asks with the key of a seller: the body of the answer, NotKnownYet, or AskingFailed."""

    async def __call__(self, seller: SellerSettings, url: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerState:
    """A seller as operators see it; times in epoch seconds, money in dollars."""

    name: str
    state: str
    reason: str
    waiting: int
    in_time: int
    late: int
    unanswered: int
    left_out: int
    late_cost: str
    late_estimate: str
    last_answer: float | None
    next_at: float | None


class FinalCostPuller:
    """`settings` are asked before each look, so that a reload is taken over. Runs in one gateway at a time."""

    def __init__(
        self,
        log: Log,
        table: Statements,
        clock: Clock,
        settings: Callable[[], FinalCostSettings],
        ask: Ask,
        prices: Callable[[], PriceBook],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._table = table
        self._clock = clock
        self._settings = settings
        self._ask = ask
        self._prices = prices
        self._sleep = sleep
        self.ready_at: int | None = (
            None  # the newest number when the server was ready; None: when it first looks
        )
        self._next: int | None = None  # the first number that was not looked at; None before the first look
        self._sellers: dict[str, Waiting] = {}
        self._kept_at = 0.0
        self._last_kept: dict[str, Any] | None = None

    async def run(self) -> None:
        """Look and ask, again and again. Begins with what was kept: another gateway may have gone on meanwhile."""
        try:
            while True:
                try:
                    await self.look()
                except Exception:  # noqa: BLE001 - the supervised loop
                    extra = {"action": "final_costs_not_asked"}
                    _log.exception("final costs are asked for at the next look", extra=extra)
                await asyncio.sleep(LOOK_EVERY_S if self._settings().seller else IDLE_S)
        except asyncio.CancelledError:
            if self._next is not None:
                await self._keep_at_the_end()
            raise
        finally:
            self._next, self._sellers, self._last_kept = None, {}, None

    async def look(self) -> None:
        """Note the calls that came, ask for those that are due, and keep how far it is."""
        settings = self._settings()
        if not settings.seller:
            return
        if self._next is None:
            await self._begin()
        await self._note_new(settings)
        async with asyncio.TaskGroup() as asking:
            for seller in settings.seller:
                asking.create_task(self._ask_due(settings, seller))
        now = self._clock.now()
        if not 0 <= now - self._kept_at < KEEP_EVERY_S:
            await self.keep()

    async def keep(self) -> None:
        """Keep what waits, and what came of the rest."""
        sellers = {name: waiting.kept() for name, waiting in self._sellers.items()}
        kept = {"next": self._next, "sellers": sellers}
        if kept != self._last_kept:
            await self._table.keep_pull_state(KEPT_AS, kept)
            self._last_kept = kept
        self._kept_at = self._clock.now()

    async def _keep_at_the_end(self) -> None:
        try:
            await self.keep()
        except SpoolError as error:
            extra = {"action": "final_costs_not_kept"}
            _log.warning("some final costs are asked for once more: %s", error, extra=extra)

    async def states(self) -> Sequence[SellerState]:
        sellers, now = self._sellers or _sellers(await self._kept()), self._clock.now()
        return [
            _describe(seller.name, sellers.get(seller.name, Waiting()), now)
            for seller in self._settings().seller
        ]

    async def _begin(self) -> None:
        kept = await self._kept()
        newest = await self._log.newest_number(AI_TELEMETRY)
        self._sellers = _sellers(kept)
        # Calls that came before the first start are not asked for.
        first = newest if self.ready_at is None else self.ready_at
        self._next = min(int(kept.get("next") or first), newest)

    async def _kept(self) -> Mapping[str, Any]:
        return await self._table.pull_state(KEPT_AS) or {}

    async def _note_new(self, settings: FinalCostSettings) -> None:
        """Look through what was put on record since, open or closed, a bounded part of it at a time."""
        end, now = await self._log.newest_number(AI_TELEMETRY), self._clock.now()
        for _ in range(MOST_READS):
            begin = self._next or 1
            if begin >= end:
                return
            last = min(begin + READ, end) - 1
            for entry in await self._log.read(AI_TELEMETRY, begin, last, with_open=True):
                if entry.committed_at < now - LONGEST_S:
                    continue
                for number, record in enumerate(entry.records, entry.first):
                    for seller in settings.seller:
                        if SELLERS[seller.name].sold(record, seller.providers):
                            self._waiting(seller).add(number, now, most=settings.max_waiting)
            self._next = last + 1

    async def _ask_due(self, settings: FinalCostSettings, seller: SellerSettings) -> None:
        """Ask for what is due, one call after the other, for the time of a look at most."""
        waiting = self._waiting(seller)
        now = self._clock.now()
        if 0 < waiting.paused_until - now <= LONGEST_PAUSE_S:
            return
        waiting.reason, waiting.paused_until = "", 0.0
        for place, number in enumerate(list(waiting.due(now))[: settings.per_second]):
            if place:
                await self._sleep(LOOK_EVERY_S / settings.per_second)
            try:
                await self._ask_for(seller, waiting, number)
            except AskingFailed as error:
                waits_s = RETRY_S if error.retry_after_s is None else error.retry_after_s
                waiting.reason, waiting.paused_until = str(error), now + min(waits_s, LONGEST_PAUSE_S)
                extra = {"action": "final_costs_paused", "seller": seller.name}
                _log.warning("final costs are not asked for: %s", error, extra=extra)
                return

    async def _ask_for(self, seller: SellerSettings, waiting: Waiting, number: int) -> None:
        sold, known = SELLERS[seller.name], await self._record(number)
        # a report told it meanwhile
        if not isinstance(known, Inference) or not sold.sold(known, seller.providers):
            waiting.drop(number)
            return
        try:
            body = await self._ask(seller, sold.url(seller.base_url, known.request_id or ""))
            answer = read_answer(body, known)
        except NotKnownYet:
            answer = None
        except NoAnswer as error:
            extra = {"action": "final_cost_left_out", "seller": seller.name}
            _log.warning("what was answered about a final cost is left out: %s", error, extra=extra)
            answer = None
        if answer is None:
            waiting.put_off(number)
            return
        report, identity = answer
        if self._log.whereabouts(known.id) is not None:  # else it would be a call of its own
            submission = Submission(
                topic=AI_TELEMETRY,
                received=1,
                records=[report],
                identities=[identity],
                price=self._prices().price,
            )
            await self._log.append(submission)
        waiting.drop(number)
        waiting.last_answer = self._clock.now()
        amended = await self._record(number)
        if isinstance(amended, Inference) and amended.cost is not None:
            waiting.in_time += 1
        else:
            waiting.note_late(report.cost or "0", known.estimated_cost)

    async def _record(self, number: int) -> object:
        """The record as it is now; None if it is gone or damaged."""
        entries = await self._log.read(AI_TELEMETRY, number, number, with_open=True)
        return entries[0].records[0] if entries else None

    def _waiting(self, seller: SellerSettings) -> Waiting:
        return self._sellers.setdefault(seller.name, Waiting())


def _sellers(kept: Mapping[str, Any]) -> dict[str, Waiting]:
    return {name: Waiting.from_kept(one) for name, one in kept.get("sellers", {}).items()}


def _describe(name: str, waiting: Waiting, now: float) -> SellerState:
    is_paused = waiting.paused_until > now
    return SellerState(
        name=name,
        state=PAUSED if is_paused else RUNNING,
        reason=waiting.reason,
        waiting=len(waiting.calls),
        in_time=waiting.in_time,
        late=waiting.late,
        unanswered=waiting.unanswered,
        left_out=waiting.left_out,
        late_cost=decimal_text(waiting.late_cost),
        late_estimate=decimal_text(waiting.late_estimate),
        last_answer=waiting.last_answer,
        next_at=waiting.paused_until if is_paused else None,
    )
