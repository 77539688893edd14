"""
Lines of a comparison: sums of a day, a model, a key, or everything, and their states. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.bills.reconciliation.cells import BilledCountedDifference
from gateway.bills.reconciliation.claims import CauseClaim
from gateway.bills.reconciliation.limits import COARSEST
from gateway.bills.reconciliation.sides import PARTS, VOLUME, BilledSums, ComparisonCell, CountedSums

OPEN, AGREES, EXPLAINED, DIFFERS, UNKNOWN = "open", "agrees", "explained", "differs", "no statement"
FINAL = (AGREES, EXPLAINED, DIFFERS)  # states of days that were compared, and not left open

Naming = Callable[[ComparisonCell], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayTolerance:
    """
    The differences of a day that are allowed, as percentages of the billed amounts. A cent, plus the rounding
    of the bill, is always allowed.
    """

    money: Decimal = Decimal("0.5")
    tokens: Decimal = Decimal(1)

    def is_line_within(self, line: ComparisonLine, claimed: int) -> bool:
        """
        Return whether the line's difference is within the tolerance. A cent is always tolerated, except in
        causes about tokens or prices: `claimed` is their largest amount.
        """
        share = abs(line.billed) * self.money / 100
        difference = abs(line.difference - line.causes.get("rounding", 0))
        is_within = difference <= max(COARSEST, share) and claimed <= share
        return is_within and self.are_tokens_within(line)

    def is_unexplained_part_within(self, line: ComparisonLine, unexplained_tokens: int) -> bool:
        """
        Return whether the unexplained amount of a line, and its unexplained `unexplained_tokens`, are within the
        tolerance.
        """
        share = abs(line.billed) * self.money / 100
        is_whole = unexplained_tokens <= line.billed_tokens * self.tokens / 100
        return is_whole and abs(line.unexplained) <= max(COARSEST, share)

    def are_tokens_within(self, line: ComparisonLine) -> bool:
        return abs(line.billed_tokens - line.counted_tokens) <= line.billed_tokens * self.tokens / 100


@dataclass(slots=True, kw_only=True)
class ComparisonLine:
    """
    Sums of a day, a model, a key, or everything. `billed` is exactly `counted` plus the four amounts in
    `parts`. It is also `counted` plus the amounts in `causes` plus `unexplained`.

    `captured_tokens` are the tokens that both the bill and the ledger have.
    """

    name: str = ""
    billed: int = 0
    counted: int = 0
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    billed_tokens: int = 0
    counted_tokens: int = 0
    captured_tokens: int = 0
    captured_money: int = 0
    billed_calls: int | None = None
    counted_calls: int = 0
    causes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    state: str = AGREES
    # filter of the cost API that selects our calls of this line
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def difference(self) -> int:
        return self.billed - self.counted

    @property
    def explained(self) -> int:
        return sum(self.causes.values())

    @property
    def unexplained(self) -> int:
        return self.difference - self.explained


def merge_lines(lines: Sequence[ComparisonLine], *, name: str) -> ComparisonLine:
    """Sum lines of the comparison into one, without their states and cost filters."""
    total = ComparisonLine(name=name)
    for line in lines:
        total.billed += line.billed
        total.counted += line.counted
        total.billed_tokens += line.billed_tokens
        total.counted_tokens += line.counted_tokens
        total.captured_tokens += line.captured_tokens
        total.captured_money += line.captured_money
        total.counted_calls += line.counted_calls
        if line.billed_calls is not None:
            total.billed_calls = (total.billed_calls or 0) + line.billed_calls
        for part, amount in line.parts.items():
            total.parts[part] += amount
        for cause, amount in line.causes.items():
            total.causes[cause] += amount
    return total


def lines_by_name(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim], name_of: Naming
) -> dict[str, ComparisonLine]:
    """
    Sum cells into lines by the name that `name_of` returns. The billed amount of a line is its counted amount
    plus its parts of the difference.
    """
    lines: dict[str, ComparisonLine] = {}

    def find_or_add_line(cell: ComparisonCell) -> ComparisonLine:
        name = name_of(cell)
        return lines.setdefault(name, ComparisonLine(name=name))

    for cell in {*bill_difference.billed, *bill_difference.counted}:
        ours = bill_difference.counted.get(cell, CountedSums())
        theirs = bill_difference.billed.get(cell, BilledSums())
        tokens = sum(ours.tokens.values())
        billed_tokens = sum(theirs.tokens.values()) if cell.day in bill_difference.metered else tokens
        cell_line = find_or_add_line(cell)
        cell_line.counted += ours.cost
        cell_line.counted_tokens += tokens
        cell_line.counted_calls += ours.calls
        cell_line.billed_tokens += billed_tokens
        cell_line.captured_tokens += min(tokens, billed_tokens)
        if theirs.calls is not None:
            cell_line.billed_calls = (cell_line.billed_calls or 0) + theirs.calls
    for (part, cell, _), amount in bill_difference.parts.items():
        find_or_add_line(cell).parts[part] += amount
    for claim in claimed:
        for cell, amount in claim.by_cell.items():
            find_or_add_line(cell).causes[claim.cause] += amount
    for cell_line in lines.values():
        cell_line.billed = cell_line.counted + sum(cell_line.parts.values())
        cell_line.captured_money = max(0, min(cell_line.billed, cell_line.counted))
    return lines


def line_over_all_cells(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim]
) -> ComparisonLine:
    return lines_by_name(bill_difference, claimed, lambda _: "").get("", ComparisonLine())


def largest_claimed_amount_by_day(claimed: Sequence[CauseClaim]) -> dict[int, int]:
    largest: dict[int, int] = defaultdict(int)
    for claim in claimed:
        if claim.cause == "rounding" or not claim.is_of_tokens:
            continue
        of_day: dict[int, int] = defaultdict(int)
        for cell, amount in claim.by_cell.items():
            of_day[cell.day] += amount
        for day, amount in of_day.items():
            largest[day] = max(largest[day], abs(amount))
    return largest


def unexplained_tokens_by_day(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim]
) -> Counter[int]:
    """Return by day the tokens that only one side has and no claim explains."""
    left = Counter(bill_difference.extra)
    for claim in claimed:
        for (part, cell, meter), portion in claim.parts.items():
            left[cell, meter] -= portion.tokens if part == VOLUME else 0
    by_day = Counter[int]()
    for (cell, _), tokens in left.items():
        by_day[cell.day] += abs(tokens)
    return by_day


def days_with_key_tokens_outside_tolerance(
    bill_difference: BilledCountedDifference, tolerance: DayTolerance
) -> set[int]:
    by_key = lines_by_name(bill_difference, (), lambda cell: f"{cell.day} {cell.key}")
    return {int(name.split(" ")[0]) for name, line in by_key.items() if not tolerance.are_tokens_within(line)}


def set_line_state(
    line: ComparisonLine,
    state: str,
    tolerance: DayTolerance,
    largest_claim: int,
    unexplained_tokens: int,
    *,
    are_keys_apart: bool,
    has_doubtful_claims: bool,
) -> ComparisonLine:
    if state == AGREES and (not tolerance.is_line_within(line, largest_claim) or are_keys_apart):
        state = (
            EXPLAINED
            if tolerance.is_unexplained_part_within(line, unexplained_tokens) and not has_doubtful_claims
            else DIFFERS
        )
    line.state = state
    return line


def difference_rank(line: ComparisonLine) -> tuple[int, int, str]:
    return -abs(line.difference), -line.billed, line.name
