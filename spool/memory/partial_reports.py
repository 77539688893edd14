"""Waiting partial reports without a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.log.partial_reports import PartialReport


class MemoryPartialReports:
    def __init__(self) -> None:
        self._waiting: dict[bytes, PartialReport] = {}

    def follow(self, changes: Mapping[bytes, PartialReport | None]) -> None:
        """Apply what a commit says of partial reports; None: it waits no more."""
        for key, report in changes.items():
            if report is None:
                self._waiting.pop(key, None)
            else:
                self._waiting[key] = report

    async def load(self) -> Sequence[PartialReport]:
        return sorted(self._waiting.values(), key=lambda report: (report.at, report.key))
