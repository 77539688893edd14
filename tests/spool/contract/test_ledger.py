"""The ledger on every engine: its sums always equal a recount of the log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal, localcontext
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.intake.prices import PriceBook
from spool.errors import NotAllowed
from spool.identity import call_identity
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import DerivedDimension
from spool.ledger.ledger import STEP, Ledger
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import WIDTH, Dimensions
from spool.ledger.token_sums import TokenSum
from spool.log.planning.corrections import correction_subtracting_duplicate
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry, Submission
from spool.record import AI_TELEMETRY, NS, Correction, Inference, Record, UsageMetric
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from tests.rounds import examples, part
from tests.spool.ledger.engines import ENGINES, POOLED, POSTGRES, SQLITE, Ledgers
from tests.spool.ledger.rebuilding import are_totals_complete
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, FakePrices, call, recount, recount_meter
from tests.spool.postgres_cluster import BEHIND_POOLER
from tests.waiting import limited, until

DAY = 24 * HOUR
ALL = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
EXAMPLES = (
    100 if BEHIND_POOLER else examples(80)
)  # number of examples: 100 behind a pooler, where all tests run


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def hourly(
    ledger: Ledger, *dimensions: str, since: int = BEGIN - 3 * DAY, days: int = 6
) -> dict[Any, Any]:
    query = CostQuery(
        since=at(since), until=at(since + days * DAY), granularity="hourly", group_by=dimensions
    )
    return {
        (int(row.start.timestamp()), *row.group): (
            row.calls, row.input_tokens, row.output_tokens, Decimal(row.cost), Decimal(row.saved),
        )
        for row in await ledger.costs(query)
    }  # fmt: skip


async def metered(
    ledger: Ledger, meter: str, *dimensions: str, granularity: str = "hourly"
) -> dict[Any, Any]:
    query = CostQuery(
        since=at(BEGIN - 3 * DAY),
        until=at(BEGIN + 3 * DAY),
        granularity=granularity,
        group_by=dimensions,
        meter=meter,
    )
    return {
        (int(row.start.timestamp()), *row.group): Decimal(row.metered).scaleb(-6)
        for row in await ledger.costs(query)
        if row.metered
    }


async def total(ledger: Ledger, **fields: Any) -> CostRow:
    [row] = await ledger.costs(CostQuery(since=ALL[0], until=ALL[1], granularity="total", **fields))
    return row


money = st.decimals(0, 100, places=21).map(lambda amount: f"{amount:f}")
texts = st.sampled_from([None, "a", "b", "ä"])


@st.composite
def records(draw: st.DrawFn) -> Any:
    cost, estimate = draw(st.none() | money), draw(st.none() | money)
    return call(
        request_model=draw(texts),
        response_model=draw(texts),
        provider=draw(texts),
        user=draw(texts),
        team=draw(texts),
        region=draw(texts),
        sender_key=draw(texts),
        tags=draw(st.sampled_from([{}, {"service": "x"}, {"service": "y", "other": "z"}])),
        start_time=draw(st.none() | st.integers(-2 * DAY, HOUR - 1).map(lambda s: (BEGIN + s) * NS)),
        input_tokens=draw(st.none() | st.integers(0, 300_000)),
        output_tokens=draw(st.none() | st.integers(0, 1000)),
        cost=cost,
        estimated_cost=estimate,
        cost_source="reported" if cost is not None else "none" if estimate is None else "estimated",
        status=draw(st.sampled_from(["ok", "ok", "error", "cached"])),
        shadow=draw(st.booleans()),
        meters=draw(
            st.sampled_from([{}, {"web_searches": 2}, {"web_searches": 1, "audio_seconds": "0.000001"}])
        ),
    )


@pytest.mark.parametrize("engine", part(ENGINES, every=2))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(st.lists(records() | st.none(), max_size=6) | st.just("restart"), max_size=6),
    data=st.data(),
)
def test_sums_equal_a_recount(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    engine: str,
    steps: list[Any],
    data: st.DataObject,
) -> None:
    """
    With shadows, cached and late calls, damaged numbers and restarts, every hour and dimension is exact.
    """

    async def run() -> None:
        ledgers = Ledgers.of(engine, request, tmp_path_factory.mktemp("ledger"))
        log, ledger = FakeLog(), await ledgers.open(clock=FakeClock(BEGIN + 8 * HOUR))
        try:
            for step in steps:
                if step == "restart":
                    await ledger.close()
                    ledger = await ledgers.open(clock=FakeClock(BEGIN + 8 * HOUR))
                else:
                    log.add(step, at=BEGIN + data.draw(st.integers(0, DAY)))
                    if data.draw(st.booleans()):
                        await ledger.catch_up(log)
                        await ledger.sum_up_and_delete_hours()
            await ledger.catch_up(log)
            for dimensions in (
                (),
                ("model", "team"),
                ("user", "tag:service"),
                ("status", "region", "provider"),
                ("sender",),
            ):
                assert recount(log, *dimensions) == await hourly(ledger, *dimensions)
                for meter in ("web_searches", "audio_seconds"):
                    assert recount_meter(log, meter, *dimensions) == await metered(ledger, meter, *dimensions)
                assert await _added_up(ledger, "hourly", dimensions) == await _added_up(
                    ledger, "daily", dimensions
                )
        finally:
            await ledgers.close()

    asyncio.run(run())


@pytest.mark.parametrize("engine", part(ENGINES, every=2))
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 8),  # number of the call; the range is small, so that most calls are repeated
            st.sampled_from([None, "0.1", "0.12345678901234567"]),
            st.sampled_from([None, "ann", "bob"]),
            st.integers(0, 5),  # seconds until the next call
            st.sampled_from(["stay", "stay", "count", "restart"]),
        ),
        max_size=30,
    )
)
def test_duplicates_and_amendments(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: str, steps: list[Any]
) -> None:
    """Repeated calls count once, with the values that the log has in the end."""

    async def run() -> None:
        ledgers, clock = Ledgers.of(engine, request, tmp_path_factory.mktemp("ledger")), FakeClock(BEGIN)
        spool = await in_memory.open_spool(settings=SpoolSettings(hold=10), clock=clock)
        ledger = await ledgers.open(clock=clock)
        try:
            for number, cost, user, pause, then in steps:
                source = "none" if cost is None else "reported"
                report = call(cost=cost, estimated_cost=None, cost_source=source, user=user)
                known_as = call_identity(report, response_id=f"chatcmpl-{number:032d}")
                report.id = known_as.id
                await spool.log.append_submission(
                    Submission(topic=AI_TELEMETRY, received=1, records=[report], identities=[known_as])
                )
                clock.at += pause
                if then != "stay":
                    await ledger.catch_up(spool.log)
                if then == "restart":
                    await ledger.close()
                    ledger = await ledgers.open(clock=clock)
            clock.at += 11
            await ledger.catch_up(spool.log)
            final = FakeLog()
            final.entries = list(
                await spool.log.read(AI_TELEMETRY, 1, spool.log.lowest_open_number(AI_TELEMETRY) - 1)
            )
            kept = [record for entry in final.entries for record in entry.records]
            assert len({number for number, *_ in steps}) == sum(isinstance(each, Inference) for each in kept)
            assert recount(final, "user") == await hourly(ledger, "user")
        finally:
            await ledgers.close()
            await spool.close()

    asyncio.run(run())


async def _added_up(ledger: Ledger, granularity: str, dimensions: tuple[str, ...]) -> dict[Any, Any]:
    """Return calls and cost by group over all periods. Days have their own stored sums."""
    totals: dict[Any, Any] = defaultdict(lambda: (0, Decimal(0)))
    query = CostQuery(
        since=at(BEGIN - 3 * DAY), until=at(BEGIN + 3 * DAY), granularity=granularity, group_by=dimensions
    )
    with localcontext(Context(prec=60)):
        for row in await ledger.costs(query):
            calls, cost = totals[row.group]
            totals[row.group] = calls + row.calls, cost + Decimal(row.cost)
    return dict(totals)


@pytest.mark.rule
async def test_follow_counts_existing_and_new_records(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`follow` lets the running ledger count existing and new records by itself."""
    monkeypatch.setattr("spool.ledger.ledger.PAUSE_S", 0)
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call()])
    following = asyncio.create_task(ledger.count_until_cancelled(log))
    async with limited():
        await log.wait_read(1)
        log.add([call()])
        await log.wait_read(2)
        await asyncio.shield(ledger.catch_up(log))  # this call waits until the current transaction has ended
    following.cancel()
    assert (await total(ledger)).calls == 2


