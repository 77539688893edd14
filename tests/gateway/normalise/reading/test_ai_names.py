"""Member names that show that an item is about models or tokens."""

from __future__ import annotations

import random
import tracemalloc

import msgspec
import pytest

from gateway.normalise.payload import items as payload
from gateway.normalise.reading.ai_names import (
    _CONVENTION,
    ai_names_with_values,
    is_ai_name,
    is_model_attribute,
    is_usage_name,
)
from tests.rounds import examples

MIB = 1 << 20
WORDS = (
    "model", "token", "tokens", "Tokens", "tokenCount", "token_count", "cost", "usd", "credit", "credits", "aiu",
    "acu", "nano", "eval", "count", "prompt", "input", "output", "cached", "total", "used", "tokensIn", "gen_ai", "llm",
    "ai", "usage", "request", "response", "provider", "app", "id", "name", "auth", "http", "consumed",
)  # fmt: skip


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (b'{"tokens":5,"other":1}', ["tokens"]),
        (b'{"tokens":0,"total_tokens":null}', []),
        (b'{"TOKENS":5,"TOKEN_CREDITS":0.1,"QUERY_ID":"q"}', ["TOKENS", "TOKEN_CREDITS"]),
        (b'{"usage":{"prompt_tokens":5}}', ["usage.prompt_tokens"]),
        (b'{"usage":{"prompt_tokens":"0"}}', []),
        (b'{"tokens":[' + b"1," * 40_000 + b"1]}", ["tokens"]),
        (b'{"usage":{"prompt_tokens":5,"filler":[' + b"1," * 40_000 + b"1]}}", []),
    ],
)
def test_names_with_something_under_them(item: bytes, names: list[str]) -> None:
    """A name counts only if its value is not empty. A large object is not searched for names."""
    assert names == ai_names_with_values(payload.undecoded_members(item))


@pytest.mark.parametrize("seed", range(2))
def test_the_test_for_parts_of_names_loses_no_name(seed: int) -> None:
    """A name is that of AI if one of the expressions finds it. Most names are not searched by all of them."""
    chance = random.Random(seed)
    for _ in range(examples(20_000)):
        parts = [chance.choice(WORDS) + chance.choice("._:x") for _ in range(chance.randrange(1, 5))]
        name = "".join(parts)[: chance.choice((-1, 60))]
        found = [bool(_CONVENTION.match(name)), is_model_attribute(name), is_usage_name(name)]
        assert any(found) == is_ai_name(name), name


@pytest.mark.parametrize("name", ["tokens", "other"])
@pytest.mark.parametrize("value", [b"[%b]", b'{"a":[%b]}'])
def test_a_large_value_is_not_copied(name: str, value: bytes) -> None:
    """
    The search for AI names does not copy a large value, because it may be most of a body that is already in memory.
    """
    large = msgspec.Raw(memoryview(value % (b"1," * (4 * MIB) + b"1")))
    tracemalloc.start()
    ai_names_with_values({name: large})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB
