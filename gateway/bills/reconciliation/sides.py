"""
The two sides of a comparison: what a provider billed, and what the ledger counted. Pure.

Money is in units of `spool.money`, so sums are exact. Each token is in only one meter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from gateway.bills.reconciliation.limits import ALIKE
from gateway.intake.price_terms import PriceTerm

# Levels of the rows, output formats, and parts of a difference.
DAY, MODEL, KEY = "day", "model", "key"
LEVELS = (DAY, MODEL, KEY)
FORMATS = ("json", "csv")
VOLUME, RATE, OTHER, OWN = "volume", "rate", "other", "own"
PARTS = (VOLUME, RATE, OTHER, OWN)
DOUBTS = ("failed", "aborted", "unpriced")  # reasons why the cost of a call may be wrong
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
# Meter of a bill -> the ledger's meters that it combines. Its tokens are divided in proportion to
# the ledger's counts.
POOLED: Mapping[str, tuple[str, ...]] = {"cache_write": (WRITE_5M, WRITE_1H), "input_total": INPUT_METERS}
WHOLE = "cost"  # meter for an amount that covers all tokens of a cell

STANDARD = ""
ANYWHERE = frozenset({"", "global"})  # regions in which the price book's prices apply unchanged
# a function that returns list prices per token by meter, for a model, tier, day and context window
Prices = Callable[[str, str, int, int], Mapping[str, int]]


class ComparisonCell(NamedTuple):
    """
    A combination of dimensions for which a bill and the ledger are compared. `day` is in epoch seconds. A
    dimension that one of them does not state is "". `context` is the lower limit of the context window, in
    tokens; 0 is the smallest window.
    """

    day: int
    key: str = ""
    model: str = ""
    tier: str = STANDARD
    region: str = ""
    context: int = 0


MeterPlace = tuple[ComparisonCell, str]


def new_counts() -> dict[Any, int]:
    return defaultdict(int)


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTokens:
    """Billed tokens, or the billed number of calls if `meter` is None."""

    source: str
    day: int
    account: str
    key: str
    model: str
    tier: str | None
    meter: str | None
    quantity: int
    region: str = ""
    context: int | None = None
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledMoney:
    """
    A billed amount. `meter` is one of METERS, POOLED or WHOLE for tokens; any other word means something
    other than tokens.

    `line` is the type of line (`spool.statements.LINE_TYPES`) if the meter does not show it. `bill` is the name of its
    bill. For refunds and corrections, `of` is the meter of the original charge. If rows are dated by bill, `used` are
    the days of its calls.
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
    context: int | None = None
    line: str = ""
    of: str = ""
    bill: str = ""
    used: range = range(0)

    @property
    def is_for_tokens(self) -> bool:
        return self.meter in METERS or self.meter in POOLED or self.meter == WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedUse:
    """
    Counted calls of one day with the same price.

    `values` are the values of each meter's tokens at the price that applied. Meters without a known price are
    omitted. `unsized` is the number of calls with incomplete token counts. `cost` is the total cost.
    `context` is an input size that each call exceeds, or -1 if the sizes are unknown. `failed` is the amount
    by which the bill exceeds the ledger because it bills failed calls. If a contract decides the price,
    `contract` names it, and `listed` are the values without it. `is_estimated` means that `cost` follows from
    the prices.
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
    # fees that are not for tokens, by the names that bills use
    fees: Mapping[str, int] = field(default_factory=dict)
    # quantities of the fees above and of units such as images, in millionths
    beside: Mapping[str, int] = field(default_factory=dict)
    context: int = 0
    reasoning: int = 0  # tokens that the source reports as reasoning, also if its output excludes them
    failed: int = 0
    contract: str = ""
    listed: Mapping[str, int] = field(default_factory=dict)
    is_estimated: bool = True


Row = TypeVar("Row", BilledTokens, BilledMoney, CountedUse)


# Most rows already have the key and the model, and copying these rows took a tenth of the time of a comparison.
def replace_api_key(row: Row, key: str) -> Row:
    return row if row.key == key else replace(row, key=key)


def replace_model(row: Row, model: str) -> Row:
    return row if row.model == model else replace(row, model=model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """
    Capacity that a contract states. `by_day` is its cost in dollars. `models` are the covered models under
    the comparison's names, which may be those of the bill.
    """

    term: PriceTerm
    by_day: Mapping[int, int]
    models: Collection[str] = ()

    def is_for_model(self, model: str) -> bool:
        return model in self.models or self.term.is_for_model(model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractSum:
    """
    An amount that a contract states for the calls of a whole month, in dollars. `charge` is its terms' kind,
    and `free_tokens` are the free tokens of a day, by the term that states them.
    """

    contract: str
    charge: str
    amount: int
    free_tokens: Sequence[tuple[PriceTerm, int]] = ()


@dataclass(slots=True)
class BilledSums:
    """
    The billed sums of one cell. `regional` are tokens by region and meter. Output tokens include `reasoning`.
    """

    tokens: dict[str, int] = field(default_factory=new_counts)
    regional: dict[tuple[str, str], int] = field(default_factory=new_counts)
    calls: int | None = None
    reasoning: int = 0


@dataclass(slots=True)
class CountedSums:
    """
    Counted sums of one cell. `values` are the money values of the token counts in `valued`, and `premium` is the part
    of them that large inputs cost more. `regional` are values by region and meter. `unsized_value` is the value of
    the calls with incomplete token counts that have no cost, without those in `failed`.
    """

    tokens: dict[str, int] = field(default_factory=new_counts)
    valued: dict[str, int] = field(default_factory=new_counts)
    values: dict[str, int] = field(default_factory=new_counts)
    premium: dict[str, int] = field(default_factory=new_counts)
    by_source: dict[str, int] = field(default_factory=new_counts)
    regional: dict[tuple[str, str], int] = field(default_factory=new_counts)
    calls: int = 0
    errors: int = 0
    unsized: int = 0
    cost: int = 0
    fees: dict[str, int] = field(default_factory=new_counts)
    reasoning: int = 0
    failed: int = 0
    unsized_value: int = 0

    def add_use(self, row: CountedUse) -> None:
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
        if row.unsized and not row.cost and not row.failed:
            self.unsized_value += sum(row.values.values())
        self.cost += row.cost
        self.reasoning += row.reasoning
        self.failed += row.failed
        for kind, fee in row.fees.items():
            self.fees[kind] += fee


def count_calls_by_cost_doubt(uses: Iterable[CountedUse]) -> Mapping[str, int]:
    """
    Return the number of calls whose cost may be wrong: those that failed, those without all token counts (such as
    aborted ones), and those without a price. Each call has one reason.
    """
    calls = dict.fromkeys(DOUBTS, 0)
    for use in uses:
        is_unpriced = any(use.tokens.values()) and not use.values and not use.cost
        if use.errors:
            calls["failed"] += use.errors
        elif use.unsized:
            calls["aborted"] += use.unsized
        elif is_unpriced:
            calls["unpriced"] += use.calls
    return calls


def divide_among_meters(
    whole_count: int, share_by_meter: Mapping[str, int], meters: tuple[str, ...]
) -> dict[str, int]:
    """
    Divide a whole number in proportion to shares, without remainder. If all shares are 0, the first meter
    gets everything.
    """
    total = sum(share_by_meter.get(meter, 0) for meter in meters)
    if total <= 0:
        return {meters[0]: whole_count}
    token_parts = {meter: whole_count * share_by_meter.get(meter, 0) // total for meter in meters}
    largest = max(meters, key=lambda meter: share_by_meter.get(meter, 0))
    token_parts[largest] += whole_count - sum(token_parts.values())
    return token_parts


def are_series_alike(first: Mapping[int, int], second: Mapping[int, int], tolerance: float = ALIKE) -> bool:
    """
    Return whether the daily differences of two series sum up to at most the share `tolerance` of the larger
    series.
    """
    size = max(sum(first.values()), sum(second.values()))
    difference = sum(abs(first.get(day, 0) - second.get(day, 0)) for day in {*first, *second})
    return size > 0 and difference <= tolerance * size