@pytest.mark.rule
async def test_catching_up_ends_while_senders_never_pause(ledgers: Ledgers) -> None:
    """
    Catching up ends even if senders never pause: records that close meanwhile are left to the next run. Otherwise
    callers would wait forever.
    """

    class Growing(FakeLog):
        async def read(
            self, topic: str, first_number: int, last_number: int, **options: Any
        ) -> Sequence[LogEntry]:
            self.add([call()])
            return await super().read(topic, first_number, last_number, **options)

    log, ledger = Growing(), await ledgers.open()
    log.add([call()])
    async with limited():
        assert [2, 3] == [await ledger.catch_up(log) for _ in range(2)]


@pytest.mark.rule
async def test_others_run_between_the_steps_of_a_count(ledgers: Ledgers) -> None:
    """
    Other work runs between the steps of a count: thousands of records are read and added in steps of a few hundred.
    Their sums are one transaction.
    """
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    class Watched(FakeLog):
        async def read(
            self, topic: str, first_number: int, last_number: int, **options: Any
        ) -> Sequence[LogEntry]:
            seen.append((last_number - first_number + 1, turns))
            return await super().read(topic, first_number, last_number, **options)

    seen: list[tuple[int, int]] = []
    log, ledger = Watched(), await ledgers.open()
    log.add([call()] * (4 * STEP + 1))
    running = asyncio.create_task(others())
    await ledger.catch_up(log)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    sizes, turns_seen = zip(*seen, strict=True)
    assert (STEP, STEP, STEP, STEP, 1) == sizes
    assert len(set(turns_seen)) == len(turns_seen)
    assert 4 * STEP + 1 == (await total(ledger)).calls


