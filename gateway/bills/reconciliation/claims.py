"""
Claims about the causes of a difference. Each claim takes its exact part of the difference, and the next check
sees only the remainder. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from gateway.bills.reconciliation.cells import BilledCountedDifference, DifferenceEntry
from gateway.bills.reconciliation.limits import ALIKE, LARGE_SHARE, LEAST_DAYS, MICRO, MOST_LISTED, NOTHING
from gateway.bills.reconciliation.rate_series import model_rate_series
from gateway.bills.reconciliation.sides import (
    OTHER,
    RATE,
    VOLUME,
    Commitment,
    ComparisonCell,
    ContractSum,
    CountedUse,
    MeterPlace,
)
from gateway.bills.reconciliation.wording import format_dollars

# EXACT: an id proves the cause. STRONG: two independent numbers agree. WEAK: only the shape of the difference
# suggests the cause.
EXACT, STRONG, WEAK = "exact", "strong", "weak"
# groups of claims that may explain the same difference: about the same days and models, about prices, about
# kinds of input
OTHERS, PRICES, KINDS = "(others)", "(prices)", "(kinds)"
OF_PRICES = frozenset({"price_change", "price_on_days", "discount", "tier", "region", "long_context"})
OF_KINDS = frozenset({"cache_split", "cache_ttl_1h"})
TIER_NOT_GIVEN = "tier_not_given"


class ClaimedPortion(NamedTuple):
    amount: int
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseClaim:
    """
    A cause and its part of the difference. `amount` and `tokens` are billed minus counted. `sure`: certainty.

    `moved` is the cause's size: the sum of the absolute amounts per day, halved if amounts only move between
    days. `is_of_tokens` means that the cause is about tokens or their prices, not about other lines of a
    bill. `parts`: claimed portion by entry.
    """

    cause: str
    amount: int
    tokens: int
    moved: int
    sure: str
    evidence: str
    advice: str
    days: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    by_cell: Mapping[ComparisonCell, int] = field(default_factory=dict, repr=False)
    since: int = 0  # first day of the claim; 0 means all days
    is_of_tokens: bool = True
    beside: tuple[str, ...] = ()  # other causes that would explain the same amounts
    parts: Mapping[DifferenceEntry, ClaimedPortion] = field(default_factory=dict, repr=False)

    @property
    def is_hint(self) -> bool:
        """Return whether the cause is only likely, so that its amount stays unexplained."""
        return self.sure == WEAK or bool(self.beside)


def build_claim(
    cause: str,
    by_cell: Mapping[ComparisonCell, int],
    *,
    certainty: str,
    evidence: str,
    advice: str,
    tokens: int = 0,
    exchanges_between_days: bool = False,
    keys: Iterable[str] = (),
    regions: Iterable[str] = (),
    since_day: int = 0,
    is_of_tokens: bool = True,
    alternative_causes: Iterable[str] = (),
    claimed_portions: Mapping[DifferenceEntry, ClaimedPortion] | None = None,
) -> CauseClaim:
    """Return a claim. `exchanges_between_days`: amounts only move between days, so `moved` counts each once."""
    by_day: dict[int, int] = defaultdict(int)
    for cell, amount in by_cell.items():
        by_day[cell.day] += amount
    moved = sum(map(abs, by_day.values()))
    return CauseClaim(
        cause=cause,
        amount=sum(by_cell.values()),
        tokens=tokens,
        moved=moved // 2 if exchanges_between_days else moved,
        sure=certainty,
        evidence=evidence,
        advice=advice,
        days=tuple(sorted(by_day)),
        models=tuple(sorted({cell.model for cell in by_cell if cell.model})[:MOST_LISTED]),
        keys=tuple(sorted({cell.key for cell in by_cell if cell.key}.union(keys))[:MOST_LISTED]),
        regions=tuple(sorted(regions)[:MOST_LISTED]),
        by_cell=dict(by_cell),
        since=since_day,
        is_of_tokens=is_of_tokens,
        beside=tuple(dict.fromkeys(alternative_causes)),
        parts=claimed_portions or {},
    )


@dataclass(frozen=True, kw_only=True)
class BillComparison:
    """
    The sides that searches for causes compare, and the `remainder` that no claim explains yet.

    `key_tokens`: billed tokens of provider keys that match none of ours, by key and then by day and model.
    `own_keys`: tokens by day of our keys that match none of the provider's. `hours`: counted tokens by hour,
    including one day before and after. `precision`: the last digit of the bill's amounts, by day.
    `are_failed_known`: the tokens prove which failed calls the bill leaves out. `uses`: the counted uses,
    under their own keys. `commitments`: the capacity that contracts with the provider state. `sums`: other
    amounts of contracts. `late_days`: days to which the bill added the rows of earlier days. `awaiting`: the last days
    of bills whose next bill is not imported yet.
    """

    split: BilledCountedDifference
    remainder: UnexplainedDifference
    key_tokens: Mapping[str, Mapping[tuple[int, str], int]] = field(default_factory=dict)
    own_keys: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    days: tuple[int, ...] = ()
    precision: Mapping[int, int] = field(default_factory=dict)
    are_failed_known: bool = True
    uses: Sequence[CountedUse] = ()
    commitments: Sequence[Commitment] = ()
    sums: Sequence[ContractSum] = ()
    late_days: Collection[int] = ()
    awaiting: Collection[int] = ()

    def is_within_rounding(self, entry: DifferenceEntry, value_at_other_prices: int | None = None) -> bool:
        """
        Return whether the price difference of an entry is at most half of the last digit per billed line.

        `value_at_other_prices` is the value of the tokens if it differs from that at our prices.
        """
        _, cell, meter = entry
        digit = self.precision.get(cell.day, 0)
        left = self.remainder.amounts.get(entry, 0)
        if value_at_other_prices is not None:
            # the provider may round both before and after it applies a factor
            left += self.split.worth[cell, meter] - value_at_other_prices
            digit *= 2
        return 2 * abs(left) <= digit * max(1, self.split.lines.get((cell, meter), 0))

    def largest_rounding_error(self, meter_place: MeterPlace) -> int:
        """
        Return the largest rounding error of a billed amount. Each of its lines may have been rounded before a
        factor such as a discount was applied.
        """
        digit: int = max(self.precision.get(meter_place[0].day, 0), MICRO)
        return digit * max(1, self.split.lines.get(meter_place, 0))

    def is_negligible(self, meter_place: MeterPlace, amount: int) -> bool:
        return abs(amount) <= max(
            self.largest_rounding_error(meter_place), int(abs(self.split.worth[meter_place]) * NOTHING)
        )

    def are_amounts_as_expected(
        self, unclaimed_amounts: Mapping[MeterPlace, int], expected_amounts: Mapping[MeterPlace, int]
    ) -> bool:
        """
        Return whether the unclaimed amounts are as expected. Differences within the rounding, or
        within the share NOTHING of the value, are ignored. The rounding must be small compared with the
        amounts, because otherwise it fits any amount.
        """
        are_near = all(
            self.is_negligible(place, amount - expected_amounts.get(place, 0))
            for place, amount in unclaimed_amounts.items()
        )
        size = sum(abs(amount) for amount in unclaimed_amounts.values())
        chance = sum(
            self.largest_rounding_error(place) for place in unclaimed_amounts if expected_amounts.get(place)
        )
        return are_near and chance <= LARGE_SHARE * size

    def are_few_days(self, days: Collection[int]) -> bool:
        return len(days) < min(LEAST_DAYS, len(self.days))

    def price_difference_entries(self, model: str) -> list[DifferenceEntry]:
        """Return the parts of the difference that are due to a model's prices, including those of 0."""
        return [
            (RATE, cell, meter)
            for (cell, meter), worth in self.split.worth.items()
            if cell.model == model and worth > 0 and (cell, meter) in self.split.paid
        ]

    def claim_entries_with_price_differences(
        self,
        cause: str,
        entries: list[DifferenceEntry],
        certainty: str,
        evidence: str,
        advice: str,
        portions: Mapping[DifferenceEntry, ClaimedPortion] | None = None,
        alternative_causes: Sequence[str] = (),
    ) -> Iterator[CauseClaim]:
        """
        Claim portions of `entries` (parts of the difference). Without `portions`, claim whole entries
        together with the price differences in their cells.
        """
        entries = entries if portions else self.remainder.with_price_differences(entries)
        claim = self.remainder.claim_entries(
            cause,
            entries,
            certainty=certainty,
            evidence=evidence,
            advice=advice,
            portions=portions,
            alternative_causes=alternative_causes,
        )
        if claim is not None:
            yield claim

    def compared_models(self) -> list[str]:
        return sorted(
            {cell.model for cell in (*self.split.billed, *self.split.counted, *self.split.billed_money)}
        )


