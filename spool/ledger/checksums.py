"""
Checksums of the sums of a period, which every measure, meter and set of units of work changes. Pure.

A checksum adds up all measures, each multiplied by a random number for its position. So records can be added
in any order and grouping, and memory does not grow with their number.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from operator import mul
from secrets import token_bytes
from typing import NamedTuple

from spool.cost_kinds import NONE, REPORTED
from spool.ledger.counting import replace_owners_with_other, replace_work_with_other, stored_dimensions
from spool.ledger.sums import COUNTS, MONEY, OTHER, WIDTH, Dimensions, DimensionValues, Measures, MeterSums

_ESTIMATED = len(COUNTS) + MONEY.index("estimated")
_NO_MEASURES: Measures = []
_NO_METERS: MeterSums = {}
_PRIME = (1 << 89) - 1
_MEMO = 50_000  # maximum sets of dimensions in memory


class CheckedSum(NamedTuple):
    """
    The measures or meters of calls with equal dimensions. With `units`: only of the calls for this set of
    units of work.
    """

    values: DimensionValues
    measures: Measures = _NO_MEASURES
    meters: MeterSums = _NO_METERS
    units: int | None = None


class ReproducibleSumParts(NamedTuple):
    """
    The parts of a period's sums that every recount reproduces.

    `level`: 1 if the period reached its limit of sums, so that calls lost their owners, and 2 if calls also
    lost their models. Without `has_sets`, the sums of all units are compared as one set.
    """

    level: int = 0
    has_estimates: bool = True
    has_sets: bool = True

    def comparable_dimensions(self, values: DimensionValues) -> DimensionValues:
        reduced = stored_dimensions(values)
        if self.level:
            reduced = (replace_owners_with_other, replace_work_with_other)[self.level - 1](reduced)
        of = Dimensions._make(reduced)
        if not self.has_estimates and of.cost_source != REPORTED:
            of = of._replace(cost_source=NONE)
        # PostgreSQL cannot store U+0000
        texts = [each.replace("\0", "\ufffd") if isinstance(each, str) else each for each in of]
        return Dimensions._make(texts)

    def compared_measures(self, cell: CheckedSum) -> Measures:
        if self.has_estimates:
            return cell.measures
        return [*cell.measures[:_ESTIMATED], 0, *cell.measures[_ESTIMATED + 1 :]]


def detail_level_lost_to_row_limit(dimension_values: DimensionValues) -> int:
    of = Dimensions._make(dimension_values)
    return 2 if of.team == OTHER else 1 if of.user == OTHER else 0


class Checksums:
    def __init__(self) -> None:
        self._key = token_bytes(32)
        self._factors = defaultdict[ReproducibleSumParts, dict[DimensionValues, int]](dict)
        self._of_measures = [self._pseudo_random(f"measure {index}") for index in range(WIDTH)]
        self._of_meters: dict[str, int] = {}
        self._slope, self._base = self._pseudo_random("slope"), self._pseudo_random("base")

    def checksum_of(self, compared_parts: ReproducibleSumParts, cell: CheckedSum) -> int:
        factor = self._random_factor_of_dimensions(compared_parts, cell.values)
        if cell.units is not None:
            number = cell.units if compared_parts.has_sets else 0
            factor *= (self._slope * number + self._base) % _PRIME
        if cell.measures:
            added: int = sum(map(mul, self._of_measures, compared_parts.compared_measures(cell)))
            return factor * added
        return factor * sum(self._meter_factor(name) * amount for name, amount in cell.meters.items())

    def _meter_factor(self, name: str) -> int:
        number = self._of_meters.get(name)
        if number is None:
            number = self._of_meters[name] = self._pseudo_random(f"meter {name}")
        return number

    def _random_factor_of_dimensions(
        self, compared_parts: ReproducibleSumParts, values: DimensionValues
    ) -> int:
        factors = self._factors[compared_parts]
        factor = factors.get(values)
        if factor is None:
            if len(factors) >= _MEMO:
                factors.clear()
            factor = factors[values] = self._pseudo_random(
                repr((*compared_parts.comparable_dimensions(values),))
            )
        return factor

    def _pseudo_random(self, of: str) -> int:
        return int.from_bytes(blake2b(of.encode(), key=self._key, digest_size=8).digest())
