"""Demo months: they raise no alarm unless a problem is planted, and equal seeds give equal months."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner

from exporters.notifications.channels.webhook import WebhookChannel
from exporters.probe import OK, Probe
from exporters.settings import NotifySettings
from gateway.bills.contracts.declared import ContractTable
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.reconciler import BillReconciler
from gateway.cli import main
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.devices.machine_state import MachineEvidence, evaluate_machine_state
from gateway.intake.prices import PriceBook
from gateway.money.budgets.declared import BudgetTable
from gateway.money.insights.detector_facts import reason_impossible_in_demo
from gateway.money.insights.inspector import DETECTORS
from gateway.money.recommendations.list import TYPES
from gateway.money.recommendations.types import prompt_caching
from gateway.operations.list import declared_tables
from gateway.operations.money.own_prices import PriceTable
from gateway.operations.money.reports.declared import ScheduledReportTable
from gateway.service.app import TollhouseApp
from gateway.service.assembly.demo import demo_or_real_channel_builder
from gateway.service.demo import filling
from gateway.service.demo.filling import ANTHROPIC, OPENAI, SILENT_KEY, FilledDemoContent, fill_directory
from gateway.service.demo.month import DAY_S, Period, SimulatedMonth
from gateway.service.demo.note import FILE, read_note
from gateway.service.demo.planted_problems import (
    EXAMPLES,
    FOUND_BY,
    PLANTS,
    SAVINGS,
    PlantedProblems,
    least_demo_days_and_records,
    undetected_problem_names,
    unmet_size_requirements,
)
from gateway.service.demo.samples import EVENT_TYPE, EVENTS, SENDER
from gateway.service.demo.workloads import PEOPLE, TUTOR, WORKLOADS
from spool.clock import SystemClock
from spool.errors import NotAllowed
from spool.ledger.queries import CostQuery
from spool.ledger.sums import HOUR_S
from spool.providers import canonical_provider_name
from spool.record import AI_TELEMETRY, NS, Inference, record_to_json
from spool.registry.recommendations import TypeSettings
from spool.settings import SpoolSettings
from spool.sqlite.ledger import open_ledger
from spool.sqlite.registry import open_registry
from spool.sqlite.spool import open_spool
from tests.processes.copied import copying_command
from tests.rounds import IS_LONG, as_proof, part, some
from tests.spool.kept import kept_insights
from tests.spool.ledger_log import FakeClock
from tests.waiting import until

NOON = 1_790_000_000 // DAY_S * DAY_S + 12 * 3600  # noon on a Monday
PERIOD = Period(end=NOON, days=35, records=12_000)
CALM = 12_000 if IS_LONG else 2_500

# A planted problem may also cause a second, correct finding. For example, costs that are reported too high
# also raise spend and differ from the bill.
ALSO = {
    "cost-gap": {"spend_spike", "reconciliation_difference"}, "dear-model": {"spend_spike", "newer_model"},
    "doubled-source": {"spend_spike", "reconciliation_difference"},
    "unused-cache": {"spend_spike"},
}  # fmt: skip


async def filled(
    directory: Path, plants: Collection[str] = (), *, period: Period = PERIOD, seed: int = 1
) -> FilledDemoContent:
    return await fill_directory(directory, period, seed=seed, plants=plants, clock=FakeClock(NOON))


async def findings(directory: Path) -> set[str]:
    """Return the detectors and recommendation types that found something in a demo directory."""
    spool = await open_spool(directory, settings=SpoolSettings(), clock=FakeClock(NOON))
    registry = await open_registry(
        directory, secret=spool.secret, clock=FakeClock(NOON), declared=declared_tables()
    )
    try:
        found = {str(insight.finding).partition(":")[0] for insight in await kept_insights(registry)}
        return found | {each.saving.type for each in await registry.recommendations.all()}
    finally:
        await registry.close()
        await spool.close()


def test_every_detector_has_a_plant_or_a_reason() -> None:
    """Every plant has a detector. A detector without a plant states why a demo month has none."""
    types = {type.NAME for type in TYPES}
    assert list(PLANTS) == sorted(FOUND_BY, key=[*PLANTS].index)
    assert types <= set(FOUND_BY.values())
    without = {each.__name__ for each in DETECTORS if reason_impossible_in_demo(each)}
    planted = {*FOUND_BY.values()} - types
    assert {each.__name__ for each in DETECTORS} == planted | without
    assert set() == planted & without


@pytest.mark.parametrize("seed", part([1, 2, 3], every=3))
async def test_a_calm_month_is_silent(tmp_path: Path, seed: int) -> None:
    """Weekends, nights, errors, cached answers, duplicates and counters kept for reference raise no alarm."""
    done = await filled(tmp_path, seed=seed, period=replace(PERIOD, records=CALM))
    assert done.inspected.merged.new == 0
    assert tuple(done.inspected.failed) == ()
    assert done.look.merged.new == 0
    assert tuple(done.look.failed) == ()
    assert done.duplicates > CALM / 250


@pytest.mark.proof
@pytest.mark.parametrize(("records", "words"),
                         [(10_500, ("spike", "missing-price", "retry-storm", "unrecognised", "parked-route")),
                          (30_000, ("dear-model", "unused-cache")),
                          (12_000, ("no-owner", "idle-key", "wide-key", "dead-letters", "losing-laptop",
                                    "stopped-sender", "unknown-arrival", "unreported-key", "idle-seat")),
                          (8_000, ("doubled-source",)), (14_000, ("cost-gap",)), (55_000, tuple(SAVINGS))])  # fmt: skip
async def test_what_is_planted_is_found(tmp_path: Path, records: int, words: tuple[str, ...]) -> None:
    """Each planted problem is found by its own detector, and by another only if ALSO lists it."""
    period = Period(end=NOON, days=20, records=records)
    assert [] == unmet_size_requirements(words, days=period.days, records=period.records)
    await filled(tmp_path, words, period=period)
    detectors = await findings(tmp_path)
    wanted = {FOUND_BY[word] for word in words}
    assert wanted <= detectors
    assert detectors <= wanted.union(*(ALSO.get(word, set()) for word in words))


def test_planted_savings_are_large_on_any_day() -> None:
    """Each planted saving is well above the least share of all costs, at each end of a month."""
    for end in some(range(NOON, NOON + 400 * DAY_S, 20 * DAY_S + 5 * 3600), every=5):
        costs, savings = costs_and_savings(end)
        shares = {word: saving / costs * 100 for word, saving in savings.items()}
        least = Decimal(TypeSettings().least_share) * Decimal("1.2")
        assert {} == {word: share for word, share in shares.items() if share < least}, end


def costs_and_savings(end: int) -> tuple[Decimal, dict[str, Decimal]]:
    """Return the cost of a small month with everything planted, and what the calls of plants could save."""
    book = PriceBook.load()
    by_service = {workload.service: word for word, workload in SAVINGS.items()} | {
        TUTOR.service: "unused-cache"
    }
    costs, savings = Decimal(0), dict.fromkeys(CHEAPER, Decimal(0))
    month = SimulatedMonth(
        Period(end=end, days=30, records=4_000), seed=1, plants=PlantedProblems(PLANTS, end=end), prices=book
    )
    for call in (record for _, reports in month.iterate_days() for record, _ in reports):
        if not isinstance(call, Inference):
            continue
        price = Decimal(book.estimate_record(call) or 0)
        costs += Decimal(call.cost or price)
        word = by_service.get(call.tags.get("service", ""))
        is_read = word != "unused-cache" or (call.start_time or 0) >= end * NS - prompt_caching.RECENT_NS
        if word in CHEAPER and is_read:
            savings[word] += price - CHEAPER[word](book, call)
    return costs, savings


def priced(price_book: PriceBook, call: Inference, **changes: Any) -> Decimal:
    return Decimal(price_book.estimate_record(msgspec.structs.replace(call, **changes)) or 0)


def of_model(price_book: PriceBook, call: Inference, model: str) -> Decimal:
    return priced(price_book, call, request_model=model, response_model=call.response_model and model)


# Plant -> what one of its calls costs if somebody acts on the recommendation.
CHEAPER: dict[str, Callable[[PriceBook, Inference], Decimal]] = {
    "unread-cache": lambda book, call: priced(book, call, cache_write_tokens=0),
    "priority-tier": lambda book, call: priced(book, call, tags={}),
    "regional-model": lambda book, call: of_model(book, call, "global.anthropic.claude-sonnet-5-5"),
    "older-model": lambda book, call: of_model(book, call, "claude-sonnet-5-5"),
    "nightly-job": lambda book, call: priced(book, call) / 2,
    # five of six turns begin with the turns before, but a few begin after the cache has ended
    "unused-cache": lambda book, call: priced(
        book, call, cache_read_tokens=(call.input_tokens or 0) * 2 // 3
    ),
}


LOUD = [word for word in PLANTS if word not in SAVINGS]
SUNDAY = NOON + 6 * DAY_S - 2 * 3600  # ten o'clock on a Sunday
FRIDAY = NOON + 4 * DAY_S - 10 * 3600  # two o'clock on a Friday


@pytest.mark.proof
@pytest.mark.parametrize("hours", [-26, 0, 7, 45, 61, 99])
async def test_everything_is_found_at_any_hour(tmp_path: Path, hours: int) -> None:
    """`make demo` plants everything in two months that end in the running hour, on a Sunday morning as well."""
    end = SUNDAY + hours * 3600
    _, records = least_demo_days_and_records(tuple(PLANTS), days=62)
    done = await fill_directory(
        tmp_path,
        Period(end=end, days=62, records=records),
        seed=1,
        plants=tuple(PLANTS),
        clock=FakeClock(end),
    )
    assert [] == done.missed


async def found_at_least(directory: Path, words: Collection[str], *, days: int, seed: int) -> set[str]:
    """
    Check that all words are found in a month of at least `days` days with the fewest calls that
    the command accepts. Return all detectors and recommendation types that found something.
    """
    days, records = least_demo_days_and_records(words, days=days)
    assert [] == unmet_size_requirements(words, days=days, records=records)
    period = Period(end=FRIDAY, days=days, records=records)
    done = await fill_directory(directory, period, seed=seed, plants=words, clock=FakeClock(FRIDAY))
    assert [] == done.missed
    found = await findings(directory)
    assert {FOUND_BY[word] for word in words} <= found
    return found


@pytest.mark.parametrize(
    "words",
    [
        as_proof(pytest.param((LOUD[0],))),
        *part([pytest.param((word,)) for word in LOUD[1:]], every=8),
        pytest.param(tuple(SAVINGS), marks=pytest.mark.proof),
    ],
)
async def test_the_least_month_shows_a_plant(tmp_path: Path, words: tuple[str, ...]) -> None:
    """
    The smallest accepted month shows each plant, at an hour and weekday other than NOON, and nothing that ALSO does not
    list. Only long rounds try the savings, all at once.

    test_what_is_planted_together_is_found_together plants everything in one month in each run.
    """
    found = await found_at_least(tmp_path, words, days=1, seed=0)
    assert found <= {FOUND_BY[word] for word in words}.union(*(ALSO.get(word, set()) for word in words))


def usual_size(word: str) -> int:
    return least_demo_days_and_records((word,), days=30)[1]


BY_SIZE: list[str] = sorted([*LOUD, "older-model", "paid-retries"], key=usual_size)


@pytest.mark.parametrize("word", part(BY_SIZE, every=20))
async def test_a_month_of_usual_length_shows_a_plant(tmp_path: Path, word: str) -> None:
    """A month of 30 days needs fewer calls per day for one plant than for all plants together."""
    await found_at_least(tmp_path, (word,), days=30, seed=1)


@pytest.mark.proves("all planted findings of a demo")
@pytest.mark.parametrize(
    "words",
    part(
        [
            pytest.param(words)
            for words in (tuple(PLANTS), ("no-owner", "large-input"), ("spike", "regional-model"))
        ],
        every=3,
    ),
)
async def test_what_is_planted_together_is_found_together(tmp_path: Path, words: tuple[str, ...]) -> None:
    """At the smallest accepted size, no plant hides another."""
    await found_at_least(tmp_path, words, days=20, seed=2)


def test_pair_of_plants_may_need_more_calls_than_each() -> None:
    """
    Plants that add calls dilute the others, so a pair may need more calls than each plant. A month that is
    too small is refused.
    """
    alone = {word: least_demo_days_and_records((word,), days=20)[1] for word in PLANTS}
    for pair in combinations(PLANTS, 2):
        days, records = least_demo_days_and_records(pair, days=20)
        assert records >= max(alone[word] for word in pair)
        assert [] == unmet_size_requirements(pair, days=days, records=records)
    assert least_demo_days_and_records(("nightly-job", "paid-retries"), days=20)[1] > max(
        alone["nightly-job"], alone["paid-retries"]
    )
    assert ["paid-retries needs --records 150000 or fewer"] == unmet_size_requirements(
        ["paid-retries"], days=20, records=150_001
    )
    assert [] == unmet_size_requirements(["paid-retries"], days=60, records=300_000)
    [words] = unmet_size_requirements(("spike", "idle-key", "missing-price"), days=20, records=10_000)
    assert "spike needs --days 20 --records 10286 or more" == words


def made(seed: int, end: int = NOON) -> list[dict[str, Any]]:
    period = Period(end=end, days=3, records=600)
    month = SimulatedMonth(
        period, seed=seed, plants=PlantedProblems(PLANTS, end=end), prices=PriceBook.load()
    )
    return [record_to_json(record) for _, reports in month.iterate_days() for record, _ in reports]


def test_the_same_seed_gives_the_same_month() -> None:
    assert made(7) == made(7)
    assert made(7) != made(8)


def test_month_has_about_the_requested_calls_from_every_source() -> None:
    """
    The month has about the requested number of calls, all within its days, from every source, and sorted by
    time within a day.
    """
    month = SimulatedMonth(PERIOD, seed=1, plants=PlantedProblems((), end=NOON), prices=PriceBook.load())
    days = list(month.iterate_days())
    calls = [record for _, reports in days for record, _ in reports if isinstance(record, Inference)]
    assert 0.95 * PERIOD.records < len(calls) < 1.05 * PERIOD.records
    starts = [call.start_time or 0 for call in calls]
    assert PERIOD.begin * NS <= min(starts) <= max(starts) < PERIOD.end * NS
    assert {workload.source for workload in WORKLOADS} == {call.source for call in calls}
    for _, reports in days:
        times = [record.start_time or 0 for record, _ in reports]
        assert times == sorted(times)


def test_sessions_of_assistants_have_units_of_work() -> None:
    """
    In a demo month, sessions of assistants have units of work. Some of their runs were started by a run of the same
    session. Some sessions state a pull request, others none.
    """
    month = SimulatedMonth(PERIOD, seed=1, plants=PlantedProblems((), end=NOON), prices=PriceBook.load())
    calls = [
        record
        for _, reports in month.iterate_days()
        for record, _ in reports
        if isinstance(record, Inference)
    ]
    session_of = {call.run: call.session for call in calls if call.run}
    started = [(call.parent_run, call.session) for call in calls if call.parent_run]
    assert started
    assert all(session_of[parent] == session for parent, session in started)
    named = {call.session: call.tags.get("pull_request") for call in calls if call.run}
    assert len(named) > len(set(named.values())) > 2
    assert None in named.values()


async def test_demo_is_counted_through_the_real_data_option(tmp_path: Path) -> None:
    """
    The accounting balances, the totals have every call of the log, and counters of assistants are kept
    only for reference. Each call names the demo's sending key.
    """
    done = await filled(tmp_path, period=Period(end=NOON, days=10, records=2_000))
    spool = await open_spool(tmp_path, settings=SpoolSettings(hold=0), clock=FakeClock(NOON))
    ledger = await open_ledger(tmp_path, clock=FakeClock(NOON))
    try:
        books = await spool.log.verify()
        assert [] == list(books.imbalances)
        entries = await spool.log.read(AI_TELEMETRY, 1, spool.log.lowest_open_number(AI_TELEMETRY) - 1)
        records = [record for entry in entries for record in entry.records if record is not None]
        assert done.records == len(records) == books.topics[AI_TELEMETRY]["accepted"]
        assert all(record.shadow == (record.kind == "usage_metric") for record in records)
        assert {SENDER} == {record.sender_key for record in records if isinstance(record, Inference)}
        query = CostQuery(since=_at(0), until=_at(NOON), granularity="total")
        [row] = await ledger.costs(query)
        assert sum(not record.shadow for record in records) == row.calls
    finally:
        await ledger.close()
        await spool.close()


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def reconciled(directory: Path) -> list[Reconciliation]:
    """Return the reconciliation of both months of a demo directory."""
    spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=FakeClock(NOON))
    ledger = await open_ledger(directory, clock=FakeClock(NOON))
    registry = await open_registry(
        directory, secret=spool.secret, clock=FakeClock(NOON), declared=declared_tables()
    )
    try:
        sources = StatementSources(
            ledger=ledger, log=spool.log, prices=PriceBook.load, statements=registry.statements
        )
        months = await BillReconciler(sources, FakeClock(NOON)).reconcile_recent_months()
        return [found for month in months for found in month.providers]
    finally:
        await registry.close()
        await ledger.close()
        await spool.close()


async def test_only_the_planted_laptop_loses_calls(tmp_path: Path) -> None:
    """A month that is served for days reports one laptop that loses calls, and not every laptop."""
    words = ("losing-laptop",)
    await filled(tmp_path, words, period=Period(end=NOON, days=2, records=200))
    spool = await open_spool(tmp_path, settings=SpoolSettings(), clock=FakeClock(NOON))
    try:
        devices = spool.devices.all()
    finally:
        await spool.close()
    assert len(devices) > 1
    words_of = {
        device.user: evaluate_machine_state(MachineEvidence(device, 60.0), NOON + 3 * DAY_S).word
        for device in devices
    }
    assert {PEOPLE[0]} == {user for user, word in words_of.items() if word == "losing"}
    assert {"losing", "reporting"} == set(words_of.values())


@pytest.mark.parametrize("words", [(), ("unreported-key", "doubled-source")])
async def test_a_month_is_billed(tmp_path: Path, words: tuple[str, ...]) -> None:
    """
    Bills equal the counted costs to the last digit, except for web searches, which no call reports. They stay
    within the tolerance. The cause of a planted difference is named.
    """
    await filled(
        tmp_path, words, period=Period(end=NOON, days=35, records=3_000 if IS_LONG or words else 1_000)
    )
    months = await reconciled(tmp_path)
    assert [ANTHROPIC, OPENAI] * 2 == [found.provider for found in months]
    for found in months:
        causes = [claim.cause for claim in found.claims]
        assert "open" in {line.state for line in found.days} or "no statement" in {
            line.state for line in found.days
        }
        assert 0 == found.total.unexplained
        if found.provider == ANTHROPIC:
            assert found.total.difference == 0
            assert causes == []
        elif not words:
            assert found.total.billed_tokens == found.total.counted_tokens
            assert ["not_tokens"] == causes
            assert {"differs"}.isdisjoint(line.state for line in found.days)
            assert 0 < found.total.difference == found.claims[0].amount
        else:
            [silent] = [claim for claim in found.claims if claim.cause == "unreported_traffic"]
            assert SILENT_KEY in silent.evidence
    if words:
        assert ["unreported_traffic", "double_report"] == [
            found.claims[0].cause for found in (months[1], months[3])
        ]


async def test_a_data_option_in_use_is_left_alone(tmp_path: Path) -> None:
    """A data directory that already has records is refused for a demo, so demo calls never mix with real ones."""
    period = Period(end=NOON, days=1, records=100)
    await filled(tmp_path, period=period)
    with pytest.raises(NotAllowed, match="already has records"):
        await filled(tmp_path, period=period)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, words)
    assert code == result.exit_code, result.output
    return result.output


def test_from_the_command_line(tmp_path: Path) -> None:
    """
    The findings of a demo are handled from the command line: listed, read and put on hold. A finding stays on hold
    after a ledger rebuild and another inspection.
    """
    data_option = ("--data", str(tmp_path / "data_option"))
    assert "insights" in run(
        "demo", *data_option, "--days", "3", "--records", "300", "--plant", "unrecognised,wide-key,idle-key"
    )
    listed = json.loads(run("insights", "list", *data_option, "--sort-key", "category", "--json"))
    assert ["coverage", "keys", "keys"] == [item["category"] for item in listed["insights"]]
    assert {"insights", "pagination", "filtering", "sorting", "counts"} == set(listed)
    id = listed["insights"][0]["id"]
    assert "What to do: " in run("insights", "show", id, *data_option)
    assert "is on_hold" in run("insights", "edit", id, *data_option, "--status", "on_hold")
    assert "comment 4" in run(
        "insights", "comments", "create", id, "with the vendor", *data_option, "--as", "ada@example.com"
    )
    assert "4 20" in run("insights", "show", id, *data_option).splitlines()[-1]
    assert "comment 5" in run("insights", "comments", "create", id, "a mistake", *data_option)
    assert "comment 5 deleted" in run("insights", "comments", "delete", id, "5", *data_option)
    run("ledger", "rebuild", *data_option)
    done = json.loads(run("insights", "check", *data_option, "--json"))["inspection"]
    assert {"new": 0, "again": 3, "reopened": 0, "gone": 0, "left_out": 0, "failed": []} == done
    told = json.loads(run("insights", "show", id, *data_option, "--json"))
    assert "on_hold" == told["insight"]["status"]
    assert [("demo@example.com", "Planted by the demo"), ("ada@example.com", "with the vendor")] == [
        (each["author"], each["message"].partition(":")[0]) for each in told["comments"]
    ]
    assert [id] == [
        item["id"]
        for item in json.loads(run("insights", "list", *data_option, "--status", "on_hold", "--json"))[
            "insights"
        ]
    ]
    assert "on_hold" in run("insights", "list", *data_option)


def test_planted_problem_that_is_not_found_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a planted problem is not found, the exit code is 1 and its word is named. Another finding of the same
    detector does not count.
    """
    assert ["spike", "idle-key"] == undetected_problem_names(
        ["spike", "no-owner", "idle-key"],
        {"spend_spike": ["Team Support spent"], "no_owner": ["$4 from a has no team or user"]},
    )
    assert [] == undetected_problem_names(
        ["spike", "priority-tier"], {"spend_spike": ["Team Search"], "priority_tier": [""]}
    )
    monkeypatch.setattr(filling, "add_samples", _no_samples)
    words = (
        "demo",
        "--data",
        str(tmp_path / "month"),
        "--days",
        "1",
        "--records",
        "50",
        "--plant",
        "idle-key",
    )
    assert "these planted findings were not detected: idle-key" in run(*words, code=1)