class UnexplainedDifference:
    def __init__(self, bill_difference: BilledCountedDifference) -> None:
        self._split = bill_difference
        self.amounts: dict[DifferenceEntry, int] = dict(bill_difference.parts)
        self.extra: dict[MeterPlace, int] = dict(bill_difference.extra)
        # cells whose calls are missing on one side, as a claim explains
        self.explained: set[ComparisonCell] = set()
        # keys and models with calls of another tier that were not reported as such
        self.unreported_tiers: set[tuple[str, str]] = set()
        # models with calls on both sides, for which a claim already explains tokens
        self.changed: set[str] = set()
        # cells in which a claim that is only likely makes the remaining tokens uncertain
        self.doubtful: set[ComparisonCell] = set()
        self.may_be_silent: list[int] = []  # hours without calls that may be silent by chance
        self.shift = 0  # hours by which the ledger's times are ahead of the bill's days
        self._priced: set[MeterPlace] = set()  # places whose whole price difference a claim explains
        # cells of the finest level, by the cell of the bill's amounts and meter
        self._fine: dict[MeterPlace, list[ComparisonCell]] = defaultdict(list)

    def remaining_billed_amount(self, cell: ComparisonCell, meter: str) -> int | None:
        """
        Return the billed amount without portions that claims explain. Return None if a claim explains the
        whole price, or the missing tokens of all its cells, because their price may differ.
        """
        entry = (RATE, cell, meter)
        if (cell, meter) in self._priced or (
            entry not in self.amounts and self._are_cells_explained(cell, meter)
        ):
            return None
        return self._split.paid[cell, meter] - self._split.parts.get(entry, 0) + self.amounts.get(entry, 0)

    def _are_cells_explained(self, cell: ComparisonCell, meter: str) -> bool:
        if not self._fine:
            for fine, kind in self._split.values:
                self._fine[self._split.levels.money_cell(fine), kind].append(fine)
        cells = self._fine.get((cell, meter), ())
        return bool(cells) and all(related_cell in self.explained for related_cell in cells)

    def token_difference_entries(self) -> list[DifferenceEntry]:
        """
        Return the entries of tokens that only the bill or only the ledger has, including those without a
        price.
        """
        return [(VOLUME, cell, meter) for cell, meter in self.extra]

    def with_price_differences(self, token_entries: Iterable[DifferenceEntry]) -> list[DifferenceEntry]:
        """
        Return the entries of tokens that only one side has, and the price differences in their cells that
        belong to these tokens.

        Calls that only one side has may be larger than others, or of an unstated tier. Then a price
        difference appears only on their days, while a real price difference is the same every day. If all
        calls of a model have the list price, the difference must also be the same share of these tokens'
        value in each cell.
        """
        entries = list(token_entries)
        coarse = {self._split.levels.money_cell(cell) for _, cell, _ in entries}
        for model in {cell.model for cell in coarse}:
            rates = [entry for entry in self.rate_entries(model) if entry[1] in coarse]
            series = model_rate_series(
                self._split, model, {meter for _, _, meter in rates}, self.remaining_billed_amount
            )
            unsteady = {meter for meter, meter_series in series.items() if not meter_series.is_steady()}
            of_calls = [entry for entry in rates if entry[2] in unsteady or entry[2] not in series]
            if (
                model in self._split.varying
                or not self._split.levels.tier
                or self._are_price_amounts_constant_share_of_tokens(entries, of_calls)
            ):
                entries += of_calls
        return entries

    def price_portions_of_entries(
        self, entries: Sequence[DifferenceEntry]
    ) -> dict[DifferenceEntry, ClaimedPortion]:
        """
        Return the portions of price differences that belong to `entries`, in proportion to the value of the
        tokens. A price difference that no other entry shares is left out.
        """
        chosen = set(entries)
        own_worth: dict[MeterPlace, int] = defaultdict(int)
        whole: dict[MeterPlace, int] = defaultdict(int)
        for entry in self.token_difference_entries():
            cell_meter = self._split.levels.money_cell(entry[1]), entry[2]
            worth = abs(self.amounts.get(entry, 0))
            whole[cell_meter] += worth
            own_worth[cell_meter] += worth if entry in chosen else 0
        return {
            entry: self.portion_of_entry(entry, Fraction(own_worth[cell_meter], whole[cell_meter]))
            for entry in entries
            if entry[0] == RATE and 0 < own_worth[cell_meter := (entry[1], entry[2])] < whole[cell_meter]
        }

    def _are_price_amounts_constant_share_of_tokens(
        self, token_entries: Sequence[DifferenceEntry], price_entries: Sequence[DifferenceEntry]
    ) -> bool:
        worth: dict[MeterPlace, int] = defaultdict(int)
        for entry in token_entries:
            if entry[0] == VOLUME:
                worth[self._split.levels.money_cell(entry[1]), entry[2]] += self.amounts.get(entry, 0)
        whole = sum(worth[cell, meter] for _, cell, meter in price_entries)
        if not whole:
            return False
        share = Fraction(sum(self.amounts[entry] for entry in price_entries), whole)
        deviation = sum(
            abs(self.amounts[entry] - share * worth[entry[1], entry[2]]) for entry in price_entries
        )
        return deviation <= ALIKE * sum(abs(self.amounts[entry]) for entry in price_entries)

    def entries_of_difference_part(self, part: str) -> list[DifferenceEntry]:
        return [entry for entry in self.amounts if entry[0] == part]

    def rate_entries(self, model: str) -> list[DifferenceEntry]:
        return [entry for entry in self.entries_of_difference_part(RATE) if entry[1].model == model]

    def claim_entries(
        self,
        cause: str,
        entries: Iterable[DifferenceEntry],
        *,
        certainty: str,
        evidence: str,
        advice: str,
        exchanges_between_days: bool = False,
        since_day: int = 0,
        regions: Iterable[str] = (),
        portions: Mapping[DifferenceEntry, ClaimedPortion] | None = None,
        explains_calls: bool = False,
        alternative_causes: Iterable[str] = (),
        are_prices_known: bool = False,
    ) -> CauseClaim | None:
        """
        Claim whole entries (parts of the difference), or `portions` of some. Return None if nothing of them
        is left to claim.

        Portions may include entries that are 0 because two causes cancel out. `explains_calls`: only one side
        has calls in these cells, so later checks do not compare the number of calls there. `alternative_causes`: other
        causes that would explain the same amounts; OTHERS, PRICES and KINDS stand for the causes that other
        checks claim in these cells. `are_prices_known`: the cause itself explains the price differences.
        """
        amount = tokens = priced = prices = 0
        by_cell: dict[ComparisonCell, int] = defaultdict(int)
        entries = list(entries)
        is_any_taken, parts = False, set()
        taken: dict[DifferenceEntry, ClaimedPortion] = {}
        touched = {cell for part, cell, _ in entries if part == VOLUME}
        if not touched.isdisjoint(self.doubtful):
            certainty = WEAK
        if certainty == WEAK or alternative_causes:
            self.doubtful |= touched
        priced_whole: set[MeterPlace] = set()
        for entry in entries:
            part, cell, meter = entry
            share = self.amounts.pop(entry, None)
            moved_tokens = self.extra.pop((cell, meter), None) if part == VOLUME else None
            portion = portions.get(entry) if portions else None
            if share is None and moved_tokens is None and portion is None:
                continue
            if portion is not None:
                share, moved_tokens = self._reduce_entry(entry, share, moved_tokens, portion)
            is_any_taken = True
            taken[entry] = ClaimedPortion(share or 0, moved_tokens or 0)
            parts.add(part)
            if part == RATE and portion is None:
                priced_whole.add((cell, meter))
            if part == VOLUME and explains_calls:
                self.explained.add(cell)
            elif part == VOLUME:
                self.changed.add(cell.model)
            amount += share or 0
            priced += (share or 0) if part == RATE else 0
            prices += abs(share or 0) if part == RATE else 0
            tokens += moved_tokens or 0
            by_cell[cell] += share or 0
        if not is_any_taken:
            return None
        # a difference in tokens says nothing about the price
        if not portions or VOLUME in parts:
            self._priced |= priced_whole
        # the price differences of different tokens may cancel each other out
        if VOLUME in parts and prices > ALIKE * abs(amount) and not are_prices_known:
            evidence += f"; {format_dollars(priced)} of it is a different price of these tokens"
            alternative_causes = (*alternative_causes, PRICES)
        return build_claim(
            cause,
            by_cell,
            certainty=certainty,
            evidence=evidence,
            advice=advice,
            tokens=tokens,
            exchanges_between_days=exchanges_between_days,
            regions=regions,
            since_day=since_day,
            is_of_tokens=parts != {OTHER},
            alternative_causes=alternative_causes,
            claimed_portions=taken,
        )

    def portion_of_entry(self, entry: DifferenceEntry, share: Fraction) -> ClaimedPortion:
        part, cell, meter = entry
        tokens = self.extra.get((cell, meter), 0) if part == VOLUME else 0
        return ClaimedPortion(round(self.amounts.get(entry, 0) * share), round(tokens * share))

    def remaining_portion_of_entry(self, entry: DifferenceEntry, claimed: ClaimedPortion) -> ClaimedPortion:
        _, cell, meter = entry
        amount = self.amounts.get(entry, 0)
        tokens = self.extra.get((cell, meter), 0)
        return ClaimedPortion(amount - claimed.amount, tokens - claimed.tokens)

    def billed_value_and_tokens(self, entry: DifferenceEntry) -> ClaimedPortion:
        """Return the value at our prices and the number of the billed tokens in an entry's cell and meter."""
        _, cell, meter = entry
        split = self._split
        return ClaimedPortion(
            split.values.get((cell, meter), 0) + split.parts.get(entry, 0), self.billed_tokens(cell, meter)
        )

    def billed_tokens(self, cell: ComparisonCell, meter: str) -> int:
        split = self._split
        own_tokens = split.counted[cell].tokens.get(meter, 0) if cell in split.counted else 0
        return own_tokens + split.extra.get((cell, meter), 0)

    def _reduce_entry(
        self, entry: DifferenceEntry, share: int | None, tokens: int | None, portion: ClaimedPortion
    ) -> tuple[int, int | None]:
        part, cell, meter = entry
        is_all = part == VOLUME and tokens is not None and abs(tokens - portion.tokens) <= 1
        if is_all:
            return share or 0, tokens
        if (share or 0) != portion.amount:
            self.amounts[entry] = (share or 0) - portion.amount
        if part == VOLUME and (tokens or 0) != portion.tokens:
            self.extra[cell, meter] = (tokens or 0) - portion.tokens
        return portion.amount, portion.tokens
