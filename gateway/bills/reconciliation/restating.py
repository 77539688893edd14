"""
Changes to one side before the comparison, if its keys are exchanged, its rows are late or it was converted at
a fixed rate. Pure.

The other checks then compare equal things. Afterwards, each change becomes a claim of its own, and both sides
are as they were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

from gateway.bills.reconciliation.causes.other_lines import smallest_decimal_unit_of_amounts
from gateway.bills.reconciliation.cells import BilledCountedDifference, ComparableDimensions
from gateway.bills.reconciliation.claims import EXACT, STRONG, WEAK, CauseClaim, build_claim
from gateway.bills.reconciliation.limits import FINEST, LATE_CALLS, LEAST_DAYS, NOISE, NOTHING
from gateway.bills.reconciliation.matching import UNMATCHED
from gateway.bills.reconciliation.sides import (
    OUTPUT,
    RATE,
    STANDARD,
    VOLUME,
    BilledMoney,
    BilledTokens,
    ComparisonCell,
    CountedSums,
    CountedUse,
    replace_api_key,
)
from gateway.bills.reconciliation.wording import day_text, join_names
from spool.currencies import SCALE

EXCHANGE_RATE = "exchange_rate"
_Vector = dict[tuple[str, bool], int]  # tokens by model, and by whether they are output
_Vectors = dict[str, dict[int, _Vector]]  # tokens by key and day
_KeyAndModel = tuple[str, str]
_ByKeyAndModel = dict[_KeyAndModel, dict[int, list[int]]]  # tokens of input and output, by day
_NOTHING = [0, 0]
# day and ledger key -> the key under which the bill has this usage
ExchangedKeys = Mapping[tuple[int, str], str]


def find_keys_swapped_in_bill(
    tokens: Iterable[BilledTokens], counted_uses: Iterable[CountedUse]
) -> dict[tuple[int, str], str]:
    """
    Find pairs of keys that the bill and the ledger name the other way round.

    On a day, the billed tokens of each key equal the counted tokens of the other key, by model, and by input
    or output. If both keys differ from their own counted tokens, it is enough that one equals the other
    key's. If such days outnumber the other days on which neither key agrees, the keys are exchanged on all
    days.
    """
    theirs, ours = _tokens_by_key_and_day(tokens, counted_uses)
    keys = sorted((theirs.keys() | ours.keys()) - {"", UNMATCHED})
    found: list[tuple[int, str, str, set[int]]] = []
    for first, second in combinations(keys, 2):
        equal = set[int]()
        unequal = set[int]()
        for day in {*theirs[first], *theirs[second]}:
            billed, own = ((side[first].get(day, {}), side[second].get(day, {})) for side in (theirs, ours))
            if billed[0] == own[0] or billed[1] == own[1]:
                continue
            is_exchanged = any(
                theirs_of and theirs_of == ours_of
                for theirs_of, ours_of in zip(billed, own[::-1], strict=True)
            )
            (equal if is_exchanged else unequal).add(day)
        if len(equal) >= LEAST_DAYS or (equal and equal >= {*theirs[first], *theirs[second]}):
            days = equal | unequal if len(equal) > len(unequal) else equal
            found.append((len(equal), first, second, days))
    names: dict[tuple[int, str], str] = {}
    for _, first, second, days in sorted(found, key=lambda item: -item[0]):
        for day in days:
            if (day, first) not in names and (day, second) not in names:
                names |= {(day, first): second, (day, second): first}
    return names


def _tokens_by_key_and_day(
    tokens: Iterable[BilledTokens], counted_uses: Iterable[CountedUse]
) -> tuple[_Vectors, _Vectors]:
    theirs: _Vectors = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    ours: _Vectors = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for row in tokens:
        if row.meter is not None and row.quantity:
            theirs[row.key][row.day][row.model, row.meter == OUTPUT] += row.quantity
    for use in counted_uses:
        for meter, count in use.tokens.items():
            if count:
                ours[use.key][use.day][use.model, meter == OUTPUT] += count
    return theirs, ours


def use_billed_names_of_swapped_keys(
    counted_uses: Iterable[CountedUse], billed_key_by_day_and_key: ExchangedKeys
) -> list[CountedUse]:
    return [
        replace_api_key(use, billed_key_by_day_and_key.get((use.day, use.key), use.key))
        for use in counted_uses
    ]


def claim_keys_swapped_in_bill(
    bill_difference: BilledCountedDifference,
    counted_uses: Iterable[CountedUse],
    billed_key_by_day_and_key: ExchangedKeys,
) -> CauseClaim:
    """
    Claim the exchange of keys. Each key gets the counted cost of the other key minus its own, so the sum is
    0.

    Afterwards, `bill_difference` has the counted sums under the ledger's own keys.
    """
    by_cell = replace_counted_sums_in_split(bill_difference, counted_uses)
    pairs = sorted({tuple(sorted((key, name))) for (_, key), name in billed_key_by_day_and_key.items()})
    claim = build_claim(
        "keys_exchanged",
        by_cell,
        certainty=EXACT,
        evidence=(
            f"{join_names([' and '.join(pair) for pair in pairs])}: the bill has the tokens of each key under the "
            f"other one, to the token, on {len({day for day, _ in billed_key_by_day_and_key}):,} days"
        ),
        advice="Exchange the two keys in [[reconciliation.owner]], or check which program uses which key.",
        keys=[key for pair in pairs for key in pair],
    )
    return replace(claim, moved=sum(map(abs, by_cell.values())) // 2)


def replace_counted_sums_in_split(
    bill_difference: BilledCountedDifference, counted_uses: Iterable[CountedUse]
) -> dict[ComparisonCell, int]:
    """
    Replace the counted sums in `bill_difference` by those of `counted_uses`, and count the change of cost as a
    difference in volume. Return this change by cell: the cost of the replaced sums minus the cost of the new
    ones.
    """
    own: dict[ComparisonCell, CountedSums] = defaultdict(CountedSums)
    for use in counted_uses:
        own[bill_difference.levels.token_cell(use)].add_use(use)
    by_cell: dict[ComparisonCell, int] = {}
    for cell in {*own, *bill_difference.counted}:
        restated, original = (
            sums[cell].cost if cell in sums else 0 for sums in (bill_difference.counted, own)
        )
        if restated != original:
            by_cell[cell] = restated - original
            bill_difference.parts[VOLUME, cell, ""] += by_cell[cell]
    bill_difference.counted = own
    return by_cell


@dataclass(frozen=True, kw_only=True)
class LateRows:
    """
    Days whose rows the bill has on a later day. `posted` maps a day with its key and model to the later day.
    `is_exact` means that the tokens of each key and model prove it.
    """

    posted: Mapping[tuple[int, _KeyAndModel], int]
    is_exact: bool = True

    def move_to_billed_days(
        self, counted_uses: Iterable[CountedUse], comparable_dimensions: ComparableDimensions
    ) -> list[CountedUse]:
        if not self.posted:
            return [*counted_uses]
        return [
            replace(use, day=self.posted.get((use.day, _key_and_model(use, comparable_dimensions)), use.day))
            for use in counted_uses
        ]


def find_rows_billed_on_later_day(
    tokens: Iterable[BilledTokens],
    amounts: Iterable[BilledMoney],
    counted_uses: Sequence[CountedUse],
    comparable_dimensions: ComparableDimensions,
    days_with_token_counts: Collection[int],
) -> LateRows:
    """
    Find days whose rows the bill has on the next day on which it has a row of the same key and model.

    The bill has no tokens on the late days. On the next day, it has the counted tokens of all these days
    together, as input or output. If the bill has no row at all on a late day, one such key and model proves
    that the rows of all others are late. The amounts must be late as well. Most other days of keys and models
    must agree. Otherwise, a clock that assigns calls to other days may be the cause.
    """
    theirs: _ByKeyAndModel = defaultdict(dict)
    ours: _ByKeyAndModel = defaultdict(dict)
    for row in tokens:
        if row.meter is not None and row.quantity:
            _add_quantity(theirs, row, comparable_dimensions, row.meter, row.quantity)
    for use in counted_uses:
        for meter, count in use.tokens.items():
            _add_quantity(ours, use, comparable_dimensions, meter, count)
    posted: dict[tuple[int, _KeyAndModel], int] = {}
    agreeing = differing = 0
    for owner, own in ours.items():
        waiting: list[int] = []
        for day in sorted({*own, *theirs[owner]}.intersection(days_with_token_counts)):
            if day not in theirs[owner]:
                waiting.append(day)
                continue
            sums = [own.get(counted_day, _NOTHING) for counted_day in (*waiting, day)]
            whole = [sum(kinds) for kinds in zip(*sums, strict=True)]
            is_whole = any(billed == both > 0 for billed, both in zip(theirs[owner][day], whole, strict=True))
            if waiting and is_whole:
                posted |= {(late_day, owner): day for late_day in waiting}
            agreeing, differing = agreeing + is_whole, differing + (not is_whole)
            waiting = []
    if not posted or agreeing <= differing:
        return LateRows(posted={})
    billed_days = {day for by_day in theirs.values() for day in by_day}
    of_all = {late_day: day for (late_day, _), day in posted.items() if late_day not in billed_days}
    every = {
        (late_day, owner): of_all[late_day] for owner, own in ours.items() for late_day in own.keys() & of_all
    }
    is_exact = every.keys() <= posted.keys()
    posted = every | posted
    calls = Counter[int]()
    for use in counted_uses:
        calls[use.day] += use.calls if (use.day, _key_and_model(use, comparable_dimensions)) in posted else 0
    # Tokens may be late although amounts are in time. If one amount of a day is in time, the day is not late,
    # because other amounts of 0 do not prove that amounts are late.
    in_time = {
        day
        for day, _ in _late_days_with_amounts_in_time(amounts, counted_uses, comparable_dimensions, posted)
    }
    return LateRows(
        posted={
            place: day
            for place, day in posted.items()
            if place[0] not in in_time and calls[place[0]] >= LATE_CALLS
        },
        is_exact=is_exact,
    )


def _add_quantity(
    by_owner: _ByKeyAndModel,
    row: BilledTokens | CountedUse,
    comparable_dimensions: ComparableDimensions,
    meter: str,
    quantity: int,
) -> None:
    by_owner[_key_and_model(row, comparable_dimensions)].setdefault(row.day, [0, 0])[meter == OUTPUT] += (
        quantity
    )


def _key_and_model(
    row: BilledTokens | CountedUse, comparable_dimensions: ComparableDimensions
) -> _KeyAndModel:
    cell = comparable_dimensions.token_cell(row)
    return cell.key, cell.model


def _late_days_with_amounts_in_time(
    amounts: Iterable[BilledMoney],
    counted_uses: Iterable[CountedUse],
    comparable_dimensions: ComparableDimensions,
    late_days: Collection[tuple[int, _KeyAndModel]],
) -> set[tuple[int, _KeyAndModel]]:
    """
    Return late days (token rows on a later day of the bill) whose amounts were in time: the day itself is
    billed at more than the value of its other calls plus a quarter of the value of the late ones. The limit
    is a quarter, because late calls may be billed at half their price.
    """
    paid: dict[ComparisonCell, int] = defaultdict(int)
    worth: dict[ComparisonCell, int] = defaultdict(int)
    late: dict[ComparisonCell, int] = defaultdict(int)

    def coarse_cell_of_row(row: BilledMoney | CountedUse) -> ComparisonCell:
        return comparable_dimensions.money_cell(comparable_dimensions.token_cell(row))._replace(
            tier=STANDARD, region="", context=0
        )

    for row in amounts:
        if row.is_for_tokens:
            paid[coarse_cell_of_row(row)] += row.amount
    in_time = set()
    for use in counted_uses:
        value = sum(use.values.values())
        worth[coarse_cell_of_row(use)] += value
        if (use.day, _key_and_model(use, comparable_dimensions)) in late_days:
            late[coarse_cell_of_row(use)] += value
    for use in counted_uses:
        place = coarse_cell_of_row(use)
        of_day = use.day, _key_and_model(use, comparable_dimensions)
        if of_day in late_days and 4 * (paid[place] - worth[place]) + 3 * late[place] > 0:
            in_time.add(of_day)
    return in_time


def claim_late_rows(
    bill_difference: BilledCountedDifference, counted_uses: Iterable[CountedUse], late: LateRows
) -> CauseClaim:
    """
    Claim rows that the bill has on a later day than their calls: minus the counted cost on the day of the
    calls, and the same cost on the later day. The sum is 0.

    Afterwards, `bill_difference` has the counted sums on the days of the calls.
    """
    by_cell = replace_counted_sums_in_split(bill_difference, counted_uses)
    days: dict[int, set[int]] = defaultdict(set)
    for (late_day, _), day in late.posted.items():
        days[day].add(late_day)
    texts = [
        f"{join_names([day_text(late_day) for late_day in sorted(late_days)])} on {day_text(day)}"
        for day, late_days in sorted(days.items())
    ]
    return build_claim(
        "posted_late",
        by_cell,
        certainty=EXACT if late.is_exact else STRONG,
        evidence=(
            f"the bill has the rows of {join_names(texts)}: none on the day of the calls, and the tokens "
            "of both days later"
        ),
        advice="Nothing is missing. The provider, or the export of its bill, added these rows to another day.",
        exchanges_between_days=True,
    )


@dataclass(frozen=True, kw_only=True)
class BillConversion:
    """
    The conversion of a bill to dollars. `rates` are dollars per unit of the currency, times SCALE, by day,
    including days before the month.
    """

    currency: str
    sources: frozenset[str]
    rates: Mapping[int, int]

    def rate(self, day: int) -> Fraction:
        return Fraction(self.rates[day], SCALE)


@dataclass(frozen=True, kw_only=True)
class FixedExchangeRate:
    """
    A rate at which a whole bill was converted. `is_of_market` means that the market had this rate as well.
    """

    rate: Fraction
    is_of_market: bool


def find_fixed_exchange_rate(
    bill_difference: BilledCountedDifference,
    conversion: BillConversion,
    decimal_unit_by_day: Mapping[int, int],
) -> FixedExchangeRate | None:
    """
    Find the constant c with paid = worth * rate(day) / c, where paid is converted at the rate of each day.

    Each amount allows the constants that explain it within its rounding. The constant that explains the largest
    value is chosen, if that is more than any factor of the daily rates explains.
    """
    places = list(_billed_amounts_of_agreeing_cells(bill_difference, conversion))
    lowest, highest = (Fraction(edge(conversion.rates.values()), SCALE) for edge in (min, max))
    by_day = [
        place.exchange_rate_factor_range_and_value(decimal_unit_by_day, conversion.rate(place.day))
        for place in places
    ]
    by_constant = [
        place.exchange_rate_factor_range_and_value(decimal_unit_by_day, Fraction(1)) for place in places
    ]
    of_market = [
        (max(low, lowest), min(high, highest), worth)
        for low, high, worth in by_constant
        if low <= highest and high >= lowest
    ]
    _, least = _factor_allowed_by_most_value(by_day)
    for is_of_market, allowed in ((True, of_market), (False, by_constant)):
        constant, value = _factor_allowed_by_most_value(allowed)
        chosen = [
            place
            for place, (low, high, _) in zip(places, by_constant, strict=True)
            if low <= constant <= high
        ]
        if value > least and len({place.day for place in chosen}) >= LEAST_DAYS:
            paid = sum((place.paid for place in chosen), Fraction(0))
            mean = sum(place.worth for place in chosen) / paid
            return FixedExchangeRate(rate=mean, is_of_market=is_of_market)
    return None


def find_market_rates(
    splits: Iterable[BilledCountedDifference],
    conversion: BillConversion,
    decimal_unit_by_day: Mapping[int, int],
) -> Sequence[FixedExchangeRate]:
    """
    Return the exchange rates that explain the bill's amounts and are also market rates, each once. `splits`
    value the same tokens at different prices.
    """
    rates: list[FixedExchangeRate] = []
    for split in splits:
        found = find_fixed_exchange_rate(split, conversion, decimal_unit_by_day)
        if found is not None and found.is_of_market:
            rates += [found] * all(abs(found.rate / each.rate - 1) > Fraction(NOTHING) for each in rates)
    return rates


@dataclass(frozen=True, kw_only=True)
class _BilledAmount:
    """A billed amount in the bill's currency, and the value of its tokens in dollars."""

    day: int
    lines: int
    paid: Fraction
    worth: int

    def exchange_rate_factor_range_and_value(
        self, decimal_unit_by_day: Mapping[int, int], rate: Fraction
    ) -> tuple[Fraction, Fraction, int]:
        """
        Return the lowest factor, the highest factor, and the value of the tokens. Each factor, times `rate`,
        converts the billed amount to this value, within the rounding of the amount.
        """
        slack = Fraction(max(decimal_unit_by_day.get(self.day, 0), FINEST) * self.lines, 2)
        high = self.worth / (self.paid - slack) if self.paid > slack else Fraction(0)
        return self.worth / (self.paid + slack) / rate, high / rate, self.worth


