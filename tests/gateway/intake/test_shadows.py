"""Counters that repeat calls are kept for reference, and counters of senders without calls count."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import permutations

import pytest

from gateway.intake.callers import KEEP_EVERY_S, WINDOW_S
from gateway.intake.shadows import (
    AGE_EVERY_S,
    NOTED_S,
    STEP,
    ReportedCallers,
    reporters_of_record,
    sender_rows_to_store,
)
from gateway.normalise.reading.token_metrics import OPERATION, USAGE
from spool.identity import call_identity
from spool.log.values import LogEntry, Submission
from spool.record import AI_TELEMETRY, Inference, UsageMetric
from spool.settings import SpoolSettings
from spool.shares import key_next_to_lose_entries
from spool.sqlite import in_memory
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.partial_reports import SqliteStoredSenders
from spool.sqlite.spool import SqliteSpool
from tests.rounds import part, reduced
from tests.spool.registry.test_shares import calls_made


class SetClock:
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


async def put_on_record(spool: SqliteSpool, *records: Inference) -> None:
    identities = [call_identity(record, own_id=str(number)) for number, record in enumerate(records)]
    for record, identity in zip(records, identities, strict=True):
        record.id = identity.id
    submission = Submission(topic=AI_TELEMETRY, received=len(records), records=records, identities=identities)
    await spool.log.append_submission(submission)


def test_the_garbage_collector_does_not_visit_known_senders() -> None:
    """All requests wait for a full collection, so its cost must not grow with the number of known senders."""
    shadows = ReportedCallers(SetClock())
    gc.collect()
    before = len(gc.get_objects())
    for number in range(reduced(500, by=2)):
        for model in ("m", "n"):
            shadows.note_call(event(session=f"session-{number}", request_model=model))
    senders = len(shadows)
    assert senders > reduced(500, by=2)
    for _ in range(3):  # a tuple is left out after its parts
        gc.collect()
    assert len(gc.get_objects()) - before < senders / 10


def test_a_key_that_names_many_pushes_out_nobody_elses() -> None:
    """
    The number of remembered senders is limited. Above the limit, the key with the most senders loses
    its oldest one.
    """
    clock = SetClock()
    shadows, metric = ReportedCallers(clock, max_senders=20), counter(session="s1")
    shadows.note_call(event(session="s1"), sender_key="other")
    for number in range(50):
        clock.time += NOTED_S
        shadows.note_call(event(session=f"made-up-{number}"), sender_key="flood")
    shadows.mark_record_if_it_repeats_calls(metric)
    assert metric.shadow
    assert len(shadows) == 20
    assert dict(shadows.used_caller_slots_by_sender_key) == {"other": 2, "flood": 18}
    assert 33 == shadows.evicted_caller_count  # the service has calls all the time, so it stays


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
def test_metric_repeats_events_of_its_source_session_and_user(metric: UsageMetric, shadow: bool) -> None:
    """
    A counter repeats calls of the same source and service. If the counter names a session, the session must
    match as well. If it names only a user, the user must match.
    """
    shadows = ReportedCallers(SetClock())
    shadows.note_call(event(session="s1", user="u1"))
    shadows.mark_record_if_it_repeats_calls(metric)
    assert shadow == metric.shadow


def test_the_hour_begins_with_the_last_event() -> None:
    """
    Only some events of a burst are noted. So the hour of their sender may start before the last event, by
    at most `NOTED_S`.
    """
    clock = SetClock()
    shadows = ReportedCallers(clock)
    for _ in range(40):
        shadows.note_call(event(session="s1"))
        clock.time += NOTED_S / 8
    clock.time += WINDOW_S - NOTED_S - NOTED_S / 8
    metric = counter(session="s1")
    shadows.mark_record_if_it_repeats_calls(metric)
    assert metric.shadow


def test_events_of_more_than_an_hour_ago_cast_no_shadow() -> None:
    """
    An hour after the last event, counters count again, for example because the user switched the events off.
    """
    clock = SetClock()
    shadows = ReportedCallers(clock)
    shadows.note_call(event(session="s1"))
    clock.time += WINDOW_S + 1
    metric = counter(session="s1")
    shadows.mark_record_if_it_repeats_calls(metric)
    assert not metric.shadow


@pytest.mark.parametrize("hold_s", [0, 10])
async def test_senders_are_learned_from_the_newest_records_after_salvage(hold_s: float) -> None:
    """
    After a salvage, no senders are stored. They are learned from the newest records, including open ones, and
    are stored from then on.
    """
    clock = SetClock()
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=hold_s), clock=clock)
    await put_on_record(spool, event(session="old"))
    clock.time += WINDOW_S + 1
    # The event of session "old" is a repeat, so it does not count as a new event of this session.
    await put_on_record(spool, event(session="old"), event(session="s1"))
    shadows, metrics = (
        ReportedCallers(clock, heard=spool.heard),
        [counter(session="s1"), counter(session="old")],
    )
    await shadows.restore_missing_callers(spool.log)
    for metric in metrics:
        shadows.mark_record_if_it_repeats_calls(metric)
    assert [True, False] == [metric.shadow for metric in metrics]

    await spool.heard.open()  # read the stored senders again, as at a start
    again, metric = ReportedCallers(clock, heard=spool.heard), counter(session="s1")
    await again.load_reporters_from_storage(reporters_of_record(metric))
    again.mark_record_if_it_repeats_calls(metric)
    assert metric.shadow
    await spool.close()


async def test_a_restart_forgets_no_name_of_a_sender() -> None:
    """A user name from device labels or a rule is found again for later calls."""
    clock = SetClock()
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=0), clock=clock)
    await put_on_record(spool, event(session="s1", user="acc-1", device="laptop-7"))
    shadows = ReportedCallers(
        clock, default_user=lambda call: {"laptop-7": "alice"}.get(call.device or ""), heard=spool.heard
    )
    hers, his = counter(user="alice"), counter(user="bob")
    await shadows.restore_missing_callers(spool.log)
    shadows.mark_record_if_it_repeats_calls(hers)
    shadows.mark_record_if_it_repeats_calls(his)
    assert hers.shadow is True
    assert his.shadow is False
    await spool.close()


async def test_a_long_log_is_learned_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    When senders are learned from records, memory never holds more than one step of records, and no record is
    skipped.
    """
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=0), clock=(clock := SetClock()))
    records = [event(session=f"s{number}") for number in range(2 * STEP + 1)]
    await put_on_record(spool, *records)
    read, sizes = spool.log.read, list[int]()

    async def watched(
        topic: str, first: int, last: int, *, includes_open_records: bool = False
    ) -> Sequence[LogEntry]:
        entries = await read(topic, first, last, includes_open_records=includes_open_records)
        sizes.append(sum(len(entry.records) for entry in entries))
        return entries

    monkeypatch.setattr(spool.log, "read", watched)
    shadows = ReportedCallers(clock, heard=spool.heard)
    metrics = [counter(session=f"s{number}") for number in range(len(records))]
    await shadows.restore_missing_callers(spool.log)
    for metric in metrics:
        shadows.mark_record_if_it_repeats_calls(metric)
    assert [STEP, STEP, 1] == sizes
    assert all(metric.shadow for metric in metrics)
    await spool.close()


