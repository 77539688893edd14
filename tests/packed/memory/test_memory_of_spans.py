"""The memory of spans returns the rules' result or nothing, and these tests would detect a wrong memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.monitoring.metrics import ProcessMetrics
from gateway.normalise.memory import learning, lone_spans, slots, spans
from gateway.normalise.memory.forms import SpanForm
from gateway.normalise.memory.learning import ObservedAttributes
from gateway.normalise.memory.lone_spans import UnrelatedSpanTemplate
from gateway.normalise.memory.pace import (
    AT_ONCE,
    MOST_SAMPLES,
    MemoryPace,
    SpanLookupPacer,
    TriedSender,
    WaitingSamples,
)
from gateway.normalise.memory.spans import SpanMemory
from gateway.normalise.otlp.admission import DROPPED, decoding_rule_of_attribute
from gateway.normalise.otlp.call import Caller
from gateway.normalise.otlp.model import READ_EVENTS, Attributes, Resource, Scope, Span
from gateway.normalise.otlp.product import AttributeNamesByField
from gateway.normalise.otlp.senders import stated_caller
from gateway.normalise.otlp.shapes import find_or_build_shape
from gateway.normalise.otlp.spans import calls
from gateway.normalise.outcome import ReadOptions
from gateway.normalise.payload.body_limits import TimeSliceClock
from spool.packed.native import NativeModule
from spool.record import Inference, UsageMetric
from tests.bench.load.payloads import numbered, protobuf_spans, real_spans
from tests.bench.load.traces import captured_spans, spans_of_kinds, tree_spans
from tests.gateway.normalise.otlp.payloads import attribute, in_protobuf, span, traces
from tests.packed.memory.both_ways import by_rules, differences, run
from tests.packed.memory.varied import any_name, varied
from tests.rounds import IS_LONG

SPANS = 10**6 if IS_LONG else 5_000
OPTIONS = {
    "plain": ReadOptions(),
    "more tags": ReadOptions(
        keep_attributes=frozenset({"made.up", "http.route", "server.address"}),
        keep_tags=frozenset({"ticket"}),
        host_id=True,
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_no_difference(name: str, native: NativeModule) -> None:
    """
    Outcomes are equal for varied and mixed cases, captures and load, and the memory really read a part of them.
    """
    memory = SpanMemory(native, AT_ONCE)
    bodies = varied(random.Random(20261123))
    assert 0 == differences(memory, bodies, OPTIONS[name], spans=SPANS // len(OPTIONS))
    # what is drawn depends on all texts of the rules, so the part is not always the same
    assert memory.spans["reading"] + memory.compared["same"] > 0.05 * SPANS / len(OPTIONS)


def test_most_spans_of_real_clients_are_by_the_memory(native: NativeModule) -> None:
    """After their kinds are learned, the memory reads over 70 % of clients' spans with new ids."""
    memory, bodies = SpanMemory(native, AT_ONCE), captured_spans()
    for number in range(20 if IS_LONG else 6):
        for body in bodies:
            run(memory.normalise_if_known(numbered(body, number), ReadOptions()))
    memory.spans.clear()
    for body in bodies:
        run(memory.normalise_if_known(numbered(body, 99), ReadOptions()))
    assert memory.spans["reading"] > 0.7 * sum(memory.spans.values())


def test_trees_and_lonely_spans_are_by_the_memory(native: NativeModule) -> None:
    """
    The memory reads all spans of trees and all single spans, except one in a thousand that it compares
    with the rules.
    """
    for body in (tree_spans(98), protobuf_spans(100)):
        memory = SpanMemory(native, AT_ONCE)
        for number in range(30):
            assert by_rules(numbered(body, number), ReadOptions()) == run(
                memory.normalise_if_known(numbered(body, number), ReadOptions())
            )
        memory.spans.clear()
        run(memory.normalise_if_known(numbered(body, 99), ReadOptions()))
        assert memory.spans["reading"] > 0.95 * sum(memory.spans.values())
        assert 0 == memory.compared["different"]


def _messages(number: int) -> dict[str, Any]:
    names = [f"llm.input_messages.{place}.message" for place in range(10 * number)]
    return {f"{name}.role": "user" for name in names} | {f"{name}.content": "Ü" * 200 for name in names}


# By case: the further attributes of the span with this number
FREE: dict[str, Callable[[int], dict[str, Any]]] = {
    "none": lambda number: {},
    "never again": lambda number: {f"app.{number}.{place}": "on" for place in range(8)},
    "a pool": lambda number: dict.fromkeys(
        random.Random(number).sample([f"app.{n}" for n in range(256)], 8), number
    ),
    "many": lambda number: {f"app.name-{place}": "on" for place in range(130 * number)},
    "messages": _messages,
}


