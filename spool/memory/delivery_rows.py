"""What the deliveries in memory keep: routes, the deliveries of each, and dead letters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from spool.deliveries import rules
from spool.deliveries.values import DeadLetter, Delivery, PartialRefusal, RouteSpec


@dataclass(slots=True, kw_only=True)
class Row:
    """A delivery with what the protocol does not show of it."""

    delivery: Delivery
    passed: int  # the route's acceptances at the last 5xx
    proof: int | None = None  # and at the first refusal
    not_before: float = 0.0
    in_hand: bool = False
    unknown: bool = False

    @property
    def single(self) -> bool:
        return self.delivery.count == 1

    @property
    def waits_apart(self) -> bool:
        """A refused or stuck single record: waited for beside the backlog."""
        refused = self.delivery.refusals > 0 or self.delivery.server_errors >= rules.STUCK_AFTER
        return self.single and refused


@dataclass(slots=True, kw_only=True)
class Route:
    spec: RouteSpec
    next: int
    state: str = "running"
    reason: str | None = None
    orphaned: bool = False
    acceptances: int = 0
    replayed: int = 0
    terms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(rules.TERMS, 0))
    rows: dict[int, Row] = field(default_factory=dict)
    refusals: deque[PartialRefusal] = field(default_factory=lambda: deque(maxlen=rules.KEPT_REFUSALS))

    def open(self) -> Iterable[Row]:
        """Oldest first, replays after everything else."""
        rows = (row for row in self.rows.values() if not row.unknown)
        return sorted(rows, key=lambda row: (row.delivery.replay, row.delivery.first))

    def free(self, now: float | None = None) -> Iterable[Row]:
        """Open, not in hand, and due when `now` is given."""
        return (row for row in self.open() if not row.in_hand and (now is None or row.not_before <= now))


@dataclass(frozen=True, slots=True)
class Grave:
    letter: DeadLetter
    committed_at: float
    replay: bool