async def test_lookup_finds_senders_for_an_hour() -> None:
    """
    A lookup finds senders by session, user and model of their calls. It finds them for an hour and no longer.
    """
    clock = SetClock()
    spool = await in_memory.open_spool(settings=SpoolSettings(), clock=clock)
    shadows, heard = ReportedCallers(clock, heard=spool.heard), spool.heard
    for number in range(100):
        shadows.note_call(
            event(session="s1", user="u1", request_model=f"vendor/Model-{number}"), sender_key="team-a"
        )
    shadows.note_call(event(session="s2"), sender_key="team-b")
    assert not shadows.take_unstored_callers("team-c")
    unkept = shadows.take_unstored_callers("team-a")
    shadows.put_back_callers(unkept, "team-a")
    assert unkept == shadows.take_unstored_callers("team-a")
    assert not shadows.take_unstored_callers("team-a")
    await spool.log.append_submission(
        Submission(topic=AI_TELEMETRY, received=0, heard=sender_rows_to_store(unkept))
    )
    await heard.open()  # read the stored senders again, as at a start

    known = [
        counter(session="s1"),
        counter(source="otel", session="s1", model="model-99"),
        counter(user="u1"),
        counter(),
    ]
    unknown = [
        counter(session="s2"),
        counter(session="u1"),
        counter(source="otel", session="s1", model="model-100"),
        counter(source="otel", session="s1"),
    ]
    for wait_s, shadow in [(WINDOW_S, True), (1, False)]:
        clock.time += wait_s
        for metric, expected in [*((one, shadow) for one in known), *((one, False) for one in unknown)]:
            again = ReportedCallers(clock, heard=heard)
            metric.shadow = False
            await again.load_reporters_from_storage(reporters_of_record(metric))
            again.mark_record_if_it_repeats_calls(metric)
            assert expected == metric.shadow, metric


