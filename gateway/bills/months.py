"""Calendar months, in which bills and amounts of contracts and plans are stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spool.statements import DAY_S


@dataclass(frozen=True, kw_only=True)
class CalendarMonth:
    """A calendar month (UTC). `days` are epoch seconds."""

    name: str
    days: Sequence[int]

    @classmethod
    def of(cls, name: str) -> CalendarMonth:
        """Return the month of a name such as 2026-10. Raises ValueError."""
        first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
        if first.strftime("%Y-%m") != name:
            raise ValueError(name)
        end = (first + timedelta(days=32)).replace(day=1)
        return cls(name=name, days=range(int(first.timestamp()), int(end.timestamp()), DAY_S))

    @classmethod
    def at(cls, now: float) -> CalendarMonth:
        return cls.of(datetime.fromtimestamp(now, UTC).strftime("%Y-%m"))

    @property
    def previous(self) -> CalendarMonth:
        return CalendarMonth.at(self.days[0] - DAY_S)

    @property
    def start(self) -> int:
        return self.days[0]

    @property
    def end(self) -> int:
        return self.days[-1] + DAY_S
