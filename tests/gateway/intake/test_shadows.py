"""Counters that repeat events are shadows; counters that stand alone count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.intake.shadows import NOTED_S, STEP, WINDOW_S, Shadows
from spool import memory
from spool.identity import of_call
from spool.log.values import Entry, Submission
from spool.memory import MemorySpool
from spool.record import AI_TELEMETRY, Inference, UsageMetric
from spool.settings import SpoolSettings


class SetClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def event(**fields: str) -> Inference:
    return Inference(id=b"", source="claude_code", tags={"service": "claude-code"}, **fields)  # type: ignore[arg-type]


def counter(source: str = "claude_code", service: str = "claude-code", **fields: str) -> UsageMetric:
    return UsageMetric(id=b"", source=source, name="tokens", tags={"service": service}, **fields)  # type: ignore[arg-type]


async def put_on_record(spool: MemorySpool, *records: Inference) -> None:
    identities = [of_call(record, own_id=str(number)) for number, record in enumerate(records)]
    for record, identity in zip(records, identities, strict=True):
        record.id = identity.id
    submission = Submission(topic=AI_TELEMETRY, received=len(records), records=records, identities=identities)
    await spool.log.append(submission)


def test_a_key_that_names_many_pushes_out_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who told calls is remembered up to a bound: over it the oldest goes of the key that has the most."""
    monkeypatch.setattr("gateway.intake.shadows.MAX_REPORTERS", 20)
    shadows, metric = Shadows(SetClock()), counter(session="s1")
    shadows.note(event(session="s1"), key="other")
    for number in range(50):
        shadows.note(event(session=f"made-up-{number}"), key="flood")
    shadows.shade(metric)
    assert metric.shadow


@pytest.mark.parametrize(
    ("metric", "shadow"),
    [
        (counter(session="s1"), True),
        (counter(session="s2"), False),
        (counter(session="s2", user="u1"), False),
        (counter(user="u1"), True),
        (counter(user="u2"), False),
        (counter(), True),
        (counter(source="codex", session="s1"), False),
        (counter(service="other", session="s1"), False),
    ],
)
def test_a_metric_beside_its_events_is_a_shadow(metric: UsageMetric, shadow: bool) -> None:
    """
    Same source, service and session, or user where no session is named, or neither where neither is named.
    """
    shadows = Shadows(SetClock())
    shadows.note(event(session="s1", user="u1"))
    shadows.shade(metric)
    assert shadow == metric.shadow


def test_the_hour_begins_with_the_last_event() -> None:
    """
    Events that follow one another closely are not all noted; the time of the last is known to the second.
    """
    clock = SetClock()
    shadows = Shadows(clock)
    for _ in range(40):
        shadows.note(event(session="s1"))
        clock.time += NOTED_S / 8
    clock.time += WINDOW_S - NOTED_S - NOTED_S / 8
    metric = counter(session="s1")
    shadows.shade(metric)
    assert metric.shadow


def test_events_of_more_than_an_hour_ago_cast_no_shadow() -> None:
    """Whoever switched the events off is counted by its counters."""
    clock = SetClock()
    shadows = Shadows(clock)
    shadows.note(event(session="s1"))
    clock.time += WINDOW_S + 1
    metric = counter(session="s1")
    shadows.shade(metric)
    assert not metric.shadow


@pytest.mark.asyncio
async def test_a_restart_forgets_nothing_of_the_last_hour() -> None:
    """What was heard before is learned again from the entries."""
    clock = SetClock()
    spool = await memory.open_spool(settings=SpoolSettings(hold=0), clock=clock)
    await put_on_record(spool, event(session="s1"))
    shadows, metric = Shadows(clock), counter(session="s1")
    await shadows.remember(spool.log)
    shadows.shade(metric)
    assert metric.shadow
    await spool.close()


@pytest.mark.asyncio
async def test_a_restart_forgets_no_name_of_a_sender() -> None:
    """Whom a device's labels or a rule put its counters down to is found again for its calls."""
    clock = SetClock()
    spool = await memory.open_spool(settings=SpoolSettings(hold=0), clock=clock)
    await put_on_record(spool, event(session="s1", user="acc-1", device="laptop-7"))
    shadows = Shadows(clock, default_user=lambda call: {"laptop-7": "alice"}.get(call.device or ""))
    hers, his = counter(user="alice"), counter(user="bob")
    await shadows.remember(spool.log)
    shadows.shade(hers)
    shadows.shade(his)
    assert (True, False) == (hers.shadow, his.shadow)
    await spool.close()