@pytest.mark.one_engine
async def test_measures(ledgers: Ledgers) -> None:
    """
    Measures are errors, cached calls, tokens by kind, both costs, counted and saved cost, unknown
    cost, and latency.
    """
    log, ledger = FakeLog(), await ledgers.open()
    start = BEGIN * NS
    log.add([
        call(cost="1", estimated_cost="2", cost_source="reported", cache_read_tokens=30, end_time=start + NS // 5),
        call(
            estimated_cost="4", status="error", cache_write_tokens=20, cache_write_1h_tokens=12, reasoning_tokens=5,
            end_time=start + 700 * NS,
        ),
        call(cost="8", estimated_cost="16", cost_source="reported", status="cached"),
        call(estimated_cost=None, cost_source="none"),
    ])  # fmt: skip
    await ledger.catch_up(log)
    row = await total(ledger)
    assert row.cost == "5"
    assert row.reported == "1"
    assert row.estimated == "6"
    assert row.saved == "16"
    assert row.calls == 4
    assert row.errors == 1
    assert row.cached == 1
    assert row.unpriced == 1
    assert row.input_tokens == 400
    assert row.output_tokens == 40
    assert row.cache_read_tokens == 30
    assert row.cache_write_tokens == 20
    assert row.reasoning_tokens == 5
    assert row.cache_write_1h_tokens == 12
    assert row.cached_input_tokens == 100
    assert row.cached_output_tokens == 10
    assert row.latency_ms == 700_200
    assert (0, 1, *[0] * 9, 1) == row.latency


@pytest.mark.one_engine
@pytest.mark.parametrize(
    "measures",
    [
        ("cost", "calls"),
        ("errors", "output_tokens"),
        ("cached_input_tokens",),
        ("latency_ms",),
        ("latency", "saved"),
    ],
)
async def test_a_few_measures_are_those_of_all(ledgers: Ledgers, measures: tuple[str, ...]) -> None:
    """A measure has the same value in any combination. Calls and money are always included."""
    log = FakeLog()
    fields: dict[str, Any] = {"start_time": BEGIN * NS, "end_time": (BEGIN + 2) * NS, "input_tokens": 7}
    for status in ("ok", "error", "cached"):
        said = {**fields, "output_tokens": 3, "status": status, "cost": "0.5", "cost_source": "reported"}
        log.add([call(id=status.encode().ljust(16), estimated_cost="0.25", **said)])
    ledger = await ledgers.open()
    await ledger.catch_up(log)
    whole, few = await total(ledger), await total(ledger, measures=measures)
    names = (*measures, "calls", "cost", "reported", "estimated", "saved")
    assert [getattr(whole, name) for name in names] == [getattr(few, name) for name in names]
    assert whole.calls == 3
    assert whole.cost == "1"


@pytest.mark.one_engine
async def test_counters_count_as_tokens_and_money(ledgers: Ledgers) -> None:
    """
    Counters without calls count, with cache and reasoning inside their tokens and with their reported cost.
    """
    log, ledger = FakeLog(), await ledgers.open()

    def point(
        name: str, kind: str | None, value: int | str, unit: str = "{token}", **fields: Any
    ) -> UsageMetric:
        return UsageMetric(
            id=b"",
            source="s",
            name=name,
            model="m",
            token_type=kind,
            value=value,
            unit=unit,
            start_time=BEGIN * NS,
            **fields,
        )

    log.add([
        point("claude_code.token.usage", "input_uncached", 100),
        point("claude_code.token.usage", "cache_read", 50),
        point("claude_code.token.usage", "cache_read", 5000, shadow=True),
        point("claude_code.cost.usage", None, "0.0188205", "USD"),
        point("gemini_cli.token.usage", "output_visible", 7),
        point("gemini_cli.token.usage", "reasoning", 3),
        point("gen_ai.client.token.usage", "input", 20),
        point("gen_ai.client.token.usage", "cache_read", 10),
        point("gen_ai.client.token.usage", "audio", 10),
    ])  # fmt: skip
    await ledger.catch_up(log)
    row = await total(ledger)
    assert row.calls == 0
    assert row.cost == "0.0188205"
    assert row.reported == "0.0188205"
    assert row.input_tokens == 170
    assert row.output_tokens == 10
    assert row.cache_read_tokens == 60
    assert row.reasoning_tokens == 3


@pytest.mark.one_engine
async def test_negative_counter_subtracts_tokens_and_money(ledgers: Ledgers) -> None:
    """A negative counter subtracts tokens and money in its hour to the last digit, also in a rebuild."""
    log, ledger = FakeLog(), await ledgers.open()

    def points(sign: int, minus: str) -> list[Record]:
        shared: dict[str, Any] = {"id": b"", "source": "s", "model": "m", "start_time": BEGIN * NS}
        return [
            UsageMetric(name="claude_code.token.usage", token_type="cache_read", value=50 * sign, **shared),
            UsageMetric(name="claude_code.cost.usage", value=f"{minus}0.0188205", unit="USD", **shared),
        ]

    log.add([call(), *points(1, "")])
    await ledger.catch_up(log)
    before = await total(ledger)
    log.add(points(-1, "-"), at=BEGIN + 2 * HOUR)
    await ledger.catch_up(log)
    for _ in range(2):
        row = await total(ledger)
        assert row.calls == 1
        assert row.input_tokens == 100
        assert row.cache_read_tokens == 0
        assert row.reported == "0"
        assert Decimal(before.cost) - Decimal("0.0188205") == Decimal(row.cost)
        assert 0 == (await ledger.state()).absurd
        await ledger.rebuild(log)
        await ledger.catch_up(log)


@pytest.mark.one_engine
async def test_a_correction_counts_in_the_hour_of_its_call(ledgers: Ledgers) -> None:
    """
    A correction replaces the call's old values in the hour of the call, including meters, also in a rebuild.
    Log and ledger agree.
    """
    log, ledger = FakeLog(), await ledgers.open()
    before = call(id=b"1" * 16, output_tokens=None, meters={"web_searches": 3})
    after = msgspec.structs.replace(
        before, output_tokens=7, cost="0.5", cost_source="reported", meters={"audio_seconds": "1.5"}
    )
    log.add([before, call()])
    log.add([_correction(before, after, at=BEGIN + 5 * HOUR)], at=BEGIN + 5 * HOUR)
    await ledger.catch_up(log)
    for _ in range(2):
        assert {
            (BEGIN, "reported"): (1, 100, 7, Decimal("0.5"), 0),
            (BEGIN, "estimated"): (1, 100, 10, Decimal("0.00035"), 0),
        } == await hourly(ledger, "cost_source")
        assert {} == await metered(ledger, "web_searches")
        assert {(BEGIN,): Decimal("1.5")} == await metered(ledger, "audio_seconds")
        assert [] == list((await ledger.compare_and_note_differences(log)).differences)
        await ledger.rebuild(log)
        await ledger.catch_up(log)


@pytest.mark.parametrize("top", [None, 1, 5])
async def test_what_a_correction_leaves_nothing_of_has_no_row(ledgers: Ledgers, top: int | None) -> None:
    """
    If the region of a call is corrected, the old region has no row any more. A call without tokens and cost
    keeps its row.
    """
    log, ledger = FakeLog(), await ledgers.open()
    before = call(id=b"1" * 16, region="us")
    free = call(region="nowhere", input_tokens=None, output_tokens=None, cost="0", meters={})
    log.add([before, free])
    log.add([_correction(before, msgspec.structs.replace(before, region="eu"), at=BEGIN)])
    await ledger.catch_up(log)
    query = CostQuery(since=at(BEGIN), until=at(BEGIN + HOUR), group_by=("region",), granularity="hourly")
    rows = await ledger.costs(replace(query, top=top))
    assert 2 == sum(row.calls for row in rows)
    assert "us" not in {row.group[0] for row in rows}
    assert 2 == len(rows)


@pytest.mark.one_engine
async def test_call_that_another_record_counts_adds_nothing(ledgers: Ledgers) -> None:
    """
    Calls, failures, money, meters and latency of a call that another record counts leave the hour of the call,
    also in a rebuild. A call that was too large to be counted changes nothing. Log and ledger agree.
    """
    log, ledger = FakeLog(), await ledgers.open()
    fields: dict[str, Any] = {"status": "error", "cost": "0.5", "cost_source": "reported"}
    failed = call(id=b"1" * 16, meters={"web_searches": 3}, charges={}, **fields)
    large = call(id=b"2" * 16, input_tokens=10**13)
    counted = call(id=b"3" * 16)
    log.add([counted, failed, large])
    log.add(
        [
            correction_subtracting_duplicate(
                each, 0, counted.id, counted, now_ns=int((BEGIN + 5 * HOUR) * NS)
            )
            for each in (failed, large)
        ],
        at=BEGIN + 5 * HOUR,
    )
    await ledger.catch_up(log)
    for _ in range(2):
        assert [1] == [values[0] for values in (await hourly(ledger, "status")).values()]
        assert {} == await metered(ledger, "web_searches")
        row = await total(ledger)
        assert (1, 0, 100, "0") == (row.calls, row.errors, row.input_tokens, row.reported)
        assert [] == list((await ledger.compare_and_note_differences(log)).differences)
        await ledger.rebuild(log)
        await ledger.catch_up(log)


def _correction(before: Inference, after: Inference, *, at: float) -> Correction:
    return Correction(
        id=b"c" * 16,
        source="kong",
        corrects=before.id,
        reason="late_usage",
        known_at=int(at * NS),
        start_time=before.start_time or 0,
        before=before,
        after=after,
    )


@pytest.mark.rule
async def test_times(ledgers: Ledgers) -> None:
    """
    A call counts in the hour of its start, however late. Without a start, or with a future start, it counts
    at its arrival.
    """
    log, ledger = FakeLog(), await ledgers.open()
    arrival = BEGIN + 5 * HOUR + 1800
    starts = [None, BEGIN, BEGIN + 5 * HOUR, BEGIN + 6 * HOUR, BEGIN + 8 * HOUR, BEGIN - 60 * DAY]
    log.add([call(start_time=None if start is None else start * NS) for start in starts], at=arrival)
    await ledger.catch_up(log)
    rows = await hourly(ledger, since=BEGIN - 61 * DAY, days=63)
    hours = {(hour - BEGIN) // HOUR: values[0] for (hour,), values in rows.items()}
    assert {5: 3, 0: 1, 6: 1, -60 * 24: 1} == hours


@pytest.mark.rule
async def test_absurd_records_stay_out(ledgers: Ledgers) -> None:
    """Values that no call can have are not summed but counted, so that no sum overflows."""
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call(input_tokens=10**13), call(cost="99999999", cost_source="reported"), call()])
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 1
    assert (await ledger.state()).absurd == 2