def test_sender_is_stored_once_in_ten_minutes() -> None:
    """
    A sender is stored once in ten minutes, however often it sends. New facts are stored with the next submission.
    """
    clock = SetClock()
    shadows = ReportedCallers(
        clock, heard=SqliteStoredSenders(MemoryDatabase(SPOOL), clock, max_senders=1000)
    )
    kept = 0
    for second in range(int(KEEP_EVERY_S) + 2):
        clock.time += 1
        shadows.note_call(event(session="s1", request_model="a" if second % 2 else "b"))
        kept += len(sender_rows_to_store(shadows.take_unstored_callers("")))
    # Eight rows: the session and the service, each with both models, are stored at first and again
    # ten minutes later.
    assert 8 == kept


async def test_senders_are_forgotten_by_age() -> None:
    """Old senders are deleted, so the table does not stay full after a busy hour."""
    clock = SetClock()
    shadows = ReportedCallers(clock)
    for number in range(1000):
        shadows.note_call(event(session=f"s{number}"), sender_key=f"key-{number % 7}")
    clock.time += WINDOW_S
    shadows.note_call(event(session="s1"), sender_key="key-1")
    await shadows.forget_old_callers()
    assert 1007 == len(shadows)  # each key has its own entry of the service
    clock.time += 2 * AGE_EVERY_S
    await shadows.forget_old_callers()
    assert 2 == len(shadows)  # the new session and the service remain


@pytest.mark.parametrize("keys", part([1000, 1], every=2))
def test_a_new_conversation_costs_the_same_with_many_keys_and_a_full_table(keys: int) -> None:
    """
    The cost of a new conversation, in function calls, is the same with one key and with a thousand keys. It
    is also the same before and after ten thousand conversations.
    """
    shadows, calls = ReportedCallers(SetClock(), max_senders=2000), []
    for begin in (0, 10_000):
        shadows_of = [
            (event(session=f"s{number}"), f"key-{number % keys}") for number in range(begin, begin + 2000)
        ]

        def note_all(conversations: Sequence[tuple[Inference, str]] = shadows_of) -> None:
            for call, key in conversations:
                shadows.note_call(call, sender_key=key)

        calls.append(calls_made(note_all) / 2000)
        for number in range(begin + 2000, begin + 10_000):
            shadows.note_call(event(session=f"s{number}"), sender_key=f"key-{number % keys}")
    assert max(calls) < 100


@pytest.mark.proof
def test_the_sessions_of_a_large_fleet_are_known() -> None:
    """80,000 Claude Code sessions in 25 minutes, each with its own user and traces, fit the default limit."""
    clock = SetClock()
    shadows = ReportedCallers(clock, max_senders=SpoolSettings().max_senders)
    for number in range(80_000):
        clock.time += 25 * 60 / 80_000
        call = event(
            session=f"s{number}", user=f"u{number}", trace_id=f"t{number}", request_model="claude-opus-4-8"
        )
        shadows.note_call(call, sender_key="fleet")
    metrics = [counter(session=f"s{number}") for number in range(80_000)]
    for metric in metrics:
        shadows.mark_record_if_it_repeats_calls(metric)
    assert all(metric.shadow for metric in metrics)


