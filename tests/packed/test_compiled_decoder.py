"""The compiled decoder gives what the Python decoder gives, for requests of clients and for those that nobody sends."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.core.errors import Refusal
from gateway.normalise import otlp
from gateway.normalise.otlp import TracesDecoder
from gateway.normalise.otlp.admission import DECLARED_RULES
from gateway.normalise.otlp.decoding import compiled_decoder, protobuf_decoder
from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder
from gateway.normalise.otlp.decoding.wire import encode_varint
from gateway.normalise.otlp.model import READ_EVENTS
from gateway.normalise.outcome import ReadOptions
from gateway.normalise.payload.body_limits import BodyReadLimits
from spool import identity
from spool.packed.native import MOST_FAULTS, NativeModule
from tests.bench.load.payloads import protobuf_spans, real_spans
from tests.bench.load.traces import captured_spans, tree_spans
from tests.bench.load.unfamiliar import unfamiliar_spans
from tests.gateway.normalise.otlp.decoding.test_hostile_bodies import BOMBS, field, many_names, of_items
from tests.gateway.normalise.otlp.items import finished
from tests.gateway.normalise.otlp.trace_requests import trace_requests
from tests.rounds import IS_LONG, examples, part, some

PLAIN = ReadOptions()
SLACK = 4  # factor for a busy machine


@pytest.fixture(autouse=True)
def no_random_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give spans without ids the same id in both ways."""
    monkeypatch.setattr(
        identity, "random_identity", lambda: identity.RecordIdentity(bytes(16), certain=False)
    )


@pytest.fixture
def decoder(native: NativeModule) -> CompiledTracesDecoder:
    return CompiledTracesDecoder(native)


def read(
    body: bytes,
    traces: TracesDecoder,
    options: ReadOptions = PLAIN,
    hold: Callable[[int], None] | None = None,
) -> object:
    """Return the outcome, or the status of the refusal."""
    try:
        job = otlp.normalise_otlp(
            "traces", body, json=False, options=options, hold=hold or (lambda _: None), traces=traces
        )
        outcome = finished(job)
        # a rejected span is noted when it is decoded or when it is read, and how much is decoded before depends on time
        outcome.rejects.sort()
    except Refusal as refusal:
        return refusal.status
    return outcome


def assert_same(body: bytes, traces: TracesDecoder, options: ReadOptions = PLAIN) -> None:
    assert read(body, protobuf_decoder.traces, options) == read(body, traces, options), body.hex()


def test_requests_of_clients_and_cases(decoder: CompiledTracesDecoder) -> None:
    """Outcomes are equal to the last field, and Python decodes at most a twentieth of the spans."""
    for body in some(trace_requests(), every=2):
        assert_same(body, decoder)
    assert decoder.spans["python"] <= decoder.spans.total() / 20
    assert decoder.spans.total() > 2000


@pytest.mark.parametrize("seed", part(range(10), every=5))
def test_requests_of_the_load(seed: int, decoder: CompiledTracesDecoder) -> None:
    for body in (*list(unfamiliar_spans(20, seed))[:20], real_spans(20, seed), tree_spans(21)):
        assert_same(body, decoder)
    assert decoder.spans["python"] == 0


NAMES = (
    *DECLARED_RULES, "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.input.messages", "user.id", "user.email",
    "prompt", "llm.input_messages.0.message.content", "app.plan", "x" * 127, "y" * 128, "z" * 300, "Zoë", "",
)  # fmt: skip
TEXTS = (
    "",
    "chat",
    "Zoë",
    "gpt-5",
    '{"usage": {"input_tokens": 7}}',
    "x" * 126,
    "y" * 127,
    "é" * 9000,
    "z" * 16_400,
)


def number_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value % 2**64)


