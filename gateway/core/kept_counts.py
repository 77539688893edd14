"""Counts by day, added to the stored counts of all processes."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from spool.errors import SpoolError
from spool.loops import log_failure, repeat

DAY_S = 86_400.0
KEEP_EVERY_S = 600.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class CounterByDay(Protocol[T]):
    """A counter by day, in memory. Days are numbered from 1970 on (UTC)."""

    @property
    def today(self) -> int: ...

    def take_counts(self) -> Mapping[int, T]: ...

    def put_back(self, counts_by_day: Mapping[int, T], /) -> None: ...


class DailyCountSaver(ABC, Generic[T]):
    """
    Adds the counts of a `CounterByDay` to the storage: before each query, every ten minutes, and at an orderly
    stop.

    `name` and `action` describe the counts in the log.
    """

    name: ClassVar[str]
    action: ClassVar[str]

    def __init__(self, counter: CounterByDay[T]) -> None:
        self.counter = counter

    @abstractmethod
    async def store_days(self, counts_by_day: Mapping[int, T]) -> None:
        """Add counts to the stored counts. Raises SpoolError."""

    async def store_pending(self) -> None:
        if counts_by_day := self.counter.take_counts():
            try:
                await self.store_days(counts_by_day)
            except Exception:
                self.counter.put_back(counts_by_day)
                raise

    async def run(self) -> None:
        failed = f"counts of {self.name} could not be stored and are retried"
        try:
            await repeat(self.store_pending, every_s=KEEP_EVERY_S, failed=failed, action=self.action)
        finally:
            try:
                await self.store_pending()
            except SpoolError as error:
                log_failure(failed, error, action=self.action)
