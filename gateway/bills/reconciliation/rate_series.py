"""Billed amounts and values at our prices by day, for kinds of tokens of a model. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gateway.bills.reconciliation.cells import BilledCountedDifference
from gateway.bills.reconciliation.limits import MOST_SETS, SAME
from gateway.bills.reconciliation.sides import ComparisonCell


@dataclass(frozen=True, slots=True)
class BilledRatioSeries:
    """
    By day, the billed amount (`paid`), the value at our prices (`worth`) and the billed tokens (`sold`) of
    one meter of a model, over all keys and tiers. Days without a value are omitted.
    """

    paid: Mapping[int, int]
    worth: Mapping[int, int]
    sold: Mapping[int, int]

    def billed_ratio(self, days: set[int] | None = None) -> Decimal:
        """Return the billed amount divided by the value at our prices, over all days or the given ones."""
        chosen = set(self.worth) if days is None else days
        return Decimal(sum(self.paid.get(day, 0) for day in chosen)) / sum(
            self.worth.get(day, 0) for day in chosen
        )

    def billed_ratio_periods(self) -> list[tuple[int, Decimal]] | None:
        """
        Return the first day and billed ratio of each period with a constant ratio. Return None if there are
        more than two periods.
        """
        ratio_steps: list[tuple[int, Decimal]] = []
        for day in sorted(self.worth):
            ratio = Decimal(self.paid.get(day, 0)) / self.worth[day]
            if not ratio_steps or abs(ratio - ratio_steps[-1][1]) > SAME * max(ratio, ratio_steps[-1][1]):
                ratio_steps.append((day, ratio))
        return ratio_steps if len(ratio_steps) <= 2 else None

    def is_steady(self) -> bool:
        """
        Return whether the ratio of billed amount to value is constant or changes once. A single day does not
        prove a change.
        """
        steps = self.billed_ratio_periods()
        if steps is None or len(steps) == 1:
            return steps is not None
        before = sum(day < steps[1][0] for day in self.worth)
        return 1 < before < len(self.worth) - 1


# a function that returns the remaining amount billed for tokens, or None if nothing is left
Paid = Callable[[ComparisonCell, str], int | None]


def model_rate_series(
    bill_difference: BilledCountedDifference,
    model: str,
    meters: Collection[str],
    billed_amount_of: Paid | None = None,
) -> dict[str, BilledRatioSeries]:
    return cell_rate_series(bill_difference, bill_difference.cells_of_model(model), meters, billed_amount_of)


def cell_rate_series(
    bill_difference: BilledCountedDifference,
    cells: Collection[ComparisonCell],
    meters: Collection[str],
    billed_amount_of: Paid | None = None,
) -> dict[str, BilledRatioSeries]:
    """
    Return the daily billed amounts and values of some cells, by billed meter. `billed_amount_of` returns the billed
    amount to use, by default the whole.
    """
    sums: dict[str, tuple[dict[int, int], dict[int, int], dict[int, int]]] = {}
    for (cell, meter), worth in bill_difference.worth.items():
        if (
            cell not in cells
            or meter not in meters
            or worth <= 0
            or (cell, meter) not in bill_difference.paid
        ):
            continue
        amount = (
            bill_difference.paid[cell, meter] if billed_amount_of is None else billed_amount_of(cell, meter)
        )
        if amount is None:
            continue
        paid, values, sold = sums.setdefault(meter, (defaultdict(int), defaultdict(int), defaultdict(int)))
        paid[cell.day] += amount
        values[cell.day] += worth
        sold[cell.day] += bill_difference.sold[cell, meter]
    return {meter: BilledRatioSeries(*meter_sums) for meter, meter_sums in sums.items()}


def days_with_rates(meters: Mapping[str, BilledRatioSeries]) -> set[int]:
    return {day for series in meters.values() for day in series.worth}


def group_days_by_ratio(
    meters: Mapping[str, BilledRatioSeries],
) -> list[tuple[list[int], dict[str, Decimal]]]:
    """
    Group the days, which need not be adjacent, by equal ratios of billed amount to value. Each group has only
    the ratios that differ from 1.

    Return nothing if there are more than MOST_SETS groups, if a single day differs in only one kind of token,
    or if several days differ each in another way. Such differences prove no price of some days.
    """
    day_sets: list[tuple[list[int], dict[str, Decimal]]] = []
    for day in sorted(days_with_rates(meters)):
        ratios = {
            meter: series.billed_ratio({day}) for meter, series in meters.items() if day in series.worth
        }
        for days, known in day_sets:
            if all(
                meter not in known or abs(known[meter] - ratio) <= SAME * max(ratio, known[meter])
                for meter, ratio in ratios.items()
            ):
                days.append(day)
                known.update({meter: ratio for meter, ratio in ratios.items() if meter not in known})
                break
        else:
            day_sets.append(([day], ratios))
    sets = [
        (days, {m: ratio for m, ratio in ratios.items() if abs(ratio - 1) > SAME})
        for days, ratios in day_sets
    ]
    is_chance = any(ratios and len(days) < 2 and len(ratios) < 2 for days, ratios in sets)
    single = sum(bool(ratios) and len(days) < 2 for days, ratios in sets)
    return (
        []
        if len(sets) > MOST_SETS or is_chance or single > 1
        else [(days, ratios) for days, ratios in sets if ratios]
    )


def usual_billed_ratio_finder(
    bill_difference: BilledCountedDifference,
    model: str,
    billed_amount_of: Paid,
    is_usual: Callable[[ComparisonCell, str], bool],
) -> Callable[[ComparisonCell, str], tuple[list[Fraction], bool]]:
    """
    Return a function that returns possible ratios of billed amount to value for a cell and kind of token. The
    most likely ratio is first: that of the same cell and kind, then of its day and kind, then of its day.

    Only amounts for which `is_usual` holds are used. If the day has none, the function returns the ratios of
    the kind on the nearest days, and False.
    """
    paid: dict[tuple[object, str], int] = defaultdict(int)
    worth: dict[tuple[object, str], int] = defaultdict(int)
    for (cell, meter), value in bill_difference.worth.items():
        if (
            cell.model != model
            or value <= 0
            or (cell, meter) not in bill_difference.paid
            or not is_usual(cell, meter)
        ):
            continue
        amount = billed_amount_of(cell, meter)
        for name in ((cell, meter), (cell.day, meter), (cell.day, "")) if amount is not None else ():
            paid[name] += amount or 0
            worth[name] += value
    days = sorted({cell.day for cell in bill_difference.cells_of_model(model)})

    def usual_billed_ratios_at(cell: ComparisonCell, meter: str) -> tuple[list[Fraction], bool]:
        of_day = [name for name in ((cell, meter), (cell.day, meter), (cell.day, "")) if name in worth]
        earlier = [(day, meter) for day in days if day < cell.day and (day, meter) in worth]
        later = [(day, meter) for day in days if day > cell.day and (day, meter) in worth]
        names = of_day or [*earlier[-1:], *later[:1]]
        return [Fraction(paid[name], worth[name]) for name in names] or [Fraction(1)], bool(of_day)

    return usual_billed_ratios_at
