"""
What changes of closed months of bills. After closing nothing in a month moves: what would change it is kept as entries
of the day on which it was found, so that the month as it was sent to finance and its entries are the month made anew.
What the provider bills of it itself is in no entry. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.bills.billed.closing import nobodys
from gateway.bills.billed.spreading import in_turn
from spool.ledger.billed import CORRECTS, INVOICED, RESTATED, UNALLOCATED, BilledDay, BilledSum
from spool.ledger.queries import BILLED_TYPES
from spool.ledger.sums import DAY_S, Dimensions
from spool.statements.rules import day_text

_AS_BILLED = BILLED_TYPES["billed_cost"]
_BITS = [bit for bit in BILLED_TYPES.values() if bit != INVOICED]

Place = tuple[Dimensions, str, int]  # dimensions, basis, arranged


def restated(made: Sequence[BilledSum], known: Iterable[BilledSum]) -> list[BilledSum]:
    """
    Return what a day of a closed month comes to now, less what is known of it: as it was closed, and the entries
    since. It is of no invoice.
    """
    apart: Counter[Place] = Counter()
    for sign, sums in ((1, made), (-1, known)):
        for each in sums:
            if mask := each.arranged & ~INVOICED:
                apart[each.dimensions, each.basis, mask] += sign * each.amount
    return sorted(
        BilledSum(dimensions, RESTATED, basis, mask, amount)
        for (dimensions, basis, mask), amount in apart.items()
        if amount
    )


@dataclass(frozen=True, slots=True)
class Restated:
    """
    How a day of a closed month comes out now, less how it was closed: `total` as it is billed. `reasons` and
    `accrued` are those of the difference.
    """

    day: BilledDay
    sums: Sequence[BilledSum]
    reasons: Mapping[str, int]
    accrued: Mapping[str, int]

    @classmethod
    def of(
        cls, day: BilledDay, sums: Sequence[BilledSum], closed: BilledDay, known: Sequence[BilledSum]
    ) -> Restated:
        reasons, accrued = _less(day.reasons, closed.reasons), _less(day.accrued, closed.accrued)
        return cls(day, restated(sums, known), reasons, accrued)

    @property
    def total(self) -> int:
        return _total(self.sums, _AS_BILLED)

    def unbilled(self, billed: int) -> Restated:
        """Return what is left of it where the provider has billed a part of it: of every row alike."""
        whole = abs(self.total)
        left = whole - min(whole, abs(billed))
        if left == whole:
            return self
        sums = [each._replace(amount=_part(each.amount, left, whole)) for each in self.sums]
        nobody = nobodys(self.day.seller)
        for bit in _BITS:
            rest = _part(_total(self.sums, bit), left, whole) - _total(sums, bit)
            sums.append(BilledSum(nobody, RESTATED, UNALLOCATED, bit, rest))
        reasons, accrued = (
            {name: _part(amount, left, whole) for name, amount in of.items()}
            for of in (self.reasons, self.accrued)
        )
        return Restated(self.day, [each for each in sums if each.amount], reasons, accrued)


def _part(amount: int, left: int, whole: int) -> int:
    part = abs(amount) * left // whole
    return -part if amount < 0 else part


def _total(sums: Iterable[BilledSum], bit: int) -> int:
    return sum(each.amount for each in sums if each.arranged & bit)


@dataclass(frozen=True, slots=True, order=True)
class BilledLater:
    """A refund or correction of a later bill: how long its time is, when it begins, and its amount."""

    length: int
    start: int
    amount: int


def billed_of(totals: Mapping[int, int], later: Iterable[BilledLater]) -> Mapping[int, int]:
    """
    Return what of restated days the provider billed itself: of each of its rows as much as the days of the row were
    restated in its direction, those of one day first.
    """
    left, found = dict(totals), Counter[int]()
    for row in sorted(later):
        first, end = row.start // DAY_S * DAY_S, row.start + row.length
        days = [day for day in sorted(left) if first <= day < end and left[day] * row.amount > 0]
        whole = sum(abs(left[day]) for day in days)
        sign = -1 if row.amount < 0 else 1
        parts = in_turn(min(abs(row.amount), whole), [abs(left[day]) for day in days])
        for day, part in zip(days, parts, strict=True):
            left[day] -= sign * part
            found[day] += sign * part
    return found


def entry_of(found: Restated, at: int, known: Sequence[BilledDay], *, mark: str) -> BilledDay:
    """Return the entry of a day `at` which it was found that another one came out differently."""
    day = found.day
    reasons, accrued = dict(found.reasons), dict(found.accrued)
    for each in known:
        reasons, accrued = _less(reasons, each.reasons), _less(accrued, each.accrued)
    return replace(
        day,
        day=at,
        provider=f"{day.provider}{CORRECTS}{day_text(day.day)}",
        mark=mark,
        reasons=reasons,
        accrued=accrued,
        foreign={},
    )


def _less(now: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    found = Counter(now)
    found.subtract(known)
    return {name: amount for name, amount in found.items() if amount}
