"""
Prices of contracts that a bill does not charge. The calls are restated at the billed prices, with which other checks
then compare. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.bills.reconciliation.cells import Split
from gateway.bills.reconciliation.claims import EXACT, OF_PRICES, Claim, claim_of
from gateway.bills.reconciliation.limits import LEAST_DAYS, MICRO, NOTHING
from gateway.bills.reconciliation.restating import undone
from gateway.bills.reconciliation.sides import CountedUse, Prices
from gateway.bills.reconciliation.wording import dollars, named

CONTRACT_PRICE = "contract_price"
_CLEAR = 4  # times the rounding of a place; a smaller difference may be rounding


@dataclass(frozen=True, slots=True)
class _Priced:
    """
    The amounts of a place: billed, at the prices of the contract, and without it. Rounding may change them by `digit`.
    """

    day: int
    model: str
    paid: int
    stated: Fraction
    listed: Fraction
    digit: int

    def is_at(self, amount: Fraction) -> bool:
        return abs(self.paid - amount) <= max(Fraction(self.digit), abs(amount) * Fraction(NOTHING))


@dataclass(frozen=True, kw_only=True)
class BilledPrices:
    """
    Models that are billed at a factor of the prices without their contract. `is_unclear` means that some models are
    billed neither at these prices nor at those of the contract, so that no other cause of a price is a fact.
    """

    factors: Mapping[str, Fraction] = field(default_factory=dict)
    is_unclear: bool = False

    def restated(self, counted: Iterable[CountedUse]) -> list[CountedUse]:
        """Return the uses at the billed prices."""
        return [
            reprice_use(use, self.factors[use.model]) if use.contract and use.model in self.factors else use
            for use in counted
        ]

    @classmethod
    def all_listed(cls, models: Iterable[str]) -> BilledPrices:
        """Return the prices without contracts."""
        return cls(factors=dict.fromkeys(models, Fraction(1)))

    def prices(self, of_contracts: Prices, without: Prices) -> Prices:
        """Return the billed prices per token."""

        def prices(model: str, tier: str, day: int, context: int) -> Mapping[str, int]:
            if model not in self.factors:
                return of_contracts(model, tier, day, context)
            factor = self.factors[model]
            return {
                meter: round(factor * price) for meter, price in without(model, tier, day, context).items()
            }

        return prices

    def as_hint_if_unclear(self, claim: Claim) -> Claim:
        """Return a claim about prices as a hint if the contract may be their cause."""
        if self.is_unclear and claim.cause in OF_PRICES | {"fee", "key_price"}:
            return replace(claim, beside=(*claim.beside, CONTRACT_PRICE))
        return claim


def reprice_use(use: CountedUse, factor: Fraction) -> CountedUse:
    """Return a use at a factor of the prices without its contract."""
    values = {meter: round(factor * value) for meter, value in use.listed.items()}
    change = sum(values.values()) - sum(use.values.values())
    return replace(use, values=values, cost=use.cost + change * use.is_estimated, contract="", listed={})


def find_billed_prices(
    of_contracts: Split, without: Split, precision: Mapping[int, int], models: Iterable[str]
) -> BilledPrices:
    """
    Return the models whose contract the bill does not follow: paid = f * listed, where `listed` is the value of the
    billed tokens without the contract. The splits have the prices with and without contracts.

    f is 1, at most places, if the bill ignores the contract. A smaller factor must be the same at all places of two
    models or more, because the price of one model may have changed.
    """
    by_model: dict[str, list[_Priced]] = defaultdict(list)
    for priced in _priced(of_contracts, without, precision):
        by_model[priced.model].append(priced)
    factors: dict[str, Fraction] = {}
    unclear: set[str] = set()
    for model, places in by_model.items():
        at_listed = sum(each.is_at(each.listed) for each in places)
        at_stated = [each for each in places if each.is_at(each.stated)]
        if at_listed * 2 > len(places) and at_listed > len(at_stated):
            factors[model] = Fraction(1)
        elif len({each.day for each in at_stated}) < LEAST_DAYS:
            unclear.add(model)
    places = [place for model in unclear for place in by_model[model]]
    listed = sum((each.listed for each in places), Fraction(0))
    if len(unclear) > 1 and listed:
        factor = sum(each.paid for each in places) / listed
        if factor < 1 and all(each.is_at(factor * each.listed) for each in places):
            factors |= dict.fromkeys(unclear, factor)
    if by_model.keys() == factors.keys() and len({*factors.values()}) == 1:
        # also models that the bill names otherwise
        factors = dict.fromkeys(models, next(iter(factors.values())))
    return BilledPrices(factors=factors, is_unclear=not unclear <= factors.keys())


def _priced(of_contracts: Split, without: Split, precision: Mapping[int, int]) -> Iterator[_Priced]:
    """Yield the places in which a contract decides prices. Rounding must be small next to the difference."""
    for place, paid in of_contracts.paid.items():
        cell, _ = place
        stated, listed = (Fraction(split.worth.get(place, 0)) for split in (of_contracts, without))
        digit = max(precision.get(cell.day, 0), MICRO) * max(1, of_contracts.lines.get(place, 0))
        if abs(listed - stated) > _CLEAR * digit:
            yield _Priced(cell.day, cell.model, paid, stated, listed, digit)


def contract_price(split: Split, counted: Sequence[CountedUse], billed: BilledPrices) -> Iterator[Claim]:
    """
    Claim the cost of the calls at the billed prices, minus their cost at the prices of the contract.

    Afterwards, the split has the counted sums at the prices of the contract.
    """
    restated = [use for use in counted if use.contract and use.is_estimated and use.model in billed.factors]
    stated = sum(sum(use.values.values()) for use in restated)
    by_cell = undone(split, counted)
    if not by_cell:
        return  # no call has an estimate under a contract
    groups = defaultdict(list)
    for model in {use.model for use in restated}:
        groups[billed.factors[model]].append(model)
    texts = [
        f"{named(sorted(models))} at {'' if factor == 1 else f'{float(factor):.4f} of '}the prices without a contract"
        for factor, models in sorted(groups.items())
    ]
    yield claim_of(
        CONTRACT_PRICE,
        by_cell,
        sure=EXACT,
        evidence=(
            f"the bill charges {' and '.join(texts)}: {dollars(stated + sum(by_cell.values()))} for the calls, but the "
            f"contract {named(sorted({use.contract for use in restated}))} states {dollars(stated)}"
        ),
        advice="Ask the provider for the prices of the contract, or correct it with `tollhouse contracts edit`.",
    )