@pytest.mark.asyncio
async def test_a_long_log_is_learned_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than a step of records is in memory, and none is passed over."""
    spool = await memory.open_spool(settings=SpoolSettings(hold=0), clock=(clock := SetClock()))
    records = [event(session=f"s{number}") for number in range(2 * STEP + 1)]
    await put_on_record(spool, *records)
    read, sizes = spool.log.read, list[int]()

    async def watched(topic: str, first: int, last: int, *, whole: bool = False) -> Sequence[Entry]:
        entries = await read(topic, first, last, whole=whole)
        sizes.append(sum(len(entry.records) for entry in entries))
        return entries

    monkeypatch.setattr(spool.log, "read", watched)
    shadows, metrics = Shadows(clock), [counter(session=f"s{number}") for number in range(len(records))]
    await shadows.remember(spool.log)
    for metric in metrics:
        shadows.shade(metric)
    assert [STEP, STEP, 1] == sizes
    assert all(metric.shadow for metric in metrics)
    await spool.close()


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_what_was_open_at_the_restart_is_learned_when_it_closes() -> None:
    """The last seconds before a restart are not missed."""
    clock = SetClock()
    spool = await memory.open_spool(settings=SpoolSettings(hold=10), clock=clock)
    await put_on_record(spool, event(session="s1"))
    shadows, metric = Shadows(clock), counter(session="s1")
    await shadows.remember(spool.log)
    shadows.shade(metric)
    assert not metric.shadow

    following = asyncio.create_task(shadows.follow(spool.log, hold_s=10))
    await asyncio.sleep(0)
    clock.time += 11
    while not metric.shadow:
        assert not following.done()
        await asyncio.sleep(0.01)
        shadows.shade(metric)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await spool.close()


def test_what_is_learned_late_makes_nothing_older() -> None:
    """An old report that is read again does not undo the hearing of a newer one."""
    clock = SetClock()
    shadows = Shadows(clock)
    shadows.note(event(session="s1"))
    shadows.note(event(session="s1"), at=clock.time - 2 * WINDOW_S)
    metric = counter(session="s1")
    shadows.shade(metric)
    assert metric.shadow


@pytest.mark.parametrize(
    ("spans", "counters", "shadow"),
    [
        ("openllmetry", "otel", True),
        ("openinference", "envoy_ai_gateway", True),
        ("otel", "openllmetry", False),
        ("langfuse", "otel", False),
    ],
)
def test_spans_with_a_mark_are_beside_counters_without_one(spans: str, counters: str, shadow: bool) -> None:
    """OpenLLMetry's histogram says of nobody whose it is, and Envoy's spans are OpenInference's."""
    shadows, metric = Shadows(SetClock()), counter(source=counters)
    shadows.note(Inference(id=b"", source=spans, session="s1", tags={"service": "claude-code"}))
    shadows.shade(metric)
    assert shadow == metric.shadow


@pytest.mark.parametrize(
    ("source", "model", "tokens", "shadow"),
    [
        ("google_adk", None, 700, True),
        ("google_adk", None, None, False),  # a failure
        ("google_adk", "text-embedding-005", 700, False),
        ("otel", None, 700, False),
    ],
)
def test_calls_without_a_model_may_be_of_any(
    source: str, model: str | None, tokens: int | None, shadow: bool
) -> None:
    """The events of Google's ADK name no model, and its counters do."""
    shadows, tags = Shadows(SetClock()), {"service": "desk"}
    name = "gen_ai.client.token.usage"
    metric = UsageMetric(id=b"", source="google_adk", name=name, model="gemini-2.5-flash", tags=tags)
    shadows.note(Inference(id=b"", source=source, request_model=model, input_tokens=tokens, tags=tags))
    shadows.shade(metric)
    assert shadow == metric.shadow


def test_counters_may_name_the_installation_alone() -> None:
    """
    Claude Code leaves session and account out of its metrics when told so, and its events still name them.
    """
    shadows, metric, another = Shadows(SetClock()), counter(user="anon-1"), counter(user="anon-2")
    reported = event(session="s1", user="uuid-1")
    reported.tags = {**reported.tags, "device": "anon-1"}
    shadows.note(reported)
    shadows.shade(metric)
    shadows.shade(another)
    assert (True, False) == (metric.shadow, another.shadow)
