"""Tokens that model servers counted, by hour. They follow the log, so each record is read once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from gateway.bills.contracts.workloads import ModelTokens, ServedTokens
from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT
from gateway.normalise.otlp.metrics import SERVERS
from spool.ledger.own_records import first_after
from spool.ledger.sums import hour_of
from spool.log.protocols import Log
from spool.record import AI_TELEMETRY, TOKEN_UNIT, Record, UsageMetric
from spool.turns.fair_turns import pause

STEP = 1024  # records read before the event loop runs other tasks
MOST_READ = 500_000  # records per query; the next query continues


class ServedHours:
    """The tokens of all closed records in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next = 0
        self._since = 0.0  # the arrival of the first record, or 0 if the log has all records
        self._sums: dict[tuple[int, str, str], ModelTokens] = {}
        self._turn = asyncio.Lock()

    async def in_span(self, start: int, end: int) -> Sequence[ServedTokens] | None:
        """
        Return the tokens in hours from `start` to before `end` (epoch seconds). Return None if the log no longer has
        all records of this time, or if too many records are not read yet.
        """
        async with self._turn:
            is_whole = await self._follow()
        if not is_whole or start < self._since:
            return None
        return [
            ServedTokens(*place, tokens) for place, tokens in self._sums.items() if start <= place[0] < end
        ]

    async def _follow(self) -> bool:
        """Read further records. Return whether all closed records are read."""
        below = self._log.closed_below(AI_TELEMETRY)
        if not 0 < self._next <= below:
            self._sums = {}
            self._next = await first_after(self._log, AI_TELEMETRY, 0.0, below)
            entries = await self._log.read(AI_TELEMETRY, self._next, self._next) if self._next > 1 else ()
            self._since = entries[0].committed_at if entries else 0.0
        until = min(below, self._next + MOST_READ)
        while self._next < until:
            following = min(self._next + STEP, until)
            for entry in await self._log.read(AI_TELEMETRY, self._next, following - 1):
                self._add(entry.records, entry.committed_at)
            self._next = following
            await pause()
        return until == below

    def _add(self, records: Iterable[Record | None], committed_at: float) -> None:
        for record in records:
            if (
                not isinstance(record, UsageMetric)
                or record.source not in SERVERS
                or record.unit != TOKEN_UNIT
            ):
                continue
            count = int(record.value)
            counted = {
                INPUT: ModelTokens(input=count),
                CACHE_READ: ModelTokens(
                    input=-count, cache_read=count
                ),  # cached input is a part of the input
                OUTPUT: ModelTokens(output=count),
            }.get(record.token_type or "")
            if counted is not None:
                place = hour_of(record.start_time, committed_at), record.source, record.model or ""
                self._sums[place] = self._sums.get(place, ModelTokens()).plus(counted)
