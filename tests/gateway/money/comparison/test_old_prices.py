"""Token kinds are weighted by the list price of a call of average size."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from gateway.money.comparison.old_prices import OldPrices, Priced, SpentRow, cache_saving
from spool import money
from spool.ledger.queries import CostRow
from spool.record import NS, Inference
from tests.rounds import examples

DAY = datetime(2026, 11, 20, tzinfo=UTC)
OWN = PriceOverride(model="own-*", input=Decimal("1.25"), output=Decimal("0.3333"), cache_read=Decimal("0.1"))
CARD = cards.packaged_card()
BOOK = PriceBook(CARD, [OWN])
KINDS = [
    (name, model.id)
    for name, provider in sorted(CARD.providers.items())
    for model in provider.models
    if any(row.tiers or row.per_request for row in model.prices)
]
EDGES = sorted(
    {
        tier.above
        for provider in CARD.providers.values()
        for model in provider.models
        for row in model.prices
        for tier in row.tiers
    }
)
MANY = 1_000_000  # number of tokens of each call
SMALL = 10_000  # tokens of input, below each price of large inputs
MODELS = st.sampled_from([
    *KINDS, ("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), (None, "own-1"), ("openai", "no-model"),
    ("openai", None),
])  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> CostRow:
    """Draw a day of calls of any size. Its counts may be inconsistent."""
    count = st.integers(0, 3_000_000)
    calls, size = draw(st.integers(0, 9)), draw(st.sampled_from(EDGES))
    written, of_edge = draw(count), max(1, calls) * size
    return CostRow(
        start=DAY, group=(), cost="7", reported="0", estimated="7", saved="0", calls=calls,
        errors=0, cached=0,
        priced=0, free=0, unpriced=0, without_usage=0,
        input_tokens=draw(count | st.just(of_edge)), output_tokens=draw(count),
        cache_read_tokens=draw(count), cache_write_tokens=written, reasoning_tokens=0,
        cache_write_1h_tokens=draw(st.integers(0, written)), cached_input_tokens=draw(st.integers(0, 99)),
        cached_output_tokens=0, latency_ms=0, latency=(),
    )  # fmt: skip


class Asked:
    """The price of calls of a row's average size, by token kind. If it is small, no price of large inputs applies."""

    def __init__(
        self, provider: str | None, model: str | None, row: CostRow, *, is_small: bool = False
    ) -> None:
        self._kind, self.size = (provider, model), max(1, row.input_tokens // max(1, row.calls))
        if is_small and len(BOOK.rates_at(provider, model, int(DAY.timestamp()) * NS)) > 1:
            self.size = min(self.size, SMALL)

    def price(self, output: int = 0, read: int = 0, written: int = 0, long: int = 0) -> int | None:
        provider, model = self._kind
        call = Inference(
            id=b"", source="", provider=provider, response_model=model, start_time=int(DAY.timestamp()) * NS,
            input_tokens=self.size, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written,
            cache_write_1h_tokens=long or None,
        )  # fmt: skip
        text = BOOK.estimate_record(call)
        return None if text is None else money.text_to_units(text)

    def weight(self, row: CostRow) -> int | None:
        plain, read, written = self.price(), self.price(read=self.size), self.price(written=self.size)
        made = self.price(output=MANY)
        if plain is None or read is None or written is None or made is None:
            return None
        cached = row.cache_read_tokens + row.cache_write_tokens
        fresh = max(0, row.input_tokens - row.cached_input_tokens - cached)
        of_input = plain * fresh + read * row.cache_read_tokens + written * row.cache_write_tokens
        return of_input // self.size + (made - plain) * (row.output_tokens - row.cached_output_tokens) // MANY

    def saving(self, row: CostRow) -> int | None:
        read, written, long = row.cache_read_tokens, row.cache_write_tokens, row.cache_write_1h_tokens
        plain, cheap = self.price(), self.price(read=self.size)
        dear = self.price(written=self.size) if written else plain
        dearest = self.price(written=self.size, long=self.size) if long else dear
        if plain is None or cheap is None or dear is None or dearest is None or not (read or written):
            return None
        surcharge = (dear - plain) * (written - long) + (dearest - plain) * long
        return ((plain - cheap) * read - surcharge) // self.size


def tokens(row: CostRow) -> int:
    return row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens


@settings(max_examples=examples(300), deadline=None)
@given(MODELS, rows(), rows())
def test_weights_are_those_of_calls(kind: tuple[str | None, str | None], was: CostRow, now: CostRow) -> None:
    """
    The weights of token kinds are those of small calls, with a fee per request, and without a list price. Sums do
    not state which calls were large, so no average size makes the tokens another kind.
    """
    one, other = (Asked(*kind, row, is_small=True).weight(row) for row in (was, now))
    if one is None or other is None or one <= 0:
        one, other = tokens(was), tokens(now)
    expected = 7 * other // one if one > 0 else 9
    at = int(DAY.timestamp()) * NS
    prices = OldPrices(book=BOOK, before=at, now=at)
    repriced = prices.costs_at_old_prices(
        [SpentRow(Priced(*kind), was, 7)], [SpentRow(Priced(*kind), now, 9)]
    )
    assert {expected} == {*repriced.costs}


@settings(max_examples=examples(300), deadline=None)
@given(MODELS, rows())
def test_what_a_cache_saved_is_that_of_calls(kind: tuple[str | None, str | None], row: CostRow) -> None:
    """
    The amount saved by a cache is the list price of the calls without the cache minus the price with it.
    """
    assert Asked(*kind, row).saving(row) == cache_saving(*kind, row, BOOK)


def test_models_have_tiers_and_prices_of_requests() -> None:
    """The models of the test above have every kind of price, and some have no price at all."""
    at = int(DAY.timestamp()) * NS
    rates_of_kinds = [BOOK.rates_at(*kind, at) for kind in KINDS]
    assert any(len(rates) > 1 for rates in rates_of_kinds)
    assert any(rate.per_request for rates in rates_of_kinds for _, rate in rates)
    assert () == BOOK.rates_at("openai", "no-model", at)
