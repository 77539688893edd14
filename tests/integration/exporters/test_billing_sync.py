"""A month of AI costs as billing drops, against a service that applies the documented rules."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace

from exporters.errors import Misconfigured, Rejected, Retryable
from exporters.http.client import ClientSettings, HttpClient
from exporters.service.billing_drops import ConnectionLocks
from exporters.service.billing_sync import BillingSync
from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.normalise import billing as rules
from spool.currencies import SCALE
from spool.errors import NotKept, TotalsIncomplete
from spool.identity import RecordIdentity
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, Inference, Record
from spool.registry.scopes import SEND_BILLING_DATA
from spool.settings import SpoolSettings
from spool.sql.billing import SqlBillingHours
from spool.sqlite.database import SqliteTransactions
from spool.sqlite.directory import SPOOL
from spool.sqlite.in_memory import open_spool as open_in_memory
from spool.sqlite.ledger import open_ledger
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.spool import SqliteSpool
from tests.exporters.spools import StoppedClock, call, counter, record_id
from tests.rounds import IS_LONG
from tests.spool.ledger_log import FakeLog
from tests.spool.ledger_log import call as known

SECRET = "billing-secret"
MONTH = datetime(2026, 10, 1, tzinfo=UTC)
END = datetime(2026, 11, 1, tzinfo=UTC)
PATH = "/v2/connections/billing/external/c-1/billing_drops"
CALLS = 4000 if IS_LONG else 400


class Service:
    """A billing service that stores a connection's rows by hour, as `replace_hourly` leaves them."""

    def __init__(self) -> None:
        self.hours: dict[str, list[dict[str, str]]] = {}
        self.answered: dict[str, int] = {}  # the status that was remembered for each idempotency key
        self.next: list[
            int
        ] = []  # statuses of the next answers; with 0, the service applies the drop and then closes the connection
        self.drops = 0
        self.at_once = 0
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == SECRET
        assert request.path == PATH
        self.at_once += 1
        assert 1 == self.at_once, "two requests for one connection at once"
        try:
            return await self._answer(request)
        finally:
            self.at_once -= 1

    async def _answer(self, request: web.Request) -> web.Response:
        raw = await request.read()
        body = gzip.decompress(raw) if request.headers.get("Content-Encoding") == "gzip" else raw
        key = request.headers["Idempotency-Key"]
        if key in self.answered:
            return web.json_response({}, status=self.answered[key])
        status = self.next.pop(0) if self.next else 200
        if status >= 300:
            self.answered[key] = status
            return web.json_response({"error": {"type": "t", "message": "no"}}, status=status)
        if len(body) > 5_000_000:
            return web.json_response({"message": "too large"}, status=413)
        drop = rules.read_billing_file(body)
        assert () == drop.errors
        said = orjson.loads(body)
        assert said["operation"] == "replace_hourly"
        assert drop.month == said["month"]
        self._replace(said["data"])
        self.drops += 1
        self.answered[key] = 200
        if status == 0:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(
            {"connection": {"drop_id": "d", "month": drop.month, "row_count": drop.rows}}
        )

    def _replace(self, rows: list[dict[str, str]]) -> None:
        fresh: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            fresh.setdefault(row["time/usage_start"], []).append(row)
        self.hours.update(fresh)

    @property
    def total(self) -> Decimal:
        return sum((Decimal(row["cost/cost"]) for rows in self.hours.values() for row in rows), Decimal())

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_post("/{path:.*}", self.take)
        self._runner = web.AppRunner(app, auto_decompress=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


class BillingSyncs:
    """A log with its ledger, and billing syncs that can be stopped and restarted."""

    def __init__(
        self, spool: SqliteSpool, ledger: Ledger, clock: StoppedClock, settings: UpstreamSettings
    ) -> None:
        self.spool, self.ledger, self.clock, self.settings = spool, ledger, clock, settings
        self.hours = SqlBillingHours(SqliteTransactions(MemoryDatabase(SPOOL), "hours"))
        self._n = 0

    async def spend(
        self, calls: int, *, since: datetime = MONTH, until: datetime = END, seed: int = 1
    ) -> None:
        chance = random.Random(seed)
        records = []
        for _ in range(calls):
            self._n += 1
            at = chance.randint(int(since.timestamp()), int(until.timestamp()) - 1)
            cost = str(Decimal(chance.randint(1, 10**9)) / 10**10)
            records.append(
                Inference(
                    id=record_id(self._n), source="litellm", provider="openai", start_time=at * NS,
                    request_model=chance.choice(["gpt-4o", "gpt-5", "o3"]), team=chance.choice(["search", "ads", None]),
                    user=f"u{chance.randint(1, 20)}", input_tokens=10, output_tokens=5, cost=cost,
                    cost_source="reported", status=chance.choice(["ok", "ok", "ok", "cached"]),
                )
            )  # fmt: skip
        await self.keep(records)

    async def keep(self, records: Sequence[Record], *, is_final: bool = False) -> None:
        identities = [RecordIdentity(record.id, is_final=is_final) for record in records]
        await self.spool.log.append_submission(
            Submission(
                topic=AI_TELEMETRY, received=len(records), records=list(records), identities=identities
            )
        )
        await self.ledger.catch_up(self.spool.log)

    async def total(self) -> Decimal:
        rows = await self.ledger.costs(CostQuery(since=MONTH, until=END, granularity="total"))
        return sum((Decimal(row.cost) for row in rows), Decimal())

    @asynccontextmanager
    async def sync(self, **changes: Any) -> AsyncIterator[BillingSync]:
        client = HttpClient(ClientSettings(timeout_s=30), clock=self.clock)
        one = BillingSync(
            self.ledger, self.hours, client, self.settings, ConnectionLocks(), clock=self.clock, **changes
        )
        try:
            yield one
        finally:
            await one.close()


@asynccontextmanager
async def syncs_of(tmp_path: Path, service: Service) -> AsyncIterator[BillingSyncs]:
    (tmp_path / "key").write_text(SECRET)
    clock = StoppedClock(at=END.timestamp() + 3600)
    spool = await open_in_memory(settings=SpoolSettings(hold=0), clock=clock)
    ledger = await open_ledger(tmp_path, clock=clock)
    settings = UpstreamSettings(
        base_url=service.url,
        connection_id="c-1",
        keys=(UpstreamKey(name="billing", secret_file=tmp_path / "key", use_cases=(SEND_BILLING_DATA,)),),
    )
    try:
        yield BillingSyncs(spool, ledger, clock, settings)
    finally:
        await ledger.close()
        await spool.close()


async def test_hours_of_a_month_add_up_to_the_ledger(tmp_path: Path) -> None:
    """
    Hours equal the totals to the last digit. Late data change only their hours, and a restart sends nothing again.
    """
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(CALLS)
        async with one.sync() as sync:
            assert await sync.send_changed_hours() == len(service.hours) > min(CALLS / 2, 700)
            assert await one.total() == service.total
            assert 0 == await sync.send_changed_hours()
        drops = service.drops
        async with one.sync() as sync:  # open the sync again, as after a restart
            assert 0 == await sync.send_changed_hours()
            late = datetime(2026, 10, 7, 12, tzinfo=UTC)
            await one.spend(50, since=late, until=late.replace(hour=14), seed=2)
            assert 2 == await sync.send_changed_hours()
        assert await one.total() == service.total
        assert service.drops == drops + 1


async def test_reversed_counter_changes_only_its_hour_of_the_bill(tmp_path: Path) -> None:
    """A counter that a later record takes back changes only its hour, which is sent again without it."""
    hour = int((MONTH + timedelta(days=3)).timestamp())

    def counters(sign: str, first: int) -> list[Record]:
        shared = {"start_time": hour * NS, "user": "u1"}
        tokens = counter(first, value=int(f"{sign}700"), token_type="input", **shared)
        return [tokens, counter(first + 1, value=f"{sign}0.35", unit="USD", **shared)]

    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(20)
        spent = await one.total()
        await one.keep(counters("", 1))
        async with one.sync() as sync:
            await sync.send_changed_hours()
            assert spent + Decimal("0.35") == await one.total() == service.total
            await one.keep(counters("-", 3))
            assert 1 == await sync.send_changed_hours()
            assert 0 == await sync.send_changed_hours()
        assert spent == await one.total() == service.total
        amounts = [Decimal(row["usage/amount"]) for rows in service.hours.values() for row in rows]
        assert 0 <= min(amounts)


async def test_corrections_and_amounts_in_other_currencies_reach_the_bill(tmp_path: Path) -> None:
    """
    An amount without a rate is in no cost but in a tag of its row, even if the row has nothing else. A rate,
    or the final cost of a call, changes only its own hours.
    """
    noon = int(MONTH.timestamp()) + 12 * 3600
    counted = counter(7, start_time=(noon + 7200) * NS, value="0.35", unit="EUR")
    searched = replace(
        call(8), start_time=noon * NS, cost="0.5", cost_source="reported", meters={"web_searches": 2}
    )
    charged = replace(call(9), start_time=(noon + 3600) * NS, charges={"EUR": "2"}, cost_source="reported")
    async with Service() as service, syncs_of(tmp_path, service) as one, one.sync() as sync:

        def told(name: str) -> list[str | None]:
            return [row.get(name) for _, rows in sorted(service.hours.items()) for row in rows]

        await one.keep([searched, charged, counted])
        assert 3 == await sync.send_changed_hours()
        assert ["0.5", "0", "0"] == told("cost/cost")
        assert [None, "2", "0.35"] == told("resource/tag:unconverted_EUR")
        assert ["2", None, None] == told("resource/tag:meter_web_searches")
        assert {"resource/tag:meter_web_searches"} == {
            name for rows in service.hours.values() for row in rows for name in row if "meter_" in name
        }
        one.ledger.rates = lambda given, asked, _: (
            SCALE * 5 // 4 if (given, asked) == ("EUR", "USD") else None
        )
        assert 2 == await sync.send_changed_hours()
        assert told("cost/cost") == ["0.5", "2.5", "0.4375"]
        assert told("resource/tag:unconverted_EUR") == [None] * 3

        settled = [
            (replace(searched, cost="0.2"), 1),
            (replace(charged, cost="0", charges={}), 1),
            (searched, 0),
        ]
        for record, changed in settled:
            await one.keep([record], is_final=bool(changed))
            assert changed == await sync.send_changed_hours()
        assert told("cost/cost") == ["0.2", "0", "0.4375"]
        assert await one.total() == service.total


async def test_no_answer_and_a_stop_in_between_change_nothing(tmp_path: Path) -> None:
    """
    A drop that was applied without an answer is sent again, by this process or the next. The sums stay right.
    """
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(500)
        service.next = [0]
        async with one.sync() as sync:
            with pytest.raises(Retryable):
                await sync.send_changed_hours()
            assert 1 == service.drops
            await sync.send_changed_hours()
        assert await one.total() == service.total
        await one.spend(100, seed=3)
        service.next = [200, 0]
        async with one.sync() as sync:
            with pytest.raises(Retryable):
                await sync.send_changed_hours()
        async with one.sync() as sync:
            await sync.send_changed_hours()
        assert await one.total() == service.total


async def test_an_answer_uses_its_key_up(tmp_path: Path) -> None:
    """
    The service replays a remembered answer. So after any answer, error or success, the next drop has a new key.
    """
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(20, until=datetime(2026, 10, 1, 6, tzinfo=UTC))
        service.next = [500, 400, 403]
        async with one.sync() as sync:
            for error in (Retryable, Rejected, Misconfigured):
                with pytest.raises(error):
                    await sync.send_changed_hours()
            await sync.send_changed_hours()
        assert await one.total() == service.total


async def test_drops_are_split_by_size_with_whole_hours(tmp_path: Path) -> None:
    """
    Drops are split to fit the maximum request size, but no hour is split between two drops. An hour that is too
    large is sent with fewer details.
    """
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(3000, until=datetime(2026, 10, 2, tzinfo=UTC))
        async with one.sync(max_bytes=12_000) as sync:
            await sync.send_changed_hours()
            assert 0 == await sync.send_changed_hours()
        assert 24 == len(service.hours)
        assert service.drops > 10
        assert await one.total() == service.total


async def test_preview_and_push(tmp_path: Path) -> None:
    """
    A preview sends nothing and states what a push would send. A push also sends hours that were sent before.
    """
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(300)
        async with one.sync() as sync:
            planned = await sync.preview(MONTH, END)
            assert service.drops == 0
            assert await one.total() == Decimal(planned.cost)
            pushed = await sync.push(MONTH, END)
            again = await sync.push(MONTH, END)
        assert planned.hours == pushed.sent
        assert pushed.hours == again.sent
        assert pushed.hours == len(service.hours)
        assert await one.total() == service.total


async def test_an_hour_before_the_last_month_is_sent_again(tmp_path: Path) -> None:
    """Late data change the hour of their call if that hour was sent. No other hour is sent."""
    sent_until, late = MONTH + timedelta(days=25), MONTH + timedelta(days=20)
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(CALLS // 2, until=sent_until)
        await one.spend(20, since=late, until=late + timedelta(hours=2), seed=4)
        async with one.sync() as sync:
            await sync.send_changed_hours()
        before = dict(service.hours)
        one.clock.move(32 * 86_400)
        await one.ledger.sum_up_and_delete_hours()
        assert late == await one.ledger.earliest_moment_with_hourly_sums(late)
        await one.spend(50, since=late, until=late + timedelta(hours=2), seed=2)
        total = await one.total()
        never_sent = sent_until + timedelta(days=1)
        await one.spend(5, since=never_sent, until=never_sent + timedelta(hours=1), seed=3)
        async with one.sync() as sync:
            assert 2 == await sync.send_changed_hours()
            assert 0 == await sync.send_changed_hours()
        changed = [start for start, rows in service.hours.items() if rows != before.get(start)]
        assert [late, late + timedelta(hours=1)] == sorted(map(datetime.fromisoformat, changed))
        assert total == service.total


@pytest.mark.parametrize(("ahead", "border"), [(45, 15), (75, 32)])
async def test_row_of_a_day_never_replaces_its_hours(tmp_path: Path, ahead: int, border: int) -> None:
    """
    The row of a day never replaces the rows of its hours. If the clock was months ahead for a while, hours have
    become days. Such hours stay as they were sent, and later hours are still sent.
    """
    kept_since = MONTH + timedelta(days=border - 1)
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(CALLS // 2)
        async with one.sync() as sync:
            await sync.send_changed_hours()
        before = dict(service.hours)
        one.clock.move(ahead * 86_400)
        await one.ledger.sum_up_and_delete_hours()
        one.clock.move(-ahead * 86_400)
        assert kept_since == (await one.ledger.state()).hourly_since
        await one.spend(50, since=MONTH, until=MONTH + timedelta(days=10), seed=2)
        late = MONTH + timedelta(days=20)
        await one.spend(50, since=late, until=late + timedelta(hours=2), seed=3)
        async with one.sync() as sync:
            assert (2 if late > kept_since else 0) == await sync.send_changed_hours()
            with pytest.raises(NotKept, match=f"Choose a start of {kept_since:%Y-%m-%d}"):
                await sync.push(MONTH, END)
        changed = {start for start, rows in service.hours.items() if rows != before.get(start)}
        assert all(late <= datetime.fromisoformat(start) < late + timedelta(hours=2) for start in changed)


async def test_ledger_that_lacks_records_changes_no_sent_hour(tmp_path: Path) -> None:
    """After the loss of ledger.sqlite, a sent hour changes only if all its records are still stored."""
    async with Service() as service, syncs_of(tmp_path, service) as one:
        await one.spend(CALLS // 2)
        async with one.sync() as sync:
            await sync.send_changed_hours()
        before, left = dict(service.hours), FakeLog()
        arrival = MONTH + timedelta(days=25, minutes=30)
        left.add([None] * 100, at=MONTH.timestamp())
        starts = [arrival - timedelta(hours=5), arrival, arrival + timedelta(hours=4)]
        left.add([known(start_time=int(start.timestamp()) * NS) for start in starts], at=arrival.timestamp())
        left.add([known(start_time=int(END.timestamp()) * NS)], at=END.timestamp() + 60)
        left.forget_below(101)
        (tmp_path / "again").mkdir()
        kept, one.ledger = one.ledger, await open_ledger(tmp_path / "again", clock=one.clock)
        try:
            async with one.sync() as sync:
                with pytest.raises(TotalsIncomplete):
                    await sync.send_changed_hours()
                await one.ledger.catch_up(left)
                await sync.send_changed_hours()
                await sync.push(MONTH, END)
        finally:
            await one.ledger.close()
            one.ledger = kept
        whole = MONTH + timedelta(days=25, hours=2)
        for start, rows in before.items():
            assert rows == service.hours[start] or datetime.fromisoformat(start) >= whole
        assert before != service.hours