def _billed_amounts_of_agreeing_cells(
    bill_difference: BilledCountedDifference, conversion: BillConversion
) -> Iterator[_BilledAmount]:
    differing = {bill_difference.levels.money_cell(cell) for cell, _ in bill_difference.extra}
    for (cell, meter), amount in bill_difference.paid.items():
        worth = bill_difference.worth.get((cell, meter), 0)
        if cell not in differing and worth > 0 and amount > 0 and cell.day in conversion.rates:
            lines = max(1, bill_difference.lines.get((cell, meter), 0))
            yield _BilledAmount(
                day=cell.day, lines=lines, paid=amount / conversion.rate(cell.day), worth=worth
            )


def _factor_allowed_by_most_value(
    ranges_with_value: Sequence[tuple[Fraction, Fraction, int]],
) -> tuple[Fraction, int]:
    edges = sorted(
        [(low, 0, worth) for low, _, worth in ranges_with_value]
        + [(high, 1, -worth) for _, high, worth in ranges_with_value]
    )
    best, most, value = Fraction(0), 0, 0
    for edge, _, change in edges:
        value += change
        if value > most:
            best, most = edge, value
    return best, most


def last_decimal_unit_in_currency(amounts: Iterable[BilledMoney], conversion: BillConversion) -> int:
    """Return the unit of the last decimal of the amounts before their conversion, in the bill's currency."""
    in_currency = (
        round(row.amount / conversion.rate(row.day) / NOISE) * NOISE
        for row in amounts
        if row.day in conversion.rates
    )
    return smallest_decimal_unit_of_amounts(in_currency)


