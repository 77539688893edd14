"""What the seats of plans used, by spans and by days, as it was read from the ledger. Values alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatUse:
    """
    The calls of a seat that its plan covers: their value at list prices in dollars, the same in the
    currency that is asked for (`worth`), both in units, and how many worked.
    """

    value: int = 0
    worth: int = 0
    calls: int = 0
    unpriced: int = 0

    def plus(self, other: SeatUse) -> SeatUse:
        return SeatUse(
            value=self.value + other.value,
            worth=self.worth + other.worth,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
        )


NOTHING = SeatUse()


def _by_seat() -> dict[str, dict[int, SeatUse]]:
    return defaultdict(dict)


@dataclass(slots=True)
class Uses:
    """
    By the mark of a seat, and the start of the span or of the day. Days are known of some seats alone:
    those that went beyond, or all.

    `metered` is the counted cost of the calls of the asked month that no plan covers, in units, also by day.
    What no rate is known for is by its currency: of these calls in `unpaid`, of covered ones in `unvalued`.
    """

    spans: dict[str, dict[int, SeatUse]] = field(default_factory=_by_seat)
    days: dict[str, dict[int, SeatUse]] = field(default_factory=_by_seat)
    metered: int = 0
    metered_by_day: Counter[int] = field(default_factory=Counter)
    unpaid: Counter[str] = field(default_factory=Counter)
    unvalued: Counter[str] = field(default_factory=Counter)

    def of(self, mark: str, start: int, end: int) -> SeatUse:
        """Return what a seat used in a time, which begins and ends where cycles or months do."""
        found = NOTHING
        for at, use in self.spans.get(mark, _NONE).items():
            if start <= at < end:
                found = found.plus(use)
        return found

    def on(self, mark: str, day: int) -> SeatUse:
        return self.days.get(mark, _NONE).get(day, NOTHING)

    def put(self, mark: str, at: int, use: SeatUse, *, is_day: bool) -> None:
        places = (self.days if is_day else self.spans)[mark]
        places[at] = places.get(at, NOTHING).plus(use)


_NONE: Mapping[int, SeatUse] = {}
