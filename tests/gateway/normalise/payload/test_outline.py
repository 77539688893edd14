"""Recognition of large items works as for small ones, without copying them."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from gateway.normalise.formats.list import recognise_format
from gateway.normalise.payload.large_items import KEPT, LARGE, shorten_large_item
from tests.gateway.normalise.formats.engine.test_recognise import SIGNS
from tests.rounds import IS_LONG, part

NOISE: list[Any] = ["x" * LARGE, [[]] * (LARGE // 4), {"inner": "x" * LARGE}]
# Each sign is next to one kind of noise in turn, or next to long runs of every kind.
BESIDE_NOISE = [
    (name, item, noise)
    for place, (name, item) in enumerate(SIGNS)
    for number, noise in enumerate(NOISE)
    if IS_LONG or number == place % len(NOISE)
]


@pytest.mark.parametrize(("name", "item", "noise"), part(BESIDE_NOISE, every=2))
def test_a_large_item_shows_the_format_of_a_small_one(name: str, item: dict[str, Any], noise: Any) -> None:
    """
    The format of a large item is recognized whether the large member is before the sign, after it, or inside
    the sign's object.
    """
    inside = {
        key: {"large": noise, **value} if isinstance(value, dict) else value for key, value in item.items()
    }
    for large in ({"large": noise, **item}, {**item, "large": noise}, {"large": noise, **inside}):
        assert recognise_format(json.dumps(large).encode()) == name


def test_what_is_small_stays_and_what_is_large_is_null() -> None:
    item = {
        "a": 1,
        "b": "x" * LARGE,
        "c": {"d": "x" * KEPT, "e": [1, {"f": "x" * KEPT, "g": 2}, 3]},
        "h": [["x" * KEPT]],
    }
    found = json.loads(bytes(shorten_large_item(json.dumps(item).encode(), 2)))
    assert found == {"a": 1, "b": None, "c": {"d": None, "e": [1, None]}, "h": [[None]]}


BROKEN = {"text": b'{"a":"' + b"x" * LARGE, "brackets": b"[" * LARGE, "list": b'{"a":[1,' + b" " * LARGE}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_off_has_no_names(name: str) -> None:
    assert bytes(shorten_large_item(BROKEN[name], 2)) == b"null"


def test_a_large_event_is_cleaned_once_and_not_copied() -> None:
    """
    A large event is cleaned once and not copied again. The cleaned copy is a third larger than the body, so
    another copy would exceed the limit.
    """
    body = b'{"batch":[{"id":"e","type":"generation-create","body":{"input":[%b]}}]}' % b",".join(
        [b"NaN"] * (LARGE // 2)
    )
    tracemalloc.start()
    try:
        assert recognise_format(body) == "langfuse"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body)