@pytest.mark.parametrize("further", FREE)
def test_names_that_no_rule_reads_are_no_part_of_a_kind(further: str, native: NativeModule) -> None:
    """The memory reads calls whatever further names they have and however many, with the result of the rules."""
    call: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
    memory = SpanMemory(native, AT_ONCE)
    for number in range(1, 41):
        body = in_protobuf(traces(span(number, call | FREE[further](number)), scope="shop"))
        if number == 20:
            memory.spans.clear()
        assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
    assert memory.span_kind_count == 1
    assert memory.spans["rules"] == 0
    assert 0 == memory.compared["different"]


def test_attribute_that_is_a_tag_is_part_of_the_kind(native: NativeModule) -> None:
    """
    If the operator keeps an attribute as a tag, it is a part of the kind of a call. So calls with it are of another
    kind.
    """
    call: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
    memory, options = SpanMemory(native, AT_ONCE), ReadOptions(keep_attributes=frozenset({"app.plan"}))
    for number in range(1, 41):
        further = {"app.plan": f"plan-{number}"} if number % 3 == 0 else {}
        body = in_protobuf(traces(span(number, call | further), scope="shop"))
        assert by_rules(body, options) == run(memory.normalise_if_known(body, options))
    assert memory.span_kind_count == 2
    assert memory.spans["reading"] > 20


def test_free_names_are_those_that_the_rules_drop_or_find_plain(native: NativeModule) -> None:
    """The module calls a name free only if Python decodes nothing under it, or nothing depends on it."""
    chance, memory = random.Random(20261128), SpanMemory(native)
    names = {any_name(chance) for _ in range(10**6 if IS_LONG else 20_000)}
    plain = find_or_build_shape({"app.plan": 1})
    free = [name for name in names if memory._memory.is_free(name.encode())]
    assert [] == [
        name
        for name in free
        if decoding_rule_of_attribute(name) is not DROPPED and find_or_build_shape({name: 1}) is not plain
    ]
    assert len(free) > 0.2 * len(names)


# By case: attributes that name the user by an e-mail address, `@` in place of a part of it
ADDRESSES = {
    "user": {"user.email": "Asha.@@example.com"},
    "end user": {"enduser.id": "ben@@mail.example.org"},
    "both": {"user.id": "account-@", "user.email": "asha@@example.com"},
    "both are addresses": {"enduser.id": "asha@@example.com", "user.email": "other@@example.com"},
    "of LiteLLM": {
        "metadata.user_api_key_user_id": "u-@",
        "metadata.user_api_key_user_email": "asha@@example.com",
    },
}


@pytest.mark.parametrize("case", ADDRESSES)
@pytest.mark.parametrize(
    "ids", [{}, {"gen_ai.response.id": "chatcmpl-0123456789abcdef"}], ids=["", "with id"]
)
def test_addresses_of_users_vary(
    case: str, ids: dict[str, Any], native: NativeModule, caplog: pytest.LogCaptureFixture
) -> None:
    """The memory reads calls of users that are named by their e-mail addresses, with the result of the rules."""
    call: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", **ids}
    memory = SpanMemory(native, AT_ONCE)
    letters = "abcdefghij"
    for number in range(1, 41):
        name = "".join(letters[int(digit)] for digit in str(number))
        who = {key: text.replace("@", name, 1) for key, text in ADDRESSES[case].items()}
        body = in_protobuf(traces(span(number, call | who), scope="shop"))
        expected = by_rules(body, ReadOptions())
        assert "@" in str(expected.records[0])
        if number == 25:
            memory.spans.clear()
        assert run(memory.normalise_if_known(body, ReadOptions())) in (None, expected)
    assert memory.spans["reading"] == 16
    assert 0 == memory.compared["different"]
    assert [] == caplog.records


# Texts with `@` that are no address, or begin like a credential
UNCERTAIN = (
    "ey.a.b@x.org",
    "sk-abcdefghijkl@x.org",
    "a@b",
    "a@b@c.org",
    "a@b.1",
    "a..b@c.org",
    "ä@b.org",
    "a b@c.org",
)


@pytest.mark.parametrize("text", UNCERTAIN)
def test_an_uncertain_address_is_read_as_the_rules_read_it(text: str, native: NativeModule) -> None:
    call: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
    memory = SpanMemory(native, AT_ONCE)
    for number in range(1, 61):
        address = text if number % 3 == 0 else f"asha{'x' * number}@example.com"
        who = {"user.email": address, "metadata.user_api_key_user_id": f"{address}x"}
        body = in_protobuf(traces(span(number, call | who), scope="shop"))
        assert run(memory.normalise_if_known(body, ReadOptions())) in (None, by_rules(body, ReadOptions()))
    assert 0 == memory.compared["different"]