@pytest.mark.one_engine
async def test_cardinality_is_bounded(ledgers: Ledgers) -> None:
    """
    Beyond the limit, a period's new users, and then its new models, share one row. The totals stay right.
    """
    log, ledger = FakeLog(), await ledgers.open(max_rows=20)
    for batch in range(4):
        log.add([call(user=f"u{batch}-{number}", request_model=f"m{number}") for number in range(30)])
        await ledger.catch_up(log)
        await ledger.close()
        ledger = await ledgers.open(max_rows=20)
    by_user = {row.group[0]: row.calls for row in await ledger.costs(everything("user"))}
    by_model = {row.group[0]: row.calls for row in await ledger.costs(everything("model"))}
    assert sum(by_user.values()) == 120
    assert sum(by_model.values()) == 120
    assert len(by_user) == 21
    assert by_user["(other)"] == 100
    assert by_model["(other)"] > 0
    assert (await ledger.state()).rows <= 23


async def test_users_beyond_the_limit_leave_no_names(ledgers: Ledgers) -> None:
    """
    Names of users beyond the limit are not stored. Dimensions without a sum are deleted with their old hours.
    """
    clock = FakeClock(BEGIN + DAY)
    log, ledger = FakeLog(), await ledgers.open(max_rows=20, clock=clock)
    for hour in range(3):
        start = (BEGIN + hour * HOUR) * NS
        log.add([call(user=f"u{hour}-{number}", start_time=start) for number in range(500)], at=clock.at)
        await ledger.catch_up(log)
    # twenty users in each of three hours, and the row that all other users share
    assert 61 == len(await ledger.values("user"))
    unused = Dimensions._make(0 if name == "size" else "" for name in Dimensions._fields)._replace(
        user="nobody"
    )
    await ledgers.store.change(lambda rows: rows.find_or_assign_dimension_set_numbers([unused]))
    clock.at += 65 * DAY
    assert await ledger.sum_up_and_delete_hours() > 0
    assert "nobody" not in await ledger.values("user")
    log.add([call(user="u2-0", start_time=int(clock.at) * NS)], at=clock.at)
    await ledger.catch_up(log)
    by_user = {row.group[0]: row.calls for row in await ledger.costs(everything("user"))}
    assert sum(by_user.values()) == 1501
    assert by_user["u2-0"] == 2


def everything(*dimensions: str) -> CostQuery:
    return CostQuery(since=ALL[0], until=ALL[1], granularity="total", group_by=dimensions)


OWNER = DerivedDimension(
    name="Own:'er",
    label="Owner",
    sources=("team", "tag:service"),
    value=lambda values: "" if values == ("", "") else "-".join(values),
)
SIZE = DerivedDimension(
    name="Size", label="Size", sources=("model",), value=lambda values: "large" if values[0] else "small"
)


