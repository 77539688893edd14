"""
The senders of calls, compared with a plain model: the time of the last report for each caller and each fact of a
call. Counters, keys, times, failed commits, restarts and second gateways are drawn at random.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from gateway.intake import callers, shadows
from gateway.intake.callers import KEEP_EVERY_S, WINDOW_S
from gateway.intake.shadows import (
    NOTED_S,
    CallReporter,
    ReportedCallers,
    reporters_of_record,
    sender_rows_to_store,
)
from spool.log.recent_senders import CALLER_BYTES
from spool.record import AiRecord, Inference, UsageMetric
from tests.moved_clock import MovedClock
from tests.rounds import reduced

SOURCES = ("claude_code", "codex", "otel", "openllmetry", "openinference", "google_adk")
SERVICES = (None, "svc", "desk", "None")
NAMES = (None, "a", "b", "service", "a b")
MODELS = (None, "gpt-5", "vendor/GPT-5", "gpt-5-2025", "opus")
KEYS = ("", "key-1", "key-2")


class StoredSenders:
    """A table in memory that stores senders."""

    is_shared = True
    has_any_sender = True

    def __init__(self) -> None:
        self._of_callers: dict[bytes, dict[bytes, float]] = {}

    def store(self, senders: Sequence[bytes], at: float) -> None:
        for sender in senders:
            times = self._of_callers.setdefault(sender[:CALLER_BYTES], {})
            times[sender] = max(at, times.get(sender, at))

    async def find_senders_of_callers(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        return [row for caller in callers for row in self._of_callers.get(caller, {}).items()]

    async def delete_old(self, before_time: float) -> int:
        return 0


@dataclass
class Model:
    """The last report of each reporter that a counter may have, without limits and without storage."""

    last: dict[CallReporter, float] = field(default_factory=lambda: defaultdict(lambda: -inf))

    def note(self, call: Inference, default_user: str | None, at: float) -> None:
        service, sources = call.tags.get("service"), {call.source}
        if call.source == "openllmetry":
            sources.add("otel")
        if call.source == "openinference":
            sources.add("envoy_ai_gateway")
        users = {call.user, default_user, call.tags.get("device")}
        names = [("session", call.session), *(("user", user) for user in users)]
        of_callers = [("", ""), *((kind, name) for kind, name in names if name)]
        models = {
            model.rpartition("/")[2].lower() for model in (call.request_model, call.response_model) if model
        }
        for kind, name in of_callers:
            for source in sources:
                self._report(CallReporter(source, service, kind, name), at)
            if service is not None:
                for model in models:
                    self._report(CallReporter("", service, f"model {kind}", f"{model}\0{name}"), at)
        if service is not None and not models and call.input_tokens is not None:
            self._report(CallReporter(call.source, service, "model", ""), at)
        if call.source == "claude_code":
            for run in (call.session, call.trace_id):
                if run:
                    self._report(CallReporter("claude_code", None, "run", run), at)

    def note_counter(self, metric: UsageMetric, at: float) -> None:
        if metric.source == "claude_code" and metric.session is not None:
            self._report(CallReporter("claude_code", None, "run", metric.session), at)

    def note_session(self, source: str, service: str | None, session: str, at: float) -> None:
        self._report(CallReporter(source, service, "session", session), at)

    def _report(self, reporter: CallReporter, at: float) -> None:
        self.last[reporter] = max(self.last[reporter], at)


def drawn_call(chance: Random) -> Inference:
    tags = {"service": chance.choice(SERVICES), "device": chance.choice((None, None, "a", "laptop"))}
    return Inference(
        id=b"",
        source=chance.choice(SOURCES),
        session=chance.choice(NAMES),
        user=chance.choice(NAMES),
        trace_id=chance.choice((None, "a", "trace")),
        request_model=chance.choice(MODELS),
        response_model=chance.choice(MODELS),
        input_tokens=chance.choice((None, 7)),
        tags={name: value for name, value in tags.items() if value is not None},
    )


def drawn_counter(chance: Random) -> AiRecord:
    if chance.random() < 0.2:
        source = chance.choice(("openinference", "pydantic_ai"))
        names = {"session": chance.choice(NAMES), "trace_id": chance.choice((None, "a", "trace"))}
        return Inference(id=b"", source=source, operation="invoke_agent", **names)  # type: ignore[arg-type]
    service = chance.choice(SERVICES)
    return UsageMetric(
        id=b"",
        source=chance.choice((*SOURCES, "envoy_ai_gateway")),
        name=chance.choice(("gen_ai.client.token.usage", "tokens")),
        model=chance.choice(MODELS),
        session=chance.choice(NAMES),
        user=chance.choice(NAMES),
        tags={} if service is None else {"service": service},
    )


@pytest.mark.parametrize("gateways", [1, 2])
@pytest.mark.parametrize("limits", [{}, {"MOST_KINDS": 1}, {"MOST_KINDS": 3}, {"KINDS_OF_CALLS": 2}])
async def test_counters_are_repeats_as_in_a_plain_model(
    limits: Mapping[str, int], gateways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A counter is a repeat if and only if calls with its names were reported in the hour before. Times are exact to
    `NOTED_S`; after a restart and at other gateways, a sender may be forgotten up to `KEEP_EVERY_S` earlier.
    """
    for name, value in limits.items():
        monkeypatch.setattr(callers if name == "MOST_KINDS" else shadows, name, value)
    chance, clock, stored, decided = Random(f"{limits} {gateways}"), MovedClock(), StoredSenders(), 0
    model, running = Model(), [ReportedCallers(clock, heard=stored) for _ in range(gateways)]
    own = [Model() for _ in running]  # the reports of each gateway since its start
    for _ in range(reduced(2500, by=3)):
        clock.move(chance.choice((0, 0, 0.4, 1, 20, 20, 90, 400, 1300)))
        number = chance.randrange(gateways)
        gateway, key, now = running[number], chance.choice(KEYS), clock.now()
        at = now
        action = chance.random()
        if action < 0.5:
            calls = [drawn_call(chance) for _ in range(chance.choice((1, 1, 2, 5)))]
            users = [chance.choice((None, None, "a", "b")) for _ in calls]
            at = now - chance.choice((0, 0, 0, 0.3, 2 * WINDOW_S))
            gateway.note_records(calls, users, at, sender_key=key)
            for call, user in zip(calls, users, strict=True):
                for each in (model, own[number]):
                    each.note(call, user, at)
        elif action < 0.55:
            metric = drawn_counter(chance)
            if isinstance(metric, UsageMetric):
                gateway.note_counter(metric, sender_key=key)
                for each in (model, own[number]):
                    each.note_counter(metric, now)
        elif action < 0.6:
            window = chance.choice(SOURCES), chance.choice(SERVICES), chance.choice(("a", "b"))
            gateway.note_session_of_sender(*window, sender_key=key)
            for each in (model, own[number]):
                each.note_session(*window, now)
        elif action < 0.62:
            await gateway.forget_old_callers()
        elif action < 0.64:
            running[number], own[number] = ReportedCallers(clock, heard=stored), Model()
        else:
            reporters = tuple(reporters_of_record(drawn_counter(chance)))
            last = max((model.last[reporter] for reporter in reporters), default=-inf)
            last_here = max((own[number].last[reporter] for reporter in reporters), default=-inf)
            if is_looked_up := chance.random() < 0.5:
                await gateway.load_reporters_from_storage(reporters, sender_key=key)
            asked_at = chance.choice((now, last_here + WINDOW_S - NOTED_S - 0.01, last + WINDOW_S + 0.01))
            asked_at = max(asked_at, now)
            is_repeat = gateway.has_any_reported_calls(reporters, asked_at)
            is_known_here = asked_at - last_here <= WINDOW_S - NOTED_S
            if is_known_here or (is_looked_up and asked_at - last <= WINDOW_S - KEEP_EVERY_S - NOTED_S):
                assert is_repeat, reporters
                decided += 1
            elif asked_at - last > WINDOW_S:
                assert not is_repeat, reporters
                decided += 1
        unkept = gateway.take_unstored_callers(key)
        if chance.random() < 0.1:  # the commit failed, so the next commit is the sender's repeat
            gateway.put_back_callers(unkept, key)
            unkept = gateway.take_unstored_callers(key)
        stored.store(sender_rows_to_store(unkept), at)
    assert decided > reduced(600, by=3)