def _by_all_names(attributes: Attributes, attribute_names: AttributeNamesByField) -> Caller:
    """Break the rules: the caller depends on the number of names."""
    return stated_caller(attributes, attribute_names) if len([*attributes]) < 4 else Caller("many")


def test_a_rule_that_lists_all_names_is_not_learned(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a rule depends on names that it does not state, the spans stay with the rules."""
    monkeypatch.setattr(calls, "stated_caller", _by_all_names)
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.usage.output_tokens": 7}
    memory = SpanMemory(native, AT_ONCE)
    for number in range(1, 31):
        further = {"app.plan": "free"} if number > 20 else {}
        body = in_protobuf(traces(span(number, call | further), scope="shop"))
        assert run(memory.normalise_if_known(body, ReadOptions())) in (None, by_rules(body, ReadOptions()))
    assert 0 == memory.compared["different"] + memory.spans["reading"]


@pytest.mark.parametrize("scope", ["com.anthropic.sdk.python", "com.anthropic.claude-platform", "shop"])
@pytest.mark.parametrize("end", [{"gen_ai.response.id": "msg_@"}, {}, {"error.type": "overloaded_error"}])
def test_a_request_id_of_the_provider_varies(scope: str, end: dict[str, Any], native: NativeModule) -> None:
    """The memory reads spans with the provider's request id, and returns the same names and links as the rules."""
    said = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "anthropic.request.id": "req_@",
        "gen_ai.request.model": "claude-sonnet-4-5", "gen_ai.usage.cache_read.input_tokens": 1000,
        "gen_ai.usage.input_tokens": 1500, "gen_ai.usage.output_tokens": 70, **end,
    }  # fmt: skip
    memory = SpanMemory(native, AT_ONCE)
    for number in range(1, 41):
        named = {
            name: value.replace("@", f"{number:024d}") if type(value) is str else value
            for name, value in said.items()
        }
        body = in_protobuf(traces(span(2 * number, named, parent=2 * number + 1), scope=scope))
        if number == 30:
            memory.spans.clear()
        expected = by_rules(body, ReadOptions())
        assert expected.identities[0].also
        remembered = run(memory.normalise_if_known(body, ReadOptions()))
        assert remembered is None or expected == remembered
    assert memory.spans["reading"] > 0.8 * sum(memory.spans.values())
    assert 0 == memory.compared["different"]


@pytest.mark.parametrize("name", sorted(READ_EVENTS))
def test_spans_with_events_that_count_are_the_rules(name: str, native: NativeModule) -> None:
    """The memory never answers for a span whose usage or failure is in an event."""
    memory = SpanMemory(native, AT_ONCE)
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.provider.name": "x"}
    for number in range(40):
        usage = [attribute("gen_ai.usage.input_tokens", 100 + number), attribute("exception.type", "Timeout")]
        counted = span(2 * number + 2, attributes, events=[{"name": name, "attributes": usage}])
        body = in_protobuf(traces(span(2 * number + 1, attributes), counted))
        assert run(memory.normalise_if_known(body, ReadOptions())) in (None, by_rules(body, ReadOptions()))
    assert 0 == memory.compared["different"]
    assert memory.misses["events"]


def _no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the memory: its key leaves out whether sums of counts are positive, zero or negative."""
    plan = slots.settings_of_compiled_module() | {"sums": []}
    monkeypatch.setattr(slots, "settings_of_compiled_module", lambda: plan)


def _a_model_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the memory: it treats a name that decides a rule as a text that varies."""
    known = slots.varying_value_slot_or_zero

    def slot_of(name: str) -> int:
        return slots.TEXTS["session"] if name == "gen_ai.request.model" else known(name)

    monkeypatch.setattr(slots, "varying_value_slot_or_zero", slot_of)


def _no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the memory: it treats words that mean "absent" as ordinary texts."""
    plan = slots.settings_of_compiled_module() | {"absent": []}
    monkeypatch.setattr(slots, "settings_of_compiled_module", lambda: plan)


def _all_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the memory: it records child spans and repeated spans as if each were independent."""
    monkeypatch.setattr(lone_spans, "has_only_distinct_unrelated_spans", lambda _: True)