def any_value(chance: random.Random, depth: int = 0) -> bytes:
    """Return an encoded value of any type, or none."""
    kind = chance.randrange(11 if depth < 30 else 5)
    if kind < 4:
        return field(1, chance.choice(TEXTS).encode())
    if kind == 4:
        return number_field(3, chance.choice((0, 5, 300, 2**31, 2**62, -1)))
    if kind == 5:
        return number_field(2, chance.choice((0, 1, 7)))
    if kind == 6:
        return b"\x21" + chance.randbytes(7) + b"\x3f"
    if kind == 7:
        return field(7, chance.randbytes(5))
    if kind == 8:
        values = [field(1, any_value(chance, depth + 1)) for _ in range(chance.randrange(3))]
        return field(5, b"".join(values))
    if kind == 9:
        pairs = [field(1, pair(chance, depth + 1)) for _ in range(chance.randrange(3))]
        return field(6, b"".join(pairs))
    return chance.choice((b"", any_value(chance, depth + 1) * 2))


def pair(chance: random.Random, depth: int = 0) -> bytes:
    parts = [field(1, chance.choice(NAMES).encode()), field(2, any_value(chance, depth))]
    if chance.random() < 0.05:
        parts = chance.choice(([parts[1], parts[0]], [parts[0]], [parts[1]], [*parts, parts[1]], []))
    return b"".join(parts)


def event(chance: random.Random) -> bytes:
    name = chance.choice((*READ_EVENTS, "gen_ai.choice", ""))
    pairs = [field(3, pair(chance)) for _ in range(chance.randrange(3))]
    return b"\x09" + chance.randbytes(8) + field(2, name.encode()) + b"".join(pairs)


def any_span(chance: random.Random) -> bytes:
    """Return an encoded span with fields in any order, of which some are repeated or unknown."""
    parts = [field(9, pair(chance)) for _ in range(chance.choice((0, 3, 8, 20)))]
    parts += [field(9, field(1, b"gen_ai.operation.name") + field(2, field(1, b"chat")))]
    parts += [field(11, event(chance)) for _ in range(chance.choice((0, 0, 0, 1, 3)))]
    short = b"short" if chance.random() < 0.1 else b""
    parts += [
        field(1, chance.choice((bytes(16), b"a" * 16, chance.randbytes(16), short))),
        field(2, chance.choice((bytes(8), b"b" * 8, chance.randbytes(8)))),
        field(5, chance.choice(("chat", "Zoë", "")).encode()),
        b"\x39" + chance.choice((bytes(8), b"\x00" * 7 + b"\x18", b"\xff" * 8)),
        b"\x41" + b"\x01" * 7 + b"\x18",
    ]  # fmt: skip
    more = (
        field(4, b"c" * 8), field(3, b"state"), number_field(6, 3), number_field(10, 1), field(13, b"link"),
        field(15, number_field(3, chance.choice((0, 1, 2, 3, 127, 128, -1))) + field(2, b"why")),
        b"\x85\x01\x01\x00\x00\x00", field(99, b"unknown"), number_field(9, 1), field(5, b"again"), field(15, b""),
    )  # fmt: skip
    parts += chance.sample(more, chance.choice((0, 0, 1, 2, 3)))
    chance.shuffle(parts)
    return field(2, b"".join(parts))


def any_request(chance: random.Random) -> bytes:
    groups = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        described = b"".join(field(1, pair(chance)) for _ in range(chance.randrange(4)))
        scope = field(1, b"shop") + field(2, b"1.0") + field(3, pair(chance)) * chance.randrange(2)
        spans = [any_span(chance) for _ in range(chance.choice((0, 1, 2, 5)))]
        scopes = [field(2, b"".join([field(1, scope), *spans]))] * chance.choice((0, 1, 1, 1, 2))
        parts = [field(1, described), *scopes, *([field(3, b"url")] if chance.random() < 0.2 else [])]
        if chance.random() < 0.2:
            chance.shuffle(parts)
        if chance.random() < 0.05:
            parts.append(chance.choice((field(1, described), field(4, b"unknown"), b"\x10\x01")))
        groups.append(field(1, b"".join(parts)))
    return b"".join(groups)


@pytest.mark.parametrize("seed", part(range(20), every=5))
def test_generated_requests(seed: int, decoder: CompiledTracesDecoder) -> None:
    """Names, values and fields of any type in any order, repeated and unknown, give what Python gives."""
    chance = random.Random(seed)
    for _ in range(100):
        assert_same(any_request(chance), decoder)
    assert decoder.spans["module"] > 0 < decoder.spans["python"]


