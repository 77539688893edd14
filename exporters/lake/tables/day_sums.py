"""Sums of rows by the day of their calls, in UTC, as the ledger has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple


class LakeDay(NamedTuple):
    """`spend` is in units of `spool.ledger.money`."""

    calls: int = 0
    spend: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def with_more(self, calls: int, spend: int, given: int, made: int) -> LakeDay:
        return LakeDay(
            self.calls + calls, self.spend + spend, self.input_tokens + given, self.output_tokens + made
        )


class LakeDays:
    """Those of the rows of all deliveries that count; what was imported is in no ledger."""

    def __init__(self) -> None:
        self._days: dict[str, LakeDay] = {}

    def add(self, at: datetime | str, calls: int, spend: int, given: int, made: int) -> None:
        day = at[:10] if isinstance(at, str) else at.strftime("%Y-%m-%d")
        self._days[day] = self._days.get(day, LakeDay()).with_more(calls, spend, given, made)

    @property
    def days(self) -> Mapping[str, LakeDay]:
        return self._days
