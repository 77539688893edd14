"""
Merging of a price list with a newer one, without I/O.

The newer list states exact names, without patterns, and today's prices, as LiteLLM's list does. The merged list keeps
everything else: the history of prices, patterns of names, and models that the newer list lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import (
    TOKEN_PRICES,
    CardPrices,
    Model,
    ModelCatalogue,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
    day_ns,
    stated_prices,
)
from gateway.intake.rate_cards.litellm import NAME as LITELLM
from gateway.intake.rate_cards.litellm import plain_decimal
from gateway.intake.rates import NO_TIME, row_in_force_or_first
from spool.processing import STANDARD
from spool.record import NS, decimal_text

NEWER: Final = "newer"  # merge rule: the newer list's prices apply from a day on
REPLACE: Final = "replace"  # merge rule: the newer list's prices apply to all days
FILL: Final = "fill"  # merge rule: the newer list fills in missing prices, as if they had always been known
KEEP: Final = "keep"
# prices that differ by less than one part in this number are equal except for rounding
_ROUNDING: Final = 1000
_NOON_NS: Final = 12 * 3600 * NS
# Modes whose lower prices apply to inputs of every size. A seller may refuse the other modes for large inputs.
_DISCOUNTED: Final = frozenset({"batch", "flex"})


class MergeDecision(NamedTuple):
    what: str
    since: str


@dataclass(frozen=True, kw_only=True)
class NewerListEntry:
    """
    A name in the newer list, with its model in that list (`newer`), and the model whose prices apply so far
    (`found`).

    If `is_own` is False, the seller does not list `found` itself, so its prices are the maker's or another
    seller's.
    """

    seller: str
    name: str
    found: Model | None
    is_own: bool
    newer: Model


Decide = Callable[[NewerListEntry], MergeDecision]


class Change(NamedTuple):
    """
    A difference between the prices in two lists. `above` is the number of input tokens above which the price
    applies.
    """

    provider: str
    model: str
    mode: str
    above: int
    unit: str
    before: Decimal | None
    after: Decimal | None


def merge_cards(card: RateCard, newer: RateCard, decide: Decide) -> RateCard:
    """
    Merge two price lists. The name and the source of `card` stay. `decide` chooses the prices of each newer
    name. Merging the same list again changes nothing.
    """
    book = PriceBook(card)
    sellers = dict(card.providers)
    for name, seller in newer.providers.items():
        own = sellers.get(name, Seller(models=()))
        sellers[name] = _merged_seller(name, own, seller, book, decide)
    return with_discounts_in_all_tiers(replace(card, providers=sellers))


def with_discounts_in_all_tiers(card: RateCard) -> RateCard:
    """
    Return the list with the prices that the source of a discounted mode (batch, flex) leaves out: a mode without
    tiers has those of the standard price, reduced as its other prices are. A batch discount of Claude models
    includes cached tokens.
    """
    return replace(
        card,
        providers={
            name: replace(
                seller, models=tuple(_model_with_discounted_tiers(model) for model in seller.models)
            )
            for name, seller in card.providers.items()
        },
    )


def _model_with_discounted_tiers(model: Model) -> Model:
    rows: list[Price] = []
    for position, row in enumerate(model.prices):
        later = (each.since_ns for each in model.prices[position + 1 :] if each.mode == row.mode)
        standards = _standard_rows_between(model, row.since_ns, next(later, NO_TIME))
        if row.mode not in _DISCOUNTED or row.input is None or not standards:
            rows.append(row)
            continue
        discounted = _with_discounted_cache(model, row, standards[-1])
        if row.tiers or not any(standard.tiers for standard in standards):
            rows.append(discounted)
            continue
        for standard in standards:
            tiers = tuple(_discounted_tier(discounted, standard, tier) for tier in standard.tiers)
            rows.append(replace(discounted, since=max(row.since, standard.since), tiers=tiers))
    return replace(model, prices=tuple(rows))


def _standard_rows_between(model: Model, start_ns: int, end_ns: int) -> list[Price]:
    """Return the standard rows in force between two times (ns), without rows that apply only at some hours."""
    standards = [row for row in model.prices if row.mode == STANDARD and row.hours is None]
    ends = [*(row.since_ns for row in standards[1:]), NO_TIME]
    return [
        row
        for row, end in zip(standards, ends, strict=False)
        if row.input and end > start_ns and row.since_ns < end_ns
    ]


def _with_discounted_cache(model: Model, row: Price, standard: Price) -> Price:
    if row.mode != "batch" or "claude" not in model.id:
        return row
    repeated = {
        name: price
        for name in ("cache_read", "cache_write", "cache_write_1h")
        if (price := getattr(row, name)) is not None and price == getattr(standard, name)
    }
    reduced = {name: _reduced(price, row.input, standard.input) for name, price in repeated.items()}
    return replace(row, **reduced)


def _discounted_tier(row: Price, standard: Price, tier: Tier) -> Tier:
    amounts = {
        name: _reduced(getattr(tier, name), getattr(row, name), getattr(standard, name))
        for name in TOKEN_PRICES
        if getattr(row, name) is not None
    }
    meters = {
        name: _reduced(price, row.meters.get(name), standard.meters.get(name))
        for name, price in tier.meters.items()
    }
    return Tier(above=tier.above, meters=meters, **amounts)


def _reduced(amount: Decimal | None, of_mode: Decimal | None, of_standard: Decimal | None) -> Decimal | None:
    """Return an amount in the proportion of a mode's price to the standard price. It stays without them."""
    if amount is None or of_mode is None or not of_standard:
        return amount
    return plain_decimal(amount * of_mode / of_standard)


