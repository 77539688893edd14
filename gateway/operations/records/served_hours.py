"""Tokens that model servers counted, by hour. They follow the log, so each record is read once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from sys import getsizeof

from gateway.bills.contracts.workloads import TOO_MANY, UNKNOWN, ModelTokens, ServedSpan, ServedTokens
from gateway.normalise.otlp.metric_rules import CACHE_READ, INPUT, OUTPUT
from gateway.normalise.otlp.metrics import SERVERS
from spool.ledger.own_records import first_number_after
from spool.ledger.sums import HOUR_S, start_hour_or_arrival_hour
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, TOKEN_UNIT, Record, UsageMetric
from spool.turns.fair_turns import pause_for_others

logger = logging.getLogger(__name__)
STEP = 1024  # records read before the event loop runs other tasks
MAX_RECORDS, MAX_BYTES = "contracts.max_served_records", "contracts.max_served_bytes"
SUM_BYTES = 400  # estimated memory of a sum in bytes, without its names


class ServedTokensByHour:
    """
    Hourly sums of the tokens that model servers counted, from all closed records in the log. `most` returns
    the value of a limit setting. Beyond MAX_BYTES, the sums of the oldest hours are dropped.
    """

    def __init__(self, record_log: RecordLog, most: Callable[[str], int]) -> None:
        self._log = record_log
        self._most = most
        self._next = 0
        self._since = 0.0  # time at which the first record arrived, or 0 if the log still has all records
        self._sums: dict[tuple[int, str, str], ModelTokens] = {}
        self._bytes = 0
        self._first_hour = 0  # start of the first hour whose sums are still held
        self._turn = asyncio.Lock()

    async def tokens_in_span(self, start: int, end: int) -> ServedSpan:
        """Return the tokens in hours from `start` to before `end` (epoch seconds), or why they are missing."""
        async with self._turn:
            is_whole = await self._read_new_records()
        if start < self._first_hour:
            return ServedSpan(missing=TOO_MANY)
        if not is_whole or start < self._since:
            return ServedSpan(missing=UNKNOWN)
        return ServedSpan(
            [ServedTokens(*place, tokens) for place, tokens in self._sums.items() if start <= place[0] < end]
        )

    async def _read_new_records(self) -> bool:
        """Read further records. Return whether all closed records are read."""
        below = self._log.lowest_open_number(AI_TELEMETRY)
        if not 0 < self._next <= below:
            self._sums, self._bytes, self._first_hour = {}, 0, 0
            self._next = await first_number_after(self._log, AI_TELEMETRY, 0.0, below)
            entries = await self._log.read(AI_TELEMETRY, self._next, self._next) if self._next > 1 else ()
            self._since = entries[0].committed_at if entries else 0.0
        until = min(below, self._next + self._most(MAX_RECORDS))
        while self._next < until:
            following = min(self._next + STEP, until)
            for entry in await self._log.read(AI_TELEMETRY, self._next, following - 1):
                self._add_records(entry.records, entry.committed_at)
            self._next = following
            self._drop_oldest_hours_if_full()
            await pause_for_others()
        return until == below

    def _add_records(self, records: Iterable[Record | None], committed_at: float) -> None:
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
                # cached input is a part of the input
                CACHE_READ: ModelTokens(input=-count, cache_read=count),
                OUTPUT: ModelTokens(output=count),
            }.get(record.token_type or "")
            if counted is not None:
                hour = start_hour_or_arrival_hour(record.start_time, committed_at)
                place = hour, record.source, record.model or ""
                if hour >= self._first_hour:
                    self._bytes += 0 if place in self._sums else _stored_sum_bytes(place)
                    self._sums[place] = self._sums.get(place, ModelTokens()).plus(counted)

    def _drop_oldest_hours_if_full(self) -> None:
        limit = self._most(MAX_BYTES)
        if self._bytes <= limit:
            return
        sums = dict(sorted(self._sums.items()))
        for place in list(sums):
            if self._bytes * 2 <= limit and place[0] >= self._first_hour:
                break
            self._first_hour = place[0] + HOUR_S
            self._bytes -= _stored_sum_bytes(place)
            del sums[place]
        self._sums = sums
        logger.warning(
            "tokens of model servers before %s are unknown in contract costs, because %s = %s is reached",
            datetime.fromtimestamp(self._first_hour, UTC).isoformat(),
            MAX_BYTES,
            limit,
            extra={"action": "served_tokens_dropped"},
        )


def _stored_sum_bytes(sum_key: tuple[int, str, str]) -> int:
    return SUM_BYTES + getsizeof(sum_key[1]) + getsizeof(sum_key[2])