async def test_derived_dimensions(ledgers: Ledgers) -> None:
    """A dimension that is a function of others can be grouped, filtered and listed like the others."""
    log, ledger = FakeLog(), await ledgers.open()
    for model, team, service in (("m", "a", "x"), ("m", "a", "y"), (None, "a", "x"), ("m", None, None)):
        tags = {"service": service} if service else {}
        log.add([call(response_model=model, request_model=None, team=team, tags=tags)], at=BEGIN)
    await ledger.catch_up(log)
    assert [] == list(ledger.derived_dimensions())
    with pytest.raises(ValueError, match="not a dimension"):
        await total(ledger, group_by=["Size"])
    ledger.set_derived_dimensions([OWNER, SIZE])
    assert (*ledger.builtin_and_tag_dimensions(), OWNER.name, "Size") == tuple(ledger.dimensions())
    groups = [OWNER.name, "Size", "team"]
    rows = await ledger.costs(CostQuery(since=ALL[0], until=ALL[1], granularity="total", group_by=groups))
    assert [(None, "large", None), ("a-x", "large", "a"), ("a-x", "small", "a"), ("a-y", "large", "a")] == [
        row.group for row in rows
    ]
    assert 4 == (await total(ledger)).calls
    assert ["a-x", "a-y"] == list(await ledger.values(OWNER.name))
    assert 2 == (await total(ledger, include={OWNER.name: ["a-x"]})).calls
    assert 1 == (await total(ledger, include={OWNER.name: [""]})).calls
    assert 1 == (await total(ledger, include={OWNER.name: ["a-x"]}, exclude={"Size": ["small"]})).calls
    other = replace(SIZE, value=lambda values: "any")
    assert ("any",) == (await total(ledger, group_by=["Size"], derived={"Size": other})).group
    assert at(BEGIN // HOUR * HOUR) == await ledger.first_period_with_dimension("tag:service")
    assert await ledger.first_period_with_dimension("device") is None
    ledger.set_derived_dimensions([])
    with pytest.raises(ValueError, match="not a dimension"):
        await ledger.values("Size")


async def test_filters(ledgers: Ledgers) -> None:
    """Filters include and exclude values. An empty text means unknown."""
    log, ledger = FakeLog(), await ledgers.open()
    log.add(
        [call(team="a"), call(team="b"), call(team="c", user="x"), call(team=None, tags={"service": "it's"})]
    )
    await ledger.catch_up(log)
    assert (await total(ledger, include={"team": ["a", "b"]})).calls == 2
    assert (await total(ledger, exclude={"team": ["a"]})).calls == 3
    assert (await total(ledger, include={"team": [""], "tag:service": ["it's"]})).calls == 1
    assert ["a", "b", "c"] == await ledger.values("team")
    assert ["it's"] == await ledger.values("tag:service")
    together = await ledger.value_combinations(("team", "tag:service"), lambda parts: {*chain(*parts)})
    assert {("a", ""), ("b", ""), ("c", ""), ("", "it's")} == together
    assert {()} == await ledger.value_combinations((), lambda parts: {*chain(*parts)})
    with pytest.raises(ValueError, match="not a dimension"):
        await ledger.value_combinations(("k.id; DROP TABLE keys",), list)
    with pytest.raises(ValueError, match="not a dimension"):
        await ledger.costs(everything("k.id; DROP TABLE keys"))


@pytest.mark.rule
@pytest.mark.parametrize(
    ("granularity", "zone", "expected"),
    [
        ("daily", UTC, ["2026-03-28", "2026-03-29", "2026-03-30"]),
        ("daily", ZoneInfo("Europe/Berlin"), ["2026-03-28", "2026-03-29", "2026-03-30"]),
        ("daily", timezone(timedelta(hours=-5)), ["2026-03-28", "2026-03-29"]),
        ("weekly", UTC, ["2026-03-23", "2026-03-30"]),
        ("monthly", UTC, ["2026-03-01"]),
        ("quarterly", UTC, ["2026-01-01"]),
        ("yearly", UTC, ["2026-01-01"]),
    ],
)
async def test_periods(ledgers: Ledgers, granularity: str, zone: Any, expected: list[str]) -> None:
    """Periods follow the zone's wall clock, even on days of 23 hours, without gaps."""
    first = datetime(2026, 3, 28, 5, tzinfo=UTC)
    log, ledger = FakeLog(), await ledgers.open(clock=FakeClock(first.timestamp() + DAY))
    starts = [first + timedelta(hours=hours) for hours in range(47)]
    log.add(
        [call(start_time=int(start.timestamp()) * NS) for start in starts], at=first.timestamp() + 2 * DAY
    )
    await ledger.catch_up(log)
    query = CostQuery(
        since=datetime(2026, 1, 1, tzinfo=zone),
        until=datetime(2027, 1, 1, tzinfo=zone),
        granularity=granularity,
        zone=zone,
    )
    rows = await ledger.costs(query)
    assert expected == [row.start.astimezone(zone).date().isoformat() for row in rows]
    assert sum(row.calls for row in rows) == 47


@pytest.mark.rule
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
@pytest.mark.parametrize("granularity", ["hourly", "daily"])
async def test_periods_together_are_periods_one_by_one(ledgers: Ledgers, granularity: str, day: str) -> None:
    """
    A query of several periods returns the same groups as one query for each period. This holds on days of 23
    or 25 hours, and where stored days end and stored hours begin.
    """
    zone = ZoneInfo("Europe/Berlin")
    first = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=2)
    clock = FakeClock(first.timestamp() + 3 * DAY)
    log, ledger = FakeLog(), await ledgers.open(clock=clock)
    for hour in range(0, 96, 2):
        start = int(first.timestamp()) + hour * HOUR
        log.add(
            [call(id=hour.to_bytes(16, "big"), team=f"team {hour % 3}", start_time=start * NS)], at=clock.at
        )
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    query = CostQuery(
        since=first, until=first + timedelta(days=4), granularity=granularity, group_by=["team"], zone=zone
    )
    one_by_one = [
        row
        for start, end in periods_of_query(query)
        for row in await ledger.costs(replace(query, since=start, until=end))
    ]
    together = await ledger.costs(query)
    assert 48 == sum(row.calls for row in together)
    assert one_by_one == together


async def test_old_hours_become_days(ledgers: Ledgers) -> None:
    """After two months a day's sum replaces its hours. Late calls of that day are added to it."""
    clock = FakeClock(BEGIN)
    log, ledger = FakeLog(), await ledgers.open(clock=clock)
    log.add(
        [
            call(start_time=(BEGIN + hours * HOUR) * NS, user=f"u{hours % 3}", meters={"web_searches": 1})
            for hours in range(48)
        ],
        at=BEGIN + 2 * DAY,
    )
    await ledger.catch_up(log)
    clock.at = BEGIN + 3 * DAY
    assert await ledger.sum_up_and_delete_hours() == 0
    log.add([call(start_time=(BEGIN + 30 * HOUR) * NS, user="u0")], at=clock.at)
    await ledger.catch_up(log)
    assert recount(log, "user") == await hourly(ledger, "user")
    assert recount_meter(log, "web_searches", "user") == await metered(ledger, "web_searches", "user")
    clock.at = BEGIN + 64 * DAY - 1
    assert await ledger.sum_up_and_delete_hours() == 24
    log.add([call(start_time=(BEGIN + 3 * HOUR) * NS, user="u0")], at=clock.at)
    await ledger.catch_up(log)
    days = await ledger.costs(CostQuery(since=at(BEGIN), until=at(BEGIN + 2 * DAY), group_by=("user",)))
    assert [("u0", 9), ("u1", 8), ("u2", 8), ("u0", 9), ("u1", 8), ("u2", 8)] == [
        (row.group[0], row.calls) for row in days
    ]
    of_days = await metered(ledger, "web_searches", granularity="daily")
    assert [24, 24] == [of_days[BEGIN,], of_days[BEGIN + DAY,]]
    assert (await ledger.state()).hourly_since == at(BEGIN + DAY)
    assert await ledger.sum_up_and_delete_hours() == 0


