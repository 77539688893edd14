"""
Cost of reading spans that nobody has seen, compared with familiar spans of the same size.

Generators draw names, models, people and tags by a seed, which is new for each run and printed. Familiar spans have the
further attributes of twelve spans of the same generator. If the compiled module is installed, it is measured as well.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

import pytest

from gateway.normalise import otlp
from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.compiled_decoder import CompiledTracesDecoder
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.packed.native import MODULE, load_native
from tests.bench import test_bench_normalise as normalising
from tests.bench.load.payloads import REAL_MODELS
from tests.gateway.normalise.otlp.items import finished
from tests.rounds import IS_LONG

ROUNDS = 20 if IS_LONG else 4
WARM_UP = 60 if IS_LONG else 2
# factor for a busy machine: the printed ratios are the result, and the assertions check only the magnitude
SLACK = 3
# maximum ratio of the time for unfamiliar spans to that for familiar ones, without and with the compiled
# module
TARGET, TARGET_WITH_MODULE = 2.0, 1.3
LARGEST_STEP = 1.1  # maximum ratio of the time for a span with 129 names to that for one with 128
MICROSECONDS_A_MESSAGE = 0.15  # maximum time per message with the compiled module

Attributes = dict[str, Any]
Generator = Callable[[random.Random], Attributes]
Reader = Callable[[bytes], ReadOutcome]
OPTIONS = ReadOptions()
POOL = [f"app.part-{number}.{word}" for number in range(64) for word in ("id", "flag", "zone", "step")]
DECLARED = sorted({*semconv.METERS, *(name for table in FIELD_NAMES.values() for name in table)})
TEXTS = ("on", "eu", "blue", "7f3a", "checkout")


def free(names: list[str], chance: random.Random) -> Attributes:
    return {name: chance.choice(TEXTS) for name in names}


def from_pool(chance: random.Random) -> Attributes:
    return free(chance.sample(POOL, 8), chance)


def never_again(chance: random.Random) -> Attributes:
    return free([f"app.{chance.getrandbits(48):x}" for _ in range(8)], chance)


def declared(chance: random.Random) -> Attributes:
    return dict.fromkeys(chance.sample(DECLARED, 7), 1)


def conversation(chance: random.Random, messages: int | None = None) -> Attributes:
    size = chance.randrange(50, 200) if messages is None else messages
    beginnings = [f"llm.input_messages.{number}.message." for number in range(size)]
    content = {f"{beginning}content": "a sentence " * chance.randrange(1, 40) for beginning in beginnings}
    return {f"{beginning}role": "user" for beginning in beginnings} | content


def conversation_as_text(chance: random.Random) -> Attributes:
    messages = [{"role": "user", "content": "a sentence " * 9} for _ in range(chance.randrange(50, 200))]
    return {f"app.{chance.getrandbits(48):x}": 1, "gen_ai.input.messages": json.dumps(messages)}


GENERATORS: tuple[Generator, ...] = (from_pool, never_again, declared, conversation, conversation_as_text)


def call(chance: random.Random) -> Attributes:
    """Return a call of one of 3,000 people, named by address, with one of 20 models and two tags."""
    provider, request_model, response_model = chance.choice(REAL_MODELS)
    return normalising.semconv() | {
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request_model,
        "gen_ai.response.model": response_model,
        "enduser.id": f"person-{chance.randrange(3000)}@example.com",
        "cost_center": f"center-{chance.randrange(40)}",
        "department": f"department-{chance.randrange(12)}",
    }


def body_of(generator: Generator, chance: random.Random) -> bytes:
    drawn = [call(chance) | generator(chance) for _ in range(normalising.SPANS)]
    return normalising.body("", drawn.pop)


def familiar(generator: Generator, chance: random.Random) -> Generator:
    sets = [generator(chance) for _ in range(12)]
    return lambda chance: chance.choice(sets)


def by_rules(body: bytes) -> ReadOutcome:
    return finished(otlp.normalise_otlp("traces", body, json=False, options=OPTIONS))


def with_module() -> Reader:
    decoder = CompiledTracesDecoder(load_native())
    return lambda body: finished(
        otlp.normalise_otlp("traces", body, json=False, options=OPTIONS, traces=decoder)
    )


def in_turns(chance: random.Random, *generators: Generator, module: bool = False) -> list[float]:
    """Return the time per span of each generator in microseconds: the median of several rounds."""
    read = with_module() if module else by_rules
    times: list[list[float]] = [[] for _ in generators]
    for number in range(WARM_UP + ROUNDS):
        for place, generator in enumerate(generators):
            encoded = body_of(generator, chance)
            start = process_time()
            outcome = read(encoded)
            taken = process_time() - start
            assert normalising.SPANS == outcome.received
            if number >= WARM_UP:
                times[place].append(taken / normalising.SPANS * 1e6)
    return [median(one) for one in times]


def with_target(module: bool) -> str:
    return "compiled module" if module else "pure Python"


MODULES = pytest.mark.parametrize(
    "module",
    [False, pytest.param(True, marks=pytest.mark.skipif(find_spec(MODULE) is None, reason="make native"))],
    ids=with_target,
)


@pytest.mark.bench
@MODULES
def test_unfamiliar_spans_cost_little_more_than_familiar_ones(module: bool) -> None:
    seed = random.randrange(2**32)
    target = TARGET_WITH_MODULE if module else TARGET
    print(
        f"\nseed {seed}, {with_target(module)}, µs a span\n| generator | unfamiliar | familiar | ratio | target |"
    )
    ratios = {}
    for generator in GENERATORS:
        chance = random.Random(seed)
        strange, known = in_turns(chance, generator, familiar(generator, chance), module=module)
        ratios[generator.__name__] = strange / known
        row = f"{generator.__name__} | {strange:.1f} | {known:.1f} | {strange / known:.2f} | {target}"
        print(f"| {row} |")
    assert max(ratios.values()) <= target * SLACK, (seed, ratios)


@pytest.mark.bench
@MODULES
def test_the_number_of_names_has_no_cliff(module: bool) -> None:
    """
    Reading a span with 129 names takes about as long as one with 128, and the time grows with the number of names.
    """
    chance = random.Random(7)
    own = len(call(chance))
    sizes = (128, 129, 1000)
    names = {size: [f"app.name-{number}" for number in range(size - own)] for size in sizes}
    few, more, many = in_turns(
        chance, *(lambda chance, size=size: free(names[size], chance) for size in sizes), module=module
    )
    row = f"{more / few:.2f} (target {LARGEST_STEP}); 1,000 names: {many / few:.1f}, in proportion 7.8"
    print(f"\n{with_target(module)}: 129 names instead of 128: ratio {row}")
    assert more <= few * LARGEST_STEP * SLACK
    assert many <= few * 1000 / 128 * SLACK


@pytest.mark.bench
@MODULES
def test_a_message_of_a_conversation_costs_little(module: bool) -> None:
    chance = random.Random(7)
    none, many = in_turns(chance, lambda chance: {}, lambda chance: conversation(chance, 400), module=module)
    target = f" (target {MICROSECONDS_A_MESSAGE})" if module else ""
    print(
        f"\n{with_target(module)}: a message of 400 costs {(many - none) / 400:.2f} µs{target}, the span {none:.1f} µs"
    )
    assert many <= none * 100 * SLACK
