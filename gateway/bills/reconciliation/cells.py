"""
The exact parts of a difference: billed = counted + volume + rate + other + own, without any remainder. Pure.

Say the ledger counted L tokens at prices p, and the bill states P tokens and an amount S. Then volume is (P -
L) * p, rate is S - P * p, and own is L * p - M, where M is the ledger's cost.

The prices of a cell are the average prices of its own counted tokens, so they reflect large inputs and times
of day. Tokens that only the bill has are valued at list prices. Tokens are compared in fine cells. Money is
compared in coarser cells if the bill's amounts state fewer dimensions.

A move is a number of tokens that the ledger has under one tier or kind, and the bill under another. At the
target, moved tokens get the ledger's average price, scaled by the ratio of the two list prices. So large
inputs stay large inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter

from gateway.bills.reconciliation.counting import non_token_meter_of_line_kind
from gateway.bills.reconciliation.limits import SAME
from gateway.bills.reconciliation.repeats import RepeatedTokens, find_repeated_tokens
from gateway.bills.reconciliation.sides import (
    ANYWHERE,
    INPUT_METERS,
    METERS,
    OTHER,
    OWN,
    POOLED,
    RATE,
    STANDARD,
    VOLUME,
    WHOLE,
    BilledMoney,
    BilledSums,
    BilledTokens,
    ComparisonCell,
    CountedSums,
    CountedUse,
    MeterPlace,
    Prices,
    divide_among_meters,
    new_counts,
)

CHEAPER = frozenset({"batch", "flex"})  # tiers that are cheaper than the standard tier
# one amount of the comparison: part of the difference, cell, and meter ("" for OWN, which has no meter)
DifferenceEntry = tuple[str, ComparisonCell, str]
Regional = dict[MeterPlace, dict[str, int]]  # value at our prices, by region


@dataclass(slots=True)
class _TokenValues:
    """
    Values of billed tokens: at our prices (`worth`), at list prices (`listed`), and at our prices without
    discounts of tiers (`full`). `premium` is how much more large inputs cost. `counted_in` and `billed_in`:
    `worth` by region of the ledger and of the bill.
    """

    tokens: int = 0
    worth: int = 0
    listed: int = 0
    full: int = 0
    premium: int = 0
    counted_in: dict[str, int] = field(default_factory=new_counts)
    billed_in: dict[str, int] = field(default_factory=new_counts)


_AtOurPrices = dict[ComparisonCell, dict[str, _TokenValues]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableDimensions:
    """
    The dimensions by which both the bill and the ledger distinguish tokens, and those by which the bill also
    distinguishes money. Money never has a dimension that tokens lack.
    """

    key: bool = False
    model: bool = True
    tier: bool = False
    region: bool = False
    contexts: tuple[int, ...] = ()  # sizes of the context windows that the bill states
    money_key: bool = False
    money_model: bool = True
    money_tier: bool = False
    money_region: bool = False
    money_context: bool = False

    def token_cell(self, row: BilledTokens | BilledMoney | CountedUse) -> ComparisonCell:
        return ComparisonCell(
            row.day,
            row.key if self.key else "",
            row.model if self.model else "",
            normalize_tier(row.tier) if self.tier else STANDARD,
            row.region if self.region and row.region not in ANYWHERE else "",
            max((least for least in self.contexts if least <= (row.context or 0)), default=0),
        )

    def money_cell(self, cell: ComparisonCell) -> ComparisonCell:
        """Return the cell with only the dimensions that the bill's amounts state."""
        return ComparisonCell(
            cell.day,
            cell.key if self.money_key else "",
            cell.model if self.money_model else "",
            cell.tier if self.money_tier else STANDARD,
            cell.region if self.money_region else "",
            cell.context if self.money_context else 0,
        )

    @property
    def compared_dimensions_text(self) -> str:
        compared = [
            name
            for name, is_told in (
                ("model", self.model),
                ("key", self.key),
                ("tier", self.tier),
                ("region", self.region),
                ("context window", bool(self.contexts)),
            )
            if is_told
        ]
        return ", ".join(["day", *compared])