@dataclass(frozen=True, kw_only=True)
class _NewPrices:
    """
    A name of a model that the newer list states, with the rows of its new prices, or None if its prices stay.
    With `is_newer`, existing prices change. Otherwise prices are only added.
    """

    name: str
    rows: tuple[Price, ...] | None
    is_newer: bool
    regional: dict[str, Decimal]


def _merged_seller(
    seller: str, listed_seller: Seller, newer_seller: Seller, price_book: PriceBook, decide: Decide
) -> Seller:
    positions = {id(model): position for position, model in enumerate(listed_seller.models)}
    of_models: dict[int, list[_NewPrices]] = defaultdict(list)
    own = ModelCatalogue(listed_seller.models)
    added: list[Model] = []
    for model in newer_seller.models:
        # the price book finds no model that has only a price of output, but its seller lists it
        found = price_book.find_listed_model(seller, model.id) or own.find_model(model.id)
        is_own = id(found) in positions
        decision = decide(
            NewerListEntry(seller=seller, name=model.id, found=found, is_own=is_own, newer=model)
        )
        rows = _merged_rows(found, model, decision)
        if rows is None and not listed_seller.models and found is not None:
            # a seller that now has its own list no longer gets the prices of other sellers
            rows = found.prices
        if is_own:
            is_newer = rows is not None and decision.what == NEWER
            of_models[positions[id(found)]].append(
                _NewPrices(name=model.id, rows=rows, is_newer=is_newer, regional=model.regional)
            )
        elif rows is not None:
            apart = model.apart if found is None else found.apart
            added.append(replace(model, prices=rows, apart=apart))
    models: list[Model] = []
    for position, model in enumerate(listed_seller.models):
        models += _split_model_by_newer_prices(model, of_models.get(position, ()))
    return replace(listed_seller, models=(*models, *added))


def _split_model_by_newer_prices(model: Model, newer_prices: Sequence[_NewPrices]) -> Iterator[Model]:
    """
    Yield a price list's model with the prices of its own name in the newer list. Before it, yield a model for
    each name with other prices. Names that the newer list lacks keep the old prices.
    """
    patterns = replace(model.match, equals=())
    # if the patterns do not match the model's own name, they stand for other models, which had the same price
    # until now
    is_one = not patterns.has_patterns or patterns.matches(model.id)
    own = next(
        (each for each in newer_prices if each.name == model.id and (is_one or not each.is_newer)), None
    )
    prices = model.prices if own is None or own.rows is None else own.rows
    for each in newer_prices:
        rows = model.prices if each.rows is None else each.rows
        if rows != prices:
            clause = ModelNameCondition(equals=(each.name,))
            regional = each.regional or model.regional
            yield replace(model, id=each.name, match=clause, prices=rows, regional=regional)
    if own is not None and own.is_newer:
        rest = tuple(name for name in model.match.equals if name not in {each.name for each in newer_prices})
        if rest:
            yield replace(model, id=rest[0], match=ModelNameCondition(equals=rest))
    yield replace(model, prices=prices, regional=(own.regional if own else {}) or model.regional)


