"""
What a call should cost: the estimate beside the cost that its source reports.

Exact integers throughout, nothing is rounded. A price that is not known gives None, never "0":

- the response model counts when it is priced, else the request model; the price is that of the provider who
  served the call, else (an unknown provider, or one that resells closed models) that of the model's maker;
- prices are those of the day (and hour) of the call, without a time the newest; a tier takes the whole
  request;
- reasoning is part of the output and costs the same, unless the card says otherwise;
- cache writes cost what the card says for the shortest-lived kind, but for those that the record tells to be
  kept for an hour: these have a price of their own at a Claude model, and cost what other writes do
  elsewhere;
- cached tokens without a price of their own cost what other input costs, which is the rule of every
  provider but Anthropic: a Claude model without such a price has no estimate;
- a batch or another way of processing that the card has no price for is not priced, nor is a call of a model
  of sound or pictures that does not tell how many of its tokens are which;
- tokens of capacity that is paid apart cost nothing, what is charged beside them does;
- what is not text, and what stands beside the tokens, is charged by `gateway.intake.leaves`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from decimal import Decimal
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway.configuration.sections import PriceOverride, PriceSettings
from gateway.intake import leaves
from gateway.intake.leaves import AMOUNTS, PartRate, Unpriced, rate_of
from gateway.rate_cards import card as cards
from gateway.rate_cards import lines, names
from gateway.rate_cards.card import DAY_NS, Amounts, Card, Catalogue, Model, Price
from spool import providers
from spool.ledger.repricing import TokenSum
from spool.ledger.sums import SIZES
from spool.meters import FEES
from spool.processing import MARKS, PROVISIONED, STANDARD, mode_of
from spool.record import Inference, decimal_text

NO_TIME = 2**62  # later than any record: a call without a time gets the newest price
_MEMO = 10_000  # names are the senders' to choose: the memo is bounded

_Names = tuple[str | None, str | None, str | None, str]  # provider, response model, request model, mode


class Rate(NamedTuple):
    """Prices of one token each, in units of 10 ** -digits dollars."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    cache_write_1h: int | None
    reasoning: int | None
    per_request: int
    digits: int


class Quote(NamedTuple):
    """
    The rate from `low` until `high` (ns), and those of larger inputs, the largest first; None is unknown.
    """

    low: int
    high: int
    rate: Rate | None  # of calls that tell nothing but text
    tiers: tuple[tuple[int, Rate], ...] = ()
    parts: tuple[tuple[int, PartRate], ...] = ()  # of all calls, beyond which inputs, the largest first


class PriceLine(NamedTuple):
    """
    One unit of a call, or the call itself: how many, the price of so many (`per`) of them, dollars.
    """

    of: str
    quantity: int | str
    price: str
    amount: str
    per: str = "million"


_NEVER = Quote(1, 0, None)
_PACKAGED = PriceSettings()


