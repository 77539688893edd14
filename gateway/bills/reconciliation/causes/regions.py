"""
Tokens that agree on both sides, but were billed at a higher price in a region. Regions are those of the
ledger, or else those of the bill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gateway.bills.reconciliation.cells import BilledCountedDifference, Regional
from gateway.bills.reconciliation.claims import STRONG, WEAK, BillComparison, CauseClaim, ClaimedPortion
from gateway.bills.reconciliation.limits import ALIKE, LARGE_SHARE, MOST_APART, MOST_LISTED, REGIONAL, SAME
from gateway.bills.reconciliation.rate_series import BilledRatioSeries, group_days_by_ratio
from gateway.bills.reconciliation.sides import ANYWHERE, RATE, ComparisonCell
from gateway.bills.reconciliation.wording import join_names

REGION = "region"

_ADVICE = (
    "Nothing is missing. List prices apply to global processing; use it where the data may leave the region."
)
_KNOWN_DAYS = "Tollhouse, on the days for which it knows regions"
_ADVICE_UNKNOWN = "Let the source report the region that processed each call, so that Tollhouse can match it."


@dataclass(frozen=True, slots=True)
class _PriceDifference:
    """
    A price difference in a cell (`amount`), with the value of its billed tokens at our prices, also by
    region.
    """

    cell: ComparisonCell
    meter: str
    amount: int
    worth: int
    regional: dict[str, int]

    def token_value_in_regions(self, regions: Collection[str]) -> int:
        return sum(self.regional.get(region, 0) for region in regions)

    def surcharge_at_factors(self, factors: Mapping[str, Decimal]) -> Decimal:
        return sum((factor * self.regional.get(region, 0) for region, factor in factors.items()), Decimal(0))


@dataclass(frozen=True, slots=True)
class _RegionFactorFit:
    """Surcharges of regions that explain the billed amounts, as shares of our price."""

    factors: Mapping[str, Decimal]
    is_published: bool
    unexplained_share: Decimal

    @property
    def regions(self) -> list[str]:
        return sorted(self.factors)

    @property
    def description(self) -> str:
        if len(set(self.factors.values())) == 1:
            factor = next(iter(self.factors.values()))
            return f"{join_names(self.regions)}, which was billed at {1 + factor:.3f} of our price"
        return (
            f"{join_names([f'{name} at {1 + self.factors[name]:.3f}' for name in self.regions])} of our price"
        )

    def sort_rank(self) -> tuple[Decimal, bool, int]:
        return round(self.unexplained_share, 3), not self.is_published, -len(self.factors)


def claim_regional_price(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim remaining price differences that are a constant share of the value of tokens processed in some
    regions.
    """
    for model in comparison.compared_models():
        ledger, statement = (
            _unclaimed_price_differences(comparison, model, comparison.split.counted_in),
            _unclaimed_price_differences(comparison, model, comparison.split.billed_in),
        )
        # earlier records may lack the region, so the last attempt uses only days with known regions
        best_claim = None
        for side_name, rates in (
            ("Tollhouse", ledger),
            ("the bill", statement),
            (_KNOWN_DAYS, _differences_with_known_regions(ledger)),
        ):
            is_counted = side_name != "the bill"
            fit = _best_fit(rates, ALIKE if is_counted else LARGE_SHARE)
            if fit is None:
                continue
            share = Decimal(sum(rate.token_value_in_regions(fit.regions) for rate in rates)) / sum(
                rate.worth for rate in rates
            )
            claim = comparison.remainder.claim_entries(
                REGION,
                [(RATE, rate.cell, rate.meter) for rate in rates],
                certainty=STRONG if fit.unexplained_share <= ALIKE else WEAK,
                evidence=(
                    f"{join_names([model]) if model else 'all tokens'}: according to {side_name}, {share:.1%} of "
                    f"the value was processed in {fit.description}"
                ),
                advice=_ADVICE if is_counted else _ADVICE_UNKNOWN,
                regions=fit.regions,
            )
            if claim is not None:
                best_claim = claim
            break
        best_claim = (
            best_claim
            or _claim_regional_surcharge_on_other_price(comparison, model, ledger, "Tollhouse")
            or _claim_regional_surcharge_on_other_price(comparison, model, statement, "the bill")
        )
        if best_claim is not None:
            yield best_claim