INSERTED = (
    b"\xff" * 10,
    b"\x0b",
    b"\x0a\x00",
    b"\x80\x80\x00",
    b"\x00",
    b"\x4a\x00",
    b"\x12\x80\x80\x80\x80\x00",
)


def damaged(body: bytes, chance: random.Random) -> bytes:
    broken = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(broken)) if broken else 0
        what = chance.randrange(6)
        if what == 0:
            broken[at : at + 1] = chance.randbytes(1)
        elif what == 1 and broken:
            broken[at] ^= 1 << chance.randrange(8)
        elif what == 2:
            del broken[at : at + chance.choice((1, 2, 30))]
        elif what == 3:
            broken[at:at] = chance.randbytes(chance.choice((1, 2, 11)))
        elif what == 4:
            broken[at:at] = chance.choice(INSERTED)
        else:  # a piece of the request comes twice
            begin = chance.randrange(len(broken)) if broken else 0
            broken[at:at] = broken[begin : begin + chance.choice((1, 4, 40))]
    return bytes(broken)


def split(message: bytes, chance: random.Random) -> bytes:
    """Return a request with the fields of one resource in two messages, which a parser merges."""
    request = ExportTraceServiceRequest.FromString(message)
    if not request.resource_spans:
        return message
    group = chance.choice(request.resource_spans)
    whole = group.SerializeToString()
    described = ExportTraceServiceRequest().resource_spans.add(resource=group.resource).SerializeToString()
    return field(1, described + whole) + field(1, whole + described)


def test_damaged_requests(decoder: CompiledTracesDecoder) -> None:
    """Changed bits and bytes, cuts and split messages give the same outcome or the same status."""
    chance = random.Random(11)
    bodies = [body for body in trace_requests() if len(body) < 4000]
    statuses = set()
    for number in range(10**6 if IS_LONG else 3000):
        body = chance.choice(bodies) if number % 4 else any_request(chance)
        body = split(body, chance) if number % 50 == 1 else damaged(body, chance)
        expected = read(body, protobuf_decoder.traces)
        assert expected == read(body, decoder), body.hex()
        statuses.add(expected if isinstance(expected, int) else 200)
    assert {200, 400} <= statuses


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_as_by_python(name: str, decoder: CompiledTracesDecoder) -> None:
    options = ReadOptions(max_items=50_000)
    assert_same(BOMBS[name], decoder, options)
    assert read(BOMBS[name], decoder, options) in (400, 413)


def test_the_error_of_a_piece_comes_before_its_limit(decoder: CompiledTracesDecoder) -> None:
    """A request that is damaged and has too many items is refused with the status of Python."""
    body = of_items(field(2, b"") * 20 + field(2, b"\x2a\x01\xff"))
    for limit in (5, 500):
        assert 400 == read(body, protobuf_decoder.traces, ReadOptions(max_items=limit))
        assert 400 == read(body, decoder, ReadOptions(max_items=limit))


@pytest.mark.parametrize("missing", [0, 1])
def test_the_last_span_reaches_the_limit_of_items(missing: int, decoder: CompiledTracesDecoder) -> None:
    """The items are 50 spans, a resource and a scope."""
    options = ReadOptions(max_items=52 - missing)
    assert_same(protobuf_spans(50), decoder, options)
    assert missing == (read(protobuf_spans(50), decoder, options) == 413)


@pytest.mark.parametrize("missing", [0, 1])
def test_the_last_spans_reach_the_limit_of_bytes(missing: int, decoder: CompiledTracesDecoder) -> None:
    """Both decoders reserve the same memory, and stop where there is none."""
    body = of_items(field(2, b"") * 20_000)
    reserved: list[int] = []
    read(body, protobuf_decoder.traces, hold=reserved.append)
    assert reserved

    def read_with_limit(traces: TracesDecoder) -> tuple[object, list[int]]:
        held: list[int] = []

        def hold(size: int) -> None:
            held.append(size)
            if sum(held) > sum(reserved) - missing:
                raise Refusal(503, "busy", "no memory")

        return read(body, traces, hold=hold), held

    assert read_with_limit(protobuf_decoder.traces) == read_with_limit(decoder)
    assert missing == (read_with_limit(decoder)[0] == 503)