def convert_at_fixed_rate(
    amounts: Sequence[BilledMoney], conversion: BillConversion, fixed: FixedExchangeRate
) -> list[BilledMoney]:
    return [
        replace(row, amount=round(row.amount * fixed.rate / conversion.rate(row.day)))
        if row.source in conversion.sources and row.day in conversion.rates
        else row
        for row in amounts
    ]


def claim_exchange_rate(
    bill_difference: BilledCountedDifference,
    amounts: Sequence[BilledMoney],
    restated: Sequence[BilledMoney],
    conversion: BillConversion,
    fixed: FixedExchangeRate,
) -> CauseClaim:
    """
    Claim the sum of A * (rate(day) - c), where A are amounts in the currency of the bill and c is its constant rate.

    Afterwards, the split has the billed amounts at each day's own rate.
    """
    by_cell: dict[ComparisonCell, int] = defaultdict(int)
    for row, again in zip(amounts, restated, strict=True):
        by_cell[bill_difference.levels.money_cell(bill_difference.levels.token_cell(row))] += (
            row.amount - again.amount
        )
    for cell, amount in by_cell.items():
        bill_difference.parts[RATE, cell, ""] += amount
        bill_difference.billed_money[cell] += amount
    return build_claim(
        EXCHANGE_RATE,
        {cell: amount for cell, amount in by_cell.items() if amount},
        certainty=STRONG if fixed.is_of_market else WEAK,
        evidence=(
            f"billed / counted follows the daily rate of {conversion.currency} / {float(fixed.rate):.6f}, so one rate "
            f"was used for the whole month: {float(fixed.rate):.6f} dollars per {conversion.currency}"
            + ("" if fixed.is_of_market else ", which the market did not have, so prices differ as well")
        ),
        advice="Nothing is missing. Costs use the rate of each day, and the bill uses one rate.",
        alternative_causes=() if fixed.is_of_market else ("discount",),
    )