def test_what_is_learned_late_makes_nothing_older() -> None:
    """If an old report is read again, the newer time of its sender stays."""
    clock = SetClock()
    shadows = ReportedCallers(clock)
    shadows.note_call(event(session="s1"))
    shadows.note_call(event(session="s1"), reported_at=clock.time - 2 * WINDOW_S)
    metric = counter(session="s1")
    shadows.mark_record_if_it_repeats_calls(metric)
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
def test_spans_and_counters_of_two_products_match_across_sources(
    spans: str, counters: str, shadow: bool
) -> None:
    """
    For two products, spans and counters match although their sources differ. OpenLLMetry's histogram has the
    source otel, and Envoy's spans look like OpenInference's.
    """
    shadows, metric = ReportedCallers(SetClock()), counter(source=counters)
    shadows.note_call(Inference(id=b"", source=spans, session="s1", tags={"service": "claude-code"}))
    shadows.mark_record_if_it_repeats_calls(metric)
    assert shadow == metric.shadow


@pytest.mark.parametrize(
    ("source", "model", "tokens", "shadow"),
    [
        ("google_adk", None, 700, True),
        ("google_adk", None, None, False),  # a failed call has no tokens
        ("google_adk", "text-embedding-005", 700, False),
        ("otel", None, 700, False),
    ],
)
def test_calls_without_a_model_may_be_of_any(
    source: str, model: str | None, tokens: int | None, shadow: bool
) -> None:
    """
    Calls without a model match counters of any model, because the events of Google's ADK name no model but
    its counters do.
    """
    shadows, tags = ReportedCallers(SetClock()), {"service": "desk"}
    name = "gen_ai.client.token.usage"
    metric = UsageMetric(id=b"", source="google_adk", name=name, model="gemini-2.5-flash", tags=tags)
    shadows.note_call(Inference(id=b"", source=source, request_model=model, input_tokens=tokens, tags=tags))
    shadows.mark_record_if_it_repeats_calls(metric)
    assert shadow == metric.shadow