@dataclass(slots=True, kw_only=True)
class BilledCountedDifference:
    """
    The billed and the counted sums of all cells, and the parts of the difference between them.

    By money cell (the dimensions by which the bill states amounts) and meter:

    - `sold`: billed tokens. `paid`: the billed amount. `lines`: the number of billed lines. If it is 0,
      so is `paid`.
    - `worth`: the value of the billed tokens at our prices. `full`: the same without the discounts of tiers.
      `premium`: the part of `full` that large inputs cost more.
    - `counted_in`, `billed_in`: `worth` by region, according to the ledger and the bill.

    The meter WHOLE stands for amounts that name no meter. By cell and meter, `values` is the value of counted
    tokens at our prices, and `listed` the list price per token.
    """

    levels: ComparableDimensions
    billed: dict[ComparisonCell, BilledSums] = field(default_factory=lambda: defaultdict(BilledSums))
    counted: dict[ComparisonCell, CountedSums] = field(default_factory=lambda: defaultdict(CountedSums))
    metered: set[int] = field(default_factory=set)  # days on which a bill states token counts
    parts: dict[DifferenceEntry, int] = field(default_factory=new_counts)
    extra: dict[MeterPlace, int] = field(default_factory=dict)  # billed minus counted tokens of each place
    values: dict[MeterPlace, int] = field(default_factory=new_counts)
    listed: dict[MeterPlace, int] = field(default_factory=dict)
    repeats: RepeatedTokens = field(default_factory=RepeatedTokens)
    worth: dict[MeterPlace, int] = field(default_factory=new_counts)
    full: dict[MeterPlace, int] = field(default_factory=new_counts)
    premium: dict[MeterPlace, int] = field(default_factory=new_counts)
    paid: dict[MeterPlace, int] = field(default_factory=new_counts)
    sold: dict[MeterPlace, int] = field(default_factory=new_counts)
    lines: dict[MeterPlace, int] = field(default_factory=new_counts)
    billed_money: dict[ComparisonCell, int] = field(default_factory=new_counts)
    counted_in: Regional = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    billed_in: Regional = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    reported_fees: dict[str, int] = field(default_factory=new_counts)  # by kind of fee
    # models with calls whose price differs from the list price
    varying: set[str] = field(default_factory=set)
    # pairs of a model and a tier that lack a list price, so that the standard price is used
    unlisted: set[tuple[str, str]] = field(default_factory=set)

    @property
    def billed_total(self) -> int:
        return sum(self.billed_money.values())

    def cells_of_model(self, model: str) -> set[ComparisonCell]:
        return {cell for cell, _ in self.worth if cell.model == model}

    def names_on_side(self, dimension: str, *, is_on_bill: bool) -> set[str]:
        field_of = attrgetter(dimension)
        side: Mapping[ComparisonCell, BilledSums | CountedSums] = self.billed if is_on_bill else self.counted
        found = {field_of(cell) for cell, sums in side.items() if sums.calls or any(sums.tokens.values())}
        if is_on_bill:
            found |= {field_of(cell) for cell, amount in self.billed_money.items() if amount}
        return found