class PriceBook:
    """One rate card and the operator's own prices over it."""

    def __init__(self, card: Card, overrides: Sequence[PriceOverride] = ()) -> None:
        self.version = card.version
        if overrides:
            written = repr([_written(override) for override in overrides]).encode()
            self.version += f"+overrides-{blake2b(written, digest_size=4).hexdigest()}"
        self._overrides = overrides
        self._providers = card.providers
        self._catalogues = {name: Catalogue(provider.models) for name, provider in card.providers.items()}
        self._memo: dict[_Names, Quote] = {}

    @classmethod
    def load(cls, section: PriceSettings = _PACKAGED) -> PriceBook:
        """The card that [prices] names, else the packaged one. Raises CardUnreadable with what is wrong."""
        return cls(cards.read(section.file) if section.file else cards.packaged(), section.override)

    def price(self, record: Inference) -> None:
        """Fill in estimated_cost, price_book and cost_source; a reported cost never changes."""
        estimate = self.estimate(record)
        record.estimated_cost = estimate
        record.price_book = None if estimate is None else self.version
        if record.cost is not None or record.charges:
            record.cost_source = "reported"
        else:
            record.cost_source = "none" if estimate is None else "estimated"

    def estimate(self, record: Inference) -> str | None:
        """The cost of a call as plain decimal text, None where any part of it is unknown."""
        tags = record.tags
        mode = STANDARD if not tags or MARKS.isdisjoint(tags) else mode_of(tags)
        key = (record.provider, record.response_model, record.request_model, mode)
        time = record.start_time
        if time is None:
            time = NO_TIME
        low, high, rate, tiers, parts = self._memo.get(key, _NEVER)
        if not low <= time < high:
            low, high, rate, tiers, parts = self._remember(key, time)
        if record.meters:
            return _sum_of_parts(parts, record)
        input_tokens = record.input_tokens
        if rate is None or input_tokens is None:
            return None
        for above, dearer in tiers:
            if input_tokens > above:
                rate = dearer
                break
        return _cost(
            rate,
            input_tokens,
            record.output_tokens,
            record.cache_read_tokens or 0,
            record.cache_write_tokens or 0,
            record.reasoning_tokens or 0,
            record.cache_write_1h_tokens or 0,
        )

    def itemise(self, record: Inference) -> list[PriceLine] | None:
        """List the lines that `estimate` adds up; None if it knows no cost."""
        if self.estimate(record) is None:
            return None
        mode = mode_of(record.tags)
        time = NO_TIME if record.start_time is None else record.start_time
        quote = self._remember((record.provider, record.response_model, record.request_model, mode), time)
        given = record.input_tokens or 0
        if record.meters:
            return _part_lines(_fitting_rate(quote.parts, given), record)
        rate = next((dearer for above, dearer in quote.tiers if given > above), quote.rate)
        return [] if rate is None else list(_lines(rate, record))

    def problem(self, record: Inference) -> str | None:
        """Why there is no estimate, in words; None where that is all that is known."""
        time = NO_TIME if record.start_time is None else record.start_time
        key = (record.provider, record.response_model, record.request_model, mode_of(record.tags))
        rate = _fitting_rate(self._remember(key, time).parts, record.input_tokens or 0)
        if rate is None or (not record.meters and not rate.apart):
            return None
        found = leaves.leaves(rate, leaves.quantities_of(record))
        return leaves.words_of(found) if isinstance(found, Unpriced) else None

    def estimate_sum(self, total: TokenSum) -> str | None:
        """The cost of calls that the ledger has summed, as if each had been priced alone (a `Pricer`)."""
        key = (total.provider, total.response_model, total.request_model, total.mode)
        quote = self._memo.get(key, _NEVER)
        if not quote.low <= total.time < quote.high:
            quote = self._remember(key, total.time)
        if total.meters:
            return _sum_of_sums(quote.parts, total)
        if quote.rate is None or not all(_is_size(above) for above, _ in quote.tiers):
            return None
        rate = next((dearer for above, dearer in quote.tiers if total.beyond >= above), quote.rate)
        return _cost(
            rate,
            total.input_tokens,
            total.output_tokens,
            total.cache_read_tokens,
            total.cache_write_tokens,
            total.reasoning_tokens,
            total.cache_write_1h_tokens,
            total.calls,
        )

    def rates(self, provider: str | None, model: str | None, time: int) -> Sequence[tuple[int, Rate]]:
        """
        Return the rates of a model's calls of text at a time (ns), each with the input tokens beyond which it
        holds: the largest first, -1 last. Empty if they are unknown.
        """
        key = (provider, model, None, STANDARD)
        quote = self._memo.get(key, _NEVER)
        if not quote.low <= time < quote.high:
            quote = self._remember(key, time)
        return () if quote.rate is None else (*quote.tiers, (-1, quote.rate))

    def followers(self, model: str) -> list[str]:
        """The models of the same maker, family and rank that came out after one, the newest first."""
        for spelling in names.spellings(model):
            place = lines.place_of(spelling)
            maker = self._providers.get(names.maker(spelling) or "")
            if place is not None and maker is not None:
                others = [
                    (other, each.id)
                    for each in maker.models
                    if (other := lines.place_of(each.id)) is not None
                ]
                later = [(other, id) for other, id in others if other.line == place.line and other > place]
                return [id for _, id in sorted(later, reverse=True)]
        return []

    def changes(
        self, provider: str | None, model: str, since: int, until: int
    ) -> Iterator[tuple[int, Quote, Quote]]:
        """
        Yield each day (ns) from `since` until before `until` from which on other prices of a model are stated, with
        those of noon before and on that day: what it costs by night is no change.
        """
        key, found = (provider, model, None, STANDARD), self._find(provider, model)
        days = {_since(row) for row in self._overriding(provider, model)}
        days.update(row.since_ns for row in (found.prices if found else ()))
        for day in sorted(day for day in days if since <= day < until):
            yield day, self._quote(key, day - DAY_NS // 2), self._quote(key, day + DAY_NS // 2)

    def _remember(self, key: _Names, time: int) -> Quote:
        if len(self._memo) >= _MEMO:
            self._memo.clear()
        quote = self._memo[key] = self._quote(key, time)
        return quote

    def _quote(self, key: _Names, time: int) -> Quote:
        """An override if one fits, else the card; for each the response model before the requested one."""
        provider, response, request, mode = key
        models = [model for model in dict.fromkeys((response, request)) if model]
        overriding = next((rows for model in models if (rows := self._overriding(provider, model))), [])
        found = next((model for name in models if (model := self._find(provider, name))), None)
        low, high = _validity(found, overriding, time)
        if overriding and mode == STANDARD:
            in_force = [row for row in overriding if _since(row) <= time]
            own = max(in_force, key=lambda row: (_since(row), row[0]), default=None)
            if own is not None:
                return Quote(low, high, *_overridden(own[1], _row(found, time, mode)))
        row = _row(found, time, STANDARD if mode == PROVISIONED else mode)
        if found is None or row is None or found.media:
            return Quote(low, high, None)
        if mode == PROVISIONED:
            fees = _fees_of(row)
            return Quote(low, high, _rate(fees, found.id), (), _parts(fees, found.id, ()))
        parts = _parts(row, found.id, found.apart)
        if found.apart:  # of its tokens, those of a call that tells no parts may be anything
            return Quote(low, high, None, (), parts)
        return Quote(low, high, _rate(row, found.id), _tiers(row, found.id), parts)

    def _overriding(self, provider: str | None, model: str) -> list[tuple[int, PriceOverride]]:
        """The operator's prices for this model, each with its place in the configuration."""
        seller = providers.card_name(provider) if provider else None
        found = []
        for place, override in enumerate(self._overrides):
            is_of_seller = not override.provider or providers.card_name(override.provider) == seller
            if is_of_seller and _fits(override.model.lower(), model.lower()):
                found.append((place, override))
        return found

    def _find(self, provider: str | None, name: str) -> Model | None:
        """The model in the card of its first seller that has it; None also if the card has no price of it."""
        spellings = list(dict.fromkeys(names.spellings(name)))
        for seller in self._sellers(provider, spellings):
            catalogue = self._catalogues[seller]
            for spelling in spellings:
                model = catalogue.find(spelling)
                if model is not None:
                    priced = (row.input is not None or row.meters for row in model.prices)
                    return model if any(priced) else None
        return None

    def _sellers(self, provider: str | None, spellings: Iterable[str]) -> Iterator[str]:
        """The sellers to ask in order: the record's provider, those whose prices it takes over, the maker."""
        if provider and providers.is_self_hosted(provider):
            return
        own = providers.card_name(provider) if provider else None
        known = own in self._providers
        if own is not None and known:
            yield own
            yield from (seller for seller in self._providers[own].resells if seller in self._providers)
        for spelling in spellings:
            for seller in (names.named_in(spelling), names.maker(spelling)):
                if seller in self._providers and (not known or seller in names.CLOSED or seller == "aws"):
                    yield seller


def _fitting_rate(parts: tuple[tuple[int, PartRate], ...], input_tokens: int) -> PartRate | None:
    return next((rate for above, rate in parts if input_tokens > above), None)


def _sum_of_parts(parts: tuple[tuple[int, PartRate], ...], record: Inference) -> str | None:
    rate = _fitting_rate(parts, record.input_tokens or 0)
    if rate is None:
        return None
    charged = leaves.leaves(rate, leaves.quantities_of(record))
    return None if isinstance(charged, Unpriced) else leaves.amount_of(rate, charged)


def _sum_of_sums(parts: tuple[tuple[int, PartRate], ...], total: TokenSum) -> str | None:
    """Price calls of one price tier together; None if the ledger does not keep the tiers apart."""
    if not all(_is_size(above) for above, _ in parts if above >= 0):
        return None
    rate = next((rate for above, rate in parts if total.beyond >= above), None)
    if rate is None:
        return None
    charged = leaves.leaves(rate, leaves.quantities_of_sum(total))
    return None if isinstance(charged, Unpriced) else leaves.amount_of(rate, charged, calls=total.calls)


def _part_lines(rate: PartRate | None, record: Inference) -> list[PriceLine]:
    charged = None if rate is None else leaves.leaves(rate, leaves.quantities_of(record))
    if rate is None or charged is None or isinstance(charged, Unpriced):
        return []
    lines = [
        PriceLine(
            leaves.UNITS[leaf.unit].words,
            leaves.shown_quantity(leaf),
            rate.shown[leaf.unit],
            leaves.shown_amount(rate, leaf),
            leaves.UNITS[leaf.unit].per_words,
        )
        for leaf in charged
    ]
    return [*lines, *_request_line(rate.per_request, rate.digits)]


def _request_line(per_request: int, digits: int) -> Iterator[PriceLine]:
    if per_request:
        each = decimal_text(Decimal(per_request).scaleb(-digits))
        yield PriceLine("request", 1, each, each, "one")


def _cost(
    rate: Rate,
    input_tokens: int,
    output_tokens: int | None,
    cache_read_tokens: int,
    cache_write_tokens: int,
    reasoning_tokens: int,
    cache_write_1h_tokens: int,
    calls: int = 1,
) -> str | None:
    """
    Decimal text; None if a price or count that it needs is unknown, or the counts contradict each other.
    """
    (
        input_price,
        output_price,
        read_price,
        write_price,
        write_1h_price,
        reasoning_price,
        per_request,
        digits,
    ) = rate
    if input_price is None:
        return None
    total = per_request * calls
    if cache_read_tokens or cache_write_tokens:
        if (cache_read_tokens and read_price is None) or (cache_write_tokens and write_price is None):
            return None
        total += cache_read_tokens * (read_price or 0) + cache_write_tokens * (write_price or 0)
        if cache_write_1h_tokens:
            if write_1h_price is None or cache_write_1h_tokens > cache_write_tokens:
                return None
            total += cache_write_1h_tokens * (write_1h_price - (write_price or 0))
        input_tokens -= cache_read_tokens + cache_write_tokens
    if input_tokens < 0:
        return None
    total += input_tokens * input_price
    if output_price is not None:
        if output_tokens is None or output_tokens < 0:
            return None
        if reasoning_price is not None and reasoning_tokens:
            if reasoning_tokens > output_tokens:
                return None
            total += reasoning_tokens * (reasoning_price - output_price)
        total += output_tokens * output_price
    elif output_tokens:
        return None
    if not total:
        return "0"
    text = str(total)
    if len(text) <= digits:
        return "0." + text.zfill(digits).rstrip("0")
    return f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")


def _lines(rate: Rate, record: Inference) -> Iterator[PriceLine]:
    """The parts of `_cost`: no token is in two of them."""
    read, written = record.cache_read_tokens or 0, record.cache_write_tokens or 0
    written_1h, thought = record.cache_write_1h_tokens or 0, record.reasoning_tokens or 0
    thought = 0 if rate.reasoning is None else thought
    counts = (
        ("input", (record.input_tokens or 0) - read - written, rate.input),
        ("cache read", read, rate.cache_read),
        ("cache write", written - written_1h, rate.cache_write),
        ("cache write for an hour", written_1h, rate.cache_write_1h),
        ("output", (record.output_tokens or 0) - thought, rate.output),
        ("reasoning", thought, rate.reasoning),
    )
    for of, quantity, price in counts:
        if quantity and price is not None:
            amount = Decimal(quantity * price).scaleb(-rate.digits)
            yield PriceLine(
                of, quantity, decimal_text(Decimal(price).scaleb(6 - rate.digits)), decimal_text(amount)
            )
    yield from _request_line(rate.per_request, rate.digits)


def _rate(amounts: Amounts, model: str) -> Rate:
    charged_writes = "claude" in model
    instead = None if charged_writes else amounts.input
    read = amounts.cache_read if amounts.cache_read is not None else instead
    written = amounts.cache_write if amounts.cache_write is not None else instead
    written_1h = amounts.cache_write_1h
    if written_1h is None and not charged_writes:
        written_1h = written
    per_million = (amounts.input, amounts.output, read, written, written_1h, amounts.reasoning)
    per_request = amounts.per_request or Decimal(0)
    digits = max(6 + max(_decimals(amount) for amount in per_million), _decimals(per_request))

    def units(amount: Decimal | None) -> int | None:
        return None if amount is None else int(amount.scaleb(digits - 6))

    return Rate(
        input=units(amounts.input),
        output=units(amounts.output),
        cache_read=units(read),
        cache_write=units(written),
        cache_write_1h=units(written_1h),
        reasoning=units(amounts.reasoning),
        per_request=int(per_request.scaleb(digits)),
        digits=digits,
    )


def _decimals(amount: Decimal | None) -> int:
    exponent = 0 if amount is None else amount.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _written(override: PriceOverride) -> tuple[Any, ...]:
    """
    Return the fields that name a book; without prices of meters it has the name that it had before there were
    any.
    """
    *fields, meters = astuple(override)
    return (*fields, meters) if meters else tuple(fields)


def _tiers(row: Price, model: str) -> tuple[tuple[int, Rate], ...]:
    return tuple((tier.above, _rate(tier, model)) for tier in reversed(row.tiers))


def _parts(row: Price, model: str, apart: tuple[str, ...]) -> tuple[tuple[int, PartRate], ...]:
    """The largest input first; the row itself is last."""

    def made(amounts: Amounts) -> PartRate:
        return rate_of(amounts, apart=apart, charges_writes="claude" in model)

    return (*((tier.above, made(tier)) for tier in reversed(row.tiers)), (-1, made(row)))


def _overridden(
    own: PriceOverride, row: Price | None
) -> tuple[Rate, tuple[tuple[int, Rate], ...], tuple[tuple[int, PartRate], ...]]:
    """The operator's prices, flat whatever the size; what they leave open is taken from the card."""
    base = row or Price()
    amounts = Amounts(
        input=base.input if own.input is None else own.input,
        output=base.output if own.output is None else own.output,
        cache_read=base.cache_read if own.cache_read is None else own.cache_read,
        cache_write=base.cache_write if own.cache_write is None else own.cache_write,
        cache_write_1h=base.cache_write_1h if own.cache_write_1h is None else own.cache_write_1h,
        reasoning=base.reasoning if own.output is None else None,
        per_request=base.per_request,
        meters={**base.meters, **own.meters},
    )
    parts = rate_of(amounts, apart=(), charges_writes="claude" in own.model)
    return _rate(amounts, own.model), (), ((-1, parts),)


def _row(model: Model | None, time: int, mode: str) -> Price | None:
    """The last row in force, as the card's order says."""
    if model is None:
        return None
    rows = [row for row in model.prices if row.mode == mode]
    for row in reversed(rows):
        if row.since_ns <= time and _open_at(row, time):
            return row
    return rows[0] if rows and mode == STANDARD else None


def _fees_of(row: Price) -> Price:
    """A row whose tokens are paid apart: what is charged beside them stays."""
    nothing = dict.fromkeys(AMOUNTS.values(), Decimal(0))
    fees = {name: amount for name, amount in row.meters.items() if name in FEES}
    return replace(row, **nothing, tiers=(), meters=fees)


def _open_at(row: Price, time: int) -> bool:
    window = row.window()
    if window is None:
        return True
    if time >= NO_TIME:
        return False
    start, end = window
    of_day = time % DAY_NS
    return start <= of_day < end if start <= end else of_day >= start or of_day < end


def _validity(model: Model | None, overriding: list[tuple[int, PriceOverride]], time: int) -> tuple[int, int]:
    """The stretch around `time` in which no price changes."""
    edges = {-NO_TIME, 2 * NO_TIME, *(_since(row) for row in overriding)}
    midnight = time - time % DAY_NS
    for row in model.prices if model else ():
        edges.add(row.since_ns)
        if window := row.window():
            edges.update((midnight, midnight + window[0], midnight + window[1], midnight + DAY_NS))
    ordered = sorted(edges)
    return next((low, high) for low, high in pairwise(ordered) if low <= time < high)


def _since(overriding: tuple[int, PriceOverride]) -> int:
    return cards.day_ns(overriding[1].since) if overriding[1].since else 0


def _is_size(above: int) -> bool:
    """True if the ledger keeps calls beyond this number apart; 199,999 stands for 200,000 in some tables."""
    return above in SIZES or above + 1 in SIZES


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
