"""What was paid for a kind of token of a model and what it is worth at our prices, day by day. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gateway.reconciliation.cells import Split

SAME = Decimal("0.005")  # ratios that are this near are one


@dataclass(frozen=True, slots=True)
class RateSeries:
    """One meter of a model by day, over all keys and tiers; days without a worth are left out."""

    paid: Mapping[int, int]
    worth: Mapping[int, int]
    sold: Mapping[int, int]

    def ratio(self, days: set[int] | None = None) -> Decimal:
        """Paid, of what it is worth; of all days unless some are given."""
        chosen = set(self.worth) if days is None else days
        return Decimal(sum(self.paid.get(day, 0) for day in chosen)) / sum(self.worth.get(day, 0) for day in chosen)

    def steps(self) -> list[tuple[int, Decimal]] | None:
        """The first days of constant ratios, two at most; None if it changes more often."""
        found: list[tuple[int, Decimal]] = []
        for day in sorted(self.worth):
            ratio = Decimal(self.paid.get(day, 0)) / self.worth[day]
            if not found or abs(ratio - found[-1][1]) > SAME * max(ratio, found[-1][1]):
                found.append((day, ratio))
        return found if len(found) <= 2 else None


def of_model(split: Split, model: str, meters: Collection[str]) -> dict[str, RateSeries]:
    """The series of some meters of a model, those that a statement bills."""
    sums: dict[str, tuple[dict[int, int], dict[int, int], dict[int, int]]] = {}
    for (cell, meter), worth in split.worth.items():
        if cell.model != model or meter not in meters or worth <= 0 or (cell, meter) not in split.paid:
            continue
        paid, values, sold = sums.setdefault(meter, (defaultdict(int), defaultdict(int), defaultdict(int)))
        paid[cell.day] += split.paid[cell, meter]
        values[cell.day] += worth
        sold[cell.day] += split.sold[cell, meter]
    return {meter: RateSeries(*each) for meter, each in sums.items()}