def _merged_rows(
    listed_model: Model | None, newer: Model, decision: MergeDecision
) -> tuple[Price, ...] | None:
    what, since = decision
    if what == KEEP:
        return None
    if listed_model is None or what == REPLACE:
        return newer.prices
    rows = list(listed_model.prices)
    time = day_ns(since) + _NOON_NS
    standard = row_in_force_or_first(listed_model, time, STANDARD) or Price()
    for row in newer.prices:
        before = row_in_force_or_first(listed_model, time, row.mode)
        if before is None:
            rows += _rows_of_new_mode(listed_model, standard, row)
            continue
        if what == FILL:
            after = _price_with_gaps_filled(before, row)
        else:
            after = _overlay_price(before, _drop_repeated_prices(row, newer.prices[0]))
        if replace(after, since="") == replace(before, since="", hours=None):
            continue
        if what == FILL or before.since == since:
            rows[rows.index(before)] = after
        else:
            rows.insert(_index_for_new_price_row(rows, row.mode, time), replace(after, since=since))
    return None if tuple(rows) == listed_model.prices else tuple(rows)


def _rows_of_new_mode(listed_model: Model, standard: Price, row: Price) -> Iterator[Price]:
    """
    Yield the rows of a mode (service tier) that is new in the list. They apply only while today's standard
    price applies, because the mode's price at other times is unknown.
    """
    rows = [each for each in listed_model.prices if each.mode == STANDARD]
    is_first = not rows or rows[0] is standard
    yield replace(_overlay_price(standard, row), since="" if is_first else standard.since)
    later = {each.since for each in rows if each.since > standard.since}
    yield from (Price(mode=row.mode, since=day) for day in sorted(later))


def _index_for_new_price_row(rows: Sequence[Price], mode: str, time: int) -> int:
    later = (place for place, row in enumerate(rows) if row.mode == mode and row.since_ns > time)
    return next(later, len(rows))


def has_hourly_prices(model: Model) -> bool:
    """
    Return whether a model's prices depend on the hour. A list without hours then has only one of these
    prices.
    """
    standard = [row for row in model.prices if row.mode == STANDARD]
    return bool(standard) and standard[-1].hours is not None


def _overlay_price(before: Price, row: Price) -> Price:
    amounts = _combine_amounts(before, row, _newer_price_unless_within_rounding)
    if row.tiers:
        tiers = tuple(_tier_with_newer_prices(before, tier) for tier in row.tiers)
    else:
        is_same = row.mode == before.mode and (row.input, row.output) == (before.input, before.output)
        tiers = before.tiers if is_same else ()
    return Price(mode=row.mode, since=before.since, tiers=tiers, **amounts)


def _tier_with_newer_prices(earlier_price: Price, newer_tier: Tier) -> Tier:
    same = next((each for each in earlier_price.tiers if _tier_size(each) == _tier_size(newer_tier)), None)
    amounts = _combine_amounts(same or earlier_price, newer_tier, _newer_price_unless_within_rounding)
    return Tier(above=(same or newer_tier).above, **amounts)


def _tier_size(tier: Tier) -> int:
    """Return the number of input tokens above which a tier applies. Some lists write 199,999 for 200,000."""
    return tier.above + 1 if tier.above % 1000 == 999 else tier.above


def _drop_repeated_prices(row: Price, standard: Price) -> Price:
    tiers = tuple(
        Tier(above=tier.above, **_amount_fields(_prices_that_differ(tier, row))) for tier in row.tiers
    )
    own = row if row.mode == STANDARD else _prices_that_differ(row, standard)
    return replace(row, tiers=tiers, **_amount_fields(own))


