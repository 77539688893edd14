"""Gateways that share a PostgreSQL schema. Requests reach them in turn, and each may stop or be killed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any, NamedTuple

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import SharedMergeWindow
from gateway.intake.shadows import ReportedCallers
from gateway.intake.waiting_counters import WaitingCounters
from spool.postgres.storage import PostgresSpool
from tests.integration.order.dealt.judging import Judged, judge
from tests.integration.order.running import HOLD_S, SETTINGS, WAIT_S, WINDOW_S, Request, normalised, prices
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import open_node
from tests.spool.contract.examples import NOON, Observed
from tests.spool.postgres_cluster import Schema

NODES = 2


class Node(NamedTuple):
    stack: AsyncExitStack
    spool: PostgresSpool
    counters: WaitingCounters
    window: SharedMergeWindow


class SharedGateways:
    """
    Several nodes with the interface of `DealtGateway`. A killed node is never used again and is closed
    at the end.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._clock = MovedClock(NOON)
        self._nodes: list[Node] = []
        self._killed: list[Node] = []
        self._turns = cycle(range(NODES))

    async def start(self) -> None:
        self._nodes = [await self._open() for _ in range(NODES)]

    async def _open(self) -> Node:
        stack = AsyncExitStack()
        opened = await open_node(stack, self._schema, SETTINGS, self._clock, Observed())
        stack.push_async_callback(opened.close)
        shadows = ReportedCallers(self._clock, heard=opened.heard)
        limits: Any = {"max_items": 1000, "max_bytes": 2**24}
        counters = WaitingCounters(opened.log, shadows, self._clock, wait_s=WAIT_S, **limits)
        await counters.load_waiting_counters(opened.partial_reports, record_hold_s=HOLD_S)
        intake = PayloadIntake(
            opened.log,
            attributor=RecordAttributor(Config()),
            prices=prices(),
            shadows=shadows,
            counters=counters,
        )
        window = SharedMergeWindow(
            opened.partial_reports,
            opened.log,
            intake,
            self._clock,
            window_s=WINDOW_S,
            hold_s=HOLD_S,
            max_reports=1000,
            max_bytes=2**24,
        )
        return Node(stack, opened, counters, window)

    async def take(self, request: Request) -> None:
        outcome, reports = await normalised(request)
        await self._nodes[next(self._turns)].window.store_outcome(outcome, request.bearer, reports)

    async def restart(self) -> None:
        """Stop and start the next node."""
        number = next(self._turns)
        await self._nodes[number].stack.aclose()
        self._nodes[number] = await self._open()

    async def kill(self) -> None:
        """
        Replace the next node as if it was killed: the new process sees what is committed now. Other nodes continue.
        """
        number = next(self._turns)
        self._killed.append(self._nodes[number])
        self._nodes[number] = await self._open()

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, follow the changes, and run the background work of one node."""
        self._clock.move(seconds)
        if seconds:
            for node in self._nodes:
                await node.spool.log.read_foreign_commits()
            await self._nodes[0].spool.log.close_due_records()
        await self._nodes[0].counters.record_due_and_reverse_repeated_counters()

    async def judged(self) -> Judged:
        self._clock.move(WINDOW_S + 1)
        await self._nodes[0].window.release_due_reports()
        for _ in range(2):
            await self.pass_time(HOLD_S + 1)
        await self.pass_time(HOLD_S + 1)
        try:
            return await judge(self._nodes[0].spool.log, self._clock)
        finally:
            for node in (*self._killed, *self._nodes):
                await node.stack.aclose()