def _spans(third: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield spans of one kind. Every third has other attributes."""
    said = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 1500, "gen_ai.usage.output_tokens": 70,
        "gen_ai.usage.cache_read.input_tokens": 1000,
    }  # fmt: skip
    for number in count(1):
        other = third if number % 3 == 0 else {}
        yield in_protobuf(traces(span(number, {**said, "user.id": f"user-{number}", **other})))


# Attributes of every third span that reveal a mutant: more cached tokens than input, another model, and a word that
# means "absent".
CACHED = {"gen_ai.usage.cache_read.input_tokens": 2000}
MODEL = {"gen_ai.request.model": "o3"}
ABSENT = {"user.id": "none"}


def _varied(seed: int) -> Iterable[bytes]:
    return varied(random.Random(seed))


@pytest.mark.parametrize(
    ("mutant", "bodies"),
    [
        (_no_sums, _varied(1) if IS_LONG else _spans(CACHED)),
        (_a_model_varies, _varied(7) if IS_LONG else _spans(MODEL)),
        (_no_class, _spans(ABSENT)),
        (_all_are_alone, _varied(7)),
    ],
    ids=["no sums", "a model varies", "no class", "all are alone"],
)
def test_what_would_make_it_wrong_is_found(
    mutant: Any, bodies: Iterable[bytes], native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The memory is broken in one of several ways. Each way causes a difference within the number of spans that
    one run tries.
    """
    mutant(monkeypatch)
    memory = SpanMemory(native, AT_ONCE)
    assert 0 < differences(memory, bodies, ReadOptions(), spans=10**5, stop=True)


@pytest.mark.parametrize("third", [CACHED, MODEL, ABSENT], ids=["cached", "model", "absent"])
def test_what_reveals_a_mutant_is_read_as_the_rules_read_it(
    third: Mapping[str, Any], native: NativeModule
) -> None:
    memory = SpanMemory(native, AT_ONCE)
    assert 0 == differences(memory, _spans(third), ReadOptions(), spans=300)
    assert memory.spans["reading"] > 100


def test_booking_alone_is_held_against_the_reader(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a span loses the user of its call when it is read without its neighbors, it is not learned. The rules
    then read such spans with their neighbors.
    """
    record_of = UnrelatedSpanTemplate.build_record_from_template

    def forgetful(self: UnrelatedSpanTemplate, template: Inference, row: Sequence[Any]) -> Inference:
        record = record_of(self, template, row)
        record.user = None
        return record

    monkeypatch.setattr(UnrelatedSpanTemplate, "build_record_from_template", forgetful)
    memory = SpanMemory(native, AT_ONCE)
    bodies = (numbered(protobuf_spans(10), number) for number in range(30))
    assert 0 == differences(memory, bodies, ReadOptions(), spans=300)
    assert not any(kind.alone for kind in memory._kinds.values())
    assert memory.spans["reading"] > 200


def test_reads_that_nobody_notes_are_not_learned(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a rule reads attributes without noting them, the results stay right, because most of these kinds are
    not learned, and the first spans of a learned kind are compared with the rules.
    """
    monkeypatch.setattr(ObservedAttributes, "get", dict.get)
    memory = SpanMemory(native, AT_ONCE)
    found = differences(memory, varied(random.Random(7)), ReadOptions(), spans=3000)
    assert found == memory.compared["different"]


def _learn(memory: SpanMemory, bodies: Iterable[bytes]) -> None:
    for body in bodies:
        run(memory.normalise_if_known(body, ReadOptions()))
        while memory.learn_one_span_kind():
            pass


def test_samples_hold_no_content(native: NativeModule) -> None:
    """Samples that wait to be learned hold no content and no text of an event."""
    word = "PLANTED-WORD"
    template = protobuf_spans(1).replace(b"gen_ai.output.type", b"gen_ai.prompt.0.xy")
    body = template.replace(b"text", word[:4].encode())
    memory = SpanMemory(native, MemoryPace(most_skipped=0, least_seen=1))
    run(memory.normalise_if_known(numbered(body, 1), ReadOptions()))
    assert not any(word[:4].encode() in sample.encoded for sample in memory._samples)
    assert len(memory._samples) == 1


def test_samples_are_bounded_and_other_options_forget(native: NativeModule) -> None:
    """At most MOST_SAMPLES wait. A reload with other options deletes all of them."""
    memory = SpanMemory(native, MemoryPace(most_skipped=0, least_known=0, least_seen=1, least_share=0))
    bodies = islice(varied(random.Random(3)), 400)
    for body in bodies:
        run(memory.normalise_if_known(body, ReadOptions()))
    assert MOST_SAMPLES == len(memory._samples)
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(20)))
    assert memory.span_kind_count > 0
    run(memory.normalise_if_known(protobuf_spans(1), ReadOptions(host_id=True)))
    assert 0 == memory.span_kind_count