@pytest.mark.parametrize(
    "call_model",
    [
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5-20250929-v1:0",
        "publishers/anthropic/models/claude-sonnet-4-5-20250929",
    ],
)
@pytest.mark.parametrize(
    "counter_model",
    [
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5-20250929-v1:0",
        "apac.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ],
)
def test_region_and_maker_in_a_models_name_do_not_hide_a_repeat(call_model: str, counter_model: str) -> None:
    """A Bedrock model has names with and without region, maker and version. A counter of any of them is a repeat."""
    shadows = ReportedCallers(SetClock())
    shadows.note_call(event(session="s1", request_model=call_model))
    metric = counter(source="otel", session="s1", model=counter_model)
    other = counter(source="otel", session="s1", model="anthropic.claude-haiku-4-5-v1:0")
    shadows.mark_record_if_it_repeats_calls(metric)
    shadows.mark_record_if_it_repeats_calls(other)
    assert (metric.shadow, other.shadow) == (True, False)


@pytest.mark.parametrize(
    ("of_bedrock", "without_maker", "another"),
    [
        ("us.anthropic.claude-opus-4-6-v1", "claude-opus-4-6-v1", "claude-opus-4-5-v1"),
        ("eu.amazon.nova-pro-v1:0", "nova-pro-v1:0", "nova-lite-v1:0"),
        ("amazon.nova-premier-v1:0:1000k", "nova-premier-v1:0:1000k", "nova-pro-v1:0"),
        ("amazon.titan-embed-text-v1", "titan-embed-text-v1", "titan-embed-image-v1"),
        ("cohere.embed-english-v3", "embed-english-v3", "embed-multilingual-v3"),
        ("us.meta.llama3-3-70b-instruct-v1:0", "llama3-3-70b-instruct-v1:0", "llama3-2-3b-instruct-v1:0"),
        ("mistral.mistral-large-2402-v1:0", "mistral-large-2402-v1:0", "mistral-small-2402-v1:0"),
        ("us.deepseek.r1-v1:0", "r1-v1:0", "v3-v1:0"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b-1:0", "gpt-oss-20b-1:0"),
        ("deepseek-ai/deepseek-v3", "deepseek-v3", "deepseek-v2"),
    ],
)
def test_a_library_may_remove_only_the_maker_of_a_bedrock_model(
    of_bedrock: str, without_maker: str, another: str
) -> None:
    """
    A library may remove the maker from the name of a Bedrock model, as OpenLLMetry does, while the spans of AWS's
    SDK have the whole id. They still match.
    """
    for call_model, counter_model in permutations([of_bedrock, without_maker]):
        shadows = ReportedCallers(SetClock())
        shadows.note_call(event(session="s1", request_model=call_model))
        metrics = [counter(source="otel", session="s1", model=model) for model in (counter_model, another)]
        for metric in metrics:
            shadows.mark_record_if_it_repeats_calls(metric)
        assert [True, False] == [metric.shadow for metric in metrics]


def test_a_histogram_of_a_bedrock_model_repeats_the_counter() -> None:
    """
    A histogram of a Bedrock model repeats the counter, although one of the two libraries leaves out the maker of
    the model.
    """
    shadows = ReportedCallers(SetClock())
    counted = counter(source="otel", model="anthropic.claude-sonnet-4-5-20250929-v1:0", token_type="input")
    repeated = counter(source="otel", model="claude-sonnet-4-5-20250929-v1:0", token_type="input")
    counted.name, repeated.name = f"{USAGE}input_tokens", f"{OPERATION}token_usage"
    shadows.note_counter(counted)
    shadows.mark_record_if_it_repeats_calls(repeated)
    assert repeated.shadow is True


def test_counters_may_name_the_installation_alone() -> None:
    """
    Claude Code can omit session and account from its metrics, but its events name them. The installation id
    still matches them.
    """
    shadows, metric, another = ReportedCallers(SetClock()), counter(user="anon-1"), counter(user="anon-2")
    reported = event(session="s1", user="uuid-1")
    reported.tags = {**reported.tags, "device": "anon-1"}
    shadows.note_call(reported)
    shadows.mark_record_if_it_repeats_calls(metric)
    shadows.mark_record_if_it_repeats_calls(another)
    assert metric.shadow is True
    assert another.shadow is False


async def test_senders_that_an_earlier_build_stored_are_found() -> None:
    """Senders that an earlier release stored are read, so an upgrade forgets none."""
    clock = SetClock()
    spool = await in_memory.open_spool(settings=SpoolSettings(), clock=clock)
    stored = bytes.fromhex("b593dd7edb16db5ecbe61192d18c3d8a26fc843c715e3a96d3fed3f8")
    shadows = ReportedCallers(clock, heard=spool.heard)
    shadows.note_call(event(session="s1", request_model="vendor/Model-1"))
    assert stored in sender_rows_to_store(shadows.take_unstored_callers(""))
    await spool.log.append_submission(Submission(topic=AI_TELEMETRY, received=0, heard=[stored]))
    await spool.heard.open()
    for model, is_repeat in [("model-1", True), ("model-2", False)]:
        after_upgrade, metric = (
            ReportedCallers(clock, heard=spool.heard),
            counter(source="otel", session="s1", model=model),
        )
        await after_upgrade.load_reporters_from_storage(reporters_of_record(metric))
        after_upgrade.mark_record_if_it_repeats_calls(metric)
        assert is_repeat == metric.shadow
    await spool.close()


def test_the_table_holds_eight_times_as_many_conversations_as_before_decision_62() -> None:
    """
    Before, 34,000 conversations with one model filled the table, or 4,878 with 20 models. Operators are warned
    before it is full. This test has a hundredth of all numbers.
    """
    limit, clock = SpoolSettings().max_senders // 100, SetClock()
    for models, conversations in [(1, 8 * 340), (20, 8 * 49)]:
        shadows = ReportedCallers(clock, max_senders=limit)
        for number in range(conversations):
            calls = [event(session=f"s{number}", request_model=f"model-{model}") for model in range(models)]
            shadows.note_records(calls, [None] * models, clock.time, sender_key="fleet")
        assert 0 == shadows.evicted_caller_count
    first = conversations
    while not list(
        key_next_to_lose_entries("spool.max_senders", shadows.used_caller_slots_by_sender_key, limit)
    ):
        for number in range(first, first + 10):
            shadows.note_call(event(session=f"s{number}"), sender_key="fleet")
        first += 10
    assert 0 == shadows.evicted_caller_count
    assert len(shadows) < 0.81 * limit