@pytest.mark.parametrize("order", [1, -1])
def test_options_that_change_between_requests(order: int, decoder: CompiledTracesDecoder) -> None:
    """What the operator keeps as tags changes at a reload. The decoder remembers no part of it."""
    kept = ReadOptions(keep_attributes=frozenset({"server.address", "app.feature"}))
    for options in (PLAIN, kept, PLAIN, kept)[::order]:
        for body in (protobuf_spans(10), real_spans(10, 3)):
            assert_same(body, decoder, options)


@pytest.mark.parametrize("order", [1, -1])
def test_repeated_ids(order: int, decoder: CompiledTracesDecoder) -> None:
    """Spans that come twice in one request are duplicates, whichever decoder reads which copy."""
    spans = ExportTraceServiceRequest.FromString(protobuf_spans(5)).resource_spans[0].scope_spans[0].spans
    usual = [field(2, span.SerializeToString()) for span in spans]
    unusual = [field(2, span.SerializeToString() + field(99, b"")) for span in spans]
    both = (usual, unusual)[::order]
    assert_same(of_items(b"".join(both[0] + both[1])), decoder)
    assert decoder.spans["python"] == 5


@pytest.mark.parametrize("order", [1, -1])
def test_readings_take_turns(order: int, decoder: CompiledTracesDecoder) -> None:
    """A large request of one sender is decoded between the small ones of another, also on another thread."""
    large, small = protobuf_spans(1000), protobuf_spans(20)
    expected = [read(body, protobuf_decoder.traces) for body in (large, small)]
    jobs = [
        otlp.normalise_otlp("traces", body, json=False, options=PLAIN, traces=decoder)
        for body in (large, small)
    ]
    outcomes: dict[int, Any] = {}
    while len(outcomes) < 2:
        for place in (0, 1)[::order]:
            try:
                if place not in outcomes:
                    next(jobs[place])
            except StopIteration as done:
                outcomes[place] = done.value
    assert expected == [outcomes[0], outcomes[1]]
    on_thread: list[object] = []
    thread = threading.Thread(target=lambda: on_thread.extend(read(large, decoder) for _ in range(3)))
    thread.start()
    here = [read(small, decoder) for _ in range(100)]
    thread.join()
    assert [expected[0]] * 3 == on_thread
    assert [expected[1]] * 100 == here


class _PanicError(BaseException):
    pass