def test_a_kind_is_learned_once_it_was_seen_often(native: NativeModule) -> None:
    """The memory learns a kind after eight spans of it, not after seven."""
    memory = SpanMemory(native, MemoryPace(least_seen=8, most_skipped=0))
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(7)))
    assert 0 == memory.span_kind_count
    _learn(memory, [numbered(protobuf_spans(1), 8)])
    assert 1 == memory.span_kind_count


def test_a_kind_that_is_rare_is_not_learned(native: NativeModule) -> None:
    """
    The test sends one kind in every three hundred spans, and another kind otherwise. Only the frequent
    kind is learned.
    """
    memory = SpanMemory(native, MemoryPace(least_share=0.01, spans_a_kind=1, most_skipped=0))
    rare, usual = tree_spans(7), protobuf_spans(100)
    for number in range(6):
        _learn(memory, (numbered(usual, 10 * number + place) for place in range(5)))
        if number == 0:
            run(memory.normalise_if_known(numbered(rare, 0), ReadOptions()))
        else:
            _learn(memory, [numbered(rare, number)])
    assert 1 == memory.span_kind_count


def test_kinds_of_many_programs_are_learned(native: NativeModule) -> None:
    """With a hundred kinds from 25 programs in turn, over 90 % of the spans are known after a while."""
    bodies = []
    for number, body in enumerate(spans_of_kinds(10, 100)):
        request = ExportTraceServiceRequest.FromString(body)
        request.resource_spans[0].scope_spans[0].scope.name = f"program {number // 4}"
        bodies.append(request.SerializeToString())
    memory = SpanMemory(native)
    for turn in range(40):
        _learn(memory, (numbered(body, 100 * turn + place) for place, body in enumerate(bodies)))
    memory.spans.clear()
    for place, body in enumerate(bodies):
        run(memory.normalise_if_known(numbered(body, 9000 + place), ReadOptions()))
    assert memory.spans["reading"] > 0.9 * sum(memory.spans.values())


def test_inspected_request_for_many_counts_its_spans_once(native: NativeModule) -> None:
    """
    If one inspected request stands for many that were not inspected, its spans count once. So its kinds are
    not learned yet.
    """
    samples = WaitingSamples(MemoryPace(least_seen=8))
    assert [False] * 7 + [True] == [samples.count_span_and_check_if_sample_wanted(1, 100) for _ in range(8)]


