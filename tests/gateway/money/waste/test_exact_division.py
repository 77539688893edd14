"""Whatever senders state: useful, classes and what is not judged add up to the cost of every call."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pytest

from gateway.intake.price_terms import PriceTerm
from gateway.intake.prices import PriceBook
from gateway.money.waste.lane import Lane
from spool.record import Inference
from tests.gateway.money.waste.examples import BOOK, call, judged
from tests.rounds import part

# DeepSeek's prices change within a day
MODELS = [
    ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-5"), ("aws.bedrock", "claude-haiku-4-5"),
    ("openai", "gpt-4o"), ("deepseek", "deepseek-chat"), ("x_ai", "grok-3"), (None, None), ("anthropic", "unknown"),
]  # fmt: skip
DISCOUNTED = PriceBook(
    BOOK.card,
    (),
    [
        PriceTerm(contract="Deal", kind="discount", provider=name, since="2026-01-01", factor=Decimal("0.7"))
        for name in ("anthropic", "openai")
    ],
)


def any_call(random: Random, at: float, book: PriceBook) -> Inference:
    provider, model = random.choice(MODELS[:2] if random.random() < 0.6 else MODELS)
    size = random.choice([random.randrange(300_000), 5_000, 5_100])
    read = random.choice([None, 0, 0, size // 2, random.randrange(size + 1), size + 1])
    written = random.choice([None, 0, size - (read or 0), random.randrange(size + 1)])
    fields: dict[str, Any] = {
        "provider": provider, "request_model": model, "response_model": random.choice([model, None]),
        "status": random.choice(["ok"] * 5 + ["error", "cached"]),
        "cache_write_1h_tokens": random.choice([None, 0, written, (written or 0) // 2]),
        "output_tokens": random.choice([0, 500, None]),
        "cost": random.choice([None] * 3 + ["0", "0.000000000000000000001", f"0.{random.randrange(10**9):09}", "7"]),
    }  # fmt: skip
    made = call(at, size, read, written if written is None else max(0, written), **fields)
    made.input_tokens = random.choice([size] * 9 + [None])
    made.end_time = random.choice([made.end_time] * 9 + [None])
    made.start_time = random.choice([made.start_time] * 9 + [None])
    book.price_record(made)
    return made


@pytest.mark.parametrize("seed", part(range(400), every=10))
def test_the_parts_of_any_history_add_up_to_its_cost(seed: int) -> None:
    """`judged` compares the sum of every call. Sources report costs, contracts discount, and prices have hours."""
    random = Random(seed)
    book = random.choice([BOOK, DISCOUNTED])
    lanes: dict[Lane | None, list[Inference]] = {}
    at = 0.0
    for _ in range(random.randint(1, 40)):
        lane = random.choice([None, ("one",), ("one",), ("two",)])
        lanes.setdefault(lane, []).append(any_call(random, at, book))
        at += random.choice([1, 6, 20, 200, 301, 2_000, 4_000, 9_000])
    for until in (at + 1, 1e7):
        judged(lanes, until=until, knows_all=random.random() < 0.5, book=book)
