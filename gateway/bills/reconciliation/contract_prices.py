"""
Prices of contracts that a bill does not charge. The counted calls get the billed prices, so that other checks
then compare equal prices. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from math import isqrt

from gateway.bills.reconciliation.cells import BilledCountedDifference, ComparableDimensions, normalize_tier
from gateway.bills.reconciliation.claims import EXACT, OF_PRICES, TIER_NOT_GIVEN, CauseClaim, build_claim
from gateway.bills.reconciliation.limits import LEAST_DAYS, MICRO, NOTHING
from gateway.bills.reconciliation.restating import replace_counted_sums_in_split
from gateway.bills.reconciliation.sides import RATE, VOLUME, ComparisonCell, CountedUse, Prices
from gateway.bills.reconciliation.wording import format_dollars, join_names

CONTRACT_PRICE = "contract_price"
_CLEAR = 4  # a smaller multiple of an amount's last digit may be rounding
_ROUND = Fraction(2, 10_000)  # share of an amount that the rounding of a percentage may change
_OF_TIERS = 50  # percentage of the price at which price lists have batch and flex
# causes that explain an amount independently of our prices
_PROVEN = frozenset({"rounding", "reported_cost"})
# causes that may apply to every line of a bill
_LASTING = OF_PRICES - {"price_on_days"} | {"fee", "key_price"}
_MOVED = frozenset({"tier_unknown", TIER_NOT_GIVEN, "batch_unreported", "other_model"})
Group = tuple[str, str]  # a model and its tier, as far as the billed amounts distinguish them


@dataclass(frozen=True, slots=True)
class _PricedAmount:
    """
    The amounts of a comparison cell and kind of token: billed (`paid`), at the prices of the contract
    (`stated`), and without it (`listed`). Rounding may change them by `digit`.
    """

    day: int
    group: Group
    paid: int
    stated: Fraction
    listed: Fraction
    digit: int

    def is_paid_near(self, amount: Fraction) -> bool:
        return abs(self.paid - amount) <= max(Fraction(self.digit), abs(amount) * Fraction(NOTHING))

    @property
    def is_paid_as_listed(self) -> bool:
        return self.is_paid_near(self.listed)

    @property
    def is_paid_as_stated(self) -> bool:
        return self.is_paid_near(self.stated)

    @property
    def is_paid_between_list_and_contract(self) -> bool:
        """
        Return whether the amount is between those at list and contract price, as if a part of the contract
        was ignored.
        """
        between = min(self.stated, self.listed) < self.paid < max(self.stated, self.listed)
        return between and not self.is_paid_as_stated and not self.is_paid_as_listed


@dataclass(frozen=True, kw_only=True)
class BilledPrices:
    """
    The models and tiers that are billed at a factor of the prices without their contract, on all days or on
    those in `days`. `every` is the factor of all models. Groups in `unclear` are billed neither at such a
    factor nor at the contract's prices, so every cause of their price is only likely. `stated` are the days,
    models and tiers whose price a contract states.
    """

    levels: ComparableDimensions
    factors: Mapping[Group, Fraction] = field(default_factory=dict)
    days: Mapping[Group, Collection[int]] = field(default_factory=dict)
    every: Fraction | None = None
    unclear: Collection[Group] = ()
    stated: Collection[tuple[int, Group]] = ()

    @property
    def has_factors(self) -> bool:
        return bool(self.factors) or self.every is not None

    def factor_on_prices_without_contract(self, model: str, tier: str, day: int) -> Fraction | None:
        """
        Return the factor at which the bill charges the prices without a contract, or None if it charges the
        contract's prices.
        """
        group = self._compared_model_and_tier(model, tier)
        return self.factors.get(group, self.every) if day in self.days.get(group, (day,)) else None

    def _compared_model_and_tier(self, model: str, tier: str) -> Group:
        return _model_and_tier_of_cell(
            self.levels.money_cell(ComparisonCell(0, model=model, tier=normalize_tier(tier)))
        )

    def billed_factor_of_contract_use(self, use: CountedUse) -> Fraction | None:
        """
        Return the factor at which a use under a contract is billed, or None if the contract's prices apply.
        """
        return self.factor_on_prices_without_contract(use.model, use.tier, use.day) if use.contract else None

    def model_and_tier(self, use: CountedUse) -> str:
        """
        Return the model of a use. Add its tier if the tiers of the model are billed at different factors.
        """
        _, tier = self._compared_model_and_tier(use.model, use.tier)
        return f"{use.model} in tier {tier}" if tier and self.every is None else use.model

    def reprice_uses(self, counted_uses: Iterable[CountedUse]) -> list[CountedUse]:
        return [
            use if (factor := self.billed_factor_of_contract_use(use)) is None else reprice_use(use, factor)
            for use in counted_uses
        ]

    def billed_prices(self, contract_prices: Prices, prices_without_contracts: Prices) -> Prices:
        @cache
        def meter_prices(model: str, tier: str, day: int, context: int) -> Mapping[str, int]:
            factor = self.factor_on_prices_without_contract(model, tier, day)
            if factor is None:
                return contract_prices(model, tier, day, context)
            return {
                meter: round(factor * price)
                for meter, price in prices_without_contracts(model, tier, day, context).items()
            }

        return meter_prices

    def is_token_move_with_doubtful_price(self, claim: CauseClaim) -> bool:
        """
        Return whether a claim moves tokens to another model or tier, while the bill follows contracts only
        for some models, tiers or days. Then the amount of the claim depends on the contract prices, and these
        may be misjudged because of the move.
        """
        models = {model for model, _ in self.factors}
        is_of_contract = bool(models) and (not self.levels.money_model or not models.isdisjoint(claim.models))
        return claim.cause in _MOVED and self.every is None and is_of_contract

    def _is_token_move_out_of_contract(self, claim: CauseClaim) -> bool:
        """
        Return whether tokens counted at the prices of a contract have a model or tier on the bill that it does not
        cover. Their amount is then partly that of the contract.
        """
        inside, outside = set[int](), set[int]()
        for (part, cell, _), portion in claim.parts.items() if claim.cause in _MOVED else ():
            is_stated = (cell.day, _model_and_tier_of_cell(cell)) in self.stated
            if part == VOLUME and portion.tokens < 0 and is_stated:
                inside |= (
                    {cell.day}
                    if self.factor_on_prices_without_contract(cell.model, cell.tier, cell.day) is None
                    else set()
                )
            elif part == VOLUME and portion.tokens > 0 and not is_stated:
                outside.add(cell.day)
        return not inside.isdisjoint(outside)

    def doubt_if_contract_may_be_cause(self, claim: CauseClaim) -> CauseClaim:
        """
        Return a claim about prices. If the contract or a fee on every line may be the cause, the claim
        becomes only likely.
        """
        is_lasting = claim.cause in _LASTING and not claim.since and bool(self.unclear)
        is_unclear = claim.cause not in _PROVEN and any(
            part == RATE and portion.amount and _model_and_tier_of_cell(cell) in self.unclear
            for (part, cell, _), portion in claim.parts.items()
        )
        is_of_contract = self.is_token_move_with_doubtful_price(claim) or self._is_token_move_out_of_contract(
            claim
        )
        is_doubtful = is_lasting or is_unclear or is_of_contract
        return replace(claim, beside=(*claim.beside, CONTRACT_PRICE)) if is_doubtful else claim


def _model_and_tier_of_cell(cell: ComparisonCell) -> Group:
    return cell.model, cell.tier


def reprice_use(use: CountedUse, factor: Fraction) -> CountedUse:
    """Return a counted use with its values as if its contract did not apply, multiplied by `factor`."""
    values = {meter: round(factor * value) for meter, value in use.listed.items()}
    change = sum(values.values()) - sum(use.values.values())
    return replace(use, values=values, cost=use.cost + change * use.is_estimated, contract="", listed={})


def find_billed_prices(
    split_at_contract_prices: BilledCountedDifference,
    split_without_contracts: BilledCountedDifference,
    decimal_unit_by_day: Mapping[int, int],
) -> BilledPrices:
    """
    Return the models and tiers whose contract the bill does not follow: paid = f * listed, where `listed` is
    the value of the billed tokens without the contract.

    If the bill ignores the contract, f is 1 for most amounts. If it follows the contract for other groups,
    `listed` must not be a round percentage of the contract's value, because a raised price would give the
    same amounts. Groups for which the bill may ignore a part of their contract are unclear, unless one other
    factor fits them all.
    """
    groups: dict[Group, list[_PricedAmount]] = defaultdict(list)
    for priced in _amounts_priced_by_contract(
        split_at_contract_prices, split_without_contracts, decimal_unit_by_day
    ):
        groups[priced.group].append(priced)
    is_followed = any(each.is_paid_as_stated for places in groups.values() for each in places)
    factors: dict[Group, Fraction] = {}
    days: dict[Group, Collection[int]] = {}
    unclear: set[Group] = set()
    for group, places in groups.items():
        stated, listed = {each.day for each in places if each.is_paid_as_stated}, _days_at_list_prices(places)
        at_listed = [each for each in places if each.is_paid_as_listed]
        is_rise = is_followed and _is_multiple_of_half_percent(*_sum_fields(places, "listed", "stated"))
        is_proven = not is_rise and _is_difference_rounding(at_listed)
        if not stated and is_proven and 2 * len(at_listed) > len(places):
            factors[group] = Fraction(1)
        elif stated and is_proven and len(listed) >= LEAST_DAYS:
            factors[group], days[group] = Fraction(1), listed
            if {each.day for each in places} > stated | listed:
                unclear.add(group)
        elif listed or len(stated) < LEAST_DAYS:
            unclear.add(group)
    factor = _find_common_factor([place for group in unclear for place in groups[group]])
    if factor is not None:
        factors |= dict.fromkeys(unclear, factor)
        unclear = set()
    ignored = {each.day for group in factors for each in groups[group] if each.is_paid_as_listed}
    unclear |= {
        group
        for group, places in groups.items()
        if group not in factors and _is_contract_partly_ignored(places, ignored)
    }
    is_every = factors.keys() == groups.keys() and not days and len({*factors.values()}) == 1
    # this factor also applies to models that the bill names differently
    every = next(iter(factors.values())) if is_every else None
    return BilledPrices(
        levels=split_at_contract_prices.levels,
        factors=factors,
        days=days,
        every=every,
        unclear=unclear,
        stated=_places_with_contract_price(split_at_contract_prices, split_without_contracts),
    )


def _places_with_contract_price(
    split_at_contract_prices: BilledCountedDifference, split_without_contracts: BilledCountedDifference
) -> set[tuple[int, Group]]:
    return {
        (place[0].day, _model_and_tier_of_cell(place[0]))
        for place, price in split_at_contract_prices.listed.items()
        if price != split_without_contracts.listed.get(place)
        or split_at_contract_prices.values[place] != split_without_contracts.values[place]
    }


def _days_at_list_prices(places: Iterable[_PricedAmount]) -> set[int]:
    number, listed, stated = Counter[int](), Counter[int](), Counter[int]()
    for each in places:
        number[each.day] += 1
        listed[each.day] += each.is_paid_as_listed
        stated[each.day] += each.is_paid_as_stated
    return {day for day, count in listed.items() if 2 * count > number[day] and count > stated[day]}


def _is_contract_partly_ignored(
    places: Iterable[_PricedAmount], days_at_list_prices: Collection[int]
) -> bool:
    between, stated = set[int](), set[int]()
    for each in places:
        if each.is_paid_between_list_and_contract:
            between.add(each.day)
        elif each.is_paid_as_stated:
            stated.add(each.day)
    is_late = bool(between and stated) and max(between) < min(stated)
    return is_late or not between.isdisjoint(days_at_list_prices)


def _is_difference_rounding(places: Sequence[_PricedAmount]) -> bool:
    paid, listed = _sum_fields(places, "paid", "listed")
    chance = isqrt(sum(each.digit**2 for each in places))
    return abs(paid - listed) <= max(Fraction(chance), listed * Fraction(NOTHING))


def _find_common_factor(places: Sequence[_PricedAmount]) -> Fraction | None:
    """
    Return the factor f < 1 with paid = f * listed for all amounts of two models or more, or None. The price
    of a single model may have changed.

    f must be a whole percentage, as contracts state it. It must not be that of a cheaper tier. The billed
    amounts must not be a round share of those by the contract, because a fee or a further discount would give
    the same.
    """
    paid, listed = _sum_fields(places, "paid", "listed")
    if len({model for (model, _) in (each.group for each in places)}) < 2 or not 0 < paid < listed:
        return None
    factor = paid / listed
    percentage = round(100 * factor)
    is_stated = abs(100 * factor - percentage) <= 100 * _ROUND and percentage != _OF_TIERS
    if not is_stated or not all(each.is_paid_near(factor * each.listed) for each in places):
        return None
    paid, stated = _sum_fields(places, "paid", "stated")
    is_share = bool(stated) and all(each.is_paid_near(each.stated * paid / stated) for each in places)
    return None if is_share and _is_multiple_of_half_percent(paid, stated) else factor


def _sum_fields(places: Iterable[_PricedAmount], *names: str) -> Iterator[Fraction]:
    return (sum((Fraction(getattr(each, name)) for each in places), Fraction(0)) for name in names)


def _is_multiple_of_half_percent(amount: Fraction, whole: Fraction) -> bool:
    if not whole:
        return False
    steps = 200 * amount / whole
    return abs(steps - round(steps)) <= 200 * _ROUND


def _amounts_priced_by_contract(
    split_at_contract_prices: BilledCountedDifference,
    split_without_contracts: BilledCountedDifference,
    decimal_unit_by_day: Mapping[int, int],
) -> Iterator[_PricedAmount]:
    """
    Yield the amounts whose price a contract decides. Rounding must be small compared with the contract's
    effect.
    """
    for place, paid in split_at_contract_prices.paid.items():
        cell, _ = place
        stated, listed = (
            Fraction(split.worth.get(place, 0))
            for split in (split_at_contract_prices, split_without_contracts)
        )
        digit = max(decimal_unit_by_day.get(cell.day, 0), MICRO) * max(
            1, split_at_contract_prices.lines.get(place, 0)
        )
        if abs(listed - stated) > _CLEAR * digit:
            yield _PricedAmount(cell.day, _model_and_tier_of_cell(cell), paid, stated, listed, digit)


def claim_contract_price(
    bill_difference: BilledCountedDifference, counted_uses: Sequence[CountedUse], billed: BilledPrices
) -> Iterator[CauseClaim]:
    """
    Claim the difference by which the calls cost more or less at the billed prices than at the contract's
    prices.

    Afterwards, the split has the counted sums at the contract's prices.
    """
    restated = [
        use
        for use in counted_uses
        if use.is_estimated and billed.billed_factor_of_contract_use(use) is not None
    ]
    stated = sum(sum(use.values.values()) for use in restated)
    by_cell = replace_counted_sums_in_split(bill_difference, counted_uses)
    if not by_cell:
        return  # none of the calls has an estimate under a contract
    groups: dict[Fraction, set[str]] = defaultdict(set)
    for use in restated:
        groups[billed.billed_factor_of_contract_use(use) or Fraction(0)].add(billed.model_and_tier(use))
    texts = [
        f"{join_names(sorted(names))} at {'' if factor == 1 else f'{float(factor):.4f} of '}the prices "
        "without a contract"
        for factor, names in sorted(groups.items())
    ]
    yield build_claim(
        CONTRACT_PRICE,
        by_cell,
        certainty=EXACT,
        evidence=(
            f"the bill charges {' and '.join(texts)}: {format_dollars(stated + sum(by_cell.values()))} "
            "for the calls, but the "
            f"contract {join_names(sorted({use.contract for use in restated}))} states {format_dollars(stated)}"
        ),
        advice="Ask the provider for the prices of the contract, or correct it with `tollhouse contracts edit`.",
    )
