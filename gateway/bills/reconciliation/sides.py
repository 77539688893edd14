"""
The two sides of a comparison as values: what a provider's statements say, and what the ledger counted. Pure.

Money is in units of `spool.ledger.money`, so that every sum is exact. A token is in one meter alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# How fine the rows of a reconciliation are, their form, and the parts of a difference.
DAY, MODEL, KEY = "day", "model", "key"
LEVELS = (DAY, MODEL, KEY)
FORMATS = ("json", "csv")
VOLUME, RATE, OTHER, OWN = "volume", "rate", "other", "own"
PARTS = (VOLUME, RATE, OTHER, OWN)
DAY_S = 86400

INPUT, CACHE_READ, WRITE_5M, WRITE_1H, OUTPUT = (
    "input",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "output",
)
INPUT_METERS = (INPUT, CACHE_READ, WRITE_5M, WRITE_1H)
METERS = (*INPUT_METERS, OUTPUT)
# Meters of statements that do not tell some of these apart: they are divided as the ledger's own counts are.
POOLED: Mapping[str, tuple[str, ...]] = {"cache_write": (WRITE_5M, WRITE_1H), "input_total": INPUT_METERS}
WHOLE = "cost"  # money of all the tokens of a cell, not told apart

STANDARD = ""
ANYWHERE = frozenset({"", "global"})  # regions where prices are those of the price book
Prices = Callable[
    [str, str, int], Mapping[str, int]
]  # list prices of a token by meter: of a model, tier and day
ALIKE = 0.02  # two series of tokens by day that are one


class Cell(NamedTuple):
    """
    What is compared: a day (epoch seconds), and "" where a side does not tell the key, the model, the tier
    or the region.
    """

    day: int
    key: str = ""
    model: str = ""
    tier: str = STANDARD
    region: str = ""


Place = tuple[Cell, str]  # a cell and a meter


def counts() -> dict[Any, int]:
    return defaultdict(int)


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTokens:
    """Tokens of a statement, or its number of calls (`meter` None)."""

    source: str
    day: int
    account: str
    key: str
    model: str
    tier: str | None
    meter: str | None
    quantity: int
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledMoney:
    """
    An amount of a statement. `meter`: METERS, POOLED or WHOLE for tokens, any other word for what is none.

    `line` is what a line is where its meter alone does not tell (`spool.statements.LINE_TYPES`). What
    is given back or charged anew has the meter that it was charged for as `of`, and the time of its calls.
    """

    source: str
    day: int
    account: str
    key: str
    model: str
    tier: str | None
    meter: str
    amount: int
    region: str = ""
    line: str = ""
    of: str = ""
    corrects: int = 0
    corrects_until: int = 0

    @property
    def is_for_tokens(self) -> bool:
        return self.meter in METERS or self.meter in POOLED or self.meter == WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedUse:
    """
    Calls of one day of the ledger that a provider answered, of one price.

    `values` are the tokens of each meter at the price book of the time; a meter without a known price is left
    out. `unsized`: calls whose tokens are not known in full. `cost` is what counts of all of them.
    """

    day: int
    source: str
    key: str
    team: str
    model: str
    tier: str
    calls: int
    errors: int
    unsized: int
    tokens: Mapping[str, int]
    values: Mapping[str, int]
    cost: int
    region: str = ""
    fees: Mapping[str, int] = field(default_factory=dict)  # beside the tokens, by what bills call them
    beside: Mapping[str, int] = field(default_factory=dict)  # quantities of these and of units, in millionths


@dataclass(slots=True)
class BilledSums:
    """One cell of what was billed; `regional` are the tokens of a region and meter."""

    tokens: dict[str, int] = field(default_factory=counts)
    regional: dict[tuple[str, str], int] = field(default_factory=counts)
    calls: int | None = None


@dataclass(slots=True)
class CountedSums:
    """
    One cell of what was counted; `values` are of the tokens in `valued`, `regional` those of a region and meter.
    """

    tokens: dict[str, int] = field(default_factory=counts)
    valued: dict[str, int] = field(default_factory=counts)
    values: dict[str, int] = field(default_factory=counts)
    by_source: dict[str, int] = field(default_factory=counts)
    regional: dict[tuple[str, str], int] = field(default_factory=counts)
    calls: int = 0
    errors: int = 0
    unsized: int = 0
    cost: int = 0
    fees: dict[str, int] = field(default_factory=counts)

    def add(self, row: CountedUse) -> None:
        for meter, tokens in row.tokens.items():
            self.tokens[meter] += tokens
            if meter in row.values:
                self.valued[meter] += tokens
                self.values[meter] += row.values[meter]
                if row.region:
                    self.regional[row.region, meter] += row.values[meter]
        self.by_source[row.source] += sum(row.tokens.values())
        self.calls += row.calls
        self.errors += row.errors
        self.unsized += row.unsized
        self.cost += row.cost
        for kind, fee in row.fees.items():
            self.fees[kind] += fee


def divided(whole: int, shares: Mapping[str, int], meters: tuple[str, ...]) -> dict[str, int]:
    """A whole number divided as shares are, all of it; without shares the first meter has it."""
    total = sum(shares.get(meter, 0) for meter in meters)
    if total <= 0:
        return {meters[0]: whole}
    found = {meter: whole * shares.get(meter, 0) // total for meter in meters}
    largest = max(meters, key=lambda meter: shares.get(meter, 0))
    found[largest] += whole - sum(found.values())
    return found


def are_alike(first: Mapping[int, int], second: Mapping[int, int], tolerance: float = ALIKE) -> bool:
    """True if two series by day are one, within a share of the larger."""
    size = max(sum(first.values()), sum(second.values()))
    apart = sum(abs(first.get(day, 0) - second.get(day, 0)) for day in {*first, *second})
    return size > 0 and apart <= tolerance * size