def _prices_that_differ(card_prices: CardPrices, repeated: CardPrices) -> CardPrices:
    kept = {
        name: None if name not in _COMPARED and price == getattr(repeated, name) else price
        for name in TOKEN_PRICES
        for price in (getattr(card_prices, name),)
    }
    meters = {name: price for name, price in card_prices.meters.items() if price != repeated.meters.get(name)}
    return CardPrices(**kept, meters=meters)


def _amount_fields(card_prices: CardPrices) -> dict[str, Any]:
    return {**{name: getattr(card_prices, name) for name in TOKEN_PRICES}, "meters": card_prices.meters}


def _price_with_gaps_filled(known_price: Price, filler_price: Price) -> Price:
    sizes = {tier.above: tier for tier in filler_price.tiers}
    tiers = tuple(
        Tier(above=tier.above, **_combine_amounts(sizes[tier.above], tier, _overriding_or_base_price))
        if tier.above in sizes
        else tier
        for tier in known_price.tiers
    )
    if (
        filler_price.mode != STANDARD
        and not tiers
        and (filler_price.input, filler_price.output) == (known_price.input, known_price.output)
    ):
        tiers = filler_price.tiers
    return replace(
        known_price, tiers=tiers, **_combine_amounts(filler_price, known_price, _overriding_or_base_price)
    )


def _combine_amounts(
    base_prices: CardPrices,
    overriding_prices: CardPrices,
    choose_price: Callable[[Decimal | None, Decimal | None], Decimal | None],
) -> dict[str, Any]:
    amounts = {
        name: choose_price(getattr(base_prices, name), getattr(overriding_prices, name))
        for name in TOKEN_PRICES
    }
    meters = {**base_prices.meters, **overriding_prices.meters}
    return {
        **amounts,
        "meters": {
            name: choose_price(base_prices.meters.get(name), overriding_prices.meters.get(name))
            for name in meters
        },
    }


def _overriding_or_base_price(base_price: Decimal | None, overriding_price: Decimal | None) -> Decimal | None:
    return base_price if overriding_price is None else overriding_price


def _newer_price_unless_within_rounding(
    price_so_far: Decimal | None, newer_price: Decimal | None
) -> Decimal | None:
    """
    Return the newer price (`newer_price`), or the price so far (`price_so_far`) if the newer one is unknown
    or equal after rounding.
    """
    if newer_price is None or (
        price_so_far is not None and abs(newer_price - price_so_far) * _ROUNDING <= price_so_far
    ):
        return price_so_far
    return newer_price


def price_changes(before: RateCard, after: RateCard, *, time: int) -> list[Change]:
    """Return all differences between the prices of two lists at a time (ns)."""
    old, new = PriceBook(before), PriceBook(after)
    changes: list[Change] = []
    for seller in sorted({*before.providers, *after.providers}):
        models = [*_seller_models(before, seller), *_seller_models(after, seller)]
        for name in dict.fromkeys(model.id for model in models):
            prices = [dict(_prices_by_key(book.find_listed_model(seller, name), time)) for book in (old, new)]
            for key in sorted({*prices[0], *prices[1]}):
                pair = prices[0].get(key), prices[1].get(key)
                if pair[0] != pair[1]:
                    changes.append(Change(seller, name, *key, *pair))
    return changes


def _seller_models(card: RateCard, seller: str) -> Sequence[Model]:
    return card.providers[seller].models if seller in card.providers else ()


def _prices_by_key(model: Model | None, time: int) -> Iterator[tuple[tuple[str, int, str], Decimal]]:
    for mode in sorted({row.mode for row in model.prices} if model else ()):
        row = row_in_force_or_first(model, time, mode)
        for above, amounts in () if row is None else ((0, row), *((tier.above, tier) for tier in row.tiers)):
            for unit, price in stated_prices(amounts):
                yield (mode, above, unit), price