def _claim_regional_surcharge_on_other_price(
    comparison: BillComparison, model: str, rates: list[_PriceDifference], side_name: str
) -> CauseClaim | None:
    """
    Claim published surcharges of regions on a base price that also differs from ours.

    After the surcharges are subtracted, each kind of token must have one or few prices over all days.
    """
    worth: dict[str, int] = defaultdict(int)
    for rate in rates:
        for region, amount in rate.regional.items():
            worth[region] += amount
    names = sorted(region for region, amount in worth.items() if region not in ANYWHERE and amount > 0)
    is_rounded = all(
        comparison.is_within_rounding((RATE, rate.cell, rate.meter)) for rate in rates if rate.amount
    )
    if not names or is_rounded or _is_steady_with_surcharge(rates, (), Decimal(0)):
        return None
    candidates = [(name,) for name in names[:MOST_LISTED]] + ([tuple(names)] if len(names) > 1 else [])
    for regions in candidates:
        for dearer in REGIONAL:
            if not _is_steady_with_surcharge(rates, regions, dearer):
                continue
            portions, share = (
                {},
                Fraction(
                    sum(rate.token_value_in_regions(regions) for rate in rates), sum(e.worth for e in rates)
                ),
            )
            for rate in rates:
                plain = rate.worth + Fraction(dearer) * rate.token_value_in_regions(regions)
                added = (
                    Fraction(dearer)
                    * rate.token_value_in_regions(regions)
                    * (rate.worth + rate.amount)
                    / plain
                )
                portions[RATE, rate.cell, rate.meter] = ClaimedPortion(round(added) if rate.amount else 0)
            return comparison.remainder.claim_entries(
                REGION,
                [entry for entry, portion in portions.items() if portion.amount],
                certainty=STRONG,
                evidence=(
                    f"{join_names([model]) if model else 'all tokens'}: according to {side_name}, "
                    f"{float(share):.1%} of the value was processed in {join_names(list(regions))}, at a factor "
                    f"of {1 + dearer}; without this factor, all days have the same other price"
                ),
                advice=_ADVICE if side_name == "Tollhouse" else _ADVICE_UNKNOWN,
                regions=regions,
                portions=portions,
            )
    return None


def _is_steady_with_surcharge(
    rates: list[_PriceDifference], regions: tuple[str, ...], dearer: Decimal
) -> bool:
    sums: dict[str, tuple[dict[int, int], dict[int, int]]] = {}
    for rate in rates:
        paid, worth = sums.setdefault(rate.meter, (defaultdict(int), defaultdict(int)))
        paid[rate.cell.day] += rate.worth + rate.amount
        worth[rate.cell.day] += rate.worth + int(dearer * rate.token_value_in_regions(regions))
    series = {meter: BilledRatioSeries(paid, worth, {}) for meter, (paid, worth) in sums.items()}
    return all(rate_series.billed_ratio_periods() is not None for rate_series in series.values()) or bool(
        group_days_by_ratio(series)
    )


def has_known_regions(bill_difference: BilledCountedDifference, model: str, days: Collection[int]) -> bool:
    return any(
        cell.model == model and cell.day in days and any(regions.values())
        for (cell, _), regions in bill_difference.counted_in.items()
    )


def _differences_with_known_regions(rates: list[_PriceDifference]) -> list[_PriceDifference]:
    days = {rate.cell.day for rate in rates if any(rate.regional.values())}
    known_rates = [rate for rate in rates if rate.cell.day in days]
    return known_rates if len(known_rates) < len(rates) else []


def _unclaimed_price_differences(
    comparison: BillComparison, model: str, regional: Regional
) -> list[_PriceDifference]:
    split = comparison.split
    amounts = comparison.remainder.amounts
    return [
        _PriceDifference(
            cell, meter, amounts.get((RATE, cell, meter), 0), worth, regional.get((cell, meter), {})
        )
        for (cell, meter), worth in split.worth.items()
        if cell.model == model
        and worth > 0
        and (cell, meter) in split.paid
        and ((RATE, cell, meter) in amounts or (RATE, cell, meter) not in split.parts)
    ]


