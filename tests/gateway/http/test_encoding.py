"""JSON in pieces: the same bytes as in one call, and no call for much of them."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from gateway.http.encoding import SLICE_BYTES, json_pieces


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of the encoder made."""
    sizes: list[int] = []
    dumps = orjson.dumps

    def noted(value: object) -> bytes:
        sizes.append(len(text := dumps(value)))
        return text

    monkeypatch.setattr(orjson, "dumps", noted)
    return sizes


def some(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(6 if depth else 4)
    if kind == 0:
        return rng.choice((None, True, False, 0, -17, 2**40, 0.5))
    if kind < 4:
        return 'é"\\\n' * rng.randrange(3) + "x" * rng.choice((0, 3, 40, 300))
    members = range(rng.choice((0, 1, 5, 40)))
    if kind == 4:
        return [some(rng, depth - 1) for _ in members]
    return {f"name {member}": some(rng, depth - 1) for member in members}


@pytest.mark.parametrize("seed", range(12))
def test_pieces_are_the_bytes_of_one_call(seed: int) -> None:
    """Whatever the value is made of."""
    value = some(random.Random(seed), 5)
    assert orjson.dumps(value) == b"".join(json_pieces(value))


ROW = {"usage_date": "2026-11-01T00:00:00Z", "cost": "0.000123", "team": "search", "calls": 17, "share": None}


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [ROW] * 40_000, "total": ROW},
        {"dimensions": [{"id": str(number), "elements": [ROW] * 400} for number in range(90)]},
        {f"name {number}": ROW for number in range(40_000)},
        [["x" * 200] * 100 for _ in range(300)],
    ],
    ids=["rows", "rows of rows", "a mapping", "texts"],
)
def test_no_call_encodes_much(value: Any, encoded: list[int]) -> None:
    """Each call of the encoder, and each piece, has about a slice at most: the loop waits for that."""
    expected = len(orjson.dumps(value))
    encoded.clear()
    pieces = list(json_pieces(value))
    assert expected == sum(map(len, pieces))
    assert 2 * SLICE_BYTES > max(*encoded, *map(len, pieces))
    assert 8 * expected / SLICE_BYTES > len(pieces)  # and not a few bytes each


def test_a_small_value_is_one_piece(encoded: list[int]) -> None:
    """What most answers are costs one call."""
    assert [orjson.dumps(ROW)] == list(json_pieces(ROW))
    assert 1 == len(encoded[:-1])
