"""Member names that show that an item is about models or tokens."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from gateway.normalise.payload import items as payload
from gateway.normalise.reading.ai_names import ai_names

MIB = 1 << 20


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
    assert names == ai_names(payload.peek(item))


@pytest.mark.parametrize("name", ["tokens", "other"])
@pytest.mark.parametrize("value", [b"[%b]", b'{"a":[%b]}'])
def test_a_large_value_is_not_copied(name: str, value: bytes) -> None:
    """A large value is not copied, because it may be most of a body that is already in memory."""
    large = msgspec.Raw(memoryview(value % (b"1," * (4 * MIB) + b"1")))
    tracemalloc.start()
    ai_names({name: large})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB
