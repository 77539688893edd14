"""
Pairs of days between which one thing changed. The part of that thing is the largest, the sentence names it with its two
numbers, and the parts add up to the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from gateway.money.comparison.split import PARTS
from spool.money import text_to_units
from tests.integration.operations.server import operator_server
from tests.moved_clock import MovedClock
from tests.rounds import examples
from tests.spool.contract.examples import add, call, counted_from

NOON = {day: datetime.fromisoformat(f"2026-09-{day:02d}T12:00+00:00").timestamp() for day in (8, 15)}
NEW_PRICE = PriceOverride(model="gpt-4o", since="2026-09-10", input=Decimal(4), output=Decimal(16))
BOOK = PriceBook.load().with_override(NEW_PRICE)
SONNET, HAIKU = "claude-sonnet-4-5", "claude-haiku-4-5"
Fields = dict[str, Any]


class Pair(NamedTuple):
    """The calls of both days, and words of the sentence."""

    before: Sequence[Fields]
    now: Sequence[Fields]
    words: str

    @classmethod
    def of(cls, sides: Iterable[Sequence[Fields]], words: str) -> Pair:
        before, now = sides
        return cls(before, now, words)


def calls(count: int, size: int, **fields: Any) -> list[Fields]:
    return [{"model": SONNET, "input_tokens": size, "output_tokens": size // 20, **fields}] * count


def two_shares(size: int, shares: Sequence[int], usual: Fields, other: Fields) -> list[list[Fields]]:
    """Return two days with 20 calls each, of which some have other fields."""
    return [[*calls(20 - share, size, **usual), *calls(share, size, **other)] for share in shares]


def more_calls(size: int, shares: Sequence[int]) -> Pair:
    return Pair.of((calls(share, size) for share in shares), words="calls (")


def larger_calls(size: int, shares: Sequence[int]) -> Pair:
    return Pair.of((calls(20, size * share) for share in shares), words="tokens each (")


def other_models(size: int, shares: Sequence[int]) -> Pair:
    return Pair.of(two_shares(size, shares, {}, {"model": HAIKU}), words="other models or kinds of tokens (")


def other_kinds(size: int, shares: Sequence[int]) -> Pair:
    both = ({"input_tokens": size - 90 * share, "output_tokens": 90 * share} for share in shares)
    return Pair.of((calls(20, size, **kinds) for kinds in both), words="other models or kinds of tokens (")


def large_inputs(size: int, shares: Sequence[int]) -> Pair:
    sides = two_shares(199_000, shares, {}, {"input_tokens": 200_001 + size // 40})
    return Pair.of(sides, words="of its tokens were in large inputs, before")


def other_tiers(size: int, shares: Sequence[int]) -> Pair:
    sides = two_shares(size, shares, {}, {"tags": {"processing": "batch"}})
    return Pair.of(sides, words="of its tokens were in the tier batch, before")


def other_regions(size: int, shares: Sequence[int]) -> Pair:
    own, other = ({"region": name, "factor": factor} for name, factor in (("us", "1"), ("eu", "1.25")))
    sides = two_shares(size, shares, own, other)
    return Pair.of(sides, words="of its tokens were in the region eu, before")


def reported_costs(size: int, shares: Sequence[int]) -> Pair:
    sides = two_shares(size, shares, {}, {"factor": "0.7"})
    return Pair.of(sides, words="of its tokens had a reported cost, before")


def reported_prices(size: int, shares: Sequence[int]) -> Pair:
    both = (calls(20, size, factor=f"{1 + Decimal(share) / 10}") for share in shares)
    return Pair.of(both, words=f"for the same tokens of {SONNET} ($")


def list_prices(size: int, shares: Sequence[int]) -> Pair:
    both = [calls(20, size, model="gpt-4o")] * 2
    return Pair.of(both, words="because prices rose: gpt-4o input $4, before $2.5")


CHANGES: dict[Callable[[int, Sequence[int]], Pair], str] = {
    more_calls: "more_calls",
    larger_calls: "larger_calls",
    other_models: "other_kinds",
    other_kinds: "other_kinds",
    large_inputs: "large_inputs",
    other_tiers: "other_tiers",
    other_regions: "other_regions",
    reported_costs: "reported_costs",
    reported_prices: "reported_rates",
    list_prices: "prices",
}


def made(number: int, team: str, day: int, fields: Fields) -> Any:
    """Return a call with its estimate. With a `factor`, its source reports that share of the estimate as the cost."""
    named = {name: value for name, value in fields.items() if name not in ("factor", "model")}
    model = fields["model"]
    provider = "openai" if model.startswith("gpt") else "anthropic"
    result = call(number, at=NOON[day], provider=provider, response_model=model, team=team, **named)
    if "factor" in fields:
        result[0].cost = f"{Decimal(BOOK.estimate_record(result[0]) or 0) * Decimal(fields['factor']):f}"
    BOOK.price_record(result[0])
    return result


async def test_the_sentence_names_the_one_change(tmp_path: Path) -> None:
    """
    The sentence of a comparison names the one thing that changed, at random sizes and shares, upwards and
    downwards.
    """
    clock = MovedClock(datetime.fromisoformat("2026-09-17T12:00+00:00").timestamp())
    async with operator_server(tmp_path, clock=clock, prices=lambda: BOOK) as server:
        log, number = server.services.spool.log, 0
        await add(log, counted_from("2019-12-31"))
        teams: dict[str, tuple[str, str]] = {}
        for seed in range(examples(6)):
            for change, part in CHANGES.items():
                random = Random(f"{seed} {change.__name__}")
                shares = random.sample(range(2, 19), 2)
                pair = change(random.randrange(4_000, 9_000), shares)
                team = f"{change.__name__}-{seed}"
                teams[team] = (part, pair.words)
                for day, fields in ((8, pair.before), (15, pair.now)):
                    await add(log, *(made(number := number + 1, team, day, each) for each in fields))
        for team, (part, words) in teams.items():
            query = {
                "from": "2026-09-15",
                "to": "2026-09-15",
                "against": "same_weekdays",
                "where": f"team={team}",
            }
            answer = await server.ask("GET", f"/comparison?{urlencode({**query, 'by': 'team'})}")
            assert 200 == answer.status, answer.payload
            [row] = answer.payload["rows"]
            amounts = {name: text_to_units(row[name]) for name in PARTS}
            assert part == max(amounts, key=lambda name: abs(amounts[name])), (team, row)
            assert text_to_units(row["change"]) == sum(amounts.values())
            sentence = answer.payload["comparison"]["sentence"]
            assert words in sentence, (team, row)
            assert 1 == sentence.count("because "), sentence
            assert ("prices rose" in sentence or "prices fell" in sentence) == (part == "prices"), sentence
            assert (part == "reported_rates") == ("the list price did not change" in sentence), sentence