@pytest.mark.one_engine
async def test_old_hours_go_a_day_at_a_time(ledgers: Ledgers) -> None:
    """A gateway that was stopped for a month deletes as much per transaction as a running one."""
    clock = FakeClock(BEGIN)
    log, ledger = FakeLog(), await ledgers.open(clock=clock)
    for day in (0, 1, 7, 30):
        begin = BEGIN + day * DAY
        calls = [call(start_time=int(begin + hour * HOUR) * NS) for hour in range(24)]
        log.add(calls, at=begin + DAY)
    await ledger.catch_up(log)
    clock.at = BEGIN + 95 * DAY
    removed, change = [], ledgers.store.change

    def hours(ledger_rows: LedgerRows) -> int:
        return sum(
            measures[0]
            for start in ledger_rows.period_starts(HOUR, 0)
            for _, measures in ledger_rows.measures_by_dimension_set_number(HOUR, start)
        )

    async def noted(work: Callable[[LedgerRows], Any]) -> Any:
        before = await ledgers.store.read(hours)
        result = await change(work)
        removed.append(before - await ledgers.store.read(hours))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledgers.store, "change", noted)
        assert 96 == await ledger.sum_up_and_delete_hours()
    assert [gone for gone in removed if gone] == [24] * 4
    assert sum(removed) == 96
    assert at(BEGIN + 31 * DAY) == (await ledger.state()).hourly_since


@pytest.mark.one_engine
async def test_rebuild(ledgers: Ledgers) -> None:
    """A rebuild counts the hours again for which all records are stored. Other hours stay unchanged."""
    log, ledger = FakeLog(), await ledgers.open()
    for hours in ((1, 2), (2, 3), (3, 1)):
        log.add([call(start_time=(BEGIN + hour * HOUR) * NS) for hour in hours], at=BEGIN + DAY)
    whole = recount(log)
    await ledger.catch_up(log)
    await _spoil(ledgers.store, BEGIN + 3 * HOUR)
    log.forget_below(3)
    rebuilt = await ledger.rebuild(log)
    assert rebuilt.periods == 1
    assert rebuilt.kept == 2
    assert at(BEGIN + 3 * HOUR) == rebuilt.border
    assert rebuilt.first == 3
    with pytest.raises(NotAllowed):
        await ledger.rebuild(log)
    await ledger.close()
    ledger = await ledgers.open()  # open the ledger again, as after a kill
    log.add([call(start_time=(BEGIN + HOUR) * NS)])
    await ledger.catch_up(log)
    whole[(BEGIN + HOUR,)] = (3, 300, 30, Decimal("0.00105"), Decimal(0))
    assert whole == await hourly(ledger)
    state = await ledger.state()
    assert state.rebuilding == 0
    assert state.missed == 0
    assert state.reach == 8


@pytest.mark.one_engine
async def test_a_rebuild_counts_by_region(ledgers: Ledgers) -> None:
    """
    In a rebuild, hours that stay keep their regions, and their rows without a region from before the upgrade.
    """
    log, ledger = FakeLog(), await ledgers.open()
    for hour, regions in ((1, (None, "eu")), (2, ("eu", "us")), (3, (None, "us", "us"))):
        log.add(
            [call(start_time=(BEGIN + hour * HOUR) * NS, region=region) for region in regions], at=BEGIN + DAY
        )
    whole = recount(log, "region")
    await ledger.catch_up(log)
    log.forget_below(3)
    assert (rebuilt := await ledger.rebuild(log)).periods == 2
    assert rebuilt.kept == 1
    await ledger.catch_up(log)
    assert whole == await hourly(ledger, "region")


async def _spoil(store: LedgerStore, hour: int) -> None:
    """Add seven calls that do not exist."""

    def work(ledger_rows: LedgerRows) -> None:
        for number in ledger_rows.dimension_set_numbers_in_period(HOUR, hour):
            ledger_rows.add_sums(HOUR, [(hour, number, [7, *[0] * (WIDTH - 1)])])

    await store.change(work)


@pytest.mark.parametrize("ledgers", [SQLITE], indirect=True)
async def test_counted_sums_stay_if_log_numbers_repeat(ledgers: Ledgers) -> None:
    """
    After the log was lost or restored, its numbers repeat. Counted sums stay, and new records are added.
    """
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call(), call(), call()])
    await ledger.catch_up(log)
    await ledger.close()
    log, ledger = FakeLog(), await ledgers.open()
    await ledger.catch_up(log)
    log.add([call(), call()])
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 5
    assert (await ledger.state()).reach == 3
    assert (rebuilt := await ledger.rebuild(log)).periods == 0
    assert rebuilt.kept == 1
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 5