def _best_fit(rates: list[_PriceDifference], tolerance: float) -> _RegionFactorFit | None:
    worth: dict[str, int] = defaultdict(int)
    for rate in rates:
        for region, amount in rate.regional.items():
            if region not in ANYWHERE and amount > 0:
                worth[region] += amount
    largest = sorted(worth, key=lambda region: (-worth[region], region))[:MOST_LISTED]
    candidates = [(region,) for region in largest] + ([tuple(sorted(worth))] if len(worth) > 1 else [])
    fits = [
        fit
        for regions in candidates
        if (fit := _fit_one_factor_for_regions(rates, regions, tolerance)) is not None
    ]
    return (
        min(fits, key=_RegionFactorFit.sort_rank)
        if fits
        else _fit_factor_per_region(rates, largest[:MOST_APART], tolerance)
    )


def _fit_one_factor_for_regions(
    rates: list[_PriceDifference], regions: tuple[str, ...], tolerance: float
) -> _RegionFactorFit | None:
    inside = sum(rate.token_value_in_regions(regions) for rate in rates)
    if not inside:
        return None
    factor = Decimal(sum(rate.amount for rate in rates)) / inside
    return _fit_if_plausible(rates, dict.fromkeys(regions, factor), tolerance)


def _fit_factor_per_region(
    rates: list[_PriceDifference], regions: list[str], tolerance: float
) -> _RegionFactorFit | None:
    if len(regions) < 2 or len(rates) < 4 * len(regions):
        return None
    columns = [[rate.regional.get(region, 0) for rate in rates] for region in regions]
    right = [rate.amount for rate in rates]
    equations = [  # least squares
        [Fraction(sum(a * b for a, b in zip(row, column, strict=True))) for column in (*columns, right)]
        for row in columns
    ]
    solution = _solve_equations(equations)
    if solution is None:
        return None
    factors = {
        region: Decimal(fraction.numerator) / fraction.denominator
        for region, fraction in zip(regions, solution, strict=True)
    }
    return _fit_if_plausible(
        rates, {region: factor for region, factor in factors.items() if abs(factor) >= SAME}, tolerance
    )


def _solve_equations(equations: list[list[Fraction]]) -> list[Fraction] | None:
    """
    Solve linear equations; the last number of each row is the right side. Return None if there is no unique
    solution.
    """
    size = len(equations)
    for column in range(size):
        pivot = next((row for row in range(column, size) if equations[row][column]), None)
        if pivot is None:
            return None
        equations[column], equations[pivot] = equations[pivot], equations[column]
        divisor = equations[column][column]
        equations[column] = [value / divisor for value in equations[column]]
        for row in range(size):
            if row != column and (factor := equations[row][column]):
                pairs = zip(equations[row], equations[column], strict=True)
                equations[row] = [value - factor * pivot_value for value, pivot_value in pairs]
    return [row[-1] for row in equations]


def _fit_if_plausible(
    rates: list[_PriceDifference], factors: Mapping[str, Decimal], tolerance: float
) -> _RegionFactorFit | None:
    """
    Return the fit of these factors, or None if it is not plausible. Each region must cost more, and the
    factors must explain nearly the whole difference. Unless they are published, one factor for all regions
    must fit badly.
    """
    size = sum(abs(rate.amount) for rate in rates)
    if not size or not factors or min(factors.values()) < SAME:
        return None
    of_all = Decimal(sum(rate.amount for rate in rates)) / sum(rate.worth for rate in rates)
    unexplained_share = (
        sum((abs(rate.amount - rate.surcharge_at_factors(factors)) for rate in rates), Decimal(0)) / size
    )
    by_one_factor = sum((abs(rate.amount - of_all * rate.worth) for rate in rates), Decimal(0)) / size
    is_published = all(any(abs(factor - known) <= SAME for known in REGIONAL) for factor in factors.values())
    if unexplained_share > (tolerance if is_published else ALIKE) or not (
        is_published or by_one_factor > LARGE_SHARE
    ):
        return None
    return _RegionFactorFit(factors, is_published, unexplained_share)
