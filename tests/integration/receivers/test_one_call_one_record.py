"""
A call is one record with the figures of its first report, for any reporters, repeats and orders, and
the accounting balances.

Real payloads of LiteLLM's callbacks and spend logs, of SDKs, Langfuse, Helicone and Kong pass the formats
and the intake into both engines' logs. The test computes the expected result only from the reports,
without dedup keys.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import spool.sqlite.in_memory
import spool.sqlite.spool
from gateway.configuration.attribution import SourceSettings
from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.normalise import any_format
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, Correction, Inference
from spool.settings import SpoolSettings
from tests.gateway.normalise.formats.payloads import run
from tests.gateway.normalise.otlp.payloads import traces
from tests.integration.order.running import ORDERS, SEED
from tests.integration.reports import (
    MadeCall,
    Report,
    callback,
    generation,
    http_log,
    proxy_span,
    row,
    sdk_span,
    uuid,
    webhook,
)
from tests.moved_clock import MovedClock
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import NOON, assert_books_balance, everything, topic_terms

HOLD_S = 10
SETTINGS = SpoolSettings(hold=HOLD_S)
prices = cache(PriceBook.load)
ANYBODY = AuthenticatedKey("anybody", frozenset())
PREFIXES = ("chatcmpl-", "msg_", "resp_", "req_", "gen-", "msg_bdrk_", "cmpl-tool-", "")

# Fields that a later report fills if they are missing in an open record. It does not fill reasoning_tokens if
# the two reports state different output tokens.
FACTS = (
    "request_id", "trace_id", "span_id", "start_time", "end_time", "provider", "operation", "request_model",
    "response_model", "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "cost", "user", "team",
    "session", "api_key",
)  # fmt: skip

FIGURES = {"input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "cost"}


# -- the calls -----------------------------------------------------------------------------------------------

Kind = Callable[[int, Callable[[Sequence[Any]], Any]], Iterator[list[Report]]]
"""(number of the call, a choice) -> for each call that was made, every report that can come of it."""


def answered(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """
    Return reports of an answered call. Every report has the provider's id. Sometimes one of them has other token
    counts.
    """
    # LiteLLM seals ids of the Responses API in this form
    sealed = "resp_" + "bGl0ZWxsbTpj" * 125 + str(number)
    id = choose([choose(PREFIXES) + f"{number:024x}", uuid(number), sealed])
    call = MadeCall(number, id, uuid(900 + number))
    reporters = (callback, row, proxy_span, sdk_span, generation, webhook)
    yield [reporter(call, off=choose([0, 0, 0, 1])) for reporter in reporters]


def short(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """
    Return reports of a call with a short id: a local server numbers its answers from 0 after each start. Clocks
    differ by some seconds.
    """
    call = MadeCall(number, f"chatcmpl-{number % 2}", uuid(900 + number))
    yield [callback(call), row(call), proxy_span(call), sdk_span(call)]


def failed(number: int, choose: Callable[[Sequence[Any]], Any], id: str = "") -> Iterator[list[Report]]:
    """Return reports of a failed call, of which LiteLLM reports its own call id in place of the provider's."""
    call_id = id or uuid(900 + number)
    call = MadeCall(number, call_id, call_id, "failed")
    error: dict[str, Any] = {"error.type": "Timeout"}
    yield [
        callback(
            call, status="failure", error_information={"error_class": "Timeout"}, metadata={"user_api_key_alias": "a"},
            prompt_tokens=0, completion_tokens=0, response_cost=0.0,
        ),
        proxy_span(call, failed=True, **error),
    ]  # fmt: skip