def split_difference(
    tokens: Iterable[BilledTokens],
    money: Sequence[BilledMoney],
    counted_uses: Iterable[CountedUse],
    *,
    prices: Prices,
    comparable_dimensions: ComparableDimensions,
    days_with_token_counts: Iterable[int] = (),
    lacks_billed_money: bool = False,
) -> BilledCountedDifference:
    """
    Split the difference of the given rows into its parts.

    On days without billed tokens, no part is due to the number of tokens. The exceptions are the days in
    `days_with_token_counts`, for which a bill states that nothing was used. `lacks_billed_money` means that
    no bill states money, so billed tokens are valued at our prices.
    """
    result = BilledCountedDifference(levels=comparable_dimensions, metered=set(days_with_token_counts))
    _add_rows_of_both_sides(result, tokens, money, counted_uses, prices)
    paid_rates = _paid_rates(result)
    theirs_of = {cell: _billed_or_counted_tokens(result, cell) for cell in {*result.billed, *result.counted}}
    result.repeats = find_repeated_tokens(theirs_of, result.counted)
    matched_moves = list(find_token_moves(theirs_of, result.counted, prices, result.repeats.billed_times))
    arrived: dict[MeterPlace, list[TokenMove]] = defaultdict(list)
    for move in matched_moves:
        arrived[move.target].append(move)
    at_our_prices: _AtOurPrices = defaultdict(lambda: defaultdict(_TokenValues))
    for cell, theirs in sorted(theirs_of.items()):
        billed = result.billed.get(cell, BilledSums())
        ours = result.counted.get(cell, CountedSums())
        coarse = comparable_dimensions.money_cell(cell)
        listed = prices(cell.model, cell.tier, cell.day, cell.context)
        standard = prices(cell.model, STANDARD, cell.day, cell.context) if cell.tier in CHEAPER else listed
        if cell.tier and listed and listed == prices(cell.model, STANDARD, cell.day, cell.context):
            result.unlisted.add((cell.model, cell.tier))
        own_cost = 0
        for meter in METERS:
            have = ours.tokens.get(meter, 0)
            billed_count = theirs.get(meter, 0)
            if not have and not billed_count:
                continue
            price = listed.get(meter, paid_rates.get((cell.model, meter), 0))
            if ours.valued.get(meter):
                own_price = ours.values[meter] // ours.valued[meter]
                if abs(own_price - price) > SAME * price:
                    result.varying.add(cell.model)
                price = own_price
            value = ours.values.get(meter, 0) + (have - ours.valued.get(meter, 0)) * price
            own_cost += value
            result.values[cell, meter] = value
            result.listed[cell, meter] = listed.get(meter, 0)
            volume = (billed_count - have) * price if billed_count else -value
            volume += sum(
                int(move.tokens * (move.target_price - price)) for move in arrived.get((cell, meter), ())
            )
            if billed_count != have:
                result.extra[cell, meter] = billed_count - have
            if volume:
                result.parts[VOLUME, cell, meter] += volume
            sums = at_our_prices[coarse][meter]
            sums.tokens += billed_count
            sums.worth += value + volume
            sums.listed += billed_count * listed.get(meter, price)
            sums.full += (value + volume) * max(standard.get(meter, 0), 1) // max(listed.get(meter, 0), 1)
            if billed_count == have:
                sums.premium += ours.premium.get(meter, 0)
            _add_value_by_region(sums, billed, ours, meter, billed_count, value + volume)
            for move in arrived.get((cell, meter), ()):
                _add_moved_value_by_region(sums, move, result.counted[move.source[0]])
        # the fees of calls are not compared with a bill that has only tokens
        for kind, fee in () if lacks_billed_money else ours.fees.items():
            own_cost += fee
            result.parts[OTHER, coarse, kind] -= fee
            result.reported_fees[kind] += fee
        if own_cost != ours.cost:
            result.parts[OWN, cell, ""] += own_cost - ours.cost
    _correct_values_of_moved_tokens(result, at_our_prices, matched_moves)
    _add_price_differences(result, at_our_prices, lacks_billed_money=lacks_billed_money)
    result.parts = defaultdict(int, {entry: amount for entry, amount in result.parts.items() if amount})
    return result


def _add_rows_of_both_sides(
    bill_difference: BilledCountedDifference,
    tokens: Iterable[BilledTokens],
    money: Iterable[BilledMoney],
    counted_uses: Iterable[CountedUse],
    prices: Prices,
) -> None:
    levels = bill_difference.levels
    for billed_row in tokens:
        theirs = bill_difference.billed[levels.token_cell(billed_row)]
        if billed_row.meter is None:
            theirs.calls = (theirs.calls or 0) + billed_row.quantity
        else:
            theirs.tokens[billed_row.meter] += billed_row.quantity
            theirs.reasoning += billed_row.quantity if billed_row.is_reasoning else 0
            if billed_row.region:
                theirs.regional[billed_row.region, billed_row.meter] += billed_row.quantity
            bill_difference.metered.add(billed_row.day)
    for row in counted_uses:
        sums = bill_difference.counted[levels.token_cell(row)]
        sums.add_use(row)
        if row.context > 0:
            _add_large_input_surcharge(sums, row, prices)
    kinds = {kind for sums in bill_difference.counted.values() for kind in sums.fees}
    for amount in money:
        cell = levels.money_cell(levels.token_cell(amount))
        bill_difference.billed_money[cell] += amount.amount
        if amount.is_for_tokens:
            bill_difference.paid[cell, amount.meter] += amount.amount
            bill_difference.lines[cell, amount.meter] += 1
        else:
            bill_difference.parts[OTHER, cell, _call_kind_of_billed_kind(amount.meter, kinds)] += (
                amount.amount
            )