class _PanickingDecoder:
    """The decoder of the module, which fails in one of its calls."""

    def __init__(self, decoder: Any, fails_at: int) -> None:
        self._decoder, self._fails_at, self._calls = decoder, fails_at, 0

    def _count(self) -> None:
        self._calls += 1
        if self._calls == self._fails_at:
            raise _PanicError("index out of bounds")

    def open(self, request: bytes) -> object:
        self._calls = 0
        self._count()
        reading = self._decoder.open(request)

        def take() -> object:
            self._count()
            return reading.take()

        return SimpleNamespace(items=reading.items, take=take)


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_three_panics(fails_at: int, native: NativeModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a panic, Python decodes the rest of the piece, wherever the panic was. After three, it decodes everything.
    Nothing is lost or counted twice, even if a part was already given on.
    """
    own = NativeModule(native._module)
    own.panic = _PanicError
    decoder = CompiledTracesDecoder(own)
    decoder._decoder = _PanickingDecoder(decoder._decoder, fails_at)  # type: ignore[assignment]
    monkeypatch.setattr(BodyReadLimits, "count_work_and_check_turn", lambda *_: True)
    body = protobuf_spans(150)
    assert 413 == read(body, decoder, ReadOptions(max_items=151))
    for _ in range(MOST_FAULTS + 1):
        assert_same(body, decoder, ReadOptions(max_items=152))
    assert own.faults == MOST_FAULTS
    assert not own.is_on
    assert decoder.spans.total() == 150 * (MOST_FAULTS + 1)


def takes(decoder: CompiledTracesDecoder, body: bytes) -> Iterator[tuple[Any, float]]:
    """Yield the groups and the seconds of each step."""
    reading = decoder._decoder.open(body)
    assert reading is not None
    while True:
        began = time.thread_time()
        groups = reading.take()
        seconds = time.thread_time() - began
        if groups is None:
            return
        yield groups, seconds


def conversation(messages: int) -> bytes:
    pairs = []
    for number in range(messages):
        for end, text in (("role", "user"), ("content", "a sentence " * 9)):
            name = f"llm.input_messages.{number}.message.{end}".encode()
            pairs.append(field(9, field(1, name) + field(2, field(1, text.encode()))))
    return of_items(field(2, field(1, b"t" * 16) + field(2, b"s" * 8) + b"".join(pairs)))


def test_steps_are_bounded(decoder: CompiledTracesDecoder) -> None:
    """A step has at most 64 spans with their groups, or 1,024 attributes, also within a span."""
    for _ in range(3):  # a name that recurs is remembered
        assert list(takes(decoder, protobuf_spans(150)))
    assert [62, 64, 24] == [
        sum(len(spans) for _, _, spans in groups) for groups, _ in takes(decoder, protobuf_spans(150))
    ]
    [*within, last] = [groups for groups, _ in takes(decoder, many_names(1, 5000))]
    assert 5000 / 128 <= len(within) + 1  # names that are not remembered take longer
    assert 5000 == len(last[-1][2][0][6])
    bodies = [protobuf_spans(1000), conversation(1500), many_names(10, 3000), *captured_spans()]
    seconds = sorted(seconds for body in bodies * examples(10) for _, seconds in takes(decoder, body))
    share = seconds[int(len(seconds) * 0.999)]
    print(f"99.9 % of steps take at most {share * 1000:.2f} ms (target 0.5)")
    if IS_LONG:
        assert share <= 0.0005 * SLACK


def test_a_message_of_a_long_conversation_costs_the_same(decoder: CompiledTracesDecoder) -> None:
    """The number of steps grows with the messages of one span, and so does the time: there is no cliff."""
    steps, seconds = {}, {}
    for messages in (50, 500, 5000):
        body = conversation(messages)
        assert_same(body, decoder)
        rounds = [list(takes(decoder, body)) for _ in range(8)]
        steps[messages] = len(rounds[0])
        seconds[messages] = min(sum(each for _, each in one) for one in rounds)
    assert 5 * steps[500] <= steps[5000] <= 12 * steps[500]
    assert seconds[5000] <= 30 * seconds[500]  # on a busy machine; in proportion it is 10
    assert decoder.spans["python"] == 0


def test_invented_names_take_no_memory(decoder: CompiledTracesDecoder) -> None:
    """A sender that invents names, each twice, makes neither the process nor its tables grow."""

    def send(rounds: int, begin: int) -> int:
        for number in range(begin, begin + rounds):
            body = many_names(1, 500).replace(b"n0.", b"%03d" % (number // 2 % 1000))
            for _ in takes(decoder, body):
                pass
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = send(200, 0)
    assert send(2000 if IS_LONG else 300, 200) - before < 8 * 1024


def test_a_name_is_asked_twice(native: NativeModule) -> None:
    """The module remembers a name at its second request, even if each request has a single span."""
    asked: list[str] = []
    decoder = native.request_decoder(lambda name: asked.append(name) or 0)  # type: ignore[func-returns-value]
    for _ in range(5):
        reading = decoder.open(protobuf_spans(1))
        assert reading is not None
        while reading.take() is not None:
            pass
    assert {2} == set(Counter(asked).values())
    assert len(asked) > 20


def test_a_rule_that_python_lacks_is_an_error(native: NativeModule) -> None:
    """A rule beyond those of the module, or a failure of Python, is an exception and no panic."""
    for rule in (lambda _: 3, lambda name: 1 // 0):
        reading = native.request_decoder(rule).open(protobuf_spans(1))
        assert reading is not None
        with pytest.raises((ValueError, ZeroDivisionError)):
            reading.take()
    assert compiled_decoder._module_rule_of_attribute("") == 1