def fallback(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """Return reports of a fallback: a failure and an answer have the same call id and the same second."""
    yield from failed(number, choose, uuid(900 + number))
    call = MadeCall(number, f"chatcmpl-{number:024x}", uuid(900 + number))
    yield [callback(call), proxy_span(call, place=3), sdk_span(call)]


def cached(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """
    Return reports of a call and its repetition from the cache. Spans repeat the first answer without marking a
    cache hit, so they are the first call again. Only the callback marks the second call.
    """
    first = MadeCall(number, f"chatcmpl-{number:024x}", uuid(900 + number))
    yield [callback(first), proxy_span(first), proxy_span(first, place=4), sdk_span(first)]
    hit = MadeCall(number, f"{first.id}_cache_hit1795158584.59{number}", uuid(800 + number), "cached")
    yield [callback(hit, cache_hit=True, response_cost=0.0)]


def embedded(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """Return reports of embeddings, which have no provider id. One of the answers comes from the cache."""
    embedding: dict[str, Any] = {"call_type": "aembedding"}
    operation: dict[str, Any] = {"gen_ai.operation.name": "aembedding"}
    first = MadeCall(number, uuid(900 + number), uuid(900 + number))
    yield [callback(first, **embedding), proxy_span(first, **operation)]
    hit = MadeCall(
        number, f"{uuid(800 + number)}_cache_hit1795158584.59{number}", uuid(800 + number), "cached"
    )
    yield [
        callback(hit, cache_hit=True, response_cost=0.0, **embedding),
        proxy_span(hit, place=5, **operation),
    ]


def apart(number: int, choose: Callable[[Sequence[Any]], Any]) -> Iterator[list[Report]]:
    """Return reports of which a gateway without the provider's id reports a separate call."""
    yield [http_log(MadeCall(number, ""))]


KINDS: tuple[Kind, ...] = (answered, answered, short, failed, fallback, cached, embedded, apart)
# possible pauses before a report
TOGETHER, NEXT, LATER, RESTARTED = "together", "next", "later", "restarted"


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Report]]:
    """Draw some calls and some reports of each, with repeats, in any order."""
    reports: list[Report] = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        kind = draw(st.sampled_from(KINDS))
        for told in kind(number, lambda values: draw(st.sampled_from(values))):
            # Reports of the callback may be lost, because LiteLLM loses records that are logged while
            # the callback sends.
            reports += draw(st.lists(st.sampled_from(told), min_size=1, max_size=5))
    order = draw(st.permutations(reports))
    pauses = st.sampled_from([TOGETHER, TOGETHER, NEXT, NEXT, LATER, RESTARTED])
    return [(draw(pauses), report) for report in order]


# -- the expected result -------------------------------------------------------------------------------------


class Expected:
    """The expected records and counts, by the rules of the design."""

    def __init__(self, uncounted: str = "") -> None:
        self._uncounted = uncounted
        self._corrected: dict[str, dict[str, Any]] = {}  # corrected calls, in their newest state
        self.corrections = 0
        self.records: dict[str, dict[str, Any]] = {}
        self.sources: dict[str, str] = {}
        self.terms: Counter[str] = Counter()
        self.conflicts: Counter[tuple[str, str]] = Counter()
        self._closed: set[str] = set()

    def close(self) -> None:
        self._closed |= self.records.keys()

    def hear(self, call: str, report: Inference) -> None:
        shadow = report.source == self._uncounted
        said = {name: getattr(report, name) for name in FACTS}
        said |= {"tags": dict(report.tags), "status": report.status, "shadow": shadow}
        beside = f"{call} beside the record"
        if shadow and (beside in self.records or call not in self.records):
            call = beside
        if call not in self.records:
            self.records[call] = said
            self.sources[call] = report.source
            self.terms["accepted"] += 1
            return
        self.terms["duplicates"] += 1
        known = self._corrected.get(call, self.records[call])
        if any(_differ(known[name], said[name]) for name in ("input_tokens", "output_tokens", "cost")):
            self.conflicts[self.sources[call], report.source] += 1
        new = {name: said[name] for name in FACTS if known[name] is None and said[name] is not None}
        if _differ(known["output_tokens"], said["output_tokens"]):
            new.pop("reasoning_tokens", None)
        tags = {name: value for name, value in said["tags"].items() if name not in known["tags"]}
        if not new and not tags:
            return
        if call in self._closed and not known["shadow"] and not FIGURES.isdisjoint(new):
            stays = {name: value for name, value in new.items() if name not in ("start_time", "end_time")}
            self._corrected[call] = known | stays
            self.corrections += 1
            self.terms.update(accepted=1, duplicates=-1)
            return
        self.terms["amended_late" if call in self._closed else "amended"] += 1
        if call not in self._closed:
            self.records[call] = known | new | {"tags": known["tags"] | tags}


def _differ(one: Any, other: Any) -> bool:
    return one is not None and other is not None and float(one) != float(other)


# -- the gateways --------------------------------------------------------------------------------------------


async def take(record_log: RecordLog, reports: Sequence[Report], clock: MovedClock, config: Config) -> None:
    """Send each payload as its own request. All share one commit."""
    intake = PayloadIntake(
        record_log, attributor=RecordAttributor(config), prices=prices(), shadows=ReportedCallers(clock)
    )
    await asyncio.gather(*[intake.store_outcome(outcome_of(part), ANYBODY) for part in payloads(reports)])


def payloads(reports: Sequence[Report]) -> list[list[Report]]:
    """Group neighbours of one format into a payload, except identical items."""
    parts: list[list[Report]] = []
    for report in reports:
        like = parts and (parts[-1][0].format, parts[-1][0].scope) == (report.format, report.scope)
        if like and all(report.item != other.item for other in parts[-1]):
            parts[-1].append(report)
        else:
            parts.append([report])
    return parts


def outcome_of(reports: Sequence[Report]) -> ReadOutcome:
    items = [report.item for report in reports]
    format, scope = reports[0].format, reports[0].scope
    body: Any = items
    if format == "otlp/traces":
        body = traces(
            *items, scope=scope, resource={"service.name": "litellm" if scope == "litellm" else "shop"}
        )
    elif format == "langfuse":
        body = {"batch": items}
    (outcome, _), _ = run(any_format.normalise_body(format, json.dumps(body).encode(), options=ReadOptions()))
    assert outcome.rejects == []
    assert len(items) == len(outcome.records)
    return outcome


def read_alone(report: Report) -> Inference:
    (record,) = outcome_of([report]).records
    assert isinstance(record, Inference)
    return record


async def live(history: Sequence[tuple[str, Report]], root: Path, *, uncounted: str = "") -> None:
    """Send the history to a log on disk and to one in memory. Only the one on disk is killed in between."""
    clock, lives, expected, waiting = MovedClock(NOON), count(), Expected(uncounted), list[Report]()
    config = Config(sources={uncounted: SourceSettings(count=False)})
    directory = root / str(next(lives))
    disk = await spool.sqlite.spool.open_spool(directory, settings=SETTINGS, clock=clock)
    memory = await spool.sqlite.in_memory.open_spool(settings=SETTINGS, clock=clock)
    try:
        for pause, report in [*history, (LATER, None)]:
            if pause != TOGETHER:
                for one in waiting:
                    expected.hear(one.call, read_alone(one))
                await take(disk.log, waiting, clock, config)
                await take(memory.log, waiting, clock, config)
                waiting.clear()
            if pause == LATER:
                clock.move(HOLD_S + 1)
                expected.close()
            if pause == RESTARTED:
                directory = killed(directory, root / str(next(lives)))
                await disk.close()
                disk = await spool.sqlite.spool.open_spool(directory, settings=SETTINGS, clock=clock)
            if report is not None:
                waiting.append(report)
        for log in (disk.log, memory.log):
            await assert_came_true(expected, log)
        assert await everything(memory.log) == await everything(disk.log)
        assert await memory.log.books() == await disk.log.books()
    finally:
        await disk.close()
        await memory.close()


async def live_with_stops(history: Sequence[tuple[str, Report]], directory: Path) -> None:
    """
    Send the history with a clean stop after every report. Afterwards the newest calls can still be corrected.
    """
    clock, expected = MovedClock(NOON), Expected()
    for pause, report in history:
        if pause == LATER:
            clock.move(HOLD_S + 1)
            expected.close()
        disk = await spool.sqlite.spool.open_spool(directory, settings=SETTINGS, clock=clock)
        try:
            expected.hear(report.call, read_alone(report))
            await take(disk.log, [report], clock, Config())
        finally:
            await disk.close()
    clock.move(HOLD_S + 1)
    disk = await spool.sqlite.spool.open_spool(directory, settings=SETTINGS, clock=clock)
    try:
        await assert_records(expected, disk.log)
        terms = await topic_terms(disk.log, AI_TELEMETRY)
        assert [expected.terms[term] for term in ("accepted", "duplicates")] == [
            terms.get(term, 0) for term in ("accepted", "duplicates")
        ]
        await assert_books_balance(disk.log)
    finally:
        await disk.close()


async def assert_records(expected: Expected, record_log: RecordLog) -> None:
    records = [record for record in await everything(record_log) if isinstance(record, Inference)]
    assert list(expected.records.values()) == [
        {name: getattr(record, name) for name in (*FACTS, "tags", "status", "shadow")} for record in records
    ]
    assert expected.corrections == sum(
        isinstance(record, Correction) for record in await everything(record_log)
    )


async def assert_came_true(expected: Expected, record_log: RecordLog) -> None:
    await assert_records(expected, record_log)
    terms = await topic_terms(record_log, AI_TELEMETRY)
    counted = ("accepted", "duplicates", "amended", "amended_late")
    assert [expected.terms[term] for term in counted] == [terms.get(term, 0) for term in counted]
    assert expected.conflicts.total() == terms.get("conflict", 0)
    shown = {
        (one["first_source"], one["second_source"]): one["count"] for one in await record_log.list_conflicts()
    }
    assert dict(expected.conflicts) == shown
    await assert_books_balance(record_log)


@pytest.mark.proves("One call, one record")
@seed(SEED)
@settings(max_examples=8 * ORDERS, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_one_call_is_one_record(history: list[tuple[str, Report]]) -> None:
    """
    The logs of both engines have one record per call, with the figures of the first report. They count added
    reports and conflicts.
    """
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(live(history, Path(root)))


@seed(SEED)
@settings(max_examples=3 * ORDERS, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(), uncounted=st.sampled_from(["otel", "litellm", "langfuse"]))
def test_uncounted_source_fills_the_counted_record(history: list[tuple[str, Report]], uncounted: str) -> None:
    """
    Reports of an uncounted source fill the counted record. If they came first, they are a separate record.
    """
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(live(history, Path(root), uncounted=uncounted))


@seed(SEED)
@settings(max_examples=3 * ORDERS, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_no_call_is_forgotten_over_a_stop(history: list[tuple[str, Report]]) -> None:
    """After a clean stop, any later report leaves the record unchanged and is not counted again."""
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(live_with_stops(history[:12], Path(root)))
