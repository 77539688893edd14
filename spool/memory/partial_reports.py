"""Waiting partial reports, and who was heard, without a disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, islice, takewhile

from spool.log.heard import CALLER_BYTES
from spool.log.partial_reports import PartialReport, of_kind


class MemoryHeard:
    """See `spool.log.heard.Heard`."""

    is_shared = False

    def __init__(self) -> None:
        self._of_callers: dict[bytes, dict[bytes, float]] = {}

    @property
    def knows_any(self) -> bool:
        return bool(self._of_callers)

    def follow(self, heard: Mapping[str, Collection[bytes]], at: float) -> None:
        """Note what a commit says of senders."""
        for sender in chain.from_iterable(heard.values()):
            senders = self._of_callers.setdefault(sender[:CALLER_BYTES], {})
            senders[sender] = max(at, senders.get(sender, at))

    async def find(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        return [found for caller in callers for found in self._of_callers.get(caller, {}).items()]

    async def forget(self, before: float) -> int:
        gone = [
            (caller, sender)
            for caller, senders in self._of_callers.items()
            for sender, at in senders.items()
            if at < before
        ]
        for caller, sender in gone:
            del self._of_callers[caller][sender]
            if not self._of_callers[caller]:
                del self._of_callers[caller]
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
