"""Counts of the fields that senders state, taken at the intake before anything is filled in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import Config
from gateway.core.kept_counts import DAY_S
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.sender_fields import MAX_SEEN, MAX_SENDERS, SenderFieldCounter, SenderFieldSaver
from gateway.intake.shadows import ReportedCallers
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.fields import lost_field
from gateway.normalise import otlp
from gateway.normalise.formats import litellm
from gateway.normalise.formats.engine import driver
from gateway.normalise.otlp.model import DETAILS
from gateway.normalise.outcome import PART, ReadOptions, ReadOutcome
from gateway.normalise.payload.body_limits import BodyReadLimits
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import SpoolError, SpoolUnavailable
from spool.identity import call_identity
from spool.log.protocols import RecordLog
from spool.record import Inference
from spool.registry.registry import Registry
from spool.registry.tables.sender_fields import SenderFieldTable
from spool.sender_fields import OTHER, FieldCounts
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from spool.sqlite.in_memory import new_in_memory_registry
from tests.gateway.normalise.otlp.items import finished
from tests.gateway.normalise.otlp.payloads import in_json, in_protobuf, span, traces
from tests.moved_clock import MovedClock

BEARER = AuthenticatedKey("app", frozenset(), labels={"user": "ada", "team": "search"})
CALL = {
    "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
    "gen_ai.usage.input_tokens": 1500, "gen_ai.usage.output_tokens": 70,
}  # fmt: skip


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(1_790_000_000)


@pytest_asyncio.fixture
async def log_of(clock: MovedClock) -> AsyncIterator[RecordLog]:
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=0), clock=clock)
    yield spool.log
    await spool.close()


def intake(log: Any, counter: SenderFieldCounter, clock: MovedClock) -> PayloadIntake:
    prices = PriceBook.load(Config().prices)
    return PayloadIntake(
        log,
        attributor=RecordAttributor(Config()),
        prices=prices,
        shadows=ReportedCallers(clock),
        fields=counter,
    )


def payload(*calls: dict[str, Any], version: str | None = "1.0", first: int = 0) -> ReadOutcome:
    outcome = ReadOutcome(received=len(calls))
    for number, fields in enumerate(calls, start=first):
        call = Inference(id=b"", source="kong", provider="openai", operation="chat", **fields)
        call.request_id = f"chatcmpl-{number:032}"
        outcome.add_record(call, call_identity(call, response_id=call.request_id), version=version)
    return outcome


async def test_fields_are_counted_before_they_are_filled_in(log_of: RecordLog, clock: MovedClock) -> None:
    """Labels of the key, and estimated costs, are no statements of the sender. A repeat counts as well."""
    counter = SenderFieldCounter(clock)
    calls: list[dict[str, Any]] = [
        {"input_tokens": 9, "request_model": "gpt-5"},
        {"status": "error"},
        {"meters": {"images": 1}},
        {},
    ]
    for _ in range(2):
        await intake(log_of, counter, clock).store_outcome(payload(*calls), BEARER)
    [(day, senders)] = counter.take_counts().items()
    assert day == int(clock.now() // DAY_S)
    counts = senders["kong", "1.0"]
    assert {"model": 2, "provider": 8, "input": 2, "id": 8} == counts.fields
    assert (8, 6, 2) == (counts.calls, counts.billed, counts.uncounted)
    assert {"openai": 8} == counts.providers
    assert {"chat": 8} == counts.operations
    assert 1 == len(counts.senders)
    assert {} == counter.take_counts()


async def test_only_stored_payloads_count(clock: MovedClock) -> None:
    class Away:
        async def append_submission(self, _: object) -> None:
            raise SpoolUnavailable("away")

    counter = SenderFieldCounter(clock)
    with pytest.raises(SpoolUnavailable):
        await intake(Away(), counter, clock).store_outcome(payload({}), BEARER)
    assert {} == counter.take_counts()


async def test_another_tollhouse_counted_what_it_forwards(log_of: RecordLog, clock: MovedClock) -> None:
    counter = SenderFieldCounter(clock)
    await intake(log_of, counter, clock).store_outcome(payload({}, version=None), BEARER)
    assert {} == counter.take_counts()


async def test_a_day_ends_at_midnight(log_of: RecordLog, clock: MovedClock) -> None:
    counter = SenderFieldCounter(clock)
    taker = intake(log_of, counter, clock)
    await taker.store_outcome(payload({}), BEARER)
    clock.move(DAY_S)
    await taker.store_outcome(payload({}, {}, first=10), BEARER)
    today = int(clock.now() // DAY_S)
    assert {today - 1: 1, today: 2} == {
        day: each["kong", "1.0"].calls for day, each in counter.take_counts().items()
    }


def test_memory_is_bounded(clock: MovedClock) -> None:
    """Senders that make up versions share one count, and lose no call."""
    counter = SenderFieldCounter(clock)
    for number in range(MAX_SENDERS + MAX_SEEN):
        counter.add_payload(payload({}, {}, version=f"{number}"), BEARER)
        assert len(counter._seen) <= MAX_SEEN
    [senders] = counter.take_counts().values()
    assert MAX_SENDERS + 1 == len(senders)
    assert 2 * MAX_SEEN == senders[OTHER, OTHER].calls


async def test_counts_that_cannot_be_stored_are_retained_for_retry(clock: MovedClock) -> None:
    class Away(SenderFieldTable):
        def __init__(self) -> None: ...

        async def add(self, *_: object, **__: object) -> None:
            raise SpoolUnavailable("away")

    registry = await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=clock)
    counter = SenderFieldCounter(clock)
    counter.put_back({counter.today: {("kong", "1"): FieldCounts(first=1, last=2, calls=3)}})
    with pytest.raises(SpoolError):
        await SenderFieldSaver(counter, Away()).store_pending()
    stored = await SenderFieldSaver(counter, registry.sender_fields).store_and_read_recent()
    assert 3 == stored[counter.today]["kong", "1"].calls
    await registry.close()


RESOURCES = [
    ({"service.version": "2.1.122", "app.version": "9"}, "0.4", "2.1.122"),
    ({"app.version": "9"}, "0.4", "9"),
    ({}, "0.4", "0.4"),
    ({}, "", ""),
    ({"service.version": "x" * 33}, "", "x" * 32),
    ({"service.name": "web", "service.version": "1.0"}, "0.4", "web\n1.0"),
    ({"service.name": "github-copilot", "service.version": "1.0"}, "0.4", "1.0"),
    ({"service.name": "unknown_service:python", "service.version": "1.0"}, "0.4", "1.0"),
    ({"service.name": "x" * 49, "service.version": "1"}, "", "x" * 48 + "\n1"),
]


def _request(resource: dict[str, Any], scope: str) -> dict[str, Any]:
    request = traces(span(1, CALL), resource=resource)
    request["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"version": scope}
    return request


def _spans(resource: dict[str, Any], scope: str) -> Generator[None, None, ReadOutcome]:
    body = in_json(_request(resource, scope))
    return otlp.normalise_otlp("traces", body, json=True, options=ReadOptions())


def _protobuf(resource: dict[str, Any], scope: str) -> Generator[None, None, ReadOutcome]:
    body = in_protobuf(_request(resource, scope))
    return otlp.normalise_otlp("traces", body, json=False, options=ReadOptions())


def _logs(resource: dict[str, Any], scope: str) -> Generator[None, None, ReadOutcome]:
    [of_resource] = _request(resource, scope)["resourceSpans"]
    [of_scope] = of_resource.pop("scopeSpans")
    event = {"eventName": DETAILS, "attributes": of_scope.pop("spans")[0]["attributes"]}
    logs = {"resourceLogs": [{**of_resource, "scopeLogs": [{**of_scope, "logRecords": [event]}]}]}
    return otlp.normalise_otlp("logs", in_json(logs), json=True, options=ReadOptions())


@pytest.mark.parametrize("read", [_spans, _protobuf, _logs])
@pytest.mark.parametrize(("resource", "scope", "expected"), RESOURCES)
def test_the_version_of_a_sender(read: Any, resource: dict[str, Any], scope: str, expected: str) -> None:
    """The version of a sender is that of the resource, else that of the application, else that of the scope."""
    outcome = finished(read(resource, scope))
    [stated] = outcome.stated
    assert expected == stated[1]


def test_the_version_of_a_scope_belongs_to_the_scope() -> None:
    request = _request({"service.name": "web"}, "0.4")
    request["resourceSpans"][0]["scopeSpans"][0]["scope"]["name"] = "an.instrumentation"
    outcome = finished(otlp.normalise_otlp("traces", in_json(request), json=True, options=ReadOptions()))
    assert ["an.instrumentation\n0.4"] == [stated[1] for stated in outcome.stated]


async def test_two_programs_behind_one_collector_are_not_two_versions(
    log_of: RecordLog, clock: MovedClock
) -> None:
    """The versions of one program are compared, and those of unrelated programs are not."""
    counter = SenderFieldCounter(clock)
    sender = intake(log_of, counter, clock)
    with_user: list[dict[str, Any]] = [{"user": "ada"}] * 60
    await sender.store_outcome(payload(*with_user, version="web\n1.0"), BEARER)
    clock.move(60)
    await sender.store_outcome(payload(*[{}] * 60, version="nightly-job\n2.0", first=60), BEARER)
    days = counter.take_counts()
    [of_day] = days.values()
    assert {("kong web", "1.0"), ("kong nightly-job", "2.0")} == of_day.keys()
    assert [] == lost_field(InsightFacts(now=clock.now(), sender_fields=days))
    await sender.store_outcome(payload(*with_user, version="web\n1.0", first=120), BEARER)
    clock.move(60)
    await sender.store_outcome(payload(*[{}] * 60, version="web\n1.1", first=180), BEARER)
    findings = lost_field(InsightFacts(now=clock.now(), sender_fields=counter.take_counts()))
    assert ["kong web 1.1 states no user: 0 of 60; 1.0: 100%"] == [each.draft.title for each in findings]


async def test_without_a_version_the_user_agent_names_it(log_of: RecordLog, clock: MovedClock) -> None:
    counter = SenderFieldCounter(clock)
    body = b'{"id": "1", "model": "gpt-5", "call_type": "acompletion", "total_tokens": 3, "prompt_tokens": 3}'
    outcome = finished(
        driver.read_body_items(litellm.FORMAT, body, options=ReadOptions(), read_limits=BodyReadLimits())
    )
    outcome.set_sending_program("litellm/1.82.0 (Linux)")
    await intake(log_of, counter, clock).store_outcome(outcome, BEARER)
    [senders] = counter.take_counts().values()
    assert [("litellm", "litellm/1.82.0")] == [*senders]


async def test_a_payload_in_parts_counts_once(log_of: RecordLog, clock: MovedClock) -> None:
    """A payload that is stored in several parts counts each call once, with the last part."""
    counter = SenderFieldCounter(clock)
    outcome = payload(*[{} for _ in range(PART + 10)])
    outcome.set_sending_program("agent/1")
    outcome.pack_finished_part_if_full()
    await intake(log_of, counter, clock).store_outcome(outcome, BEARER)
    [senders] = counter.take_counts().values()
    assert PART + 10 == senders["kong", "1.0"].calls