def update_card(card: RateCard, newer: RateCard, *, since: str) -> RateCard:
    """
    Return a price list with the prices of a newer list, which apply from the day `since` on.

    Prices that depend on the hour stay, because the newer list has only one of them.
    """

    def decide_price_merge(listed: NewerListEntry) -> MergeDecision:
        is_kept = listed.is_own and listed.found is not None and has_hourly_prices(listed.found)
        return MergeDecision(KEEP if is_kept else NEWER, since)

    # A model may get its price from another seller, whose price changes in this merge as well. So merge the result
    # again.
    return merge_cards(merge_cards(card, newer, decide_price_merge), newer, decide_price_merge)


# Limits beyond which a list is refused. A source that changes so much has another unit, another currency or a fault.
LEAST_SHARE: Final = Decimal("0.8")  # minimum share of the previous list's models that a new list must have
LEAST_MODELS: Final = 1000  # minimum models of a LiteLLM list if no such list is in use yet
LARGEST_JUMP: Final = 100  # maximum factor between the old and the new price of a unit
WIDE_JUMP: Final = 2  # a price change by this factor may apply only to a share of the models
WIDE_SHARE: Final = Decimal("0.2")
_COMPARED: Final = ("input", "output")


def refusal_reasons(
    before: RateCard, newer: RateCard, after: RateCard, changes: Sequence[Change], *, today: str
) -> Iterator[str]:
    """
    Yield reasons to refuse the list `newer`. `after` is the list that would be in use, and `changes` are its
    differences from `before`.
    """
    yield from _model_count_refusals(before, newer)
    if newer.source["date"] > today:
        yield f"the list is dated {newer.source['date']}, which is in the future"
    elif newer.source["date"] < before.source["date"]:
        yield f"the list is dated {newer.source['date']}, but the list in use is of {before.source['date']}"
    jumps = _largest_change_and_factor_by_model(before, changes)
    far = [
        f"{change.model} of {change.provider} from {decimal_text(change.before)} to {decimal_text(change.after)}"
        for change, factor in jumps.values()
        if factor >= LARGEST_JUMP and change.before is not None and change.after is not None
    ]
    if far:
        yield f"impossible jumps of {len(far)} prices: {', '.join(far[:3])}"
    wide = sum(factor >= WIDE_JUMP for _, factor in jumps.values())
    if wide > WIDE_SHARE * min(count_priced_models(newer), count_priced_models(before)):
        yield (
            f"the prices of {wide} models change by a factor of {WIDE_JUMP} or more; the list may have another "
            "currency or another unit"
        )


def _largest_change_and_factor_by_model(
    before: RateCard, changes: Sequence[Change]
) -> dict[tuple[str, str], tuple[Change, Decimal]]:
    jumps: dict[tuple[str, str], tuple[Change, Decimal]] = {}
    book = PriceBook(before)
    for change in changes:
        place = change.provider, change.model
        factor = _change_factor(change)
        is_compared = change.mode == STANDARD and change.above == 0 and change.unit in _COMPARED
        if is_compared and factor is not None and book.find_seller_and_model(*place)[0] == change.provider:
            jumps[place] = max((change, factor), jumps.get(place, (change, factor)), key=lambda jump: jump[1])
    return jumps


def _model_count_refusals(before: RateCard, newer: RateCard) -> Iterator[str]:
    count, least = count_priced_models(newer), LEAST_SHARE * count_priced_models(before)
    if newer.source.get("name") == LITELLM:
        earlier = before.source.get("name") == LITELLM and before.source.get("models", "")
        least = LEAST_SHARE * int(earlier) if earlier else Decimal(LEAST_MODELS)
    if count < least:
        yield f"the list has prices of {count} models, but at least {int(least)} are expected; it may be incomplete"


def _change_factor(change: Change) -> Decimal | None:
    before, after = change.before, change.after
    if not before or after is None:
        return None
    return Decimal("Infinity") if not after else max(before / after, after / before)


def count_priced_models(card: RateCard) -> int:
    return sum(
        any(row.has_prices for row in model.prices)
        for seller in card.providers.values()
        for model in seller.models
    )