class Interrupted(FakeLog):
    """A log on which another task acts while it is read."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def read(
        self, topic: str, first_number: int, last_number: int, **options: Any
    ) -> Sequence[LogEntry]:
        found = await super().read(topic, first_number, last_number, **options)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


def _empty(ledger_rows: LedgerRows) -> None:
    """Reset the rows to the state after a damaged ledger was created again."""
    ledger_rows.freeze_periods_for_rebuild(below_record_number=0)
    ledger_rows.delete_sums_of_unfrozen_periods()
    ledger_rows.set_state(reach=1, missed=0)


async def test_sums_that_are_lost_while_the_log_is_read(ledgers: Ledgers) -> None:
    """
    The ledger never counts a number as read before its record was added. If rows are lost while the log is
    read, the records read before are read again.
    """
    log, ledger = Interrupted(), await ledgers.open(chunk=2)
    log.add([call(user=f"u{number}") for number in range(5)])
    await ledger.catch_up(log)
    log.add([call(user="late") for _ in range(3)])
    log.meanwhile = lambda: ledgers.store.change(_empty)
    assert 9 == await ledger.catch_up(log)
    assert recount(log, "user") == await hourly(ledger, "user")
    state = await ledger.state()
    assert state.reach == 9
    assert state.missed == 0


@pytest.mark.one_engine
async def test_a_rebuild_of_nothing_is_done(ledgers: Ledgers) -> None:
    """If no counted record is stored any more, a rebuild keeps the sums, and only later gaps are reported."""
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call(), call()])
    await ledger.catch_up(log)
    log.add([call(), call()])
    log.forget_below(3)
    log.add([call()])
    log.forget_below(5)
    assert 0 == (await ledger.rebuild(log)).periods
    assert 0 == (await ledger.state()).rebuilding
    await ledger.catch_up(log)
    assert (await total(ledger)).calls == 3
    assert (await ledger.state()).missed == 2


class Flat(FakePrices):
    """A pricer for one model: 2 and 4 dollars per million tokens."""

    def estimate_sum(self, total: TokenSum) -> str | None:
        if total.response_model != "gpt-4o":
            return None
        return f"{Decimal(total.input_tokens * 2 + (total.output_tokens or 0) * 4) / 1_000_000:f}"


@pytest.mark.one_engine
async def test_reprice(ledgers: Ledgers) -> None:
    """Estimates and unpriced sums from a day on get new prices. Reported cost is unchanged."""
    log, ledger = FakeLog(), await ledgers.open()
    log.add([
        call(start_time=(BEGIN - HOUR) * NS, estimated_cost=None, cost_source="none"),
        call(estimated_cost=None, cost_source="none"),
        call(estimated_cost="9"),
        call(cost="1", estimated_cost=None, cost_source="reported"),
        call(request_model="unknown", estimated_cost="5"),
        call(input_tokens=None, estimated_cost=None, cost_source="none"),
        call(status="cached", estimated_cost="3"),
    ])  # fmt: skip
    await ledger.catch_up(log)
    told = await ledger.reprice(log, Flat(), since=at(BEGIN))
    assert told.rows == 4
    assert told.unpriced == 1
    assert told.before == "12"
    assert told.after == "0.00096"
    row = await total(ledger)
    assert row.cost == "6.00048"
    assert row.reported == "1"
    assert row.estimated == "5.00072"
    assert row.saved == "0.00024"
    assert row.unpriced == 2
    assert row.calls == 7
    assert (await ledger.reprice(log, Flat(), since=at(BEGIN))).rows == 0


@pytest.mark.one_engine
async def test_meters_are_priced_again_and_move_with_their_sums(ledgers: Ledgers) -> None:
    """
    Meters get new prices with their sums: a sum costs as much as its calls. A sum that is merged into another adds
    its meters.
    """
    log, ledger = FakeLog(), await ledgers.open()
    heard = {"input_audio_tokens": 50, "output_audio_tokens": 5}
    sold = {"request_model": "gpt-audio", "provider": "openai", "meters": heard}
    log.add([
        call(**sold, estimated_cost=None, cost_source="none"),
        call(**sold, estimated_cost="9"),
        call(**sold, estimated_cost="9", start_time=(BEGIN - 30 * HOUR) * NS),
    ])  # fmt: skip
    await ledger.catch_up(log)
    await ledger.reprice(log, PriceBook.load(), since=at(BEGIN - 2 * DAY))
    one = Decimal(50 * 25 + 50 * 320 + 5 * 100 + 5 * 640) / 10_000_000
    assert [3 * one] == [Decimal(row.estimated) for row in await ledger.costs(everything())]
    assert {(BEGIN,): 100, (BEGIN - 30 * HOUR,): 50} == await metered(ledger, "input_audio_tokens")


async def test_seconds_alone_are_priced_again(ledgers: Ledgers) -> None:
    """A call with unknown input gets a new price only from values that it states, such as seconds."""
    log, ledger = FakeLog(), await ledgers.open()
    unknown: dict[str, Any] = {
        "input_tokens": None, "output_tokens": None, "estimated_cost": None, "cost_source": "none",
        "provider": "openai",
    }  # fmt: skip
    log.add([
        call(request_model="whisper-1", meters={"input_audio_seconds": "12.5"}, **unknown),
        call(request_model="gpt-5", meters={"web_searches": 1}, **unknown),
        call(request_model="gpt-5", **{**unknown, "charges": {"EUR": "1"}, "cost_source": "reported"}),
    ])  # fmt: skip
    await ledger.catch_up(log)
    told = await ledger.reprice(log, PriceBook.load(), since=at(BEGIN))
    assert told.rows == 1
    assert told.unpriced == 1
    assert told.after == "0.00125"
    by_model = {
        row.group[0]: (row.estimated, row.unpriced) for row in await ledger.costs(everything("model"))
    }
    assert {"whisper-1": ("0.00125", 0), "gpt-5": ("0", 1)} == by_model


async def test_a_rebuild_counts_meters_again(ledgers: Ledgers) -> None:
    """A rebuild adds meters of emptied hours again, once. Meters of other hours are unchanged."""
    log, ledger = FakeLog(), await ledgers.open()
    for hour in (1, 2, 3):
        log.add([call(start_time=(BEGIN + hour * HOUR) * NS, meters={"web_searches": hour})], at=BEGIN + DAY)
    await ledger.catch_up(log)
    whole = recount_meter(log, "web_searches")
    log.forget_below(2)
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    assert whole == await metered(ledger, "web_searches")


async def test_regions_stay_apart_when_priced_again(ledgers: Ledgers) -> None:
    """
    New prices keep regions separate. This includes unknown regions, and unpriced sums that are merged
    into priced sums.
    """
    log, ledger = FakeLog(), await ledgers.open()
    for region in (None, "us-east-1", "eu-west-1", "eu-west-1"):
        log.add(
            [
                call(region=region, estimated_cost="9"),
                call(region=region, estimated_cost=None, cost_source="none"),
            ]
        )
    await ledger.catch_up(log)
    await ledger.reprice(log, Flat(), since=at(BEGIN))
    rows = {row.group[0]: (row.calls, row.cost) for row in await ledger.costs(everything("region"))}
    assert {None: (2, "0.00048"), "us-east-1": (2, "0.00048"), "eu-west-1": (4, "0.00096")} == rows


@pytest.mark.one_engine
async def test_invented_regions_are_bounded(ledgers: Ledgers) -> None:
    """A sender with a new region for every call does not fill the disk, and changes no total."""
    log, ledger = FakeLog(), await ledgers.open(max_rows=20)
    for batch in range(3):
        log.add(
            [call(region=f"r{batch}-{number}", team="loud") for number in range(40)] + [call(team="quiet")]
        )
        await ledger.catch_up(log)
        await ledger.close()
        ledger = await ledgers.open(max_rows=20)
    by_region = {row.group[0]: row.calls for row in await ledger.costs(everything("region"))}
    assert sum(by_region.values()) == 123
    assert len(by_region) <= 23
    assert by_region["(other)"] > 0
    assert (await ledger.state()).rows <= 23


@pytest.mark.one_engine
async def test_reprice_leaves_counters_and_their_reversals_unchanged(ledgers: Ledgers) -> None:
    """
    Only calls get new prices. Counters, and records that take counters back, keep their reported cost, and negative
    tokens reduce no estimate.
    """
    log, ledger = FakeLog(), await ledgers.open()
    shared: dict[str, Any] = {"id": b"", "source": "s", "model": "gpt-4o", "start_time": BEGIN * NS}
    log.add([
        call(estimated_cost="9"),
        UsageMetric(name="n", token_type="input", value=50, **shared),
        UsageMetric(name="n", token_type="input", value=-80, **shared),
        UsageMetric(name="n", value="-2.5", unit="USD", **shared),
    ])  # fmt: skip
    await ledger.catch_up(log)
    assert (row := await total(ledger)).cost == "6.5"
    assert row.input_tokens == 70
    assert 1 == (await ledger.reprice(log, Flat(), since=at(BEGIN))).rows
    row = await total(ledger)
    assert row.cost == "-2.49976"
    assert row.reported == "-2.5"
    assert row.estimated == "0.00024"
    assert row.input_tokens == 70


@pytest.mark.one_engine
async def test_a_transaction_that_fails_leaves_nothing(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A failed transaction changes neither the sums nor the number up to which records are counted. Its repeat
    counts the same records once.
    """
    log, ledger = FakeLog(), await ledgers.open()
    log.add([call()])
    await ledger.catch_up(log)
    log.add([call(user="new"), call()])
    before = await ledgers.store.read(
        lambda rows: (dict(rows.state_values()), rows.periods_frozen_for_rebuild())
    )
    with monkeypatch.context() as broken:
        broken.setattr("spool.ledger.counting.finest_stored_period", _broken)
        with pytest.raises(ZeroDivisionError):
            await ledger.catch_up(log)
    assert before == await ledgers.store.read(
        lambda rows: (dict(rows.state_values()), rows.periods_frozen_for_rebuild())
    )
    assert recount(FakeLog.of(log, upto=1), "user") == await hourly(ledger, "user")
    await ledger.catch_up(log)
    assert recount(log, "user") == await hourly(ledger, "user")