def test_a_month_that_ended_earlier_is_checked_as_of_its_end(tmp_path: Path) -> None:
    """
    A demo month that ended earlier is checked as of its end: detectors of recent days find what was planted, or the
    exit code is 1. Insights begin at the end of the month.
    """
    until = f"{datetime.now(UTC) - timedelta(days=9):%Y-%m-%dT%H:%M:%S}"
    words = "retry-storm,stopped-sender,losing-laptop,dead-letters,unrecognised"
    data = str(tmp_path / "month")
    run("demo", "--data", data, "--until", until, "--days", "3", "--plant", words, "--records", "900")
    insights = json.loads(run("insights", "list", "--data", data, "--json"))["insights"]
    created = {datetime.fromtimestamp(float(each["created"]), UTC) for each in insights}
    assert {f"{at:%Y-%m-%dT%H:%M:%S}" for at in created} == {until}


def test_a_month_is_as_large_as_its_plants_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stated size, a demo month has 30,000 records, or as many as its plants need."""
    sizes: list[int] = []

    async def refuse(directory: Path, period: Period, **settings: object) -> FilledDemoContent:
        sizes.append(period.records)
        raise NotAllowed("not now")

    monkeypatch.setattr(filling, "fill_directory", refuse)
    for words in ((), ("--plant", "all"), ("--plant", "all", "--records", "60000")):
        run("demo", "--data", str(tmp_path / "month"), *words, code=2)
    assert [30_000, least_demo_days_and_records([*PLANTS], days=30)[1], 60_000] == sizes
    assert 30_000 < sizes[1] < 60_000


async def _no_samples(*args: object, **settings: object) -> None:
    """Replace the sample keys, which no test here uses."""


def test_used_wrongly(tmp_path: Path) -> None:
    """If `demo` is used wrongly, the exit code is 2 and the message says what would be right."""
    data_option = ("--data", str(tmp_path / "data_option"))
    assert "use all, or some of spike" in run("demo", *data_option, "--plant", "gold", code=2)
    small = run("demo", *data_option, "--plant", "spike,idle-key", "--days", "9", "--records", "50", code=2)
    assert "spike needs --days 14 --records 10000 or more" in small
    assert "idle-key" not in small
    assert not (tmp_path / "data_option").exists()
    run("demo", *data_option, "--records", "50", "--days", "1")
    assert "already has records" in run("demo", *data_option, code=2)
    assert "no insight has this id" in run("insights", "show", "nothing", *data_option, code=2)
    assert "give --status or --effort" in run("insights", "edit", "nothing", *data_option, code=2)
    assert "status must be one of" in run("insights", "list", *data_option, "--status", "open", code=2)


def test_a_month_is_served_with_a_link_to_the_console(tmp_path: Path) -> None:
    """
    `--serve` continues as a server for the month. A wrong address is reported before anything is written.
    """
    wrong = CliRunner().invoke(
        main, ["demo", "--data", str(tmp_path / "no"), "--serve", "--listen", "nowhere"]
    )
    assert wrong.exit_code == 2
    assert not (tmp_path / "no").exists()
    words = ("demo", "--data", str(tmp_path / "month"), "--days", "2", "--records", "200", "--serve")
    program, number = copying_command()
    command = (program, *words, "--listen", "127.0.0.1:0")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, pass_fds=[number]
    ) as process:
        assert process.stdout is not None
        link = next(line.strip() for line in process.stdout if "#link=" in line)
        with urlopen(link.partition("#")[0], timeout=30) as page:
            assert b"<title>" in page.read()
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait()


async def test_a_served_demo_reports_only_what_it_planted(tmp_path: Path) -> None:
    """
    While an old demo is served, its laptops report and its destinations respond. Each problem that is left was planted,
    and its name says so.
    """
    words = ("parked-route", "dead-letters", "unknown-arrival", "losing-laptop")
    made_at = int(time.time()) - 10 * DAY_S
    period = Period(end=made_at, days=3, records=300)
    await fill_directory(tmp_path, period, seed=1, plants=words, clock=FakeClock(made_at))
    app = TollhouseApp(
        Config(data_dir=tmp_path, server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")), version="0"
    )
    await app.start()
    try:
        async with operator_client(tmp_path) as ask:
            await drained(ask)
            routes = {route["route"]: route["state"] for route in (await ask("/status"))["routes"]}
            attention = (await ask("/attention"))["attention"]
            devices = (await ask("/devices?limit=100"))["devices"]
            insights = (await ask("/insights"))["insights"]
            comments = [(await ask(f"/insights/{each['id']}/comments"))["comments"] for each in insights]
    finally:
        await app.stop()
    assert routes == {
        "planted-archive/ai-telemetry": "running",
        "planted-service/ai-telemetry": "parked",
        "planted-service/unit-cost": "running",
    }
    assert [PLANTS[word] for word in words] == attention["planted"]
    causes = {cause["kind"]: cause["text"] or cause["title"] for cause in attention["causes"]}
    assert {"route", "dead", "unknown", "devices", "no_channel"} == set(causes)
    assert all("planted-" in causes[kind] for kind in ("route", "dead", "unknown"))
    assert "1 laptop" in causes["devices"]
    assert ["planted-losing-ada"] == [each["hostname"] for each in devices if each["state"] != "reporting"]
    assert sorted(f"Planted by the demo: {PLANTS[word]}." for word in words) == sorted(
        comment["message"] for [comment] in comments
    )


@pytest.mark.proof
async def test_the_newest_records_are_calls(tmp_path: Path) -> None:
    """The first page of Calls shows calls. Events and unit costs are older."""
    period = Period(end=int(time.time()), days=3, records=300)
    await fill_directory(tmp_path, period, seed=1, plants=(EXAMPLES, "unknown-arrival"), clock=SystemClock())
    app = TollhouseApp(
        Config(data_dir=tmp_path, server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")), version="0"
    )
    await app.start()
    try:
        async with operator_client(tmp_path) as ask:
            newest = (await ask("/records?limit=40"))["records"]
    finally:
        await app.stop()
    assert [AI_TELEMETRY] * 40 == [record["topic"] for record in newest]


async def test_examples_fill_each_page(tmp_path: Path) -> None:
    """
    Of the three budgets, one is over its amount on any day. There is one example of each other kind. The capacity of
    the contract has paid for its calls, and the demo answers the notifications of its channel.
    """
    # in two months, and not only at whole hours
    for place, end in enumerate(some((NOON, NOON + 10 * DAY_S + 1579, NOON + 20 * DAY_S + 3599), every=2)):
        clock, data = FakeClock(end), tmp_path / str(place)
        await fill_directory(
            data, Period(end=end, days=3, records=900), seed=1, plants=(EXAMPLES,), clock=clock
        )
        spool = await open_spool(data, settings=SpoolSettings(), clock=clock)
        ledger = await open_ledger(data, clock=clock)
        registry = await open_registry(data, secret=spool.secret, clock=clock, declared=declared_tables())
        try:
            rows = (
                registry.declared_table(ScheduledReportTable).all(),
                registry.declared_table(PriceTable).all(),
                registry.declared_table(ContractTable).all(),
                registry.kept_channels.all(),
                registry.connections.all(),
            )
            assert [1] * 5 == [len(of_kind) for of_kind in rows]
            [type] = await spool.log.event_types()
            assert (EVENT_TYPE, EVENTS) == (type.type, type.count)
            until = datetime.fromtimestamp(end // HOUR_S * HOUR_S + HOUR_S, UTC)
            since = until.replace(day=1, hour=0)
            query = CostQuery(since=since, until=until, granularity="monthly", group_by=["team"])
            spent = {row.group[0]: Decimal(row.cost) for row in await ledger.costs(query)}
            amounts = {
                budget.name: Decimal(budget.default_amount)
                for budget in registry.declared_table(BudgetTable).all()
            }
            over = [name for name, amount in amounts.items() if spent[name.split()[0]] > amount]
            assert (3, ["search a month"]) == (len(amounts), over)
            [contract] = registry.declared_table(ContractTable).all()
            [term] = contract.terms
            of_model = replace(query, group_by=(), include={"model": term.models}, granularity="total")
            [used] = await ledger.costs(of_model)
            assert ("0", True) == (used.cost, used.calls > 0)  # the capacity has paid for the calls
        finally:
            await registry.close()
            await ledger.close()
            await spool.close()
    note = read_note(data)
    assert note is not None
    settings = NotifySettings(name=note.channels[0], type="webhook", url="https://chat.example.com/")
    assert Probe(status=OK) == await demo_or_real_channel_builder(note)(settings, clock).probe()
    assert isinstance(demo_or_real_channel_builder(None)(settings, clock), WebhookChannel)


async def drained(ask: Callable[[str], Awaitable[Any]]) -> None:
    async def is_drained() -> bool:
        first, *_ = (await ask("/status"))["routes"]
        return not first["queued"]

    await until(is_drained, "the planted archive accepts its records")


@asynccontextmanager
async def operator_client(data: Path) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Query the operator socket of a running server."""
    connector = aiohttp.UnixConnector(str(data / "operator.sock"))
    async with aiohttp.ClientSession(connector=connector, headers={"X-Tollhouse-As": "test"}) as client:

        async def ask(path: str) -> Any:
            async with client.get(f"http://x{OPERATOR_API}{path}") as answer:
                assert answer.status == 200, await answer.text()
                return await answer.json()

        yield ask


def test_real_data_is_no_demo(tmp_path: Path) -> None:
    """A data directory without the note of a demo, or with a damaged one, is served like any other."""
    assert read_note(tmp_path) is None
    (tmp_path / FILE).write_text('{"planted": 3}')
    assert read_note(tmp_path) is None


def test_providers_have_the_names_of_real_traffic() -> None:
    """
    The demo bypasses the normalisers, so its provider names must equal theirs. Otherwise one provider would
    have two rows.
    """
    written = {each.provider for each in (*WORKLOADS, *SAVINGS.values())}
    assert written == {canonical_provider_name(each) for each in written}
