"""
Cost of normalising spans of kinds that nobody has seen, as a ratio to familiar spans of the same size.

Generators draw names, models and values by a seed, which is new for each run and printed. Familiar spans have the
names of twelve spans of the same generator.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from gateway.normalise import otlp
from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.outcome import Options
from tests.bench import test_bench_normalise as normalising
from tests.gateway.normalise.otlp.items import finished

FULL = os.environ.get("TOLLHOUSE_BENCH") == "full"
ROUNDS = 40 if FULL else 4
# factor for a busy machine: the printed ratios are the result, and the assertion checks only the magnitude
SLACK = 3

Attributes = dict[str, Any]
Generator = Callable[[random.Random], Attributes]
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


def conversation(chance: random.Random) -> Attributes:
    beginnings = [f"llm.input_messages.{number}.message." for number in range(chance.randrange(50, 200))]
    content = {f"{beginning}content": "a sentence " * chance.randrange(1, 40) for beginning in beginnings}
    return {f"{beginning}role": "user" for beginning in beginnings} | content


def conversation_as_text(chance: random.Random) -> Attributes:
    messages = [{"role": "user", "content": "a sentence " * 9} for _ in range(chance.randrange(50, 200))]
    return {f"app.{chance.getrandbits(48):x}": 1, "gen_ai.input.messages": json.dumps(messages)}


# By generator: the highest ratio of unfamiliar to familiar spans
UNFAMILIAR: dict[Generator, float] = {
    from_pool: 1.3,
    never_again: 2.8,
    declared: 3.0,
    conversation: 1.5,
    conversation_as_text: 2.0,
}


def span(more: Attributes) -> Attributes:
    return normalising.semconv() | more


def familiar(generator: Generator, chance: random.Random) -> Generator:
    sets = [generator(chance) for _ in range(12)]
    return lambda chance: chance.choice(sets)


def in_turns(chance: random.Random, *generators: Generator) -> list[float]:
    """Return the time per body of spans of each generator: the fastest of several rounds."""
    times = [float("inf")] * len(generators)
    for number in range(ROUNDS + 1):
        for place, generator in enumerate(generators):
            drawn = [generator(chance) for _ in range(normalising.SPANS)]
            encoded = normalising.body("", lambda: span(drawn.pop()))  # noqa: B023 (called at once)
            start = process_time()
            outcome = finished(otlp.normalise("traces", encoded, json=False, options=Options()))
            if number:  # the first round fills the caches
                times[place] = min(times[place], process_time() - start)
            assert normalising.SPANS == outcome.received
    return times


@pytest.mark.bench
@pytest.mark.parametrize("generator", UNFAMILIAR, ids=lambda generator: generator.__name__)
def test_an_unfamiliar_span_costs_little_more_than_a_familiar_one(generator: Generator) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    strange, known = in_turns(chance, generator, familiar(generator, chance))
    print(f"\n{generator.__name__} (seed {seed}): ratio {strange / known:.2f}")
    assert strange <= known * UNFAMILIAR[generator] * SLACK, seed


@pytest.mark.bench
def test_the_number_of_names_has_no_cliff() -> None:
    """A span with 129 names costs about as much as one with 128."""
    own = len(normalising.semconv())
    few, many = ([f"app.name-{number}" for number in range(names - own)] for names in (128, 129))
    one, other = in_turns(
        random.Random(7), lambda chance: free(few, chance), lambda chance: free(many, chance)
    )
    print(f"\n129 names instead of 128: ratio {other / one:.2f}")
    assert other <= one * 1.1 * SLACK