def test_learning_is_earned_by_spans(native: NativeModule) -> None:
    """The first kinds are learned at once (here one). Each further kind requires a hundred more spans."""
    memory = SpanMemory(
        native, MemoryPace(least_seen=1, first_kinds=1, spans_a_kind=100, most_in_turn=1, most_skipped=0)
    )
    for spans_sent, kinds in ((70, 1), (30, 2), (90, 2), (10, 3)):
        _learn(memory, (numbered(tree_spans(7), number) for number in range(spans_sent // 7 + 1)))
        assert kinds >= memory.span_kind_count
    assert 3 == memory.span_kind_count


def test_requests_whose_spans_are_not_known_are_looked_at_ever_more_rarely(native: NativeModule) -> None:
    """
    Of a thousand requests that are never learned, the memory tries about thirty. Of known requests it tries all.
    """
    memory = SpanMemory(
        native, MemoryPace(first_kinds=0, spans_a_kind=10**9, most_in_turn=0, most_rested=0, free_looks=40)
    )
    for number in range(1000):
        run(memory.normalise_if_known(numbered(protobuf_spans(1), number), ReadOptions()))
    assert 0 < memory.misses["new"] < 40
    assert memory.spans == Counter(rules=1000, reading=0)
    known = SpanMemory(native)
    _learn(known, (numbered(protobuf_spans(10), number) for number in range(100)))
    known.spans.clear()
    _learn(known, (numbered(protobuf_spans(10), number) for number in range(100)))
    assert known.spans["reading"] > 950


def test_requests_pass_unseen_while_none_is_known(native: NativeModule) -> None:
    """
    While no kind is known, few of the requests are inspected, and each inspected request counts for those
    skipped before it. A request that is known ends this.
    """
    memory = SpanMemory(native, MemoryPace(first_kinds=0, spans_a_kind=10**9, most_in_turn=0))
    walked = Mock(wraps=memory._memory.scopes)
    memory._memory = Mock(wraps=memory._memory, scopes=walked)
    for number in range(1000):
        run(memory.normalise_if_known(numbered(protobuf_spans(1), number), ReadOptions()))
    assert 60 < walked.call_count < 200
    assert 1000 - memory.spans["rules"] <= 15
    trials = SpanLookupPacer(MemoryPace())
    for _ in range(100):
        if not trials.skip_request_if_lookups_paused():
            trials.note_request_read_by_rules()
    trials.note_lookup_result(TriedSender(0), failed_span_count=0)
    while trials.skip_request_if_lookups_paused():
        pass
    trials.note_request_read_by_rules()
    assert not trials.skip_request_if_lookups_paused()


def test_spans_are_looked_for_in_vain_in_a_part_of_them(native: NativeModule) -> None:
    """
    The share of spans that the memory looks up in vain stays small with any number of unknown senders,
    because a sender's first lookups count as well.
    """
    trials, looked = SpanLookupPacer(MemoryPace(look_share=0.01, free_looks=100)), 0
    for number in range(20_000):
        sender = trials.find_or_add_sender([f"scope {number % 1000}".encode()])
        if trials.decide_lookup_and_represented_requests(sender, 10):
            looked += 10
            trials.note_lookup_result(sender, failed_span_count=10)
    assert 1900 <= looked <= 2200


def test_full_memory_removes_only_unused_kinds(native: NativeModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused kinds are removed. A kind in constant use stays."""
    monkeypatch.setattr(spans, "MOST_KINDS", 20)
    memory = SpanMemory(native, AT_ONCE)
    hot = protobuf_spans(1)
    for number in range(200):
        run(memory.normalise_if_known(numbered(hot, number), ReadOptions()))
        other = ExportTraceServiceRequest.FromString(numbered(hot, number))
        other.resource_spans[0].scope_spans[0].spans[0].name = f"other {number}"
        run(memory.normalise_if_known(other.SerializeToString(), ReadOptions()))
        assert memory.span_kind_count <= 20
    before = memory.spans["reading"]
    run(memory.normalise_if_known(numbered(hot, 1000), ReadOptions()))
    assert memory.spans["reading"] + memory.compared["same"] > before
    assert memory.spans["reading"] > 150


def test_senders_that_say_something_new_each_time_do_not_make_it_grow(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    New names, resources and values in each span do not exceed the memory's limit, and results stay right.
    """
    monkeypatch.setattr(spans, "MOST_BYTES", 10_000)
    memory, chance = SpanMemory(native, AT_ONCE), random.Random(5)
    for number in range(300):
        request = ExportTraceServiceRequest.FromString(numbered(protobuf_spans(1), number))
        group = request.resource_spans[0]
        group.resource.attributes.add(key=f"made.up.{number % 50}").value.string_value = "x"
        said = group.scope_spans[0].spans[0].attributes
        said.add(key=f"new.{chance.random()}").value.string_value = "y"
        said.add(key="gen_ai.request.top_k").value.int_value = number
        body = request.SerializeToString()
        assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
        assert memory.size_bytes < 20_000


def test_spans_without_attributes_are_distinguished_by_their_scope(native: NativeModule) -> None:
    """Two scopes with spans of the same name and no attributes are two kinds."""
    memory = SpanMemory(native, AT_ONCE)
    for number in range(40):
        request = ExportTraceServiceRequest()
        for name in ("one", "other"):
            scope = request.resource_spans.add().scope_spans.add()
            scope.scope.name = name
            scope.spans.add(name="chat", trace_id=(number + 1).to_bytes(16, "big"), span_id=b"\1" * 8)
        run(memory.normalise_if_known(request.SerializeToString(), ReadOptions()))
    assert 2 == memory.span_kind_count


def test_a_difference_ends_the_shape(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    After a difference, the request gets the rules' result. The difference is counted and logged without a
    value, and the rules read this shape from then on.
    """
    memory = SpanMemory(native, AT_ONCE)
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(3)))
    with monkeypatch.context() as patch:
        patch.setattr(spans, "differing_fields", lambda *_: ("record cost",))
        assert run(memory.normalise_if_known(numbered(protobuf_spans(1), 99), ReadOptions())) is None
    assert 1 == memory.compared["different"]
    [told] = memory.different
    assert ("record cost",) == told.fields
    assert ["memory_different"] == [record.action for record in caplog.records]  # type: ignore[attr-defined]
    memory.spans.clear()
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(100, 130)))
    assert memory.spans == Counter(rules=30, reading=0)


def test_nobody_may_change_the_tags_of_a_record() -> None:
    """Records of a kind may share their tags. Tags are read-only by type, which mypy checks in all code."""
    assert {"Mapping[str, str]"} == {kind.__annotations__["tags"] for kind in (Inference, UsageMetric)}


def test_a_kind_that_cannot_be_learned_is_the_rules(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If learning a kind fails, only this kind stays unknown to the memory."""
    failing = Mock(side_effect=ValueError)
    monkeypatch.setattr(learning, "read_span_if_independent", failing)
    memory = SpanMemory(native, AT_ONCE)
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(30)))
    assert 1 == failing.call_count
    assert memory.spans == Counter(rules=30, reading=0)


def test_one_hit_in_so_many_is_compared(native: NativeModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hits of a kind are all compared with the rules, and later hits at random."""
    monkeypatch.setattr(spans, "ONE_IN", 10)
    memory = SpanMemory(native, AT_ONCE)
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(1000)))
    assert 50 < memory.compared["same"] < 250


def test_memory_results_are_used_after_one_hit_compared_equal(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A request has many hits, and one of them is compared. The memory's results for the other hits are used.
    """
    memory = SpanMemory(native, AT_ONCE)
    body = protobuf_spans(100)
    _learn(memory, (numbered(body, number) for number in range(30)))
    monkeypatch.setattr(memory, "_hits", 50)
    # The next random choice is far away, because otherwise it could fall within this request.
    monkeypatch.setattr(memory, "_draw_hit_count_until_comparison", lambda: 1000)
    # The call fails if it uses this reader, which is for spans that the memory does not know.
    monkeypatch.setattr(spans, "SpanReader", None)
    memory.spans.clear()
    before = memory.compared["same"]
    assert by_rules(numbered(body, 99), ReadOptions()) == run(
        memory.normalise_if_known(numbered(body, 99), ReadOptions())
    )
    assert memory.compared["same"] == before + 1
    assert memory.spans["reading"] == 100
    assert memory.spans["rules"] == 0


def test_a_text_that_a_rule_looks_into_is_the_rules(native: NativeModule) -> None:
    """
    A rule looks into a text: LiteLLM marks cached answers within their id. Such spans match no known kind, so
    the rules read them.
    """
    memory = SpanMemory(native, AT_ONCE)
    request = ExportTraceServiceRequest.FromString(numbered(protobuf_spans(1), 1))
    [span] = request.resource_spans[0].scope_spans[0].spans
    [id] = [one.value for one in span.attributes if one.key == "gen_ai.response.id"]
    for number in range(30):
        id.string_value = f"chatcmpl-{number:020}"
        run(memory.normalise_if_known(request.SerializeToString(), ReadOptions()))
    memory.misses.clear()
    for text in ("chatcmpl-1_cache_hit1790000000.1", "chatcmpl-a..b"):
        id.string_value = text
        run(memory.normalise_if_known(request.SerializeToString(), ReadOptions()))
    assert Counter(not_plain=2) == memory.misses


def test_every_field_of_a_span_is_in_its_key() -> None:
    """
    Resource and scope are the span's context. Every other field is compared or varies, except events, which
    leave the span to the rules.
    """
    assert (
        "resource", "scope", "name", "trace_id", "span_id", "parent_id", "start_time", "end_time", "attributes",
        "status_code", "events",
    ) == Span.__struct_fields__  # fmt: skip


def test_metrics_show_what_the_memory_did(native: NativeModule) -> None:
    """The metrics of the memory count spans by reader, misses by reason, comparisons, kinds and bytes."""
    shown, memory = ProcessMetrics(lambda: ()), SpanMemory(native, AT_ONCE)
    shown.watch_memory(memory)
    _learn(memory, (numbered(protobuf_spans(1), number) for number in range(30)))
    value = shown.registry.get_sample_value
    assert memory.spans["reading"] == value("tollhouse_memory_spans_total", {"by": "reading"})
    assert memory.misses["new"] == value("tollhouse_memory_misses_total", {"reason": "new"})
    assert memory.compared["same"] == value("tollhouse_memory_compared_total", {"result": "same"})
    assert value("tollhouse_memory_kinds") == 1
    assert memory.size_bytes == value("tollhouse_memory_bytes")
    assert memory.size_bytes > 0


def test_a_request_that_was_begun_before_a_reload_is_the_rules(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If options change during a lookup, the rules read the whole request. It is never read partly with old and
    partly with new options.
    """
    monkeypatch.setattr(TimeSliceClock, "is_over", lambda _: True)
    memory = SpanMemory(native, AT_ONCE)
    _learn(memory, (numbered(protobuf_spans(100), number) for number in range(3)))
    begun = memory.normalise_if_known(numbered(protobuf_spans(100), 9), ReadOptions())
    next(begun)
    run(memory.normalise_if_known(protobuf_spans(1), ReadOptions(host_id=True)))
    assert run(begun) is None


def _real(services: Iterable[int], number: int, spans: int = 25) -> Iterable[bytes]:
    return (numbered(real_spans(spans, service), number * 1000 + service) for service in services)


def test_programs_share_their_kinds(native: NativeModule) -> None:
    """
    Requests of 200 programs, 12 teams and 20 models need few kinds. Spans of programs that were never seen before are
    known, and spans of rare kinds are recorded beside them.
    """
    memory = SpanMemory(native)
    for number in range(4):
        _learn(memory, _real(range(200), number))
    memory.spans.clear()
    for body in _real(range(300, 400), 9):
        assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
    assert memory.span_kind_count < 100
    assert memory.spans["reading"] > 0.95 * sum(memory.spans.values())
    assert 0 == memory.compared["different"]


def test_known_spans_are_recorded_in_one_step_despite_unknown_ones(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One span of a request is unknown, and not related to the others. The known spans are still recorded in one step.
    """
    memory = SpanMemory(native, MemoryPace(least_seen=2, most_skipped=0))
    _learn(memory, (numbered(protobuf_spans(20), number) for number in range(30)))
    request = ExportTraceServiceRequest.FromString(numbered(protobuf_spans(20), 99))
    spans_of_it = request.resource_spans[0].scope_spans[0].spans
    spans_of_it[7].name = "chat of a new kind"
    body = request.SerializeToString()
    monkeypatch.setattr(
        SpanForm, "build_read_span", None
    )  # this call fails if the tree of the spans is built
    assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
    monkeypatch.undo()
    spans_of_it[7].parent_span_id = spans_of_it[3].span_id
    body = request.SerializeToString()
    assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))


def test_versions_of_senders_share_kinds(native: NativeModule) -> None:
    """The memory states the version of each sender as the rules do, and learns nothing anew for a version."""
    memory = SpanMemory(native, AT_ONCE)

    def request(number: int, version: str) -> bytes:
        of_version = ExportTraceServiceRequest.FromString(numbered(protobuf_spans(20), number))
        attributes = of_version.resource_spans[0].resource.attributes
        attributes.add(key="service.version").value.string_value = version
        return of_version.SerializeToString()

    _learn(memory, (request(number, "1.0") for number in range(30)))
    kinds = memory.span_kind_count
    for number, version in enumerate(["1.0", "2.0", "x" * 40], start=100):
        body = request(number, version)
        remembered = run(memory.normalise_if_known(body, ReadOptions()))
        assert remembered is not None
        assert by_rules(body, ReadOptions()) == remembered
        assert {f"shop\n{version[:32]}"} == {stated[1] for stated in remembered.stated}
        assert 20 == sum(remembered.stated.values())
    assert kinds == memory.span_kind_count


def test_tags_vary_within_a_kind(native: NativeModule) -> None:
    """
    Tags with a new text in each span make no new kinds. Text that is not plain, such as a sentence or a secret, is
    read by the rules.
    """
    memory = SpanMemory(native, AT_ONCE)
    texts = [f"plan-{number}" for number in range(60)] + [
        "two words",
        "sk-1234567890123456",
        "none",
        "Zoë",
        "",
    ]
    for number, text in enumerate([*texts, *texts]):
        request = ExportTraceServiceRequest.FromString(numbered(protobuf_spans(1), number))
        [span] = request.resource_spans[0].scope_spans[0].spans
        for name in ("cost_center", "traceloop.association.properties.tier"):
            span.attributes.add(key=name).value.string_value = f"{text}{name[0]}" if text else ""
        body = request.SerializeToString()
        assert run(memory.normalise_if_known(body, ReadOptions())) in (None, by_rules(body, ReadOptions()))
    assert memory.span_kind_count < 10
    assert memory.spans["reading"] > 90


def test_a_tag_that_a_rule_reads_as_well_does_not_vary() -> None:
    """An attribute that the operator keeps as a tag stays part of the kind if it is the call's model as well."""
    options = ReadOptions(keep_attributes=frozenset({"gen_ai.request.model", "server.address", "made.up"}))
    resource, scope = Resource({"service.name": "shop"}), Scope("opentelemetry.instrumentation.openai_v2", "")
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "made.up": "1",
        "cost_center": "2",
    }
    span = Span(resource, scope, "chat", "a" * 32, "b" * 16, None, 1, 2, attributes, 0, [])
    assert {"made.up", "cost_center"} == learning.names_read_only_for_tags(span, options)


@pytest.mark.parametrize(
    ("service", "varies"),
    [
        ("shop-7", True),
        ("claude-code", False),
        ("unknown_service:python", False),
        ("two words", False),
        ("none", False),
        ("a..b", False),
        ("openai", False),
        (7, False),
    ],
)
def test_services_that_vary_within_a_kind(service: object, varies: bool) -> None:
    """
    A service name varies within a kind unless it identifies a product, is no plain text, or is the same as a value
    that a rule reads.
    """
    attributes = {"service.name": service, "other": "x"}
    assert ({"service.name": service} if varies else {}) == slots.varying_resource_texts(
        attributes, ["openai"]
    )
