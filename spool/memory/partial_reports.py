"""Waiting partial reports, and who was heard, without a disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile

from spool.log.partial_reports import PartialReport, of_kind


class MemoryHeard:
    """Who told calls; nobody asks where the process that heard them is the only one."""

    def __init__(self) -> None:
        self._heard: dict[bytes, float] = {}

    def note(self, reporters: Iterable[bytes], at: float) -> None:
        for reporter in reporters:
            self._heard[reporter] = max(at, self._heard.get(reporter, at))

    async def find(self, reporters: Collection[bytes]) -> Mapping[bytes, float]:
        return {reporter: self._heard[reporter] for reporter in reporters if reporter in self._heard}

    async def forget(self, before: float) -> int:
        gone = [reporter for reporter, at in self._heard.items() if at < before]
        for reporter in gone:
            del self._heard[reporter]
        return len(gone)


class MemoryPartialReports:
    is_shared = False

    def __init__(self) -> None:
        self._waiting: dict[bytes, PartialReport] = {}

    def follow(self, changes: Mapping[bytes, PartialReport | None]) -> None:
        """Apply what a commit says of partial reports; None: it waits no more."""
        for key, report in changes.items():
            if report is None:
                self._waiting.pop(key, None)
            else:
                self._waiting[key] = report

    def get(self, key: bytes) -> PartialReport | None:
        return self._waiting.get(key)

    async def load(self) -> Sequence[PartialReport]:
        return sorted(self._waiting.values(), key=lambda report: (report.at, report.key))

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        begin = tuple(under)
        wanted = frozenset(keys)
        return {key: one for key, one in self._waiting.items() if key in wanted or key.startswith(begin)}

    async def oldest(self, kind: bytes, *, before: float, most: int) -> Sequence[PartialReport]:
        due = takewhile(lambda report: report.at <= before, of_kind(await self.load(), kind))
        return list(islice(due, most))

    async def count(self, kind: bytes) -> tuple[int, int]:
        found = list(of_kind(self._waiting.values(), kind))
        return len(found), sum(len(report.body) for report in found)
