"""
Hourly AI costs from the totals, sent to a billing connection as whole hours, and sent again when they change.

Each past hour is compared with the rows that were last sent for it. Only one request at a time uses the connection,
including requests for forwarded drops. The only operation is `replace_hourly`, so a repeat changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from uuid import uuid4

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import HttpClient
from exporters.pace import Backoff
from exporters.service import cbf
from exporters.service.billing_drops import STREAM, ConnectionLocks
from exporters.service.cbf import CbfHour
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import Keyring, UpstreamClient
from exporters.settings import UpstreamSettings
from spool.billing import BillingPlan, SentBillingHours, SentHour
from spool.clock import Clock
from spool.deliveries.values import PARKED, RUNNING, RouteState
from spool.errors import NotAllowed, SpoolError, TotalsIncomplete
from spool.ledger.ledger import HOURS_KEPT_S, Ledger
from spool.ledger.queries import EVERY_METER, CostQuery, CostRow
from spool.loops import repeat

NAME = "upstream/billing-hours"
OPERATION = "replace_hourly"

# seconds between the end of an hour and its delivery, because most late records have arrived by then
SETTLE_S = 600
CHECK_EVERY_S = 60.0
PARKED_RETRY_S = 60.0
HELD_RETRY_S = 600.0  # seconds to wait after a rejected billing file; a changed secret ends the wait
# Oldest hours that are compared. One day is subtracted from the time for which hours are stored, so that no
# hour is merged into its day during a comparison.
_LOOK_BACK = timedelta(seconds=HOURS_KEPT_S, days=-1)
_EXACT = Context(prec=100)

_log = logging.getLogger(__name__)


class BillingSync:
    """
    Sends the hourly costs to one billing connection, until cancelled. An hour that was not accepted still
    differs from the rows last accepted, so it stays due.
    """

    def __init__(
        self,
        ledger: Ledger,
        sent_hours: SentBillingHours,
        client: HttpClient,
        settings: UpstreamSettings,
        locks: ConnectionLocks,
        *,
        clock: Clock,
        is_open: Callable[[str], bool] = lambda _: True,
        backoff: Backoff | None = None,
        max_bytes: int = cbf.MAX_BYTES,
    ) -> None:
        self._ledger = ledger
        self._hours = sent_hours
        self._upstream = UpstreamClient(client, UpstreamPaths(settings), Keyring(settings.keys))
        self._connection = settings.connection_id
        self._locks = locks
        self._is_open = is_open
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._max_bytes = max_bytes
        self._state = RUNNING
        self._reason: str | None = None
        self._failures = 0
        self._waiting = 0
        self._sent = 0
        # the billing file whose request got no answer, and its idempotency key
        self._unanswered: tuple[bytes, str] | None = None
        self._logged_start: datetime | None = None  # the start of the stored hours when it was last logged
        self._poked = asyncio.Event()

    def state(self) -> RouteState:
        """Return the sync's state in the form of a route's. `queued` counts hours."""
        return RouteState(
            name=NAME,
            topic="billing-hours",
            required=True,
            state=self._state,
            reason=self._reason,
            progress=0,
            queued=self._waiting,
            oldest_age_s=None,
            delivered=self._sent,
            refused=0,
            dead=0,
            stuck=0,
        )

    def secret_file_states(self) -> list[object]:
        return self._upstream.secret_file_states()

    def retry_now(self) -> None:
        """Try again now, because a secret or the configuration changed."""
        self._poked.set()

    async def close(self) -> None:
        await self._upstream.close()

    async def run(self) -> None:
        async def send_and_wait() -> None:
            rest_s = await self._send_round()
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._poked.wait()
            self._poked.clear()

        await repeat(
            send_and_wait, every_s=0.0, failed=f"{NAME}: a fault", action="sync_fault", retry_s=PARKED_RETRY_S
        )

    async def send_changed_hours(self) -> int:
        """
        Send each hour of this and the previous month that changed. Return the number of accepted hours.

        Older hours are sent again only if they were sent before, have changed and are still stored.
        """
        self._ledger.require_caught_up()
        until = _hour_start(self._clock.now() - SETTLE_S)
        month = until.replace(day=1, hour=0)
        last_month = (month - timedelta(days=1)).replace(day=1)
        since = await self._first_time_with_hourly_sums(last_month)
        earliest = await self._ledger.earliest_moment_with_hourly_sums(until - _LOOK_BACK)
        self._waiting = 0
        sent = await self._send_days(self._changed_hours(since, until))
        return sent + await self._send_days(self._changed_hours(earliest, last_month, only_sent=True))

    async def _send_days(self, days: AsyncIterator[list[CbfHour]]) -> int:
        sent = 0
        async for hours in days:
            self._waiting = len(hours)
            sent += await self._send_hours_and_return_count(hours)
            self._waiting = 0
        return sent

    async def preview(self, since: datetime, until: datetime) -> BillingPlan:
        """
        Return the plan to send all hours of a time span, without sending them. Raises NotKept if only daily
        sums are stored.
        """
        await self._ledger.check_hours_stored(since)
        return await self._plan_hours(since, until, send=False)

    async def push(self, since: datetime, until: datetime) -> BillingPlan:
        """
        Send all hours of a time span, changed or not. Raises NotAllowed if the upstream rejects them, and
        NotKept if only daily sums are stored.
        """
        await self._ledger.check_hours_stored(since)
        try:
            return await self._plan_hours(since, until, send=True)
        except SendError as error:
            raise NotAllowed(f"not everything was sent: {error}") from error

    async def _first_time_with_hourly_sums(self, since: datetime) -> datetime:
        """
        Return `since` or, if later, the time from which hourly sums are stored. Earlier hours are not
        compared.

        Hourly sums of the previous month are missing only if a clock was months ahead.
        """
        kept_since = await self._ledger.earliest_moment_with_hourly_sums(since)
        if kept_since > since and kept_since != self._logged_start:
            fields = {"action": "billing_hours_gone", "since": kept_since.isoformat()}
            _log.warning(
                "%s: hours before %s are stored only as days, so they are not compared",
                NAME,
                kept_since,
                extra=fields,
            )
            self._logged_start = kept_since
        return kept_since

    async def _send_round(self) -> float:
        """Send the changed hours. Return the seconds until the next check."""
        try:
            await self.send_changed_hours()
        except Retryable as error:
            self._failures += 1
            self._reason = str(error)
            rest_s = self._backoff.delay_s(self._failures, error.retry_after_s)
            _log.warning(
                "%s: next attempt in %.0f s: %s", NAME, rest_s, error, extra={"action": "sync_retried"}
            )
            return rest_s
        except SendError as error:
            if self._state != PARKED or self._reason != str(error):
                fields = {"action": "sync_parked", "status": error.status}
                _log.warning("%s is paused: %s", NAME, error, extra=fields)
            self._state, self._reason = PARKED, str(error)
            return PARKED_RETRY_S if isinstance(error, Misconfigured) else HELD_RETRY_S
        except TotalsIncomplete as error:
            _log.info("%s: nothing is sent now: %s", NAME, error, extra={"action": "sync_waits"})
            return CHECK_EVERY_S
        except SpoolError:
            _log.exception("%s: the storage failed", NAME, extra={"action": "sync_fault"})
            return PARKED_RETRY_S
        except Exception as error:  # noqa: BLE001 - what failed inside was not marked as sent
            _log.exception("%s: a fault", NAME, extra={"action": "sync_fault"})
            self._state, self._reason = PARKED, f"fault: {type(error).__name__}"
            return PARKED_RETRY_S
        if self._state != RUNNING:
            _log.info("%s: running", NAME, extra={"action": "sync_running"})
        self._state, self._reason, self._failures = RUNNING, None, 0
        return CHECK_EVERY_S

    async def _plan_hours(self, since: datetime, until: datetime, *, send: bool) -> BillingPlan:
        plan = BillingPlan(hours=0, rows=0, bytes=0, drops=0, cost="0")
        last = min(until, _hour_start(self._clock.now()))
        async for hours in self._changed_hours(since, last, all=True):
            sent = await self._send_hours_and_return_count(hours) if send else 0
            batches = list(cbf.batch_hours(hours, max_bytes=self._max_bytes))
            costs = [Decimal(row["cost/cost"]) for hour in hours for row in hour.rows]
            with localcontext(_EXACT):
                cost = sum(costs, Decimal(plan.cost))
            plan = replace(
                plan,
                hours=plan.hours + len(hours),
                rows=plan.rows + sum(len(hour.rows) for hour in hours),
                bytes=plan.bytes + sum(hour.bytes for hour in hours),
                drops=plan.drops + len(batches),
                cost=format(cost.normalize(_EXACT), "f"),
                sent=plan.sent + sent,
            )
        return plan

    async def _changed_hours(
        self, since: datetime, until: datetime, *, all: bool = False, only_sent: bool = False
    ) -> AsyncIterator[list[CbfHour]]:
        """
        Yield, day by day, the hours that differ from the sent hours.

        With `all`, yield every hour that has rows. With `only_sent`, skip hours that were never sent. Also
        skip a sent hour if the totals lack records of it, because they were rebuilt from a log that had
        lost some records.
        """
        whole = await self._ledger.start_of_complete_hours()
        day = since
        while day < until:
            end = min((day + timedelta(days=1)).replace(hour=0), until)
            month = await self._sent_hours_in_month(day)
            first = day.timestamp()
            last = end.timestamp()
            sent = {start: hour for start, hour in month.items() if first <= start < last}
            costs = await self._fetch_costs(day, end, cbf.FINE)
            hours = []
            for start in sorted({*costs, *sent}):
                if start < whole if start in sent else only_sent:
                    continue
                hour = await self._build_hour_within_limits(
                    datetime.fromtimestamp(start, UTC), costs.get(start, []), month
                )
                if all or start not in sent or sent[start].hash != hour.hash:
                    hours.append(hour)
                    month[start] = _sent_hour(hour, 0.0)
            if hours:
                yield hours
            day = end

    async def _sent_hours_in_month(self, day: datetime) -> dict[int, SentHour]:
        first = day.replace(day=1, hour=0)
        end = (first + timedelta(days=32)).replace(day=1)
        return dict(
            await self._hours.sent_hours(self._connection, int(first.timestamp()), int(end.timestamp()))
        )

    async def _fetch_costs(
        self, since: datetime, until: datetime, dimensions: Sequence[str]
    ) -> dict[int, list[CostRow]]:
        query = CostQuery(
            since=since,
            until=until,
            granularity="hourly",
            group_by=dimensions,
            meter=EVERY_METER,
            stated_names=True,
        )
        return await asyncio.to_thread(_group_by_hour, await self._ledger.costs(query))

    async def _build_hour_within_limits(
        self, start: datetime, detailed_costs: Sequence[CostRow], sent_hours_of_month: dict[int, SentHour]
    ) -> CbfHour:
        other_hours = [hour for at, hour in sent_hours_of_month.items() if at != int(start.timestamp())]
        rows_left = cbf.MAX_MONTH_ROWS - sum(hour.rows for hour in other_hours)
        bytes_left = cbf.MAX_MONTH_BYTES - sum(hour.bytes for hour in other_hours)
        for level in cbf.LEVELS:
            costs = detailed_costs
            if level is not cbf.FINE:
                by_hour = await self._fetch_costs(start, start + timedelta(hours=1), level)
                costs = by_hour.get(int(start.timestamp()), [])
            hour = await asyncio.to_thread(_build_hour, start, costs, level)
            if hour.bytes <= min(self._max_bytes, bytes_left) and len(hour.rows) <= rows_left:
                return hour
        message = f"the month {hour.month} of the billing connection is full: 1,000,000 rows or 70 MB"
        raise Misconfigured(message, answered=False)

    async def _send_hours_and_return_count(self, hours: Sequence[CbfHour]) -> int:
        for batch in cbf.batch_hours(hours, max_bytes=self._max_bytes):
            await self._send_batch(batch)
            now = self._clock.now()
            await self._hours.store_hours(self._connection, [_sent_hour(hour, now) for hour in batch])
            self._sent += len(batch)
        return len(hours)

    async def _send_batch(self, batch: Sequence[CbfHour]) -> None:
        if not self._connection:
            raise Misconfigured(
                "upstream.base_url and upstream.connection_id are required for billing data", answered=False
            )
        if not self._is_open(self._connection):
            raise Misconfigured(
                "the billing connection of upstream.connection_id is disabled", answered=False
            )
        drop = cbf.encode_billing_drop(batch, OPERATION)
        # If no answer arrived, the repeat uses the same key. After any answer, the next attempt needs a new key.
        unanswered, self._unanswered = self._unanswered, None
        key = unanswered[1] if unanswered is not None and unanswered[0] == drop else uuid4().hex
        async with self._locks.lock_for(self._connection):
            try:
                await self._upstream.send(STREAM, drop, idempotency_key=key)
            except Retryable as error:
                if not error.answered:
                    self._unanswered = drop, key
                raise


def _group_by_hour(rows: Sequence[CostRow]) -> dict[int, list[CostRow]]:
    by_hour: dict[int, list[CostRow]] = {}
    for row in rows:
        by_hour.setdefault(int(row.start.timestamp()), []).append(row)
    return by_hour


def _build_hour(start: datetime, costs: Sequence[CostRow], level: Sequence[str]) -> cbf.CbfHour:
    return cbf.build_hour(start, cbf.cost_rows(costs, level) or [cbf.zero_cost_hour_row(start)])


def _sent_hour(hour: CbfHour, sent_at: float) -> SentHour:
    return SentHour(
        start=int(hour.start.timestamp()),
        hash=hour.hash,
        rows=len(hour.rows),
        bytes=hour.bytes,
        sent_at=sent_at,
    )


def _hour_start(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(minute=0, second=0, microsecond=0)