def test_no_key_pushes_out_what_another_reported() -> None:
    """
    If a key that floods the table also names the session of another key, the session of the other key stays known.
    """
    clock = MovedClock()
    remembered = ReportedCallers(clock, max_senders=20)
    call = Inference(id=b"", source="codex", session="shared", user="shared")
    for key in ("first", "flood", "last"):
        remembered.note_call(call, sender_key=key)
    for number in range(50):
        clock.move(1)
        remembered.note_call(Inference(id=b"", source="codex", session=f"s{number}"), sender_key="flood")
    assert remembered.has_any_reported_calls([CallReporter("codex", None, "session", "shared")], clock.now())
    assert {"first": 3, "flood": 14, "last": 3} == dict(remembered.used_caller_slots_by_sender_key)
    clock.move(WINDOW_S)
    remembered.note_call(call, sender_key="last")
    assert remembered.has_any_reported_calls([CallReporter("codex", None, "session", "shared")], clock.now())


def test_senders_are_counted_while_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The limit is never exceeded, each key has as many senders as the table says, and a key that stays below its
    share loses none.
    """
    monkeypatch.setattr(callers, "MOST_KINDS", 4)
    monkeypatch.setattr(callers, "KINDS_PER_PLACE", 2)
    chance, clock = Random(5), MovedClock()
    remembered, small = (
        ReportedCallers(clock, max_senders=60),
        Inference(id=b"", source="codex", session="small"),
    )
    for number in range(3000):
        clock.move(chance.choice((0, 0, 1, 30)))
        if number % 50 == 0:
            remembered.note_call(small, sender_key="small")
        flood = Inference(
            id=b"",
            source="otel",
            session=f"s{chance.randrange(40)}",
            user=f"u{chance.randrange(9)}",
            request_model=f"m{chance.randrange(99)}",
            tags={"service": "svc"},
        )
        remembered.note_call(flood, sender_key=chance.choice(("flood", "flood", "other", "third")))
        if chance.random() < 0.01:
            clock.move(chance.choice((700, 4000)))
            remembered.note_call(small, sender_key="small")
        assert len(remembered) == sum(remembered.used_caller_slots_by_sender_key.values()) <= 60
        assert remembered.has_any_reported_calls(
            [CallReporter("codex", None, "session", "small")], clock.now()
        )
        entries = list(remembered._callers.entries.values())
        entries += [other for entry in entries for other in (entry.others or {}).values()]
        places = Counter[str]()
        for entry in entries:
            places[entry.key] += entry.used_caller_slots
        assert places == remembered.used_caller_slots_by_sender_key
    assert remembered.evicted_caller_count > 500
