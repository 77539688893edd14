"""Which calls wait for their final cost, when each is asked for again, and what came of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

# After the call was put on record. The first two are within `spool.hold`, so that the cost is that of the
# record; a seller knows a call some seconds after its end, and one that was cancelled or is settled later
# after minutes.
DELAYS_S = (4.0, 8.0, 30.0, 300.0, 3600.0, 86_400.0)
LONGEST_S = DELAYS_S[-1]
COUNTERS = ("in_time", "late", "unanswered", "left_out")


@dataclass(frozen=True, slots=True)
class Wait:
    seen_at: float  # epoch seconds
    asked: int = 0

    def due_at(self, now: float) -> float:
        """Return when to ask next; a clock that was ahead when the call was seen does not make it wait longer."""
        return min(self.seen_at, now) + DELAYS_S[self.asked]


@dataclass(slots=True)
class Waiting:
    """
    The calls of one seller by their numbers in the log.

    `late` are answers that came when the record was closed: `late_cost` is what they say, `late_estimate`
    what stands on record in its place.
    """

    calls: dict[int, Wait] = field(default_factory=dict)
    in_time: int = 0
    late: int = 0
    unanswered: int = 0  # asked for as often as it is worth, and not known there
    left_out: int = 0  # more at once than are kept waiting
    late_cost: Decimal = Decimal(0)
    late_estimate: Decimal = Decimal(0)
    reason: str = ""  # why nothing is asked for now
    paused_until: float = 0.0
    last_answer: float | None = None

    def add(self, number: int, now: float, *, most: int) -> None:
        if number in self.calls:
            return
        if len(self.calls) >= most:
            self.left_out += 1
        else:
            self.calls[number] = Wait(now)

    def due(self, now: float) -> Iterator[int]:
        """The numbers to ask for now: first those that are due since a moment, whose records may be open."""
        due = sorted([(wait.due_at(now), number) for number, wait in self.calls.items()], reverse=True)
        return (number for at, number in due if at <= now)

    def put_off(self, number: int) -> None:
        """Ask again later for a cost that is not known there yet."""
        wait = self.calls[number]
        if wait.asked + 1 < len(DELAYS_S):
            self.calls[number] = Wait(wait.seen_at, wait.asked + 1)
        else:
            del self.calls[number]
            self.unanswered += 1

    def drop(self, number: int) -> None:
        """Stop asking about a call."""
        del self.calls[number]

    def note_late(self, cost: str, estimate: str | None) -> None:
        self.late += 1
        self.late_cost += Decimal(cost)
        self.late_estimate += Decimal(estimate or 0)

    def kept(self) -> dict[str, Any]:
        """Return the state as JSON values, to be stored."""
        return {
            "calls": [[number, wait.seen_at, wait.asked] for number, wait in self.calls.items()],
            **{name: getattr(self, name) for name in COUNTERS},
            "late_cost": str(self.late_cost),
            "late_estimate": str(self.late_estimate),
            "last_answer": self.last_answer,
        }

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> Waiting:
        return cls(
            calls={number: Wait(seen_at, asked) for number, seen_at, asked in kept.get("calls", ())},
            **{name: kept.get(name, 0) for name in COUNTERS},
            late_cost=Decimal(kept.get("late_cost", "0")),
            late_estimate=Decimal(kept.get("late_estimate", "0")),
            last_answer=kept.get("last_answer"),
        )
