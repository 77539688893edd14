"""Types of the usage events that are kept, counted since there are such counts: bounded, whatever a sender invents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spool.record import Record, UsageEvent

MAX_TYPES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """How many events of a type are new here, and when the newest of them came."""

    type: str
    count: int
    last_seen: float


def types_of(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.event_type for record in records if isinstance(record, UsageEvent))


class EventTypes:
    """Types in memory; over the bound those go that were not seen for the longest time."""

    def __init__(self) -> None:
        self._seen: dict[str, EventType] = {}

    def count(self, types: Mapping[str, int], now: float) -> None:
        for type, n in types.items():
            before = self._seen.pop(type, EventType(type=type, count=0, last_seen=now))
            self._seen[type] = replace(before, count=before.count + n, last_seen=now)
        for type in list(self._seen)[: max(0, len(self._seen) - MAX_TYPES)]:
            del self._seen[type]

    def rows(self) -> Sequence[EventType]:
        """By name."""
        return sorted(self._seen.values(), key=lambda seen: seen.type)