def _add_large_input_surcharge(sums: CountedSums, row: CountedUse, prices: Prices) -> None:
    base, large = (
        prices(row.model, normalize_tier(row.tier), row.day, context) for context in (0, row.context)
    )
    for meter, value in row.values.items():
        if 0 < base.get(meter, 0) < large.get(meter, 0):
            sums.premium[meter] += value - value * base[meter] // large[meter]


def _call_kind_of_billed_kind(billed_kind: str, call_kinds: Collection[str]) -> str:
    """
    Return the kind of `call_kinds` that a bill's kind of line means. Calls may use another word, such as for images.
    """
    unit = non_token_meter_of_line_kind(billed_kind)
    return unit if billed_kind not in call_kinds and unit in call_kinds else billed_kind


def _paid_rates(bill_difference: BilledCountedDifference) -> dict[tuple[str, str], int]:
    tokens: dict[tuple[str, str], int] = defaultdict(int)
    for cell, sums in bill_difference.billed.items():
        for meter, quantity in sums.tokens.items():
            tokens[bill_difference.levels.money_cell(cell).model, meter] += quantity
    paid: dict[tuple[str, str], int] = defaultdict(int)
    for (cell, meter), amount in bill_difference.paid.items():
        paid[cell.model, meter] += amount
    return {key: amount // tokens[key] for key, amount in paid.items() if tokens.get(key)}


def _billed_or_counted_tokens(
    bill_difference: BilledCountedDifference, cell: ComparisonCell
) -> dict[str, int]:
    ours = bill_difference.counted.get(cell, CountedSums()).tokens
    return (
        _divide_pooled_tokens_among_meters(bill_difference.billed.get(cell, BilledSums()).tokens, ours)
        if cell.day in bill_difference.metered
        else dict(ours)
    )


def _divide_pooled_tokens_among_meters(
    billed_tokens: Mapping[str, int], counted_tokens: Mapping[str, int]
) -> dict[str, int]:
    """Return the billed tokens by meter. Tokens billed for several meters together are divided like ours."""
    by_meter = {meter: billed_tokens.get(meter, 0) for meter in METERS}
    for pooled, meters in POOLED.items():
        if billed_tokens.get(pooled):
            for meter, tokens in divide_among_meters(billed_tokens[pooled], counted_tokens, meters).items():
                by_meter[meter] += tokens
    return by_meter


def _add_value_by_region(
    sums: _TokenValues,
    billed: BilledSums,
    ours: CountedSums,
    meter: str,
    billed_tokens: int,
    value_at_our_prices: int,
) -> None:
    whole = ours.values.get(meter, 0)
    have = ours.tokens.get(meter, 0)
    # if a row is repeated, all its copies are in the same region
    times = billed_tokens // have if have and billed_tokens % have == 0 else 1
    for (region, regional_meter), value in ours.regional.items():
        # for tokens that only the bill has, the region is unknown
        if regional_meter == meter and whole:
            sums.counted_in[region] += min(value_at_our_prices, whole * times) * value // whole
    meters_of_bill = {meter, *(pooled for pooled, meters in POOLED.items() if meter in meters)}
    whole = sum(billed.tokens.get(bill_meter, 0) for bill_meter in meters_of_bill)
    for (region, regional_meter), tokens in billed.regional.items():
        if regional_meter in meters_of_bill and whole:
            sums.billed_in[region] += value_at_our_prices * tokens // whole


def _correct_values_of_moved_tokens(
    bill_difference: BilledCountedDifference, at_our_prices: _AtOurPrices, matched_moves: list[TokenMove]
) -> None:
    coarse = bill_difference.levels.money_cell
    for move, less, gain in value_corrections_of_token_moves(
        matched_moves,
        coarse,
        value_at_our_prices=lambda cell_meter: at_our_prices[cell_meter[0]][cell_meter[1]].worth,
        value_at_list_prices=lambda cell_meter: at_our_prices[cell_meter[0]][cell_meter[1]].listed,
        billed_amount=lambda cell_meter: bill_difference.paid.get(cell_meter),
    ):
        for (cell, meter), amount in ((move.source, -less), (move.target, gain)):
            bill_difference.parts[VOLUME, cell, meter] += amount
            at_our_prices[coarse(cell)][meter].worth += amount


def _add_moved_value_by_region(sums: _TokenValues, move: TokenMove, source_sums: CountedSums) -> None:
    for (region, regional_meter), value in source_sums.regional.items():
        if regional_meter == move.source[1]:
            sums.counted_in[region] += int(
                move.tokens * move.target_price * value / source_sums.values[regional_meter]
            )


def _add_price_differences(
    bill_difference: BilledCountedDifference, at_our_prices: _AtOurPrices, *, lacks_billed_money: bool
) -> None:
    for (cell, meter), amount in bill_difference.paid.items():
        bill_difference.parts[RATE, cell, meter] += amount
    for cell, by_meter in at_our_prices.items():
        for meter, sums in by_meter.items():
            paid_meter = billed_meter(bill_difference, cell, meter)
            bill_difference.sold[cell, paid_meter] += sums.tokens
            bill_difference.worth[cell, paid_meter] += sums.worth
            bill_difference.full[cell, paid_meter] += sums.full
            bill_difference.premium[cell, paid_meter] += sums.premium
            for regional, region_worth in (
                (bill_difference.counted_in, sums.counted_in),
                (bill_difference.billed_in, sums.billed_in),
            ):
                for region, share in region_worth.items():
                    regional[cell, paid_meter][region] += share
            if lacks_billed_money:
                bill_difference.billed_money[cell] += sums.worth
            else:
                bill_difference.parts[RATE, cell, paid_meter] -= sums.worth
    if not lacks_billed_money:
        _set_paid_amount_of_unbilled_tokens_to_zero(bill_difference)


def _set_paid_amount_of_unbilled_tokens_to_zero(bill_difference: BilledCountedDifference) -> None:
    """
    Count tokens without a billed line as billed at 0. The exception is days with amounts that belong to no
    tokens, because such amounts may be for them.
    """
    worth = bill_difference.worth
    unplaced = {
        place[0].day for place, amount in bill_difference.paid.items() if amount and not worth.get(place)
    }
    for (cell, meter), value in worth.items():
        if value > 0 and cell.day not in unplaced:
            bill_difference.paid[cell, meter] += 0


def billed_meter(bill_difference: BilledCountedDifference, cell: ComparisonCell, meter: str) -> str:
    if (cell, meter) in bill_difference.paid:
        return meter
    pools = [
        pooled
        for pooled, meters in POOLED.items()
        if meter in meters and (cell, pooled) in bill_difference.paid
    ]
    return pools[0] if pools else (WHOLE if (cell, WHOLE) in bill_difference.paid else meter)


def normalize_tier(stated: str | None) -> str:
    """Return the tier's name, "" for the standard tier."""
    return STANDARD if stated in (None, "", "standard", "default") else str(stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMove:
    """
    Tokens that the ledger has in one cell (`source`) and the bill in another (`target`). Prices are per
    token.
    """

    source: MeterPlace
    target: MeterPlace
    tokens: int
    price: Fraction  # average price per unit in the ledger
    target_price: Fraction
    listed: int  # list price at the source, without surcharges for large inputs

    @property
    def value_at_source_price(self) -> Fraction:
        return self.tokens * self.price


def find_token_moves(
    billed: Mapping[ComparisonCell, Mapping[str, int]],
    counted_sums: Mapping[ComparisonCell, CountedSums],
    prices: Prices,
    times: Callable[[ComparisonCell], Fraction] = lambda _: Fraction(1),
) -> Iterator[TokenMove]:
    """
    Yield the tokens that the bill has in another tier or context window of a model than the ledger, then
    those in another kind of input. `billed` are billed tokens by METERS.

    `times` returns how often the bill repeats its rows. Moved tokens are multiplied by it.
    """
    groups: dict[ComparisonCell, list[ComparisonCell]] = defaultdict(list)
    for cell in sorted(billed):
        groups[cell._replace(tier=STANDARD, context=0)].append(cell)
    for cells in groups.values():
        extras = {
            (cell, meter): int(billed[cell].get(meter, 0) / times(cell))
            - (counted_sums[cell].tokens.get(meter, 0) if cell in counted_sums else 0)
            for cell in cells
            for meter in METERS
        }
        for meters in (*((meter,) for meter in METERS), INPUT_METERS):
            chosen = {cell_meter: extra for cell_meter, extra in extras.items() if cell_meter[1] in meters}
            for move in _match_missing_with_surplus_tokens(chosen, extras, counted_sums, prices):
                yield replace(move, tokens=int(move.tokens * times(move.source[0])))


def _match_missing_with_surplus_tokens(
    token_differences: Mapping[MeterPlace, int],
    remaining_differences: dict[MeterPlace, int],
    counted_sums: Mapping[ComparisonCell, CountedSums],
    prices: Prices,
) -> Iterator[TokenMove]:
    if min(token_differences.values()) >= 0 or max(token_differences.values()) <= 0:
        return
    for source in (cell_meter for cell_meter, extra in token_differences.items() if extra < 0):
        cell, meter = source
        valued, listed = (
            counted_sums[cell].valued.get(meter, 0),
            prices(cell.model, cell.tier, cell.day, cell.context).get(meter, 0),
        )
        for target in (
            (cell_meter for cell_meter, extra in token_differences.items() if extra > 0)
            if valued and listed
            else ()
        ):
            tokens = min(-remaining_differences[source], remaining_differences[target])
            target_cell, target_meter = target
            target_listed = prices(
                target_cell.model, target_cell.tier, target_cell.day, target_cell.context
            ).get(target_meter, 0)
            if tokens <= 0 or not target_listed:
                continue
            remaining_differences[source] += tokens
            remaining_differences[target] -= tokens
            price = Fraction(counted_sums[cell].values[meter], valued)
            target_price = price * target_listed / listed
            yield TokenMove(
                source=source,
                target=target,
                tokens=tokens,
                price=price,
                target_price=target_price,
                listed=listed,
            )


def value_corrections_of_token_moves(
    matched_moves: list[TokenMove],
    money_cell_of: Callable[[ComparisonCell], ComparisonCell],
    value_at_our_prices: Callable[[MeterPlace], int],
    value_at_list_prices: Callable[[MeterPlace], int],
    billed_amount: Callable[[MeterPlace], int | None],
) -> Iterator[tuple[TokenMove, int, int]]:
    """
    Yield moves of tokens with large inputs between two cells, with the values to add to the source and the
    target.

    This applies if no other move touches the two cells and both are billed separately. The correction makes
    both cells billed at the same ratio to our prices, but no token gets cheaper than its list price.
    """
    between: dict[tuple[MeterPlace, MeterPlace], list[TokenMove]] = defaultdict(list)
    for move in matched_moves:
        source = move.source
        target = move.target
        between[(money_cell_of(source[0]), source[1]), (money_cell_of(target[0]), target[1])].append(move)
    ends = [cell_meter for pair in between for cell_meter in pair]
    for (source, target), group in between.items():
        paid_source = billed_amount(source)
        paid_target = billed_amount(target)
        is_alone = ends.count(source) == ends.count(target) == 1
        if (
            source == target
            or not is_alone
            or paid_source is None
            or paid_target is None
            or value_at_our_prices(source) <= 0
        ):
            continue
        moved_worth = sum((move.value_at_source_price for move in group), Fraction(0))
        ratio = sum((move.tokens * move.target_price for move in group), Fraction(0)) / moved_worth
        both_worth = ratio * value_at_our_prices(source) + value_at_our_prices(target)
        share = (ratio * paid_source + paid_target) / both_worth if both_worth > 0 else Fraction(0)
        least = sum(move.tokens * move.listed for move in group) - moved_worth
        surplus = value_at_our_prices(source) - value_at_list_prices(source)
        if share <= 0 or least > surplus or least > 0 or surplus < 0:
            continue
        extra_worth = min(max(value_at_our_prices(source) - paid_source / share, least), Fraction(surplus))
        for move in group:
            part = extra_worth * move.value_at_source_price / moved_worth
            yield move, int(part), int(part * ratio)