def _broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("ledgers", [POSTGRES, POOLED], indirect=True)
async def test_two_processes_count_one_log(ledgers: Ledgers) -> None:
    """
    Each record counts once, whichever process counts it. No sum refers to dimensions that the
    other process deleted.
    """
    log, clock = FakeLog(), FakeClock(BEGIN + 8 * HOUR)
    one, other = await ledgers.open(clock=clock, chunk=2), await ledgers.open(clock=clock, chunk=2)
    for hour in range(4):
        log.add([call(user=f"u{hour % 3}", start_time=(BEGIN + hour * HOUR) * NS) for _ in range(5)])
        await asyncio.gather(one.catch_up(log), other.catch_up(log))
    clock.at += 100 * DAY  # the ledger deletes old hours, and with them dimensions without a sum
    while await one.sum_up_and_delete_hours():
        continue
    log.add([call(user="u0"), call(user="new")])
    await other.catch_up(log)
    assert [("new", 1), ("u0", 11), ("u1", 5), ("u2", 5)] == [
        (user, (await total(other, include={"user": [user]})).calls) for user in ("new", "u0", "u1", "u2")
    ]
    await one.catch_up(log)
    assert await are_totals_complete(one)


@pytest.mark.parametrize("ledgers", [POSTGRES, POOLED], indirect=True)
async def test_later_follower_has_nothing_to_count(ledgers: Ledgers) -> None:
    """A process that follows later has nothing to count, and learns the progress of the others."""
    log = FakeLog()
    log.add([call(), call(), call()])
    behind = FakeLog.of(log, upto=0)
    one, other = await ledgers.open(), await ledgers.open()
    assert 4 == await one.catch_up(log)
    assert not await are_totals_complete(other)
    behind.add([call()])
    watching = asyncio.create_task(other.track_other_processes(behind))
    await until(lambda: are_totals_complete(other))
    watching.cancel()
    assert 4 == other.lowest_needed_number(AI_TELEMETRY) == await other.catch_up(behind)
    assert (await total(other)).calls == 3
    assert (await other.state()).reach == 4


@pytest.mark.parametrize("ledgers", [POSTGRES, POOLED], indirect=True)
async def test_who_watches_learns_what_is_counted_of_a_log_at_rest(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that waits for progress learns what another process counted, although no further record announces it.
    Otherwise retention could not delete anything, and a full log would stay full.
    """
    monkeypatch.setattr("spool.ledger.ledger.PAUSE_S", 0.0)
    log = FakeLog()
    log.add([call(), call(), call()])
    one, other = await ledgers.open(), await ledgers.open()
    looked = asyncio.Event()
    look = other._refresh_reach

    async def looking(record_log: ReadableLog) -> bool:
        try:
            return await look(record_log)
        finally:
            looked.set()

    monkeypatch.setattr(other, "_refresh_reach", looking)
    watching = asyncio.create_task(other.track_other_processes(log))
    await looked.wait()
    assert 4 == await one.catch_up(log)
    async with limited():
        while 4 != other.lowest_needed_number(AI_TELEMETRY):
            looked.clear()
            await looked.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.one_engine
async def test_texts_that_are_hard_to_keep(ledgers: Ledgers) -> None:
    """Sums are complete with lone surrogates, null characters, quotes, and tags that are long together."""
    log, ledger = FakeLog(), await ledgers.open(tags=("service", "job"))
    names = ["a\ud800", "b\0c", "it's", '"', "%s", "\\", "{schema}"]
    tags = [{"service": name, "job": "'\"%\\"} for name in names] + [{"service": "x" * 300, "job": "y"}]
    log.add([call(user=each["service"], tags=each, cost="1", cost_source="reported") for each in tags])
    await ledger.catch_up(log)
    for dimension in ("user", "tag:service", "tag:job"):
        rows = await ledger.costs(
            CostQuery(since=ALL[0], until=ALL[1], granularity="total", group_by=[dimension])
        )
        assert len(tags) == sum(row.calls for row in rows)
        assert Decimal(len(tags)) == sum(Decimal(row.cost) for row in rows)
    for name in ("it's", '"', "%s", "\\", "{schema}"):
        for dimension in ("user", "tag:service"):
            assert name in await ledger.values(dimension)
            assert 1 == (await total(ledger, include={dimension: [name]})).calls
    assert 1 == (await total(ledger, include={"user": ["b\0c"]})).calls


@pytest.mark.one_engine
async def test_many_new_dimensions_at_once(ledgers: Ledgers) -> None:
    """A batch mixes known and new dimensions, more than an engine looks up one by one."""
    log, ledger = FakeLog(), await ledgers.open()
    for users in (range(0, 40, 2), range(40), range(60)):
        log.add([call(user=f"u{number}") for number in users])
        await ledger.catch_up(log)
        assert recount(log, "user") == await hourly(ledger, "user")
    assert 60 == len(await ledger.values("user"))
